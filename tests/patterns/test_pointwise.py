"""Pairs of one pointwise operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .covering import declines, property_of
from .harness import Builder, apply, operators
from .moves import DRAWN, EXACT, FLOATS, SHAPES, after, assert_becomes, assert_stays


@pytest.mark.parametrize("op", ["Relu", "Abs", "Ceil", "Floor", "Round", "Sign"])
def test_idempotent_pairs(op: str) -> None:
    b = Builder()
    y = b.node(op, b.node(op, b.node(op, b.input("x", ["N", 9]))))
    assert_becomes(after(b, y), **{op: 1, "Neg": 1})


def test_idempotent_pair_whose_first_is_read() -> None:
    b = Builder()
    first = b.node("Relu", b.input("x", ["N", 9]))
    model = b.model(b.node("Neg", b.node("Relu", first)), b.node("Exp", first))
    assert_becomes(model, Relu=1, Neg=1, Exp=1)


def test_idempotent_pair_of_outputs() -> None:
    b = Builder()
    first = b.node("Relu", b.input("x", ["N", 9]))
    assert_becomes(b.model(first, b.node("Relu", first)), Relu=1, Identity=1)


def test_different_operators_stay() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Abs", b.node("Relu", b.input("x", [9])))))


@pytest.mark.parametrize("first", ["Ceil", "Floor", "Round"])
@pytest.mark.parametrize("second", ["Ceil", "Floor", "Round"])
def test_what_is_whole_is_not_rounded_again(first: str, second: str) -> None:
    b = Builder()
    assert_becomes(after(b, b.node(second, b.node(first, b.input("x", ["N", 9])))), **{first: 1, "Neg": 1})


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("op", ["Neg", "Not"])
def test_inverse_pairs(op: str, shared: bool) -> None:
    b = Builder(np.float32 if op == "Neg" else np.bool_)
    a = b.node(op, b.input("x", ["N", 9]))
    y = b.node("Identity", b.node(op, a))
    y = b.node("Abs", y) if op == "Neg" else b.node("Xor", y, "x")
    others = [b.node("Abs" if op == "Neg" else "Identity", a)] if shared else []
    result = apply(EXACT, b.model(y, *others))
    assert result.ops[op] == int(shared)
    if op == "Neg":
        assert_becomes(b.model(y, *others), **({"Neg": 1, "Abs": 2} if shared else {"Abs": 1}))


def test_a_sign_that_flips_once_stays() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Abs", b.node("Neg", b.input("x", [9])))))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("op", ["Sigmoid", "HardSigmoid", "Softmax", "Exp", "Abs"])
def test_relu_of_what_is_not_negative(op: str, shared: bool) -> None:
    b = Builder()
    a = b.node(op, b.input("x", ["N", 9]))
    others = [b.node("Sign", a)] if shared else []
    model = b.model(b.node("Neg", b.node("Relu", a)), *others)
    assert_becomes(model, **{op: 1, "Neg": 1, **({"Sign": 1} if shared else {})})


@pytest.mark.parametrize("op", ["Tanh", "LogSoftmax", "Sqrt", "Softplus", "Elu"])
def test_relu_of_what_may_be_negative_or_minus_zero_stays(op: str) -> None:
    b = Builder()
    model = after(b, b.node("Relu", b.node(op, b.input("x", ["N", 9]))))
    assert apply(EXACT, model).ops == operators(model)


BOUNDS = [None, -2.0, -0.5, 0.0, 0.5, 2.0]


@pytest.mark.parametrize("opset", [7, 11, 13])
def test_clips(opset: int) -> None:
    for low1, high1, low2, high2 in np.array(np.meshgrid(*[BOUNDS] * 4, indexing="ij"), object).reshape(4, -1).T[::3]:
        b = Builder(opset=opset)
        y = _clip(b, _clip(b, b.input("x", [9]), low1, high1), low2, high2)
        model = after(b, y)
        if _above(low1, high1) or _above(low2, high2):
            assert_stays(model, "the wrong way round")
        elif _above(low1, high2) or _above(low2, high1):
            assert_stays(model, "do not overlap")
        else:
            assert_becomes(model, Clip=1, Neg=1)


def _above(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


def _clip(b: Builder, x: str, low: float | None, high: float | None) -> str:
    if b.opset < 11:
        return str(b.node("Clip", x, **{k: v for k, v in (("min", low), ("max", high)) if v is not None}))
    return str(b.node("Clip", x, *("" if v is None else b.constant(v) for v in (low, high))))


def test_integer_clips() -> None:
    b = Builder(np.int32, opset=13)
    x = b.input("x", [9])
    inner = b.node("Clip", x, b.constant(-3, np.int32), b.constant(4, np.int32))
    assert_becomes(after(b, b.node("Clip", inner, b.constant(-1, np.int32))), Clip=1, Neg=1)


@declines("merge_clips")
def test_clips_with_nan_stay() -> None:
    b = Builder()
    y = _clip(b, _clip(b, b.input("x", [9]), np.nan, None), 0.0, None)
    assert_stays(after(b, y), "is NaN")


# --- drawn ---------------------------------------------------------------------------------------------------------------


@property_of("merge_idempotent_pair", "drop_inverse_pair", "drop_relu_of_nonnegative")
@DRAWN
@given(
    shape=SHAPES,
    dtype=FLOATS,
    pair=st.sampled_from(["Relu Relu", "Abs Abs", "Sign Sign", "Ceil Round", "Floor Ceil", "Round Round"]),
    positive=st.sampled_from(["Sigmoid", "Softmax", "Exp", "Abs"]),
    shared=st.booleans(),
)
def test_any_pair(shape: Any, dtype: Any, pair: str, positive: str, shared: bool) -> None:
    first, second = pair.split()
    for ops, left in (((first, second), [first]), (("Neg", "Neg"), []), ((positive, "Relu"), [positive])):
        b = Builder(dtype)
        a = b.node(ops[0], b.input("x", shape))
        model = b.model(b.node("Sqrt", b.node(ops[1], a)), *([b.node("Tanh", a)] if shared else []))
        kept = [ops[0]] if shared else left
        assert_becomes(model, Sqrt=1, **dict.fromkeys(kept, 1), **({"Tanh": 1} if shared else {}))


@property_of("merge_clips")
@DRAWN
@given(
    shape=SHAPES,
    dtype=st.sampled_from([np.float32, np.float16, np.float64, np.int32]),
    lows=st.tuples(*[st.sampled_from([None, -3.0, -1.0, 0.0])] * 2),
    highs=st.tuples(*[st.sampled_from([None, 0.0, 1.0, 4.0])] * 2),
)
def test_any_clips(shape: Any, dtype: Any, lows: Any, highs: Any) -> None:
    b = Builder(dtype)
    y = b.input("x", shape)
    for low, high in zip(lows, highs, strict=True):
        y = b.node("Clip", y, *("" if bound is None else b.constant(bound, dtype) for bound in (low, high)))
    assert_becomes(after(b, y), Clip=1, Neg=1)


@declines("merge_clips")
@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((1.0, -1.0), (0.0, None), "the wrong way round"),
        ((0.0, 1.0), (2.0, None), "do not overlap"),
        ((-np.inf, 1.0), (0.0, None), "is infinite"),
    ],
)
def test_clips_of_odd_bounds_stay(first: Any, second: Any, reason: str) -> None:
    b = Builder()
    assert_stays(after(b, _clip(b, _clip(b, b.input("x", [9]), *first), *second)), reason)


@declines("drop_relu_of_nonnegative")
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_a_relu_of_the_absolute_value_of_integers_stays(dtype: type) -> None:
    b = Builder(dtype)
    assert_stays(after(b, b.node("Relu", b.node("Abs", b.input("x", [9])))), "floats or unsigned integers")
