"""Activations in pieces that were written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import piecewise
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes
from .harness import Builder, constants

RULES = list(rules_of(piecewise))
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
FLOATS = st.sampled_from([np.float32, np.float16])
OPSETS = st.sampled_from([9, 10, 12, 14, 16, 22])


def relu6_of_3(b: Builder, x: str) -> str:
    s = b.node("Add", x, b.constant(3.0))
    if b.opset < 11:
        return str(b.node("Clip", s, min=0.0, max=6.0))
    return str(b.node("Clip", s, b.constant(0.0), b.constant(6.0)))


def sixth(b: Builder, x: str, divide: bool) -> str:
    return str(b.node("Div", x, b.constant(6.0)) if divide else b.node("Mul", x, b.constant(1 / 6)))


# --- HardSigmoid and HardSwish -------------------------------------------------------------------------------------------


@property_of("fuse_hard_sigmoid", "fuse_hard_swish", "fuse_written_out_hard_swish")
def test_hard_activations() -> None:
    @settings(max_examples=15, deadline=None)
    @given(SHAPES, FLOATS, OPSETS, st.booleans())
    def check(form: str, shape: list[int], dtype: Any, opset: int, divide: bool) -> None:
        b = Builder(dtype, opset=opset if form == "sigmoid" else max(opset, 14))
        x = b.input("x", shape)
        if form == "operator":
            y = b.node("Mul", b.node("HardSigmoid", x, alpha=1 / 6), x)
        elif form == "inside":
            y = sixth(b, b.node("Mul", x, relu6_of_3(b, x)), divide)
        else:
            y = sixth(b, relu6_of_3(b, x), divide)
            y = y if form == "sigmoid" else b.node("Mul", x, y)
        assert_fuses(RULES, b.model(y), **{"HardSigmoid" if form == "sigmoid" else "HardSwish": 1})

    for form in ("sigmoid", "times", "inside", "operator"):
        check(form)


@pytest.mark.parametrize(("opset", "left"), [(9, {"HardSigmoid": 1, "Mul": 1}), (14, {"HardSwish": 1})])
def test_hard_swish_below_its_opset(opset: int, left: dict[str, int]) -> None:
    b = Builder(opset=opset)
    x = b.input("x", ["N", 4])
    assert_fuses(RULES, b.model(b.node("Mul", x, sixth(b, relu6_of_3(b, x), True))), **left)


@declines("fuse_hard_sigmoid", "fuse_written_out_hard_swish")
def test_hard_activations_in_double_stay() -> None:
    b = Builder(np.float64, opset=14)
    assert_stays(RULES, b.model(sixth(b, relu6_of_3(b, b.input("x", [4])), True)), "is computed in single precision")
    b = Builder(np.float64, opset=14)
    x = b.input("x", [4])
    assert_stays(RULES, b.model(sixth(b, b.node("Mul", x, relu6_of_3(b, x)), True)), "is computed in single precision")


@declines("fuse_hard_swish")
def test_another_hard_sigmoid_stays() -> None:
    b = Builder(opset=14)
    x = b.input("x", [4])
    assert_stays(RULES, b.model(b.node("Mul", x, b.node("HardSigmoid", x, alpha=0.2))))
    b = Builder(opset=14)
    x = b.input("x", [4])
    s = b.node("HardSigmoid", x, alpha=1 / 6)
    assert_stays(RULES, b.model(b.node("Mul", x, s), b.node("Neg", s)), "is also used by")


# --- rectifiers ----------------------------------------------------------------------------------------------------------


def leaky(b: Builder, x: str, slope: float, form: str) -> str:
    s = b.node("Mul", b.constant(slope), x)
    if form == "Max":
        return str(b.node("Max", s, x))
    above = b.node(form, x, b.constant(0.0))
    return str(b.node("Where", above, x, s) if form.startswith("Greater") else b.node("Where", above, s, x))


@property_of("fuse_leaky_relu")
def test_leaky_relu() -> None:
    forms = ["Max", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]

    @settings(max_examples=40, deadline=None)
    @given(SHAPES, FLOATS, OPSETS, st.sampled_from([0.0, 0.01, 0.1, 1.0, 2.0, -0.5]), st.sampled_from(forms))
    def check(shape: list[int], dtype: Any, opset: int, slope: float, form: str) -> None:
        b = Builder(dtype, opset=max(opset, 12) if "OrEqual" in form else opset)
        model = b.model(leaky(b, b.input("x", shape), slope, form))
        if form == "Max" and not 0 < slope <= 1:
            assert_stays(RULES, model, "is not x where x is positive")
            return
        found = assert_fuses(RULES, model, LeakyRelu=1)
        assert attributes(found.graph.node[0])["alpha"] == pytest.approx(slope, rel=1e-3)

    check()


@declines("fuse_leaky_relu")
def test_other_leaky_relus_stay() -> None:
    b = Builder(opset=16)
    x = b.input("x", [3, 2])
    s = b.node("Mul", x, b.random(2))
    assert_stays(RULES, b.model(b.node("Max", x, s)), "is not one number")
    b = Builder(np.float64, opset=16)
    assert_stays(RULES, b.model(leaky(b, b.input("x", [3]), 0.1, "Max")), "is computed in single precision")


def prelu(b: Builder, x: str, slope: str, op: str) -> str:
    n = b.node("Mul", slope, b.node("Relu", b.node("Neg", x)))
    return str(b.node(op, b.node("Relu", x), n))


@property_of("fuse_prelu")
def test_prelu() -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.integers(1, 4), min_size=1, max_size=4),
        st.integers(0, 4),
        FLOATS,
        OPSETS,
        st.sampled_from(["Sub", "Add"]),
    )
    def check(shape: list[int], rank: int, dtype: Any, opset: int, op: str) -> None:
        b = Builder(dtype, opset=opset)
        dims = [d if i else 1 for i, d in enumerate(shape)][max(0, len(shape) - rank) :]
        slope = b.random(*dims)
        found = assert_fuses(RULES, b.model(prelu(b, b.input("x", shape), slope, op)), PRelu=1)
        held = constants(found)[found.graph.node[0].input[1]]
        assert held.shape == tuple(dims) and held.dtype == dtype

    check()


@declines("fuse_prelu")
def test_a_slope_that_enlarges_stays() -> None:
    for shape, slope in (([3, 1], [2]), ([3], [2, 3])):
        b = Builder(opset=16)
        model = b.model(prelu(b, b.input("x", shape), b.random(*slope), "Sub"), rank=2)
        assert_stays(RULES, model, "the slope")


@pytest.mark.parametrize("opset", [9, 16, 22])
def test_prelu_in_double_stays(opset: int) -> None:
    b = Builder(np.float64, opset=opset)
    model = b.model(prelu(b, b.input("x", [3]), b.random(3), "Sub"))
    assert_stays(RULES, model, "is computed in single precision")


@property_of("fuse_thresholded_relu")
def test_thresholded_relu() -> None:
    @settings(max_examples=20, deadline=None)
    @given(SHAPES, FLOATS, OPSETS, st.sampled_from([0.5, 0.0, -1.5, 0.1]))
    def check(shape: list[int], dtype: Any, opset: int, threshold: float) -> None:
        b = Builder(dtype, opset=max(opset, 10))
        x = b.input("x", shape)
        y = b.node("Where", b.node("Greater", x, b.constant(threshold)), x, b.constant(0.0))
        assert_fuses(RULES, b.model(y), ThresholdedRelu=1)

    check()


@declines("fuse_thresholded_relu")
def test_other_thresholds_stay() -> None:
    for threshold, shape, reason in ((np.array([1.0, 2.0]), [3, 2], "is not one number"), (np.inf, [3], "not finite")):
        b = Builder(opset=16)
        x = b.input("x", shape)
        y = b.node("Where", b.node("Greater", x, b.constant(threshold)), x, b.constant(0.0))
        assert_stays(RULES, b.model(y), reason)


# --- Elu and Softsign ----------------------------------------------------------------------------------------------------


@property_of("fuse_elu")
def test_elu() -> None:
    @settings(max_examples=30, deadline=None)
    @given(
        SHAPES,
        FLOATS,
        OPSETS,
        st.sampled_from([None, 1.67, 0.5]),
        st.sampled_from(["Greater", "Less"]),
        st.booleans(),
    )
    def check(shape: list[int], dtype: Any, opset: int, alpha: float | None, form: str, subtract: bool) -> None:
        b = Builder(dtype, opset=opset)
        x = b.input("x", shape)
        e = b.node("Exp", x)
        s = b.node("Sub", e, b.constant(1.0)) if subtract else b.node("Add", e, b.constant(-1.0))
        s = s if alpha is None else b.node("Mul", b.constant(alpha), s)
        c = b.node(form, x, b.constant(0.0))
        y = b.node("Where", c, x, s) if form == "Greater" else b.node("Where", c, s, x)
        found = assert_fuses(RULES, b.model(y), Elu=1)
        assert attributes(found.graph.node[0])["alpha"] == pytest.approx(alpha or 1.0, rel=1e-3)

    check()


@declines("fuse_elu")
def test_other_elus_stay() -> None:
    b = Builder(opset=16)
    x = b.input("x", [3, 2])
    s = b.node("Mul", b.random(2), b.node("Sub", b.node("Exp", x), b.constant(1.0)))
    assert_stays(RULES, b.model(b.node("Where", b.node("Greater", x, b.constant(0.0)), x, s)), "is not one number")


@property_of("fuse_softsign")
def test_softsign() -> None:
    @settings(max_examples=20, deadline=None)
    @given(SHAPES, FLOATS, OPSETS)
    def check(shape: list[int], dtype: Any, opset: int) -> None:
        b = Builder(dtype, opset=opset)
        x = b.input("x", shape)
        assert_fuses(RULES, b.model(b.node("Div", x, b.node("Add", b.constant(1.0), b.node("Abs", x)))), Softsign=1)

    check()


@declines("fuse_softsign")
def test_softsign_in_double_stays() -> None:
    b = Builder(np.float64, opset=16)
    x = b.input("x", [3])
    y = b.node("Div", x, b.node("Add", b.constant(1.0), b.node("Abs", x)))
    assert_stays(RULES, b.model(y), "is computed in single precision")


@property_of("fuse_scaled_clip")
def test_scaled_clip() -> None:
    @settings(max_examples=20, deadline=None)
    @given(SHAPES, FLOATS, st.sampled_from([11, 12, 17, 22]), st.sampled_from([6.0, 1.0, 0.5, 4.0]), st.booleans())
    def check(shape: list[int], dtype: Any, opset: int, high: float, divide: bool) -> None:
        if not divide and dtype == np.float16 and high == 6.0:
            return  # a sixth has no float16
        b = Builder(dtype, opset=opset)
        c = b.node("Clip", b.input("x", shape), b.constant(0.0), b.constant(high))
        y = b.node("Div", c, b.constant(high)) if divide else b.node("Mul", b.constant(1 / high), c)
        found = assert_fuses(RULES, b.model(y), HardSigmoid=1)
        assert attributes(found.graph.node[0])["alpha"] == pytest.approx(1 / high)

    check()


@declines("fuse_scaled_clip")
def test_clips_that_are_scaled_otherwise_stay() -> None:
    least = np.float32(1e-40)  # the reciprocal of which is no float32
    for high, factor, reason in (
        (6.0, 0.2, "is not the reciprocal"),
        (-1.0, -1.0, "it clips to 0 and -1.0"),
        (np.inf, 0.0, "is not finite"),
    ):
        b = Builder()
        c = b.node("Clip", b.input("x", [3]), b.constant(0.0), b.constant(high))
        assert_stays(RULES, b.model(b.node("Mul", c, b.constant(factor))), reason)
    b = Builder()
    c = b.node("Clip", b.input("x", [3]), b.constant(0.0), b.constant(6.0))
    assert_stays(RULES, b.model(b.node("Div", c, b.constant(3.0))))
    b = Builder()
    c = b.node("Clip", b.input("x", [3]), b.constant(0.0), b.constant(float(least)))
    assert_stays(RULES, b.model(b.node("Div", c, b.constant(float(least)))), "it clips to 0 and 9.9")


@declines("fuse_leaky_relu")
def test_a_maximum_with_nothing_of_x_stays() -> None:
    """0·∞ is NaN, and so is the maximum; LeakyRelu gives ∞."""
    b = Builder(opset=16)
    assert_stays(RULES, b.model(leaky(b, b.input("x", [3]), 0.0, "Max")), "is not x where x is positive")
