// The page, section by section.

const data = JSON.parse(document.getElementById("data").textContent);

function section(id, title, note, ...children) {
  return el("section", { id, "aria-labelledby": id + "-title" }, el("div", { class: "lead" }, el("h2", { id: id + "-title" }, title), note ? el("p", {}, note) : null), children);
}

function header(sections) {
  const links = sections.map((s) => el("li", {}, el("a", { href: "#" + s.id }, s.querySelector("h2").textContent)));
  return el(
    "header",
    {},
    el("p", { class: "eyebrow" }, "surgeon-passes report", data.created ? " · " + data.created : null),
    el("h1", {}, name(data.title)),
    el("p", { class: "facts" }, data.facts.map(([label, value]) => el("span", {}, label + " ", name(value)))),
    el("p", { class: "verdict " + data.verdict.tone }, el("strong", {}, data.verdict.title), el("span", {}, data.verdict.text)),
    el("nav", { "aria-label": "Sections" }, el("ul", {}, links)),
  );
}

function removedSection() {
  const top = data.removed.reduce((most, [, gone]) => Math.max(most, gone), 1);
  const rows = data.removed.map(([rule, gone, times]) => barRow(name(rule), [count(gone), el("span", { class: "soft" }, " in " + count(times))], bars(0, gone, top, false)));
  const body = rows.length ? folded(el("ul", { class: "rows" }), rows, 10, "rules") : el("p", { class: "empty" }, "No rule removed a node.");
  return section("removed", "Nodes removed by rule", "nodes, and matches", body);
}

function operatorSection() {
  const top = data.operators.reduce((most, [, before, after]) => Math.max(most, before, after), 1);
  const rows = data.operators.map(([op, before, after]) => barRow(name(op), before === after ? count(after) : count(before) + " → " + count(after), bars(before, after, top)));
  return section("operators", "Operators", [el("span", { class: "key old" }, "before"), el("span", { class: "key" }, "after")], folded(el("ul", { class: "rows" }), rows, 10, "operators"));
}

function tableOf(label, columns, rows) {
  const head = el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns.map(([title, kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, title))));
  const body = rows.map((cells) => el("tr", { role: "row" }, cells.map((value, place) => (place
    ? el("td", { role: "cell", class: columns[place][1] || "wraps", "data-label": columns[place][0] }, value)
    : el("th", { role: "rowheader", scope: "row", class: "wraps" }, value)))));
  const list = el("tbody", { role: "rowgroup" });
  const whole = el("div", { class: "table" }, el("table", { class: "stack", role: "table", "aria-label": label }, head, list));
  return folded(list, body, 10, "rows", whole);
}

function passSection() {
  const columns = [["Pass", ""], ["Changed something", "number"], ["Nodes", "number"], ["Seconds", "number"]];
  const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "") + count(Math.abs(value));
  const rows = data.passes.map((p) => [name(p.name), p.active + " of " + p.runs + (p.runs === 1 ? " run" : " runs"), signed(p.nodes), p.seconds.toFixed(2)]);
  return section("passes", "Passes", data.rounds, tableOf("Passes", columns, rows));
}

function stageSection() {
  const notes = data.stages.undone.map((text) => el("p", { class: "soft more" }, name(text)));
  return section("stages", "Stages", "the model after each pass", plainTable(data.stages), notes);
}

function latencySection() {
  const { slower } = data.latency;
  return section("latency", "Latency", "medians, in ONNX Runtime", slower ? el("p", { class: "verdict warn" }, el("strong", {}, "Slower"), el("span", {}, name(slower))) : null, el("div", { class: "more" }, plainTable(data.latency)));
}

function plainTable(part) {
  return tableOf(part.title, part.columns.map((title) => [title, ""]), part.rows.map((cells) => cells.map((cell) => name(cell))));
}

function declinedSection() {
  const places = (group) => el("ul", { class: "places" }, group.places.map(([root, reason]) => el("li", {}, name(root), reason ? el("span", { class: "soft" }, " ", name(reason)) : null)), group.more ? el("li", { class: "soft" }, "… and " + count(group.more) + " more") : null);
  const rows = data.declined.map((group) => el("details", {}, el("summary", {}, el("span", { class: "times" }, count(group.times)), el("span", {}, name(group.reason), el("br"), el("span", { class: "soft" }, name(group.rule)))), places(group)));
  const total = data.declined.reduce((sum, group) => sum + group.times, 0) + (data.declined_more || 0);
  const list = folded(el("div", { class: "table" }), rows, 12, "reasons");
  return section("declined", "Declined", count(total) + (total === 1 ? " place" : " places") + " where a rule came close, by reason", rows.length ? list : el("p", { class: "empty" }, "No rule came close without being applied."), data.declined_more ? el("p", { class: "soft more" }, count(data.declined_more) + " more, of rarer reasons, are in the JSON record.") : null);
}

function listTable(part) {
  const more = part.more ? el("p", { class: "soft" }, "… and " + count(part.more) + " more in the JSON record") : null;
  return el("div", { class: "part" }, el("h3", {}, part.title), plainTable(part), more);
}

function dynamicSection() {
  const { text, tables } = data.dynamic;
  return section("dynamic", "Dynamic shapes", null, el("p", { class: tables.length ? "" : "empty" }, name(text)), tables.map(listTable));
}

function healthSection() {
  const rows = data.health.map((f) => el("li", { class: "finding panel" }, el("span", { class: "tag " + (f.severity === "warning" ? "bad" : "warn") }, f.severity), el("span", {}, name(f.text)), f.where.length ? el("span", { class: "soft" }, names(f.where), f.more ? " and " + count(f.more) + " more" : null) : null));
  const body = rows.length ? el("ul", { class: "findings" }, rows) : el("p", { class: "empty" }, "Nothing was found: statistics, dtypes, inputs and branches are in order.");
  return section("health", "Health", null, body, data.blocks.rows.length ? listTable(data.blocks) : null);
}

function originSection() {
  return section("origin", "Provenance", null, el("div", { class: "panel" }, el("dl", { class: "terms" }, data.origin.map(([term, value]) => [el("dt", {}, term), el("dd", {}, name(value))]))), data.pipeline ? [el("h3", { class: "more" }, "Pipeline"), el("pre", { class: "more", tabindex: "0", role: "region", "aria-label": "Pipeline" }, data.pipeline.split("\n").map((line) => [line, el("br")]))] : null);
}

function render() {
  const matches = new Matches(data.matches, data.drawings, data.names);
  const chart = errorChart(data.matches, 600) && fittedChart(data.matches, (match) => matches.open(match));
  const pair = el("div", { class: "columns" }, removedSection(), operatorSection());
  const note = data.drawn < data.drawable ? "drawings of " + count(data.drawn) + " of " + count(data.drawable) : "open one to see it drawn";
  const parts = [
    pair,
    data.latency ? latencySection() : null,
    data.stages ? stageSection() : null,
    chart ? section("depth", "Error by depth", "each check; choose one to open its match", chart) : null,
    data.matches.length ? section("matches", "Matches", note, matches.element(), data.matches_more ? el("p", { class: "soft" }, count(data.matches_more) + " more are in the JSON record.") : null) : null,
    declinedSection(),
    healthSection(),
    dynamicSection(),
    data.passes.length ? passSection() : null,
    data.notes.length ? section("notes", "Notes", null, el("ul", { class: "rows" }, data.notes.map((note) => el("li", {}, name(note))))) : null,
    originSection(),
  ].filter(Boolean);
  const sections = parts.flatMap((part) => (part === pair ? Array.from(part.children) : [part]));
  const figures = el("div", { class: "figures", role: "group", "aria-label": "Headline figures" }, data.figures.map(figure));
  const head = header(sections);
  head.querySelector("nav").before(figures);
  document.getElementById("page").replaceChildren(el("div", { class: "wide" }, head, el("main", { id: "main", tabindex: "-1" }, parts), el("footer", {}, data.footer)));
}

render();
