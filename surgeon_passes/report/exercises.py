"""What ``rules check`` found, as text: a line a rule, and below it what failed, what was declined and what never matched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import onnx

if TYPE_CHECKING:
    from surgeon_passes.authoring.exercising import Exercise

REASONS = 3
NEVER = 6
"""Reasons, and choices that never matched, that a rule lists unless all are asked for."""


def render(found: Sequence[Exercise], everything: bool = False) -> str:
    """A block a rule, and a last line that counts them."""
    lines = [line for exercise in found for line in _rule(exercise, everything)]
    return "\n".join([*lines, _summary(found)]) + "\n"


def _rule(found: Exercise, everything: bool) -> list[str]:
    return [f"{found.rule.name}: {_verdict(found)}", *(f"    {line}" for line in _details(found, everything))]


def _verdict(found: Exercise) -> str:
    if found.unknown:
        return (
            f"cannot be exercised: ONNX Runtime does not know {found.unknown}; --custom-ops gives a library that has it"
        )
    if found.faults:
        return f"FAILED, {', '.join(f'{number} {kind}' for kind, number in found.faults.items())}"
    if not found.fired:
        return "FAILED, it never fired"
    if not found.equal:
        return "fired, not compared" if found.uncompared else "FAILED, no result could be compared"
    return "ok" if found.rewritten else "ok, by its example alone"


def _details(found: Exercise, everything: bool) -> list[str]:
    if found.unknown:
        return []
    lines = [_counts(found)]
    reasons = found.declined.most_common(None if everything else REASONS)
    lines += [f"declined {number}: {reason}" for reason, number in reasons]
    lines += _more(len(found.declined) - len(reasons), "other reasons")
    if found.uncompared:
        mend = "give reference= to the rule, or tell it by an Operator"
        lines.append(f"not compared: ONNX Runtime does not know {found.uncompared}; {mend}")
    lines += [f"not compared {number}: {reason}" for reason, number in found.unequal.most_common(REASONS)]
    never = found.never if everything else found.never[:NEVER]
    lines += [f"never matched: {name}" for name in never]
    lines += _more(len(found.never) - len(never), "choices that never matched")
    if found.worst is not None:
        text = onnx.printer.to_text(found.worst.model)
        lines += [f"{found.worst.kind}: {found.worst.reason}", "smallest such graph:"]
        lines += [f"    {line}" for line in text.splitlines()]
    return lines


def _counts(found: Exercise) -> str:
    declined = sum(found.declined.values())
    verdict = f"; verification: {found.verdict}" if found.verdict else ""
    example = "; its example is rewritten" if found.by_example else ""
    return (
        f"{found.tried} graphs tried, {found.valid} valid, {found.matched} matched, {found.rewritten} rewritten, "
        f"{declined} declined{verdict}{example}"
    )


def _more(count: int, what: str) -> list[str]:
    return [f"and {count} {what} (--all shows them)"] if count > 0 else []


def _summary(found: Sequence[Exercise]) -> str:
    fired = sum(e.rewritten > 0 for e in found)
    example = sum(e.by_example and not e.rewritten for e in found)
    unknown = sum(bool(e.unknown) for e in found)
    failed = [e.rule.name for e in found if not e.passed]
    text = f"{len(found)} rules: {fired} fired on generated graphs"
    text += f", {example} on their example alone" if example else ""
    text += f", {unknown} cannot be exercised" if unknown else ""
    return f"{text}; {f'{len(failed)} failed: ' + ', '.join(failed) if failed else 'none failed'}"
