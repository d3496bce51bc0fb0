// Accuracy along the stream: a line and a band over seeds for each strategy; what has no stream is a level line.

function drawStream(figure, width) {
  const [plot] = figure.plots;
  const shown = figure.series.filter((series) => !hidden.has(series.style));
  const lines = shown.filter((series) => series.curve && series.curve.x.length > 1);
  if (!lines.length) return [];
  const levels = shown.filter((series) => !lines.includes(series) && series.final.mean !== null);
  const values = [...lines.flatMap((series) => [...series.curve.low, ...series.curve.high]), ...levels.map((series) => series.final.mean)];
  const stops = [...new Set(lines.flatMap((series) => series.curve.x))].sort((a, b) => a - b);
  const y = range(values);
  const { figure: drawing, across, up, inner } = frame(width, 330, `${figure.title}: accuracy along the stream`,
    { domain: [0, stops.at(-1)], ticks: ticks(0, stops.at(-1), width < 420 ? 3 : 5), title: plot.x },
    { domain: y, ticks: ticks(...y, 6), title: plot.title });
  for (const series of levels) {
    drawing.append(svg("line", { class: "line", colour: series.style, x1: inner.left, x2: inner.right, y1: up(series.final.mean), y2: up(series.final.mean), "stroke-dasharray": data.styles[series.style].dash || "6 3" }));
  }
  for (const series of lines) {
    const { x, low, high } = series.curve;
    const edge = [...x.map((at, i) => [across(at), up(high[i])]), ...x.map((at, i) => [across(at), up(low[i])]).reverse()];
    if (series.runs.length > 1) drawing.append(svg("path", { class: "band", colour: series.style, d: `${path(edge)}Z` }));
  }
  for (const series of lines) {
    const { x, mean } = series.curve;
    const dash = series.tuned ? "4 2" : data.styles[series.style].dash;
    drawing.append(svg("path", { class: "line", colour: series.style, d: path(x.map((at, i) => [across(at), up(mean[i])])), "stroke-dasharray": dash || null }));
    const every = Math.max(1, Math.round(x.length / 5));
    x.forEach((at, i) => { if ((x.length - 1 - i) % every === 0) drawing.append(marker(series, across(at), up(mean[i]), 3.5)); });
  }
  explore(drawing, stops.map((stop) => streamMark(stop, [...lines, ...levels], { across, up, inner })), { along: true });
  return [drawing];
}

function streamMark(stop, series, { across, up, inner }) {
  const at = series.map((one) => {
    if (!one.curve || one.curve.x.length < 2) return { one, mean: one.final.mean, text: one.final.short };
    const i = one.curve.x.indexOf(stop);
    if (i < 0) return null;
    return { one, mean: one.curve.mean[i], text: one.curve.texts[i] };
  }).filter(Boolean).sort((a, b) => b.mean - a.mean);
  const nearest = (y) => at.reduce((best, entry, i) => (Math.abs(up(entry.mean) - y) < Math.abs(up(at[best].mean) - y) ? i : best), 0);
  return {
    x: across(stop), y: up(at[0].mean), top: inner.top, bottom: inner.bottom,
    runs: (y) => at[nearest(y)].one.runs,
    content: (y) => tipTable(`after ${stop.toLocaleString("en")} images`, at.map(({ one, text }) => [one.style, one.label, text]), nearest(y)),
  };
}
