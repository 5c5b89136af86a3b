"""Tables of the page that tell times: latency by batch size, and the model after each pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
Table = dict[str, Any]


def latency_table(latency: Record | None) -> Table | None:
    """{"title", "columns", "rows", "more", "slower"}; "slower" tells what became slower, "" where nothing did. None where
    nothing was measured."""
    if latency is None:
        return None
    measured = [found for found in (latency, *latency["more"]) if not found["reason"]]
    if not measured:
        return None
    columns = ["Shapes", "Before", "After", "After / before", "99th percentile", "Spread", "Threads"]
    slower = [_shapes(found) for found in measured if found["slower"]]
    told = f"The result is slower than the original at {'; '.join(slower)}." if slower else ""
    return {"title": "Latency", "columns": columns, "rows": [_row(m) for m in measured], "more": 0, "slower": told}


def _row(found: Record) -> list[str]:
    low, middle, high = found["ratio"] or (None, None, None)
    ratio = "" if middle is None else f"{middle:.2f} [{low:.2f}, {high:.2f}]"
    sides = (found["before_ms"], found["after_ms"])
    return [
        _shapes(found),
        *map(_ms, sides),
        ratio,
        _pair(found["p99_ms"]),
        _pair(found["spread_ms"]),
        str(found["threads"]),
    ]


def _shapes(found: Record) -> str:
    return ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in found["shapes"].items())


def _ms(value: float) -> str:
    return f"{value:.3g} ms"


def _pair(pair: Sequence[float] | None) -> str:
    return "" if pair is None else f"{pair[0]:.3g} → {pair[1]:.3g} ms"


def stage_table(stages: Sequence[Record]) -> Table | None:
    """{"title", "columns", "rows", "more"}, and "undone": what was left out, and why. None where no stages were asked for."""
    if not stages:
        return None
    has_metric = any(stage["metric"] is not None for stage in stages)
    columns = ["Stage", "Nodes", "Bytes", "Parameters", "MACs", "Latency", "Drift", *(["Metric"] if has_metric else [])]
    rows = [_stage(stage, has_metric) for stage in stages]
    undone = [f"Left out: {', '.join(stage['guilty'])}: {stage['undone']}" for stage in stages if stage["undone"]]
    return {"title": "Stages", "columns": columns, "rows": rows, "more": 0, "undone": undone}


def _stage(stage: Record, has_metric: bool) -> list[str]:
    title = f"{stage['name']} (round {stage['round']})" if stage["round"] > 1 else stage["name"]
    macs = stage["macs"] if isinstance(stage["macs"], int) or stage["macs_at"] is None else stage["macs_at"]
    row = [
        f"{title}, undone" if stage["undone"] else title,
        f"{stage['nodes']:,}",
        f"{stage['constant_bytes']:,}",
        f"{stage['parameters']:,}",
        "not known" if macs is None else f"{macs:,}" if isinstance(macs, int) else macs,
        "" if stage["latency_ms"] is None else _ms(stage["latency_ms"]),
        _drift(stage),
    ]
    return [*row, _number(stage["metric"])] if has_metric else row


def _drift(stage: Record) -> str:
    at = f" at {stage['drift_at']}" if stage["drift_at"] else ""
    return "" if stage["drift"] is None else f"{_number(stage['drift'])}{at}"


def _number(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:.6g}"
