"""Normalizations over groups, chosen axes and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import channel_normalization
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes, unranked
from .harness import Builder, apply, run

RULES = list(rules_of(channel_normalization))


def group_norm(b: Builder, x: str, groups: int, whole: list[int], *, affine: bool = False) -> str:
    ones, zeros = np.ones(groups), np.zeros(groups)
    if affine:
        ones, zeros = b.rng.standard_normal((2, groups))
    r = b.node("Reshape", x, b.constant([0, groups, -1]))
    n = b.node("InstanceNormalization", r, b.constant(ones), b.constant(zeros), epsilon=1e-3)
    return str(b.node("Reshape", n, b.constant(whole)))


@property_of("fuse_group_normalization", "fold_constant_into_group_normalization")
def test_group_normalization() -> None:
    @settings(max_examples=40, deadline=None)
    @given(
        st.integers(1, 3),
        st.integers(1, 3),
        st.lists(st.integers(2, 4), min_size=1, max_size=3),
        st.booleans(),
        st.sampled_from([np.float32, np.float16]),
    )
    def check(groups: int, times: int, spatial: list[int], affine: bool, dtype: Any) -> None:
        channels = groups * times
        b = Builder(dtype, opset=21)
        x = b.input("x", ["N", channels, *spatial])
        n = group_norm(b, x, groups, [0, channels, *spatial], affine=affine)
        ones = [1] * len(spatial)
        y = b.node("Add", b.node("Mul", n, b.random(channels, *ones)), b.random(channels, *ones))
        found = assert_fuses(RULES, b.model(y), tolerance=2e-5 if dtype == np.float32 else 8e-3, GroupNormalization=1)
        assert attributes(found.graph.node[0]) == {"num_groups": groups, "epsilon": pytest.approx(1e-3)}

    check()


@declines("fuse_group_normalization", "fold_constant_into_group_normalization")
def test_other_groups_stay() -> None:
    b = Builder(opset=21)
    x = b.input("x", [2, 4, 3])
    r = b.node("Reshape", x, b.constant([1, 4, -1]))
    n = b.node("InstanceNormalization", r, b.constant(np.ones(4)), b.constant(np.zeros(4)))
    assert_stays(RULES, b.model(b.node("Reshape", n, b.constant([2, 4, 3]))), "does not certainly keep the batch")
    b = Builder(np.float64, opset=21)
    assert_stays(RULES, b.model(group_norm(b, b.input("x", [2, 4, 3]), 2, [0, 4, 3])), "in single precision")
    b = Builder(opset=21)
    r = b.node("Reshape", b.input("x", [2, 4]), b.constant([0, 2, 2]))
    n = b.node("InstanceNormalization", r, b.constant(np.ones(2)), b.constant(np.zeros(2)))
    model = b.model(b.node("Reshape", n, b.constant([2, 4])))
    assert_stays(RULES, model, "is not known to have spatial axes")
    b = Builder(opset=21)
    x = b.input("x", [2, "C", 3])
    r = b.node("Reshape", x, b.constant([0, 2, -1]))
    n = b.node("InstanceNormalization", r, b.constant(np.ones(2)), b.constant(np.zeros(2)))
    assert_stays(RULES, b.model(b.node("Reshape", n, b.node("Shape", x))), "channels, 2 groups")
    b = Builder(opset=21)
    assert_stays(RULES, b.model(group_norm(b, b.input("x", [2, 2, 1]), 2, [0, 2, 1])), "its groups hold one element")
    b = Builder(opset=21)
    n = b.node("GroupNormalization", b.input("x", [2, 4, 4]), b.random(4), b.random(4), num_groups=2)
    assert_stays(RULES, b.model(b.node("Mul", n, b.random(4))), "is not one number a channel")
    b = Builder(opset=21)
    n = b.node("GroupNormalization", unranked(b), b.random(4), b.random(4), num_groups=2)
    assert_stays(RULES, b.model(b.node("Mul", n, b.constant(2.0)), rank=3), "the rank of 'reshape0' is unknown")


def test_group_normalization_below_its_opset_stays() -> None:
    b = Builder(opset=20)
    assert_stays(RULES, b.model(group_norm(b, b.input("x", [2, 4, 3]), 2, [0, 4, 3])))


def test_instance_normalization_alone_stays() -> None:
    b = Builder(opset=21)
    n = b.node("InstanceNormalization", b.input("x", [2, 4, 3]), b.random(4), b.random(4))
    assert_stays(RULES, b.model(b.node("Mul", n, b.constant(2.0))))


def mean(b: Builder, x: str, axes: list[int]) -> str:
    if b.opset < 18:
        return str(b.node("ReduceMean", x, axes=axes))
    return str(b.node("ReduceMean", x, b.constant(axes, np.int64)))


def mean_variance(b: Builder, x: str, axes: list[int], epsilon: float | None = None) -> str:
    d = b.node("Sub", x, mean(b, x, axes))
    s = b.node("Sqrt", mean(b, b.node("Mul", d, d), axes))
    return str(b.node("Div", d, s if epsilon is None else b.node("Add", s, b.constant(epsilon))))


@property_of("fuse_mean_variance_normalization")
def test_mean_variance_normalization() -> None:
    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.integers(2, 4), min_size=2, max_size=4), st.data(), st.sampled_from([9, 13, 18, 22]))
    def check(shape: list[int], data: st.DataObject, opset: int) -> None:
        axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
        b = Builder(opset=opset)
        model = b.model(mean_variance(b, b.input("x", shape), axes))
        found = assert_fuses(RULES, model, tolerance=2e-4, MeanVarianceNormalization=1)
        assert attributes(found.graph.node[0])["axes"] == sorted(axes)

    check()


@declines("fuse_mean_variance_normalization")
def test_mean_variance_normalization_of_other_types_stays() -> None:
    for dtype in (np.float16, np.float64):
        b = Builder(dtype, opset=13)
        assert_stays(RULES, b.model(mean_variance(b, b.input("x", [3, 4]), [1])), "not known to be float32")
    b = Builder(opset=13)
    assert_stays(RULES, b.model(mean_variance(b, unranked(b), [1]), rank=2), "the rank of 'reshape0' is unknown")
    b = Builder(opset=18)
    assert_stays(RULES, b.model(mean_variance(b, b.input("x", [3, 4]), [])), "it names no axes")


def test_an_epsilon_stays() -> None:
    """ONNX Runtime's MeanVarianceNormalization has none: of what is constant it makes NaN."""
    b = Builder(opset=13)
    assert_stays(RULES, b.model(mean_variance(b, b.input("x", [3, 4]), [1], 1e-9)))
    b = Builder(opset=13)
    operator = b.model(b.node("MeanVarianceNormalization", b.input("x", [1, 4]), axes=[1]))
    assert np.isnan(run(operator, {"x": np.ones((1, 4), np.float32)}).popitem()[1]).all()


def lp(b: Builder, x: str, op: str, axes: list[int], least: float | None, bound: str = "Clip") -> str:
    r = b.node(op, x, b.constant(axes))
    return str(b.node("Div", x, r if least is None else b.node(bound, r, b.constant(least))))


@property_of("fuse_lp_normalization")
def test_lp_normalization() -> None:
    @settings(max_examples=30, deadline=None)
    @given(
        st.lists(st.integers(1, 4), min_size=1, max_size=4),
        st.data(),
        st.sampled_from(["ReduceL1", "ReduceL2"]),
        st.sampled_from(["Clip", "Max"]),
        st.sampled_from([np.float32, np.float64]),
    )
    def check(shape: list[int], data: st.DataObject, op: str, bound: str, dtype: Any) -> None:
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
        b = Builder(dtype, opset=22)
        model = b.model(lp(b, b.input("x", shape), op, [axis], 1e-12, bound))
        found = assert_fuses(RULES, model, approximate=True, LpNormalization=1)
        assert attributes(found.graph.node[0]) == {"axis": axis % len(shape), "p": int(op[-1])}

    check()


@declines("fuse_lp_normalization")
@pytest.mark.parametrize(
    ("axes", "least", "reason"), [([0, 1], 1e-12, "over the axes [0, 1]"), ([1], 1e-3, "at least 0.001")]
)
def test_other_norms_stay(axes: list[int], least: float, reason: str) -> None:
    b = Builder(opset=22)
    assert_stays(RULES, b.model(lp(b, b.input("x", [3, 4]), "ReduceL2", axes, least)), reason, approximate=True)


def test_lp_normalization_is_not_applied_unless_asked_for() -> None:
    b = Builder(opset=22)
    model = b.model(lp(b, b.input("x", [3, 4]), "ReduceL2", [1], 1e-12))
    rule = next(r for r in RULES if r.name == "fuse_lp_normalization")
    assert not apply(rule, model).applied and apply(rule, model, approximate=True).applied


def test_a_norm_without_a_bound_stays() -> None:
    """Zero over zero is NaN; LpNormalization gives zero."""
    b = Builder(opset=22)
    assert_stays(RULES, b.model(lp(b, b.input("x", [3, 4]), "ReduceL2", [1], None)), approximate=True)


@declines("fuse_mean_variance_normalization")
def test_mean_variance_normalization_of_a_raised_rank_stays() -> None:
    b = Builder(opset=13)
    x = b.input("x", ["N", 4])
    d = b.node("Sub", x, b.node("ReduceMean", x, axes=[0]))
    q = b.node("Pow", d, b.constant(np.full((1, 1, 1), 2.0)))
    y = b.node("Div", d, b.node("Sqrt", b.node("ReduceMean", q, axes=[0])))
    result = apply([channel_normalization.fuse_mean_variance_normalization], b.model(y, rank=3))
    assert not result.applied
