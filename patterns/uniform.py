"""Tensors of unknown size that are one number everywhere: what is done with them is done more simply.

All bit-exact.
"""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._dims import Dims, broadcasts_into, same_shape

# --- zeros ---------------------------------------------------------------------------------------------------------------


def _given(state: Operand | None) -> Operand | None:
    """The initial state, or None where it is +0 everywhere: that is what a missing one is."""
    fill = None if state is None else state.fill
    return None if fill is not None and fill == 0 and not np.signbit(fill) else state


def _require_state(m: Match, state: Operand) -> None:
    """That the state is [directions, batch, hidden] at every size: where it is not, the original fails. Raises Decline."""
    x, r = m.x.shape, m.r.shape
    if x is None or r is None or len(x) != 3 or len(r) != 3 or not same_shape(state.shape, (r[0], x[1], r[2])):
        raise Decline(f"'{state.name}' does not certainly have the shape of a state")


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
    _require_state(m, m.h)
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
    for state, kept in ((m.h, h), (m.c, c)):
        if state is not None and kept is None:
            _require_state(m, state)
    return Replacement(H=h, C=c)


def _require_wide(wide: Operand, y: Operand, other: Dims | None) -> None:
    """That ``wide`` has the result's shape by itself and broadcasting ``other`` with it cannot fail. Raises Decline."""
    if not same_shape(wide.shape, y.shape) or not broadcasts_into(other, wide.shape):
        raise Decline(f"'{wide.name}' does not certainly have the shape of '{y.name}' by itself")


# --- one number ----------------------------------------------------------------------------------------------------------


def _is_spread(operand: Operand | None) -> bool:
    """Whether it is one number everywhere, and no constant."""
    return operand is not None and not isinstance(operand.value, np.ndarray) and operand.fill is not None


@rule(
    pattern="""
        y = Add|Sub|Mul|Div|Min|Max|And|Or|Equal|Less|LessOrEqual|Greater|GreaterOrEqual(a, b)
    """,
    rewrite={
        "first": "y = @y(C, b)<@y>",
        "second": "y = @y(a, C)<@y>",
    },
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    guard=lambda y: any(map(_is_spread, y.operands)),
    tag="scalar",
)
def use_scalar(m: Match) -> Replacement:
    """A tensor that is one number everywhere is a scalar constant where broadcasting spreads it as far.

    Algebra
        a ∘ full(shape, c) = a ∘ c where a has the result's shape by itself

    Declines when
        the other operand does not certainly have the result's shape;
        it is the larger or smaller of something and zero: which zero wins may depend on the place.

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
        if not _is_spread(name):
            continue
        if m.y.op in ("Min", "Max") and not np.any(name.fill):
            raise Decline("which zero wins may depend on the place")
        _require_wide(other, m.y, name.shape)
        return Replacement(choice, C=np.array(name.fill))
    raise Decline(final=True)  # the other order is covered, too


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
    _require_wide(m.a, m.y, m.g.shape)
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
    _require_wide(m.x, m.y, m.t.shape)
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
    _require_wide(m.a, m.y, m.t.shape)
    return Replacement("shared" if m.w.is_shared or m.k.is_shared else "alone")


@rule(
    pattern="y = Where(c, p, q)",
    rewrite={"first": "y = p", "second": "y = q"},
    exactness="exact",
    sets=("cleanup",),
    opset=(9, None),
)
def drop_decided_where(m: Match) -> Replacement:
    """A Where whose condition is the same everywhere, or whose two sides are one tensor, goes.

    Algebra
        where(true, p, q) = p; where(false, p, q) = q; where(c, p, p) = p

    Declines when
        the condition is not certainly one value; what is chosen does not certainly have the result's shape.

    Example
        before:
            g (float[N,T] p, float[N,T] q) => (float[N,T] y) {
                c = Constant<value = bool[1,1] {1}>()
                a = Where(c, p, q)
                y = Relu(a)
            }
        after:
            g (float[N,T] p, float[N,T] q) => (float[N,T] y) {
                y = Relu(p)
            }
    """
    if m.p.tensor is m.q.tensor:
        _require_wide(m.p, m.y, m.c.shape)
        return Replacement("first")
    if m.c.fill is None:
        raise Decline
    holds = bool(m.c.fill)
    chosen, other = (m.p, m.q) if holds else (m.q, m.p)
    _require_wide(chosen, m.y, m.c.shape)
    _require_wide(chosen, m.y, other.shape)
    return Replacement("first" if holds else "second")
