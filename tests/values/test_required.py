"""Ranks that readers require: what they tell of an If, and that what failed goes on failing, against ONNX Runtime."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import surgeon_passes as sp
from surgeon_passes.index import GraphIndex
from surgeon_passes.runtime import RuntimeFailure
from surgeon_passes.runtime import run as run_once
from surgeon_passes.values.required import GUARDS
from tests.values.build import dims, evaluator, model, text

F32 = np.float32
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 3, 4)).astype(F32)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FIRST = np.array([0])
WEIGHTS = {
    "w": RNG.standard_normal((1, 8, 3)).astype(F32),
    "r": RNG.standard_normal((1, 8, 2)).astype(F32),
    "m": RNG.standard_normal((3, 2)).astype(F32),
    "k": np.ones((3, 3, 1), F32),
    "first": FIRST,
    "last": np.array([-1]),
    "two": np.array(2),
}

MADE = ("y = If(c) <then_branch = a () => (p) { p = ReduceMax<keepdims=0>(x, last) },"
        "else_branch = b () => (q) { q = Relu(x) }>")  # fmt: skip
"""[N, 3] or [N, 3, T]"""
LSTM = "LSTM<hidden_size=2>"
GUARD = f"u = Unsqueeze(y, first) o, h = {LSTM}(u, w, r)"
"""fails unless y has rank 2"""
TEST = "s = Shape(y) n = Size(s) e = Equal(n, two)"
"""e: whether y has rank 2"""


def either(tail: str, made: str = MADE, outs: str = "out", opset: int = 18, **more: object) -> onnx.ModelProto:
    """``y`` has two ranks in two branches; ``tail`` reads it and makes ``outs``."""
    proto = model(f"(bool c, float[N,3,T] x) => ({outs}) {{ {made} {tail} }}", opset, **{**WEIGHTS, **more})
    for value in proto.graph.output:  # onnx's checker wants a type
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    return proto


def result_of(proto: onnx.ModelProto, flag: bool) -> list[np.ndarray] | None:
    """What ONNX Runtime gives; None where the run fails, but never where the model does not load."""
    try:
        return list(run_once(proto, {"c": np.array(flag), "x": X}).values())
    except RuntimeFailure as error:
        assert "running" in str(error), error
        return None


def optimize(proto: onnx.ModelProto) -> sp.Result:
    return sp.optimize(proto, verify=sp.Verify(data=lambda: [{"c": np.array(True), "x": X}]))


# --- which operators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "position"), [(op, p) for op, positions in GUARDS.items() for p in positions])
def test_the_table_says_on_which_ranks_onnx_runtime_fails(op, position):
    """All sizes are 1, so that nothing but the rank is wrong."""
    names, attrs = ("i", "j"), ""
    shapes = [(1, 1), (1, 1)]
    if op != "Gemm":
        names, attrs = ("i", "j", "k"), "<hidden_size=1>"
        shapes = [(1, 1, 1), (1, GATES[op], 1), (1, GATES[op], 1)]
    operands = ", ".join("v" if k == position else name for k, name in enumerate(names))
    arrays = {name: np.ones(shape, F32) for name, shape in zip(names, shapes, strict=True)}
    proto = model(f"(int64[R] t) => (o) {{ v = Reshape({names[position]}, t) o = {op}{attrs}({operands}) }}", **arrays)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    legal = set()
    for rank in range(6):
        shape = shapes[position]
        target = (
            [*[1] * (rank - len(shape)), *shape] if rank >= len(shape) else [*[1] * (rank - 1), math.prod(shape)][:rank]
        )
        if math.prod(target) != math.prod(shape):
            continue  # several elements are no scalar
        try:
            run_once(proto, {"t": np.array(target, np.int64)})
            legal.add(rank)
        except RuntimeFailure as error:
            assert f"running {op} node" in str(error)
    assert legal == set(GUARDS[op][position])


# --- what is told --------------------------------------------------------------------------------------------------------

TOLD = {
    "behind an Unsqueeze": f"{GUARD} out = Relu(h)",
    "elementwise on the way": f"e = Neg(y) i = Identity(e) u = Unsqueeze(i, first) s = Tanh(u) o, out = {LSTM}(s, w, r)",
    "axes as a Constant node": f"z = Constant<value_ints=[0]>() u = Unsqueeze(y, z) o, out = {LSTM}(u, w, r)",
    "Gemm has 2 dims at most": "out = Gemm(y, m)",
    "Gemm, second operand": "out = Gemm<transA=1>(m, y)",
    "behind a Transpose": "t = Transpose(y) out = Gemm<transA=1>(t, m)",
    "one reader of several": f"{GUARD} v = Exp(y) d = Shape<end=1>(v) f = Cast<to=1>(d) out = Add(h, f)",
    "an If on the way": f"{TEST} z = If(e) <then_branch = f () => (g) {{ g = Identity(y) }},"
    " else_branch = d () => (v) { v = Unsqueeze(y, first) }>"
    f" u = Unsqueeze(z, first) o, out = {LSTM}(u, w, r)",
    "a guard in each branch": "d = Not(c) out = If(d) <then_branch = f () => (g) { g = Gemm(y, m) },"
    f" else_branch = e () => (v) {{ {GUARD} v = Identity(o) }}>",
    "its result goes through an If": f"{GUARD} out = If(c) <then_branch = f () => (g) {{ g = Relu(h) }},"
    " else_branch = d () => (v) { v = Add(h, h) }>",
    "its result goes a long way": f"{GUARD} a1 = Squeeze(h, first) a2 = Transpose(a1) a3 = MatMul(a1, a2)"
    " a4 = Softmax(a3) out = Concat<axis=0>(a4, a3)",
}  # fmt: skip


@pytest.mark.parametrize("tail", TOLD.values(), ids=TOLD)
def test_the_rank_that_a_reader_requires_tells_the_branch(tail):
    proto = either(tail)
    ev = evaluator(proto)
    assert dims(ev, "y") == ["N", "3"]
    assert len(result_of(proto, True)) == 1
    assert result_of(proto, False) is None


@pytest.mark.parametrize("tail", TOLD.values(), ids=TOLD)
def test_what_failed_fails_in_the_result(tail):
    proto = either(tail)
    result = optimize(proto)
    assert result.check.status == "equal" and result.undone == []
    for before, after in zip(result_of(proto, True), result_of(result.proto, True), strict=True):
        np.testing.assert_array_equal(before, after)
    assert result_of(result.proto, False) is None


def test_with_the_rank_known_its_test_and_what_hangs_on_it_go():
    result = optimize(either(TOLD["an If on the way"]))
    assert [n.op_type for n in result.proto.graph.node] == ["If", "Unsqueeze", "LSTM"]


def test_axes_as_an_attribute():
    made = ("y = If(c) <then_branch = a () => (p) { p = ReduceMax<keepdims=0, axes=[-1]>(x) },"
            "else_branch = b () => (q) { q = Relu(x) }>")  # fmt: skip
    ev = evaluator(either(f"u = Unsqueeze<axes=[0]>(y) o, out = {LSTM}(u, w, r)", made, opset=11))
    assert dims(ev, "y") == ["N", "3"]


def test_a_squeeze_takes_dims_away():
    made = ("y = If(c) <then_branch = a () => (p) { p = Unsqueeze(x, first) },"
            "else_branch = b () => (q) { q = Relu(x) }>")  # fmt: skip
    ev = evaluator(either("v = Squeeze(y, first) t = Transpose(x) o, out = LSTM<hidden_size=2>(v, w2, r)", made,
                          w2=np.ones((1, 8, 4), F32)))  # fmt: skip
    assert dims(ev, "y") == ["1", "N", "3", "T"]


def test_an_axis_that_a_squeeze_names_twice_goes_once():
    made = ("y = If(c) <then_branch = a () => (p) { p = Unsqueeze(x, first) },"
            "else_branch = b () => (q) { q = Unsqueeze(x, both) }>")  # fmt: skip
    proto = either("v = Squeeze(y, twice) o, out = LSTM<hidden_size=2>(v, w2, r)", made, twice=np.array([0, 0]),
                   both=np.array([0, 1]), w2=np.ones((1, 8, 4), F32))  # fmt: skip
    assert len(result_of(proto, True)) == 1
    assert result_of(proto, False) is None
    assert dims(evaluator(proto), "y") == ["1", "N", "3", "T"]


def test_inside_a_branch_and_handed_out_of_it():
    inside = (
        f"out = If(c) <then_branch = g () => (h) {{ {MADE} {GUARD} }}, else_branch = d () => (v) {{ v = Relu(x) }}>"
    )
    assert dims(evaluator(either(inside, "")), "y") == ["N", "3"]
    handed = (f"z = If(c) <then_branch = g () => (y) {{ {MADE} }}, else_branch = d () => (v) {{ v = Relu(x) }}>"
              f" u = Unsqueeze(z, first) o, out = {LSTM}(u, w, r)")  # fmt: skip
    ev = evaluator(either(handed, ""))
    assert dims(ev, "y") == dims(ev, "z") == ["N", "3"]


def test_long_and_wide_ways_are_no_recursion():
    steps = " ".join(f"e{k + 1} = Neg(e{k}) f{k} = Exp(e{k})" for k in range(3000))
    tail = f"e0 = Identity(y) {steps} u = Unsqueeze(e3000, first) o, out = {LSTM}(u, w, r)"
    assert dims(evaluator(either(tail)), "y") == ["N", "3"]


def test_many_ifs_in_a_row_are_asked_once_each():
    steps = " ".join(
        f"e{k + 1} = If(c) <then_branch = t{k} () => (p{k}) {{ p{k} = Neg(e{k}) }},"
        f" else_branch = s{k} () => (q{k}) {{ q{k} = Exp(e{k}) }}>"
        for k in range(60)
    )
    tail = f"e0 = Identity(y) {steps} u = Unsqueeze(e60, first) o, out = {LSTM}(u, w, r)"
    assert dims(evaluator(either(tail)), "y") == ["N", "3"]


def test_the_many_readers_of_a_tensor_are_looked_up_once():
    readers = " ".join(
        f"e{k} = If(c) <then_branch = t{k} () => (p{k}) {{ p{k} = Neg(y) }},"
        f" else_branch = s{k} () => (q{k}) {{ q{k} = Exp(y) }}>"
        for k in range(300)
    )
    proto = either(f"{readers} {GUARD} out = Relu(h)")
    ev = evaluator(proto)
    with mock.patch.object(GraphIndex, "consumers", autospec=True, side_effect=GraphIndex.consumers) as asked:
        assert dims(ev, "y") == ["N", "3"]
    assert sum(call.args[1].name == "y" for call in asked.call_args_list) == 1


# --- what is not ---------------------------------------------------------------------------------------------------------

LOOP = ("v = Loop(t, , x) <body = l (int64 i, bool g, float[N,3,T] before) => (on, after) { on = Identity(g)"
        f" u = Unsqueeze(y, first) o, h = {LSTM}(u, w, r) a = ReduceSum(h) after = Add(before, a) }}>"
        " out = Identity(v)")  # fmt: skip
NOT_TOLD = {
    "nobody requires a rank": "out = Relu(y)",
    "read by an output alone": "out = Identity(y)",
    "a reader in one branch": f"d = Not(c) out = If(d) <then_branch = f () => (g) {{ g = Relu(x) }},"
    f" else_branch = e () => (v) {{ {GUARD} v = Identity(o) }}>",
    "a reader in a branch, nothing required in the other": "d = Not(c) out = If(d) <then_branch = f () => (g)"
    f" {{ g = Relu(y) }}, else_branch = e () => (v) {{ {GUARD} v = Identity(o) }}>",
    "each branch another rank": "d = Not(c) out = If(d) <then_branch = f () => (g)"
    f" {{ g, l = {LSTM}(y, w4, r) }}, else_branch = e () => (v) {{ {GUARD} v = Identity(o) }}>",
    "a reader in a Loop": LOOP,
    "a dead reader": f"{GUARD} out = Relu(x)",
    "only the size of its result counts": f"{GUARD} s = Shape(o) out = Cast<to=1>(s)",
    "its result may be left out": f"{GUARD} v = ReduceMean(o) out = Where(c, x, v)",
    "its result may be multiplied by zero": f"{GUARD} v = ReduceMean(o) i = Cast<to=7>(v) n = Mul(i, zero)"
    " out = Cast<to=1>(n)",
    "one branch leaves its result out": f"{GUARD} out = If(c) <then_branch = f () => (g) {{ g = Relu(h) }},"
    " else_branch = d () => (v) { v = Relu(x) }>",
    "the If gives something else besides": f"{GUARD} out, l = If(c) <then_branch = f () => (g, g2) {{ g = Relu(x)"
    " g2 = Relu(h) }, else_branch = d () => (v, v2) { v = Exp(x) v2 = Exp(h) }>",
    "an initial state": f"u = Unsqueeze(y, first) o, out = {LSTM}(x4, w, r, , , u)",
    "two operators that move dims": "u = Unsqueeze(y, first) v = Transpose<perm=[1, 0, 2]>(u)"
    f" o, out = {LSTM}(v, w, r)",
    "two in one branch": "z = If(c) <then_branch = f () => (g) { g = Identity(y) },"
    f" else_branch = d () => (v) {{ v = Transpose(y) }}> u = Unsqueeze(z, first) o, out = {LSTM}(u, w3, r)",
    "two in the other": "z = If(c) <then_branch = d () => (v) { v = Transpose(y) },"
    f" else_branch = f () => (g) {{ g = Identity(y) }}> u = Unsqueeze(z, first) o, out = {LSTM}(u, w3, r)",
    "axes that are an input": f"u = Unsqueeze(y, axes) o, out = {LSTM}(u, w, r)",
    "axes that may be one": f"v = Squeeze(y, ends) o, out = {LSTM}(v, w, r)",
    "both ranks are legal": "v = ReduceMax<keepdims=0>(y, last) out = Gemm(v, m)",
    "an operator of somebody else": "out = com.somebody.LSTM(y)",
}  # fmt: skip


@pytest.mark.parametrize("tail", NOT_TOLD.values(), ids=NOT_TOLD)
def test_what_does_not_fail_for_certain_tells_nothing(tail):
    more = {
        "t": np.array(0),
        "zero": np.array(0),
        "w3": np.ones((1, 8, 3), F32),
        "w4": np.ones((1, 8, 4), F32),
        "x4": np.ones((1, 3, 3), F32),
    }
    more["ends"] = np.array([0, -1])
    head = "(bool c, float[N,3,T] x, int64[1] axes) => (out) {"
    proto = model(f"{head} {MADE} {tail} }}", **{**WEIGHTS, **more})
    assert dims(evaluator(proto), "y") is None


def test_each_reader_takes_ranks_away():
    made = ("y = If(c) <then_branch = a () => (p) { p = ReduceMax<keepdims=0>(x, both) },"
            "else_branch = b () => (q) { q = ReduceMax<keepdims=0>(x, last) }>")  # fmt: skip
    second = "f = Gemm(y, m) g = Gemm<transA=1>(m, y) h = Add(f, x2)"
    ends = {"both": np.array([0, -1]), "x2": np.ones((1, 2), F32)}
    assert dims(evaluator(either(f"{second} out = MatMul(g, h)", made, **ends)), "y") == ["N", "3"]
    hidden = f"u = Unsqueeze(y, first) v = Transpose<perm=[1, 0, 2]>(u) o, l = {LSTM}(v, w, r) f = Gemm(y, m)"
    assert dims(evaluator(either(f"{hidden} out = Add(l, f)", made, **ends)), "y") is None


def test_the_product_of_a_vector_is_left_to_the_runtime():
    made = ("y = If(c) <then_branch = a () => (p) { p = ReduceMax<keepdims=0>(x, both) },"
            "else_branch = b () => (q) { q = Relu(x) }>")  # fmt: skip
    proto = either("out = Gemm(y, m) s = Shape(out)", made, both=np.array([0, -1]))
    ev = evaluator(proto)
    assert dims(ev, "y") == ["3"]
    assert result_of(proto, True)[0].shape == (1, 2)
    assert text(ev, "s") != ["3", "2"]


def test_axes_that_a_caller_may_override_tell_nothing():
    proto = either(f"{GUARD} out = Relu(h)")
    proto.graph.input.append(helper.make_tensor_value_info("first", TensorProto.INT64, [1]))
    assert dims(evaluator(proto), "y") is None


def test_a_reader_in_a_function_tells_nothing():
    proto = either("out = com.somebody.F(y, first, w, r)")
    function = onnx.parser.parse_function(
        '<domain: "com.somebody", opset_import: ["" : 18]> F (v, first, w, r) => (h)'
        f" {{ u = Unsqueeze(v, first) o, h = {LSTM}(u, w, r) }}"
    )
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("com.somebody", 1))
    assert dims(evaluator(proto), "y") is None


def test_equal_ranks_are_joined_whatever_readers_require():
    made = ("y = If(c) <then_branch = a () => (p) { p = ReduceMax<keepdims=0>(x, last) },"
            "else_branch = b () => (q) { q = ReduceMax<keepdims=0>(x, first) }>")  # fmt: skip
    assert dims(evaluator(either(f"{GUARD} out = Relu(h)", made)), "y") == ["~y.0", "~y.1"]
    both_wrong = ("y = If(c) <then_branch = a () => (p) { p = Unsqueeze(x, first) },"
                  "else_branch = b () => (q) { q = Relu(x) }>")  # fmt: skip
    assert dims(evaluator(either(f"{GUARD} out = Relu(h)", both_wrong)), "y") is None


# --- what a file states --------------------------------------------------------------------------------------------------

BESIDE = {
    "in a branch": f"{GUARD} z = If(c) <then_branch = f () => (g) {{ g = Relu(y) }},"
    " else_branch = d () => (v) { v = Conv(y, k) }>",
    "computed in between": f"{GUARD} y2 = Exp(y) z = If(c) <then_branch = f () => (g) {{ g = Relu(y2) }},"
    " else_branch = d () => (v) { v = Conv(y2, k) }>",
    "handed out of a branch": f"{GUARD} y2 = If(c) <then_branch = f () => (g) {{ g = Exp(y) }},"
    " else_branch = d () => (v) { v = Neg(y) }> z = If(c) <then_branch = f2 () => (g2) { g2 = Relu(y2) },"
    " else_branch = d2 () => (v2) { v2 = Conv(y2, k) }>",
}  # fmt: skip


@pytest.mark.parametrize("tail", BESIDE.values(), ids=BESIDE)
def test_a_branch_that_is_illegal_at_the_told_rank_still_loads(tail):
    """It never runs in a run that gives results; were the rank stated, ONNX Runtime would refuse the model for it."""
    proto = either(tail, outs="h, z")
    result = optimize(proto)
    assert result.check.status == "equal" and result.undone == []
    for before, after in zip(result_of(proto, True), result_of(result.proto, True), strict=True):
        np.testing.assert_array_equal(before, after)
    assert result_of(result.proto, False) is None
    stated = {v.name for v in result.proto.graph.value_info if v.type.tensor_type.HasField("shape")}
    assert stated.isdisjoint({"y", "u", "y2"})
