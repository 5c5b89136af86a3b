"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Sequence

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values.dims import Shape
from surgeon_passes.values.operands import Operands
from surgeon_passes.values.registry import shape_of


def reduced_axes(n: Operands, rank: int) -> tuple[int, ...]:
    """Axes that a Reduce operator reduces; () for none (noop_with_empty_axes). Gives up where they are not known."""
    axes = n.ints(1) if n.has(1) else []
    if not axes:
        return () if n.attr("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({normalise_axis(a, rank) for a in axes}))


def keeps_dims(n: Operands) -> bool:
    """Only 1 keeps them, to onnx and ONNX Runtime alike."""
    return bool(n.attr("keepdims", 1) == 1)


@shape_of(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def reduced(n: Operands) -> Sequence[Shape | None]:
    data = n.known_shape(0)
    keep = keeps_dims(n)
    if n.has(1) and n.maybe_ints(1) is None:
        return [(None,) * len(data)] if keep else []
    return [_without(data, reduced_axes(n, len(data)), keep)]


def _without(data: Shape, axes: tuple[int, ...], keep: bool) -> Shape:
    if keep:
        return tuple(1 if k in axes else d for k, d in enumerate(data))
    return tuple(d for k, d in enumerate(data) if k not in axes)


@shape_of("ArgMax", "ArgMin")
def arg_extremum(n: Operands) -> Sequence[Shape | None]:
    data = n.known_shape(0)
    return [_without(data, (normalise_axis(n.attr("axis", 0), len(data)),), keeps_dims(n))]
