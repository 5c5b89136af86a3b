"""Three rules of ACME, and the operator that one of them makes."""

import numpy as np
from onnx import TensorProto

from surgeon_passes import Decline, Match, Operator, Replacement, rule

SWISH = Operator(
    "acme.Swish",
    inputs="x",
    deterministic=True,
    shape=lambda n: [n.shape(0)],
    reference='<domain: "acme", opset_import: ["" : 17]> Swish (x) => (y) { s = Sigmoid (x) y = Mul (x, s) }',
)


@rule(pattern="y = Mul(x, Sigmoid(x))", rewrite="y = acme.Swish(x)")
def fuse_acme_swish(m: Match) -> Replacement:
    """x * sigmoid(x) is ACME's Swish, which takes float32."""
    if m.x.dtype != TensorProto.FLOAT:
        raise Decline(f"'{m.x.name}' is not float32")
    return Replacement()


@rule(pattern="branch(x) = Mul(x, k: const) | x\ny = sum(branch(x)...)", rewrite="y = Mul(x, K)")
def merge_scaled_branches(m: Match) -> Replacement:
    """2x + 3x + x is 6x."""
    for b in m.branches:
        if not b.is_bare and (b.k.value.size != 1 or b.k.rank):
            raise Decline(f"'{b.k.name}' is not one number")
    return Replacement(K=sum(1 if b.is_bare else b.k * 1 for b in m.branches))


@rule(pattern="c = Conv(x, w: const, b?: const)\ny = Mul(c, s: const)", rewrite="y = Conv(x, W, B)<@c>")
def fold_channel_scale(m: Match) -> Replacement:
    """A scale of each channel goes into the weights, and into the bias where there is one."""
    tail = (1,) * (m.w.rank - 2)
    if m.s.shape not in ((m.w.shape[0], *tail), (1, m.w.shape[0], *tail)):
        raise Decline(f"'{m.s.name}' of shape {m.s.shape} is not one number a channel")
    s = m.s.value.astype(np.float64).reshape(-1)
    return Replacement(W=m.w * s.reshape(-1, 1, *tail), B=None if m.b is None else m.b * s)
