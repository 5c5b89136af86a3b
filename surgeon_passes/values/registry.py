"""Operators by name and opset range: how values are computed, and how shapes are.

A module of ``handlers/`` registers with ``@handler``, one of ``shapes/`` with ``@shape_of``; importing it is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from surgeon_passes.values.dims import Shape
from surgeon_passes.values.lattice import Value
from surgeon_passes.values.operands import Operands

ValueFunction = Callable[[Operands], Value | tuple[Value, ...]]
"""One value, or one per output."""
ShapeFunction = Callable[[Operands], Sequence[Shape | None]]
"""One shape per output; fewer leave the others unknown."""


@dataclass(frozen=True, slots=True)
class Entry:
    function: Callable[[Operands], Any]
    since: int
    until: int | None
    large: bool = False
    irregular: bool = False

    def covers(self, opset: int) -> bool:
        return self.since <= opset and (self.until is None or opset < self.until)


_VALUES: dict[str, list[Entry]] = {}
_SHAPES: dict[str, list[Entry]] = {}


def handler(
    *ops: str, since: int = 1, until: int | None = None, large: bool = False, irregular: bool = False
) -> Callable[[ValueFunction], ValueFunction]:
    """Register how the outputs of operators are computed, for opsets ``since <= opset < until``.

    The function reads the node in its newest form. ``large`` lets it read arrays beyond the element budget: for
    operators that pick from their operand, or only look at it another way. ``irregular``: it reads old forms that have no
    newest equivalent, too.
    """

    def register(function: ValueFunction) -> ValueFunction:
        for op in ops:
            _VALUES.setdefault(op, []).append(Entry(function, since, until, large, irregular))
        value_entry.cache_clear()
        return function

    return register


def shape_of(
    *ops: str, since: int = 1, until: int | None = None, irregular: bool = False
) -> Callable[[ShapeFunction], ShapeFunction]:
    """Register how the output shapes of operators follow from operand shapes (and values of shape operands).

    ``irregular``: holds for old forms that have no newest equivalent, too.
    """

    def register(function: ShapeFunction) -> ShapeFunction:
        for op in ops:
            _SHAPES.setdefault(op, []).append(Entry(function, since, until, irregular=irregular))
        shape_entry.cache_clear()
        return function

    return register


def replace_shape(op: str, function: ShapeFunction | None) -> None:
    """As :func:`shape_of`, in the place of what was registered; None takes that away."""
    _SHAPES.pop(op, None)
    shape_entry.cache_clear()
    if function is not None:
        shape_of(op)(function)


@lru_cache(maxsize=4096)
def value_entry(op: str, opset: int) -> Entry | None:
    return next((e for e in _VALUES.get(op, ()) if e.covers(opset)), None)


@lru_cache(maxsize=4096)
def shape_entry(op: str, opset: int) -> Entry | None:
    return next((e for e in _SHAPES.get(op, ()) if e.covers(opset)), None)


def handled_operators() -> frozenset[str]:
    """Names of the operators whose values can be computed."""
    return frozenset(_VALUES)
