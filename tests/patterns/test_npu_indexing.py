"""Reads and writes at constant places, depth and space, triangles."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import defs

from surgeon_passes.patterns import npu_indexing as family

from .covering import declines, property_of
from .harness import apply, constants
from .npu import assert_declines, assert_decomposes, one_node

DTYPES = st.sampled_from([np.float32, np.float16, np.float64, np.int64])
SEEDS = st.integers(0, 99)


def array(seed: int, shape: Any, dtype: Any) -> Any:
    return np.asarray(np.random.default_rng(seed).integers(-9, 9, shape)).astype(dtype)


@property_of("decompose_gather_nd")
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data(), DTYPES, SEEDS)
@settings(max_examples=40, deadline=None)
def test_decompose_gather_nd_at_any_places(shape: list[int], data: st.DataObject, dtype: Any, seed: int) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    lead = data.draw(st.lists(st.integers(1, 3), max_size=2))
    rng = np.random.default_rng(seed)
    places = np.stack([rng.integers(-n, n, lead) for n in shape[:depth]], axis=-1).astype(np.int64)
    feeds = {"x": array(seed, shape, dtype), "k": places}
    assert_decomposes(family.decompose_gather_nd, "GatherND", feeds, 13, exact=True)


def test_decompose_gather_nd_of_an_open_first_size() -> None:
    feeds = {"x": array(0, [5, 3, 4], np.float32), "k": np.array([[0, 1], [4, 2]])}
    assert assert_decomposes(family.decompose_gather_nd, "GatherND", feeds, 13, {"x": ["N", 3, 4]}, exact=True)


@declines("decompose_gather_nd")
@pytest.mark.parametrize(
    ("places", "dims", "attrs", "says"),
    [
        ([[0], [1], [0], [1], [1]], [5, 3, 4], {"batch_dims": 1}, "batch_dims is not 0"),
        ([[0, 1]], ["N", "M", 4], {}, "behind the first are unknown"),
        ([[-1, 1]], ["N", 3, 4], {}, "counts from the end of an axis whose size is unknown"),
        ([[0, 3]], [5, 3, 4], {}, "lies outside of axis 1"),
        ([[0, 1]], [5, 3, 0], {}, "'x' is empty"),
    ],
)
def test_decompose_gather_nd_declines(places: Any, dims: Any, attrs: dict[str, int], says: str) -> None:
    feeds = {"x": array(0, [5, 3, 4], np.float32), "k": np.array(places)}
    assert_declines(family.decompose_gather_nd, says, "GatherND", feeds, 13, {"x": dims}, **attrs)


def box(starts: list[int], sizes: list[int]) -> Any:
    ranges = [range(a, a + n) for a, n in zip(starts, sizes, strict=True)]
    return np.array(list(product(*ranges)), np.int64).reshape([*sizes, len(sizes)])


@property_of("decompose_scatter_nd")
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data(), DTYPES, st.booleans(), SEEDS)
@settings(max_examples=40, deadline=None)
def test_decompose_scatter_nd_of_any_stretch(
    shape: list[int], data: st.DataObject, dtype: Any, negative: bool, seed: int
) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    axis = data.draw(st.integers(0, depth - 1))
    starts, sizes = [0] * depth, shape[:depth]
    starts[axis] = data.draw(st.integers(0, shape[axis] - 1))
    sizes[axis] = data.draw(st.integers(1, shape[axis] - starts[axis]))
    places = box(starts, sizes)
    places = places - np.array(shape[:depth]) if negative else places
    feeds = {"x": array(seed, shape, dtype), "k": places, "u": array(seed + 1, [*sizes, *shape[depth:]], dtype)}
    assert_decomposes(family.decompose_scatter_nd, "ScatterND", feeds, 16, exact=True)


@pytest.mark.parametrize(
    ("starts", "sizes", "left"),
    [
        ([0, 0], [4, 3], {"Identity": 1}),
        ([0, 0], [2, 3], {"Slice": 1, "Concat": 1}),
        ([2, 0], [2, 3], {"Slice": 1, "Concat": 1}),
        ([1, 0], [2, 3], {"Slice": 2, "Concat": 1}),
    ],
)
def test_decompose_scatter_nd_takes_no_more_than_it_needs(
    starts: list[int], sizes: list[int], left: dict[str, int]
) -> None:
    feeds = {"x": array(0, [4, 3, 2], np.float32), "k": box(starts, sizes), "u": array(1, [*sizes, 2], np.float32)}
    assert assert_decomposes(family.decompose_scatter_nd, "ScatterND", feeds, 16, exact=True).ops == left


@declines("decompose_scatter_nd")
@pytest.mark.parametrize(
    ("places", "dims", "attrs", "says"),
    [
        (box([1, 1], [2, 2]), [4, 3, 2], {}, "whole neither along axis 0 nor along axis 1"),
        (np.array([[0], [2]]), [4, 3, 2], {}, "no box of the first axes, in order"),
        (np.array([[1], [0]]), [4, 3, 2], {}, "no box of the first axes, in order"),
        (np.array([0, 1]), [4, 3, 2], {}, "no box of the first axes"),
        (np.array([[3], [4]]), [4, 3, 2], {}, "no box of the first axes, in order"),
        (np.array([[0], [1]]), ["N", 3, 2], {}, "that the places index are unknown"),
    ],
)
def test_decompose_scatter_nd_declines(places: Any, dims: Any, attrs: dict[str, Any], says: str) -> None:
    updates = array(1, [*places.shape[:-1], *[4, 3, 2][places.shape[-1] :]], np.float32)
    feeds = {"x": array(0, [4, 3, 2], np.float32), "k": places, "u": updates}
    assert_declines(family.decompose_scatter_nd, says, "ScatterND", feeds, 16, {"x": dims}, **attrs)


def test_decompose_scatter_nd_leaves_sums() -> None:
    feeds = {"x": array(0, [4, 3], np.float32), "k": np.array([[0], [1]]), "u": array(1, [2, 3], np.float32)}
    assert_declines(family.decompose_scatter_nd, "", "ScatterND", feeds, 16, reduction="add")


@property_of("decompose_depth_to_space")
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["DCR", "CRD"]))
@settings(max_examples=25, deadline=None)
def test_decompose_depth_to_space_of_any_size(b: int, c: int, h: int, w: int, mode: str) -> None:
    x = array(0, [2, c * b * b, h, w], np.float32)
    rule = family.decompose_depth_to_space
    assert_decomposes(rule, "DepthToSpace", {"x": x}, 13, {"x": ["N", *x.shape[1:]]}, True, blocksize=b, mode=mode)


@property_of("decompose_space_to_depth")
@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.sampled_from([None, "DCR", "CRD"])
)
@settings(max_examples=25, deadline=None)
def test_decompose_space_to_depth_of_any_size(b: int, c: int, h: int, w: int, mode: str | None) -> None:
    """Opset 28 has the mode; ONNX Runtime takes it for DepthToSpace only, so that the reference says what is right."""
    x = array(0, [2, c, h * b, w * b], np.float32)
    rule = family.decompose_space_to_depth
    opset, attrs = (13, {}) if mode is None or defs.onnx_opset_version() < 28 else (28, {"mode": mode})
    assert_decomposes(rule, "SpaceToDepth", {"x": x}, opset, {"x": ["N", *x.shape[1:]]}, True, blocksize=b, **attrs)


@declines("decompose_depth_to_space", "decompose_space_to_depth")
def test_decompose_depth_to_space_and_back_decline_open_sizes() -> None:
    feeds, dims = {"x": array(0, [1, 4, 4, 4], np.float32)}, {"x": [1, 4, "H", 4]}
    says = "behind the first are unknown"
    assert_declines(family.decompose_depth_to_space, says, "DepthToSpace", feeds, 13, dims, blocksize=2)
    assert_declines(family.decompose_space_to_depth, says, "SpaceToDepth", feeds, 13, dims, blocksize=2)


@declines("decompose_depth_to_space", "decompose_space_to_depth")
def test_images_without_elements_stay() -> None:
    feeds, dims = {"x": np.zeros([1, 4, 0, 4], np.float32)}, {"x": ["N", 4, 0, 4]}
    for rule, op in (
        (family.decompose_depth_to_space, "DepthToSpace"),
        (family.decompose_space_to_depth, "SpaceToDepth"),
    ):
        assert_declines(rule, "has no elements", op, feeds, 13, dims, blocksize=2)


@property_of("decompose_trilu")
@given(st.integers(1, 5), st.integers(1, 5), st.integers(-6, 6), st.booleans(), st.booleans(), DTYPES)
@settings(max_examples=30, deadline=None)
def test_decompose_trilu_of_any_size(h: int, w: int, k: int, given_k: bool, upper: bool, dtype: Any) -> None:
    feeds = {"x": array(0, [2, h, w], dtype)} | ({"k": np.int64(k)} if given_k else {})
    if dtype != np.int64:
        feeds["x"][0, 0, 0] = np.nan
    assert_decomposes(family.decompose_trilu, "Trilu", feeds, 14, {"x": ["N", h, w]}, True, upper=int(upper))


@declines("decompose_trilu")
def test_decompose_trilu_declines() -> None:
    feeds = {"x": np.ones((2, 3), np.float32)}
    assert_declines(family.decompose_trilu, "last two sizes of 'x' are unknown", "Trilu", feeds, 14, {"x": [2, "W"]})
    large = {"x": np.ones((1025, 1025), np.float32)}
    assert_declines(family.decompose_trilu, "the mask would have 1050625 elements", "Trilu", large, 14)
    for dtype in (np.bool_, np.int8):
        feeds = {"x": np.ones((2, 3), dtype)}
        assert_declines(family.decompose_trilu, "of a type that Where may not take", "Trilu", feeds, 14)


@pytest.mark.parametrize("k", [-(2**63), 2**63 - 1])
def test_decompose_trilu_of_a_diagonal_far_out(k: int) -> None:
    result = apply(family.decompose_trilu, one_node("Trilu", {"x": np.ones((2, 3), np.float32), "k": np.int64(k)}, 14))
    assert result.ops == {"Where": 1}
    mask = constants(result.model)
    assert any(value.dtype == np.bool_ and value.all() == (k < 0) for value in mask.values())


@declines("decompose_gather_nd")
def test_decompose_gather_nd_declines_an_index_of_nothing() -> None:
    feeds = {"x": np.ones((2, 3), np.float32), "places": np.zeros((2, 0), np.int64)}
    model = one_node("GatherND", {"x": feeds["x"], "k": np.zeros((2, 1), np.int64)}, 13)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(feeds["places"], "k"))
    result = apply(family.decompose_gather_nd, model)
    assert not result.applied and any("names no axis" in r for r in result.reasons), result.reasons
