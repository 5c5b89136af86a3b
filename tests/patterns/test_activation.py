"""Smooth activations that were written out."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import activation
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays
from .harness import Builder, run

RULES = list(rules_of(activation))
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
FLOATS = st.sampled_from([np.float32, np.float16])


# --- Gelu ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("divide", [True, False])
def test_gelu_in_all_its_associations(order: tuple[int, ...], left: bool, divide: bool) -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    d = b.node("Div", x, b.constant(2**0.5)) if divide else b.node("Mul", b.constant(0.5**0.5), x)
    factors = [x, b.constant(0.5), b.node("Add", b.constant(1.0), b.node("Erf", d))]
    p, q, r = (factors[i] for i in order)
    y = b.node("Mul", b.node("Mul", p, q), r) if left else b.node("Mul", p, b.node("Mul", q, r))
    assert_fuses(RULES, b.model(y), Gelu=1)


def test_gelu_times_something() -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(1.0))
    y = b.node("Mul", b.node("Mul", b.node("Mul", x, b.constant(0.5)), b.random(6)), e)
    assert_fuses(RULES, b.model(y), Gelu=1, Mul=1)


@pytest.mark.parametrize("cube", ["pow", "mul"])
def test_tanh_gelu(cube: str) -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    third = b.node("Pow", x, b.constant(3.0)) if cube == "pow" else b.node("Mul", x, b.node("Mul", x, x))
    inner = b.node("Add", x, b.node("Mul", b.constant(0.044715), third))
    t = b.node("Tanh", b.node("Mul", b.constant((2 / np.pi) ** 0.5), inner))
    y = b.node("Mul", b.node("Mul", b.constant(0.5), x), b.node("Add", t, b.constant(1.0)))
    assert_fuses(RULES, b.model(y), Gelu=1)


@pytest.mark.parametrize(("opset", "half", "one"), [(17, 0.5, 1.0), (20, 0.49, 1.0), (20, 0.5, 1.01)])
def test_what_is_no_gelu_stays(opset: int, half: float, one: float) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 6])
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(one))
    assert_stays(RULES, b.model(b.node("Mul", b.node("Mul", x, b.constant(half)), e)))


def test_gelu_whose_constant_raises_the_rank_stays() -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(1.0))
    model = b.model(b.node("Mul", b.node("Mul", x, b.constant(np.full((1, 1, 1), 0.5))), e), rank=3)
    assert_stays(RULES, model, "not known to have the same rank")


@pytest.mark.parametrize("where", ["outer", "inner"])
@pytest.mark.parametrize("square", ["pow", "mul"])
def test_tanh_gelu_as_a_product(square: str, where: str) -> None:
    b = Builder(opset=20)
    x = b.input("x", ["N", 6])
    squared = b.node("Pow", x, b.constant(2.0)) if square == "pow" else b.node("Mul", x, x)
    s = b.node("Add", b.constant(1.0), b.node("Mul", b.constant(0.044715), squared))
    root = b.constant((2 / np.pi) ** 0.5)
    t = b.node("Mul", b.node("Mul", x, root), s) if where == "outer" else b.node("Mul", x, b.node("Mul", root, s))
    y = b.node("Mul", b.node("Mul", b.constant(0.5), x), b.node("Add", b.node("Tanh", t), b.constant(1.0)))
    assert_fuses(RULES, b.model(y), Gelu=1)


def gelu(b: Builder, x: str, tanh: bool) -> str:
    if tanh:
        cube = b.node("Mul", b.constant(0.044715), b.node("Pow", x, b.constant(3.0)))
        t = b.node("Tanh", b.node("Mul", b.node("Add", x, cube), b.constant((2 / np.pi) ** 0.5)))
    else:
        t = b.node("Erf", b.node("Div", x, b.constant(2**0.5)))
    return str(b.node("Mul", b.node("Mul", x, b.constant(0.5)), b.node("Add", t, b.constant(1.0))))


@property_of("fuse_gelu", "fuse_tanh_gelu")
def test_gelu_of_any_shape() -> None:
    @settings(max_examples=15, deadline=None)
    @given(SHAPES, FLOATS, st.sampled_from([20, 22]))
    def check(tanh: bool, shape: list[int], dtype: Any, opset: int) -> None:
        b = Builder(dtype, opset=opset)
        assert_fuses(RULES, b.model(gelu(b, b.input("x", shape), tanh)), Gelu=1)

    check(True)
    check(False)


@declines("fuse_gelu", "fuse_tanh_gelu")
def test_gelu_in_double_stays() -> None:
    for tanh in (True, False):
        b = Builder(np.float64, opset=20)
        assert_stays(RULES, b.model(gelu(b, b.input("x", [3]), tanh)), "Gelu is computed in single precision")


def test_gelu_of_the_largest_numbers_is_nearer_the_truth() -> None:
    """Twice x overflows where it is written out; Gelu gives x."""
    b = Builder(opset=20)
    x = b.input("x", [2])
    e = b.node("Add", b.node("Erf", b.node("Div", x, b.constant(2**0.5))), b.constant(1.0))
    model = b.model(b.node("Mul", b.node("Mul", x, e), b.constant(0.5)))
    feeds = {"x": np.array([3e38, 1.0], np.float32)}
    (before,) = run(model, feeds).values()
    fused = assert_fuses(RULES, model, Gelu=1)
    (after,) = run(fused, feeds).values()
    assert np.isinf(before[0]) and after[0] == np.float32(3e38)


# --- Softplus, Mish, Swish -----------------------------------------------------------------------------------------------


def softplus(b: Builder, x: str) -> str:
    return str(b.node("Log", b.node("Add", b.constant(1.0), b.node("Exp", x))))


def test_softplus_and_mish_written_out() -> None:
    b = Builder(opset=18)
    x = b.input("x", ["N", 6])
    assert_fuses(RULES, b.model(b.node("Mul", b.node("Tanh", softplus(b, x)), x)), Mish=1)
    b = Builder(opset=17)
    x = b.input("x", ["N", 6])
    assert_fuses(RULES, b.model(b.node("Mul", b.node("Tanh", softplus(b, x)), x)), Softplus=1, Tanh=1, Mul=1)


@property_of("fuse_softplus")
def test_softplus_of_any_shape() -> None:
    @settings(max_examples=15, deadline=None)
    @given(SHAPES)
    def check(shape: list[int]) -> None:
        b = Builder()
        assert_fuses(RULES, b.model(softplus(b, b.input("x", shape))), Softplus=1)

    check()


@declines("fuse_softplus")
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_softplus_of_other_types_stays(dtype: Any) -> None:
    b = Builder(dtype)
    assert_stays(RULES, b.model(softplus(b, b.input("x", [4]))), "not known to be float32")


def test_softplus_beyond_exp_is_nearer_the_truth() -> None:
    b = Builder()
    model = b.model(softplus(b, b.input("x", [1])))
    (after,) = run(assert_fuses(RULES, model, Softplus=1), {"x": np.array([100.0], np.float32)}).values()
    assert np.isinf(run(model, {"x": np.array([100.0], np.float32)}).popitem()[1][0]) and after[0] == 100


@property_of("fuse_mish")
def test_mish_of_any_shape() -> None:
    @settings(max_examples=20, deadline=None)
    @given(SHAPES, FLOATS)
    def check(shape: list[int], dtype: Any) -> None:
        b = Builder(dtype, opset=18)
        x = b.input("x", shape)
        assert_fuses(RULES, b.model(b.node("Mul", x, b.node("Tanh", b.node("Softplus", x)))), Mish=1)

    check()


@declines("fuse_mish")
def test_mish_whose_tanh_is_read_elsewhere_stays() -> None:
    b = Builder(opset=18)
    x = b.input("x", ["N", 6])
    t = b.node("Tanh", b.node("Softplus", x))
    assert_stays(RULES, b.model(b.node("Mul", x, t), b.node("Neg", t)), "is also used by")


@property_of("fuse_swish")
def test_swish_of_any_shape_and_factor() -> None:
    @settings(max_examples=20, deadline=None)
    @given(SHAPES, FLOATS, st.sampled_from([None, 1.702, -0.5, 2.0]))
    def check(shape: list[int], dtype: Any, factor: float | None) -> None:
        b = Builder(dtype, opset=24)
        x = b.input("x", shape)
        inner = x if factor is None else b.node("Mul", x, b.constant(factor))
        assert_fuses(RULES, b.model(b.node("Mul", b.node("Sigmoid", inner), x)), Swish=1)

    check()


@declines("fuse_swish")
def test_other_swishes_stay() -> None:
    b = Builder(np.float64, opset=24)
    x = b.input("x", [3])
    assert_stays(RULES, b.model(b.node("Mul", x, b.node("Sigmoid", x))), "computed in single precision")
    b = Builder(opset=24)
    x = b.input("x", [3, 2])
    factors = b.node("Sigmoid", b.node("Mul", x, b.random(2)))
    assert_stays(RULES, b.model(b.node("Mul", x, factors)), "is not one number")
    b = Builder(opset=23)
    x = b.input("x", [3])
    assert_stays(RULES, b.model(b.node("Mul", x, b.node("Sigmoid", x))))


def guarded(b: Builder, x: str, threshold: Any) -> str:
    return str(b.node("Where", b.node("Greater", x, b.constant(threshold)), x, b.node("Softplus", x)))


@property_of("drop_threshold_of_softplus")
def test_softplus_with_a_threshold() -> None:
    @settings(max_examples=15, deadline=None)
    @given(SHAPES, FLOATS, st.sampled_from([17.0, 20.0, np.inf]))
    def check(shape: list[int], dtype: Any, threshold: float) -> None:
        b = Builder(dtype)
        model = b.model(guarded(b, b.input("x", shape), threshold))
        found = assert_fuses(RULES, model, Softplus=1)
        feeds = {"x": np.resize(np.array([16.9, 17.1, 25.0, -30.0, 0.0, np.nan, np.inf, 100.0], dtype), shape)}
        np.testing.assert_allclose(run(found, feeds).popitem()[1], run(model, feeds).popitem()[1], rtol=1e-3)

    check()


@declines("drop_threshold_of_softplus")
@pytest.mark.parametrize("threshold", [10.0, [20.0, 20.0], np.nan])
def test_softplus_with_another_threshold_stays(threshold: Any) -> None:
    b = Builder()
    assert_stays(RULES, b.model(guarded(b, b.input("x", [3, 2]), threshold)), "is not one number from 17 on")
