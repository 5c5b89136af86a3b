"""Expand and Tile: what enlarges nothing, computed targets, chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .covering import declines
from .harness import Builder, constants
from .moves import after, assert_becomes, assert_stays
from .test_reshape import dims


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
