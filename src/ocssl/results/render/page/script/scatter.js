// A number of each series against its CBP, those of one strategy joined: Final accuracy, and training times.

const drawScatter = (figure, width) => figure.plots.map((plot) => scatterPlot(figure, plot, width));

function scatterPlot({ title, series, joined }, plot, width) {
  const mean = (one) => one[plot.number].mean;
  const std = (one) => one[plot.number].std || 0;
  const shown = series.filter((one) => !hidden.has(one.style) && mean(one) !== null);
  if (!shown.length) return null;
  const spent = shown.map((one) => one.cbp);
  const reach = Math.max(...spent) / Math.min(...spent) > 1.5;
  const domain = reach ? [Math.min(...spent) / 1.25, Math.max(...spent) * 1.25] : [Math.min(...spent) / 2, Math.max(...spent) * 2];
  const y = range(shown.flatMap((one) => [mean(one) - std(one), mean(one) + std(one)]), plot.zero);
  const { figure, across, up } = frame(width, 300, `${title}: ${plot.title} against ${plot.x}`,
    { domain, scale: logarithmic, ticks: decades(domain), title: plot.x },
    { domain: y, ticks: ticks(...y, 5), title: plot.title });
  for (const style of joined ? stylesOf(shown) : []) {
    for (const tuned of [false, true]) {
      const points = apart(shown.filter((one) => one.style === style && one.tuned === tuned));
      if (points.length > 1) figure.append(svg("path", { class: "line thin", colour: style, d: path(points.map((one) => [across(one.cbp), up(mean(one))])), "stroke-dasharray": tuned ? "4 2" : null }));
    }
  }
  for (const one of shown) {
    if (std(one)) figure.append(svg("line", { class: "whisker", colour: one.style, x1: across(one.cbp), x2: across(one.cbp), y1: up(mean(one) - std(one)), y2: up(mean(one) + std(one)) }));
  }
  const marks = shown.map((one) => {
    const [x, at] = [across(one.cbp), up(mean(one))];
    figure.append(marker(one, x, at));
    const value = `${one[plot.number].text} ${plot.unit}`;
    return { x, y: at, runs: () => one.runs, content: () => tipTable(one.label, [[one.style, plot.title.split(",")[0], value], [null, plot.x, one.spent], ...(one.block ? [[null, "block", one.block]] : [])]) };
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
