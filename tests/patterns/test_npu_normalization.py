"""Normalizations as plain operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import npu_normalization as family

from .covering import declines, property_of
from .harness import apply
from .npu import assert_declines, assert_decomposes, one_node, run_anywhere

DTYPES = st.sampled_from([np.float32, np.float64])
HALF = "of half precision"


def array(rng: np.random.Generator, shape: Any, dtype: Any) -> Any:
    return np.asarray(rng.standard_normal(shape) + 0.3).astype(dtype)


@property_of("decompose_layer_normalization")
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data(), DTYPES, st.booleans(), st.booleans(), st.booleans()
)
@settings(max_examples=30, deadline=None)
def test_decompose_layer_normalization_of_any_shape(
    shape: list[int], data: st.DataObject, dtype: Any, biased: bool, negative: bool, open_dims: bool
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    feeds = {"x": array(rng, shape, dtype), "s": array(rng, shape[axis:], dtype)}
    if biased:
        feeds["b"] = array(rng, shape[axis:], dtype)
    dims = {"x": [f"d{i}" for i in range(len(shape))]} if open_dims else None
    axis -= len(shape) if negative else 0
    rule = family.decompose_layer_normalization
    assert_decomposes(rule, "LayerNormalization", feeds, 17, dims, axis=axis, epsilon=1e-3)


@property_of("decompose_rms_normalization")
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data(), DTYPES)
@settings(max_examples=20, deadline=None)
def test_decompose_rms_normalization_of_any_shape(shape: list[int], data: st.DataObject, dtype: Any) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    feeds = {"x": array(rng, shape, dtype), "s": array(rng, shape[axis:], dtype)}
    assert_decomposes(family.decompose_rms_normalization, "RMSNormalization", feeds, 23, axis=axis, epsilon=1e-3)


@property_of("decompose_group_normalization")
@given(st.integers(1, 3), st.integers(1, 3), st.lists(st.integers(1, 4), min_size=1, max_size=3), DTYPES, st.booleans())
@settings(max_examples=25, deadline=None)
def test_decompose_group_normalization_of_any_shape(
    groups: int, members: int, spatial: list[int], dtype: Any, open_dims: bool
) -> None:
    rng = np.random.default_rng(groups)
    channels = groups * members
    feeds = {"x": array(rng, [2, channels, *spatial], dtype)}
    feeds |= {name: array(rng, [channels], dtype) for name in ("s", "b")}
    dims = {"x": ["N", channels, "W", *spatial[1:]]} if open_dims else None
    stash = {"stash_type": 11} if dtype == np.float64 else {}
    model = one_node("GroupNormalization", feeds, 21, dims, num_groups=groups, epsilon=1e-3, **stash)
    result = apply(family.decompose_group_normalization, model)
    assert result.applied and "GroupNormalization" not in result.ops
    grouped = feeds["x"].astype(np.float64).reshape(2, groups, -1)
    mean, variance = grouped.mean(-1, keepdims=True), grouped.var(-1, keepdims=True)
    expected = ((grouped - mean) / np.sqrt(variance + float(np.float32(1e-3)))).reshape(feeds["x"].shape)
    scale, bias = (feeds[n].astype(np.float64).reshape(1, channels, *[1] * len(spatial)) for n in ("s", "b"))
    tolerance = 1e-10 if dtype == np.float64 else 1e-5  # in double, more than ONNX Runtime's own kernel holds
    np.testing.assert_allclose(run_anywhere(result.model, feeds), expected * scale + bias, tolerance, tolerance)


@property_of("decompose_lp_normalization")
@given(st.integers(-3, 2), st.sampled_from([1, 2]), DTYPES, st.booleans(), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_decompose_lp_normalization_of_any_axis(axis: int, p: int, dtype: Any, zeros: bool, seed: int) -> None:
    x = array(np.random.default_rng(seed), [3, 4, 2], dtype)
    if zeros:
        x[1] = 0
    assert_decomposes(family.decompose_lp_normalization, "LpNormalization", {"x": x}, 17, axis=axis, p=p)


@declines("decompose_layer_normalization", "decompose_rms_normalization", "decompose_lp_normalization")
def test_half_precision_stays() -> None:
    feeds = {"x": np.ones((2, 4, 3, 4), np.float16)}
    scaled = {**feeds, "s": np.ones(4, np.float16)}
    assert_declines(family.decompose_layer_normalization, HALF, "LayerNormalization", scaled, 17)
    assert_declines(family.decompose_rms_normalization, HALF, "RMSNormalization", scaled, 23)
    assert_declines(family.decompose_lp_normalization, HALF, "LpNormalization", feeds, 22)


@declines("decompose_group_normalization")
def test_decompose_group_normalization_declines() -> None:
    rule, op = family.decompose_group_normalization, "GroupNormalization"
    feeds = {"x": np.ones((2, 4, 3, 5), np.float32), "s": np.ones(4, np.float32), "b": np.ones(4, np.float32)}
    half = {name: value.astype(np.float16) for name, value in feeds.items()}
    assert_declines(rule, HALF, op, half, 21, num_groups=2)
    double = {name: value.astype(np.float64) for name, value in feeds.items()}
    assert_declines(rule, "in single precision", op, double, 21, num_groups=2)
    assert_declines(rule, "more than one size", op, feeds, 21, {"x": ["N", 4, "H", "W"]}, num_groups=2)
    assert_declines(rule, "the channels of 'x' are unknown", op, feeds, 21, {"x": ["N", "C", 3, 5]}, num_groups=2)


def test_decompose_layer_normalization_declines_where_the_statistics_are_used() -> None:
    import onnx

    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[2,4] x, float[4] s) => (float[2,4] y, float[2,1] m) { y, m = LayerNormalization(x, s) }
    """)
    result = apply(family.decompose_layer_normalization, model)
    assert result.ops["LayerNormalization"] == 1
