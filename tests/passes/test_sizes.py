"""Size arithmetic is written anew where that takes fewer nodes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.runtime import Session


def model(body: str, signature: str, opset: int = 17) -> onnx.ModelProto:
    found = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {signature} {body}')
    onnx.checker.check_model(found)
    return found


def shared(proto: onnx.ModelProto) -> sp.Result:
    result = sp.Pipeline(sp.Fold(), sp.Sizes(), sp.Duplicates(), sp.Cleanup()).run(proto)
    assert result.exit_code == 0, result.report()
    assert {d.verdict for d in result.applied} <= {"verified"}
    return result


def operators(result: sp.Result) -> Counter[str]:
    return Counter(n.op_type for n in result.proto.graph.node if n.op_type != "Constant")


CHAIN = """{
    zero = Constant<value = int64 {0}>() two = Constant<value = int64 {2}>() three = Constant<value = int64 {3}>()
    at = Constant<value = int64[1] {0}>() eight = Constant<value = int64[1] {8}>()
    a = Relu(x)
    s0 = Shape(a) n = Gather(s0, zero) s1 = Shape(a) h = Gather(s1, two) s2 = Shape(a) w = Gather(s2, three)
    un = Unsqueeze(n, at) uh = Unsqueeze(h, at) uw = Unsqueeze(w, at)
    t = Concat<axis = 0>(un, eight, uh, uw)
    y = Expand(v, t)
}"""


def test_a_target_that_a_tensor_has_is_its_shape() -> None:
    result = shared(model(CHAIN, "(float[N,8,H,W] x, float[1] v) => (float[A,B,C,D] y)"))
    assert operators(result) == {"Shape": 1, "Expand": 1}
    session = Session(result.proto)
    feeds = {"x": np.zeros((2, 8, 3, 5), np.float32), "v": np.ones(1, np.float32)}
    assert session.run(feeds)["y"].shape == (2, 8, 3, 5)


def test_other_channels_are_one_operator() -> None:
    result = shared(model(CHAIN, "(float[N,4,H,W] x, float[1] v) => (float[A,B,C,D] y)"))
    assert operators(result) == {"Shape": 1, "Mul": 1, "Expand": 1}


def test_below_opset_15_nothing_is_sliced_by_attributes() -> None:
    result = shared(model(CHAIN, "(float[N,4,H,W] x, float[1] v) => (float[A,B,C,D] y)", opset=13))
    assert operators(result)["Expand"] == 1
    assert not any(n.op_type == "Shape" and n.attribute for n in result.proto.graph.node)


def test_a_vector_that_two_nodes_need_is_computed_once() -> None:
    body = CHAIN.replace("y = Expand(v, t)", "b = Expand(v, t) c = Expand(z, t) y = Add(b, c)")
    result = shared(model(body, "(float[N,8,H,W] x, float[1] v, float[1] z) => (float[A,B,C,D] y)"))
    assert operators(result)["Shape"] == 1


def test_nothing_changes_where_it_would_not_be_less() -> None:
    body = "{ s = Shape(x) y = Expand(v, s) }"
    result = shared(model(body, "(float[N,8] x, float[1] v) => (float[A,B] y)"))
    assert result.applied == []


def test_a_source_never_comes_after_the_reader() -> None:
    """b has the wanted shape, and is computed from the reader: that would be a cycle."""
    body = """{
        zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>() at = Constant<value = int64[1] {0}>()
        s0 = Shape(x) n = Gather(s0, zero) s1 = Shape(x) m = Gather(s1, one)
        un = Unsqueeze(n, at) um = Unsqueeze(m, at) five = Constant<value = int64[1] {5}>()
        t = Concat<axis = 0>(um, five, un)
        b = Expand(v, t)
        y = Relu(b)
    }"""
    result = shared(model(body, "(float[N,M] x, float[1] v) => (float[A,B,C] y)"))
    got = Session(result.proto).run({"x": np.zeros((2, 3), np.float32), "v": np.ones(1, np.float32)})["y"]
    assert got.shape == (3, 5, 2)


def test_a_size_that_is_an_output_keeps_its_name() -> None:
    body = """{
        zero = Constant<value = int64 {0}>() at = Constant<value = int64[1] {0}>() eight = Constant<value = int64[1] {8}>()
        s0 = Shape(x) n = Gather(s0, zero) un = Unsqueeze(n, at) y = Concat<axis = 0>(un, eight)
    }"""
    result = shared(model(body, "(float[N,3] x) => (int64[2] y)"))
    assert operators(result) == {"Shape": 1, "Add": 1}
    assert Session(result.proto).run({"x": np.zeros((7, 3), np.float32)})["y"].tolist() == [7, 8]


@pytest.mark.parametrize("opset", [11, 13, 17])
def test_running_again_changes_nothing(opset: int) -> None:
    body = (
        CHAIN
        if opset >= 13
        else CHAIN.replace(
            "un = Unsqueeze(n, at) uh = Unsqueeze(h, at) uw = Unsqueeze(w, at)",
            "un = Unsqueeze<axes = [0]>(n) uh = Unsqueeze<axes = [0]>(h) uw = Unsqueeze<axes = [0]>(w)",
        )
    )
    first = shared(model(body, "(float[N,4,H,W] x, float[1] v) => (float[A,B,C,D] y)", opset))
    again = shared(first.proto)
    assert again.proto.SerializeToString() == first.proto.SerializeToString()


@pytest.mark.parametrize(
    "body",
    [
        "{ y = Shape(x) z = Shape(x) }",
        "{ a = Shape(x) b = Shape(x) y = Concat<axis = 0>(a, b) z = Concat<axis = 0>(b, a) }",
        "{ y = Shape<start = 0>(x) z = Shape(x) }",
    ],
)
def test_equal_sizes_that_are_outputs_come_to_rest(body: str) -> None:
    """Two outputs of one value are made by a node each: no run may try to share it again."""
    rank = 4 if "Concat" in body else 2
    first = sp.optimize(model(body, f"(float[N,3] x) => (int64[{rank}] y, int64[{rank}] z)"))
    assert first.converged and first.exit_code == 0
    assert sp.optimize(first.proto).proto.SerializeToString() == first.proto.SerializeToString()


def test_it_comes_to_rest_by_itself() -> None:
    """What its edits have in common is made once, whether equal nodes are merged otherwise or not."""
    body = CHAIN.replace("y = Expand(v, t)", "b = Expand(v, t) six = Constant<value = int64[1] {6}>() "
        "t2 = Concat<axis = 0>(un, six, uh, uw) c = Expand(v, t2) d = ReduceSum<keepdims = 0>(c) y = Add(b, d)")  # fmt: skip
    proto = model(body, "(float[N,4,H,W] x, float[1] v) => (float[A,B,C,D] y)")
    result = sp.optimize(proto, skip=["duplicates"])
    assert result.converged and result.exit_code == 0
    assert result.after.operators["Shape"] == 1
    again = sp.optimize(result.proto, skip=["duplicates"])
    assert again.proto.SerializeToString() == result.proto.SerializeToString()


def test_sizes_in_a_body_come_from_tensors_of_the_body() -> None:
    body = """{
        sum = ReduceSum<keepdims = 0>(x) limit = Constant<value = float {0.0}>() c = Greater(sum, limit)
        y = If(c) <
            then_branch = t () => (float[A,B] p) {
                zero = Constant<value = int64 {0}>() one = Constant<value = int64 {1}>() at = Constant<value = int64[1] {0}>()
                r = Relu(x) s0 = Shape(r) n = Gather(s0, zero) s1 = Shape(r) m = Gather(s1, one)
                un = Unsqueeze(n, at) um = Unsqueeze(m, at) s = Concat<axis = 0>(un, um) p = Expand(v, s)
            },
            else_branch = e () => (float[A,B] q) { q = Neg(x) }
        >
    }"""
    result = sp.Pipeline(sp.Fold(), sp.Sizes(), sp.Cleanup()).run(
        model(body, "(float[N,M] x, float[1] v) => (float[A,B] y)")
    )
    assert result.exit_code == 0, result.report()
    assert (result.after.operators["Shape"], result.after.operators["Gather"]) == (1, 0)


def test_a_size_on_the_way_to_a_source_is_a_reader_too() -> None:
    """h has the wanted size, but comes from it by way of a Cast to int32: to ask h for it would be a cycle."""
    body = """{
        at = Constant<value = int64 {0}>() one = Constant<value = int32 {1}>() zero = Constant<value = int32 {0}>()
        s = Shape(x) n = Gather(s, at) two = Constant<value = int64 {2}>() d = Mul(n, two)
        k = Cast<to = 6>(d) h = Range(zero, k, one) f = Cast<to = 1>(h)
        b = Constant<value = int64[1] {0}>() u = Unsqueeze(d, b) e = Expand(v, u) y = Add(e, f)
    }"""
    shared(model(body, "(float[N,3] x, float[1] v) => (float[A] y)"))


def test_sizes_that_a_body_captures() -> None:
    body = """{
        at = Constant<value = int64 {0}>() two = Constant<value = int64 {2}>() zero = Constant<value = float {0.0}>()
        s = Shape(x) n = Gather(s, at) h = Mul(n, two) sum = ReduceSum<keepdims = 0>(x) c = Greater(sum, zero)
        y = If(c) <
            then_branch = t () => (float[A] p) {
                two2 = Constant<value = int64 {2}>() b = Constant<value = int64[1] {0}>()
                hh = Mul(h, two2) u = Unsqueeze(hh, b) p = ConstantOfShape(u)
            },
            else_branch = e () => (float[B] q) { q = Expand(v, r) r0 = Constant<value = int64[1] {3}>() }
        >
    }""".replace(
        "q = Expand(v, r) r0 = Constant<value = int64[1] {3}>()",
        "r = Constant<value = int64[1] {3}>() q = Expand(v, r)",
    )
    result = sp.optimize(model(body, "(float[N,3] x, float[1] v) => (float[C] y)"))
    assert result.exit_code == 0, result.report()
