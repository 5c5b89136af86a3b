"""Expand and Tile before operators that broadcast anyway. All bit-exact."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from surgeon_passes import Decline, Match, Replacement, rule

from ._dims import Dims, require_absorbed

# --- what broadcasting does ----------------------------------------------------------------------------------------------

_LAST_COMMON_TYPE = 13
"""TensorProto numbers up to uint64; behind them complex, bfloat16, float8 …"""
COMMUTATIVE = "Add|Mul|And|Or|Xor|Equal|Min|Max|Sum|Mean|BitwiseAnd|BitwiseOr|BitwiseXor"
ORDERED = "Sub|Div|Mod|Less|Greater|LessOrEqual|GreaterOrEqual|BitShift"


def _require_absorbed(m: Match, x: Dims | None, expanded: Dims | None, others: Iterable[Dims | None]) -> None:
    """That an operator on ``x`` and ``others`` has the shape that it has on ``expanded`` and ``others``.

    As the original runs, each dim of x is 1 or the expanded one; the rest is up to the other operands.
    """
    m.value("s")  # where it is computed, the verification covers how
    require_absorbed(m.e, x, expanded, others)


@rule(
    pattern=f"""
        e = Expand(x, s) | Tile(x, s)
        y = {COMMUTATIVE}|{ORDERED}|PRelu(a, e) | {ORDERED}(e, a)
    """,
    rewrite={
        "second": "y = @y(a, x)<@y>",
        "first": "y = @y(x, a)<@y>",
        "second, shared": """
            e = @e(x, s)<@e>
            y = @y(a, x)<@y>
        """,
        "first, shared": """
            e = @e(x, s)<@e>
            y = @y(x, a)<@y>
        """,
    },
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    recursive=True,
)
def absorb_expand(m: Match) -> Replacement:
    """An Expand, or a Tile of axes of size 1, before an operator that broadcasts goes where the other operand is as large.

    Algebra
        a ∘ expand(x) = a ∘ x where a alone gives the result its shape: each dim of x is 1 or the expanded one

    Declines when
        an expanded dim is not certainly that of the other operand, or the rank would fall;
        a Tile repeats an axis that is not certainly of size 1; a rank is unknown.

    Example
        before:
            g (float[N,T,2] a, float[2] x) => (float[N,T,2] y) {
                shape = Shape(a)
                e = Expand(x, shape)
                y = Sub(e, a)
            }
        after:
            g (float[N,T,2] a, float[2] x) => (float[N,T,2] y) {
                y = Sub(x, a)
            }
    """
    _require_absorbed(m, m.x.shape, m.e.shape, [m.a.shape])
    place = "first" if m.y.node.input(0) is m.e.tensor and m.a.tensor is not m.e.tensor else "second"
    return Replacement(f"{place}, shared" if m.e.is_shared else place)


@rule(
    pattern="""
        e = Expand(x, s) | Tile(x, s)
        y = Where(e, p, q) | Where(p, e, q) | Where(p, q, e)
    """,
    rewrite={
        "0": "y = Where(x, p, q)",
        "1": "y = Where(p, x, q)",
        "2": "y = Where(p, q, x)",
    },
    exactness="exact",
    sets=("shape",),
    opset=(9, None),
    recursive=True,
)
def absorb_expand_in_where(m: Match) -> Replacement:
    """An Expand, or a Tile of axes of size 1, before a Where goes where the other operands are as large.

    Algebra
        the condition and both choices broadcast: each dim of x is 1 or the expanded one, which another operand has

    Declines when
        an expanded dim is not certainly that of another operand, or the rank would fall;
        a Tile repeats an axis that is not certainly of size 1; a rank is unknown;
        the expanded tensor is used elsewhere.

    Example
        before:
            g (bool[N,T] c, float[N,T] p, float[1,T] x) => (float[N,T] y) {
                shape = Shape(c)
                e = Expand(x, shape)
                y = Where(c, p, e)
            }
        after:
            g (bool[N,T] c, float[N,T] p, float[1,T] x) => (float[N,T] y) {
                y = Where(c, p, x)
            }
    """
    if m.e.tensor is m.p.tensor or m.e.tensor is m.q.tensor:
        raise Decline(f"'{m.e.name}' is used twice")
    _require_absorbed(m, m.x.shape, m.e.shape, [m.p.shape, m.q.shape])
    return Replacement(next(str(k) for k in range(3) if m.y.node.input(k) is m.e.tensor))


@rule(
    pattern="""
        e = Expand(x, s) | Tile(x, s)
        g = Gather(w: const, e)<axis=0>
        y = Add|Mul(a, g)
    """,
    rewrite="y = @y(a, Gather(w, x)<axis=0>)",
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    recursive=True,
)
def absorb_expand_of_indices(m: Match) -> Replacement:
    """An Expand of indices into a table goes where what the rows are added to is as large.

    Algebra
        the rows of expand(i) are the expanded rows of i, and an Add or Mul broadcasts anyway (token type embeddings)

    Declines when
        an expanded dim is not certainly that of the other operand, or the rank would fall;
        a Tile repeats an axis that is not certainly of size 1; a rank is unknown;
        the expanded indices or the rows are used elsewhere.

    Example
        before:
            g (float[N,T,2] a, int64[1,T] i) => (float[N,T,2] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                zero = Constant<value = int64 {0}>()
                j = Mul(i, zero)
                places = Constant<value = int64[1] {0}>()
                one = Constant<value = int64[1] {1}>()
                shape = Shape(a)
                n = Gather(shape, places)
                s = Concat<axis = 0>(n, one)
                e = Expand(j, s)
                g = Gather<axis = 0>(w, e)
                y = Add(a, g)
            }
        after:
            g (float[N,T,2] a, int64[1,T] i) => (float[N,T,2] y) {
                w = Constant<value = float[1,2] {1.0, 2.0}>()
                zero = Constant<value = int64 {0}>()
                j = Mul(i, zero)
                g = Gather<axis = 0>(w, j)
                y = Add(a, g)
            }
    """
    if m.a.tensor is m.g.tensor:
        raise Decline(f"'{m.g.name}' is used twice")
    rows = m.w.value.shape[1:]
    small = None if m.x.shape is None else (*m.x.shape, *rows)
    wide = None if m.e.shape is None else (*m.e.shape, *rows)
    _require_absorbed(m, small, wide, [m.a.shape])
    return Replacement()


# --- smaller work before -------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        e = Expand(x, s) | Tile(x, s)
        y = Abs|Cast|Ceil|Floor|Neg|Not|Relu|Round|Sign|Sqrt(e)
    """,
    rewrite="y = @e(@y(x)<@y>, s)<@e>",
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    recursive=True,
)
def sink_expand(m: Match) -> Replacement:
    """An Expand or Tile moves behind an operator that works on each element by itself.

    Algebra
        f(expand(x)) = expand(f(x)), for less work, and nearer to an operator that broadcasts anyway

    Declines when
        the expanded tensor is used elsewhere; a Cast gives a type that runtimes may not expand.
        Operators that may round otherwise in the rest of a vector are left.

    Example
        before:
            g (float[2] x, float[N,2] a) => (float[N,2] y) {
                s = Shape(a)
                e = Expand(x, s)
                y = Neg(e)
            }
        after:
            g (float[2] x, float[N,2] a) => (float[N,2] y) {
                s = Shape(a)
                n = Neg(x)
                y = Expand(n, s)
            }
    """
    if m.y.op == "Cast" and m.y.attr("to") > _LAST_COMMON_TYPE:
        raise Decline("runtimes do not expand every type")
    return Replacement()


@rule(
    pattern=f"""
        e = Expand(x, s) | Tile(x, s)
        y = {COMMUTATIVE}|Sub|Div|Mod|Less|Greater|LessOrEqual|GreaterOrEqual(e, k: const)
    """,
    rewrite="y = @e(@y(x, k)<@y>, s)<@e>",
    exactness="exact",
    sets=("shape",),
    opset=(8, None),
    recursive=True,
)
def sink_expand_past_number(m: Match) -> Replacement:
    """An Expand or Tile moves behind an operator with one number.

    Algebra
        expand(x) ∘ k = expand(x ∘ k), for less work, and nearer to an operator that broadcasts anyway

    Declines when
        the constant is not one number, or has more dims than x; the rank of x is unknown;
        it is the larger or smaller of a float and zero: which zero wins may depend on the order;
        the expanded tensor is used elsewhere.

    Example
        before:
            g (float[2] x, float[N,2] a) => (bool[N,2] y) {
                s = Shape(a)
                k = Constant<value = float {0.5}>()
                e = Expand(x, s)
                y = Less(e, k)
            }
        after:
            g (float[2] x, float[N,2] a) => (bool[N,2] y) {
                s = Shape(a)
                k = Constant<value = float {0.5}>()
                n = Less(x, k)
                y = Expand(n, s)
            }
    """
    if m.k.value.size != 1:
        raise Decline
    if m.y.op in ("Max", "Min") and m.k.value.dtype.kind not in "iub" and not np.any(m.k.value):
        raise Decline("which zero wins may depend on the order")
    if m.x.rank is None or m.k.value.ndim > m.x.rank:
        raise Decline(f"'{m.k.name}' may have more dims than '{m.x.name}'")
    return Replacement()
