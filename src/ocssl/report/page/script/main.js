// Draws what the filters leave, again whenever they, the legend or the width change.

const NARROW = 240; // pixels below which figures do not shrink
const COLUMN = 400; // pixels that a figure likes to have
const GAP = 40;

const shownSheets = (kind) => data.sheets.filter((sheet) => sheet[kind] && matches(sheet));

// For each kind of figure, its cards: {title, of, series, draw(width), pair}; a pair's two plots go side by side.
const FIGURES = {
  bars: () => shownSheets("bars").map((sheet) =>
    ({ title: sheet.title, of: sheet, series: sheet.series, pair: true, draw: (width) => drawBars(sheet, width) })),
  stream: () => shownSheets("stream").map((sheet) =>
    ({ title: sheet.title, of: sheet, series: sheet.series, draw: (width) => drawStream(sheet, width) })),
  budget: () => shownFamilies().map((family) =>
    ({ title: family.title, of: family, series: family.series, draw: (width) => [drawScatter(family.title, family.series, FINAL, width, family.joined)] })),
  times: () => shownFamilies().flatMap((family) => devicesOf(family).map((device) => {
    const title = `${family.title}, ${device}`;
    const series = family.series.filter((one) => one.device === device);
    return { title, of: family, series, pair: true, draw: (width) => [SECONDS, STEP].map((number) => drawScatter(title, series, number, width, family.joined)) };
  })),
};

const devicesOf = (family) => [...new Set(family.series.map((one) => one.device).filter(Boolean))];

function drawFigures() {
  for (const section of document.querySelectorAll("[data-figure]")) {
    section.hidden = false; // so that it can be measured
    const cards = FIGURES[section.dataset.figure]();
    const series = cards.flatMap((one) => one.series);
    const legend = section.querySelector(".legend");
    if (legend) drawLegend(legend, looksOf(series.filter((one) => one.final.mean !== null)));
    const filled = fill(section.querySelector(".cards"), cards);
    section.hidden = !filled && !series.some((one) => hidden.has(one.look));
  }
}

// Two plots, of one card or of two, stand side by side where there is room; tells how many cards had something to show.
function fill(place, cards) {
  const room = place.clientWidth;
  const draw = (columns) => {
    const width = Math.max(NARROW, (room - GAP * (columns - 1)) / columns);
    const drawn = cards.map((one) => ({ ...one, plots: one.draw(width).filter(Boolean) })).filter((one) => one.plots.length);
    if (columns > 1 && drawn.length === 1 && !drawn[0].pair) return draw(1);
    const template = (count) => `repeat(${count}, minmax(0, 1fr))`;
    place.style.gridTemplateColumns = template(drawn.some((one) => one.pair) ? 1 : columns);
    place.replaceChildren(...drawn.map(({ title, of, pair, plots }) => card(title, of, template(pair ? columns : 1), plots)));
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
