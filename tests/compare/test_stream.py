"""Values group by group, within a budget; parts of a model that are fed in their middle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import surgeon_passes as sp
from surgeon_passes.compare import Runner
from surgeon_passes.compare import run as module
from surgeon_passes.compare.runtimes import OnnxRuntime
from surgeon_passes.compare.side import Side
from surgeon_passes.compare.stream import OWN, Stream, groups, part
from surgeon_passes.model import Weights
from tests.models import floats, model

CHAIN = """g (float[N,8] x) => (float[N,8] y) {
    a = MatMul(x, w)
    b = Relu(a)
    c = Add(b, x)
    y = Neg(c)
}"""


class Counting(OnnxRuntime):
    """Notes how many bytes each run gives."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    def open(self, model: ModelProto, weights: Weights) -> Runner:
        inner, given = super().open(model, weights), self.given

        class Counted:
            def run(self, feeds: Mapping[str, Any], outputs: Iterable[str] | None = None) -> dict[str, Any]:
                found = inner.run(feeds, outputs)
                given.append(sum(x.nbytes for x in found.values()))
                return found

        return Counted()


@pytest.fixture
def side() -> Side:
    return Side(model(CHAIN, w=floats(8, 8)))


def test_groups_fit_into_the_budget() -> None:
    sizes = {"a": 4, "b": 4, "c": 9, "d": 1}
    assert list(groups("abcd", sizes, 8)) == [["a", "b"], ["c"], ["d"]]
    assert list(groups("abcd", sizes, 100)) == [["a", "b", "c", "d"]]
    assert list(groups("xyzabc", {}, 8)) == [list("xyzabc")]  # an unknown size is an eighth of the budget
    assert list(groups([], sizes, 8)) == []


def test_sizes_are_those_of_the_run(side: Side) -> None:
    stream = Stream(side, OnnxRuntime(), [{"x": floats(3, 8)}, {"x": floats(5, 8)}])
    assert stream.sizes(["a", "y"]) == {"a": 8 * 8 * 4, "y": 8 * 8 * 4}


def test_sequences_have_no_size() -> None:
    side = Side(
        model("g (float[N,4] x) => (seq(float[N,2]) s) { s = SplitToSequence<axis=1>(x, k) }", k=np.array([2, 2]))
    )
    stream = Stream(side, OnnxRuntime(), [{"x": floats(3, 4)}])
    assert stream.sizes(["s"]) == {}
    (run,) = stream.values(["s"])
    np.testing.assert_array_equal(run["s"][1], floats(3, 4)[:, 2:])


def test_values_are_those_of_the_model(side: Side) -> None:
    x = floats(3, 8)
    (run,) = Stream(side, OnnxRuntime(), [{"x": x}]).values(["b", "x"])
    np.testing.assert_allclose(run["b"], np.maximum(x @ floats(8, 8), 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run["x"], x)


def test_no_run_of_a_comparison_gives_more_than_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Counting()
    monkeypatch.setattr(module, "runtime", lambda _: runtime)
    layer = "\n".join(f"h{k + 1} = Sigmoid(h{k})" for k in range(40))
    text = f"g (float[N,256] h0) => (float[N,256] h40) {{ {layer} }}"
    data = {"h0": floats(64, 256)}
    one = data["h0"].nbytes
    assert sp.compare(model(text), model(text), data=lambda: data, max_bytes=6 * one).exit_code == 0
    assert max(runtime.given) <= 6 * one and len(runtime.given) > 20
    runtime.given.clear()
    sp.compare(model(text), model(text), data=lambda: data)
    assert max(runtime.given) == 40 * one


def test_a_part_holds_what_its_outputs_need(side: Side) -> None:
    found = part(side, ["b"])
    assert [n.op_type for n in found.graph.node] == ["MatMul", "Relu"]
    assert [t.name for t in found.graph.initializer] == ["w"]
    assert [v.name for v in found.graph.output] == ["b"]


def test_a_part_is_fed_in_the_middle(side: Side) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [3, 8])
    found = part(side, ["a", "c"], {"a": kind, "b": kind})
    assert {v.name for v in found.graph.input} == {"x", "b"}  # nobody reads a
    assert [v.name for v in found.graph.output] == ["a" + OWN, "c"]
    x, b = floats(3, 8), floats(3, 8, seed=1)
    run = OnnxRuntime().open(found, side.weights).run({"x": x, "b": b}, ["a" + OWN, "c"])
    np.testing.assert_allclose(run["a" + OWN], x @ floats(8, 8), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run["c"], b + x)


def test_bodies_are_fed_what_they_capture() -> None:
    text = """g (float[N,4] x, bool c) => (float[N,4] y) {
        h = Mul(x, x)
        y = If(c)<then_branch = t () => (float[N,4] p) { p = Exp(h) }, else_branch = e () => (float[N,4] q) { q = Neg(h) }>
    }"""
    side = Side(model(text))
    assert side.read == [("x",), ("c", "h")]
    found = part(side, ["y"], {"h": helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 4])})
    run = OnnxRuntime().open(found, side.weights).run({"h": np.zeros((1, 4), np.float32), "c": np.array(True)}, ["y"])
    np.testing.assert_array_equal(run["y"], np.ones((1, 4)))
