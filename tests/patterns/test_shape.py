"""Reshape, Transpose, Squeeze, Unsqueeze and Slice."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import onnx
import pytest

from surgeon_passes.patterns import shape
from surgeon_passes.rules.registry import rules_of

from .harness import Builder, apply, assert_equal, constants, operators

RULES = list(rules_of(shape))
SIZES = ({"N": 2, "H": 7, "W": 9}, {"N": 1, "H": 4, "W": 1}, {"N": 3, "H": 1, "W": 2})


def assert_becomes(model: onnx.ModelProto, *, rules: Any = None, **left: int) -> onnx.ModelProto:
    result = apply(rules or RULES, model)
    assert result.ops == left
    assert_equal(model, result.model, SIZES, tolerance=0)
    return result.model


def assert_stays(model: onnx.ModelProto, reason: str = "", rules: Any = None) -> None:
    result = apply(rules or RULES, model)
    assert result.ops == operators(model)
    assert any(reason in r for r in result.reasons), result.reasons


def after(b: Builder, tensor: str, rank: int) -> onnx.ModelProto:
    return b.model(b.node("Neg", tensor), rank=rank)


def target(model: onnx.ModelProto) -> list[int]:
    """The constant target of the only Reshape."""
    name = next(n.input[1] for n in model.graph.node if n.op_type == "Reshape")
    return [int(v) for v in constants(model)[name]]


# --- Reshape -------------------------------------------------------------------------------------------------------------


def dims(b: Builder, x: str, *wanted: int | list[int]) -> str:
    """A target: ints as they are, ``[axis]`` the dim of x, as exporters write it."""
    shape_of = b.node("Shape", x)
    parts = [b.node("Gather", shape_of, b.constant(w)) if isinstance(w, list) else b.constant([w]) for w in wanted]
    return str(b.node("Concat", *parts, axis=0))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (([0], -1), [0, 24]),
        (([0], 6, 4), [0, 6, 4]),
        (([0], 2, 3, -1), [0, 2, 3, 4]),
        ((2, [0], -1), [2, -1, 12]),
    ],
)
def test_a_dynamic_batch(wanted: Any, expected: list[int]) -> None:
    b = Builder()
    x = b.input("x", ["N", 6, 4])
    model = after(b, b.node("Reshape", x, dims(b, x, *wanted)), len(wanted))
    assert target(assert_becomes(model, rules=[shape.make_reshape_static], Reshape=1, Neg=1)) == expected


def test_two_dims_that_change_places_stay() -> None:
    b = Builder()
    x = b.input("x", ["N", "H", 4])
    assert_stays(after(b, b.node("Reshape", x, dims(b, x, [1], [0], 4)), 3), "has no constant form")


def test_a_product_of_dims() -> None:
    b = Builder()
    x = b.input("x", ["N", "H", 4])
    shape_of = b.node("Shape", x)
    both = b.node("Mul", b.node("Gather", shape_of, b.constant([0])), b.node("Gather", shape_of, b.constant([1])))
    model = after(b, b.node("Reshape", x, b.node("Concat", both, b.constant([4]), axis=0)), 2)
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == [-1, 4]


@pytest.mark.parametrize("wanted", [[-1, 4], [0, 4], [0, -1], [0, 0]])
def test_a_reshape_to_the_same_shape(wanted: list[int]) -> None:
    b = Builder()
    assert_becomes(after(b, b.node("Reshape", b.input("x", ["N", 4]), b.constant(wanted)), 2), Neg=1)


def test_other_ways_to_the_same_shape() -> None:
    b = Builder()
    assert_becomes(after(b, b.node("Flatten", b.input("x", ["N", 4])), 2), Neg=1)
    b = Builder()
    x = b.input("x", ["N", "H"])
    assert_becomes(after(b, b.node("Reshape", x, b.node("Shape", x)), 2), Neg=1)


@pytest.mark.parametrize("wanted", [[4, -1], [-1, 2], [-1, 1, 4]])
def test_a_reshape_to_another_shape_stays(wanted: list[int]) -> None:
    b = Builder()
    y = b.node("Reshape", b.input("x", ["N", 4]), b.constant(wanted))
    result = apply(RULES, b.model(y, rank=len(wanted)))
    assert result.ops == {"Reshape": 1} and not result.reasons


@pytest.mark.parametrize("inner", ["Reshape", "Flatten", "Squeeze", "Unsqueeze"])
def test_chains(inner: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 1, 6])
    names = {
        "Reshape": [b.constant([3, -1, 2])],
        "Flatten": [],
        "Squeeze": [b.constant([1])],
        "Unsqueeze": [b.constant([1])],
    }
    y = b.node("Reshape", b.node(inner, x, *names[inner]), b.constant([-1, 2, 3]))
    assert_becomes(after(b, y, 3), Reshape=1, Neg=1)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([8, 3], [0, -1], [8, -1]),
        ([2, 4, 3], [0, 0, 3], [2, 4, 3]),
        ([2, -1, 3], [-1, 0, 3], [-1, 4, 3]),
        ([3, 8], [4, 6], [4, 6]),
    ],
)
def test_a_zero_copies_a_dim_of_the_intermediate(first: list[int], second: list[int], expected: list[int]) -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", [4, 6]), b.constant(first))
    model = after(b, b.node("Reshape", a, b.constant(second)), len(second))
    assert target(assert_becomes(model, rules=[shape.merge_reshapes], Reshape=1, Neg=1)) == expected


def test_a_zero_for_a_dim_of_the_input() -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", ["N", 6]), b.constant([0, 2, 3]))
    model = after(b, b.node("Reshape", a, b.constant([0, 3, 2])), 3)
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == [0, 3, 2]


def test_a_zero_for_a_dim_that_is_known_nowhere() -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", [12, "H"]), b.constant([-1, 2, 6]))
    model = after(b, b.node("Reshape", a, b.constant([0, 12])), 2)
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == [-1, 12]
    b = Builder()
    a = b.node("Reshape", b.input("x", [12, "H"]), b.constant([-1, 2, 6]))
    model = after(b, b.node("Reshape", a, b.constant([0, -1])), 2)
    assert_stays(model, "copies a dim of 'reshape0' that is not known")


def test_a_chain_whose_middle_is_read_stays() -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", [4, 6]), b.constant([3, 8]))
    model = b.model(b.node("Neg", b.node("Reshape", a, b.constant([6, 4]))), b.node("Exp", a))
    assert_stays(model, "is also used by")


def test_allowzero_is_kept() -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", [0, 6]), b.constant([3, 0]), allowzero=1)
    model = after(b, b.node("Reshape", a, b.constant([0, 5]), allowzero=1), 2)
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == [0, 5]


# --- Transpose -----------------------------------------------------------------------------------------------------------


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


# --- Squeeze and Unsqueeze -----------------------------------------------------------------------------------------------


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


# --- Slice ---------------------------------------------------------------------------------------------------------------


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
