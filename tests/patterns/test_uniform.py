"""Tensors that are one number or count up: what is seen through, and what is not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import surgeon_passes as sp
from surgeon_passes.patterns import counting, uniform
from surgeon_passes.runtime import Session
from tests.models import run

from .covering import declines, property_of
from .harness import Builder, apply, assert_equal
from .moves import DRAWN, FLOATS, assert_becomes, assert_stays
from .moves import SHAPES as DIMS
from .test_reshape import dims


def optimized(body: str, signature: str, sizes: list[dict[str, Any]]) -> sp.Result:
    """Strictly verified, and the same to the bit at each of ``sizes``."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {signature} {body}')
    onnx.checker.check_model(model)
    result = sp.optimize(model, verify=sp.Verify(data=lambda: sizes))
    assert result.exit_code == 0, result.report()
    for feeds in sizes:
        for name, value in Session(result.proto).run(feeds).items():
            np.testing.assert_array_equal(value, run(model, **feeds)[name])
    return result


def rules(result: sp.Result) -> Counter[str]:
    return Counter(d.rule for d in result.applied)


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SHAPES = [{"x": floats(2, 3)}, {"x": floats(1, 1)}, {"x": floats(5, 4)}]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Min", "Max"])
@pytest.mark.parametrize("order", ["x, c", "c, x"])
def test_one_number_is_a_scalar(op: str, order: str) -> None:
    body = f"{{ s = Shape(x) c = ConstantOfShape<value = float[1] {{3.0}}>(s) y = {op}({order}) }}"
    result = optimized(body, "(float[N,M] x) => (float[N,M] y)", SHAPES)
    assert rules(result)["use_scalar"] == 1
    assert [n.op_type for n in result.proto.graph.node if n.op_type != "Constant"] == [op]


def test_a_number_that_enlarges_the_result_stays() -> None:
    body = "{ s = Shape(w) c = ConstantOfShape<value = float[1] {3.0}>(s) y = Add(x, c) }"
    sizes = [{"x": floats(1, 3), "w": floats(2, 3)}, {"x": floats(1, 3), "w": floats(4, 3)}]
    result = optimized(body, "(float[1,3] x, float[N,3] w) => (float[N,3] y)", sizes)
    assert "use_scalar" not in rules(result)


def test_what_is_not_one_number_stays() -> None:
    body = """{ zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>()
        s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) f = Cast<to = 1>(r) y = Add(x, f) }"""
    assert "use_scalar" not in rules(optimized(body, "(float[N,M] x) => (float[N,M] y)", SHAPES))


@pytest.mark.parametrize(
    ("op", "value", "gone"), [("And", 1, True), ("And", 0, False), ("Or", 0, True), ("Or", 1, False)]
)
def test_masks(op: str, value: int, gone: bool) -> None:
    body = f"""{{ z = Constant<value = float {{0.0}}>() b = Greater(x, z) s = Shape(x)
        t = ConstantOfShape<value = bool[1] {{{value}}}>(s) y = {op}(t, b) }}"""
    result = optimized(body, "(float[N,M] x) => (bool[N,M] y)", SHAPES)
    assert (rules(result)["drop_neutral_mask"] == 1) is gone


RNN = "(float[S,N,2] x, float[1,3,2] w, float[1,3,3] r) => (float[1,N,3] y)"
CALL = "all, y = RNN<hidden_size = 3>(x, w, r, , , h)"
BATCH = """one = Constant<value = int64 {1}>() at = Constant<value = int64[1] {0}>()
    d = Constant<value = int64[1] {1}>() k = Constant<value = int64[1] {3}>()
    s = Shape(x) n = Gather(s, one) b = Unsqueeze(n, at) size = Concat<axis = 0>(d, b, k)"""


def steps(seed: int, *shape: int) -> dict[str, Any]:
    return {"x": floats(*shape, seed=seed), "w": floats(1, 3, 2), "r": floats(1, 3, 3)}


@pytest.mark.parametrize(("value", "gone"), [("0.0", True), ("0.5", False)])
def test_initial_states(value: str, gone: bool) -> None:
    body = f"{{ {BATCH} h = ConstantOfShape<value = float[1] {{{value}}}>(size) {CALL} }}"
    result = optimized(body, RNN, [steps(0, 4, 2, 2), steps(1, 1, 1, 2)])
    assert (rules(result)["drop_zero_state"] == 1) is gone
    assert (result.after.operators["ConstantOfShape"] == 0) is gone


def test_a_state_of_negative_zeros_stays() -> None:
    body = f"{{ {BATCH} h = ConstantOfShape<value = float[1] {{-0.0}}>(size) {CALL} }}"
    assert "drop_zero_state" not in rules(optimized(body, RNN, [steps(0, 4, 2, 2)]))


MASKED = """{{ first = Constant<value = int64 {{0}}>() second = Constant<value = int64 {{1}}>()
    step = Constant<value = int64 {{1}}>() a0 = Constant<value = int64[1] {{0}}>()
    a1 = Constant<value = int64[1] {{1}}>() flat = Constant<value = int64[1] {{-1}}>()
    s = Shape(x) n = Gather(s, first) m = Gather(s, second)
    rows = Range(first, n, step) columns = Range({start}, m, step)
    r = Unsqueeze(rows, a1) c = Unsqueeze(columns, a0) far = Mul(r, m) i = Add(far, c)
    f = Reshape(x, flat) y = Gather(f, i) }}"""


def test_a_gather_of_everything_is_no_gather() -> None:
    sizes = [{"x": floats(2, 4)}, {"x": floats(1, 4)}]
    result = optimized(MASKED.format(start="first"), "(float[N,4] x) => (float[N,4] y)", sizes)
    assert result.after.operators["Gather"] == 0 and result.after.operators["Range"] == 0


def test_a_gather_of_a_part_stays() -> None:
    """Columns from 1 on: one less than there are."""
    sizes = [{"x": floats(2, 3)}, {"x": floats(5, 4)}]
    result = optimized(MASKED.format(start="step"), "(float[N,M] x) => (float[N,L] y)", sizes)
    assert "gather_all_as_reshape" not in rules(result) and result.after.operators["Gather"] >= 1


def test_sizes_that_32_bits_may_not_hold_are_unknown() -> None:
    """3000 times 1,000,000 wraps: the mask is not true everywhere, though no size that is tried shows it."""
    body = """{ zero = Constant<value = int32 {0}>() one = Constant<value = int32 {1}>()
        million = Constant<value = int32 {1000000}>() at = Constant<value = int64 {0}>()
        s = Shape(c) n = Gather(s, at) k = Cast<to = 6>(n)
        r = Range(zero, k, one) q = Mul(r, million) t = GreaterOrEqual(q, zero) y = And(t, c) }"""
    sizes = [{"c": np.ones(4, bool)}, {"c": np.ones(3000, bool)}]
    result = optimized(body, "(bool[N] c) => (bool[N] y)", sizes)
    assert result.after.operators["And"] == 1


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_zeros_keep_their_sign(op: str) -> None:
    body = f"""{{ s = Shape(x) one = Constant<value = float {{1.0}}>() c = ConstantOfShape<value = float[1] {{0.0}}>(s)
        m = {op}(c, x) y = Div(one, m) }}"""
    zeros = [{"x": np.array([-0.0, 0.0, -1.0, 2.0], np.float32)}, {"x": np.array([-0.0], np.float32)}]
    assert "use_scalar" not in rules(optimized(body, "(float[N] x) => (float[N] y)", zeros))


def test_a_negative_zero_is_cast_to_one() -> None:
    body = """{ s = Shape(x) z = ConstantOfShape<value = float[1] {-0.0}>(s) d = Cast<to = 11>(z)
        one = Constant<value = double {1.0}>() e = Add(d, d) y = Div(one, e) }"""
    optimized(body, "(float[N] x) => (double[N] y)", [{"x": floats(3)}, {"x": floats(1)}])


# --- drawn ---------------------------------------------------------------------------------------------------------------


def full(b: Builder, value: Any, like: str, dtype: Any = None, start: int = 0) -> str:
    """One number everywhere, in the shape of ``like`` or its last dims."""
    fill = onnx.numpy_helper.from_array(np.array([value], dtype or b.dtype))
    at = [b.constant([start]), b.constant([9])]
    return str(b.node("ConstantOfShape", b.node("Slice", b.node("Shape", like), *at), value=fill))


SPREAD = ({"N": 2, "H": 3}, {"N": 1, "H": 1}, {"N": 0, "H": 2})


@property_of("use_scalar")
@DRAWN
@given(
    shape=DIMS.filter(lambda dims: "N" in dims),
    start=st.integers(0, 3),
    op=st.sampled_from(["Add", "Sub", "Mul", "Div", "Min", "Max", "Less", "GreaterOrEqual", "Equal"]),
    value=st.sampled_from([1.0, -2.5, 3.0]),
    front=st.booleans(),
    dtype=FLOATS,
)
def test_any_one_number(shape: Any, start: int, op: str, value: float, front: bool, dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", shape)
    c = full(b, value, x, start=min(start, shape.index("N")))  # else all of it is known
    y = b.node("Cast", b.node(op, *((c, x) if front else (x, c))), to=1)
    model = b.model(y, dtype=np.float32)
    assert_becomes(model, rules=[uniform.use_scalar], sizes=SPREAD, Cast=1, **{op: 1})


@declines("use_scalar")
@pytest.mark.parametrize(
    ("op", "shape", "reason"), [("Add", [1, 3], "have the shape of"), ("Max", ["N", 3], "which zero wins")]
)
def test_numbers_that_stay(op: str, shape: Any, reason: str) -> None:
    b = Builder()
    y = b.node(op, b.input("x", shape), full(b, 0.0, b.input("w", ["N", 3])))
    assert_stays(b.model(y), reason, rules=[uniform.use_scalar])


@property_of("use_one_row")
@DRAWN
@given(
    start=st.integers(0, 1),
    op=st.sampled_from(["Add", "Mul"]),
    place=st.integers(-3, 2),
    rows=st.sampled_from([(4,), (1,), ()]),
    shared=st.booleans(),
    dtype=FLOATS,
)
def test_any_table_read_at_one_index(
    start: int, op: str, place: int, rows: tuple[int, ...], shared: bool, dtype: Any
) -> None:
    b = Builder(dtype)
    x, like = b.input("x", ["N", "T", 4][: 2 + len(rows)]), b.input("z", ["N", "T"])
    g = b.node("Gather", b.random(3, *rows), full(b, place, like, np.int64, start))
    model = b.model(b.node(op, x, g), *([b.node("Exp", b.node("ReduceSum", g, keepdims=0))] if shared else []))
    if shared:
        del model.graph.output[1].type.tensor_type.shape.dim[:]
    found = apply([uniform.use_one_row], model)
    assert found.applied == ["use_one_row"] and found.ops["Gather"] == int(shared), found.reasons
    assert_equal(model, found.model, ({"N": 2, "T": 3}, {"N": 1, "T": 1}), 0)


@declines("use_one_row")
@pytest.mark.parametrize(
    ("place", "shape", "reason"), [(3, ["N", "T", 4], "lies outside"), (1, ["T", 4], "have the shape of")]
)
def test_rows_that_stay(place: int, shape: Any, reason: str) -> None:
    b = Builder()
    x, like = b.input("x", shape), b.input("z", ["N", "T"])
    y = b.node("Add", x, b.node("Gather", b.random(3, 4), full(b, place, like, np.int64)))
    assert_stays(b.model(y, rank=3), reason, rules=[uniform.use_one_row])


@property_of("drop_zero_state", "drop_zero_lstm_state")
@DRAWN
@given(
    op=st.sampled_from(["GRU", "RNN"]),
    hidden=st.integers(1, 3),
    both=st.booleans(),
    states=st.sampled_from(["h", "c", "hc"]),
    bias=st.booleans(),
)
def test_any_zero_states(op: str, hidden: int, both: bool, states: str, bias: bool) -> None:
    directions = 2 if both else 1
    for kind, gates, zeros in ((op, 3 if op == "GRU" else 1, "h"), ("LSTM", 4, states)):
        b = Builder()
        x = b.input("x", ["S", "N", 2])
        names = [x, b.random(directions, gates * hidden, 2), b.random(directions, gates * hidden, hidden)]
        names += [b.random(directions, 2 * gates * hidden) if bias else "", ""]
        size = dims(b, x, directions, [1], hidden)
        for state in "hc" if kind == "LSTM" else "h":
            given_state = state not in zeros
            names.append(
                b.input(state, [directions, "N", hidden]) if given_state else str(b.node("ConstantOfShape", size))
            )
        attrs = {"hidden_size": hidden, "direction": "bidirectional" if both else "forward"}
        _, last = b.node(kind, *names, outputs=2, **attrs)
        model = b.model(last)
        found = apply([uniform.drop_zero_state, uniform.drop_zero_lstm_state], model)
        assert found.ops == {kind: 1}, found.reasons
        assert_equal(model, found.model, [{"S": 3, "N": 2}, {"S": 1, "N": 1}], 0)


@declines("drop_zero_state", "drop_zero_lstm_state")
def test_states_that_may_be_of_another_shape_stay() -> None:
    for kind, gates in (("RNN", 1), ("LSTM", 4)):
        b = Builder()
        x, like = b.input("x", ["S", "N", 2]), b.input("z", [1, "M", 3])
        names = [x, b.random(1, gates * 3, 2), b.random(1, gates * 3, 3), "", "", full(b, 0.0, like)]
        _, last = b.node(kind, *names, outputs=2, hidden_size=3)
        rules_of_states = [uniform.drop_zero_state, uniform.drop_zero_lstm_state]
        assert_stays(b.model(last), "does not certainly have the shape of a state", rules=rules_of_states)


@property_of("drop_neutral_mask", "drop_decided_where", "drop_true_part_of_mask")
@DRAWN
@given(shape=DIMS, start=st.integers(0, 3), op=st.sampled_from(["And", "Or"]), front=st.booleans(), dtype=FLOATS)
def test_any_decided_mask(shape: Any, start: int, op: str, front: bool, dtype: Any) -> None:
    start = min(start, len(shape))
    b = Builder(np.bool_)
    x = b.input("x", shape)
    t = full(b, op == "And", x, start=start)
    model = b.model(b.node("Not", b.node(op, *((t, x) if front else (x, t)))))
    assert_becomes(model, rules=[uniform.drop_neutral_mask], sizes=SPREAD, Not=1)
    b = Builder(dtype)
    p, q = b.input("p", shape), b.input("q", shape[start:])
    sides = (p, q) if op == "And" else (q, p)
    model = b.model(b.node("Neg", b.node("Where", full(b, op == "And", p, np.bool_, start), *sides)))
    assert_becomes(model, rules=[uniform.drop_decided_where], sizes=SPREAD, Neg=1)
    b = Builder(dtype)
    p = b.input("p", shape)
    c = b.input("c", shape[start:], np.bool_)
    assert_becomes(
        b.model(b.node("Neg", b.node("Where", c, p, p))), rules=[uniform.drop_decided_where], sizes=SPREAD, Neg=1
    )
    b = Builder(dtype)
    a, c = b.input("a", shape), b.input("c", shape[start:], np.bool_)
    t = full(b, True, a, np.bool_)
    k = b.node("And", *((t, c) if front else (c, t)))
    model = b.model(b.node("Add", a, b.node("Where", k, b.constant(0.0), b.constant(-100.0))))
    found = assert_becomes(model, rules=[uniform.drop_true_part_of_mask], sizes=SPREAD, Where=1, Add=1)
    assert "c" in {n for node in found.graph.node for n in node.input}


@declines("drop_neutral_mask", "drop_decided_where", "drop_true_part_of_mask")
def test_masks_that_enlarge_the_result_stay() -> None:
    b = Builder(np.bool_)
    y = b.node("And", full(b, True, b.input("w", ["N", 3])), b.input("x", [1, 3]))
    assert_stays(b.model(y), "does not certainly have the shape of", rules=[uniform.drop_neutral_mask])
    b = Builder()
    c = full(b, True, b.input("w", ["N", 3]), np.bool_)
    y = b.node("Where", c, b.input("p", [1, 3]), b.input("q", [1, 3]))
    assert_stays(b.model(y), "does not certainly have the shape of", rules=[uniform.drop_decided_where])
    b = Builder()
    a, w = b.input("a", [1, 3]), b.input("w", ["N", 3])
    k = b.node("And", full(b, True, w, np.bool_), b.input("c", [1, 3], np.bool_))
    y = b.node("Add", a, b.node("Where", k, b.constant(0.0), b.constant(-100.0)))
    assert_stays(b.model(y), "does not certainly have the shape of", rules=[uniform.drop_true_part_of_mask])


# --- what counts up ------------------------------------------------------------------------------------------------------


def count(b: Builder, x: str, axis: int = 0) -> str:
    """0, 1 … to the size of x's axis."""
    number = b.node("Gather", b.node("Shape", x), b.constant(np.int64(axis)))
    return str(b.node("Range", b.constant(np.int64(0)), number, b.constant(np.int64(1))))


KINDS = st.sampled_from([np.float32, np.float16, np.float64, np.int32, np.bool_])


@property_of("gather_all_as_reshape")
@DRAWN
@given(rest=st.lists(st.integers(1, 3), max_size=2), place=st.integers(0, 2), dtype=KINDS)
def test_any_gather_of_all_rows(rest: list[int], place: int, dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", ["N", *rest])
    i = count(b, x)
    i = b.node("Unsqueeze", i, b.constant([place])) if place < 2 else i
    y = b.node("Gather", x, i)
    model = b.model(b.node("Concat", y, y, axis=-1), rank=1 + len(rest) + (place < 2))
    found = apply([counting.gather_all_as_reshape], model)
    assert found.ops == {"Reshape": 1, "Concat": 1}, found.reasons
    assert_equal(model, found.model, [{"N": 4}, {"N": 1}], 0)


@declines("gather_all_as_reshape")
def test_a_gather_of_rows_of_unknown_size_stays() -> None:
    b = Builder()
    x = b.input("x", ["N", "H"])
    model = b.model(b.node("Gather", x, b.node("Unsqueeze", count(b, x), b.constant([0]))), rank=3)
    assert_stays(model, "more than one dim", rules=[counting.gather_all_as_reshape])


def pairs(b: Builder, x: str, rows: str, columns: str) -> str:
    """x[rows, columns] over the grid of both."""
    shape, end = b.node("Shape", x), b.constant([2])
    i = b.node("Expand", b.node("Unsqueeze", rows, b.constant([1])), shape)
    j = b.node("Expand", b.node("Unsqueeze", columns, b.constant([0])), shape)
    both = b.node("Concat", b.node("Unsqueeze", i, end), b.node("Unsqueeze", j, end), axis=-1)
    return str(b.node("GatherND", x, both))


@property_of("gather_whole_rows")
@DRAWN
@given(shape=st.sampled_from([["N", 3], ["N", 2], [2, "H"], [3, 2]]), dtype=KINDS)
def test_any_gather_of_all_pairs(shape: list[Any], dtype: Any) -> None:
    b = Builder(dtype)
    x = b.input("x", shape)
    y = pairs(b, x, count(b, x, 0), count(b, x, 1))
    model = b.model(b.node("Concat", y, y, axis=-1))
    found = apply([counting.gather_whole_rows], model)
    assert found.ops == {"Reshape": 1, "Concat": 1}, found.reasons
    assert_equal(model, found.model, [{"N": 4, "H": 3}, {"N": 1, "H": 1}], 0)


@declines("gather_whole_rows")
@pytest.mark.parametrize(
    ("rows", "columns", "reason"),
    [("constant", "count", "do not certainly count up from 0"), ("count", "constant", "not certainly all columns")],
)
def test_a_gather_of_other_pairs_stays(rows: str, columns: str, reason: str) -> None:
    b = Builder()
    x = b.input("x", ["N", 3])
    one = b.constant(np.array([1]))
    i, j = (count(b, x, k) if kind == "count" else one for k, kind in enumerate((rows, columns)))
    assert_stays(b.model(pairs(b, x, i, j)), reason, rules=[counting.gather_whole_rows])
