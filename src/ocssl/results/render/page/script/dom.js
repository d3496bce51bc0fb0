// Building elements without ever parsing markup: strings from results only become text.

function build(make, name, attributes, children) {
  const node = make(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "colour") node.style.setProperty("--c", `var(--style-${value})`);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const html = (name, attributes, ...children) =>
  build((tag) => document.createElement(tag), name, attributes, children);

const svg = (name, attributes, ...children) =>
  build((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag), name, attributes, children);

// A number beside an axis.
function short(value) {
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (value >= 1e3) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(3)}`;
}
