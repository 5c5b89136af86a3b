"""Parallel linear layers on one tensor become one: sums of Gemms and MatMuls, low-rank adapters (LoRA) among them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from surgeon_passes import Decline, Leaf, Match, Operand, Replacement, rule

from ._arrays import Floats, finite
from ._layers import gemm_bias, gemm_weight


@dataclass(frozen=True)
class _Linear:
    """``x -> x·weight + bias``: float64 [K, N] and [N]; ``held`` are the weights that it has as it stands."""

    weight: Floats
    bias: Floats
    held: int

    def then(self, other: _Linear) -> _Linear:
        if self.weight.shape[1] != other.weight.shape[0]:
            raise Decline(f"{self.weight.shape[1]} features meet a matrix of {other.weight.shape[0]} rows")
        return _Linear(self.weight @ other.weight, self.bias @ other.weight + other.bias, self.held + other.held)


@rule(
    pattern="""
        branch(x) = Gemm(Gemm(x, w1, b1?) | MatMul(x, w1) | x, w, b?)
                  | MatMul(Gemm(x, w1, b1?) | MatMul(x, w1) | x, w)
                  | x
        y = sum(branch(x)...)
    """,
    rewrite={"gemm": "y = Gemm(x, W, B)", "matmul": "y = MatMul(x, W)"},
    exactness="rounding",
    sets=("reparam",),
    opset=(7, None),
    recursive=True,
    tag="merged",
)
def merge_parallel_linears(m: Match) -> Replacement:
    """A sum of linear layers, of two in a row (LoRA) and of the bare input, all on one tensor, is one linear layer.

    Algebra
        Σ (x·W_i + b_i) = x·(Σ W_i) + Σ b_i; two in a row are x·(A·B), the bare input is the unit matrix

    Declines when
        fewer than two can be merged, or none of them is a layer: a weight is not constant, not a matrix or not finite, a
        Gemm transposes x, a bias is not one number a column, features differ;
        the one matrix would hold more weights than the layers do.
        Layers that cannot take part stay and are added to the result.

    Example
        before:
            g (float[N,T,2] x) => (float[N,T,2] y) {
                w = Constant<value = float[2,2] {1.0, 2.0, 3.0, 4.0}>()
                a = Constant<value = float[2,1] {1.0, 2.0}>()
                b = Constant<value = float[1,2] {1.0, 10.0}>()
                p = MatMul(x, w)
                q = MatMul(x, a)
                r = MatMul(q, b)
                y = Add(p, r)
            }
        after:
            g (float[N,T,2] x) => (float[N,T,2] y) {
                w = Constant<value = float[2,2] {2.0, 12.0, 5.0, 24.0}>()
                y = MatMul(x, w)
            }
    """
    layers, reasons = _read(m)
    if not layers:
        raise Decline("; ".join(["no branch is a layer that can be merged", *reasons]))
    chosen = _largest(layers)
    rows, columns = chosen[0][1].weight.shape
    if rows == columns:
        chosen += [(leaf, _Linear(np.eye(rows), np.zeros(rows), 0)) for leaf in m.branches if leaf.is_bare]
    if len(chosen) < 2:
        raise Decline("; ".join(["no two branches fit together", *reasons]))
    held = sum(linear.held for _, linear in chosen)
    if rows * columns > held:
        raise Decline(f"merged they would hold {rows * columns / held:.3g}x the weights ({held} to {rows * columns})")
    taken = {id(leaf) for leaf, _ in chosen}
    leave = [leaf for leaf in m.branches if id(leaf) not in taken]
    weight = np.sum([linear.weight for _, linear in chosen], axis=0)
    bias = np.sum([linear.bias for _, linear in chosen], axis=0)
    gemms = [step for leaf, _ in chosen for step in leaf.steps if step.op == "Gemm"]
    if not gemms:
        return Replacement("matmul", W=weight, leave=leave)
    has_bias = m.opset < 11 or any(gemm.operand(2) is not None for gemm in gemms)  # C is optional from opset 11 on
    return Replacement("gemm", W=weight, B=bias if has_bias else None, leave=leave)


def _read(m: Match) -> tuple[list[tuple[Leaf, _Linear]], list[str]]:
    """Branches other than the bare input as layers; what stopped the others."""
    found: list[tuple[Leaf, _Linear]] = []
    reasons: list[str] = []
    for leaf in m.branches:
        if leaf.is_bare:
            continue
        try:
            found.append((leaf, reduce(_Linear.then, map(_layer, leaf.steps))))
        except Decline as decline:
            reasons.append(f"{leaf.out.name}: {decline}")
    return found, reasons


def _layer(y: Operand) -> _Linear:
    w, b = y.operand(1), y.operand(2)
    assert w is not None
    if y.op == "Gemm":
        if y.attr("transA"):
            raise Decline("the Gemm transposes what it reads")
        weight = gemm_weight(y, w)
        return _Linear(weight, gemm_bias(y, b, weight.shape[1]), weight.size)
    weight = finite(w)
    if weight.ndim != 2:
        raise Decline(f"'{w.name}' is no matrix")
    return _Linear(weight, np.zeros(weight.shape[1]), weight.size)


def _largest(layers: list[tuple[Leaf, _Linear]]) -> list[tuple[Leaf, _Linear]]:
    """The layers of one shape, of the shape that most have."""
    by_shape: dict[tuple[int, ...], list[tuple[Leaf, _Linear]]] = {}
    for leaf, linear in layers:
        by_shape.setdefault(linear.weight.shape, []).append((leaf, linear))
    return max(by_shape.values(), key=len)
