"""Squeeze and Unsqueeze: two become one, nothing, or one Reshape. All bit-exact."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._dims import ints, places, require_legal, reshape_target


@rule(
    pattern="""
        a = Squeeze(x, gone: const)
        y = Unsqueeze(a, back: const)
    """,
    rewrite={"drop": "y = x", "reshape": "y = Reshape(x, Target)"},
    exactness="exact",
    sets=("shape",),
    recursive=True,
    opset=(5, None),
    tag="merged",
)
def merge_squeeze_unsqueeze(m: Match) -> Replacement:
    """An Unsqueeze of a Squeeze is nothing where the same axes come back, else one Reshape.

    Algebra
        both move no element; the result has the rank of x where as many axes come back as went

    Declines when
        the Squeeze takes all axes of size 1 (none are named, or an empty tensor of them);
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
    _require_named(m.a, gone)
    require_legal(m.x, m.a)
    if _axes_agree(gone, back, m.x.rank):
        return Replacement("drop")
    return Replacement("reshape", Target=reshape_target(m.x, m.y))


@rule(
    pattern="""
        a = Unsqueeze(x, added: const)
        y = Squeeze(a, gone: const)
    """,
    rewrite={"drop": "y = x", "reshape": "y = Reshape(x, Target)"},
    exactness="exact",
    sets=("shape",),
    recursive=True,
    opset=(5, None),
    tag="merged",
)
def merge_unsqueeze_squeeze(m: Match) -> Replacement:
    """A Squeeze of an Unsqueeze is nothing where the same axes go, else one Reshape.

    Algebra
        both move no element; where the axes that were added go again, x is left

    Declines when
        the Squeeze takes all axes of size 1 (none are named, or an empty tensor of them);
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
    _require_named(m.y, gone)
    rank = None if m.x.rank is None else m.x.rank + len(added)
    if _axes_agree(added, gone, rank):
        return Replacement("drop")
    return Replacement("reshape", Target=reshape_target(m.x, m.y))


def _axes_agree(first: list[int], second: list[int], rank: int | None) -> bool:
    """Whether two lists name the same axes of tensors of one rank."""
    if len(first) != len(second):
        return False
    if sorted(first) == sorted(second):
        return True
    a, b = places(first, rank), places(second, rank)
    return a is not None and a == b


@rule(
    pattern="""
        a = Unsqueeze(x, first: const)
        y = Unsqueeze(a, second: const)
    """,
    rewrite="y = Unsqueeze(x, Axes)",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    tag="merged",
)
def merge_unsqueezes(m: Match) -> Replacement:
    """An Unsqueeze of an Unsqueeze is one Unsqueeze.

    Algebra
        the axes of the first lie among those that the second did not add, in their order

    Declines when
        an axis counts from the back and the rank is unknown;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[1,N,1] y) {
                one = Constant<value = int64[1] {1}>()
                zero = Constant<value = int64[1] {0}>()
                a = Unsqueeze(x, one)
                y = Unsqueeze(a, zero)
            }
        after:
            g (float[N] x) => (float[1,N,1] y) {
                axes = Constant<value = int64[2] {0, 2}>()
                y = Unsqueeze(x, axes)
            }
    """
    first, second = ints(m.first), ints(m.second)
    middle = None if m.x.rank is None else m.x.rank + len(first)
    inner = _known_places(first, middle)
    outer = _known_places(second, None if middle is None else middle + len(second))
    return Replacement(Axes=np.array(sorted({*outer, *_among_others(inner, outer)}), np.int64))


@rule(
    pattern="""
        a = Squeeze(x, first: const)
        y = Squeeze(a, second: const)
    """,
    rewrite="y = Squeeze(x, Axes)",
    exactness="exact",
    sets=("shape",),
    recursive=True,
    tag="merged",
)
def merge_squeezes(m: Match) -> Replacement:
    """A Squeeze of a Squeeze is one Squeeze.

    Algebra
        the axes of the second are those of x that the first left, in their order

    Declines when
        one of them takes all axes of size 1 (none are named, or an empty tensor of them);
        an axis counts from the back and the rank is unknown;
        the intermediate is used elsewhere.

    Example
        before:
            g (float[1,N,1] x) => (float[N] y) {
                zero = Constant<value = int64[1] {0}>()
                one = Constant<value = int64[1] {1}>()
                a = Squeeze(x, zero)
                y = Squeeze(a, one)
            }
        after:
            g (float[1,N,1] x) => (float[N] y) {
                axes = Constant<value = int64[2] {0, 2}>()
                y = Squeeze(x, axes)
            }
    """
    _require_named(m.a, ints(m.first))
    _require_named(m.y, ints(m.second))
    inner = _known_places(ints(m.first), m.x.rank)
    outer = _known_places(ints(m.second), None if m.x.rank is None else m.x.rank - len(inner))
    return Replacement(Axes=np.array(sorted({*inner, *_among_others(outer, inner)}), np.int64))


def _require_named(squeeze: Operand, axes: list[int]) -> None:
    """That a Squeeze names axes: an empty tensor of them means all of size 1 to ONNX Runtime. Raises Decline."""
    if not axes:
        raise Decline(f"'{squeeze.name}' names no axes: it may take all of size 1")


def _known_places(axes: list[int], rank: int | None) -> set[int]:
    found = places(axes, rank)
    if found is None:
        raise Decline("an axis counts from the back and the rank is unknown")
    return found


def _among_others(axes: set[int], taken: set[int]) -> set[int]:
    """The axes that stand at ``axes`` when those of ``taken`` are left out of count."""
    others = [a for a in range(max(axes, default=-1) + len(taken) + 1) if a not in taken]
    return {others[a] for a in axes}
