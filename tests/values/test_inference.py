"""onnx's inference over a whole model."""

from __future__ import annotations

import numpy as np
import onnx

import surgeon_passes as sp
from surgeon_passes.index import GraphIndex
from surgeon_passes.model import import_model
from surgeon_passes.values.inference import model_types
from tests.models import floats, model, run, same


def test_values_of_one_branch_do_not_reach_into_another() -> None:
    """In onnx itself the Reshape of the second branch gets the bounds of the first one's Slice as its target."""
    proto = model(
        """g (bool c, float[N,2,H,W] x) => (float[A,B,C,D] y) {
        y = If(c)<
            then_branch = t () => (float[E,F,G,I] r) {
                k = Constant<value = int64[1] {0}>() e = Constant<value = int64[1] {4611686018427387904}>()
                b9 = Identity(e) r = Slice(x, k, b9)
            },
            else_branch = f () => (float[E,F,G,I] r) {
                s = Shape(x) i = Constant<value = int64 {0}>() n = Gather(s, i) z = Constant<value = int64[1] {0}>()
                u = Unsqueeze(n, z) m = Constant<value = int64[1] {-1}>() b9 = Concat<axis = 0>(u, m)
                flat = Reshape(x, b9) r = Reshape(flat, s)
            }>
    }"""
    )
    index = GraphIndex(import_model(proto).graph)
    types = model_types(index)
    (flat,) = (t for t in index.tensors() if t.name == "flat")
    entry = types.get(id(flat))
    assert entry is None or entry.shape is None or len(entry.shape) == 2
    result = sp.optimize(proto)
    onnx.checker.check_model(result.proto)
    for flag in (True, False):
        feeds = {"c": np.bool_(flag), "x": floats(1, 2, 3, 4)}
        same(run(proto, **feeds), run(result.proto, **feeds))


def test_types_of_tensors_with_one_name_in_several_scopes() -> None:
    proto = model("""g (bool c, float[2,3] x) => (float[A,B] y, int64[2] a) {
        y = If(c)<then_branch = t () => (float[E,F] r) { a = Transpose(x) r = Neg(a) },
                  else_branch = f () => (float[E,F] r) { a = Flatten<axis = 0>(x) r = Neg(a) }>
        a = Shape(x)
    }""")
    index = GraphIndex(import_model(proto).graph)
    types = model_types(index)
    shapes = [types[id(t)].shape for t in index.tensors() if t.name == "a"]
    assert sorted(map(str, shapes)) == sorted(map(str, [(3, 2), (1, 6), (2,)]))


SLICED = """
g (float[N,3,4] x, int64[1] start, bool c) => (int64[1] rank, float[N,3,4] o) <int64[1] end = {2}, int64[1] rest = {-1}> {
    s = Shape(x) h = Slice(s, start, end) t = Concat<axis=0>(h, rest) y = Reshape(x, t) sy = Shape(y) rank = Shape(sy)
    o = If(c) <then_branch = a () => (float[N,3,4] p) { p = Neg(x) }, else_branch = b () => (float[N,3,4] q) { q = Abs(x) }>
}"""


def test_a_slice_from_a_start_that_only_the_run_tells_is_not_taken_for_the_whole() -> None:
    """onnx propagates all three sizes as those of the slice: y would be known to be of rank 3."""
    original = model(SLICED, opset=17)
    result = sp.optimize(original, verify="off").proto
    for start, rank in ((0, 3), (1, 2), (2, 1)):
        feeds = {"x": floats(2, 3, 4), "start": np.array([start]), "c": np.array(True)}
        assert run(original, **feeds)["rank"] == [rank] == run(result, **feeds)["rank"]


def test_a_slice_in_a_body_may_begin_where_a_captured_constant_says() -> None:
    """Its rank was inferred wrongly, and contradicted the shape functions: an error that a sound model does not deserve."""
    text = """g (float[N,3,4] x, bool c) => (float[A,B] o) <int64[1] start = {1}> {
        o = If(c) <then_branch = a () => (float[A,B] y) <int64[1] end = {2}, int64[1] rest = {-1}> {
            s = Shape(x) h = Slice(s, start, end) t = Concat<axis=0>(h, rest) y = Reshape(x, t)
        }, else_branch = b () => (float[A,B] z) { z = Flatten(x) }>
    }"""
    original = model(text, opset=17)
    result = sp.optimize(original, verify="off").proto
    feeds = {"x": floats(2, 3, 4), "c": np.array(True)}
    assert run(result, **feeds)["o"].shape == (3, 8)
    same(run(original, **feeds), run(result, **feeds))


def test_defaults_that_callers_may_override_tell_no_shape() -> None:
    """onnx itself takes such a target for known, and what is behind it was folded for the default alone."""
    proto = model(
        """g (float[4,6] x, bool c, int64[2] t) => (int64[2] y, float[4,6] z) {
            a = Reshape(x, t) y = Shape(a)
            z = If(c)<then_branch = p () => (float[4,6] r) { r = Neg(x) },
                      else_branch = q () => (float[4,6] r) { r = Identity(x) }>
        }""",
        t=np.array([0, -1]),
    )
    result = sp.optimize(proto)
    for target in ([8, 3], [4, 6], [1, 24]):
        feeds = {"x": floats(4, 6), "c": np.bool_(True), "t": np.array(target)}
        found = run(result.proto, **feeds)
        assert found["y"].tolist() == target
        same(run(proto, **feeds), found)


def test_a_constant_that_is_an_output_keeps_its_shape() -> None:
    """Without it onnx took the axes of the Slice for others."""
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19, "pkg" : 1]>
        g (float[1,4] x) => (float[a,b] y, float[1,4] z, int64[1] axes) <int64[1] zero = {0}, int64[1] axes = {1}> {
            y = Slice(x, zero, zero, axes)
            z = pkg.F(x)
        }
        <domain: "pkg", opset_import: ["" : 19]>
        F (x) => (z) { z = Neg(x) }""")
    result = sp.optimize(proto)
    assert [d.dim_value for d in result.proto.graph.output[0].type.tensor_type.shape.dim] == [1, 0]
    same(run(proto, x=floats(1, 4)), run(result.proto, x=floats(1, 4)))
