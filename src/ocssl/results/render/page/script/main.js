// Draws what the filters leave, again whenever they, the legend or the width change.

const NARROW = 240; // pixels below which figures do not shrink
const COLUMN = 400; // pixels that a figure likes to have
const GAP = 40;

const DRAW = { bars: drawBars, stream: drawStream, matrix: drawMatrix, budget: drawScatter, times: drawScatter };

// The figures of a kind that the filters leave. Those without a budget of their own have series of several.
const shownFigures = (kind) => data.figures.filter((figure) => figure.kind === kind && matches(figure))
  .map((figure) => (figure.budget === undefined ? { ...figure, series: figure.series.filter((one) => matches(one, ["budget"])) } : figure));

function drawFigures() {
  for (const section of document.querySelectorAll("[data-figure]")) {
    section.hidden = false; // so that it can be measured
    const figures = shownFigures(section.dataset.figure);
    const series = figures.flatMap((figure) => figure.series);
    const legend = section.querySelector(".legend");
    if (legend) drawLegend(legend, stylesOf(series));
    const filled = fill(section.querySelector(".cards"), figures);
    section.hidden = !filled && !series.some((one) => hidden.has(one.style));
  }
  for (const link of document.querySelectorAll(".contents a")) {
    const target = document.getElementById(link.hash.slice(1));
    link.parentElement.hidden = !target || target.hidden;
  }
}

// Two plots, of one figure or of two, stand side by side where there is room; returns how many figures were drawn.
function fill(place, figures) {
  const room = place.clientWidth;
  const draw = (columns) => {
    const width = Math.max(NARROW, (room - GAP * (columns - 1)) / columns);
    const drawn = figures.map((figure) => ({ figure, pair: figure.plots.length > 1 || figure.kind === "matrix", plots: DRAW[figure.kind](figure, width).filter(Boolean) }))
      .filter((one) => one.plots.length);
    if (columns > 1 && drawn.length === 1 && !drawn[0].pair) return draw(1);
    const template = (count) => `repeat(${count}, minmax(0, 1fr))`;
    place.style.gridTemplateColumns = template(drawn.some((one) => one.pair) ? 1 : columns);
    place.replaceChildren(...drawn.map(({ figure, pair, plots }) => card(figure, figure.kind === "matrix" ? `repeat(auto-fill, minmax(${SIDE}px, 1fr))` : template(pair ? columns : 1), plots)));
    return drawn.length;
  };
  return draw(room >= 2 * COLUMN + GAP ? 2 : 1);
}

function startTheme() {
  const button = document.getElementById("theme");
  const isDark = () => document.documentElement.dataset.theme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const tell = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; tell(); });
  tell();
}

startTheme();
startTables();
startFilters();
whenChanged(drawFigures);
changed();

let lastWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== lastWidth) { lastWidth = innerWidth; drawFigures(); }
});
addEventListener("scroll", hideTip, { passive: true });
