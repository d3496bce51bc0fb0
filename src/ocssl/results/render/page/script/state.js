// What is shown: the data, one choice for each facet, and the strategies whose lines are switched off.

const data = JSON.parse(document.getElementById("data").textContent);
for (const figure of data.figures) figure.series = figure.series.map((number) => data.series[number]);

const FACETS = ["protocol", "dataset", "method", "budget"];
const ALL = "";
const chosen = Object.fromEntries(FACETS.map((facet) => [facet, ALL]));
const hidden = new Set();
const listeners = [];

const whenChanged = (listener) => listeners.push(listener);
const changed = () => listeners.forEach((listener) => listener());

// What has no value of a facet (an objective of its own, say) belongs to every choice of it.
const matches = (facets, names = FACETS) =>
  names.every((name) => chosen[name] === ALL || !facets[name] || facets[name] === chosen[name]);
