"""Linear operators in a row, with nothing between them, become one where that is no dearer."""

from __future__ import annotations

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import channel_vector, finite
from ._branch_steps import convolution, outline
from ._compose import compose, composed_cost
from ._layers import gemm_bias, gemm_weight


def _require_no_dearer(after: int, before: int) -> None:
    if after > before:
        raise Decline(f"as one they would hold {after / before:.3g}x the weights ({before} to {after})")


def _require_own(*weights: Operand) -> None:
    shared = next((w for w in weights if w.is_shared), None)
    if shared is not None:
        raise Decline(f"the weight '{shared.name}' has other users: it would be kept besides the new one")


@rule(
    pattern="""
        c = Conv(x, w: const, b?: const)
        y = Conv(c, v: const, d?: const)
    """,
    rewrite="y = Conv(x, W, B)<@geometry>",
    exactness="rounding",
    sets=("reparam",),
    recursive=True,
    tag="composed",
)
def compose_convolutions(m: Match) -> Replacement:
    """A Conv of a Conv is one Conv: 1x1 before or after a kxk (SESR, collapsible linear blocks), depthwise before 1x1.

    Algebra
        v*(w*x + b) + d = (v∘w)*x + (Σ v)·b + d; the taps lie at o1 + s1·o2 (o1, o2 the offsets of the two kernels, s1 the
        first stride), the stride is s1·s2, the pads are p1 + s1·p2, the groups are those that both keep apart

    Declines when
        the second pads: with zeros where the first would give its bias, or would still read its input
        (a first of one tap without bias gives zeros there, too: that is exact);
        the one would hold more weights than the two, or do more multiply-accumulates;
        a weight has other users; pads depend on an input size that is not known.

    Example
        before:
            g (float[1,1,H,W] x) => (float[1,1,A,B] y) {
                w = Constant<value = float[2,1,1,1] {1.0, 2.0}>()
                b = Constant<value = float[2] {0.5, 0.0}>()
                v = Constant<value = float[1,2,1,2] {1.0, 2.0, 3.0, 4.0}>()
                c = Conv(x, w, b)
                y = Conv(c, v)
            }
        after:
            g (float[1,1,H,W] x) => (float[1,1,A,B] y) {
                w = Constant<value = float[1,1,1,2] {7.0, 10.0}>()
                b = Constant<value = float[1] {1.5}>()
                y = Conv<kernel_shape = [1, 2], strides = [1, 1], dilations = [1, 1], group = 1, pads = [0, 0, 0, 0]>(x, w, b)
            }
    """
    first, second = outline(m.c), outline(m.y)
    _require_no_dearer(composed_cost(first, second), first.cost + second.cost)
    _require_own(m.w, m.v)
    result = compose(convolution(m.c), convolution(m.y))
    has_bias = m.b is not None or m.d is not None
    return Replacement(W=result.kernel, B=result.bias if has_bias else None, geometry=result.attributes())


@rule(
    pattern="""
        c = Gemm(x, w: const, b?: const)
        y = Gemm(c, v: const, d?: const)
    """,
    rewrite="y = Gemm(x, W, B)<transA=@A>",
    exactness="rounding",
    sets=("reparam",),
    opset=(7, None),
    recursive=True,
    tag="composed",
)
def compose_gemms(m: Match) -> Replacement:
    """Two fully connected layers with nothing between them are one.

    Algebra
        (x·W1 + b)·W2 + d = x·(W1·W2) + (b·W2 + d), with alpha, beta and transB worked in

    Declines when
        the one would hold more weights than the two; the second transposes what the first gives;
        a bias is not one number a column; a weight is not floating, not finite, or has other users.

    Example
        before:
            g (float[N,2] x) => (float[N,1] y) {
                w = Constant<value = float[3,2] {1.0, 0.0, 0.0, 1.0, 1.0, 1.0}>()
                b = Constant<value = float[3] {1.0, 2.0, 3.0}>()
                v = Constant<value = float[3,1] {1.0, 2.0, 3.0}>()
                c = Gemm<transB = 1>(x, w, b)
                y = Gemm(c, v)
            }
        after:
            g (float[N,2] x) => (float[N,1] y) {
                w = Constant<value = float[2,1] {4.0, 5.0}>()
                b = Constant<value = float[1] {14.0}>()
                y = Gemm<transA = 0>(x, w, b)
            }
    """
    if m.y.attr("transA"):
        raise Decline(f"'{m.y.name}' transposes what the first gives")
    first, second = gemm_weight(m.c, m.w), gemm_weight(m.y, m.v)
    _require_no_dearer(first.shape[0] * second.shape[1], first.size + second.size)
    _require_own(m.w, m.v)
    inner, outer = gemm_bias(m.c, m.b, first.shape[1]), gemm_bias(m.y, m.d, second.shape[1])
    bias = inner @ second + outer
    has_bias = m.b is not None or m.d is not None or m.opset < 11  # C is optional from opset 11 on
    return Replacement(W=first @ second, B=bias if has_bias else None, A=m.c.attr("transA"))


@rule(
    pattern="""
        p = MatMul(x, w: const)
        c = Add(p, b: const) | p
        y = MatMul(c, v: const)
    """,
    rewrite={"plain": "y = MatMul(x, W)", "bias": "y = Add(MatMul(x, W), B)"},
    exactness="rounding",
    sets=("reparam",),
    opset=(7, None),
    recursive=True,
    tag="composed",
)
def compose_matmuls(m: Match) -> Replacement:
    """Two linear layers with nothing between them are one, in any rank.

    Algebra
        (x·W1 + b)·W2 = x·(W1·W2) + b·W2

    Declines when
        the one would hold more weights than the two; a weight is no matrix;
        the bias is not one number a feature, or may raise the rank; a weight is not floating, not finite, or has other
        users.

    Example
        before:
            g (float[N,T,2] x) => (float[N,T,1] y) {
                w = Constant<value = float[2,3] {1.0, 0.0, 1.0, 0.0, 1.0, 1.0}>()
                v = Constant<value = float[3,1] {1.0, 2.0, 3.0}>()
                c = MatMul(x, w)
                y = MatMul(c, v)
            }
        after:
            g (float[N,T,2] x) => (float[N,T,1] y) {
                w = Constant<value = float[2,1] {4.0, 5.0}>()
                y = MatMul(x, w)
            }
    """
    first, second = (finite(t) for t in (m.w, m.v))
    if first.ndim != 2 or second.ndim != 2:
        raise Decline("a weight is no matrix")
    _require_no_dearer(first.shape[0] * second.shape[1], first.size + second.size)
    _require_own(m.w, m.v)
    if m.b is None:
        return Replacement("plain", W=first @ second)
    if m.x.rank is None or m.b.rank > m.x.rank:
        raise Decline(f"'{m.b.name}' may raise the rank of the result")
    bias = channel_vector(m.b, first.shape[1], axis=m.x.rank - 1, rank=m.x.rank)
    return Replacement("bias", W=first @ second, B=bias @ second)
