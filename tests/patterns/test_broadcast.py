"""Expand."""

from __future__ import annotations

import pytest

from .harness import Builder
from .moves import after, assert_becomes, assert_stays


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
