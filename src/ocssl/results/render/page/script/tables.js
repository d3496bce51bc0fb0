// Sorting: a heading sorts its table, again turns it round, a third time brings back the paper's order.

function sortBy(table, column, direction) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  rows.forEach((row, index) => { row.dataset.place ??= index; });
  const value = (row) => (direction === "none" ? row.dataset.place : row.cells[column].dataset.sort);
  rows.sort((a, b) => compare(value(a), value(b), direction) || a.dataset.place - b.dataset.place);
  body.append(...rows);
}

// What is missing comes last, whichever way.
function compare(a, b, direction) {
  if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);
  const order = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
  return direction === "descending" ? -order : order;
}

function startTables() {
  document.querySelectorAll("th[aria-sort]").forEach((heading) => {
    heading.querySelector("button").addEventListener("click", () => {
      const table = heading.closest("table");
      const first = heading.dataset.first;
      const second = first === "ascending" ? "descending" : "ascending";
      const next = { none: first, [first]: second, [second]: "none" }[heading.getAttribute("aria-sort")];
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", next);
      sortBy(table, heading.cellIndex, next);
    });
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-runs]");
    if (button) openRuns(button.dataset.runs.split(" "));
  });
}
