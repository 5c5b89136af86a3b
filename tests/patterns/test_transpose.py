"""Transpose: chains, and what moves nothing."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from .harness import Builder
from .moves import after, assert_becomes, assert_stays, target


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


# --- axes of size 1 ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "perm", "op", "arg", "expected"),
    [
        (["N", 2, 1, 3], [0, 2, 1, 3], "Reshape", [0, -1], [0, 6]),
        (["N", "H", 1, 3], [0, 2, 1, 3], "Reshape", [-1, 3], [-1, 3]),
        (["N", "H", 1], [2, 0, 1], "Squeeze", [0], [0, 0]),
        ([1, "H", 4], [1, 0, 2], "Flatten", None, [-1, 4]),
        (["N", 1, 4], [1, 0, 2], "Unsqueeze", [3], [1, -1, 4, 1]),
    ],
)
def test_moves_of_size_one_before_a_reshape(
    shape: Any, perm: list[int], op: str, arg: Any, expected: list[int]
) -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", shape), perm=perm)
    names = [] if arg is None else [b.constant(arg)]
    found = assert_becomes(after(b, b.node(op, a, *names), len(expected)), Reshape=1, Neg=1)
    assert target(found) == expected


@pytest.mark.parametrize(
    ("shape", "op", "arg", "perm", "expected"),
    [
        (["N", 6], "Reshape", [0, 2, 1, 3], [0, 2, 1, 3], [0, 1, 2, 3]),
        (["N", "H"], "Unsqueeze", [0], [1, 2, 0], [0, 0, 1]),
        (["N", 1, 1, 4], "Squeeze", [2], [1, 0, 2], [1, -1, 4]),
        ([1, "H", 4], "Flatten", None, [1, 0], [-1, 1]),
    ],
)
def test_moves_of_size_one_after_a_reshape(shape: Any, op: str, arg: Any, perm: list[int], expected: list[int]) -> None:
    b = Builder()
    names = [] if arg is None else [b.constant(arg)]
    a = b.node(op, b.input("x", shape), *names)
    model = after(b, b.node("Transpose", a, perm=perm), len(expected))
    if op == "Flatten":  # [1, H·4]
        assert_becomes(model, Reshape=1, Neg=1)
        return
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == expected


@pytest.mark.parametrize("perm", [[0, 2, 1, 3], [1, 0, 2, 3], [3, 1, 2, 0]])
def test_axes_that_may_be_longer_stay(perm: list[int]) -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 2, "H", 3]), perm=perm)
    assert_stays(
        after(b, b.node("Reshape", a, b.constant([-1, 2])), 2), "made by no node"
    )  # of another rule, a near miss


def test_a_move_of_size_one_beside_no_reshape_stays() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Transpose", b.input("x", ["N", 1, 3]), perm=[1, 0, 2]), 3))


def test_a_result_with_two_open_dims_stays() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 1, "H", 3]), perm=[1, 0, 2, 3])
    assert_stays(after(b, b.node("Unsqueeze", a, b.constant([0])), 5), "more than one dim")


def test_an_empty_result_stays() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 1, 0]), perm=[1, 0, 2])
    assert_stays(after(b, b.node("Unsqueeze", a, b.constant([0])), 4), "is empty")


def test_a_transpose_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 2, 1, 3]), perm=[0, 2, 1, 3])
    model = b.model(b.node("Neg", b.node("Reshape", a, b.constant([-1, 2, 1, 3]))), b.node("Exp", a))
    assert_stays(model, "is also used by")
