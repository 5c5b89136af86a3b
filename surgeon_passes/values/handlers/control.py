"""If and Loop: what the branch that is taken, or the turns of a small loop, would compute."""

from __future__ import annotations

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.values.lattice import Value
from surgeon_passes.values.loops import Loop, Turns, invariant, joined, stacked, unrolled
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler


@handler("If", large=True)
def if_(n: Operands) -> tuple[Value, ...]:
    """The values of the branch that a known condition takes; of an unknown one, what both branches give."""
    then, other = n.attr("then_branch"), n.attr("else_branch")
    if not isinstance(then, gs.Graph) or not isinstance(other, gs.Graph):
        raise Unknown
    condition = n.value(0)
    if isinstance(condition, np.ndarray) and condition.size == 1:
        return tuple(n.values_of(*(then if condition.reshape(()) else other).outputs))
    count = len(then.outputs)
    values = n.values_of(*then.outputs, *other.outputs)
    return tuple(joined(a, b) for a, b in zip(values[:count], values[count:], strict=True))


@handler("Loop", large=True)
def loop(n: Operands) -> tuple[Value, ...]:
    """Carried values, then scan outputs: from running few turns, else what no turn changes."""
    found = Loop(n)
    try:
        turns = unrolled(found)
    except Unknown:
        return tuple(invariant(found).carried.values)
    return (*turns.carried.values, *_scanned(n, turns))


def _scanned(n: Operands, turns: Turns) -> list[Value]:
    """Without a turn the dims of a turn's result are nobody's: unknown."""
    columns = [list(parts) for parts in zip(*turns.scanned, strict=True)]
    for parts in columns:
        n.fits(sum(p.shape[0] if p is not None and p.shape else 1 for p in parts))
    return [stacked(parts) for parts in columns]
