// Draws what the filters leave, again whenever they, the legend or the width change.

const NARROW = 240; // pixels below which figures do not shrink
const COLUMN = 400; // pixels that a figure likes to have
const GAP = 40;

// For each kind of figure, its cards: {title, sheet, series, draw(width), pair}; a pair's two plots go side by side.
const FIGURES = {
  bars: () => shownSheets().filter((sheet) => !sheet.budgets || !sheet.ablation)
    .map((sheet) => ({ title: sheet.title, sheet, series: sheet.series, pair: true, draw: (width) => drawBars(sheet, width) })),
  stream: () => shownSheets().filter((sheet) => !sheet.ablation)
    .map((sheet) => ({ title: sheet.title, sheet, series: sheet.series, draw: (width) => drawStream(sheet, width) })),
  budget: () => groups((sheet) => [sheet.dataset, sheet.method, sheet.protocol].join(" "))
    .map(({ sheet, series }) => ({ title: sheet.family, sheet, series, draw: (width) => [drawScatter(sheet.family, series, FINAL, width)] })),
  times: () => groups((sheet, series) => series.device && [sheet.dataset, sheet.method, sheet.protocol, series.device].join(" "))
    .map(({ sheet, series }) => {
      const title = `${sheet.family}, ${series[0].device}`;
      return { title, sheet, series, pair: true, draw: (width) => [SECONDS, STEP].map((number) => drawScatter(title, series, number, width)) };
    }),
};

const shownSheets = () => data.sheets.filter((sheet) => matches(sheet));

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
    place.replaceChildren(...drawn.map(({ title, sheet, pair, plots }) => card(title, sheet, template(pair ? columns : 1), plots)));
    return drawn.length;
  };
  return draw(room >= 2 * COLUMN + GAP ? 2 : 1);
}

function startTheme() {
  const button = document.getElementById("theme");
  const isDark = () => document.documentElement.dataset.theme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const tell = () => { button.setAttribute("aria-pressed", String(isDark())); };
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
