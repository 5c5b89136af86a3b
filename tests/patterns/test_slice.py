"""Slice: chains, and what takes everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgeon_passes.patterns import slice as slices

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, constants
from .moves import DRAWN, after, assert_becomes, assert_stays
from .moves import EXACT as RULES

FULL = [
    ([0], [9], [1], None),
    ([0], [2**63 - 1], [0], None),
    ([0, 0], [2**31 - 1, 100], None, None),
    ([-9], [9], [-1], [1]),
    ([-(2**63)], [2**63 - 1], [0], [1]),
]


@pytest.mark.parametrize("cut", FULL)
def test_full_slice(cut: Any) -> None:
    b = Builder()
    names = [b.constant(v) if v is not None else "" for v in cut]
    assert_becomes(after(b, b.node("Slice", b.input("x", ["N", 9]), *names)), Neg=1)


def test_old_full_slice() -> None:
    b = Builder(opset=9)
    assert_becomes(after(b, b.node("Slice", b.input("x", ["N", 9]), starts=[0], ends=[9], axes=[1])), Neg=1)


@pytest.mark.parametrize(
    "cut",
    [([0], [8], [1], None), ([1], [9], [1], None), ([0], [9], [0], None), ([0], [9], [1], [2]), ([0], [-1], [1], None)],
)
def test_other_slices_stay(cut: Any) -> None:
    b = Builder()
    names = [b.constant(v) if v is not None else "" for v in cut]
    assert_stays(after(b, b.node("Slice", b.input("x", ["N", 9]), *names)))


def cut(b: Builder, x: str, *axes: tuple[int, int, int, int]) -> str:
    """(axis, start, end, step) …"""
    places, starts, ends, steps = (list(c) for c in zip(*axes, strict=True))
    return str(b.node("Slice", x, *map(b.constant, (starts, ends, places, steps))))


@pytest.mark.parametrize("seed", range(60))
def test_slices(seed: int) -> None:
    """Random cuts of a known and an unknown axis: bit-equal, whatever merges."""
    rng = np.random.default_rng(seed)

    def some(axis: int) -> tuple[int, int, int, int]:
        low = -12 if axis % 2 else 0
        return axis, int(rng.integers(low, 13)), int(rng.integers(low, 13)), int(rng.integers(1, 4))

    b = Builder()
    x = b.input("x", ["H", 11])
    axes = [[0], [1], [0, 1], [1, -2]]
    first, second = ([some(a) for a in axes[int(rng.integers(4))]] for _ in range(2))
    assert_becomes(after(b, cut(b, cut(b, x, *first), *second), 2), Slice=1, Neg=1)


def test_slices_of_two_axes() -> None:
    b = Builder()
    x = b.input("x", ["H", "W"])
    assert_becomes(after(b, cut(b, cut(b, x, (0, -3, -1, 1)), (1, 4, -9, -1)), 2), Slice=1, Neg=1)


@declines("merge_slices")
@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((0, 0, -1, 1), (0, 1, 5, 1), "counts from the back of axis 0"),
        ((0, 0, 5, 1), (0, -2, 5, 1), "counts from the back of axis 0"),
        ((0, 9, 0, -1), (0, 0, 2, 1), "a step on axis 0 is -1"),
    ],
)
def test_slices_that_count_from_an_unknown_end_stay(first: Any, second: Any, reason: str) -> None:
    b = Builder()
    x = b.input("x", ["H", 11])
    assert_stays(after(b, cut(b, cut(b, x, first), second), 2), reason)


def test_old_slices() -> None:
    b = Builder(opset=9)
    x = b.input("x", ["H", 11])
    a = b.node("Slice", x, starts=[2], ends=[2**63 - 1], axes=[1])
    assert_becomes(after(b, b.node("Slice", a, starts=[1, 0], ends=[4, 2]), 2), Slice=1, Neg=1)


# --- computed places -----------------------------------------------------------------------------------------------------


def less(b: Builder, x: str, axis: int, number: int, op: str = "Sub") -> str:
    size = b.node("Gather", b.node("Shape", x), b.constant([axis]))
    return str(b.node(op, size, b.constant([number]))) if number else str(size)


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [(0, 0, None), (1, 0, (1, 2**63 - 1)), (0, 1, (0, -1)), (2, 1, (2, -1)), (-3, 0, (-3, 2**63 - 1))],
)
def test_places_that_count_from_the_size(start: int, end: int, left: tuple[int, int] | None) -> None:
    b = Builder()
    x = b.input("x", ["H", 4])
    model = after(b, b.node("Slice", x, b.constant([start]), less(b, x, 0, end), b.constant([0])), 2)
    if left is None:
        assert_becomes(model, Neg=1)
        return
    found = assert_becomes(model, sizes=({"H": 1}, {"H": 2}, {"H": 7}), Slice=1, Neg=1)
    node = next(n for n in found.graph.node if n.op_type == "Slice")
    assert tuple(int(constants(found)[n][0]) for n in node.input[1:3]) == left


@pytest.mark.parametrize(("number", "op"), [(3, "Add"), (1, "Mul"), (2, "Mul")])
def test_ends_behind_the_last_element(number: int, op: str) -> None:
    b = Builder()
    x = b.input("x", ["H", 4])
    model = after(b, b.node("Slice", x, b.constant([0]), less(b, x, 0, number, op), b.constant([0])), 2)
    assert_becomes(model, Neg=1)


def test_a_start_that_counts_from_the_size() -> None:
    b = Builder()
    x = b.input("x", ["H", 4])
    model = after(b, b.node("Slice", x, less(b, x, 0, 1), b.constant([2**63 - 1]), b.constant([0])), 2)
    assert_becomes(model, sizes=({"H": 1}, {"H": 7}), Slice=1, Neg=1)


@declines("make_slice_static")
@pytest.mark.parametrize(("number", "op"), [(2, "Sub"), (2, "Div")])
def test_places_that_may_be_negative_or_are_a_part_stay(number: int, op: str) -> None:
    """H - 2 at H = 1 is -1: from the back, that is another place than two from the back."""
    b = Builder()
    x = b.input("x", ["H", 4])
    model = after(b, b.node("Slice", x, b.constant([0]), less(b, x, 0, number, op), b.constant([0])), 2)
    assert_stays(model, "has no constant form")


@pytest.mark.parametrize(("name", "axis"), [("x", 1), ("z", 0)])
def test_the_size_of_another_axis_or_tensor_stays(name: str, axis: int) -> None:
    b = Builder()
    x, _ = b.input("x", ["H", "W"]), b.input("z", ["T", 3])
    model = after(b, b.node("Slice", x, b.constant([0]), less(b, name, axis, 0), b.constant([0])), 2)
    assert_stays(model, "has no constant form")


@declines("make_slice_static")
def test_a_negative_step_between_computed_places_stays() -> None:
    b = Builder()
    x = b.input("x", ["H", 4])
    cuts = (less(b, x, 0, 1), b.constant([-(2**63)]), b.constant([0]), b.constant([-1]))
    assert_stays(after(b, b.node("Slice", x, *cuts), 2), "negative step")


@pytest.mark.parametrize("seed", range(40))
def test_open_slices_of_an_unknown_axis(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b = Builder()
    y = b.input("x", ["H", 2])
    for _ in range(3):
        end = 2**63 - 1 if rng.integers(2) else -int(rng.integers(1, 4))
        y = cut(b, y, (0, int(rng.integers(0, 3)), end, 1))
    sizes = tuple({"H": h} for h in (0, 1, 2, 3, 5, 8, 13))
    model = after(b, y, 2)
    found = apply(RULES, model)
    assert found.ops["Slice"] <= 1
    assert_equal(model, found.model, sizes, tolerance=0)


# --- drawn ---------------------------------------------------------------------------------------------------------------

EVERY = st.sampled_from([np.float32, np.float16, np.float64, np.int32])


@property_of("drop_full_slice")
@DRAWN
@given(
    axes=st.lists(st.integers(-3, 2), min_size=1, max_size=3, unique_by=lambda a: a % 3),
    start=st.sampled_from([0, -(2**31), -(2**63)]),
    end=st.sampled_from([2**31 - 1, 2**63 - 1]),
    known=st.integers(0, 3),
    dtype=EVERY,
)
def test_any_full_slice(axes: list[int], start: int, end: int, known: int, dtype: Any) -> None:
    b = Builder(dtype)
    cuts = [(a, -4 if start and a % 3 == 2 else start, 4 + known if a % 3 == 2 else end, 1) for a in axes]
    assert_becomes(after(b, cut(b, b.input("x", ["N", "H", 4]), *cuts)), Neg=1)


@property_of("make_slice_static")
@DRAWN
@given(axis=st.integers(0, 1), start=st.integers(-2, 3), end=st.integers(0, 1), step=st.integers(1, 3), dtype=EVERY)
def test_any_slice_to_what_counts_from_the_size(axis: int, start: int, end: int, step: int, dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", ["N", "H", 4])
    ends = b.node("Concat", b.constant([3]), less(b, x, axis, end), axis=0)
    y = b.node("Slice", x, b.constant([1, start]), ends, b.constant([2, axis]), b.constant([1, step]))
    assert_becomes(after(b, y), Slice=1, Neg=1)


CUTS = st.tuples(st.integers(-9, 9), st.integers(-9, 12), st.integers(1, 3))
FRONT = st.tuples(st.integers(0, 6), st.integers(0, 12), st.integers(1, 3))


@property_of("merge_slices")
@DRAWN
@given(
    known=st.tuples(CUTS, CUTS),
    front=st.tuples(FRONT, FRONT),
    both=st.tuples(*[st.sampled_from(["01", "0", "1"])] * 2),
    dtype=EVERY,
)
def test_any_two_slices(known: Any, front: Any, both: Any, dtype: Any) -> None:
    b = Builder(dtype)
    y = b.input("x", ["H", 7])
    for which, near, far in zip(both, front, known, strict=True):
        y = cut(b, y, *((int(a), *(far if a == "1" else near)) for a in which))
    model = after(b, y, 2)
    found = apply([slices.merge_slices], model)
    assert found.ops == {"Slice": 1, "Neg": 1}
    assert_equal(model, found.model, [{"H": 8}, {"H": 1}], tolerance=0)
