// A run's whole configuration, in a dialog; the runs of one cell stand side by side, by seed.

const dialog = document.getElementById("details");

function openRuns(names, at = 0) {
  const run = data.runs[names[at]];
  dialog.replaceChildren(
    html("header", {},
      html("div", {},
        html("h2", { id: "details-title" }, run.name),
        names.length > 1 && seedChoices(names, at) || null),
      html("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close")),
    html("div", { class: "body" }, ...describeRun(run)));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function seedChoices(names, at) {
  return html("div", { class: "choices", role: "group", "aria-label": "Seed" }, ...names.map((name, index) =>
    html("button", {
      type: "button", "aria-pressed": String(index === at),
      onclick: () => { openRuns(names, index); dialog.querySelectorAll(".choices button")[index].focus(); },
    }, `seed ${data.runs[name].facts.seed}`)));
}

function describeRun(run) {
  return [
    html("dl", { class: "figures" }, ...Object.entries(run.numbers).map(([name, value]) =>
      html("div", {}, html("dt", {}, name), html("dd", {}, value)))),
    run.conflicting ? html("p", { class: "warning" }, "This run is in conflict with another result and does not count; see the problems at the top of the page.") : null,
    ...run.warnings.map((warning) => html("p", { class: "warning" }, warning)),
    html("p", { class: "path" }, run.path),
    ...settings("Other numbers", run.others),
    ...settings("Run", run.facts),
    ...settings("Configuration", run.config),
    ...settings("Versions", run.versions),
    ...settings("Hardware", run.hardware),
  ];
}

function settings(title, values) {
  return [
    html("h3", {}, title),
    html("dl", { class: "settings" }, ...Object.entries(values).flatMap(([name, value]) =>
      [html("dt", {}, name), html("dd", {}, spelled(value))])),
  ];
}

const spelled = (value) => (value === null ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value));

dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
