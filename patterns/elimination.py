"""Nodes that give back what they get. All bit-exact: NaN, infinities and the sign of zero included."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes import Decline, Match, Operand, Replacement, Rule, rule

FAR = 2**31 - 1
"""From here on an end of a Slice means "to the end": no tensor is longer, and ONNX itself advises it."""

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


# --- types and counts ----------------------------------------------------------------------------------------------------


@rule(
    pattern="y = Cast(x)<to=@to>",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
    opset=(6, None),
)
def drop_cast(m: Match) -> Replacement:
    """A Cast to the type that its input has goes.

    Algebra
        a value of a type is unchanged by a cast to that type

    Declines when
        the input's type is another one, or unknown. A round trip through another type loses bits: it stays.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Cast<to = 1>(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Relu(x)
            }
    """
    if m.x.dtype is None:
        raise Decline(f"the type of '{m.x.name}' is unknown")
    if m.x.dtype != m.attr("to"):
        raise Decline
    return Replacement()


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


@rule(
    pattern="y = Split(x, sizes?)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_single_split(m: Match) -> Replacement:
    """A Split into one part goes.

    Algebra
        the only part is the whole

    Declines when
        there are more parts, used or not.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Split<axis = 0>(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Relu(x)
            }
    """
    parts = len(m.y.node.node.outputs)
    if parts != 1:
        raise Decline
    return Replacement()


# --- arithmetic ----------------------------------------------------------------------------------------------------------

NEUTRAL: dict[str, float] = {"Mul": 1, "Div": 1, "Pow": 1, "Add": -0.0, "Sub": 0.0}
"""What changes no bit of the other operand: -0.0 + 0.0 is 0.0, so only -0.0 may be added."""


@rule(
    pattern="y = Mul|Div|Pow|Add|Sub(x, k: const)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
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


# --- movement ------------------------------------------------------------------------------------------------------------


@rule(
    pattern="y = Pad(x, amounts: const, fill?, axes?)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_zero_pad(m: Match) -> Replacement:
    """A Pad by nothing goes.

    Algebra
        no side gets or loses an element, in any mode

    Declines when
        some amount is not 0 (a negative one crops).

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                none = Constant<value = int64[4] {0, 0, 0, 0}>()
                a = Pad(x, none)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    if m.amounts.value.any():
        raise Decline
    return Replacement()


@rule(
    pattern="y = Slice(x, starts: const, ends: const, axes?: const, steps?: const)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_full_slice(m: Match) -> Replacement:
    """A Slice that takes everything goes.

    Algebra
        start 0, step 1 and an end at or behind the dim take the whole axis

    Declines when
        a step is not 1, a start is not the first element, or an end is not known to be at or behind the last.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                starts = Constant<value = int64[2] {0, 0}>()
                ends = Constant<value = int64[2] {9223372036854775807, 2}>()
                a = Slice(x, starts, ends)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    starts, ends = _ints(m.starts), _ints(m.ends)
    axes = _ints(m.axes) if m.axes is not None else list(range(len(starts)))
    steps = _ints(m.steps) if m.steps is not None else [1] * len(starts)
    if any(step != 1 for step in steps):
        raise Decline
    for axis, start, end in zip(axes, starts, ends, strict=True):
        size = _size(m.x, axis)
        if not (start == 0 or start <= -FAR or (size is not None and start <= -size)):
            raise Decline
        if not (end >= FAR or (size is not None and end >= size)):
            raise Decline
    return Replacement()


def _ints(operand: Operand) -> list[int]:
    return [int(v) for v in operand.value.ravel()]


def _size(x: Operand, axis: int) -> int | None:
    shape = x.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return None
    return shape[axis] if isinstance(shape[axis], int) else None


@rule(
    pattern="y = Expand(x, target: partial)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_expand(m: Match) -> Replacement:
    """An Expand to the shape that its input has goes.

    Algebra
        a target dim of 1, or equal to the input's, leaves that axis as it is

    Declines when
        the target has more dims, or one that is not known to be 1 or the input's.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                target = Constant<value = int64[2] {1, 2}>()
                a = Expand(x, target)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    target = m.target.value
    dims = list(target) if isinstance(target, np.ndarray) else target.dims()
    held = m.x.shape
    if held is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    if len(dims) > len(held):
        raise Decline
    for dim, own in zip(reversed(dims), reversed(held), strict=False):
        if dim is None or (dim != 1 and (own is None or dim != own)):
            raise Decline
    return Replacement()


@rule(
    pattern="""
        parts... = Split(x, sizes?)<axis=@axis>
        y = Concat(parts...)<axis=@axis>
    """,
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_split_concat(m: Match) -> Replacement:
    """A Concat that puts the parts of a Split together again goes, with the Split.

    Algebra
        all parts, in order, along the axis that they were cut along

    Declines when
        a part is used elsewhere. Parts in another order, or along another axis, do not match.

    Example
        before:
            g (float[N,4] x) => (float[N,4] y) {
                sizes = Constant<value = int64[2] {1, 3}>()
                p, q = Split<axis = 1>(x, sizes)
                a = Concat<axis = 1>(p, q)
                y = Relu(a)
            }
        after:
            g (float[N,4] x) => (float[N,4] y) {
                y = Relu(x)
            }
    """
    return Replacement()


# --- pairs ---------------------------------------------------------------------------------------------------------------


@rule(
    pattern="""
        a = Relu|Abs|Ceil|Floor|Round|Sign(x)
        y = Relu|Abs|Ceil|Floor|Round|Sign(a)
    """,
    rewrite={
        "merge": "y = @a(x)<@a>",
        "share": """
            a = @a(x)<@a>
            y = a
        """,
    },
    exactness="exact",
    sets=("cleanup",),
)
def merge_idempotent_pair(m: Match) -> Replacement:
    """Relu of Relu is one Relu; likewise Abs, Ceil, Floor, Round and Sign.

    Algebra
        f(f(x)) = f(x)

    Declines when
        the two are different operators.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Relu(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Relu(x)
            }
    """
    if m.a.op != m.y.op:
        raise Decline
    return Replacement("share" if m.a.is_shared else "merge")


@rule(
    pattern="""
        a = Clip(x, low1?: const, high1?: const)
        y = Clip(a, low2?: const, high2?: const)
    """,
    rewrite="y = Clip(x, Low, High)",
    exactness="exact",
    sets=("cleanup",),
    tag="merged",
)
def merge_clips(m: Match) -> Replacement:
    """Clip of Clip is one Clip.

    Algebra
        clip is monotone, so clip2(clip1(x)) = clip(x, clip2(low1), clip2(high1)); a bound that is missing gives way

    Declines when
        a bound is NaN or not constant, or a low one lies above a high one (the sign of a zero bound would depend on x);
        the inner result is used elsewhere.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                six = Constant<value = float {6.0}>()
                five = Constant<value = float {5.0}>()
                a = Clip(x, zero, six)
                y = Clip(a, , five)
            }
        after:
            g (float[N] x) => (float[N] y) {
                zero = Constant<value = float {0.0}>()
                five = Constant<value = float {5.0}>()
                y = Clip(x, zero, five)
            }
    """
    low1, high1, low2, high2 = (_bound(b) for b in (m.low1, m.high1, m.low2, m.high2))
    for low, high in ((low1, high1), (low2, high2)):
        if low is not None and high is not None and low > high:
            raise Decline(f"the bounds {low} and {high} are the wrong way round")
    for low, high in ((low1, high2), (low2, high1)):
        if low is not None and high is not None and low > high:
            raise Decline(f"the bounds do not overlap: all becomes {low if high is high1 else high}")
    return Replacement(Low=_clip(low1, low2, high2, low2), High=_clip(high1, low2, high2, high2))


def _bound(operand: Operand | None) -> Any:
    if operand is None:
        return None
    value = operand.value.reshape(())
    if np.isnan(value):
        raise Decline(f"'{operand.name}' is NaN")
    return value


def _clip(bound: Any, low: Any, high: Any, missing: Any) -> Any:
    """A bound of the inner Clip, clipped by the outer one."""
    if bound is None:
        return missing
    if low is not None and bound < low:
        bound = low
    return high if high is not None and bound > high else bound
