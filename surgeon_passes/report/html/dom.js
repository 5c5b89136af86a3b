// Elements and numbers. Whatever comes out of a model's file gets into the page as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// Escapes in the place of what does not print, or would turn the text around it.
function visible(text) {
  return String(text).replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (c) => {
    const code = c.codePointAt(0);
    return { 9: "\\t", 10: "\\n", 13: "\\r" }[code] || (code < 256 ? "\\x" + hex(code, 2) : "\\u" + hex(code, 4));
  });
}

function hex(code, digits) {
  return code.toString(16).padStart(digits, "0");
}

function build(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "onclick" || key === "oninput" || key === "onchange") made.addEventListener(key.slice(2), value);
    else if (key === "width%") made.style.width = value + "%"; // by script: the page's policy forbids style attributes
    else made.setAttribute(key, typeof value === "string" ? visible(value) : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return made;
}

function el(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

// A name out of a file: it may be written from right to left, and must not turn what stands beside it.
function name(text, kind = "") {
  return el("bdi", { class: kind || null }, text);
}

const known = (value) => value !== null && value !== undefined;

function count(value) {
  return known(value) ? Number(value).toLocaleString("en-US") : "–";
}

function scaled(value, step, units) {
  let place = 0;
  let left = Number(value);
  while (Math.abs(left) >= step && place < units.length - 1) {
    left /= step;
    place += 1;
  }
  const digits = place === 0 && Number.isInteger(left) ? 0 : Math.abs(left) >= 100 ? 0 : Math.abs(left) >= 10 ? 1 : 2;
  return left.toFixed(digits) + units[place];
}

const FORMATS = {
  count,
  bytes: (value) => (known(value) ? scaled(value, 1000, [" B", " kB", " MB", " GB", " TB"]) : "–"),
  big: (value) => (known(value) ? scaled(value, 1000, ["", " k", " M", " G", " T"]) : "–"),
  ms: (value) => (known(value) ? Number(value).toPrecision(3) + " ms" : "–"),
};

function scientific(value) {
  if (!known(value)) return "";
  if (typeof value === "string") return value; // nan, inf
  return value === 0 ? "0" : value.toExponential(1).replace("e-", "e−").replace("e+", "e");
}

function change(before, after) {
  if (!known(before) || !known(after)) return "";
  if (before === after) return "no change";
  if (before === 0) return "new";
  const percent = ((after - before) / before) * 100;
  const size = Math.abs(percent);
  if (size < 0.1) return percent < 0 ? "<0.1 % less" : "<0.1 % more";
  return (percent < 0 ? "−" : "+") + (size < 1 ? size.toFixed(1) : Math.round(size)) + " %";
}
