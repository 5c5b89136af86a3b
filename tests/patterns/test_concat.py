"""Split and Concat."""

from __future__ import annotations

import pytest

from .harness import Builder, apply, assert_equal, operators
from .moves import EXACT as RULES
from .moves import after, assert_becomes, assert_stays


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
