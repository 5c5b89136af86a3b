"""Slice: chains, and what takes everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .harness import Builder
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
