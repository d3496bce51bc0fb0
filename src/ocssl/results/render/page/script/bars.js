// Ours beside the paper's, a pair of bars for each row, as in the paper's first figure.

const ROW = 27;
const ABOVE = 17; // more for each row where names are too long to stand beside their bars

const drawBars = (figure, width) => figure.plots.map((plot) => barPlot(figure, plot, width));

function barPlot({ title, series: rows }, { number, title: caption }, width) {
  if (!rows.some((series) => series[number].mean !== null)) return null;
  const room = Math.min(150, width * 0.38);
  const beside = rows.every((series) => widthOf(series.label) <= room - 10);
  const [names, above] = beside ? [room, 0] : [0, ABOVE];
  const top = 26;
  const height = top + rows.length * (ROW + above) + 6;
  const values = rows.flatMap((series) => [(series[number].mean || 0) + (series[number].std || 0), series[number].paper || 0]);
  const across = linear([0, Math.max(...values)], [names, width - 38]);
  const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-roledescription": "figure", "aria-label": `${title}: ${caption}, bars` });
  figure.append(svg("text", { x: 0, y: 12 }, caption));
  const marks = rows.map((series, index) => {
    const score = series[number];
    const y = top + index * (ROW + above) + above;
    const place = beside ? { x: names - 10, y: y + 13, "text-anchor": "end" } : { x: 0, y: y - 2 };
    figure.append(svg("text", { class: series.ranked ? "name" : "name bound", ...place }, shortened(series.label, width)));
    if (score.mean === null) {
      figure.append(svg("text", { x: names + 1, y: y + 13 }, "–"));
      return null;
    }
    figure.append(
      svg("rect", { class: "bar", colour: series.style, x: names, y: y + 3, width: across(score.mean) - names, height: 11, rx: 1.5 }),
      svg("text", { class: "number", x: across(score.mean + (score.std || 0)) + 6, y: y + 13 }, score.short));
    if (score.std) figure.append(whisker(across(score.mean - score.std), across(score.mean + score.std), y + 8.5));
    if (score.paper !== null)
      figure.append(svg("rect", { class: "bar theirs", colour: series.style, x: names + 0.5, y: y + 16.5, width: Math.max(0, across(score.paper) - names - 0.5), height: 3.5, rx: 1 }));
    return {
      x: across(score.mean), y: y + 9, runs: () => series.runs,
      covers: (px, py) => (py >= y - above && py < y + ROW ? 0 : Infinity),
      content: () => tipTable(series.label, scoreRows(series, number)),
    };
  });
  explore(figure, marks.filter(Boolean));
  return figure;
}

function whisker(from, to, y) {
  return svg("path", { class: "bar-whisker", d: `M${from},${y}H${to}M${from},${y - 2.5}v5M${to},${y - 2.5}v5`, fill: "none" });
}

function scoreRows(series, number) {
  const score = series[number];
  const rows = [[series.style, "ours", score.text]];
  if (score.paper !== null) rows.push([null, "paper", score.paperText], [null, "difference", score.difference]);
  if (series.block) rows.push([null, "block", series.block]);
  rows.push([null, Object.keys(score.seeds).length > 1 ? "seeds" : "seed", Object.keys(score.seeds).join(" ")]);
  return rows;
}
