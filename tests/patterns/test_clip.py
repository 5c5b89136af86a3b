"""Rectifiers and clips that follow one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import clip
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes
from .harness import Builder, assert_equal, constants
from .moves import ODD

RULES = list(rules_of(clip))
BOUND = st.sampled_from([None, -2.0, -0.5, 0.0, 0.5, 2.0])
FLOATS = st.sampled_from([np.float32, np.float16, np.float64])


def clipped(b: Builder, x: str, low: float | None, high: float | None) -> str:
    if b.opset < 11:
        return str(b.node("Clip", x, **{k: v for k, v in (("min", low), ("max", high)) if v is not None}))
    return str(b.node("Clip", x, *("" if v is None else b.constant(v) for v in (low, high))))


def test_several_relus_in_a_row_go_at_once() -> None:
    """What the rules make they take up again: another run would."""
    b = Builder()
    inner = b.node("Relu", b.node("Relu", b.input("x", [9])))
    assert_fuses(RULES, b.model(clipped(b, inner, None, 6.0)), tolerance=0, Clip=1)
    b = Builder()
    outer = b.node("Relu", b.node("Relu", clipped(b, b.input("x", [9]), -1.0, 6.0)))
    assert_fuses(RULES, b.model(outer), tolerance=0, Clip=1)


@property_of("fuse_relu_into_clip", "fuse_relu_after_clip")
def test_relu_beside_clip() -> None:
    @settings(max_examples=30, deadline=None)
    @given(BOUND, BOUND, st.sampled_from([9, 11, 13]), FLOATS)
    def check(first: bool, low: float | None, high: float | None, opset: int, dtype: Any) -> None:
        b = Builder(dtype, opset=opset if dtype == np.float32 else 14)
        x = b.input("x", [9])
        y = clipped(b, b.node("Relu", x), low, high) if first else b.node("Relu", clipped(b, x, low, high))
        stays = high is None and (first or low is None)
        stays = stays or (high is not None and (high <= 0 or (low is not None and low > high)))
        if stays:
            assert_stays(RULES, b.model(y))
            return
        found = assert_fuses(RULES, b.model(y), tolerance=0, Clip=1)
        assert_equal(b.model(y), found, [{}], tolerance=0, feeds={"x": ODD.astype(dtype)})

    with np.errstate(over="ignore"):
        check(True)
        check(False)


@declines("fuse_relu_into_clip", "fuse_relu_after_clip")
def test_what_leaves_nothing_positive_stays() -> None:
    b = Builder()
    assert_stays(RULES, b.model(clipped(b, b.node("Relu", b.input("x", [9])), None, -1.0)), "leave nothing")
    b = Builder()
    assert_stays(RULES, b.model(b.node("Relu", clipped(b, b.input("x", [9]), -3.0, -1.0))), "leave nothing")
    b = Builder()
    assert_stays(RULES, b.model(b.node("Relu", clipped(b, b.input("x", [9]), None, None))), "has no bound")
    b = Builder()
    relu = b.node("Relu", b.input("x", [9]))
    assert_stays(RULES, b.model(clipped(b, relu, 0.0, 6.0), b.node("Neg", relu)), "is also used by")


@pytest.mark.parametrize("large", [37, 64, 1001])
def test_no_bit_changes_in_long_tensors(large: int) -> None:
    """Vectorised kernels and their tails may treat the sign of zero differently."""
    b = Builder()
    model = b.model(clipped(b, b.node("Relu", b.input("x", [large])), 0.0, 6.0))
    found = assert_fuses(RULES, model, tolerance=0, Clip=1)
    assert_equal(model, found, [{}], tolerance=0, feeds={"x": np.resize(ODD, large)})


@property_of("fuse_min_max")
def test_min_and_max() -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.integers(1, 5), min_size=1, max_size=3),
        st.integers(-4, 2),
        st.integers(2, 6),
        st.booleans(),
        st.sampled_from([8, 11, 12, 13]),
        st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.int64]),
    )
    def check(shape: list[int], low: int, high: int, first: bool, opset: int, dtype: Any) -> None:
        b = Builder(dtype, opset=opset if dtype not in (np.int32, np.int64) else max(opset, 12))
        x = b.input("x", shape)
        small, large = b.constant(low, dtype), b.constant(high, dtype)
        y = b.node("Max", b.node("Min", x, large), small) if first else b.node("Min", large, b.node("Max", x, small))
        if dtype == np.float64 and b.opset < 12:
            assert_stays(RULES, b.model(y), "Clip is computed in single precision")
            return
        found = assert_fuses(RULES, b.model(y), tolerance=0, Clip=1)
        if b.opset < 11:
            assert attributes(found.graph.node[0]) == {"min": low, "max": high}
            return
        held = [constants(found)[n] for n in found.graph.node[0].input[1:]]
        assert [(int(v), v.shape) for v in held] == [(low, ()), (high, ())]

    check()


@declines("fuse_min_max")
@pytest.mark.parametrize(
    ("inner", "outer", "reason"),
    [
        (-1.0, 1.0, "the wrong way round"),
        (np.nan, 1.0, "is NaN"),
        ([1.0, 2.0, 3.0], 0.0, "is not one number"),
        ([[[1.0]]], 0.0, "not known to have the same rank"),
    ],
)
def test_other_bounds_stay(inner: Any, outer: float, reason: str) -> None:
    b = Builder()
    y = b.node("Max", b.node("Min", b.input("x", [2, 3]), b.constant(inner)), b.constant(outer))
    assert_stays(RULES, b.model(y, rank=max(2, np.ndim(inner))), reason)


def test_two_of_a_kind_stay() -> None:
    b = Builder()
    y = b.node("Max", b.node("Max", b.input("x", [3]), b.constant(0.0)), b.constant(1.0))
    assert_stays(RULES, b.model(y))


def test_a_relu_after_clip_may_change_the_sign_of_zero() -> None:
    assert clip.fuse_relu_after_clip.exactness.value == "rounding"
