"""Expand and Tile: what enlarges nothing, computed targets, chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgeon_passes.patterns import expand

from .covering import declines, property_of
from .harness import Builder, constants
from .moves import DRAWN, FLOATS, SHAPES, after, assert_becomes, assert_stays
from .test_reshape import dims
from .test_transpose import unranked


@pytest.mark.parametrize("target", [[1], [9], [1, 9], [1, 1]])
def test_expand_to_the_same_shape(target: list[int]) -> None:
    b = Builder()
    assert_becomes(after(b, b.node("Expand", b.input("x", ["N", 9]), b.constant(target))), Neg=1)


def test_expand_to_the_shape_of_the_input() -> None:
    b = Builder()
    x = b.input("x", ["N", 9])
    assert_becomes(after(b, b.node("Expand", x, b.node("Shape", x))), Neg=1)


@pytest.mark.parametrize("target", [[2, 1], [1, 1, 1], [3, 1, 9]])
def test_other_expands_stay(target: list[int]) -> None:
    b = Builder()
    y = b.node("Expand", b.input("x", ["N", 9]), b.constant(target))
    assert_stays(after(b, y, rank=len(target)))


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_tile_once(rank: int) -> None:
    b = Builder()
    x = b.input("x", ["N", 4, 1][:rank])
    assert_becomes(after(b, b.node("Tile", x, b.constant(np.ones(rank, np.int64), np.int64)), rank), Neg=1)


@pytest.mark.parametrize("repeats", [[1, 2], [0, 1]])
def test_other_tiles_stay(repeats: list[int]) -> None:
    b = Builder()
    assert_stays(after(b, b.node("Tile", b.input("x", ["N", 4]), b.constant(repeats))))


# --- computed targets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "wanted", "expected"),
    [
        ([1, "H", 4], (2, [1], 4), [2, 1, 4]),
        (["H", 4], (2, 3, [0], 4), [2, 3, 1, 4]),
        ([1, "H"], (5, 1, [1]), [5, 1, 1]),
        (["H", 1], ([0], 6), [1, 6]),
    ],
)
def test_targets_that_are_the_inputs_own_dims(shape: Any, wanted: Any, expected: list[int]) -> None:
    b = Builder()
    x = b.input("x", shape)
    model = after(b, b.node("Expand", x, dims(b, x, *wanted)), len(wanted))
    found = assert_becomes(model, sizes=({"H": 3}, {"H": 1}, {"H": 0}), Expand=1, Neg=1)
    assert [v.tolist() for v in constants(found).values()] == [expected]


def test_a_target_of_another_tensor_stays_where_it_may_be_illegal() -> None:
    """The original fails where the other dim is neither 3 nor 1."""
    b = Builder()
    x, z = b.input("x", [3, 1]), b.input("z", ["N", 7])
    assert_stays(after(b, b.node("Expand", x, dims(b, z, [0], 2)), 2), "has no constant form")


@declines("make_expand_static")
@pytest.mark.parametrize(("shape", "wanted"), [([1, 4], ([0], 4)), (["M", 4], ([0], 4)), ([4], ([0], 4))])
def test_targets_that_enlarge_stay(shape: Any, wanted: Any) -> None:
    b = Builder()
    x, z = b.input("x", shape), b.input("z", ["N", 4])
    assert_stays(after(b, b.node("Expand", x, dims(b, z, *wanted)), 2), "has no constant form")


# --- chains --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([2, 1], [1, 1, 3], [1, 2, 3]),
        ([2, 3], [1], [2, 3]),
        ([5, 2, 3], [2, 1], [5, 2, 3]),
        ([1, 1], [4, 2, 3], [4, 2, 3]),
        ([0, 1], [1, 3], [0, 3]),
    ],
)
def test_constant_expands(first: list[int], second: list[int], expected: list[int]) -> None:
    b = Builder()
    e = b.node("Expand", b.input("x", [1, 1]), b.constant(first))
    model = after(b, b.node("Expand", e, b.constant(second)), len(expected))
    found = assert_becomes(model, Expand=1, Neg=1)
    assert [v.tolist() for v in constants(found).values()] == [expected]


def test_an_outer_target_that_has_all() -> None:
    b = Builder()
    x, z = b.input("x", [1, 1, 4]), b.input("z", ["N", "T", 4])
    shape = b.node("Shape", z)
    e = b.node("Expand", b.node("Expand", x, dims(b, z, 1, [1], 1)), shape)
    assert_becomes(
        after(b, b.node("Expand", e, shape), 3), sizes=({"N": 2, "T": 3}, {"N": 0}), Shape=1, Expand=1, Neg=1
    )


@declines("merge_expands")
def test_an_outer_target_that_lacks_a_dim_stays() -> None:
    b = Builder()
    x, z = b.input("x", [1, 1]), b.input("z", ["N", "T"])
    e = b.node("Expand", x, dims(b, z, [0], 1))
    assert_stays(after(b, b.node("Expand", e, dims(b, z, 1, [1])), 2), "certainly has dim N")
    b = Builder()
    e = b.node("Expand", b.input("x", [1, 1]), b.constant([2, 1]))
    assert_stays(b.model(b.node("Expand", e, b.constant([2, 3])), b.node("Neg", e)), "is also used by")


# --- drawn ---------------------------------------------------------------------------------------------------------------


@property_of("drop_expand", "drop_tile")
@DRAWN
@given(shape=SHAPES, ones=st.lists(st.booleans(), min_size=4, max_size=4), rank=st.integers(1, 4), dtype=FLOATS)
def test_any_expand_and_tile_of_nothing(shape: Any, ones: list[bool], rank: int, dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", shape)
    wanted = [
        1 if one else d if isinstance(d, int) else [k] for k, (d, one) in enumerate(zip(shape, ones, strict=False))
    ]
    y = b.node("Expand", x, dims(b, x, *wanted[-rank:]))
    y = b.node("Tile", y, b.constant([1] * len(shape)))
    assert_becomes(after(b, y), rules=[expand.drop_expand, expand.drop_tile], Neg=1)


@declines("drop_expand")
def test_an_expand_of_unknown_rank_stays() -> None:
    b = Builder()
    y = b.node("Expand", unranked(b), b.constant([1, 1]))
    assert_stays(after(b, y, 2), "the rank of 'reshape0' is unknown", rules=[expand.drop_expand])


@property_of("make_expand_static")
@DRAWN
@given(
    shape=st.permutations(["N", 1, 3]),
    size=st.integers(1, 4),
    more=st.lists(st.integers(1, 3), max_size=2),
    dtype=FLOATS,
)
def test_any_computed_target(shape: list[Any], size: int, more: list[int], dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", shape)
    wanted = [*more, *([k] if d == "N" else size if d == 1 else d for k, d in enumerate(shape))]
    model = after(b, b.node("Expand", x, dims(b, x, *wanted)), len(wanted))
    assert_becomes(model, rules=[expand.make_expand_static], Expand=1, Neg=1)


@property_of("merge_expands")
@DRAWN
@given(
    sizes=st.lists(st.integers(0, 3), min_size=3, max_size=3),
    first=st.lists(st.booleans(), min_size=1, max_size=3),
    second=st.lists(st.booleans(), min_size=1, max_size=3),
    computed=st.booleans(),
    dtype=FLOATS,
)
def test_any_expand_of_an_expand(
    sizes: list[int], first: list[bool], second: list[bool], computed: bool, dtype: Any
) -> None:
    b = Builder(dtype)
    inner, outer = ([d if on else 1 for d, on in zip(sizes[-len(p) :], p, strict=True)] for p in (first, second))
    x = b.input("x", [1, 1])
    if computed:
        z = b.input("z", ["N", "T", 2], np.float32)
        e = b.node("Expand", x, dims(b, z, *([k] for k in range(3 - len(first), 3))))
        model = b.model(b.node("Neg", b.node("Expand", e, b.node("Shape", z))), rank=3)
        assert_becomes(model, rules=[expand.merge_expands], Shape=1, Expand=1, Neg=1)
        return
    model = after(
        b, b.node("Expand", b.node("Expand", x, b.constant(inner)), b.constant(outer)), max(2, len(inner), len(outer))
    )
    assert_becomes(model, rules=[expand.merge_expands], Expand=1, Neg=1)
