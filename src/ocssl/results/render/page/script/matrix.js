// Accuracy after each experience on the classes of each, a square of cells for each strategy.

const SIDE = 150; // pixels that a matrix likes to have

function drawMatrix(figure, width) {
  const shown = figure.series.filter((series) => series.matrix && series.matrix.length > 1 && !hidden.has(series.style));
  return shown.map((series) => matrixPlot(figure, series, linear(figure.range, [0.04, 1]), Math.min(SIDE, width)));
}

function matrixPlot({ title }, series, shade, side) {
  const top = 20;
  const { matrix } = series;
  const cell = side / Math.max(matrix.length, matrix[0].length);
  const drawing = svg("svg", { viewBox: `0 0 ${side} ${side + top}`, style: `max-width: ${side}px`, role: "group", "aria-roledescription": "figure", "aria-label": `${title}: accuracy by experience, ${series.label}` },
    svg("text", { class: series.ranked ? "name" : "name bound", x: 0, y: 12 }, shortened(series.label, side)));
  const marks = matrix.flatMap((row, i) => row.map((accuracy, j) => {
    drawing.append(svg("rect", { class: "cell", colour: series.style, x: (j * cell).toFixed(2), y: (top + i * cell).toFixed(2), width: cell.toFixed(2), height: cell.toFixed(2), "fill-opacity": shade(accuracy).toFixed(3) }));
    const [x, y] = [(j + 0.5) * cell, top + (i + 0.5) * cell];
    return {
      x, y, runs: () => series.runs,
      content: () => tipTable(series.label, [[series.style, `after experience ${i + 1}`, `${accuracy.toFixed(1)} %`], [null, "on the classes of", `experience ${j + 1}`]]),
    };
  }));
  explore(drawing, marks, { reach: cell });
  return drawing;
}
