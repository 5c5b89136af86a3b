"""Split and Concat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, operators
from .moves import DRAWN, FLOATS, after, assert_becomes, assert_stays
from .moves import EXACT as RULES


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_split_into_one(opset: int) -> None:
    b = Builder(opset=opset)
    sizes = {"split": [9]} if opset < 13 else {}
    names = ["x"] if opset < 13 else ["x", b.constant([9])]
    b.input("x", [9])
    assert_becomes(after(b, b.node("Split", *names, **sizes)), Neg=1)


def test_split_into_one_before_an_output_is_an_identity() -> None:
    b = Builder()
    assert_becomes(b.model(b.node("Split", b.input("x", [9]))), Identity=1)


def test_split_whose_second_part_nobody_reads_stays() -> None:
    b = Builder()
    first, _ = b.node("Split", b.input("x", [9]), b.constant([4, 5]), outputs=2)
    assert_stays(after(b, first))


@pytest.mark.parametrize("axes", [(1, 1), (1, -1), (-2, 0)])
def test_split_then_concat(axes: tuple[int, int]) -> None:
    b = Builder(opset=18)
    parts = b.node("Split", b.input("x", ["N", 9]), outputs=3, axis=axes[0], num_outputs=3)
    model = after(b, b.node("Concat", *parts, axis=axes[1]))
    if axes == (1, 1):
        assert_becomes(model, Neg=1)
    else:
        assert_equal(model, apply(RULES, model).model, tolerance=0)


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (0,)])
def test_split_then_another_concat_stays(order: tuple[int, ...]) -> None:
    b = Builder(opset=18)
    parts = b.node("Split", b.input("x", [4, 8]), outputs=2, axis=1, num_outputs=2)
    model = after(b, b.node("Concat", *(parts[i] for i in order), parts[0], axis=1))
    assert apply(RULES, model).ops == operators(model)


# --- chains --------------------------------------------------------------------------------------------------------------


def parts(b: Builder, count: int) -> list[str]:
    return [b.input(f"x{k}", ["N", k + 1, 2]) for k in range(count)]


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("axes", [(1, 1), (1, -2), (-2, 1)])
def test_a_concat_among_the_parts_of_another(place: int, axes: tuple[int, int]) -> None:
    b = Builder()
    first, second, *others = parts(b, 6)
    others.insert(place, b.node("Concat", first, second, axis=axes[0]))
    found = assert_becomes(after(b, b.node("Concat", *others, axis=axes[1]), 3), Concat=1, Neg=1)
    node = next(n for n in found.graph.node if n.op_type == "Concat")
    wanted = ["x2", "x3", "x4", "x5"]
    assert list(node.input) == [*wanted[:place], "x0", "x1", *wanted[place:]]


def test_concats_of_concats() -> None:
    b = Builder()
    y, *others = parts(b, 5)
    for other in others:
        y = b.node("Concat", y, other, axis=1)
    assert_becomes(after(b, y, 3), Concat=1, Neg=1)


def test_a_concat_along_another_axis_stays() -> None:
    b = Builder()
    x, z = b.input("x", ["N", 2, 2]), b.input("z", ["N", 2, 4])
    y = b.node("Concat", b.node("Concat", x, x, axis=2), z, axis=1)
    assert_stays(after(b, y, 3))


@declines("merge_concats")
@pytest.mark.parametrize("twice", [True, False])
def test_a_concat_that_is_used_again_stays(twice: bool) -> None:
    b = Builder()
    x, z, w = parts(b, 3)
    inner = b.node("Concat", x, z, axis=1)
    y = b.node("Concat", inner, w, *([inner] if twice else []), axis=1)
    model = b.model(y, b.node("Neg", w if twice else inner))
    result = apply(RULES, model)
    assert result.ops == operators(model)
    assert any("used elsewhere" in reason for reason in result.reasons)


# --- drawn ---------------------------------------------------------------------------------------------------------------


@property_of("drop_single_split", "drop_split_concat")
@DRAWN
@given(
    sizes=st.lists(st.integers(0, 3), min_size=2, max_size=4),
    place=st.integers(0, 2),
    dtype=st.sampled_from([np.float32, np.float16, np.float64, np.int32]),
    opset=st.sampled_from([11, 13, 18]),
)
def test_any_split_into_what_is_joined_again(sizes: list[int], place: int, dtype: Any, opset: int) -> None:
    for parts in ([sum(sizes)], sizes):
        b = Builder(dtype, opset=opset)
        shape: list[Any] = ["N", "H"]
        shape.insert(place, sum(sizes))
        names = [b.input("x", shape), *([b.constant(parts)] if opset >= 13 else [])]
        found = b.node("Split", *names, axis=place, outputs=len(parts), **({} if opset >= 13 else {"split": parts}))
        y = b.node("Concat", *found, axis=place) if len(parts) > 1 else found
        assert_becomes(after(b, y), Neg=1)


@declines("drop_single_split", "drop_split_concat")
def test_a_split_of_unknown_sizes_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", 9])
    one = b.node("Split", x, b.input("s", [1], np.int64), axis=1)
    two = b.node("Split", x, b.input("t", [2], np.int64), axis=1, outputs=2)
    model = b.model(b.node("Neg", one), b.node("Neg", b.node("Concat", *two, axis=1)))
    assert_stays(model, "the sizes do not certainly add up to dim 1 of 'x'")


@property_of("merge_concats")
@DRAWN
@given(
    inner=st.integers(2, 3),
    place=st.integers(0, 3),
    behind=st.integers(0, 2),
    signs=st.tuples(st.booleans(), st.booleans()),
    dtype=FLOATS,
)
def test_any_concat_of_a_concat(inner: int, place: int, behind: int, signs: Any, dtype: Any) -> None:
    b = Builder(dtype)
    others = parts(b, inner + place + behind)
    axes = [1 if sign else -2 for sign in signs]
    i = b.node("Concat", *[others.pop() for _ in range(inner)], axis=axes[0])
    others.insert(place, i)
    assert_becomes(after(b, b.node("Concat", *others, axis=axes[1]), 3), Concat=1, Neg=1)
