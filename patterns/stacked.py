"""Parallel linear operators on one tensor whose results are laid side by side become one."""

from __future__ import annotations

from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import Floats, channel_vector, finite
from ._branch_steps import convolution
from ._layers import gemm_bias, gemm_weight


@rule(
    pattern="""
        y = Concat(Conv(x, w1, b1?), Conv(x, w2, b2?))<axis=1>
          | Concat(Conv(x, w1, b1?), Conv(x, w2, b2?), Conv(x, w3, b3?))<axis=1>
          | Concat(Conv(x, w1, b1?), Conv(x, w2, b2?), Conv(x, w3, b3?), Conv(x, w4, b4?))<axis=1>
          | Concat(Conv(x, w1, b1?), Conv(x, w2, b2?), Conv(x, w3, b3?), Conv(x, w4, b4?), Conv(x, w5, b5?))<axis=1>
          | Concat(Conv(x, w1, b1?), Conv(x, w2, b2?), Conv(x, w3, b3?), Conv(x, w4, b4?), Conv(x, w5, b5?),
                   Conv(x, w6, b6?))<axis=1>
    """,
    rewrite="y = Conv(x, W, B)<@geometry>",
    exactness="rounding",
    sets=("reparam",),
    tag="stacked",
)
def stack_convolutions(m: Match) -> Replacement:
    """A Concat over channels of two to six Convs of one tensor, of equal geometry, is one Conv.

    Algebra
        output channel o of a convolution depends on row o of its weight and on nothing else of it: rows of all weights,
        one under the other, give the channels one behind the other

    Declines when
        kernel, strides, pads, dilations or auto_pad differ;
        a Conv has groups: the channels of one group would no longer lie side by side;
        a weight or bias is not constant, or not finite; a Conv has another user.

    Example
        before:
            g (float[N,1,L] x) => (float[N,3,L] y) {
                w = Constant<value = float[1,1,1] {2.0}>()
                b = Constant<value = float[1] {0.5}>()
                v = Constant<value = float[2,1,1] {3.0, 4.0}>()
                c = Conv(x, w, b)
                d = Conv(x, v)
                y = Concat<axis = 1>(c, d)
            }
        after:
            g (float[N,1,L] x) => (float[N,3,L] y) {
                w = Constant<value = float[3,1,1] {2.0, 3.0, 4.0}>()
                b = Constant<value = float[3] {0.5, 0.0, 0.0}>()
                y = Conv<kernel_shape = [1], strides = [1], dilations = [1], group = 1, pads = [0, 0]>(x, w, b)
            }
    """
    parts = _parts(m)
    branches = [convolution(part) for part in parts]
    first = branches[0]
    for branch in branches:
        if branch.group != 1:
            raise Decline(f"a Conv has {branch.group} groups: its channels cannot be laid behind another's")
        if _geometry(branch) != _geometry(first):
            raise Decline("kernels, strides, pads or dilations differ")
    has_bias = any(part.operand(2) is not None for part in parts)
    return Replacement(
        W=np.concatenate([b.kernel for b in branches]),
        B=np.concatenate([b.bias for b in branches]) if has_bias else None,
        geometry=first.attributes(),
    )


def _parts(m: Match) -> list[Operand]:
    """What the Concat lays side by side."""
    return [part for part in m.y.operands if part is not None]


def _geometry(branch: Any) -> tuple[Any, ...]:
    auto = branch.auto_pad
    return (branch.spatial, branch.strides, branch.dilations, auto, branch.pads if auto == "NOTSET" else ())


@rule(
    pattern="""
        y = Concat(Gemm(x, w1, b1?), Gemm(x, w2, b2?))<axis=1>
          | Concat(Gemm(x, w1, b1?), Gemm(x, w2, b2?), Gemm(x, w3, b3?))<axis=1>
          | Concat(Gemm(x, w1, b1?), Gemm(x, w2, b2?), Gemm(x, w3, b3?), Gemm(x, w4, b4?))<axis=1>
    """,
    rewrite="y = Gemm(x, W, B)<transA=@A>",
    exactness="rounding",
    sets=("reparam",),
    opset=(7, None),
    tag="stacked",
)
def stack_gemms(m: Match) -> Replacement:
    """A Concat over columns of two to four fully connected layers on one tensor is one layer.

    Algebra
        [x·W1 + b1, x·W2 + b2] = x·[W1, W2] + [b1, b2]

    Declines when
        one of them transposes x and another does not; a bias is not one number a column;
        a weight or bias is not constant, or not finite; a Gemm has another user.

    Example
        before:
            g (float[N,1] x) => (float[N,3] y) {
                w = Constant<value = float[1,1] {2.0}>()
                b = Constant<value = float[1] {0.5}>()
                v = Constant<value = float[2,1] {3.0, 4.0}>()
                c = Gemm(x, w, b)
                d = Gemm<transB = 1>(x, v)
                y = Concat<axis = 1>(c, d)
            }
        after:
            g (float[N,1] x) => (float[N,3] y) {
                w = Constant<value = float[1,3] {2.0, 3.0, 4.0}>()
                b = Constant<value = float[3] {0.5, 0.0, 0.0}>()
                y = Gemm<transA = 0>(x, w, b)
            }
    """
    weights, biases, transposed, has_bias = [], [], set(), m.opset < 11  # C is optional from opset 11 on
    for part in _parts(m):
        w, b = part.operand(1), part.operand(2)
        assert w is not None
        weights.append(gemm_weight(part, w))
        biases.append(gemm_bias(part, b, weights[-1].shape[1]))
        transposed.add(part.attr("transA"))
        has_bias = has_bias or b is not None
    if len(transposed) > 1:
        raise Decline(f"one transposes '{m.x.name}' and another does not")
    bias = np.concatenate(biases) if has_bias else None
    return Replacement(W=np.concatenate(weights, axis=1), B=bias, A=transposed.pop())


@rule(
    pattern="""
        p1 = Add(MatMul(x, w1: const), b1: const) | MatMul(x, w1: const)
        p2 = Add(MatMul(x, w2: const), b2: const) | MatMul(x, w2: const)
        p3 = Add(MatMul(x, w3: const), b3: const) | MatMul(x, w3: const)
        p4 = Add(MatMul(x, w4: const), b4: const) | MatMul(x, w4: const)
        y = Concat(p1, p2)<axis=-1> | Concat(p1, p2, p3)<axis=-1> | Concat(p1, p2, p3, p4)<axis=-1>
    """,
    rewrite={"plain": "y = MatMul(x, W)", "bias": "y = Add(MatMul(x, W), B)"},
    exactness="rounding",
    sets=("reparam",),
    opset=(7, None),
    tag="stacked",
)
def stack_matmuls(m: Match) -> Replacement:
    """A Concat over features of two to four linear layers on one tensor is one layer, in any rank.

    Algebra
        [x·W1 + b1, x·W2 + b2] = x·[W1, W2] + [b1, b2]

    Declines when
        a weight is no matrix, is not constant, not floating or not finite;
        a bias is not one number a feature, or may raise the rank; a layer has another user.

    Example
        before:
            g (float[N,T,1] x) => (float[N,T,3] y) {
                w = Constant<value = float[1,1] {2.0}>()
                v = Constant<value = float[1,2] {3.0, 4.0}>()
                b = Constant<value = float[1] {0.5}>()
                p = MatMul(x, w)
                c = Add(p, b)
                d = MatMul(x, v)
                y = Concat<axis = 2>(c, d)
            }
        after:
            g (float[N,T,1] x) => (float[N,T,3] y) {
                w = Constant<value = float[1,3] {2.0, 3.0, 4.0}>()
                b = Constant<value = float[3] {0.5, 0.0, 0.0}>()
                p = MatMul(x, w)
                y = Add(p, b)
            }
    """
    layers = [(w, b) for w, b in ((m.w1, m.b1), (m.w2, m.b2), (m.w3, m.b3), (m.w4, m.b4)) if w is not None]
    weights = [finite(w) for w, _ in layers]
    if any(w.ndim != 2 for w in weights):
        raise Decline("a weight is no matrix")
    weight = np.concatenate(weights, axis=1)
    if all(b is None for _, b in layers):
        return Replacement("plain", W=weight)
    biases = [_bias(b, w.shape[1], m) for (_, b), w in zip(layers, weights, strict=True)]
    return Replacement("bias", W=weight, B=np.concatenate(biases))


def _bias(bias: Operand | None, features: int, m: Match) -> Floats:
    """What is added to each feature: float64 [features]."""
    if bias is None:
        return np.zeros(features)
    rank = max(bias.value.ndim, 1)
    if rank > 1 and (m.x.rank is None or m.x.rank < rank):
        raise Decline(f"'{bias.name}' may raise the rank of the result")
    return channel_vector(bias, features, axis=rank - 1, rank=rank)
