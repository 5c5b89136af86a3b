"""An explanation as text: what a run decided, then the attempts, best first, each with the line at which it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surgeon_passes.decisions import Decision

if TYPE_CHECKING:
    from surgeon_passes.explain import Attempt, Explanation

MATCHED = 3
"""Nodes that an attempt lists."""


def render(found: Explanation, limit: int) -> str:
    """``limit`` decisions and attempts at most; what is left out is counted."""
    lines = [found.result.source]
    lines += [_decision(d) for d in found.decisions[:limit]]
    lines += _more(len(found.decisions), limit, "decisions")
    lines += [f"note: {remark}" for remark in found.remarks]
    for attempt in found.attempts[:limit]:
        lines += ["", *_attempt(attempt)]
    lines += _more(len(found.attempts), limit, "attempts")
    if not found.decisions and not found.attempts and not found.remarks:
        lines.append("no rule has anything to say of it")
    return "\n".join(lines) + "\n"


def _more(count: int, limit: int, what: str) -> list[str]:
    return ["", f"and {count - limit} further {what} (--limit shows more)"] if count > limit else []


def _decision(decision: Decision) -> str:
    verdict = f", {decision.verdict}" if decision.verdict else ""
    reason = f": {decision.reason}" if decision.reason else ""
    return f"{decision.status + verdict:20} {decision.rule} at {_place(decision.root, decision.graph)}{reason}"


def _place(root: str, graph: str) -> str:
    return f"{root} in {graph}" if graph else root


def _attempt(attempt: Attempt) -> list[str]:
    head = f"{attempt.rule} at {_place(attempt.root, attempt.graph)}"
    if attempt.line is None:
        return [f"{head}: {attempt.outcome}", f"    {attempt.reason}", *_nodes(attempt)]
    lines = [f"{head}: {attempt.reach} of {attempt.wanted} nodes matched, then stopped at pattern line {attempt.line}"]
    indent = len(attempt.text) - len(attempt.text.lstrip())
    lines.append(f"    {attempt.text.strip()}")
    lines.append(f"    {' ' * (attempt.start - indent)}{'^' * max(1, attempt.end - attempt.start)}")
    return [*lines, f"    {attempt.reason}", *_nodes(attempt)]


def _nodes(attempt: Attempt) -> list[str]:
    if len(attempt.nodes) < 2:
        return []
    more = f" and {len(attempt.nodes) - MATCHED} more" if len(attempt.nodes) > MATCHED else ""
    return [f"    matched: {', '.join(attempt.nodes[:MATCHED])}{more}"]
