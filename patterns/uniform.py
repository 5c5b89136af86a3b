"""Tensors of unknown size that are one number everywhere, or count up: what is done with them is done more simply.

All bit-exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule
from surgeon_passes.values import Ramp

from ._dims import Dims, reshape_target, same

# --- zeros ---------------------------------------------------------------------------------------------------------------


def _given(state: Operand | None) -> Operand | None:
    """The initial state, or None where it is +0 everywhere: that is what a missing one is."""
    fill = None if state is None else state.fill
    return None if fill is not None and fill == 0 and not np.signbit(fill) else state


@rule(
    pattern="y?, last? = GRU|RNN(x, w, r, b?, lengths?, h)",
    rewrite="y, last = @y(x, w, r, b, lengths)<@y>",
    exactness="exact",
    sets=("cleanup",),
    opset=(7, None),
)
def drop_zero_state(m: Match) -> Replacement:
    """An initial state of zeros, computed for the batch at hand, goes from GRU and RNN.

    Algebra
        a state that is left out is 0; with it go the Shape, Concat and ConstantOfShape that made the zeros

    Declines when
        the state is not certainly 0 everywhere.

    Example
        before:
            g (float[S,N,2] x, float[1,3,2] w, float[1,3,3] r) => (float[1,N,3] y) {
                one = Constant<value = int64 {1}>()
                at = Constant<value = int64[1] {0}>()
                directions = Constant<value = int64[1] {1}>()
                hidden = Constant<value = int64[1] {3}>()
                shape = Shape(x)
                n = Gather(shape, one)
                batch = Unsqueeze(n, at)
                size = Concat<axis = 0>(directions, batch, hidden)
                h = ConstantOfShape(size)
                all, y = RNN<hidden_size = 3>(x, w, r, , , h)
            }
        after:
            g (float[S,N,2] x, float[1,3,2] w, float[1,3,3] r) => (float[1,N,3] y) {
                all, y = RNN<hidden_size = 3>(x, w, r)
            }
    """
    if _given(m.h) is not None:
        raise Decline
    return Replacement()


@rule(
    pattern="y?, last?, cell? = LSTM(x, w, r, b?, lengths?, h?, c?, p?)",
    rewrite="y, last, cell = LSTM(x, w, r, b, lengths, H, C, p)<@y>",
    exactness="exact",
    sets=("cleanup",),
    opset=(7, None),
)
def drop_zero_lstm_state(m: Match) -> Replacement:
    """Initial states of zeros, computed for the batch at hand, go from LSTM.

    Algebra
        a state that is left out is 0

    Declines when
        neither state is certainly 0 everywhere.

    Example
        before:
            g (float[S,N,2] x, float[1,12,2] w, float[1,12,3] r, float[1,N,3] h) => (float[1,N,3] y) {
                zero = Constant<value = float[1,1,1] {0.0}>()
                size = Shape(h)
                c = Expand(zero, size)
                all, y = LSTM<hidden_size = 3>(x, w, r, , , h, c)
            }
        after:
            g (float[S,N,2] x, float[1,12,2] w, float[1,12,3] r, float[1,N,3] h) => (float[1,N,3] y) {
                all, y = LSTM<hidden_size = 3>(x, w, r, , , h)
            }
    """
    h, c = _given(m.h), _given(m.c)
    if (h is None) == (m.h is None) and (c is None) == (m.c is None):
        raise Decline
    return Replacement(H=h, C=c)


# --- one number ----------------------------------------------------------------------------------------------------------


def _same_shape(a: Dims | None, b: Dims | None) -> bool:
    return a is not None and b is not None and len(a) == len(b) and all(map(same, a, b))


@rule(
    pattern="""
        y = Add|Sub|Mul|Div|Pow|Min|Max|And|Or|Equal|Less|LessOrEqual|Greater|GreaterOrEqual(a, b)
    """,
    rewrite={
        "first": "y = @y(C, b)<@y>",
        "second": "y = @y(a, C)<@y>",
    },
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    tag="scalar",
)
def use_scalar(m: Match) -> Replacement:
    """A tensor that is one number everywhere is a scalar constant where broadcasting spreads it as far.

    Algebra
        a ∘ full(shape, c) = a ∘ c where a has the result's shape by itself

    Declines when
        the other operand does not certainly have the result's shape.

    Example
        before:
            g (float[N,T] x) => (float[N,T] y) {
                shape = Shape(x)
                ones = ConstantOfShape<value = float[1] {1.0}>(shape)
                y = Add(x, ones)
            }
        after:
            g (float[N,T] x) => (float[N,T] y) {
                one = Constant<value = float {1.0}>()
                y = Add(x, one)
            }
    """
    for name, other, choice in ((m.a, m.b, "first"), (m.b, m.a, "second")):
        if isinstance(name.value, np.ndarray) or name.fill is None:
            continue
        if not _same_shape(other.shape, m.y.shape):
            raise Decline(f"'{other.name}' does not certainly have the shape of '{m.y.name}'")
        return Replacement(choice, C=np.array(name.fill))
    raise Decline


@rule(
    pattern="""
        g = Gather(w: const, i)<axis=0>
        y = Add|Mul(a, g)
    """,
    rewrite={
        "alone": "y = @y(a, Row)",
        "shared": """
            g = Gather(w, i)<axis=0>
            y = @y(a, Row)
        """,
    },
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    tag="row",
)
def use_one_row(m: Match) -> Replacement:
    """A table read at one index everywhere is one of its rows where broadcasting spreads it as far.

    Token types of an encoder are such a table: exporters fill the indices with zeros.

    Algebra
        w[full(shape, k)] is the row w[k] at every place

    Declines when
        the indices are not certainly one number inside the table;
        the other operand does not certainly have the result's shape.

    Example
        before:
            g (float[N,T,2] x) => (float[N,T,2] y) <float[2,2] w = {1.0, 2.0, 3.0, 4.0}> {
                end = Constant<value = int64[1] {2}>()
                at = Constant<value = int64[1] {0}>()
                shape = Shape(x)
                size = Slice(shape, at, end)
                i = ConstantOfShape<value = int64[1] {1}>(size)
                g = Gather(w, i)
                y = Add(x, g)
            }
        after:
            g (float[N,T,2] x) => (float[N,T,2] y) <float[2] row = {3.0, 4.0}> {
                y = Add(x, row)
            }
    """
    if isinstance(m.i.value, np.ndarray) or m.i.fill is None:
        raise Decline
    table, place = m.w.value, int(m.i.fill)
    if not -len(table) <= place < len(table):
        raise Decline(f"index {place} lies outside '{m.w.name}'")
    if not _same_shape(m.a.shape, m.y.shape):
        raise Decline(f"'{m.a.name}' does not certainly have the shape of '{m.y.name}'")
    return Replacement("shared" if m.g.is_shared else "alone", Row=table[place])


# --- masks ---------------------------------------------------------------------------------------------------------------


@rule(
    pattern="y = And(t, x) | Or(t, x)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
    opset=(7, None),
)
def drop_neutral_mask(m: Match) -> Replacement:
    """An And with true everywhere, or an Or with false everywhere, goes.

    Algebra
        true ∧ x = x; false ∨ x = x

    Declines when
        the mask is not certainly so, or x does not certainly have the result's shape.

    Example
        before:
            g (bool[N,T] x) => (bool[N,T] y) {
                shape = Shape(x)
                t = ConstantOfShape<value = bool[1] {1}>(shape)
                a = And(t, x)
                y = Not(a)
            }
        after:
            g (bool[N,T] x) => (bool[N,T] y) {
                y = Not(x)
            }
    """
    if m.t.fill is None or bool(m.t.fill) != (m.y.op == "And"):
        raise Decline
    if not _same_shape(m.x.shape, m.y.shape):
        raise Decline(f"'{m.x.name}' does not certainly have the shape of '{m.y.name}'")
    return Replacement()


@rule(
    pattern="""
        k = And(t, x)
        w = Where(k, p, q)
        y = Add(a, w)
    """,
    rewrite={
        "alone": "y = Add(a, Where(x, p, q))",
        "shared": """
            k = And(t, x)
            w = Where(k, p, q)
            y = Add(a, Where(x, p, q))
        """,
    },
    exactness="exact",
    sets=("shape",),
    opset=(9, None),
)
def drop_true_part_of_mask(m: Match) -> Replacement:
    """The part of an attention mask that is true everywhere goes where the scores are as large.

    Encoders get such a part from exporters: "position >= 0", over the whole sequence.

    Algebra
        a + where(true ∧ x, p, q) = a + where(x, p, q) where a has the result's shape by itself

    Declines when
        that part is not certainly true everywhere, or the scores do not certainly have the result's shape.

    Example
        before:
            g (float[N,T,T] a, bool[N,1,T] x) => (float[N,T,T] y) {
                none = Constant<value = float {0.0}>()
                low = Constant<value = float {-100.0}>()
                shape = Shape(a)
                t = ConstantOfShape<value = bool[1] {1}>(shape)
                k = And(t, x)
                w = Where(k, none, low)
                y = Add(a, w)
            }
        after:
            g (float[N,T,T] a, bool[N,1,T] x) => (float[N,T,T] y) {
                none = Constant<value = float {0.0}>()
                low = Constant<value = float {-100.0}>()
                w = Where(x, none, low)
                y = Add(a, w)
            }
    """
    if m.t.fill is None or not bool(m.t.fill):
        raise Decline
    if not _same_shape(m.a.shape, m.y.shape):
        raise Decline(f"'{m.a.name}' does not certainly have the shape of '{m.y.name}'")
    return Replacement("shared" if m.w.is_shared or m.k.is_shared else "alone")


# --- counting up ---------------------------------------------------------------------------------------------------------


def _is_all_of(indices: Operand, size: Any) -> bool:
    """Whether the indices are 0, 1 … ``size`` - 1 in row-major order."""
    ramp = indices.ramp
    if ramp is None or not ramp.counts():
        return False
    return same(_elements(ramp), size)


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
    if same(_elements(along), m.x.shape[0]):
        return Replacement("reshape", Target=reshape_target(m.x, m.y))
    places = [k for k, dim in enumerate(along.shape) if dim != 1]
    if len(places) != 1:
        raise Decline("the rows lie along more than one axis")
    place = places[0]
    target = [1] * len(shape)
    target[place] = 0 if place == 0 else -1
    target[-1] = -1 if place == 0 else shape[-1]
    if not isinstance(target[-1], int):
        raise Decline(f"more than one dim of '{m.y.name}' is not known")
    zero, one, at = (np.array(n, np.int64) for n in (0, 1, place))
    return Replacement("gather", Target=np.array(target, np.int64), Zero=zero, One=one, Place=at)


def _elements(ramp: Ramp) -> Any:
    total: Any = 1
    for dim in ramp.shape:
        if dim is None:
            return None
        total = dim * total
    return total
