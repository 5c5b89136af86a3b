"""Squeeze and Unsqueeze: what one takes away and the other brings back goes, or becomes one Reshape. All bit-exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._dims import ints, places


@rule(
    pattern="""
        a = Squeeze(x, gone: const)
        y = Unsqueeze(a, back: const)
    """,
    rewrite={"drop": "y = x", "reshape": "y = Reshape(x, Target)"},
    exactness="exact",
    sets=("shape",),
    opset=(5, None),
    tag="merged",
)
def merge_squeeze_unsqueeze(m: Match) -> Replacement:
    """An Unsqueeze of a Squeeze is nothing where the same axes come back, else one Reshape.

    Algebra
        both move no element; the result has the rank of x where as many axes come back as went

    Declines when
        other axes come back and more than one dim of the result is not known.

    Example
        before:
            g (float[1,N,2] x) => (float[N,1,2] y) {
                first = Constant<value = int64[1] {0}>()
                second = Constant<value = int64[1] {1}>()
                a = Squeeze(x, first)
                y = Unsqueeze(a, second)
            }
        after:
            g (float[1,N,2] x) => (float[N,1,2] y) {
                target = Constant<value = int64[3] {-1, 1, 2}>()
                y = Reshape(x, target)
            }
    """
    gone, back = ints(m.gone), ints(m.back)
    if _axes_agree(gone, back, m.x.rank):
        return Replacement("drop")
    return Replacement("reshape", Target=_target(m.y))


@rule(
    pattern="""
        a = Unsqueeze(x, added: const)
        y = Squeeze(a, gone: const)
    """,
    rewrite={"drop": "y = x", "reshape": "y = Reshape(x, Target)"},
    exactness="exact",
    sets=("shape",),
    opset=(5, None),
    tag="merged",
)
def merge_unsqueeze_squeeze(m: Match) -> Replacement:
    """A Squeeze of an Unsqueeze is nothing where the same axes go, else one Reshape.

    Algebra
        both move no element; where the axes that were added go again, x is left

    Declines when
        other axes go and more than one dim of the result is not known.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                axis = Constant<value = int64[1] {1}>()
                a = Unsqueeze(x, axis)
                b = Squeeze(a, axis)
                y = Relu(b)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    added, gone = ints(m.added), ints(m.gone)
    rank = None if m.x.rank is None else m.x.rank + len(added)
    if _axes_agree(added, gone, rank):
        return Replacement("drop")
    return Replacement("reshape", Target=_target(m.y))


def _axes_agree(first: list[int], second: list[int], rank: int | None) -> bool:
    """Whether two lists name the same axes of tensors of one rank."""
    if len(first) != len(second):
        return False
    if sorted(first) == sorted(second):
        return True
    a, b = places(first, rank), places(second, rank)
    return a is not None and a == b


def _target(y: Operand) -> Any:
    """A constant Reshape target for the shape of ``y``. Raises Decline where more than one dim is not known."""
    shape = y.shape
    if shape is None:
        raise Decline(f"the rank of '{y.name}' is unknown")
    target = [d if isinstance(d, int) else -1 for d in shape]
    if target.count(-1) > 1 or (-1 in target and 0 in target):
        raise Decline(f"more than one dim of '{y.name}' is not known")
    if 0 in target:
        raise Decline(f"'{y.name}' is empty")
    return np.array(target, np.int64)
