"""What a pattern leaves open: alternatives, operators, optional operands, orders, numbers of leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

from surgeon_passes.ops.traits import COMMUTATIVE
from surgeon_passes.rules.pattern import Alternatives, Call, Flat, NameRef, OutputName, Pattern
from surgeon_passes.rules.printer import unparse_value

Choice: TypeAlias = tuple[int, str]
"""id() of the part of the pattern, and what was chosen there."""

LEAVES = (1, 2, 3, 4)


def swaps(call: Call) -> bool:
    """Whether the operands of a call may stand in either order."""
    return len(call.args) == 2 and all(not op.domain and op.name in COMMUTATIVE for op in call.ops)


def choices(pattern: Pattern) -> dict[Choice, str]:
    """Every choice that the pattern leaves, with its name in a report."""
    return dict(_all(pattern))


def _all(pattern: Pattern) -> Iterator[tuple[Choice, str]]:
    for definition in pattern.definitions:
        for output in definition.outputs:
            yield from _optional(output, output.name)
        yield from _walk(definition.value)
    for template in pattern.templates.values():
        for number, option in enumerate(template.options):
            if len(template.options) > 1:
                yield (id(template), str(number)), f"line {template.span.line}: alternative {unparse_value(option)}"
            yield from _walk(option)


def _walk(value: Any) -> Iterator[tuple[Choice, str]]:
    where = f"line {value.span.line}: "
    match value:
        case NameRef():
            yield from _optional(value, value.name)
        case Alternatives():
            for number, option in enumerate(value.options):
                yield (id(value), str(number)), f"{where}alternative {unparse_value(option)}"
                yield from _walk(option)
        case Call() | Flat():
            if isinstance(value, Call):
                yield from _call(value, where)
            for arg in value.args:
                yield from _walk(arg)
        case _:
            return


def _call(call: Call, where: str) -> Iterator[tuple[Choice, str]]:
    if len(call.ops) > 1:
        for op in call.ops:
            yield (id(call), str(op)), f"{where}operator {op}"
    if swaps(call):
        for order in ("in order", "swapped"):
            yield (id(call), order), f"{where}{unparse_value(call)} with its operands {order}"


def _optional(part: NameRef | OutputName, name: str) -> Iterator[tuple[Choice, str]]:
    if part.optional:
        for state in ("present", "absent"):
            yield (id(part), state), f"line {part.span.line}: {name}? {state}"


class Tally:
    """How often each choice was made in a graph, and in one that was rewritten as it was meant."""

    def __init__(self, pattern: Pattern) -> None:
        self.names = choices(pattern)
        self.made: Counter[Choice] = Counter()
        self.matched: Counter[Choice] = Counter()

    def never(self) -> list[str]:
        """Choices that no rewritten graph had, in the order of the pattern."""
        return [name for choice, name in self.names.items() if not self.matched[choice]]
