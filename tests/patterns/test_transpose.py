"""Transpose: chains, and what moves nothing."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surgeon_passes.patterns import transpose

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, operators
from .moves import FLOATS, after, assert_becomes, assert_stays, target

RULES_AROUND = [
    transpose.merge_transposes_around,
    transpose.merge_transposes_around_constant,
    transpose.merge_transposed_operands,
]


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


@declines("merge_transpose_into_reshape")
def test_a_result_with_two_open_dims_stays() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 1, "H", 3]), perm=[1, 0, 2, 3])
    assert_stays(after(b, b.node("Unsqueeze", a, b.constant([0])), 5), "more than one dim")


@declines("merge_transpose_into_reshape")
def test_an_empty_result_stays() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 1, 0]), perm=[1, 0, 2])
    assert_stays(after(b, b.node("Unsqueeze", a, b.constant([0])), 4), "is empty")


def test_a_transpose_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 2, 1, 3]), perm=[0, 2, 1, 3])
    model = b.model(b.node("Neg", b.node("Reshape", a, b.constant([-1, 2, 1, 3]))), b.node("Exp", a))
    assert_stays(model, "is also used by")


# --- around what works on each element -----------------------------------------------------------------------------------


def unranked(b: Builder, name: str = "x") -> str:
    return str(b.node("Reshape", b.input(name, ["N"]), b.input(f"{name}_dims", ["R"], np.int64)))


PERMS = st.permutations(range(3))
DRAWN = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@property_of("merge_transposes_around")
@DRAWN
@given(first=PERMS, second=PERMS, op=st.sampled_from(["Relu", "Tanh", "Neg", "Exp", "LeakyRelu", "Cast"]))
def test_transposes_around_a_function(first: list[int], second: list[int], op: str) -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", ["N", 2, 3]), perm=first)
    u = b.node(op, a, **({"to": 7} if op == "Cast" else {}))
    model = b.model(b.node("Transpose", u, perm=second), dtype=np.int64 if op == "Cast" else None)
    result = apply([transpose.merge_transposes_around], model)
    cancel = [first[axis] for axis in second] == [0, 1, 2]
    assert result.ops == ({op: 1} if cancel else {op: 1, "Transpose": 1})
    assert_equal(model, result.model, [{"N": 4}])


@property_of("merge_transposes_around_constant")
@DRAWN
@given(
    first=PERMS,
    second=PERMS,
    op=st.sampled_from(["Add", "Sub", "Mul", "Div", "from"]),
    full=st.booleans(),
    dims=st.integers(0, 3),
)
def test_transposes_around_a_constant(first: list[int], second: list[int], op: str, full: bool, dims: int) -> None:
    b = Builder()
    size = (2, 3, 4)
    a = b.node("Transpose", b.input("x", list(size)), perm=first)
    shape = tuple(size[axis] if full else 1 for axis in first)[3 - dims :]
    k = b.random(*shape, low=0.5)
    u = b.node("Sub", k, a) if op == "from" else b.node(op, a, k)
    model = b.model(b.node("Transpose", u, perm=second))
    result = apply([transpose.merge_transposes_around_constant], model)
    cancel = [first[axis] for axis in second] == [0, 1, 2]
    assert result.ops["Transpose"] == (0 if cancel else 1), result.reasons
    assert_equal(model, result.model, [{}], tolerance=0)


@declines("merge_transposes_around", "merge_transposes_around_constant")
def test_transposes_around_whose_perm_is_left_out_stay() -> None:
    for second in ("Relu", "Add"):
        b = Builder()
        a = b.node("Transpose", unranked(b))
        u = b.node(second, a, *([b.constant(1.0)] if second == "Add" else []))
        model = b.model(b.node("Transpose", u, perm=[1, 0]))
        result = apply(RULES_AROUND, model)
        assert result.ops == operators(model)
        assert "a perm is left out" in result.reasons


def test_a_constant_of_more_dims_stays() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", [2, 3]), perm=[1, 0])
    u = b.node("Transpose", b.node("Add", a, b.random(1, 3, 2)), perm=[0, 1, 2])
    model = b.model(u, rank=3)
    assert apply(RULES_AROUND, model).ops == operators(model)


@property_of("merge_transposed_operands")
@DRAWN
@given(
    perm=PERMS,
    ones=st.lists(st.booleans(), min_size=3, max_size=3),
    op=st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Less", "Equal"]),
)
def test_operands_that_are_transposed_alike(perm: list[int], ones: list[bool], op: str) -> None:
    b = Builder()
    x = b.input("x", [2, 3, 4])
    z = b.input("z", [1 if one else size for one, size in zip(ones, (2, 3, 4), strict=True)])
    y = b.node(op, b.node("Transpose", x, perm=perm), b.node("Transpose", z, perm=perm))
    model = b.model(y, dtype=np.bool_ if op in ("Less", "Equal") else None)
    result = apply([transpose.merge_transposed_operands], model)
    assert result.ops == {op: 1, "Transpose": 1}
    assert_equal(model, result.model, [{}], tolerance=0)


@declines("merge_transposed_operands")
def test_transposed_operands_of_unknown_rank_stay() -> None:
    b = Builder()
    y = b.node("Add", b.node("Transpose", unranked(b)), b.node("Transpose", unranked(b, "z")))
    model = b.model(y, rank=2)
    result = apply(RULES_AROUND, model)
    assert result.ops == operators(model)
    assert any("not known to be equal" in r for r in result.reasons)


# --- drawn ---------------------------------------------------------------------------------------------------------------


MOVES = [transpose.drop_transpose, transpose.merge_transposes]


@property_of("drop_transpose", "merge_transposes")
@DRAWN
@given(first=PERMS, second=PERMS, left=st.sampled_from(["", "first", "second"]), dtype=FLOATS)
def test_any_two_transposes(first: list[int], second: list[int], left: str, dtype: Any) -> None:
    b = Builder(dtype)
    a = b.node("Transpose", b.input("x", ["N", 2, "H"]), **({} if left == "first" else {"perm": first}))
    a = b.node("Transpose", a, **({} if left == "second" else {"perm": second}))
    reverse = [2, 1, 0]
    one, two = (reverse if left == n else p for n, p in (("first", first), ("second", second)))
    cancel = [one[axis] for axis in two] == [0, 1, 2]
    y = b.node("Transpose", b.node("Neg", a), perm=[0, 1, 2])
    assert_becomes(b.model(b.node("Abs", y)), rules=MOVES, Neg=1, Abs=1, **({} if cancel else {"Transpose": 1}))


@declines("merge_transposes")
def test_transposes_whose_first_is_read_elsewhere_stay() -> None:
    b = Builder()
    a = b.node("Transpose", b.input("x", [2, 3, 4]), perm=[1, 2, 0])
    model = b.model(b.node("Transpose", a, perm=[1, 0, 2]), b.node("Exp", a))
    assert_stays(model, "is also used by", rules=MOVES)


@property_of("merge_transpose_into_reshape")
@DRAWN
@given(
    place=st.integers(0, 3),
    to=st.integers(0, 3),
    op=st.sampled_from(["Reshape", "Flatten", "Squeeze", "Unsqueeze"]),
    dtype=FLOATS,
)
def test_any_move_of_a_one_before_a_reshape(place: int, to: int, op: str, dtype: Any) -> None:
    b = Builder(dtype)
    shape: list[Any] = ["N", 2, 3]
    shape.insert(place, 1)
    perm = [axis for axis in range(4) if axis != place]
    perm.insert(to, place)
    a = b.node("Transpose", b.input("x", shape), perm=perm)
    operand = {"Reshape": [b.constant([-1, 3, 2])], "Flatten": [], "Squeeze": [b.constant([to])]}.get(
        op, [b.constant([1])]
    )
    model = after(b, b.node(op, a, *operand), {"Flatten": 2, "Unsqueeze": 5}.get(op, 3))
    assert_becomes(model, rules=[transpose.merge_transpose_into_reshape], Reshape=1, Neg=1)


@property_of("merge_reshape_into_transpose")
@DRAWN
@given(
    place=st.integers(0, 2), to=st.integers(0, 2), op=st.sampled_from(["Reshape", "Unsqueeze", "Squeeze"]), dtype=FLOATS
)
def test_any_move_of_a_one_behind_a_reshape(place: int, to: int, op: str, dtype: Any) -> None:
    b = Builder(dtype)
    shape = [-1, 6]
    shape.insert(place, 1)
    if op == "Squeeze":
        wide = ["N" if d == -1 else d for d in shape]
        a = b.node("Squeeze", b.input("x", [*wide, 1]), b.constant([3]))
    else:
        a = b.node(op, b.input("x", ["N", 6]), b.constant(shape if op == "Reshape" else [place]))
    perm = [axis for axis in range(3) if axis != place]
    perm.insert(to, place)
    model = after(b, b.node("Transpose", a, perm=perm), 3)
    assert_becomes(model, rules=[transpose.merge_reshape_into_transpose], Reshape=1, Neg=1)


@declines("merge_reshape_into_transpose")
def test_a_moved_one_behind_two_open_dims_stays() -> None:
    b = Builder()
    a = b.node("Unsqueeze", b.input("x", ["N", "H", 3]), b.constant([1]))
    assert_stays(after(b, b.node("Transpose", a, perm=[1, 0, 2, 3]), 4), "more than one dim")
