"""The report as a PDF, from the same data as the page; drawn with reportlab, which the extra ``pdf`` brings."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from surgeon_passes.errors import UsageError, visible
from surgeon_passes.report.html.view import view_of

try:
    from reportlab.graphics.shapes import Circle, Drawing, Line, Rect, String
    from reportlab.lib.colors import HexColor
    from reportlab.lib.pagesizes import A4
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.lib.units import mm
    from reportlab.platypus import CondPageBreak, LongTable, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle
except ImportError:
    raise UsageError(
        "a PDF needs reportlab: pip install 'surgeon-passes[pdf]' (or write the report as .html)"
    ) from None

INK, SOFT, LINE, ACCENT, OLD, SUNKEN = map(HexColor, ("#1b1c22", "#585b68", "#d8d5cd", "#3046c4", "#b6b8c3", "#f2f0eb"))
TONES = {"good": HexColor("#17693f"), "warn": HexColor("#7f5000"), "bad": HexColor("#a8231b")}
MATCHES = 400
"""Matches that are listed; the record has all."""
BARS = 14
WIDTH = A4[0] - 36 * mm - 12
"""Of what stands between the margins and the frame's own padding."""

BODY = ParagraphStyle("body", fontName="Helvetica", fontSize=9, leading=12.5, textColor=INK, splitLongWords=1)
QUIET = ParagraphStyle("quiet", BODY, textColor=SOFT)
CELL = ParagraphStyle("cell", BODY, fontSize=7.8, leading=10)
HEAD = ParagraphStyle("head", CELL, textColor=SOFT, fontName="Helvetica-Bold")
TITLE = ParagraphStyle("title", BODY, fontName="Helvetica-Bold", fontSize=21, leading=26)
SECTION = ParagraphStyle(
    "section", BODY, fontName="Helvetica-Bold", fontSize=12.5, leading=17, spaceBefore=16, spaceAfter=6
)
BIG = ParagraphStyle("big", BODY, fontName="Helvetica-Bold", fontSize=15, leading=19)
CODE = ParagraphStyle("code", CELL, fontName="Courier", fontSize=7.4, leading=9.6)


def render_pdf(record: Mapping[str, Any]) -> bytes:
    """The report of a record. What no standard font of PDF has is escaped. Raises UsageError without the extra ``pdf``."""
    view = view_of(record)
    stream = io.BytesIO()
    document = SimpleDocTemplate(
        stream,
        pagesize=A4,
        leftMargin=18 * mm,
        rightMargin=18 * mm,
        topMargin=18 * mm,
        bottomMargin=18 * mm,
        title=printable(f"{view['title']} - surgeon-passes"),
        author="surgeon-passes",
        lang="en",
        invariant=1,
    )
    parts = [
        *_head(view),
        *_bars(view),
        *_errors(view["matches"]),
        *_times(view),
        *_health(view),
        *_declined(view),
        *_dynamic(view["dynamic"]),
        *_passes(view),
        *_matches(view),
        *_origin(view),
    ]
    document.build(parts, onFirstPage=_number, onLaterPages=_number)
    return stream.getvalue()


def printable(text: object) -> str:
    """``text`` with escapes in the place of what does not print, or what the standard fonts do not have."""
    plain = visible(str(text).replace("→", "->").replace("−", "-"))
    return plain.encode("cp1252", "backslashreplace").decode("cp1252")


def _text(value: object, style: Any = BODY, color: str = "") -> Any:
    marked = escape(printable(value))
    return Paragraph(f'<font color="{color}">{marked}</font>' if color else marked, style)


def _section(title: str, *parts: Any) -> list[Any]:
    return [CondPageBreak(40 * mm), _text(title, SECTION), *parts]


def _number(canvas: Any, document: Any) -> None:
    canvas.saveState()
    canvas.setFont("Helvetica", 7.5)
    canvas.setFillColor(SOFT)
    canvas.drawRightString(A4[0] - 18 * mm, 10 * mm, str(document.page))
    canvas.restoreState()


# --- head ------------------------------------------------------------------------------------------------------------


def _head(view: Mapping[str, Any]) -> list[Any]:
    facts = "   ".join(f"{label} {value}" for label, value in view["facts"])
    tone = view["verdict"]["tone"]
    verdict = ParagraphStyle("verdict", BODY, textColor=TONES[tone], fontSize=10, leading=14)
    return [
        _text(f"surgeon-passes report, {view['created']}", QUIET),
        _text(view["title"], TITLE),
        _text(facts, QUIET),
        Spacer(1, 8),
        _text(f"{view['verdict']['title']}. {view['verdict']['text']}", verdict),
        Spacer(1, 8),
        _figures(view["figures"]),
    ]


def _figures(figures: Sequence[Mapping[str, Any]]) -> Any:
    cells = [[_text(f["name"], QUIET), _text(_amount(f, "after"), BIG), _text(_was(f), QUIET)] for f in figures]
    table = Table([cells], colWidths=[WIDTH / len(cells)] * len(cells))
    table.setStyle(
        TableStyle(
            [
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("LINEABOVE", (0, 0), (-1, 0), 0.6, LINE),
                ("LEFTPADDING", (0, 0), (-1, -1), 0),
            ]
        )
    )
    return table


def _was(figure: Mapping[str, Any]) -> str:
    before, after = figure["before"], figure["after"]
    if before is None or after is None:
        return str(figure.get("text", ""))
    change = f", {100 * (after - before) / before:+.0f} %" if before else ""
    at = f", {figure['text']}" if figure.get("text") else ""
    return f"was {_amount(figure, 'before')}{change}{at}"


def _amount(figure: Mapping[str, Any], side: str) -> str:
    value = figure[side]
    if value is None:
        return "–"
    per = f" × {figure['per']}" if figure.get("per") else ""
    return amount(value, figure["kind"]) + per


def amount(value: float, kind: str) -> str:
    """``1.81 G``: a figure of the page's kinds ``count``, ``bytes``, ``big`` and ``ms``."""
    if kind == "ms":
        return f"{value:.3g} ms"
    if kind == "count":
        return f"{value:,}"
    units = (" B", " kB", " MB", " GB", " TB") if kind == "bytes" else ("", " k", " M", " G", " T")
    place, left = 0, float(value)
    while abs(left) >= 1000 and place < len(units) - 1:
        place, left = place + 1, left / 1000
    digits = 0 if place == 0 or left >= 100 else 1 if left >= 10 else 2
    return f"{left:.{digits}f}{units[place]}"


# --- bars and errors -------------------------------------------------------------------------------------------------


def _bars(view: Mapping[str, Any]) -> list[Any]:
    removed = [(rule, f"{gone} in {times}", [(gone, ACCENT)]) for rule, gone, times in view["removed"]]
    operators = [
        (op, f"{before} -> {after}" if before != after else str(after), [(before, OLD), (after, ACCENT)])
        for op, before, after in view["operators"]
    ]
    found = _section("Nodes removed by rule", *_bar_chart(removed)) if removed else []
    return [*found, *_section("Operators, before and after", *_bar_chart(operators))]


def _bar_chart(rows: Sequence[tuple[str, str, Sequence[tuple[int, Any]]]]) -> list[Any]:
    shown = rows[:BARS]
    step, label, value = 15, 0.34 * WIDTH, 0.16 * WIDTH
    room = WIDTH - label - value
    top = max((n for _, _, bars in shown for n, _ in bars), default=1) or 1
    drawing = Drawing(WIDTH, step * len(shown))
    for place, (name, text, bars) in enumerate(shown):
        y = step * (len(shown) - place) - 10
        drawing.add(String(0, y, _fitting(name, 34), fontName="Helvetica", fontSize=8, fillColor=INK))
        thick = 7 / len(bars)
        for slot, (number, color) in enumerate(bars):
            at = y + 5.5 - thick * (slot + 1)
            drawing.add(Rect(label, at, room * number / top, thick - 0.6, fillColor=color, strokeColor=None))
        drawing.add(String(WIDTH, y, text, fontName="Helvetica", fontSize=8, fillColor=INK, textAnchor="end"))
    more = [_text(f"… and {len(rows) - BARS} more", QUIET)] if len(rows) > BARS else []
    return [drawing, *more]


def _fitting(name: str, limit: int) -> str:
    text = printable(name)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _errors(matches: Sequence[Mapping[str, Any]]) -> list[Any]:
    from math import ceil, floor, log10

    points = [(m["depth"], m["error"]) for m in matches if "depth" in m and isinstance(m.get("error"), (int, float))]
    logs = [log10(error) for _, error in points if error > 0]
    if not points:
        return []
    high = ceil(max(logs, default=0))
    low = min(high - 1, floor(min(logs, default=0)))
    height, left, zero = 130, 34, 16
    drawing = Drawing(WIDTH, height)

    def rise(rung: float) -> float:
        return zero + 16 + (height - zero - 24) * (rung - low) / (high - low)

    for rung in range(low, high + 1, ceil((high - low) / 6)) if logs else ():
        drawing.add(Line(left, rise(rung), WIDTH, rise(rung), strokeColor=LINE, strokeWidth=0.5))
        drawing.add(
            String(
                left - 5,
                rise(rung) - 2.5,
                f"1e{rung}",
                fontName="Helvetica",
                fontSize=7,
                fillColor=SOFT,
                textAnchor="end",
            )
        )
    drawing.add(Line(left, zero, WIDTH, zero, strokeColor=SOFT, strokeWidth=0.6))
    drawing.add(String(left - 5, zero - 2.5, "0", fontName="Helvetica", fontSize=7, fillColor=SOFT, textAnchor="end"))
    drawing.add(String(left, 3, "inputs", fontName="Helvetica", fontSize=7, fillColor=SOFT))
    drawing.add(String(WIDTH, 3, "outputs", fontName="Helvetica", fontSize=7, fillColor=SOFT, textAnchor="end"))
    for depth, error in points:
        y = rise(log10(error)) if error > 0 else zero
        drawing.add(Circle(left + (WIDTH - left) * depth, y, 2, fillColor=ACCENT, strokeColor=None))
    return _section("Error by depth", drawing)


# --- tables ----------------------------------------------------------------------------------------------------------


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]], shares: Sequence[float]) -> Any:
    cells = [[_text(c, HEAD) for c in columns], *([_text(c, CELL) for c in row] for row in rows)]
    table = LongTable(cells, colWidths=[WIDTH * share / sum(shares) for share in shares], repeatRows=1)
    table.setStyle(
        TableStyle(
            [
                ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ("BACKGROUND", (0, 0), (-1, 0), SUNKEN),
                ("LINEBELOW", (0, 0), (-1, -1), 0.4, LINE),
                ("TOPPADDING", (0, 0), (-1, -1), 2.5),
                ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
            ]
        )
    )
    return table


def _times(view: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for table in filter(None, (view["latency"], view["stages"])):
        notes = [*table.get("undone", ()), *filter(None, [table.get("slower")])]
        shares = [2.2, *([1.2] * (len(table["columns"]) - 1))]
        found += _section(table["title"], *map(_text, notes), _table(table["columns"], table["rows"], shares))
    return found


def _health(view: Mapping[str, Any]) -> list[Any]:
    rows = [[f["severity"], f["text"], ", ".join(f["where"][:3])] for f in view["health"]]
    if not rows:
        return _section("Health", _text("Nothing was found.", QUIET))
    parts = [_table(("Severity", "What", "At"), rows, (1, 5, 3))]
    blocks = view["blocks"]
    if blocks["rows"]:
        parts += [Spacer(1, 8), _table(blocks["columns"], blocks["rows"], (2, 2, 2, 3))]
    return _section("Health", *parts)


def _declined(view: Mapping[str, Any]) -> list[Any]:
    rows = [[group["times"], group["rule"], group["reason"], group["places"][0][0]] for group in view["declined"]]
    if not rows:
        return _section("Declined, by reason", _text("No rule came close without being applied.", QUIET))
    more = [_text(f"{view['declined_more']} more, of rarer reasons", QUIET)] if view["declined_more"] else []
    return _section("Declined, by reason", _table(("Times", "Rule", "Reason", "First at"), rows, (1, 3, 5, 3)), *more)


def _dynamic(dynamic: Mapping[str, Any]) -> list[Any]:
    parts: list[Any] = [_text(dynamic["text"])]
    for table in dynamic["tables"]:
        parts += [Spacer(1, 6), _text(table["title"], QUIET), _table(table["columns"], table["rows"], (3, 4, 4))]
    return _section("Dynamic shapes", *parts)


def _passes(view: Mapping[str, Any]) -> list[Any]:
    rows = [
        [p["name"], f"{p['active']} of {p['runs']}", f"{p['nodes']:+d}" if p["nodes"] else "0", f"{p['seconds']:.2f}"]
        for p in view["passes"]
    ]
    columns = ("Pass", "Runs that changed something", "Nodes", "Seconds")
    return _section(f"Passes, {view['rounds']}", _table(columns, rows, (3, 3, 1, 1))) if rows else []


def _matches(view: Mapping[str, Any]) -> list[Any]:
    matches = view["matches"]
    rows = [
        [m["rule"], _place(m), _nodes(m), _error(m.get("error")), m.get("verdict") or m["status"]]
        for m in matches[:MATCHES]
    ]
    if not rows:
        return []
    left = len(matches) - len(rows) + view["matches_more"]
    more = [_text(f"… and {left} more in the JSON record", QUIET)] if left else []
    columns = ("Rule", "At", "Nodes", "Largest error", "Verdict")
    return _section("Matches", _table(columns, rows, (4, 6, 1.3, 1.8, 1.6)), *more)


def _place(match: Mapping[str, Any]) -> str:
    where = f"{match['root']} in {match['graph']}" if match.get("graph") else match["root"]
    return f"{where}: {match['reason']}" if match["status"] != "applied" and match.get("reason") else where


def _nodes(match: Mapping[str, Any]) -> str:
    return f"{match['before']} -> {match['after']}" if "before" in match else ""


def _error(error: float | str | None) -> str:
    return "" if error is None else error if isinstance(error, str) else f"{error:.2g}"


def _origin(view: Mapping[str, Any]) -> list[Any]:
    parts: list[Any] = [_table(("", ""), view["origin"], (1, 4))]
    if view["notes"]:
        parts += [Spacer(1, 6), *(_text(f"Note: {note}") for note in view["notes"])]
    lines = view["pipeline"].splitlines()
    parts += [Spacer(1, 8), *(_text(line, CODE) if line else Spacer(1, 5) for line in lines)]
    return _section("Provenance", *parts)
