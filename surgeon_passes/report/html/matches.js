// The table of matches: filters, search, order, pages, and the drawing of the one that is open.

const PAGE = matchMedia("(max-width: 760px)").matches ? 20 : 50;

const NOTHING = { graph: "", verdict: "", reason: "", tensor: "", nodes: [], made: [] };

// What the data leaves out: what is empty, what follows from the rest, labels that are in the drawing.
function complete(row, drawing) {
  const labels = (side) => side.filter((node) => node[0] !== "constant").map((node) => node[1]);
  if (drawing) {
    row.nodes ??= labels(drawing.before);
    row.made ??= labels(drawing.after);
  }
  for (const key in NOTHING) row[key] ??= NOTHING[key];
  if (known(row.before)) row.gone = row.before - row.after;
  if (row.macs) row.cost = row.macs[1] - row.macs[0];
}

class Matches {
  constructor(rows, drawings, names) {
    this.rows = rows;
    for (const row of rows) complete(row, drawings[row.drawing]);
    this.drawings = drawings;
    this.names = names;
    this.page = 0;
    this.order = null;
    this.opened = null;
    this.filters = { rule: "", status: "", verdict: "" };
    this.wanted = "";
  }

  element() {
    this.status = el("p", { role: "status", class: "soft" });
    this.body = el("tbody", { role: "rowgroup" });
    this.back = el("button", { type: "button", onclick: () => this.turn(-1) }, "Previous");
    this.next = el("button", { type: "button", onclick: () => this.turn(1) }, "Next");
    this.search = el("input", { type: "search", id: "search-field", placeholder: "Rule, node, tensor, reason", oninput: () => {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.look(this.search.value), 120);
    } });
    const made = el(
      "div",
      {},
      el("div", { class: "controls" }, field("search", "Search", this.search), this.selects()),
      el("div", { class: "table" }, el("table", { class: "stack", role: "table", "aria-label": "Matches" }, this.head(), this.body)),
      el("div", { class: "pager" }, this.status, el("div", {}, this.back, this.next)),
    );
    this.draw();
    return made;
  }

  selects() {
    this.chosen = {};
    return ["rule", "status", "verdict"].map((key) => {
      const tally = new Map();
      for (const row of this.rows) tally.set(row[key], (tally.get(row[key]) || 0) + 1);
      const values = Array.from(tally).sort((a, b) => b[1] - a[1]);
      const options = values.map(([value, times]) => el("option", { value: "=" + value }, (value || "not checked") + " (" + count(times) + ")"));
      const label = key[0].toUpperCase() + key.slice(1);
      const select = el("select", { id: key + "-field", onchange: () => this.filter(key, select.value) }, el("option", { value: "" }, "All"), options);
      this.chosen[key] = select;
      return field("", label, select);
    });
  }

  head() {
    const columns = [["Rule", "rule"], ["At", "root"], ["Nodes", "gone", 1], ["MACs", "cost", 1], ["Largest error", "error", 1], ["Status", "status"]];
    this.heads = columns.map(([title, key, number]) => {
      const button = el("button", { type: "button", onclick: () => this.sort(key) }, title);
      return [key, el("th", { scope: "col", role: "columnheader", class: number ? "number" : null }, button)];
    });
    return el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, this.heads.map(([, th]) => th)));
  }

  look(text) {
    this.wanted = text.trim().toLowerCase();
    this.page = 0;
    this.draw();
  }

  filter(key, value) {
    this.filters[key] = value;
    this.page = 0;
    this.draw();
  }

  sort(key) {
    const falling = this.order && this.order.key === key ? !this.order.falling : ["gone", "error"].includes(key);
    this.order = { key, falling };
    for (const [own, th] of this.heads) {
      if (own === key) th.setAttribute("aria-sort", falling ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    this.page = 0;
    this.draw();
  }

  turn(by) {
    this.page += by;
    this.draw();
    this.body.closest(".table").scrollIntoView({ block: "nearest" });
  }

  found() {
    const words = (row) => (row.words ||= [row.rule, row.root, row.graph, row.reason, row.tensor, ...row.nodes, ...row.made].join("\n").toLowerCase());
    const kept = this.rows.filter((row) => {
      for (const key in this.filters) if (this.filters[key] && this.filters[key] !== "=" + row[key]) return false;
      return !this.wanted || words(row).includes(this.wanted);
    });
    if (!this.order) return kept;
    const { key, falling } = this.order;
    const lowest = (value) => (known(value) ? value : falling ? -Infinity : Infinity);
    const less = (a, b) => (typeof a[key] === "string" && typeof b[key] === "string" ? a[key].localeCompare(b[key]) : lowest(a[key]) - lowest(b[key]));
    return kept.slice().sort((a, b) => (falling ? less(b, a) : less(a, b)));
  }

  draw() {
    const found = this.found();
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const first = this.page * PAGE;
    this.opened = null;
    this.body.replaceChildren(...found.slice(first, first + PAGE).map((row) => this.row(row)));
    const last = Math.min(found.length, first + PAGE);
    const all = found.length === this.rows.length ? "" : " (of " + count(this.rows.length) + ")";
    this.status.textContent = found.length ? `${count(first + 1)}–${count(last)} of ${count(found.length)} matches${all}` : "No match has all of this";
    this.back.disabled = this.page === 0;
    this.next.disabled = this.page >= pages - 1;
    return found;
  }

  row(match) {
    const cell = (label, kind, ...children) => el("td", { role: "cell", class: kind, "data-label": label }, children);
    const nodes = known(match.before) ? count(match.before) + " → " + count(match.after) : "–";
    const tr = el("tr", { role: "row" });
    const button = el("button", { type: "button", class: "link", "aria-expanded": "false", onclick: () => this.toggle(match, tr, button) }, name(match.rule));
    tr.append(
      el("th", { role: "rowheader", scope: "row" }, button),
      cell("At", "wraps whole", name(match.root || "the model"), match.graph ? el("span", { class: "soft" }, " in ", name(match.graph)) : null),
      cell("Nodes", "number", nodes),
      cell("MACs", "number", match.cost === 0 ? "no change" : match.macs ? change(match.macs[0], match.macs[1]) : "–"),
      cell("Largest error", "number", scientific(match.error) || "–"),
      cell("Status", "", tag(match)),
    );
    return tr;
  }

  toggle(match, tr, button) {
    const was = this.opened;
    if (was) {
      was.detail.remove();
      was.tr.classList.remove("open");
      was.button.setAttribute("aria-expanded", "false");
      this.opened = null;
      if (was.match === match) return;
    }
    const detail = el("tr", { class: "detail", role: "row" }, el("td", { colspan: "6", role: "cell" }, this.detail(match)));
    tr.after(detail);
    fitted(detail);
    tr.classList.add("open");
    button.setAttribute("aria-expanded", "true");
    this.opened = { match, tr, button, detail };
  }

  detail(match) {
    const drawing = known(match.drawing) ? this.drawings[match.drawing] : null;
    const rows = [
      ["Why", match.reason],
      ["Nodes", match.nodes.length ? names(match.nodes) : null],
      ["New nodes", match.made.length ? names(match.made) : null],
      ["Inputs", typed(drawing ? drawing.inputs.map((id) => this.names[id]) : match.inputs)],
      ["Outputs", typed(drawing ? drawing.outputs.map((pair) => this.names[pair[1]]) : match.outputs)],
      ["Parameters", pairOf(match.parameters, count)],
      ["MACs", match.macs ? [pairOf(match.macs, FORMATS.big), match.macs[2] ? [" × ", name(match.macs[2])] : null] : null],
      ["Errors", known(match.error) ? ["largest " + scientific(match.error), match.tensor ? [" at ", name(match.tensor)] : null, known(match.mean) ? ", mean " + scientific(match.mean) : null] : null],
      ["Weights", folds(match.folds)],
      ["Pass", [match.pass, known(match.seconds) ? ", " + Number(match.seconds).toPrecision(2) + " s" : null]],
    ];
    const terms = rows.filter(([, value]) => value && (!Array.isArray(value) || value.flat(Infinity).some(Boolean)));
    return [
      el("dl", { class: "terms" }, terms.map(([term, value]) => [el("dt", {}, term), el("dd", {}, value)])),
      drawing ? sides(drawing, this.names) : match.undrawn ? el("p", { class: "soft" }, match.undrawn) : null,
    ];
  }

  // Show one match, whatever is filtered.
  open(match) {
    this.filters = { rule: "", status: "", verdict: "" };
    for (const select of Object.values(this.chosen)) select.value = "";
    this.search.value = "";
    this.wanted = "";
    this.page = Math.floor(this.found().indexOf(match) / PAGE);
    const place = this.draw().indexOf(match) % PAGE;
    const tr = this.body.children[place];
    const button = tr.querySelector("button");
    button.click();
    button.focus({ preventScroll: true });
    tr.scrollIntoView({ block: "center" });
  }
}

function field(kind, label, control) {
  return el("div", { class: "field " + kind }, el("label", { for: control.id }, label), control);
}

const TONES = { applied: "good", undone: "bad", conflict: "warn", declined: "plain" };

function tag(match) {
  const tone = match.status === "applied" && match.verdict !== "verified" ? "warn" : TONES[match.status] || "plain";
  const words = match.status === "applied" ? match.verdict || "applied" : match.status;
  return el("span", { class: "tag " + tone }, words);
}

function names(items) {
  return items.map((item, place) => [place ? ", " : null, name(item)]);
}

function typed(items) {
  return items && items.length ? items.map(([label, type], place) => [place ? ", " : null, name(label), type ? el("span", { class: "soft" }, " " + type) : null]) : null;
}

function pairOf(pair, format) {
  return pair && (known(pair[0]) || known(pair[1])) ? format(pair[0]) + " → " + format(pair[1]) : null;
}

function folds(items) {
  return items && items.length ? items.map((item) => el("div", {}, name(item[0]), item[1])) : null;
}
