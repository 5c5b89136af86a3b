"""The report as text, from a result's counts, checks and decisions."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from surgeon_passes.decisions import APPLIED, CONFLICT, DECLINED, UNDONE, Decision

if TYPE_CHECKING:
    from surgeon_passes.result import Result

WIDTH = 120
REASONS = 12
"""Reasons of declined matches that the text report lists; decisions hold all."""


def render(result: Result, color: bool = False) -> str:
    """Sections: what was measured, rules that were applied, what was undone, what was declined and why."""
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, force_terminal=color, no_color=not color, highlight=False)
    _head(console, result)
    _operators(console, result)
    _applied(console, [d for d in result.decisions if d.status == APPLIED])
    _undone(console, [d for d in result.decisions if d.status in (UNDONE, CONFLICT)])
    _declined(console, [d for d in result.decisions if d.status == DECLINED])
    for note in result.notes:
        console.print(Text(f"note: {note}"))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _head(console: Console, result: Result) -> None:
    if result.verify.mode == "off":
        console.print(Text("NOT VERIFIED: verification is off (verify=off)"))
    console.print(Text(result.source))
    table = Table(box=None, show_header=False, pad_edge=False)
    ended = "converged after" if result.converged else "stopped after"
    table.add_row("nodes", f"{result.before.nodes} -> {result.after.nodes}")
    table.add_row("constants", f"{result.before.constants} -> {result.after.constants}")
    table.add_row("bytes of constants", f"{result.before.bytes} -> {result.after.bytes}")
    table.add_row("iterations", f"{ended} {result.iterations}")
    table.add_row("verification", _verdicts(result))
    table.add_row("end check", _end_check(result))
    table.add_row("checker", result.checker_error or "ok")
    if result.custom_operators:
        listed = ", ".join(f"{name} ({number})" for name, number in sorted(result.custom_operators.items()))
        table.add_row("custom operators", f"{listed}: passed through")
    dynamic = result.dynamic_inputs
    table.add_row("dynamic inputs", ", ".join(dynamic) if dynamic else "none")
    if not dynamic:
        left = len(result.dynamic_items)
        table.add_row(
            "static shapes", "yes" if not left else f"no: {left} tensors left, first '{result.dynamic_items[0]}'"
        )
    if result.latency is not None:
        table.add_row("latency", str(result.latency))
    table.add_row("seconds", f"{result.seconds:.2f}")
    console.print(table)


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
        reasons[decision.rule, decision.reason].append(decision)
    ordered = sorted(reasons.items(), key=lambda item: -len(item[1]))
    table = Table("declined", "times", "reason", "first at", box=None, pad_edge=False)
    for (rule, reason), group in ordered[:REASONS]:
        table.add_row(rule, str(len(group)), reason, group[0].root)
    console.print()
    console.print(table)
    if len(ordered) > REASONS:
        console.print(Text(f"… and {len(ordered) - REASONS} more reasons (see the decisions)"))
