"""Sizes without a name: comparable inside, never told outside, never taken for another run's."""

from __future__ import annotations

import numpy as np
import onnx

import surgeon_passes as sp
from surgeon_passes.values import Partial
from surgeon_passes.values import dims as arithmetic
from tests.values.build import assert_holds, assert_shape_holds, dims, evaluator, model, run, text

ZERO, ONE = np.array([0]), np.array([1])


def unnamed(proto, **axes):
    """Take the names of these axes of inputs away."""
    for value in proto.graph.input:
        for axis in axes.get(value.name, ()):
            value.type.tensor_type.shape.dim[axis].Clear()
    return proto


def test_unnamed_dims_of_inputs_are_one_size_each():
    proto = unnamed(model("(float[A,3,B] x, float[C] y) => (s, t, m) { s = Shape(x) t = Concat<axis=2>(x, x) m = Relu(y) }"),
                    x=[0, 2], y=[0])  # fmt: skip
    ev = evaluator(proto)
    assert text(ev, "s") == ["x.0", "3", "x.2"]
    assert dims(ev, "t") == ["x.0", "3", "2*x.2"]
    assert dims(ev, "m") == ["y.0"]


def test_names_never_meet_declared_ones():
    proto = unnamed(model("(float[A,B] x, float[N,M] z) => (y) { y = Relu(x) }"), x=[0, 1])
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "x.0"
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "x.1_1"
    ev = evaluator(proto)
    assert dims(ev, "z") == ["x.0", "x.1_1"]
    assert dims(ev, "y") == ["x.0_1", "x.1"]


def test_onnx_carries_the_names_through_operators_without_a_shape_function():
    proto = unnamed(model('(float[A,B,4] x) => (w) { w = Einsum<equation="abc,adc->abd">(x, x) }'), x=[0, 1])
    assert dims(evaluator(proto), "w") == ["x.0", "x.1", "x.1"]


def test_sizes_that_only_the_data_tells_may_be_zero():
    ev = evaluator(model("(float[N] x) => (n) { z = NonZero(x) n = Shape(z) }"))
    assert text(ev, "n") == ["1", "~z.1"]
    (size,) = ev.value("n").elements[1:]
    assert arithmetic.at_least(size, 0)
    assert not arithmetic.at_least(size, 1)
    assert arithmetic.at_least(arithmetic.symbol("N"), 1)
    assert arithmetic.at_least(arithmetic.add(size, 1), 1)


def test_equal_unknown_sizes_are_equal_and_others_are_not():
    ev = evaluator(model("(float[N] x, float[M] w) => (same, other) { z = NonZero(x) k = Cast<to=1>(z) v = NonZero(w) "
                         "s = Shape(k) t = Shape(z) u = Shape(v) same = Equal(s, t) other = Equal(s, u) }"))  # fmt: skip
    assert ev.value("same").tolist() == [True, True]
    assert text(ev, "other") == ["1", "?"]


def test_a_size_of_zero_is_held_against_the_runtime():
    proto = model("(float[N] x) => (y, s, q) { z = NonZero(x) s = Shape(z) c = ConstantOfShape(s) y = Concat<axis=1>(c, c) "
                  "q = Max(s, two) }", two=np.array([2]))  # fmt: skip
    ev = evaluator(proto)
    for x in ([0.0, 0, 0], [1.0, 0, 2], [1.0, 1, 1]):
        y, s, q = run(proto, {"x": np.array(x, np.float32)})
        sizes = {"N": 3}
        assert_holds(ev.value("s"), s, sizes)
        assert_holds(ev.value("q"), q, sizes)
        assert_shape_holds(ev.types.type_of(ev.tensor("y")).shape, y.shape, sizes)
    assert dims(ev, "y") == ["1", "2*~z.1"]
    assert text(ev, "q") == ["2", "max(2, ~z.1)"] or text(ev, "q") == ["2", "max(~z.1, 2)"]


def test_bodies_get_no_names_and_none_leaves_them():
    proto = model("(float[N,4] x, bool c, int64 n, bool t) => (y, v) {"
                  "y = If(c) <then_branch = a () => (p) { z1 = NonZero(x) p = Shape(z1) },"
                  "else_branch = b () => (q) { q = Shape(x) }> "
                  "s = Shape(x) v = Loop(n, t, s) <body = d (int64 i, bool e, int64[2] w) => (e2, w2) {"
                  " e2 = Identity(e) z2 = NonZero(x) w2 = Shape(z2) }> }")  # fmt: skip
    ev = evaluator(proto)
    for name in ("z1", "z2"):
        assert dims(ev, name) == ["2", "?"]
    assert ev.value("y") is None
    assert ev.value("v") is None
    assert text(ev, "p") == ["2", "?"]


def test_an_outer_size_is_the_same_in_every_turn():
    proto = model("(float[N,4] x, int64 n, bool t) => (v) { z = NonZero(x) s = Shape(z) v = Loop(n, t, s) <"
                  "body = d (int64 i, bool e, int64[2] w) => (e2, w2) { e2 = Identity(e) w2 = Shape(z) }> }")  # fmt: skip
    ev = evaluator(proto)
    assert text(ev, "v") == ["2", "~z.1"]


def dim_params(proto):
    values = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    return {d.dim_param for v in values for d in v.type.tensor_type.shape.dim if d.dim_param}


def test_no_invented_name_is_written():
    nodes = "r = Relu(x) z = NonZero(r) k = Cast<to=1>(z) l = Exp(k) y = Neg(l) h = Flatten(r) j = Sin(h) w = Cos(j)"
    proto = unnamed(model(f"(float[A,3,B] x) => (float[P,Q] y, float[U,V] w) {{ {nodes} }}"), x=[0, 2])
    ev = evaluator(proto)
    ev.types.store()
    assert ev.tensor("h").shape == [None, None]
    assert ev.tensor("r").shape == [None, 3, None]
    result = sp.optimize(proto)
    onnx.checker.check_model(result.proto)
    assert dim_params(result.proto) == {"Q", "U", "V"}  # P is 1
    assert [d.WhichOneof("value") for d in result.proto.graph.input[0].type.tensor_type.shape.dim] == [
        None,
        "dim_value",
        None,
    ]
    again = sp.optimize(result.proto)
    assert again.proto.graph.node == result.proto.graph.node


def test_unnamed_dims_make_shape_arithmetic_lean():
    proto = unnamed(
        model("(float[A,B,8] x) => (float[P,Q,R] y) { s = Shape(x) e = Exp(x) y = Reshape(e, s) }"), x=[0, 1]
    )
    result = sp.optimize(proto)
    assert [n.op_type for n in result.proto.graph.node] == ["Exp"]
    assert {d.verdict for d in result.applied} == {"verified"}
    feeds = {"x": np.linspace(-1, 1, 48, dtype=np.float32).reshape(2, 3, 8)}
    np.testing.assert_array_equal(run(result.proto, feeds)[0], run(proto, feeds)[0])


def test_partials_with_unnamed_sizes_evaluate_like_any():
    value = evaluator(model("(float[N] x) => (n) { z = NonZero(x) n = Shape(z) }")).value("n")
    assert isinstance(value, Partial)
    assert value.evaluate({"~z.1": 0}).tolist() == [1, 0]
