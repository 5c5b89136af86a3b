"""Transpose: chains, and what moves nothing."""

from __future__ import annotations

from itertools import permutations

import pytest

from .harness import Builder
from .moves import after, assert_becomes


@pytest.mark.parametrize("first", list(permutations(range(3))))
def test_transposes(first: tuple[int, ...]) -> None:
    for second in permutations(range(3)):
        b = Builder()
        a = b.node("Transpose", b.input("x", ["N", 2, "H"]), perm=first)
        model = after(b, b.node("Transpose", a, perm=second), 3)
        identity = [first[i] for i in second] == [0, 1, 2]
        assert_becomes(model, **({"Neg": 1} if identity else {"Transpose": 1, "Neg": 1}))


def test_transposes_without_perm() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 2, "H"]))
    assert_becomes(after(b, b.node("Transpose", a), 3), Neg=1)
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 2, "H"]))
    assert_becomes(after(b, b.node("Transpose", a, perm=[1, 0, 2]), 3), Transpose=1, Neg=1)
    b = Builder()
    assert_becomes(after(b, b.node("Transpose", b.input("x", ["N"])), 1), Neg=1)


def test_three_transposes() -> None:
    b = Builder()
    y = b.input("x", [2, 3, 4])
    for _ in range(3):
        y = b.node("Transpose", y, perm=[1, 2, 0])
    assert_becomes(after(b, y, 3), Neg=1)
