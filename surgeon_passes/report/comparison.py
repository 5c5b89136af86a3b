"""A comparison as text: where drift begins and in which operator it is largest, then the tensors one by one."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from surgeon_passes.errors import visible

if TYPE_CHECKING:
    from surgeon_passes.compare.comparison import Compared, Comparison
    from surgeon_passes.compare.statistics import Summary

WIDTH = 120
LARGEST = 8
"""Tensors that are listed where none drifts."""
NAMED = 4


def render(found: Comparison, limit: int | None = 20) -> str:
    """``limit`` rows of tensors at most, None for all of them."""
    lines = [*_head(found), ""]
    first = found.first
    if first is not None:
        lines += [*statistics(first), ""]
    return "\n".join([*lines, *_tensors(found, limit)]) + "\n"


def _head(found: Comparison) -> list[str]:
    ways = Counter(pair.by for pair in found.pairs)
    how = ", ".join(f"{number} by {way}" for way, number in ways.most_common())
    rows = [
        ("a", f"{found.sources[0]} ({found.runtimes[0]})"),
        ("b", f"{found.sources[1]} ({found.runtimes[1]})"),
        ("tensors", f"{len(found.pairs)} paired ({how})" if found.pairs else "none paired"),
        ("alone", f"{len(found.unpaired[0])} of a, {len(found.unpaired[1])} of b"),
        ("runs", str(found.runs)),
        ("tolerance", f"{found.tolerance:g} of a channel's scale"),
        ("drift begins", _first(found)),
        ("by operator", _operator(found)),
        ("result", _verdict(found)),
    ]
    return [f"{name:14}{visible(text)}" for name, text in rows]


def _first(found: Comparison) -> str:
    first = found.first
    if first is None:
        return "nowhere"
    alone = "" if first.own is None else f", by itself {first.own:.2g}"
    if first.own is not None and not first.begins:
        alone += " (within the tolerance: it adds up)"
    place = f"{first.operators[1] or 'input'} '{first.layers[1]}' of b, tensor '{first.b}'"
    rewritten = f"; rewritten by {', '.join(first.rules)}" if first.rules else ""
    return f"{place} (a: '{first.a}'): error {first.error:.2g}{alone}{rewritten}"


def _operator(found: Comparison) -> str:
    ranked = [o for o in found.operators if o.mean > 0]
    if not ranked:
        return "none drifts"
    worst = ranked[0]
    return f"{worst.operator} drifts most: on average {worst.mean:.2g}, at most {worst.largest:.2g}, of {worst.count}"


def _verdict(found: Comparison) -> str:
    lost = f"outputs without a partner: {_names(found.lost)}" if found.lost else ""
    drifting, noise = len(found.drifting), sum(pair.verdict == "noise" for pair in found.pairs)
    parts = [f"{drifting} of {len(found.pairs)} tensors drift" if drifting else "no tensor drifts"]
    if noise:
        parts.append(f"{noise} move as far as rounding moves them")
    return "; ".join([*parts, lost] if lost else parts)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(f"'{n}'" for n in names[:NAMED]) + more


# --- tables --------------------------------------------------------------------------------------------------------------


def _printed(table: Table) -> list[str]:
    stream = io.StringIO()
    Console(file=stream, width=WIDTH, no_color=True, highlight=False, markup=False).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k < 3 else "right", no_wrap=k >= 3, overflow="fold")
    return table


def _tensors(found: Comparison, limit: int | None) -> list[str]:
    """Those that drift, in topological order; where none does, those of the largest errors; with no limit all."""
    rows = [p for p in found.pairs if p.verdict == "drift" or p.begins]
    if limit is None:
        rows, limit = list(found.pairs), len(found.pairs)
    elif not rows:
        rows = sorted(found.pairs, key=lambda p: -p.error)[:LARGEST]
    table = _table("tensor of b", "operator", "shape", "error", "by itself", "cosine", "SQNR dB", "KL", "NaN/Inf")
    for pair in rows[:limit]:
        table.add_row(*(Text(cell) for cell in _row(pair)))
    more = [f"… and {len(rows) - limit} more (--all lists every tensor)"] if len(rows) > limit else []
    return [*_printed(table), *more] if rows else []


def _row(pair: Compared) -> list[str]:
    summary, distance = pair.summaries[1], pair.distance
    name = pair.b if pair.a == pair.b else f"{pair.b} (a: {pair.a})"
    counts = "" if summary is None else f"{summary.nan}/{summary.inf}" if summary.nan or summary.inf else ""
    mark = {"noise": " (noise)"}.get(pair.verdict, "")
    return [
        visible(name),
        pair.operators[1],
        "" if summary is None else str(list(summary.shape)),
        _number(pair.error) + mark,
        _number(pair.own) + ("*" if pair.begins else ""),
        "" if distance is None else _number(distance.cosine, "{:.6f}"),
        "" if distance is None else _number(distance.sqnr, "{:.1f}"),
        "" if distance is None else _number(distance.kl),
        counts,
    ]


def _number(value: float | None, form: str = "{:.2g}") -> str:
    return "-" if value is None else form.format(value)


def statistics(pair: Compared) -> list[str]:
    """Everything about one pair of tensors, A's beside B's."""
    table = _table("", "a", "b")
    makers = [f"{o or 'input'} '{n}'" for o, n in zip(pair.operators, pair.layers, strict=True)]
    rows: list[tuple[str, Any, Any]] = [("tensor", pair.a, pair.b), ("made by", makers[0], makers[1])]
    columns = [_summary(summary) for summary in pair.summaries]
    rows += [(name, columns[0][name], columns[1].get(name, "")) for name in columns[0]]
    for name, mine, other in rows:
        table.add_row(*(Text(visible(str(cell))) for cell in (name, mine, other)))
    return [*_printed(table), _apart(pair)]


def _summary(found: Summary | None) -> dict[str, str]:
    if found is None:
        return {"dtype": "no tensor"}
    rows = {"dtype": found.dtype, "shape": str(list(found.shape))}
    for name, value in (("mean", found.mean), ("variance", found.variance), ("max |x|", found.max_abs)):
        rows[name] = _number(value, "{:.6g}")
    rows.update((f"{q} %", f"{value:.6g}") for q, value in found.quantiles.items())
    rows["NaN, Inf"] = f"{found.nan}, {found.inf}"
    return rows


def _apart(pair: Compared) -> str:
    distance = pair.distance
    told = visible(pair.reason) or f"error {pair.error:.2g}"
    if distance is None:
        return f"apart: {told}"
    return (
        f"apart: {told}; max |a - b| {distance.max_abs:.3g}, "
        f"relative {_number(distance.relative)}, cosine {_number(distance.cosine, '{:.6f}')}, "
        f"SQNR {_number(distance.sqnr, '{:.1f}')} dB, KL {_number(distance.kl)}"
    )
