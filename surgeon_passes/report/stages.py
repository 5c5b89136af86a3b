"""The table of stages: the model after each pass."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from surgeon_passes.report.table import Table
from surgeon_passes.stages.stage import Stage


def print_stages(console: Console, stages: Sequence[Stage]) -> None:
    """Passes that changed anything, in their order; then stages that were undone, and why."""
    has_metric = any(stage.metric is not None for stage in stages)
    columns = ["stage", "nodes", "bytes", "parameters", "MACs", "ms", "drift", *(["metric"] if has_metric else [])]
    table = Table(*columns, box=None, pad_edge=False)
    for stage in stages:
        drift = "" if stage.drift is None else f"{stage.drift:.1e}" + (f" '{stage.drift_at}'" if stage.drift_at else "")
        latency = "" if stage.latency is None else f"{stage.latency:.3g}"
        metric = ["" if stage.metric is None else f"{stage.metric:.6g}"] if has_metric else []
        title = f"{stage.title}, undone" if stage.undone else stage.title
        sizes = (str(stage.nodes), str(stage.bytes), str(stage.parameters), _macs(stage))
        table.add_row(title, *sizes, latency, drift, *metric)
    console.print()
    console.print(table)
    for stage in stages:
        if stage.undone:
            what = f" of {stage.name}" if stage.guilty != (stage.name,) else ""
            console.print(Text(f"left out: {', '.join(stage.guilty)}{what}: {stage.undone}"))


def _macs(stage: Stage) -> str:
    """At the sizes at which the stage was run, where they are symbolic."""
    if stage.macs is None:
        return "unknown"
    return str(stage.macs if isinstance(stage.macs, int) or stage.macs_at is None else stage.macs_at)
