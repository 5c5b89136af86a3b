// A region as a layered graph: operators in ranks from what they read to what they make.

const BOX = { height: 40, gap: 22, rise: 34, pad: 12, least: 84, most: 190, port: 24 };

// The end of a name, which tells it from others of the same module.
function shortened(text, limit) {
  const shown = Array.from(visible(text));
  return shown.length <= limit ? shown.join("") : "…" + shown.slice(1 - limit).join("");
}

// Boxes for the nodes of one side, for the tensors that enter it and for those that leave it.
function boxesOf(side, drawing, names) {
  const boxes = [];
  const maker = new Map();
  const add = (box) => (boxes.push(box), box);
  const widthOf = (lines) => Math.min(BOX.most, Math.max(BOX.least, BOX.pad * 2 + Math.max(...lines.map((l) => Array.from(l).length)) * 7.3));
  for (const id of drawing.inputs) {
    const [label, type] = names[id];
    const lines = [shortened(label, 22)];
    maker.set(id, add({ kind: "port", lines, title: label + (type ? "  " + type : ""), width: widthOf(lines), height: BOX.port, reads: [], rank: 0 }));
  }
  for (const [op, label, reads, makes, detail] of side) {
    const lines = [op, detail].filter(Boolean).map((line) => shortened(line, 26));
    const box = add({ kind: op === "constant" ? "constant" : "operator", lines, title: label || op, width: widthOf(lines), height: BOX.height, reads, rank: 0 });
    for (const id of makes) maker.set(id, box);
  }
  return { boxes, maker };
}

function layered(side, ends, drawing, names) {
  const { boxes, maker } = boxesOf(side, drawing, names);
  const edges = [];
  for (const box of boxes) for (const id of box.reads) if (maker.has(id)) edges.push([maker.get(id), box]);
  for (const id of ends) {
    const [label, type] = names[id];
    const lines = [shortened(label, 22)];
    const box = { kind: "port", lines, title: label + (type ? "  " + type : ""), width: Math.min(BOX.most, Math.max(BOX.least, 24 + Array.from(lines[0]).length * 7.3)), height: BOX.port, reads: [id], rank: 0, last: true };
    boxes.push(box);
    if (maker.has(id)) edges.push([maker.get(id), box]);
  }
  rankAll(boxes, edges);
  const used = new Set(edges.flat());
  return arranged(boxes.filter((box) => box.kind !== "port" || box.last || used.has(box)), edges);
}

function rankAll(boxes, edges) {
  for (let turn = 0, moved = true; moved && turn <= boxes.length; turn += 1) {
    moved = false;
    for (const [from, to] of edges) {
      if (to.rank <= from.rank) {
        to.rank = from.rank + 1;
        moved = true;
      }
    }
  }
  const deepest = Math.max(0, ...boxes.map((box) => box.rank));
  for (const box of boxes) if (box.last) box.rank = Math.max(1, deepest);
}

// Long edges pass each rank between through a narrow place of their own, so that they do not cross boxes.
function arranged(boxes, edges) {
  const ranks = [];
  const place = (box) => (ranks[box.rank] = ranks[box.rank] || []).push(box);
  boxes.forEach(place);
  const steps = [];
  const paths = edges.map(([from, to]) => {
    const path = [from];
    for (let rank = from.rank + 1; rank < to.rank; rank += 1) {
      const bend = { kind: "bend", width: 14, height: 0, rank, lines: [] };
      place(bend);
      path.push(bend);
    }
    path.push(to);
    for (let i = 1; i < path.length; i += 1) steps.push([path[i - 1], path[i]]);
    return path;
  });
  const rows = ranks.filter(Boolean);
  for (let sweep = 0; sweep < 4; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : rows.slice().reverse()) sortRow(row, steps, down);
  }
  return { rows, paths, ...positioned(rows) };
}

function sortRow(row, steps, down) {
  const centre = (box) => {
    const near = steps.filter(([from, to]) => (down ? to : from) === box).map(([from, to]) => (down ? from : to).order ?? 0);
    return near.length ? near.reduce((a, b) => a + b, 0) / near.length : box.order ?? 0;
  };
  const held = new Map(row.map((box) => [box, centre(box)]));
  row.sort((a, b) => held.get(a) - held.get(b));
  row.forEach((box, place) => (box.order = place - (row.length - 1) / 2));
}

function positioned(rows) {
  const widths = rows.map((row) => row.reduce((sum, box) => sum + box.width, 0) + BOX.gap * (row.length - 1));
  const width = Math.max(...widths);
  let top = 2;
  rows.forEach((row, number) => {
    const height = Math.max(...row.map((box) => box.height), 8);
    let left = (width - widths[number]) / 2 + 2;
    for (const box of row) {
      if (box.kind === "bend") box.height = height;
      Object.assign(box, { x: left, y: top + (height - box.height) / 2 });
      left += box.width + BOX.gap;
    }
    top += height + BOX.rise;
  });
  return { width: width + 4, height: top - BOX.rise + 2 };
}

function drawnBox(box, fresh) {
  if (box.kind === "bend") return null;
  const middle = box.x + box.width / 2;
  const shape = box.kind === "port" ? "port" : "operator" + (box.kind === "constant" ? " constant" : fresh ? " fresh" : "");
  const texts = box.lines.map((line, number) => svg(
    "text",
    { x: middle, y: box.y + (box.lines.length === 1 ? box.height / 2 + 4.5 : 17 + number * 15), "text-anchor": "middle", class: number || box.kind === "port" ? "small" : null, direction: "ltr", "unicode-bidi": "isolate" },
    line,
  ));
  const rounding = box.kind === "port" ? BOX.port / 2 : 7;
  return svg("g", {}, svg("title", {}, box.title), svg("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: rounding, class: shape }), texts);
}

function drawnPath(path) {
  const middle = (box) => box.x + box.width / 2;
  const end = path[path.length - 1];
  let line = "";
  path.forEach((box, place) => {
    if (place > 0) {
      const before = path[place - 1];
      const [fromY, toY] = [before.y + before.height, box === end ? box.y - 5 : box.y];
      const half = (fromY + toY) / 2;
      line += `C${middle(before)} ${half} ${middle(box)} ${half} ${middle(box)} ${toY}`;
    }
    if (box.kind === "bend") line += `V${box.y + box.height}`;
    else if (place === 0) line += `M${middle(box)} ${box.y + box.height}`;
  });
  return [svg("path", { d: line, class: "edge" }), svg("path", { d: `M${middle(end) - 4} ${end.y - 6}h8l-4 6z`, class: "head" })];
}

function drawnSide(title, side, ends, drawing, names, fresh) {
  const { rows, paths, width, height } = layered(side, ends, drawing, names);
  const told = title + ": " + (side.length ? side.map((node) => node[0]).join(", ") : "no node, the tensor passes through");
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told }, paths.map(drawnPath), rows.flat().map((box) => drawnBox(box, fresh)));
  return el("figure", { class: "side" }, el("figcaption", {}, title), el("div", { class: "canvas", tabindex: "0", role: "group", "aria-label": title + ", drawing" }, picture));
}

function sides(drawing, names) {
  const nodes = (number) => count(number) + (number === 1 ? " node" : " nodes");
  const fresh = drawing.after.filter((node) => node[0] !== "constant");
  return el(
    "div",
    { class: "sides" },
    drawnSide("Before, " + nodes(drawing.before.length), drawing.before, drawing.outputs.map((pair) => pair[0]), drawing, names, false),
    drawnSide("After, " + nodes(fresh.length), drawing.after, drawing.outputs.map((pair) => pair[1]), drawing, names, true),
  );
}

const SMALLEST = 0.72;

// Drawings that are wider than their place are made smaller, as long as they can be read, and begin in the middle.
function fitted(place) {
  for (const canvas of place.querySelectorAll(".canvas")) {
    const picture = canvas.firstElementChild;
    const [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
    const scale = Math.min(1, Math.max(SMALLEST, (canvas.clientWidth - 16) / width));
    picture.setAttribute("width", width * scale);
    picture.setAttribute("height", height * scale);
    canvas.scrollLeft = (canvas.scrollWidth - canvas.clientWidth) / 2;
  }
}
