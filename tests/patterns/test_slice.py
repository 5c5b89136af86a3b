"""Slice: chains, and what takes everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .harness import Builder, apply, assert_equal, constants
from .moves import EXACT as RULES
from .moves import after, assert_becomes, assert_stays

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
