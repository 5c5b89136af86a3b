"""Squeeze and Unsqueeze."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surgeon_passes.patterns import squeeze
from surgeon_passes.rules.registry import rules_of

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, constants
from .moves import DRAWN, EXACT, FLOATS, after, assert_becomes, assert_stays, target


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


@declines("merge_squeeze_unsqueeze")
def test_other_axes_between_two_unknown_dims_stay() -> None:
    b = Builder()
    y = _axes(b, "Unsqueeze", _axes(b, "Squeeze", b.input("x", ["N", 1, "H"]), [1]), [0])
    assert_stays(after(b, y, 3), "more than one dim")


# --- two of a kind -------------------------------------------------------------------------------------------------------


def only_axes(model: onnx.ModelProto, op: str) -> list[int]:
    node = next(n for n in model.graph.node if n.op_type == op)
    attrs = {a.name: list(a.ints) for a in node.attribute}
    return attrs["axes"] if attrs else constants(model)[node.input[1]].tolist()


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([0], [0], [0, 1]), ([0], [1], [0, 1]), ([1], [0], [0, 2]), ([-1], [-1], [2, 3]), ([0, 2], [1, -1], [0, 1, 3, 5])],
)
def test_unsqueezes(first: list[int], second: list[int], expected: list[int], opset: int) -> None:
    b = Builder(opset=opset)
    y = _axes(b, "Unsqueeze", _axes(b, "Unsqueeze", b.input("x", ["N", "H"]), first), second)
    found = assert_becomes(after(b, y, 2 + len(expected)), Unsqueeze=1, Neg=1)
    assert only_axes(found, "Unsqueeze") == expected


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([0], [1], [0, 2]), ([2], [0], [0, 2]), ([-1], [-2], [2, 4]), ([0, 4], [-2], [0, 2, 4])],
)
def test_squeezes(first: list[int], second: list[int], expected: list[int], opset: int) -> None:
    b = Builder(opset=opset)
    y = _axes(b, "Squeeze", _axes(b, "Squeeze", b.input("x", [1, "N", 1, "H", 1]), first), second)
    found = assert_becomes(after(b, y, 5 - len(expected)), Squeeze=1, Neg=1)
    assert only_axes(found, "Squeeze") == expected


@pytest.mark.parametrize("count", [3, 5])
def test_many_of_a_kind(count: int) -> None:
    b = Builder()
    y = b.input("x", ["N"])
    for place in range(count):
        y = b.node("Unsqueeze", y, b.constant([place % 2]))
    assert_becomes(after(b, y, count + 1), Unsqueeze=1, Neg=1)


def test_a_squeeze_of_all_ones_stays() -> None:
    b = Builder()
    y = b.node("Squeeze", _axes(b, "Squeeze", b.input("x", [1, "N", 1, "H"]), [0]))
    assert apply(EXACT, after(b, y, 2)).ops == {"Squeeze": 2, "Neg": 1}


@declines("merge_unsqueezes")
def test_an_unsqueeze_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    a = _axes(b, "Unsqueeze", b.input("x", ["N"]), [0])
    assert_stays(b.model(b.node("Neg", _axes(b, "Unsqueeze", a, [0])), b.node("Exp", a)), "is also used by")


@pytest.mark.parametrize("seed", range(30))
def test_random_chains(seed: int) -> None:
    """Whatever merges, the bits and the shape are the same."""
    rng = np.random.default_rng(seed)
    b = Builder()
    y, shape = b.input("x", ["N", 1, 3]), ["N", 1, 3]
    for _ in range(4):
        ones = [k for k, d in enumerate(shape) if d == 1]
        if ones and rng.integers(2):
            place = int(rng.choice(ones))
            y = _axes(b, "Squeeze", y, [place - len(shape) if rng.integers(2) else place])
            del shape[place]
        else:
            place = int(rng.integers(len(shape) + 1))
            y = _axes(b, "Unsqueeze", y, [place])
            shape.insert(place, 1)
    model = after(b, y, len(shape))
    found = apply(EXACT, model)
    assert sum(found.ops.values()) <= 2
    assert_equal(model, found.model, ({"N": 2}, {"N": 1}, {"N": 0}), tolerance=0)


# --- drawn ---------------------------------------------------------------------------------------------------------------


OPSETS = st.sampled_from([11, 13, 17])
PLACES = st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True)


@property_of("merge_squeeze_unsqueeze")
@DRAWN
@given(ones=PLACES, back=PLACES, same=st.booleans(), dtype=FLOATS, opset=OPSETS)
def test_any_axes_that_come_back(ones: list[int], back: list[int], same: bool, dtype: Any, opset: int) -> None:
    b = Builder(dtype, opset=opset)
    shape: list[Any] = [5, 6, 7, 8]
    shape[next(k for k in range(4) if k not in ones)] = "N"
    shape = [1 if k in ones else d for k, d in enumerate(shape)]
    back = [a % (4 - len(ones) + len(back)) for a in back]
    back = ones if same or len(set(back)) < len(back) else back
    y = _axes(b, "Unsqueeze", _axes(b, "Squeeze", b.input("x", shape), ones), back)
    model = after(b, y, 4 - len(ones) + len(back))
    gone = sorted(back) == sorted(ones)
    assert_becomes(model, rules=[squeeze.merge_squeeze_unsqueeze], Neg=1, **({} if gone else {"Reshape": 1}))


@property_of("merge_unsqueeze_squeeze")
@DRAWN
@given(place=st.integers(0, 3), turn=st.booleans(), other=st.booleans(), dtype=FLOATS, opset=OPSETS)
def test_any_axes_that_go_again(place: int, turn: bool, other: bool, dtype: Any, opset: int) -> None:
    b = Builder(dtype, opset=opset)
    a = _axes(b, "Unsqueeze", b.input("x", [3, "N", 1]), [place])
    gone = (2 if place == 3 else 3) if other else place
    model = after(b, _axes(b, "Squeeze", a, [gone - 4 if turn else gone]), 3)
    found = apply([squeeze.merge_unsqueeze_squeeze], model)
    assert found.ops == ({"Neg": 1, "Reshape": 1} if other else {"Neg": 1}), found.reasons
    assert_equal(model, found.model, tolerance=0)


@declines("merge_unsqueeze_squeeze")
def test_other_axes_that_go_between_two_unknown_dims_stay() -> None:
    b = Builder()
    y = _axes(b, "Squeeze", _axes(b, "Unsqueeze", b.input("x", ["N", 1, "H"]), [0]), [2])
    assert_stays(after(b, y, 3), "more than one dim", rules=[squeeze.merge_unsqueeze_squeeze])


@property_of("merge_unsqueezes", "merge_squeezes")
@DRAWN
@given(
    first=st.lists(st.integers(-4, 3), min_size=1, max_size=2, unique_by=lambda a: a % 4),
    second=st.lists(st.integers(0, 4), min_size=1, max_size=2, unique=True),
    turn=st.booleans(),
    dtype=FLOATS,
    opset=OPSETS,
)
def test_any_two_of_a_kind(first: list[int], second: list[int], turn: bool, dtype: Any, opset: int) -> None:
    axes = [a - 4 - len(second) if turn else a for a in second]
    b = Builder(dtype, opset=opset)
    y = _axes(b, "Unsqueeze", b.input("x", [3, "N", "H"][: 4 - len(first)]), first)
    model = after(b, _axes(b, "Unsqueeze", y, axes), 4 + len(second))
    assert_becomes(model, rules=[squeeze.merge_unsqueezes], Unsqueeze=1, Neg=1)
    shape: list[Any] = ["N", 2, "H", 3]
    for place in first:
        shape[place] = 1
    for place in sorted(second):
        shape.insert(place, 1)
    b = Builder(dtype, opset=opset)
    y = _axes(b, "Squeeze", _axes(b, "Squeeze", b.input("x", shape), axes), first)
    assert_becomes(after(b, y, 4 - len(first)), rules=[squeeze.merge_squeezes], Squeeze=1, Neg=1)


@declines("merge_squeezes")
def test_a_squeeze_that_is_read_elsewhere_stays() -> None:
    b = Builder()
    a = _axes(b, "Squeeze", b.input("x", [1, "N", 1]), [0])
    assert_stays(b.model(b.node("Neg", _axes(b, "Squeeze", a, [1])), b.node("Exp", a)), "is also used by")


@pytest.mark.parametrize(
    ("first", "second"),
    [(("Squeeze", [0]), ("Squeeze", [])), (("Squeeze", []), ("Unsqueeze", [0])), (("Unsqueeze", [0]), ("Squeeze", []))],
)
def test_no_axes_may_be_all_axes(first: tuple[str, list[int]], second: tuple[str, list[int]]) -> None:
    b = Builder(opset=13)
    y = b.input("x", [1, "N", 1])
    for op, axes in (first, second):
        y = b.node(op, y, b.constant(np.array(axes, np.int64), np.int64))
    result = apply(list(rules_of(squeeze)), after(b, y, 1))
    assert not result.applied and any("names no axes" in r or "given and empty" in r for r in result.reasons), (
        result.reasons
    )
