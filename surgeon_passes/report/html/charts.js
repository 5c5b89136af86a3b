// Bars, and the chart of errors by depth.

function bars(before, after, top, old = true) {
  const width = (value) => (top > 0 ? Math.max(0, (100 * value) / top) : 0);
  const drawn = (value, kind) => value > 0 && el("span", { class: "bar " + kind, "width%": width(value), "aria-hidden": "true" });
  return [old ? drawn(before, "old") : null, drawn(after, "new")];
}

function figure(item) {
  const format = FORMATS[item.kind];
  const both = known(item.before) && known(item.after);
  return el(
    "div",
    { class: "panel figure" },
    el("h2", {}, item.name),
    el("p", { class: "now" }, format(item.after), item.per ? el("span", { class: "per" }, " × ", name(item.per)) : null),
    both && item.text ? el("p", { class: "soft at" }, name(item.text)) : null,
    el("p", { class: "was" }, both ? [el("span", {}, "was " + format(item.before)), el("span", { class: "delta" }, change(item.before, item.after))] : name(item.text || "")),
    both ? el("div", { class: "pair" }, bars(item.before, item.after, Math.max(item.before, item.after))) : null,
  );
}

function barRow(label, value, track) {
  return el("li", { class: "row" }, el("span", { class: "label" }, label), el("span", { class: "value" }, value), el("span", { class: "track" }, track));
}

// ``list`` with the first of its rows; the rest is shown on request.
function folded(list, rows, shown, what, outside = list) {
  list.append(...rows.slice(0, shown));
  if (rows.length <= shown) return outside;
  const button = el("button", { type: "button", class: "more", onclick: () => {
    const next = rows[shown];
    list.append(...rows.slice(shown));
    button.remove();
    next.setAttribute("tabindex", "-1");
    next.focus();
  } }, "Show " + count(rows.length - shown) + " more " + what);
  return [outside, button];
}

const CROWD = 1500;
const CHART = { height: 300, left: 58, right: 14, top: 14, bottom: 42 };

// Of very many points those that do not lie on one another.
function apart(points, x, y) {
  if (points.length <= CROWD) return points;
  const places = new Map();
  for (const m of points) {
    const place = Math.round(x(m.depth) / 3) + " " + Math.round(y(m.error) / 3);
    if (!places.has(place) || m.error > places.get(place).error) places.set(place, m);
  }
  return [...places.values()];
}

// A picture of the errors that fits into ``width`` pixels; null where there is none.
function errorChart(matches, width, open) {
  const points = matches.filter((m) => known(m.depth) && typeof m.error === "number");
  if (!points.length) return null;
  const logs = points.filter((m) => m.error > 0).map((m) => Math.log10(m.error));
  const high = Math.ceil(logs.reduce((a, b) => Math.max(a, b), logs.length ? -Infinity : 0));
  const low = Math.min(high - 1, Math.floor(logs.reduce((a, b) => Math.min(a, b), logs.length ? Infinity : 0)));
  const height = logs.length ? CHART.height : 84;
  const zero = height - CHART.bottom; // errors of exactly 0 have a line of their own below the scale
  const bottom = zero - 30;
  const rise = (rung) => bottom - ((bottom - CHART.top) * (rung - low)) / (high - low);
  const x = (depth) => CHART.left + (width - CHART.left - CHART.right) * depth;
  const y = (error) => (error > 0 ? rise(Math.log10(error)) : zero);
  const line = (at, kind) => svg("line", { x1: CHART.left, x2: width - CHART.right, y1: at, y2: at, class: kind });
  const text = (at, words, anchor, across) => svg("text", { x: across, y: at, class: "small", "text-anchor": anchor }, words);
  const marks = [];
  const step = Math.ceil((high - low) / 6);
  for (let rung = low; logs.length && rung <= high; rung += step) {
    marks.push(line(rise(rung), "grid"), text(rise(rung) + 4, "1e" + (rung < 0 ? "−" : "") + Math.abs(rung), "end", CHART.left - 10));
  }
  marks.push(line(zero, "axis"), text(zero + 4, "0", "end", CHART.left - 10));
  marks.push(text(height - 12, "inputs", "start", CHART.left), text(height - 12, "outputs", "end", width - CHART.right));
  const dots = apart(points, x, y).map((m) => svg(
    "circle",
    { cx: x(m.depth).toFixed(1), cy: y(m.error).toFixed(1), r: 4.5, class: m.status === "undone" ? "dot undone" : "dot", onclick: () => open(m) },
    svg("title", {}, m.rule + " at " + m.root + ": " + scientific(m.error)),
  ));
  const largest = points.reduce((a, b) => (b.error > a.error ? b : a));
  const told = `Largest error of each check, from inputs to outputs; the largest of all is ${scientific(largest.error)} at ${largest.root}`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": told }, marks, dots);
}

// The chart, drawn anew where the place for it changes.
function fittedChart(matches, open) {
  const place = el("div", { class: "panel chart" });
  const draw = () => {
    const styles = getComputedStyle(place);
    const width = Math.floor(place.clientWidth - parseFloat(styles.paddingLeft) - parseFloat(styles.paddingRight));
    if (width > 0) place.replaceChildren(errorChart(matches, width, open));
  };
  new ResizeObserver(draw).observe(place);
  return place;
}
