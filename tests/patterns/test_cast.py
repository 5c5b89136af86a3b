"""Cast: chains, and what changes no type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import surgeon_passes as sp
from surgeon_passes.patterns import cast

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal, graph_model, operators
from .moves import DRAWN, FLOATS, SHAPES, after, assert_becomes, assert_stays
from .moves import EXACT as RULES


@pytest.mark.parametrize(("dtype", "to"), [(np.float32, 1), (np.int64, 7), (np.float16, 10)])
def test_cast_to_its_own_type(dtype: Any, to: int) -> None:
    b = Builder(dtype)
    assert_becomes(after(b, b.node("Cast", b.input("x", [9]), to=to)), Neg=1)


def test_cast_there_and_back_stays() -> None:
    b = Builder()
    assert_stays(after(b, b.node("Cast", b.node("Cast", b.input("x", [9]), to=11), to=1)), rules=cast.drop_cast)


# --- chains --------------------------------------------------------------------------------------------------------------

TYPES = {
    "bool": np.bool_,
    "uint8": np.uint8,
    "int8": np.int8,
    "uint16": np.uint16,
    "int16": np.int16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
}
WIDER = {
    "bool": "uint8 int8 uint16 int16 int32 uint32 int64 uint64 float16 float32 float64",
    "uint8": "uint16 int16 int32 uint32 int64 uint64 float16 float32 float64",
    "int8": "int16 int32 int64 float16 float32 float64",
    "uint16": "int32 uint32 int64 uint64 float32 float64",
    "int16": "int32 int64 float32 float64",
    "int32": "int64 float64",
    "uint32": "int64 uint64 float64",
    "int64": "",
    "uint64": "",
    "float16": "float32 float64",
    "float32": "float64",
    "float64": "",
}
"""Types that hold every value."""
FLOATING = [0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 255.7, -1, 300, 3e9, -3e9, 1e20, 65504, 6e-8, 2049]


def code(name: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(TYPES[name])))


def every_kind(dtype: Any) -> np.ndarray:
    """Values at the edges of a type."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return np.array(FLOATING, np.float64).astype(kind)
    if kind.kind == "b":
        return np.array([False, True])
    info = np.iinfo(kind)
    return np.array([0, 1, 100, info.max, info.max - 1, info.max // 2, info.max // 3, info.min, info.min + 1], kind)


@pytest.mark.parametrize("own", TYPES)
@pytest.mark.parametrize("first", TYPES)
def test_chains_of_casts(own: str, first: str) -> None:
    """One model casts to every type by way of ``first``: what is merged gives the same bits at the edges of the type."""
    b = Builder(TYPES[own], opset=13)
    x = b.input("x", ["K"])
    results = [b.node("Cast", b.node("Cast", x, to=code(first)), to=code(last)) for last in TYPES]
    model = b.model(*results)
    for value, last in zip(model.graph.output, TYPES, strict=True):
        value.type.tensor_type.elem_type = code(last)
    found = apply(cast.merge_casts, model)
    assert bool(found.applied) is (first == own or first in WIDER[own].split())
    assert_equal(model, found.model, [{}], 0, feeds={"x": every_kind(TYPES[own])})


@pytest.mark.parametrize(
    ("own", "first"), [("float32", "float64"), ("float16", "float32"), ("int32", "int64"), ("bool", "float32")]
)
def test_a_round_trip_through_a_wider_type_goes(own: str, first: str) -> None:
    b = Builder(TYPES[own])
    a = b.node("Cast", b.input("x", [9]), to=code(first))
    y = b.node("Cast", a, to=code(own))
    op = "Not" if own == "bool" else "Neg"
    assert apply(RULES, b.model(b.node(op, y))).ops == {op: 1}


@declines("merge_casts")
@pytest.mark.parametrize(
    ("own", "first"), [("float32", "int32"), ("float32", "float16"), ("float64", "float32"), ("int32", "float32")]
)
def test_a_round_trip_that_rounds_stays(own: str, first: str) -> None:
    b = Builder(TYPES[own])
    y = b.node("Cast", b.node("Cast", b.input("x", [9]), to=code(first)), to=code(own))
    assert_stays(after(b, y), "may not hold every value")


@declines("merge_casts")
def test_small_floats_and_text_stay() -> None:
    for via in (TensorProto.BFLOAT16, TensorProto.STRING):
        b = Builder(np.float32)
        y = b.node("Cast", b.node("Cast", b.input("x", [9]), to=via), to=1)
        assert_stays(after(b, y), "not a plain number")


def test_integers_that_leave_a_float_out_of_range_stay() -> None:
    b = Builder(np.int16)
    y = b.node("Cast", b.node("Cast", b.input("x", [9]), to=1), to=code("int8"))
    assert_stays(b.model(y, dtype=np.int8), "may not hold every value")


def test_three_casts() -> None:
    b = Builder(np.bool_)
    y = b.node("Cast", b.node("Cast", b.node("Cast", b.input("x", [9]), to=6), to=7), to=1)
    assert apply(RULES, after(b, y, dtype=np.float32)).ops == {"Cast": 1, "Neg": 1}


def test_a_cast_that_is_read_elsewhere_stays() -> None:
    b = Builder(np.int32)
    a = b.node("Cast", b.input("x", [9]), to=7)
    model = b.model(b.node("Cast", a, to=1), a)
    model.graph.output[0].type.tensor_type.elem_type = 1
    model.graph.output[1].type.tensor_type.elem_type = 7
    assert_stays(model, "is a graph output")


# --- what is allowed -----------------------------------------------------------------------------------------------------


def rounded(to: int, own: str = "float32") -> onnx.ModelProto:
    b = Builder(TYPES[own])
    return after(b, b.node("Cast", b.node("Cast", b.input("x", ["N", 9]), to=to), to=code(own)))


@pytest.mark.parametrize(("own", "to"), [("float32", 10), ("float64", 1), ("float64", 10)])
def test_a_shorter_float_goes_where_that_is_allowed(own: str, to: int) -> None:
    model = rounded(to, own)
    assert apply(RULES, model).ops == operators(model)
    result = apply([cast.merge_lossy_casts], model, allow_lossy_casts=True)
    assert result.ops == {"Neg": 1}
    bound = 1e-7 if to == 1 else 1e-3
    assert_equal(model, result.model, [{"N": 3}], bound)


@pytest.mark.parametrize("to", [6, 7, 3, 9])
def test_what_integers_cut_off_stays_even_so(to: int) -> None:
    model = rounded(to)
    assert apply([cast.merge_lossy_casts], model, allow_lossy_casts=True).ops == operators(model)


def test_the_end_check_has_the_last_word_on_what_is_lost() -> None:
    """Half precision loses more than the end check allows: that takes a bound of one's own."""
    strict = sp.optimize(rounded(10), allow_lossy_casts=True)
    assert strict.after.operators["Cast"] == 2
    assert [(d.rule, d.status) for d in strict.undone] == [("merge_lossy_casts", "undone")]
    wide = sp.Verify(tolerances=sp.Tolerances(end=1e-3))
    loose = sp.optimize(rounded(10), allow_lossy_casts=True, verify=wide)
    assert loose.after.operators == {"Neg": 1} and loose.check.status == "equal"
    assert 1e-5 < loose.check.error < 1e-3


# --- drawn ---------------------------------------------------------------------------------------------------------------


@property_of("drop_cast", "merge_casts")
@DRAWN
@given(
    own=st.sampled_from([t for t in TYPES if WIDER[t]]),
    last=st.sampled_from(list(TYPES)),
    size=st.integers(1, 4),
    data=st.data(),
)
def test_any_casts_that_lose_nothing(own: str, last: str, size: int, data: Any) -> None:
    first = data.draw(st.sampled_from(WIDER[own].split()))
    b = Builder(TYPES[own], opset=13)
    x = b.node("Cast", b.input("x", ["K", size]), to=code(own))
    y = b.node("Cast", b.node("Cast", x, to=code(first)), to=code(last))
    model = b.model(b.node("Concat", y, y, axis=1), dtype=TYPES[last])
    found = apply([cast.drop_cast, cast.merge_casts], model)
    narrow = np.dtype(TYPES[last]).kind in "iu" and last not in (own, *WIDER[own].split())
    through = np.dtype(TYPES[own]).kind in "iu" and np.dtype(TYPES[first]).kind == "f" and narrow
    assert found.ops["Cast"] == (2 if through else 0 if last == own else 1), found.reasons
    assert_equal(model, found.model, [{}], 0, feeds={"x": np.stack([every_kind(TYPES[own])] * size, 1)})


@property_of("merge_lossy_casts")
@DRAWN
@given(shape=SHAPES, own=st.sampled_from(["float32", "float64"]), last=FLOATS)
def test_any_shorter_float(shape: Any, own: str, last: Any) -> None:
    b = Builder(TYPES[own])
    a = b.node("Cast", b.input("x", shape), to=10)
    model = after(b, b.node("Cast", a, to=code(np.dtype(last).name)), dtype=last)
    result = apply([cast.merge_lossy_casts], model, allow_lossy_casts=True)
    assert result.ops == ({"Neg": 1} if np.dtype(last).name == own else {"Cast": 1, "Neg": 1})
    assert_equal(model, result.model, tolerance=2e-3)


@declines("merge_lossy_casts")
def test_a_shorter_float_stays_where_that_is_not_allowed() -> None:
    assert_stays(rounded(10), "allow_lossy_casts lets it go", [cast.merge_lossy_casts])


@declines("drop_cast")
def test_a_cast_of_an_unknown_type_stays() -> None:
    model = graph_model("g (float[N] x) => (float[N] y) { a = own.Odd(x) b = Cast<to = 1>(a) y = Neg(b) }", 17, own=1)
    assert_stays(model, "the type of 'a' is unknown", [cast.drop_cast])
