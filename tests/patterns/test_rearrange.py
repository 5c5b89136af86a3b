"""Blocks of pixels and channels that trade places."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes.patterns import rearrange
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .fusing import assert_fuses, assert_stays, attributes
from .harness import Builder, apply, assert_equal, assert_equal_to_rounding, operators, run

RULES = list(rules_of(rearrange))
FLOATS = st.sampled_from([np.float32, np.float16, np.float64])
OPSETS = st.sampled_from([11, 13, 17, 21])
FAR = 2**63 - 1


def views(b: Builder, x: str, apart: list[int], perm: list[int], whole: list[int]) -> str:
    r = b.node("Reshape", x, b.constant(apart))
    return str(b.node("Reshape", b.node("Transpose", r, perm=perm), b.constant(whole)))


@property_of("fuse_depth_to_space")
def test_depth_to_space() -> None:
    @settings(max_examples=30, deadline=None)
    @given(*[st.integers(1, 4)] * 4, st.integers(2, 3), st.booleans(), FLOATS, OPSETS)
    def check(
        batch: int, channels: int, height: int, width: int, block: int, dcr: bool, dtype: Any, opset: int
    ) -> None:
        b = Builder(dtype, opset=opset)
        x = b.input("x", [batch, channels * block * block, height, width])
        blocks = [block, block, channels] if dcr else [channels, block, block]
        perm = [0, 3, 4, 1, 5, 2] if dcr else [0, 1, 4, 2, 5, 3]
        whole = [batch, channels, height * block, width * block]
        found = assert_fuses(
            RULES, b.model(views(b, x, [batch, *blocks, height, width], perm, whole)), tolerance=0, DepthToSpace=1
        )
        assert attributes(found.graph.node[0]) == {"blocksize": block, "mode": b"DCR" if dcr else b"CRD"}

    check()


def test_depth_to_space_of_a_dynamic_batch() -> None:
    b = Builder()
    x = b.input("x", ["N", 8, 3, 5])
    y = views(b, x, [-1, 2, 2, 2, 3, 5], [0, 1, 4, 2, 5, 3], [0, 2, 6, 10])
    assert_fuses(RULES, b.model(y), tolerance=0, DepthToSpace=1)


@declines("fuse_depth_to_space")
@pytest.mark.parametrize(
    ("apart", "whole", "reason"),
    [
        ([1, 2, 2, 4, 2, 2], [1, 2, 4, 8], "blocks of 2 rows and 4 columns"),
        ([1, 4, 2, 2, 2, 2], [1, 4, 2, 8], "not certainly the sizes of a DepthToSpace"),
        ([4, 1, 2, 2, 2, 2], [4, 1, 4, 4], "not certainly the sizes of a DepthToSpace"),
    ],
)
def test_other_views_stay(apart: list[int], whole: list[int], reason: str) -> None:
    b = Builder()
    y = views(b, b.input("x", [1, 16, 2, 2]), apart, [0, 1, 4, 2, 5, 3], whole)
    assert_stays(RULES, b.model(y), reason)


SIZES = st.tuples(*[st.integers(1, 3)] * 4)
"""Batch, channels, and blocks downwards and across."""


def cut(b: Builder, sizes: tuple[int, ...], block: int, unshuffle: bool) -> str:
    batch, channels, height, width = sizes
    x = b.input("x", [batch, channels, height * block, width * block])
    perm = [0, 1, 3, 5, 2, 4] if unshuffle else [0, 3, 5, 1, 2, 4]
    whole = [batch, channels * block * block, height, width]
    return views(b, x, [batch, channels, height, block, width, block], perm, whole)


@property_of("fuse_space_to_depth")
def test_space_to_depth() -> None:
    @settings(max_examples=30, deadline=None)
    @given(SIZES, st.integers(2, 3), st.booleans(), FLOATS, OPSETS)
    def check(sizes: tuple[int, ...], block: int, unshuffle: bool, dtype: Any, opset: int) -> None:
        b = Builder(dtype, opset=opset)
        model = b.model(cut(b, sizes, block, unshuffle))
        if unshuffle and sizes[1] > 1:
            assert_stays(RULES, model, "the channels come before the blocks")
        else:
            assert_fuses(RULES, model, tolerance=0, SpaceToDepth=1)

    check()


@property_of("fuse_pixel_unshuffle_into_conv")
def test_pixel_unshuffle_before_a_conv() -> None:
    @settings(max_examples=20, deadline=None)
    @given(SIZES, st.integers(2, 3), st.sampled_from([np.float32, np.float16]), OPSETS)
    def check(sizes: tuple[int, ...], block: int, dtype: Any, opset: int) -> None:
        b = Builder(dtype, opset=opset)
        y = b.conv(cut(b, sizes, block, True), sizes[1] * block * block, 2, [1, 1], bias=True)
        assert_fuses(RULES, b.model(y), tolerance=2e-5 if dtype == np.float32 else 4e-3, SpaceToDepth=1, Conv=1)

    check()


@declines("fuse_space_to_depth", "fuse_pixel_unshuffle_into_conv")
def test_other_cuts_stay() -> None:
    for conv in (True, False):
        b = Builder()
        y = views(b, b.input("x", [1, 2, 4, 8]), [1, 2, 2, 2, 2, 4], [0, 1, 3, 5, 2, 4], [1, 16, 2, 2])
        y = b.conv(y, 16, 2, [1, 1]) if conv else y
        assert_stays(RULES, b.model(y), "blocks of 2 rows and 4 columns")
        b = Builder()
        y = views(b, b.input("x", [1, 2, 4, 4]), [1, 2, 2, 2, 2, 2], [0, 1, 3, 5, 2, 4], [1, 4, 4, 2])
        y = b.conv(y, 4, 2, [1, 1]) if conv else y
        assert_stays(RULES, b.model(y), "not certainly the sizes of a SpaceToDepth")


def test_pixel_unshuffle_of_unknown_channels_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", "C", 4, 4])
    first = b.node("Shape", x, start=0, end=1)
    channels = b.node("Shape", x, start=1, end=2)
    two = b.constant([2])
    apart = b.node("Concat", first, channels, two, two, two, two, axis=0)
    whole = b.node("Concat", first, b.node("Mul", channels, b.constant([4])), two, two, axis=0)
    t = b.node("Transpose", b.node("Reshape", x, apart), perm=[0, 1, 3, 5, 2, 4])
    y = b.conv(b.node("Reshape", t, whole), 8, 3, [1, 1])
    assert_stays(RULES, b.model(y), "the number of channels of 'x' is not known")


def test_other_orders_and_ranks_stay() -> None:
    b = Builder()
    assert_stays(
        RULES, b.model(views(b, b.input("x", [1, 4, 2, 2]), [1, 2, 2, 1, 2, 2], [0, 5, 4, 3, 2, 1], [1, 1, 4, 4]))
    )
    b = Builder()
    y = views(b, b.input("x", [1, 8, 4]), [1, 2, 2, 2, 2, 2], [0, 1, 4, 2, 5, 3], [1, 2, 4, 4])
    assert_stays(RULES, b.model(y, rank=4))


def test_integers_stay() -> None:
    b = Builder(np.int32)
    y = views(b, b.input("x", [1, 1, 4, 4]), [1, 1, 2, 2, 2, 2], [0, 3, 5, 1, 2, 4], [1, 4, 2, 2])
    assert_stays(RULES, b.model(y), "not known to hold floats")


# --- slices --------------------------------------------------------------------------------------------------------------


def part(b: Builder, x: str, row: int, column: int, form: str, end: int = FAR, step: int = 2) -> str:
    if form == "one":
        both = [b.constant(v) for v in ([row, column], [end, end], [2, -1], [step, step])]
        return str(b.node("Slice", x, *both))
    for axis, start in ((2, row), (3, column)):
        x = b.node("Slice", x, *(b.constant([v]) for v in (start, end, axis, step)))
    return x


PLACES = [(0, 0), (0, 1), (1, 0), (1, 1)]


@property_of("fuse_strided_slices_into_conv")
def test_focus() -> None:
    orders = list(permutations(range(4)))

    @settings(max_examples=20, deadline=None)
    @given(
        st.tuples(*[st.integers(1, 3)] * 4), st.sampled_from(orders), st.sampled_from(["one", "two"]), FLOATS, OPSETS
    )
    def check(conv: bool, sizes: tuple[int, ...], order: tuple[int, ...], form: str, dtype: Any, opset: int) -> None:
        batch, channels, height, width = sizes
        b = Builder(np.float32 if conv else dtype, opset=opset)
        x = b.input("x", [batch, channels, 2 * height, 2 * width])
        y = b.node("Concat", *(part(b, x, *PLACES[k], form) for k in order), axis=1)
        y = b.conv(y, 4 * channels, 2, [3, 3], pads=[1] * 4) if conv else y
        if not conv and list(order) != [0, 1, 2, 3]:
            assert_stays(RULES, b.model(y), "the quarters stand in the order")
            return
        if not conv:
            assert_fuses(RULES, b.model(y), tolerance=0, SpaceToDepth=1)
            return
        model = b.model(y)
        result = apply(RULES, model)
        assert result.ops == {"SpaceToDepth": 1, "Conv": 1}, result.reasons
        assert_equal_to_rounding(model, result.model, [{}])

    check(True)
    check(False)


@property_of("fuse_strided_slices")
@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.integers(1, 3)] * 4), st.sampled_from(["one", "two"]), FLOATS, OPSETS)
def test_quarters_row_by_row(sizes: tuple[int, ...], form: str, dtype: Any, opset: int) -> None:
    b = Builder(dtype, opset=opset)
    x = b.input("x", [*sizes[:2], 2 * sizes[2], 2 * sizes[3]])
    y = b.node("Concat", *(part(b, x, *place, form) for place in PLACES), axis=1)
    assert_fuses([rearrange.fuse_strided_slices], b.model(y), tolerance=0, SpaceToDepth=1)


@declines("fuse_strided_slices_into_conv", "fuse_strided_slices")
@pytest.mark.parametrize(
    ("places", "options", "reason"),
    [
        ([(0, 0)] * 4, {}, "the Slices take the places [0, 0, 0, 0]"),
        (PLACES, {"end": 4}, "is no half of it"),
        (PLACES, {"step": 3}, "is no half of it"),
    ],
)
def test_other_slices_stay(places: list[tuple[int, int]], options: dict[str, int], reason: str) -> None:
    for conv in (True, False):
        b = Builder()
        x = b.input("x", [1, 2, 6, 6])
        y = b.node("Concat", *(part(b, x, *place, "one", **options) for place in places), axis=1)
        assert_stays(RULES, b.model(b.conv(y, 8, 2, [1, 1]) if conv else y), reason)


def test_slices_along_one_axis_stay() -> None:
    b = Builder()
    x = b.input("x", [1, 1, 6, 6])
    parts = [b.node("Slice", x, *(b.constant([v]) for v in (row, FAR, 2, 2))) for row in (0, 1, 0, 1)]
    assert_stays(RULES, b.model(b.node("Concat", *parts, axis=1)), "does not step along rows and columns")
    b = Builder()
    x = b.input("x", [1, 1, 6, 6, 2])
    y = b.node("Concat", *(part(b, x, *place, "two") for place in PLACES), axis=1)
    assert_stays(RULES, b.model(y), "'x' is not known to be of rank 4")


def test_focus_whose_rows_are_shared() -> None:
    """x[..., ::2, :] is taken twice, and shared once equal nodes are one."""
    b = Builder()
    x = b.input("x", ["N", 3, 8, 8])
    y = b.node("Concat", *(part(b, x, *PLACES[k], "two") for k in (0, 2, 1, 3)), axis=1)
    model = b.model(b.conv(y, 12, 4, [3, 3]))
    result = sp.optimize(model)
    assert operators(result.proto) == {"SpaceToDepth": 1, "Conv": 1}
    assert_equal(model, result.proto)


@pytest.mark.parametrize("size", ["H", 5, 1])
def test_slices_of_an_odd_size_stay(size: Any) -> None:
    """A single row passes ONNX Runtime's Concat, which takes empty operands of any shape, but not SpaceToDepth."""
    b = Builder()
    x = b.input("x", ["N", 1, size, 6])
    y = b.node("Concat", *(part(b, x, *place, "one") for place in PLACES), axis=1)
    model = b.model(y)
    assert_stays(RULES, model, "has not certainly an even number")
    if size == "H":
        assert run(model, {"x": np.ones((1, 1, 1, 6), np.float32)})[y].shape == (1, 4, 1, 3)
