"""Indices of unknown size that count up: what they pick is all there is, in order. All bit-exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule
from surgeon_passes.values import Ramp, dims

from ._dims import reshape_target, same


def _is_all_of(indices: Operand, size: Any) -> bool:
    """Whether the indices are 0, 1 … ``size`` - 1 in row-major order."""
    ramp = indices.ramp
    if ramp is None or not ramp.counts():
        return False
    return same(dims.product(ramp.shape), size)


def _may_be_all(y: Operand) -> bool:
    """Whether there are not certainly more or fewer indices than rows."""
    x, indices = y.operand(0), y.operand(1)
    if x is None or indices is None or not x.shape:
        return False
    return not isinstance(indices.value, np.ndarray) or same(indices.value.size, x.shape[0])


@rule(
    pattern="y = Gather(x, i)<axis=0>",
    rewrite={
        "static": "y = Reshape(x, Target)",
        "computed": "y = Reshape(x, Concat(Shape(i), Rest)<axis=0>)",
    },
    exactness="exact",
    sets=("shape",),
    opset=(5, None),
    tag="gathered",
    guard=_may_be_all,
)
def gather_all_as_reshape(m: Match) -> Replacement:
    """A Gather that takes every row, in order, is a Reshape.

    Exporters write ``mask[batch, position]`` over all batches and positions as a Gather from the flattened mask.

    Algebra
        x[i] with i = 0, 1, 2 … in row-major order has the elements of x in their order

    Declines when
        the indices are not certainly all of the rows in order; the sizes of a row are not known;
        the result's shape must be computed and nothing next to it is a Reshape, so that it would be no less.

    Example
        before:
            g (float[N,3] x) => (float[N,1,3] y) {
                first = Constant<value = int64 {0}>()
                step = Constant<value = int64 {1}>()
                at = Constant<value = int64[1] {1}>()
                shape = Shape(x)
                n = Gather(shape, first)
                count = Range(first, n, step)
                i = Unsqueeze(count, at)
                y = Gather(x, i)
            }
        after:
            g (float[N,3] x) => (float[N,1,3] y) {
                target = Constant<value = int64[3] {0, 1, 3}>()
                y = Reshape(x, target)
            }
    """
    if m.x.shape is None or not m.x.shape or not _is_all_of(m.i, m.x.shape[0]):
        raise Decline
    try:
        return Replacement("static", Target=reshape_target(m.x, m.y))
    except Decline:
        rest = [d for d in m.x.shape[1:] if isinstance(d, int) and d > 0]
        if len(rest) != len(m.x.shape) - 1 or not _beside_reshape(m.x, m.y):
            raise
        return Replacement("computed", Rest=np.array(rest, np.int64))


def _beside_reshape(x: Operand, y: Operand) -> bool:
    """Whether the result is one of a chain of Reshapes, which become one."""
    readers = [node.op for node in y.consumers]
    return bool(readers) and all(op in ("Reshape", "Flatten", "Squeeze") for op in readers)


@rule(
    pattern="""
        c = Concat(i, j)<axis=@axis>
        y = GatherND(x, c)<batch_dims=0>
    """,
    rewrite={
        "reshape": "y = Reshape(x, Target)",
        "gather": """
            n = Gather(Shape(i), Place)<axis=0>
            y = Reshape(Gather(x, Range(Zero, n, One))<axis=0>, Target)
        """,
    },
    exactness="exact",
    sets=("shape",),
    opset=(12, None),
    tag="gathered",
)
def gather_whole_rows(m: Match) -> Replacement:
    """A GatherND of every column, row by row, is a Gather of rows, or nothing but a Reshape where it takes them all.

    Exporters write ``mask[batch, position]`` over all batches and positions so: grids of both, joined to pairs.

    Algebra
        x[i, j] with j = 0, 1, 2 … along the last axis, over all columns, is x[i]

    Declines when
        the indices are not certainly 0, 1, 2 … in row-major order, or not all columns; x is no matrix;
        the rows lie along more than one axis, or no constant target says the result's shape.

    Example
        before:
            g (float[N,3] x) => (float[N,3] y) {
                first = Constant<value = int64 {0}>()
                step = Constant<value = int64 {1}>()
                one = Constant<value = int64[1] {1}>()
                two = Constant<value = int64[1] {2}>()
                column = Constant<value = int64[1,3] {0, 1, 2}>()
                shape = Shape(x)
                n = Gather(shape, first)
                count = Range(first, n, step)
                row = Unsqueeze(count, one)
                rows = Expand(row, shape)
                columns = Expand(column, shape)
                i = Unsqueeze(rows, two)
                j = Unsqueeze(columns, two)
                c = Concat<axis = -1>(i, j)
                a = GatherND(x, c)
                y = Relu(a)
            }
        after:
            g (float[N,3] x) => (float[N,3] y) {
                target = Constant<value = int64[2] {0, 3}>()
                a = Reshape(x, target)
                y = Relu(a)
            }
    """
    rows, columns, shape = m.i.ramp, m.j.ramp, m.y.shape
    if rows is None or columns is None or shape is None or not shape or m.x.rank != 2:
        raise Decline
    if len(rows.steps) != len(shape) + 1 or m.attr("axis") not in (-1, len(shape)):
        raise Decline
    is_last = [step != 0 for step in columns.steps] == [False] * (len(shape) - 1) + [True, False]
    if not is_last or columns.start != 0 or columns.steps[-2] != 1 or not same(m.x.shape[1], shape[-1]):
        raise Decline("the second indices are not certainly all columns")
    if rows.steps[-1] != 0 or rows.steps[-2] != 0:
        raise Decline("the first indices change along the columns")
    along = Ramp(shape[:-1], rows.start, rows.steps[:-2], rows.dtype)
    if not along.counts():
        raise Decline("the first indices do not certainly count up from 0")
    if same(dims.product(along.shape), m.x.shape[0]):
        return Replacement("reshape", Target=reshape_target(m.x, m.y))
    places = [k for k, dim in enumerate(along.shape) if dim != 1]
    if len(places) != 1:
        raise Decline("the rows lie along more than one axis")
    place = places[0]
    if not dims.at_least(along.shape[place], 1):
        raise Decline("there may be no rows: -1 beside a 0 would be an error")
    target = [1] * len(shape)
    target[place] = 0 if place == 0 else -1
    target[-1] = -1 if place == 0 else shape[-1]
    if not isinstance(target[-1], int):
        raise Decline(f"more than one dim of '{m.y.name}' is not known")
    zero, one, at = (np.array(n, np.int64) for n in (0, 1, place))
    return Replacement("gather", Target=np.array(target, np.int64), Zero=zero, One=one, Place=at)
