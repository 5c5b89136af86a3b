"""If: the branch that is taken, else what both agree on. Loop: what its turns keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.loops import Invariant, Loop, Turns, invariant, joined_shapes, trips, unrolled
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import shape_of
from surgeon_passes.values.solver import Solver


@shape_of("If")
def if_(n: Operands) -> Sequence[Shape | None]:
    branches = [n.attr("then_branch"), n.attr("else_branch")]
    condition = n.value(0)
    if isinstance(condition, np.ndarray) and condition.size == 1:
        branches = branches[:1] if condition.reshape(()) else branches[1:]
    outputs = [t for b in branches if isinstance(b, gs.Graph) for t in b.outputs]
    shapes = [dims.type_shape(entry) for entry in n.types_of(*outputs)]
    if len(branches) == 1:
        return shapes
    count = len(shapes) // 2
    pairs = zip(shapes[:count], shapes[count:], strict=True)
    return [_of_either(n, position, a, b) for position, (a, b) in enumerate(pairs)]


def _of_either(n: Operands, position: int, a: Shape | None, b: Shape | None) -> Shape | None:
    """What both branches say. Of two ranks only one may be legal for those who read the result: then that branch's."""
    result = n.view.output(position)
    readers = n.facts.readers if isinstance(n.facts, Solver) else None
    if a is None or b is None or len(a) == len(b) or result is None or readers is None:
        return joined_shapes(a, b)
    rank = readers.rank_of(result, (len(a), len(b)))
    return next((shape for shape in (a, b) if len(shape) == rank), None)


@shape_of("Loop")
def loop(n: Operands) -> Sequence[Shape | None]:
    """[carried …, scanned …]: by induction; where that leaves a dim open, turn by turn."""
    found = Loop(n)
    held = _by_induction(found)
    if all(s is not None and None not in s for s in held):
        return held
    try:
        exact = _by_turns(unrolled(found))
    except Unknown:
        return held
    return [*exact, *held[len(exact) :]]


def _by_induction(found: Loop) -> list[Shape | None]:
    try:
        known = invariant(found)
        count = _trips(found, known)
    except Unknown:
        return [None] * found.count
    scanned = [_under(count, dims.type_shape(t)) for t in known.scan_types]
    return [*(dims.type_shape(t) for t in known.carried.types), *scanned]


def _trips(found: Loop, known: Invariant) -> Dim:
    try:
        return trips(found, known.goes_on)
    except Unknown:
        return None


def _by_turns(turns: Turns) -> list[Shape | None]:
    """Carried shapes, and scanned ones where there was a turn."""
    columns = [list(parts) for parts in zip(*turns.scan_types, strict=True)]
    scanned: list[Shape | None] = []
    for parts in columns:
        shape = dims.type_shape(parts[0])
        for part in parts[1:]:
            shape = joined_shapes(shape, dims.type_shape(part))
        scanned.append(_under(len(parts), shape))
    return [*(dims.type_shape(t) for t in turns.carried.types), *scanned]


def _under(count: Dim, shape: Shape | None) -> Shape | None:
    """A scan output's shape. Where there may be no turn only its rank is certain: no turn says what a turn would give."""
    if shape is None:
        return None
    return (count, *(shape if dims.at_least(count, 1) else (None,) * len(shape)))
