"""Nodes that give back what they get. All bit-exact: NaN, infinities and the sign of zero included."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes import Decline, Match, Operand, Replacement, Rule, rule

drop_identity = Rule.from_text(
    "drop_identity",
    "y = Identity(x)",
    "y = x",
    exactness="exact",
    sets=("cleanup",),
    source=__name__,
    doc="""Identity goes.

Algebra
    y = x

Declines when
    both sides are interface of a graph: an output must be made by a node.

Example
    before:
        g (float[N] x) => (float[N] y) {
            same = Identity(x)
            y = Relu(same)
        }
    after:
        g (float[N] x) => (float[N] y) {
            y = Relu(x)
        }
""",
)


# --- Dropout -------------------------------------------------------------------------------------------------------------


def _require_inference(m: Match) -> None:
    if m.training is None:
        return
    value = m.training.value
    if not isinstance(value, np.ndarray):
        raise Decline(f"training_mode '{m.training.name}' is not constant")
    if value.any():
        raise Decline("the Dropout is in training mode")


@rule(
    pattern="y = Dropout(x, ratio?, training?)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_dropout(m: Match) -> Replacement:
    """Dropout in inference goes.

    Algebra
        without training_mode, y = x whatever the ratio

    Declines when
        training_mode is true or not constant, or the opset is below 7 and is_test is not set;
        the mask is used (drop_dropout_with_mask then).

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Dropout(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Relu(x)
            }
    """
    _require_inference(m)
    return Replacement()


@rule(
    pattern="y, mask = Dropout(x, ratio?, training?)",
    rewrite="""
        y = x
        mask = ConstantOfShape(Shape(x))<value=@truth>
    """,
    exactness="exact",
    sets=("cleanup",),
    opset=(12, None),
)
def drop_dropout_with_mask(m: Match) -> Replacement:
    """Dropout in inference whose mask is used: all of the mask is true.

    Algebra
        without training_mode, y = x and the mask keeps everything

    Declines when
        training_mode is true or not constant.

    Example
        before:
            g (float[N] x) => (float[N] y, bool[N] mask) {
                a, mask = Dropout(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y, bool[N] mask) {
                shape = Shape(x)
                mask = ConstantOfShape<value = bool[1] {1}>(shape)
                y = Relu(x)
            }
    """
    _require_inference(m)
    return Replacement(truth=gs.Constant("truth", np.array([True])))


drop_single_operand = Rule.from_text(
    "drop_single_operand",
    "y = Concat|Sum|Max|Min|Mean(x)",
    "y = x",
    exactness="exact",
    sets=("cleanup",),
    source=__name__,
    doc="""A Concat, Sum, Max, Min or Mean of one tensor goes.

Algebra
    each of them gives its only operand back

Declines when
    both sides are interface of a graph.

Example
    before:
        g (float[N] x) => (float[N] y) {
            a = Concat<axis = 0>(x)
            y = Relu(a)
        }
    after:
        g (float[N] x) => (float[N] y) {
            y = Relu(x)
        }
""",
)


# --- arithmetic ----------------------------------------------------------------------------------------------------------

NEUTRAL: dict[str, float] = {"Mul": 1, "Div": 1, "Pow": 1, "Add": -0.0, "Sub": 0.0}
"""What changes no bit of the other operand: -0.0 + 0.0 is 0.0, so only -0.0 may be added."""


def _reads_neutral(y: Operand) -> bool:
    """Whether some operand begins with the neutral element."""
    neutral = NEUTRAL[y.op]
    values = (o.value for o in y.operands if o is not None)
    return any(isinstance(v, np.ndarray) and v.size and v.flat[0] == v.dtype.type(neutral) for v in values)


@rule(
    pattern="y = Mul|Div|Pow|Add|Sub(x, k: const)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
    guard=_reads_neutral,
)
def drop_neutral_operand(m: Match) -> Replacement:
    """Arithmetic with the neutral element goes: x·1, x/1, x**1, x - 0, and x + 0 for integers.

    Algebra
        x∘e = x, bit for bit: x - 0.0 keeps the sign of zero, x + 0.0 turns -0.0 into 0.0

    Declines when
        the constant is not the neutral element, or is a floating +0.0 that is added;
        the constant may enlarge the result: it has a dim besides 1 that x is not known to have, or more dims.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                one = Constant<value = float[1] {1.0}>()
                a = Mul(one, x)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    constant, op = m.k.value, m.y.op
    _require_neutral(constant, op)
    _require_no_growth(m.x, constant.shape)
    return Replacement()


def _require_neutral(constant: Any, op: str) -> None:
    neutral = NEUTRAL[op]
    values = np.asarray(constant)
    if values.size == 0 or not (values == values.dtype.type(neutral)).all():
        raise Decline
    if values.dtype.kind in "iu" or op not in ("Add", "Sub"):
        return
    if (np.signbit(values.astype(np.float64)) != np.signbit(neutral)).any():
        raise Decline(f"{op} of {'0.0' if op == 'Add' else '-0.0'} changes the sign of zero")


def _require_no_growth(x: Operand, shape: tuple[int, ...]) -> None:
    """That a tensor of ``shape`` broadcasts to x's shape. Raises Decline where it may be larger."""
    if not shape:
        return
    held = x.shape
    if held is None:
        raise Decline(f"the rank of '{x.name}' is unknown")
    if len(shape) > len(held):
        raise Decline(f"a constant of shape {list(shape)} raises the rank")
    for dim, own in zip(reversed(shape), reversed(held), strict=False):
        if dim != 1 and not (isinstance(own, int) and own == dim):
            raise Decline(f"a constant of shape {list(shape)} may enlarge the result")
