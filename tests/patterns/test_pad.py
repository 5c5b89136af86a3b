"""Pad by nothing."""

from __future__ import annotations

import pytest

from .harness import Builder
from .moves import after, assert_becomes, assert_stays


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_pad_by_nothing(mode: str) -> None:
    b = Builder()
    assert_becomes(after(b, b.node("Pad", b.input("x", ["N", 9]), b.constant([0] * 4), mode=mode)), Neg=1)


def test_pad_by_nothing_along_axes_and_as_an_attribute() -> None:
    b = Builder(opset=18)
    assert_becomes(after(b, b.node("Pad", b.input("x", [9]), b.constant([0, 0]), "", b.constant([0]))), Neg=1)
    b = Builder(opset=9)
    assert_becomes(after(b, b.node("Pad", b.input("x", [9]), pads=[0, 0])), Neg=1)


@pytest.mark.parametrize("amounts", [[0, 1], [-1, 0]])
def test_other_pads_stay(amounts: list[int]) -> None:
    b = Builder()
    assert_stays(after(b, b.node("Pad", b.input("x", [9]), b.constant(amounts))))
