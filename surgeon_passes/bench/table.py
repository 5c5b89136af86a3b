"""Measurements as text: a table a model, and one over many."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from surgeon_passes.bench.records import Measured, Row, every_row, shares
from surgeon_passes.bench.tools import BY_NAME, ONNXSIM, TOOLS

WIDTH = 150
HEADS = ("tool", "version", "seconds", "median", "memory", "anon", "nodes", "bytes", "outputs", "latency", "ratio")


def render(models: Sequence[Measured]) -> str:
    """A table a model; over several models the summary, too."""
    parts = [model_table(measured) for measured in models]
    if len(models) > 1:
        parts.append(summary(models))
    return "\n".join(parts)


def model_table(measured: Measured) -> str:
    """Tools that count first, fewest nodes first; then what fails, differs or is too big, with the reason.

    ``seconds`` is the best call, ``median`` the median of all, ``memory`` the peak of resident memory during the first,
    ``anon`` of anonymous memory, ``ratio`` the latency over the original's with its 95 % interval.
    """
    table = _table(HEADS)
    for row in measured.ranked:
        table.add_row(*_cells(row))
    original = f"{measured.name}: {measured.nodes} nodes, {size(measured.bytes)}"
    if measured.ms is not None:
        original += f", {measured.ms:.3g} ms"
    lines = [f"{row.tool}: {_why(row)}" for row in measured.rows if _why(row)]
    lines += [f"{row.tool}: ours takes {row.ours} of its time" for row in measured.rows if _is_file(row) and row.ours]
    if measured.latency_reason:
        lines.append(f"latency: not measured: {measured.latency_reason}")
    return _text(original, table, lines)


def _cells(row: Row) -> list[str]:
    number = row.nodes if row.counts else None
    return [
        row.tool,
        row.version,
        _or_dash(row.best, seconds),
        _or_dash(row.median, seconds),
        _or_dash(row.peak, size),
        _or_dash(row.anon, size),
        _or_dash(number, str),
        _or_dash(row.bytes if row.counts else None, size),
        row.outcome,
        _or_dash(row.ms, lambda ms: f"{ms:.3g} ms"),
        _or_dash(row.ratio, str),
    ]


def _is_file(row: Row) -> bool:
    return row.tool not in BY_NAME


def _why(row: Row) -> str:
    if row.status != "ok":
        return row.reason
    if row.check == "equal":
        return f"{size(row.bytes or 0)}, beyond the byte budget" if row.is_too_big else ""
    return row.check_reason


SUMMARY_HEADS = (
    "tool", "version", "counted", "seconds", "x onnxsim", "memory", "nodes left", "bytes left", "latency", "slower",
)  # fmt: skip


def summary(models: Sequence[Measured]) -> str:
    """One line a tool over all models.

    ``counted``: results that are equal and within the byte budget, of all. The other columns are medians over those:
    seconds; seconds over onnxsim's on the same model; peak memory; nodes and bytes left of the original's; latency over
    the original's, and on how many models its interval lies wholly above 1.02.
    """
    table = _table(SUMMARY_HEADS)
    for cells in _summaries(models):
        table.add_row(*cells)
    return _text(f"{len(models)} models, medians", table, [])


def summary_markdown(models: Sequence[Measured]) -> str:
    """The same as a Markdown table."""
    lines = [SUMMARY_HEADS, ["---", "---", *["---:"] * (len(SUMMARY_HEADS) - 2)], *_summaries(models)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _summaries(models: Sequence[Measured]) -> list[list[str]]:
    found = [list(every_row(models, tool.name)) for tool in TOOLS]
    return [_summed(rows) for rows in found if rows]


def _summed(rows: list[tuple[Measured, Row]]) -> list[str]:
    good = [(m, r) for m, r in rows if r.counts]
    ratios = [r.ratio for _, r in good if r.ratio is not None]
    return [
        rows[0][1].tool,
        rows[0][1].version,
        f"{len(good)} of {len(rows)}",
        _median((r.best for _, r in good), seconds),
        _median((_over_onnxsim(m, r) for m, r in good), lambda x: f"{x:.2f}"),
        _median((r.peak for _, r in good), size),
        _median(
            (r.nodes / m.nodes if r.nodes is not None and m.nodes else None for m, r in good), lambda x: f"{x:.0%}"
        ),
        _median((r.bytes / m.bytes if r.bytes is not None else None for m, r in good), lambda x: f"{x:.0%}"),
        _median((r.median for r in ratios), lambda x: f"{x:.2f}"),
        str(sum(r.low > 1.02 for r in ratios)) if ratios else "-",
    ]


def _over_onnxsim(measured: Measured, row: Row) -> float | None:
    sim = measured.row(ONNXSIM)
    return None if sim is None or not sim.counts or not sim.best or not row.best else row.best / sim.best


def share_table(models: Sequence[Measured], cpu: bool = False) -> str:
    """Ours against onnxsim by seconds (or CPU seconds), model by model, and the medians.

    ``less ORT``: without what ONNX Runtime needs to load original and result and to run each once. ``verification``: the
    part of strict that off does not need. "" where onnxsim or one of ours gave no result on any model.
    """
    table = _table(("model", "strict / onnxsim", "less ORT", "off / onnxsim", "verification"))
    found = [(m.name, s) for m in models if (s := shares(m, cpu)) is not None]
    if not found:
        return ""
    for name, one in found:
        table.add_row(
            name, f"{one.strict:.2f}", _or_dash(one.less_runtime, _two), f"{one.off:.2f}", f"{one.verification:.0%}"
        )
    if len(found) > 1:
        table.add_row(
            "median",
            _median((s.strict for _, s in found), _two),
            _median((s.less_runtime for _, s in found), _two),
            _median((s.off for _, s in found), _two),
            _median((s.verification for _, s in found), lambda x: f"{x:.0%}"),
        )
        less = [s.less_runtime for _, s in found if s.less_runtime is not None]
        table.add_row("largest", _two(max(s.strict for _, s in found)), _two(max(less)) if less else "-", "", "")
    return _text("CPU seconds" if cpu else "seconds", table, [])


def _two(value: float) -> str:
    return f"{value:.2f}"


def seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def size(value: float) -> str:
    """Bytes in decimal units."""
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}" if unit != "B" else f"{value:.0f} B"
        value /= 1000
    return f"{value:.3g} GB"


def _or_dash(value: object, show: Callable[..., str]) -> str:
    return "-" if value is None else show(value)


def _median(values: Iterable[float | None], show: Callable[[float], str]) -> str:
    known = [value for value in values if value is not None]
    return show(median(known)) if known else "-"


def _table(heads: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, head in enumerate(heads):
        is_text = number == 0 or head in ("version", "outputs")
        table.add_column(head, justify="left" if is_text else "right", no_wrap=True)
    return table


def _text(title: str, table: Table, lines: Sequence[str]) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, no_color=True, highlight=False, markup=False)
    for part in (Text(title), table, *map(Text, lines)):
        console.print(part, soft_wrap=part is not table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
