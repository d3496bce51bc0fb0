// One tip for all figures, for mouse, touch and keyboard alike.
//
// A figure hands over its marks: where each is, what the tip says of it, and which runs it opens. The figure is a
// single stop of the tab key; arrows walk from mark to mark, Enter opens, Escape leaves.

const tip = document.getElementById("tip");

// Beside the mark where there is room, else above or below it.
function showTip(content, x, y) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const beside = [x + 14, x - 14 - width].find((left) => left >= 8 && left + width <= innerWidth - 8);
  const left = beside ?? Math.min(Math.max(8, x - width / 2), innerWidth - width - 8);
  const top = beside !== undefined ? y - height / 2 : y - height - 18 >= 8 ? y - height - 18 : y + 18;
  tip.style.transform = `translate(${left}px, ${Math.min(Math.max(8, top), innerHeight - height - 8)}px)`;
}

const hideTip = () => { tip.hidden = true; };

// marks: {x, y, content(y), runs(y)}, positions in pixels of the figure; `reach` is how far a pointer may be away.
function explore(figure, marks, { along = false, reach = 40 } = {}) {
  if (!marks.length) return;
  const pointer = along
    ? svg("line", { class: "cursor", y1: 0, visibility: "hidden" })
    : svg("circle", { class: "ring", r: 7, visibility: "hidden" });
  figure.append(pointer);
  let at = -1;
  let back = 0; // where focus comes back to from a dialog

  const leave = () => { at = -1; pointer.setAttribute("visibility", "hidden"); hideTip(); };
  const visit = (index, y = marks[index].y) => {
    at = index;
    const mark = marks[at];
    const box = figure.getBoundingClientRect();
    if (along) [["x1", mark.x], ["x2", mark.x], ["y1", mark.top], ["y2", mark.bottom]].forEach(([name, value]) => pointer.setAttribute(name, value));
    else [["cx", mark.x], ["cy", mark.y]].forEach(([name, value]) => pointer.setAttribute(name, value));
    pointer.setAttribute("visibility", "visible");
    showTip(mark.content(y), box.left + mark.x, box.top + y);
  };
  const nearest = (event) => {
    const box = figure.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const far = marks.map((mark) => (along ? Math.abs(mark.x - x) : mark.covers ? mark.covers(x, y) : Math.hypot(mark.x - x, mark.y - y)));
    const index = far.indexOf(Math.min(...far));
    return { index: far[index] <= reach ? index : -1, y };
  };
  const point = (event) => {
    const { index, y } = nearest(event);
    if (index < 0) leave();
    else visit(index, along ? y : undefined);
  };

  figure.setAttribute("tabindex", "0");
  figure.addEventListener("pointermove", point);
  figure.addEventListener("pointerdown", point);
  figure.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") leave(); });
  figure.addEventListener("blur", leave);
  figure.addEventListener("focus", () => { if (figure.matches(":focus-visible")) visit(back); back = 0; });
  figure.addEventListener("click", (event) => {
    const { index, y } = nearest(event);
    if (index >= 0 && event.pointerType !== "touch") openIfAny(marks[index].runs(y));
  });
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) visit((Math.max(at, 0) + step + marks.length) % marks.length);
    else if (event.key === "Enter" && at >= 0) { back = at; openIfAny(marks[at].runs(marks[at].y)); }
    else if (event.key === "Escape") leave();
    else return;
    event.preventDefault();
  });
}

function openIfAny(runs) {
  hideTip();
  if (runs.length) openRuns(runs);
}

// Rows of a tip: [style, name, value], the one at `nearest` stressed.
function tipTable(title, rows, nearest = -1) {
  return [
    html("strong", {}, title),
    html("table", {}, ...rows.map(([style, name, value], index) =>
      html("tr", { class: index === nearest ? "nearest" : null },
        html("th", {}, style ? html("span", { class: "key", colour: style }) : null, name), html("td", {}, value)))),
  ];
}
