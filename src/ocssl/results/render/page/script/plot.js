// The common parts of figures: scales, ticks, axes, markers, legends, cards.

function linear([low, high], [from, to]) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

function logarithmic([low, high], range) {
  const scale = linear([Math.log(low), Math.log(high)], range);
  return (value) => scale(Math.log(value));
}

function ticks(low, high, count) {
  const raw = (high - low || 1) / count;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = unit * [1, 2, 5, 10].find((factor) => factor * unit >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) found.push(+value.toPrecision(12));
  return found;
}

const MARKERS = {
  circle: (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
  square: (r) => `M${-r * 0.9},${-r * 0.9}h${r * 1.8}v${r * 1.8}h${-r * 1.8}Z`,
  diamond: (r) => `M0,${-r * 1.25}L${r * 1.25},0L0,${r * 1.25}L${-r * 1.25},0Z`,
  up: (r) => `M0,${-r * 1.15}L${r * 1.1},${r * 0.85}H${-r * 1.1}Z`,
  down: (r) => `M0,${r * 1.15}L${r * 1.1},${-r * 0.85}H${-r * 1.1}Z`,
  plus: (r) => star(r * 1.2, 0),
  cross: (r) => star(r * 1.2, Math.PI / 4),
};

// A thick plus, turned.
function star(r, turn) {
  const t = r * 0.34;
  const corners = [[t, t], [r, t], [r, -t], [t, -t], [t, -r], [-t, -r], [-t, -t], [-r, -t], [-r, t], [-t, t], [-t, r], [t, r]];
  const [c, s] = [Math.cos(turn), Math.sin(turn)];
  return `M${corners.map(([x, y]) => `${(x * c - y * s).toFixed(2)},${(x * s + y * c).toFixed(2)}`).join("L")}Z`;
}

const marker = (series, x, y, r = 4.5) =>
  svg("path", {
    class: series.tuned ? "mark open-mark" : "mark", colour: series.style, d: MARKERS[data.styles[series.style].marker](r),
    transform: `translate(${x},${y})`,
  });

const path = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");

// How many pixels wide a text is in a figure.
const ruler = document.createElement("canvas").getContext("2d");
function widthOf(text) {
  ruler.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

// As much of a text as there is room for.
function shortened(text, room) {
  let end = text.length;
  while (end > 1 && widthOf(text.slice(0, end)) > room - (end < text.length ? 12 : 0)) end -= 1;
  return end < text.length ? `${text.slice(0, end)}…` : text;
}

// An empty figure with axes. `x` and `y`: {domain, ticks, title}; `x.scale` is linear where it is left out.
function frame(width, height, label, x, y) {
  const inner = { left: 40, right: width - 14, top: 26, bottom: height - 40 };
  const across = (x.scale || linear)(x.domain, [inner.left, inner.right]);
  const up = linear(y.domain, [inner.bottom, inner.top]);
  const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-roledescription": "figure", "aria-label": label });
  for (const value of y.ticks) {
    figure.append(
      svg("line", { class: "grid", x1: inner.left, x2: inner.right, y1: up(value), y2: up(value) }),
      svg("text", { x: inner.left - 8, y: up(value) + 4, "text-anchor": "end" }, short(value)));
  }
  for (const value of x.ticks) {
    figure.append(
      svg("line", { class: "axis", x1: across(value), x2: across(value), y1: inner.bottom, y2: inner.bottom + 4 }),
      svg("text", { x: across(value), y: inner.bottom + 18, "text-anchor": "middle" }, short(value)));
  }
  figure.append(
    svg("line", { class: "axis", x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom }),
    svg("text", { x: 0, y: 12 }, y.title),
    svg("text", { x: inner.right, y: height - 4, "text-anchor": "end" }, x.title));
  return { figure, across, up, inner };
}

function card({ title, protocol, protocolName, caution, range }, columns, plots) {
  const note = range ? `Lightest ${range[0].toFixed(1)} %, darkest ${range[1].toFixed(1)} %.` : caution;
  return html("article", { class: "card" },
    html("div", { class: "heading" }, html("h3", {}, title), html("span", { class: `badge ${protocol}` }, `${protocolName} protocol`)),
    ...(note ? [html("p", { class: "note" }, note)] : []),
    html("div", { class: "plots", style: `grid-template-columns: ${columns}` }, ...plots));
}

function drawLegend(place, styles) {
  place.replaceChildren(...styles.map((style) => {
    const { label, dash } = data.styles[style];
    return html("button", {
      type: "button", "aria-pressed": String(!hidden.has(style)), "data-style": style,
      onclick: () => {
        hidden.has(style) ? hidden.delete(style) : hidden.add(style);
        changed();
        place.querySelector(`[data-style="${style}"]`).focus();
      },
    },
      svg("svg", { "aria-hidden": "true", viewBox: "0 0 24 14" },
        svg("line", { class: "line", colour: style, x1: 0, x2: 24, y1: 7, y2: 7, "stroke-dasharray": dash || null }),
        marker({ style }, 12, 7, 4)),
      label);
  }));
}

const stylesOf = (series) => Object.keys(data.styles).filter((style) => series.some((one) => one.style === style));

// The range of some values, with a little room; from zero where asked.
function range(values, zero = false) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  return [zero ? 0 : low - pad, high + pad];
}
