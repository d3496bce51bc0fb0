// One row of choices for each facet that has more than one value in the page.

const TITLES = { protocol: "Protocol", dataset: "Data set", method: "Objective", budget: "Budget" };

function valuesOf(facet) {
  const found = new Map();
  document.querySelectorAll(`[data-${facet}]`).forEach((node) => {
    if (node.dataset[facet]) found.set(node.dataset[facet], node.dataset[`${facet}Name`] || node.dataset[facet]);
  });
  return found;
}

function choices(facet, values) {
  const offered = facet === "protocol" ? [...[...values].sort().reverse(), [ALL, "both"]] : [[ALL, "all"], ...values]; // clean first
  chosen[facet] = offered[0][0];
  return html("fieldset", {},
    html("legend", {}, TITLES[facet]),
    html("div", { class: "choices" }, ...offered.map(([value, name]) =>
      html("label", {},
        html("input", {
          type: "radio", name: facet, value, checked: value === chosen[facet],
          onchange: () => { chosen[facet] = value; changed(); },
        }),
        html("span", {}, name)))));
}

function startFilters() {
  const form = document.getElementById("filters");
  for (const facet of FACETS) {
    const values = valuesOf(facet);
    if (values.size > 1) form.append(choices(facet, values));
  }
  form.hidden = !form.children.length;
  whenChanged(() => {
    document.querySelectorAll("[data-protocol]").forEach((node) => { node.hidden = !matches(node.dataset); });
    document.querySelectorAll(".runs-count").forEach((node) => {
      const rows = [...document.querySelectorAll("#runs tbody tr")];
      node.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} runs`;
    });
    document.getElementById("nothing").hidden = !!document.querySelector(".sheet:not([hidden])");
  });
}
