"""If and Loop: values and shapes of what they give, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import surgeon_passes as sp
from surgeon_passes.values import Evaluator, Partial
from surgeon_passes.values.bodies import MAX_TASKS, BodySolver
from surgeon_passes.values.loops import MAX_TURNS
from tests.values.build import assert_holds, assert_same, assert_shape_holds, dims, evaluator, model, run, text

I64 = np.int64
ZERO, ONE, TWO, THREE = (np.array(v) for v in (0, 1, 2, 3))
TRUE, FALSE = np.array(True), np.array(False)

# --- If ------------------------------------------------------------------------------------------------------------------

IF = ("(float[N,3] x) => (y, z) {{ s = Shape(x) d = Gather(s, one) c = Equal(d, {wanted}) y, z = If(c) <"
      "then_branch = a () => (p, q) {{ p = Mul(s, two) q = Relu(x) }},"
      "else_branch = b () => (r, t) {{ r = Neg(two) t = Concat<axis=0>(x, x) }}> }}")  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "value", "shape"), [("three", ["2*N", "6"], ["N", "3"]), ("two", ["-2"], ["2*N", "3"])]
)
def test_a_known_condition_takes_its_branch(wanted, value, shape):
    constants = {"one": ONE, "two": np.array([2]), "three": THREE} if wanted == "three" else {"one": ONE, "two": [2]}
    proto = model(IF.format(wanted=wanted), **constants)
    ev = evaluator(proto)
    assert text(ev, "y") == value
    assert dims(ev, "y") == [str(len(value))]
    assert dims(ev, "z") == shape
    for n in (1, 4):
        y, z = run(proto, {"x": np.ones((n, 3), np.float32)})
        assert_holds(ev.value("y"), y, {"N": n})
        assert z.shape == (2 * n if wanted == "two" else n, 3)


def test_what_both_branches_give_is_known_without_the_condition():
    proto = model("(bool c, float[N,3] x) => (y) { s = Shape(x) y = If(c) <"
                  "then_branch = a () => (p) { p = Identity(s) },"
                  "else_branch = b () => (r) { h = Mul(s, two) r = Div(h, three) }> }",
                  two=np.array([2, 5]), three=np.array([2, 3]))  # fmt: skip
    ev = evaluator(proto)
    assert text(ev, "y") == ["N", "?"]
    for flag in (True, False):
        (found,) = run(proto, {"c": np.array(flag), "x": np.ones((5, 3), np.float32)})
        assert_holds(ev.value("y"), found, {"N": 5})


def test_floats_of_two_branches_agree_only_bit_by_bit():
    text_ = ("(bool c) => (y, z) {{ y, z = If(c) <"
             "then_branch = a () => (p, q) {{ p = Constant<value_float=0.0>() q = Constant<value_float=1.5>() }},"
             "else_branch = b () => (r, t) {{ r = Constant<value_float={}>() t = Constant<value_float=1.5>() }}>}}"
             )  # fmt: skip
    ev = evaluator(model(text_.format("-0.0")))
    assert ev.value("y") is None
    assert_same(ev.value("z"), np.float32(1.5).reshape(()))
    assert evaluator(model(text_.format("0.0"))).value("y").tolist() == 0.0


def test_nested_ifs_and_captures_of_captures():
    proto = model("(float[N,4] x) => (y) { s = Shape(x) y = If(t) <"
                  "then_branch = a () => (p) { k = Add(s, one) p = If(f) <"
                  "  then_branch = c () => (u) { u = Identity(one) },"
                  "  else_branch = d () => (v) { v = Concat<axis=0>(k, s) }> },"
                  "else_branch = b () => (r) { r = Identity(s) }> }",
                  t=TRUE, f=FALSE, one=np.array([1]))  # fmt: skip
    ev = evaluator(proto)
    assert text(ev, "y") == ["N + 1", "5", "N", "4"]
    assert_holds(ev.value("y"), run(proto, {"x": np.ones((7, 4), np.float32)})[0], {"N": 7})


def test_the_cone_of_an_if_holds_what_its_branches_read():
    ev = evaluator(model("(float[N,4] x) => (y) { s = Shape(x) k = Neg(s) u = Abs(x) y = If(t) <"
                         "then_branch = a () => (p) { p = Neg(k) },"
                         "else_branch = b () => (r) { v = Cast<to=7>(u) r = Shape(v) }> }", t=TRUE))  # fmt: skip
    assert text(ev, "y") == ["N", "4"]
    assert [n.op for n in ev.cone(ev.tensor("y"))] == ["Shape", "Neg", "If"]


# --- Loop ----------------------------------------------------------------------------------------------------------------


def loop(carried, body, trip="m", condition="t", scans=0, inputs="float[N,4] x", before="", **constants):
    """``carried``: {name: initial tensor}; the body makes ``c2``, ``<name>2`` and ``s0`` …"""
    names = list(carried)
    results = [*(f"{n}_out" for n in names), *(f"scan{k}" for k in range(scans))]
    inner = ", ".join(["c2", *(f"{n}2" for n in names), *(f"s{k}" for k in range(scans))])
    types = ", ".join(["int64 i", "bool c", *(f"{kind} {n}" for n, (kind, _) in carried.items())])
    operands = ", ".join([trip, condition, *(start for _, start in carried.values())])
    return model(f"({inputs}) => ({', '.join(results)}) {{ {before} {', '.join(results)} = Loop({operands}) <"
                 f"body = b ({types}) => ({inner}) {{ {body} }}> }}", **constants)  # fmt: skip


def check(proto, sizes, feeds):
    """Everything known of the outputs holds in ONNX Runtime; gives the evaluator."""
    ev = evaluator(proto)
    for output, found in zip(proto.graph.output, run(proto, feeds), strict=True):
        assert_shape_holds(ev.types.type_of(ev.tensor(output.name)).shape, found.shape, sizes)
        assert_holds(ev.value(output.name), found, sizes)
        assert ev.types.type_of(ev.tensor(output.name)).dtype == helper.np_dtype_to_tensor_dtype(found.dtype)
    return ev


def x_of(*shape):
    return np.ones(shape, np.float32)


def test_a_few_turns_are_run():
    proto = loop({"a": ("int64", "k0"), "v": ("int64[L]", "s")},
                 "c2 = Identity(c) a2 = Add(a, i) v2 = Concat<axis=0>(v, s) s0 = Mul(a, i)", scans=1,
                 before="s = Shape(x)", m=THREE, t=TRUE, k0=np.array(5))  # fmt: skip
    ev = check(proto, {"N": 6}, {"x": x_of(6, 4)})
    assert ev.value("a_out").tolist() == 8
    assert text(ev, "v_out") == ["N", "4"] * 4
    assert ev.value("scan0").tolist() == [0, 5, 12]
    assert dims(ev, "v_out") == ["8"]


def test_scan_outputs_of_symbols_are_stacked():
    proto = loop({"v": ("int64[2]", "s")}, "c2 = Identity(c) v2 = Mul(v, two) s0 = Identity(v)", scans=1,
                 before="s = Shape(x)", m=TWO, t=TRUE, two=TWO)  # fmt: skip
    ev = check(proto, {"N": 3}, {"x": x_of(3, 4)})
    assert text(ev, "scan0") == ["N", "4", "2*N", "8"]
    assert ev.value("scan0").shape == (2, 2)


def test_the_condition_ends_the_loop():
    proto = loop({"a": ("int64", "k0")}, "a2 = Mul(a, two) c2 = Less(a2, end) s0 = Identity(a2)", trip="", scans=1,
                 t=TRUE, k0=np.array(3), two=TWO, end=np.array(100))  # fmt: skip
    ev = check(proto, {"N": 1}, {"x": x_of(1, 4)})
    assert ev.value("a_out").tolist() == 192
    assert ev.value("scan0").tolist() == [6, 12, 24, 48, 96, 192]


def test_a_condition_that_is_known_by_symbols():
    proto = loop({"a": ("int64", "n")}, "a2 = Sub(a, n) c2 = Greater(a2, zero)", trip="", t=TRUE,
                 before="s = Shape(x) n = Gather(s, zero)", zero=ZERO)  # fmt: skip
    ev = check(proto, {"N": 5}, {"x": x_of(5, 4)})
    assert ev.value("a_out").tolist() == 0


@pytest.mark.parametrize(("m", "t"), [(ZERO, TRUE), (THREE, FALSE), (np.array(-2), TRUE)])
def test_no_turn_gives_the_initial_values_and_says_nothing_of_scans(m, t):
    proto = loop({"a": ("int64[2]", "s")}, "c2 = Identity(c) a2 = Add(a, a) s0 = Concat<axis=0>(a, a)", scans=1,
                 before="s = Shape(x)", m=m, t=t)  # fmt: skip
    ev = check(proto, {"N": 2}, {"x": x_of(2, 4)})
    assert text(ev, "a_out") == ["N", "4"]
    assert ev.value("scan0") is None


def test_the_condition_of_the_last_turn_does_not_matter():
    proto = loop({"a": ("int64", "k0")}, "f = ReduceSum<keepdims=0>(x) c2 = Cast<to=9>(f) a2 = Add(a, one)",
                 m=ONE, t=TRUE, k0=ONE, one=ONE)  # fmt: skip
    assert check(proto, {"N": 2}, {"x": x_of(2, 4)}).value("a_out").tolist() == 2


def test_a_condition_nobody_knows_leaves_what_no_turn_changes():
    proto = loop({"a": ("int64", "k0"), "v": ("int64[2]", "s"), "w": ("int64[2]", "s"), "y": ("float[P,Q]", "x")},
                 "f = ReduceSum<keepdims=0>(y) c2 = Cast<to=9>(f) a2 = Add(a, one) v2 = Identity(v) "
                 "w2 = Mul(w, half) y2 = Neg(y)", m=THREE, t=TRUE, before="s = Shape(x)",
                 k0=ONE, one=ONE, half=np.array([2, 1]))  # fmt: skip
    ev = check(proto, {"N": 2}, {"x": x_of(2, 4)})
    assert ev.value("a_out") is None
    assert text(ev, "v_out") == ["N", "4"]
    assert text(ev, "w_out") == ["?", "4"]
    assert dims(ev, "y_out") == ["N", "4"]


def test_a_swap_is_no_invariant():
    proto = loop({"a": ("int64[1]", "k1"), "b": ("int64[1]", "k2")}, "c2 = Identity(c) a2 = Identity(b) b2 = Identity(a)",
                 trip="n", inputs="float[N,4] x, int64 n", t=TRUE, k1=np.array([1]), k2=np.array([2]))  # fmt: skip
    for n in (0, 1, 2):
        ev = check(proto, {"N": 2}, {"x": x_of(2, 4), "n": np.array(n)})
    assert ev.value("a_out") is None
    assert dims(ev, "a_out") == ["1"]


def test_shapes_by_induction():
    """Kept dims stay, those that grow are open; the trip count leads what is scanned."""
    proto = loop({"y": ("float[P,Q]", "x"), "g": ("float[R,S]", "x")},
                 "c2 = Identity(c) y2 = Relu(y) g2 = Concat<axis=0>(g, x) s0 = Transpose(y) s1 = Identity(i)",
                 trip="n", scans=2, before="s = Shape(x) n = Gather(s, zero)", t=TRUE, zero=ZERO)  # fmt: skip
    for n in (1, 3):
        ev = check(proto, {"N": n}, {"x": x_of(n, 4)})
    assert dims(ev, "y_out") == ["N", "4"]
    assert dims(ev, "g_out")[1] == "4"
    assert dims(ev, "scan0") == ["N", "4", "N"]
    assert dims(ev, "scan1") == ["N"]


def test_where_there_may_be_no_turn_only_the_rank_of_a_scan_is_known():
    proto = loop({"y": ("float[P,Q]", "x")}, "c2 = Identity(c) y2 = Relu(y) s0 = Transpose(y)", scans=1,
                 trip="n", inputs="float[N,4] x, int64 n", t=TRUE)  # fmt: skip
    for n in (0, 2):
        ev = check(proto, {"N": 3}, {"x": x_of(3, 4), "n": np.array(n)})
    assert len(dims(ev, "scan0")) == 3


def test_shapes_that_change_with_the_turn_are_exact_where_the_turns_are_few():
    proto = loop({"y": ("float[P,Q]", "x")}, "c2 = Identity(c) y2 = Concat<axis=1>(y, x) s0 = Shape(y)", scans=1,
                 m=THREE, t=TRUE)  # fmt: skip
    ev = check(proto, {"N": 3}, {"x": x_of(3, 4)})
    assert dims(ev, "y_out") == ["N", "16"]
    assert text(ev, "scan0") == ["N", "4", "N", "8", "N", "12"]


def test_nested_loops_and_an_if_inside():
    proto = model("(float[N,4] x) => (a_out) { a_out = Loop(m, t, k0) <body = b (int64 i, bool c, int64 a) => (c2, a2) {"
                  "c2 = Identity(c) q = Loop(m, t, a) <body = d (int64 j, bool e, int64 p) => (e2, p2) {"
                  "  e2 = Identity(e) o = Equal(i, j) p2 = If(o) <then_branch = f () => (u) { u = Add(p, i) },"
                  "  else_branch = g () => (v) { v = Add(p, one) }> }> a2 = Mul(q, two) }> }",
                  m=THREE, t=TRUE, k0=ZERO, one=ONE, two=TWO)  # fmt: skip
    ev = check(proto, {"N": 1}, {"x": x_of(1, 4)})
    assert isinstance(ev.value("a_out"), np.ndarray)


def test_too_many_turns_are_not_run():
    def of(turns):
        return loop({"a": ("int64", "k0")}, "c2 = Identity(c) a2 = Add(a, one)", m=np.array(turns), t=TRUE,
                    k0=ZERO, one=ONE)  # fmt: skip

    assert evaluator(of(MAX_TURNS)).value("a_out").tolist() == MAX_TURNS
    assert evaluator(of(MAX_TURNS + 1)).value("a_out") is None


def test_work_is_bounded_over_nested_loops():
    depth = "a2 = Add(a, one)"
    for level in range(2):
        depth = (f"q{level} = Loop(m, t, a) <body = b{level} (int64 i{level}, bool c{level}, int64 a) => (d{level}, a2) "
                 f"{{ d{level} = Identity(c{level}) {depth} }}> a2 = Identity(q{level})")  # fmt: skip
    proto = loop({"a": ("int64", "k0")}, f"c2 = Identity(c) {depth}", m=np.array(50), t=TRUE, k0=ZERO, one=ONE)
    counted = []
    original = BodySolver._run

    def counting(self, kind, node):
        counted.append(node)
        original(self, kind, node)

    BodySolver._run = counting
    try:
        assert evaluator(proto).value("a_out") is None
    finally:
        BodySolver._run = original
    assert 0 < len(counted) <= 3 * 4 * (MAX_TASKS + 1)  # three Loops; values and types; by turns and by induction


def test_a_body_keeps_unknown_what_it_cannot_tell():
    """Nothing of one turn is told of another: the sizes that NonZero finds differ."""
    proto = loop({"v": ("int64[2]", "s")},
                 "f = Cast<to=1>(i) g = Mul(x, f) z = NonZero(g) c2 = Identity(c) v2 = Shape(z) s0 = Shape(z)", scans=1,
                 before="s = Shape(x)", m=TWO, t=TRUE)  # fmt: skip
    ev = check(proto, {"N": 3}, {"x": x_of(3, 4)})
    scan = ev.value("scan0")
    assert scan is None or scan.elements[0, 1] is None
    assert text(ev, "v_out")[0] == "2"


def test_functions_may_hold_loops():
    proto = loop({"a": ("int64", "k0")}, "c2 = Identity(c) a2 = my.twice(a)", m=THREE, t=TRUE, k0=ONE)
    proto.opset_import.append(helper.make_opsetid("my", 1))
    nodes = [helper.make_node("Add", ["p", "p"], ["q"])]
    proto.functions.append(helper.make_function("my", "twice", ["p"], ["q"], nodes, [helper.make_opsetid("", 18)]))
    assert evaluator(proto).value("a_out") is None


def test_a_broken_body_is_unknown_not_an_error():
    proto = loop({"a": ("int64[2]", "k0")}, "c2 = Identity(c) a2 = Gather(a, nine)", m=THREE, t=TRUE,
                 k0=np.array([1, 2]), nine=np.array([9]))  # fmt: skip
    assert evaluator(proto, strict=False).value("a_out") is None


def test_what_a_loop_and_an_if_compute_folds_and_is_verified():
    """A Reshape target that both make: the check runs them in ONNX Runtime."""
    proto = model("(float[N,4] x) => (float[P,Q] y) { s = Shape(x) w = Loop(m, t, s) <"
                  "body = b (int64 i, bool c, int64[2] v) => (c2, v2) { c2 = Identity(c) v2 = Mul(v, two) }> "
                  "u = If(t) <then_branch = a () => (p) { p = Div(w, k) }, else_branch = d () => (q) { q = Neg(w) }> "
                  "f = Exp(x) y = Reshape(f, u) }",
                  m=TWO, t=TRUE, two=np.array([1, 2]), k=np.array([1, 4]))  # fmt: skip
    result = sp.optimize(proto)
    assert [n.op_type for n in result.proto.graph.node] == ["Exp"]
    assert {d.verdict for d in result.applied} == {"verified"}
    (found,), (expected,) = run(result.proto, {"x": x_of(3, 4)}), run(proto, {"x": x_of(3, 4)})
    assert_same(found, expected)


# --- random loops --------------------------------------------------------------------------------------------------------

BODY_OPS = ["Add", "Sub", "Mul", "Max", "Min", "Mod"]
COMPARE = ["Less", "Greater", "LessOrEqual", "Equal"]


@st.composite
def random_loops(draw):
    """Loops of integer arithmetic over two carried scalars, the shape of x, and the iteration number."""
    trip = draw(st.one_of(st.none(), st.integers(0, 6)))
    initial = draw(st.sampled_from([True, True, True, False]))
    known = ["a", "b", "i", "n", "three"]
    nodes = []
    for k in range(draw(st.integers(1, 6))):
        op, left, right = draw(st.sampled_from(BODY_OPS)), draw(st.sampled_from(known)), draw(st.sampled_from(known))
        right = "three" if op == "Mod" else right
        nodes.append(helper.make_node(op, [left, right], [f"t{k}"]))
        known.append(f"t{k}")
    a2, b2, scan = (draw(st.sampled_from(known)) for _ in range(3))
    if trip is None or draw(st.booleans()):
        limit = draw(st.integers(-4, 5))
        against = "i" if trip is None else draw(st.sampled_from(known))
        nodes.append(helper.make_node("Constant", [], ["limit"], value_int=limit))
        nodes.append(
            helper.make_node("Less" if trip is None else draw(st.sampled_from(COMPARE)), [against, "limit"], ["c2"])
        )
    else:
        nodes.append(helper.make_node("Identity", ["c"], ["c2"]))
    nodes += [helper.make_node("Identity", [old], [new]) for old, new in ((a2, "a2"), (b2, "b2"), (scan, "s"))]
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes, "body",
        [value("i", 7, []), value("c", 9, []), value("a", 7, []), value("b", 7, [])],
        [value("c2", 9, []), value("a2", 7, []), value("b2", 7, []), value("s", 7, [])],
    )  # fmt: skip
    outer = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Loop", ["m" if trip is not None else "", "t", "one", "n"], ["ao", "bo", "so"], body=body),
    ]
    constants = [helper.make_tensor(n, 7, [], [v]) for n, v in (("zero", 0), ("one", 1), ("three", 3))]
    constants.append(helper.make_tensor("t", TensorProto.BOOL, [], [initial]))
    if trip is not None:
        constants.append(helper.make_tensor("m", 7, [], [trip]))
    outputs = [value("ao", 7, []), value("bo", 7, []), value("so", 7, [None])]
    graph = helper.make_graph(outer, "g", [value("x", 1, ["N", 4])], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_random_loops_hold_at_every_size():
    known = []

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(random_loops())
    def example(proto):
        ev = evaluator(proto)
        found = {o.name: ev.value(o.name) for o in proto.graph.output}
        for n in (1, 2, 7):
            for name, expected in zip(found, run(proto, {"x": x_of(n, 4)}), strict=True):
                assert_holds(found[name], expected, {"N": n})
        known.append(any(isinstance(v, (np.ndarray, Partial)) for v in found.values()))

    example()
    assert sum(known) > 0.6 * len(known)


def test_evaluating_a_loop_leaves_the_body_as_it_was():
    """What is true of one turn is not said of the body's own tensors."""
    proto = loop({"a": ("int64", "k0")}, "c2 = Identity(c) a2 = Add(a, one)", m=THREE, t=TRUE, k0=ZERO, one=ONE)
    ev: Evaluator = evaluator(proto)
    assert ev.value("a_out").tolist() == 3
    assert ev.value("a2") is None
