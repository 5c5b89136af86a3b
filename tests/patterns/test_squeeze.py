"""Squeeze and Unsqueeze."""

from __future__ import annotations

import pytest

from .harness import Builder
from .moves import after, assert_becomes, assert_stays, target


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize(("gone", "back"), [([1], [1]), ([1], [-2]), ([-2], [1]), ([-2], [-2])])
def test_squeeze_unsqueeze(gone: list[int], back: list[int], opset: int) -> None:
    b = Builder(opset=opset)
    y = _axes(b, "Unsqueeze", _axes(b, "Squeeze", b.input("x", ["N", 1, "H"]), gone), back)
    assert_becomes(after(b, y, 3), Neg=1)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize(("added", "gone"), [([1], [1]), ([1], [-2]), ([0, -1], [3, 0])])
def test_unsqueeze_squeeze(added: list[int], gone: list[int], opset: int) -> None:
    b = Builder(opset=opset)
    y = _axes(b, "Squeeze", _axes(b, "Unsqueeze", b.input("x", ["N", "H"]), added), gone)
    assert_becomes(after(b, y, 2), Neg=1)


def _axes(b: Builder, op: str, x: str, axes: list[int]) -> str:
    return str(b.node(op, x, axes=axes) if b.opset < 13 else b.node(op, x, b.constant(axes)))


def test_other_axes_come_back() -> None:
    b = Builder()
    y = _axes(b, "Unsqueeze", _axes(b, "Squeeze", b.input("x", ["N", 1, 4]), [1]), [0])
    assert target(assert_becomes(after(b, y, 3), Reshape=1, Neg=1)) == [1, -1, 4]
    b = Builder()
    y = _axes(b, "Squeeze", _axes(b, "Unsqueeze", b.input("x", ["N", 1, 4]), [0]), [2])
    assert target(assert_becomes(after(b, y, 3), Reshape=1, Neg=1)) == [1, -1, 4]


def test_other_axes_between_two_unknown_dims_stay() -> None:
    b = Builder()
    y = _axes(b, "Unsqueeze", _axes(b, "Squeeze", b.input("x", ["N", 1, "H"]), [1]), [0])
    assert_stays(after(b, y, 3), "more than one dim")
