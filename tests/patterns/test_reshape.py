"""Reshape and Flatten."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes.patterns import elimination, reshape

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, operators
from .moves import DRAWN, FLOATS, SIZES, after, assert_becomes, assert_stays, target
from .moves import EXACT as RULES


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
    assert target(assert_becomes(model, rules=[reshape.make_reshape_static], Reshape=1, Neg=1)) == expected


@declines("make_reshape_static")
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
    assert target(assert_becomes(model, rules=[reshape.merge_reshapes], Reshape=1, Neg=1)) == expected


def test_a_zero_for_a_dim_of_the_input() -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", ["N", 6]), b.constant([0, 2, 3]))
    model = after(b, b.node("Reshape", a, b.constant([0, 3, 2])), 3)
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == [0, 3, 2]


@declines("merge_reshapes")
def test_a_zero_for_a_dim_that_is_known_nowhere() -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", [12, "H"]), b.constant([-1, 2, 6]))
    model = after(b, b.node("Reshape", a, b.constant([0, 12])), 2)
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == [-1, 12]
    b = Builder()
    a = b.node("Reshape", b.input("x", [12, "H"]), b.constant([-1, 2, 6]))
    model = after(b, b.node("Reshape", a, b.constant([0, -1])), 2)
    assert_stays(model, "copies a dim of 'reshape0' that is not known")


@declines("merge_reshapes")
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


@pytest.mark.parametrize(
    ("op", "arg", "wanted"),
    [
        ("Unsqueeze", [0], [1, -1, 1, 6]),
        ("Squeeze", [1], [0, 6]),
        ("Flatten", None, [0, 6]),
        ("Unsqueeze", [-1], [0, 1, 6, 1]),
    ],
)
def test_a_reshape_before_another_kind(op: str, arg: Any, wanted: list[int]) -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", ["N", 2, 3]), b.constant([0, 1, -1]))
    names = [] if arg is None else [b.constant(arg)]
    model = after(b, b.node(op, a, *names), len(wanted))
    assert target(assert_becomes(model, Reshape=1, Neg=1)) == wanted


@pytest.mark.parametrize(
    ("first", "second"), [("Unsqueeze", "Flatten"), ("Squeeze", "Flatten"), ("Flatten", "Unsqueeze")]
)
def test_two_kinds_of_reshapes(first: str, second: str) -> None:
    b = Builder()
    y = b.input("x", ["N", 1, 4])
    for op in (first, second):
        y = b.node(op, y, *([b.constant([1])] if op != "Flatten" else []))
    model = after(b, y, 3 if second == "Unsqueeze" else 2)
    found = apply(RULES, model)
    assert sum(found.ops.values()) <= 2
    assert_equal(model, found.model, SIZES, tolerance=0)


@declines("merge_into_reshape")
def test_another_kind_with_two_open_dims_stays() -> None:
    b = Builder()
    a = b.node("Reshape", b.input("x", ["N", "H", 4]), b.constant([0, 0, 2, 2]))
    assert_stays(after(b, b.node("Unsqueeze", a, b.constant([0])), 5), "more than one dim")


def test_a_reshape_that_was_merged_is_merged_again_when_its_input_changes() -> None:
    b = Builder()
    a = b.node("Identity", b.node("Reshape", b.input("x", ["N", 6]), b.constant([-1, 2, 3])))
    y = b.node("Reshape", b.node("Reshape", a, b.constant([-1, 3])), b.constant([-1, 3, 2]))
    passes = (sp.Rewrite(reshape.merge_reshapes), sp.Rewrite(elimination.drop_identity), sp.Cleanup())
    result = sp.Pipeline(*passes).run(after(b, y, 3))
    assert result.after.operators == {"Reshape": 1, "Neg": 1}


# --- around what works on each element -----------------------------------------------------------------------------------


@property_of("merge_reshapes_around")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=st.sampled_from(["Reshape", "Flatten", "Unsqueeze"]),
    op=st.sampled_from(["Relu", "Tanh", "Exp", "Neg", "Sqrt"]),
    back=st.booleans(),
    known=st.booleans(),
)
def test_reshapes_around_a_function(first: str, op: str, back: bool, known: bool) -> None:
    b = Builder()
    x = b.input("x", [4 if known else "N", 2, 3])
    operand = {"Reshape": [b.constant([-1, 6])], "Flatten": [], "Unsqueeze": [b.constant([1])]}[first]
    u = b.node(op, b.node(first, x, *operand))
    model = b.model(b.node("Reshape", u, b.constant([-1, 2, 3] if back else [-1, 3, 2])), rank=3)
    result = apply([reshape.merge_reshapes_around], model)
    assert result.ops == ({op: 1} if back else {op: 1, "Reshape": 1}), result.reasons
    assert_equal(model, result.model, [{"N": 4}, {"N": 1}], tolerance=0)


@declines("merge_reshapes_around")
def test_reshapes_around_a_function_that_may_be_illegal_stay() -> None:
    b = Builder()
    u = b.node("Relu", b.node("Reshape", b.input("x", ["N", "K"]), b.constant([-1, 6])))
    model = b.model(b.node("Reshape", u, b.constant([-1])), rank=1)
    result = apply([reshape.merge_reshapes_around], model)
    assert result.ops == operators(model)
    assert any("there the original fails" in r for r in result.reasons)


# --- drawn ---------------------------------------------------------------------------------------------------------------


TO = st.permutations([2, 3, 4]).map(lambda p: [p[0], p[1] * p[2]]) | st.permutations([2, 3, 4])


@property_of("make_reshape_static")
@DRAWN
@given(wanted=TO, place=st.integers(0, 3), rest=st.integers(0, 3), dtype=FLOATS)
def test_any_computed_target(wanted: list[int], place: int, rest: int, dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", ["N", 6, 4])
    parts: list[Any] = list(wanted)
    if rest < len(parts):
        parts[rest] = -1
    parts.insert(place, [0])
    model = after(b, b.node("Reshape", x, dims(b, x, *parts)), len(parts))
    assert_becomes(model, rules=[reshape.make_reshape_static], Reshape=1, Neg=1)


@property_of("drop_reshape")
@DRAWN
@given(sizes=st.permutations(["N", 3, 2]), kind=st.sampled_from(["-1", "0", "shape", "Flatten"]), dtype=FLOATS)
def test_any_reshape_to_the_same_shape(sizes: list[Any], kind: str, dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", sizes[:2] if kind == "Flatten" else sizes)
    if kind == "Flatten":
        y = b.node("Flatten", x)
    else:
        wanted = b.node("Shape", x) if kind == "shape" else b.constant([int(kind) if d == "N" else d for d in sizes])
        y = b.node("Reshape", x, wanted)
    assert_becomes(after(b, y), rules=[reshape.drop_reshape], Neg=1)


@declines("drop_reshape")
def test_a_squeeze_of_an_empty_list_stays() -> None:
    b = Builder()
    y = b.node("Squeeze", b.input("x", ["N", 2]), b.constant(np.zeros(0, np.int64)))
    assert_stays(after(b, y), "axes are given and empty", rules=[reshape.drop_reshape])


INNER = st.sampled_from(["Reshape", "Flatten", "Squeeze", "Unsqueeze"])


def inner(b: Builder, op: str, x: str) -> str:
    """Of [N, 1, 6]."""
    return str(b.node(op, x, *{"Reshape": [b.constant([-1, 2, 3])], "Flatten": []}.get(op, [b.constant([1])])))


@property_of("merge_reshapes")
@DRAWN
@given(
    op=INNER,
    wanted=st.sampled_from([[-1, 6], [-1, 3, 2], [0, 6], [0, 2, 3], [0, -1], [2, -1]]),
    zero=st.booleans(),
    dtype=FLOATS,
)
def test_any_reshape_of_what_was_reshaped(op: str, wanted: list[int], zero: bool, dtype: Any) -> None:
    b = Builder(dtype, opset=14)
    a = inner(b, op, b.input("x", ["N", 1, 6]))
    attrs = {"allowzero": 1} if zero and 0 not in wanted else {}
    model = after(b, b.node("Reshape", a, b.constant(wanted), **attrs), len(wanted))
    assert_becomes(model, rules=[reshape.merge_reshapes], sizes=({"N": 4}, {"N": 2}), Reshape=1, Neg=1)


@property_of("merge_into_reshape")
@DRAWN
@given(op=INNER, back=st.sampled_from(["Flatten", "Unsqueeze", "Squeeze"]), place=st.integers(0, 2), dtype=FLOATS)
def test_any_other_kind_of_what_was_reshaped(op: str, back: str, place: int, dtype: Any) -> None:
    b = Builder(dtype)
    if back == "Squeeze":
        a = b.node("Reshape", b.input("x", ["N", 6]), b.constant([[1, -1, 2, 3], [-1, 1, 6], [-1, 6, 1]][place]))
        y, rank = b.node("Squeeze", a, b.constant([place])), (3 if place == 0 else 2)
    else:
        op = "Flatten" if op == back == "Unsqueeze" else op
        a = inner(b, op, b.input("x", ["N", 1, 6]))
        y = b.node("Flatten", a, axis=1) if back == "Flatten" else b.node("Unsqueeze", a, b.constant([place]))
        rank = 2 if back == "Flatten" else {"Reshape": 4, "Flatten": 3, "Squeeze": 3}[op]
    assert_becomes(after(b, y, rank), rules=[reshape.merge_into_reshape], Reshape=1, Neg=1)


def shuffled(b: Builder, groups: int, channels: int, perm: list[int], *behind: int) -> onnx.ModelProto:
    x = b.input("x", ["N", groups * channels, "H", "W"])
    a = b.node("Reshape", x, dims(b, x, [0], groups, channels, [2], [3]))
    y = b.node("Reshape", b.node("Transpose", a, perm=perm), b.constant(list(behind)))
    return after(b, y, len(behind))


@property_of("join_transposed_axes")
@DRAWN
@given(
    groups=st.integers(2, 4),
    channels=st.integers(2, 3),
    perm=st.sampled_from([[0, 2, 1, 3, 4], [0, 3, 4, 2, 1], [2, 1, 0, 3, 4], [1, 0, 2, 3, 4]]),
    dtype=FLOATS,
)
def test_any_shuffle(groups: int, channels: int, perm: list[int], dtype: Any) -> None:
    b = Builder(dtype)
    model = shuffled(b, groups, channels, perm, -1)
    found = apply([reshape.join_transposed_axes], model)
    assert found.applied == ["join_transposed_axes"], found.reasons
    assert_equal(model, found.model, SIZES, tolerance=0)


@declines("join_transposed_axes")
@pytest.mark.parametrize(
    ("perm", "behind", "reason"),
    [([0, 2, 1, 3, 4], (0, -1), "may be 0, which would copy"), ([3, 0, 1, 2, 4], (-1,), "even with its axes joined")],
)
def test_shuffles_that_need_their_sizes_stay(perm: list[int], behind: Any, reason: str) -> None:
    b = Builder()
    assert_stays(shuffled(b, 2, 3, perm, *behind), reason, rules=[reshape.join_transposed_axes])
