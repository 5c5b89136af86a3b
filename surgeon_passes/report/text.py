"""The report as text, from a result's counts, checks and decisions."""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from surgeon_passes.decisions import APPLIED, CONFLICT, DECLINED, UNDONE, Decision
from surgeon_passes.errors import visible
from surgeon_passes.report.blocks import Block
from surgeon_passes.report.dynamic import COUNTED, DataDependent, Dynamic, FileCounts, UnknownSize, count_file
from surgeon_passes.report.stages import print_stages
from surgeon_passes.report.table import Table

if TYPE_CHECKING:
    from surgeon_passes.result import Result

WIDTH = 120
REASONS = 12
"""Reasons of declined matches that the text report lists; decisions hold all."""
LISTED = 8
"""Rows of a table of dynamic operators; ``result.dynamic`` holds all."""
NAMED = 3
"""Tensors that a row names."""


def render(result: Result, color: bool = False) -> str:
    """Sections: what was measured, rules that were applied, what was undone, what was declined and why."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, force_terminal=color, no_color=not color, highlight=False, markup=False)
    _head(console, result)
    if result.stages:
        print_stages(console, result.stages)
    _operators(console, result)
    _dynamic(console, result)
    _applied(console, [d for d in result.decisions if d.status == APPLIED])
    _undone(console, [d for d in result.decisions if d.status in (UNDONE, CONFLICT)])
    _declined(console, [d for d in result.decisions if d.status == DECLINED])
    _blocks(console, result.blocks)
    for note in result.notes:
        console.print(Text(visible(f"note: {note}")))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _head(console: Console, result: Result) -> None:
    if result.verify.mode == "off":
        console.print(Text("NOT VERIFIED: verification is off (verify=off)"))
    console.print(Text(visible(result.source)))
    table = Table(box=None, show_header=False, pad_edge=False)
    before, after = _files(result)
    ended = "converged after" if result.converged else "stopped after"
    table.add_row("nodes", f"{result.before.nodes} -> {result.after.nodes}")
    for title, change in _steps(result):
        table.add_row(title, change)
    table.add_row("initializers", f"{before.initializers} -> {after.initializers}")
    table.add_row("constants", f"{result.before.constants} -> {result.after.constants}")
    table.add_row("bytes of constants", f"{result.before.bytes} -> {result.after.bytes}")
    if result.settings:
        table.add_row("settings", "; ".join(result.settings))
    table.add_row("iterations", f"{ended} {result.iterations}")
    table.add_row("verification", _verdicts(result))
    table.add_row("end check", _end_check(result))
    table.add_row("checker", result.checker_error or "ok")
    if result.custom_operators:
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(result.custom_operators.items()))
        table.add_row("custom operators", f"{listed}: passed through")
    dynamic = result.dynamic_inputs
    table.add_row("dynamic inputs", ", ".join(dynamic) if dynamic else "none")
    left = result.dynamic_items
    table.add_row("static shapes", "yes" if result.is_static else f"no: {len(left)} tensors left{_first(left)}")
    if result.latency is not None:
        for latency in result.latency.all:
            title = "latency" if latency.batch is None else f"latency, batch {latency.batch}"
            table.add_row(title, str(latency))
            if latency.details:
                table.add_row("", latency.details)
            if latency.is_slower:
                table.add_row("", "THE RESULT IS SLOWER; --keep-if-faster looks for the rules that cost time")
    table.add_row("seconds", f"{result.seconds:.2f}")
    console.print(table)


def _steps(result: Result) -> list[tuple[str, str]]:
    """Nodes before and after another tool's step, and what came then, apart."""
    found = [d for d in result.decided if "nodes_before" in d.metrics]
    rows = []
    for decision in found:
        before, after = decision.metrics["nodes_before"], decision.metrics["nodes_after"]
        if decision.status == APPLIED:
            verdict = decision.verdict if not decision.reason else f"{decision.verdict}: {decision.reason}"
            rows.append((f"  {decision.rule}", f"{before} -> {after}, {verdict}"))
            rows.append(("  then", f"{after} -> {result.after.nodes}"))
        else:
            rows.append((f"  {decision.rule}", f"{before} -> {after}, discarded: {decision.reason}"))
    return rows


def _files(result: Result) -> tuple[FileCounts, FileCounts]:
    after = count_file(result.light)
    return (after if result.original is None else count_file(result.original)), after


def _first(names: list[str]) -> str:
    return f", first '{names[0]}'" if names else ""


def _verdicts(result: Result) -> str:
    if result.verify.mode == "off":
        return "off"
    counted = Counter(d.verdict for d in result.applied)
    parts = [f"{number} rewrites {verdict}" for verdict, number in sorted(counted.items(), reverse=True) if verdict]
    if result.undone:
        parts.append(f"{len(result.undone)} refuted and undone")
    return ", ".join(parts) or "nothing was rewritten"


def _end_check(result: Result) -> str:
    check = result.check
    if check is None:
        return "off"
    text = str(check.status)
    if check.error is not None:
        text += f", largest error {check.error:.3g}" + (f" at '{check.output}'" if check.output else "")
    if check.noise is not None:
        text += f", noise {check.noise:.3g}"
    return text + (f": {check.reason}" if check.reason else "")


def _operators(console: Console, result: Result) -> None:
    before, after = result.before.operators, result.after.operators
    changed = [op for op in sorted(before | after) if before[op] != after[op]]
    if changed:
        table = Table("operator", "before", "after", box=None, pad_edge=False)
        for op in changed:
            table.add_row(op, str(before[op]), str(after[op]))
        console.print()
        console.print(table)


def _dynamic(console: Console, result: Result) -> None:
    rows = _dynamic_rows(*_files(result))
    if rows:
        table = Table("dynamics", "before", "after", box=None, pad_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print()
        console.print(table)
    _sources(console, "data-dependent", result.dynamic.data_dependent)
    _sources(console, "unknown size", result.dynamic.unknown)
    _from_sizes(console, result.dynamic)


def _dynamic_rows(before: FileCounts, after: FileCounts) -> list[tuple[str, str, str]]:
    """Rows that are not zero on both sides."""
    rows = [
        (name, getattr(before, field), getattr(after, field))
        for name, field in (("inputs", "inputs"), ("outputs", "outputs"))
    ]
    found = [(name, str(a), str(b)) for name, a, b in rows if a or b]
    if before.value_info or after.value_info:
        stated = [f"{side.value_info} of {side.stated}" for side in (before, after)]
        found.append(("value_info", stated[0], stated[1]))
    counted = [("Shape and Size nodes", before.shape_nodes, after.shape_nodes)]
    counted += [(f"computed {op}", before.computed[op], after.computed[op]) for op in COUNTED]
    return found + [(name, str(a), str(b)) for name, a, b in counted if a or b]


def _sources(console: Console, title: str, found: Sequence[DataDependent | UnknownSize]) -> None:
    if not found:
        return
    table = Table(title, "why", "makes dynamic", box=None, pad_edge=False)
    for source in found[:LISTED]:
        table.add_row(_at(source.node, source.graph), source.reason, _some(source.tensors))
    _print_listed(console, table, len(found))


def _from_sizes(console: Console, dynamic: Dynamic) -> None:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for left in dynamic.shape_dependent:
        groups[left.op, left.reason].append(_at(left.node, left.graph))
    if not groups:
        return
    table = Table("shape-dependent", "times", "why", "first at", box=None, pad_edge=False)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    for (op, reason), places in ordered[:LISTED]:
        table.add_row(op, str(len(places)), reason, places[0])
    _print_listed(console, table, len(ordered))


def _blocks(console: Console, blocks: Sequence[Block]) -> None:
    if not blocks:
        return
    title = f"{len(blocks)} multi-branch block{'s' * (len(blocks) > 1)} left"
    table = Table(title, "on", "branches", "why", box=None, pad_edge=False)
    for block in blocks[:LISTED]:
        branches = " + ".join(way or block.tensor for way in block.branches)
        table.add_row(_at(block.node, block.graph), block.tensor, branches, _short(block.reason))
    _print_listed(console, table, len(blocks), "result.blocks")


def _short(reason: str) -> str:
    """A reason's parts, each once, without the names of the branches that they are about."""
    return "; ".join(dict.fromkeys(re.sub(r"^\S+: ", "", part) for part in reason.split("; ")))


def _print_listed(console: Console, table: Table, number: int, where: str = "result.dynamic") -> None:
    console.print()
    console.print(table)
    if number > LISTED:
        console.print(Text(f"… and {number - LISTED} more (see {where})"))


def _at(node: str, graph: str) -> str:
    return f"{node} in {graph}" if graph else node


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _applied(console: Console, decisions: list[Decision]) -> None:
    if not decisions:
        return
    table = Table("applied", "times", "verdict", "largest error", box=None, pad_edge=False)
    for (rule, verdict), group in _grouped(decisions).items():
        errors = [d.metrics["max_error"] for d in group if d.metrics.get("max_error") is not None]
        table.add_row(rule, str(len(group)), verdict, f"{max(errors):.3g}" if errors else "")
    console.print()
    console.print(table)


def _grouped(decisions: list[Decision]) -> dict[tuple[str, str], list[Decision]]:
    found: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for decision in decisions:
        found[decision.rule, decision.verdict].append(decision)
    return found


def _kind_of(reason: str) -> str:
    """A reason without the names, shapes and so on that differ from place to place."""
    return re.sub(r"'[^']*'", "'…'", re.sub(r"\[[^\[\]]*\]|\([\d, ]*\)", "[…]", reason))


def _undone(console: Console, decisions: list[Decision]) -> None:
    if not decisions:
        return
    table = Table("undone", "at", "verdict", "largest error", "tensor", "reason", box=None, pad_edge=False)
    for d in decisions:
        error: Any = d.metrics.get("max_error")
        shown = "" if error is None else f"{error:.3g}"
        table.add_row(d.rule, d.root, d.verdict or d.status, shown, str(d.metrics.get("tensor", "")), d.reason)
    console.print()
    console.print(table)


def _declined(console: Console, decisions: list[Decision]) -> None:
    if not decisions:
        return
    reasons: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for decision in decisions:
        reasons[decision.rule, _kind_of(decision.reason)].append(decision)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    table = Table("declined", "times", "reason", "first at", box=None, pad_edge=False)
    for (rule, kind), group in ordered[:REASONS]:
        reason = kind if len({d.reason for d in group}) > 1 else group[0].reason
        table.add_row(rule, str(len(group)), reason, group[0].root)
    console.print()
    console.print(table)
    if len(ordered) > REASONS:
        console.print(Text(f"… and {len(ordered) - REASONS} more reasons (see the decisions)"))
