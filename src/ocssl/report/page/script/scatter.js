// A number of each cell against its CBP, cells of one strategy joined: Final accuracy, and training times.

const FINAL = { title: "Final accuracy, %", mean: (series) => series.final.mean, std: (series) => series.final.std, text: (series) => `${spread(series.final)} %` };
const SECONDS = { title: "seconds per run", zero: true, mean: (series) => series.seconds.mean, std: (series) => series.seconds.std, text: (series) => `${spread(series.seconds, 1)} s` };
const STEP = { title: "milliseconds per step", zero: true, mean: (series) => series.step, std: () => null, text: (series) => `${fixed(series.step)} ms` };

function drawScatter(title, series, number, width, joined = true) {
  const shown = series.filter((one) => !hidden.has(one.look) && one.cbp && number.mean(one) !== null);
  if (!shown.length) return null;
  const spent = shown.map((one) => one.cbp);
  const reach = Math.max(...spent) / Math.min(...spent) > 1.5;
  const domain = reach ? [Math.min(...spent) / 1.25, Math.max(...spent) * 1.25] : [Math.min(...spent) / 2, Math.max(...spent) * 2];
  const y = range(shown.flatMap((one) => [number.mean(one) - (number.std(one) || 0), number.mean(one) + (number.std(one) || 0)]), { zero: number.zero });
  const { figure, across, up } = frame(width, 300, `${title}: ${number.title} against CBP`,
    { domain, scale: logarithmic, ticks: decades(domain), title: "CBP" },
    { domain: y, ticks: ticks(...y, 5), title: number.title });
  for (const look of joined ? looksOf(shown) : []) {
    for (const tuned of [false, true]) {
      const cells = apart(shown.filter((one) => one.look === look && one.tuned === tuned));
      if (cells.length > 1) figure.append(svg("path", { class: "line thin", look, d: path(cells.map((one) => [across(one.cbp), up(number.mean(one))])), "stroke-dasharray": tuned ? "4 2" : null }));
    }
  }
  for (const one of shown) {
    const std = number.std(one);
    if (std) figure.append(svg("line", { class: "whisker", look: one.look, x1: across(one.cbp), x2: across(one.cbp), y1: up(number.mean(one) - std), y2: up(number.mean(one) + std) }));
  }
  const marks = shown.map((one) => {
    const [x, at] = [across(one.cbp), up(number.mean(one))];
    figure.append(marker(one, x, at));
    return { x, y: at, runs: () => one.runs, content: () => tipTable(one.label, [[one.look, number.title.split(",")[0], number.text(one)], [null, "CBP", Math.round(one.cbp).toLocaleString("en")], ...(one.block ? [[null, "block", one.block]] : [])]) };
  });
  explore(figure, marks.sort((a, b) => a.x - b.x || a.y - b.y), { reach: 28 });
  return figure;
}

// In the order of their CBP, and of those that spent the same (two blocks of one budget) only the last.
function apart(series) {
  const sorted = [...series].sort((a, b) => a.cbp - b.cbp);
  return sorted.filter((one, index) => index === sorted.length - 1 || sorted[index + 1].cbp > one.cbp * 1.05);
}

function decades([low, high]) {
  const found = [];
  for (let unit = 10 ** Math.floor(Math.log10(low)); unit <= high; unit *= 10)
    for (const factor of [1, 2, 5]) if (factor * unit >= low && factor * unit <= high) found.push(factor * unit);
  return found;
}

const shownFamilies = () =>
  data.families.filter((family) => matches(family, ["protocol", "dataset", "method"]))
    .map((family) => ({ ...family, series: family.series.filter((one) => one.cbp && matches(one, ["budget"])) }));
