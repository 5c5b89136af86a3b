"""onnxsim in front, and ourselves inside it: what each did is told apart, and what differs is not taken."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes import demo
from surgeon_passes.model.nested import count_nodes
from tests.conftest import missing
from tests.models import floats, model, operators, run, same

TEXT = """
g (float[N,4] x) => (float[N,4] y) {
    [k] k = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> ()
    [t] t = Add(k, k)
    [a] a = Add(x, t)
    [i] b = Identity(a)
    [y] y = Relu(b)
}"""


def source() -> onnx.ModelProto:
    proto = model(TEXT)
    proto.metadata_props.add(key="owner", value="me")
    proto.doc_string, proto.producer_name = "what it is", "trainer"
    return proto


Simplifier = Callable[[onnx.ModelProto], onnx.ModelProto]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Simplifier], None]:
    """Something else is found in onnxsim's place."""

    def put(simplify: Simplifier) -> None:
        tool = SimpleNamespace(simplify=lambda proto, **_: (simplify(proto), True), __version__="9.9")
        monkeypatch.setitem(sys.modules, "onnxsim", tool)

    return put


def edited(change: Callable[[onnx.ModelProto], Any]) -> Simplifier:
    def simplify(proto: onnx.ModelProto) -> onnx.ModelProto:
        change(proto)
        return proto

    return simplify


def drop_identity(proto: onnx.ModelProto) -> None:
    proto.graph.node[4].input[0] = "a"
    del proto.graph.node[3]
    del proto.metadata_props[:]
    proto.doc_string, proto.producer_name = "", "onnxsim"


def spoil(proto: onnx.ModelProto) -> None:
    proto.graph.node[4].op_type = "Neg"


def of(result: sp.Result) -> sp.Decision:
    (found,) = [d for d in result.decisions if d.rule == "onnxsim"]
    return found


def test_both_steps_are_told_apart(stand_in: Any) -> None:
    stand_in(edited(drop_identity))
    result = sp.optimize(source(), onnxsim=True)
    decision = of(result)
    assert (decision.status, decision.verdict, decision.root) == ("applied", "verified", "onnxsim 9.9")
    assert (decision.metrics["nodes_before"], decision.metrics["nodes_after"]) == (4, 3)
    assert operators(result.proto) == ["Add", "Relu"] and result.exit_code == 0
    lines = [line.split(None, 1) for line in result.report().splitlines()[1:4]]
    assert lines == [["nodes", "4 -> 2"], ["onnxsim", "4 -> 3, verified"], ["then", "3 -> 2"]]


def test_what_onnxsim_drops_stays(stand_in: Any) -> None:
    stand_in(edited(drop_identity))
    proto = sp.optimize(source(), onnxsim=True).proto
    assert [(p.key, p.value) for p in proto.metadata_props] == [("owner", "me")]
    assert (proto.doc_string, proto.producer_name) == ("what it is", "trainer")


def test_what_differs_is_named_and_discarded(stand_in: Any) -> None:
    stand_in(edited(spoil))
    result = sp.optimize(source(), onnxsim=True)
    decision = of(result)
    assert (decision.status, decision.verdict) == ("undone", "refuted")
    assert decision.reason.startswith("what onnxsim gives differs from the original: ")
    assert operators(result.proto) == ["Add", "Relu"]
    assert result.exit_code == 7 and result.check.status == "equal"
    assert "onnxsim           4 -> 4, discarded: what onnxsim gives differs" in result.report()


def test_what_differs_is_kept_where_that_is_asked_for(stand_in: Any) -> None:
    stand_in(edited(spoil))
    passes = sp.Pipeline().before("fold", sp.Onnxsim(keep_different=True))
    result = passes.run(source())
    assert (of(result).status, of(result).verdict) == ("applied", "refuted")
    assert operators(result.proto) == ["Sub"]  # -(x + t)
    assert result.exit_code == 5  # and nothing is written without --force


def fail(proto: onnx.ModelProto) -> onnx.ModelProto:
    raise RuntimeError("no\nschema")


def rename(proto: onnx.ModelProto) -> None:
    proto.graph.output[0].name = "a"


@pytest.mark.parametrize(
    ("simplify", "reason"),
    [
        (fail, "onnxsim failed: no schema"),
        (edited(rename), "onnxsim failed: it changed the outputs from ['y'] to ['a']"),
    ],
)
def test_where_it_fails_the_run_goes_on(stand_in: Any, simplify: Simplifier, reason: str) -> None:
    stand_in(simplify)
    result = sp.optimize(source(), onnxsim=True)
    assert (of(result).status, of(result).reason) == ("declined", reason)
    assert operators(result.proto) == ["Add", "Relu"] and result.exit_code == 0


def test_a_confined_run_leaves_it_out(stand_in: Any) -> None:
    stand_in(edited(drop_identity))
    result = sp.optimize(source(), onnxsim=True, keep=["i"])
    assert of(result).status == "declined" and "keep or only" in of(result).reason
    assert "Identity" in operators(result.proto)


def test_where_it_is_not_installed_the_mend_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxsim", None)
    with pytest.raises(sp.UsageError, match=r"onnxsim cannot be imported .*: pip install 'surgeon-passes\[onnxsim\]'"):
        sp.optimize(source(), onnxsim=True)


# --- the real one ----------------------------------------------------------------------------------------------------


def real() -> Any:
    """onnxsim itself."""
    if importlib.util.find_spec("onnxsim") is None:
        missing("onnxsim is not installed")
    return importlib.import_module("onnxsim")


def test_the_real_one_in_front() -> None:
    real()
    proto = demo.build()
    result = sp.optimize(proto, onnxsim=True)
    assert (of(result).status, of(result).verdict) == ("applied", "verified")
    assert of(result).metrics["nodes_before"] == count_nodes(proto) > of(result).metrics["nodes_after"]
    assert count_nodes(result.proto) == count_nodes(sp.optimize(proto).proto)
    x = floats(2, 3, 64, 64)
    np.testing.assert_allclose(
        run(proto, images=x)["logits"], run(result.proto, images=x)["logits"], rtol=1e-4, atol=1e-5
    )


def test_inside_its_loop() -> None:
    onnxsim = real()
    rewriter = sp.onnxsim_rewriter()
    said: list[bool] = []

    def watched(proto: onnx.ModelProto) -> onnx.ModelProto | bool:
        found = rewriter(proto)
        said.append(found is not False)
        return found

    proto = demo.build()
    simplified, _ = onnxsim.simplify(proto, custom_rewriter=watched)
    assert said[0] and len(said) < 6
    assert rewriter(simplified) is False  # it came to rest
    assert count_nodes(simplified) <= count_nodes(sp.optimize(proto).proto)
    x = floats(1, 3, 64, 64)
    np.testing.assert_allclose(
        run(proto, images=x)["logits"], run(simplified, images=x)["logits"], rtol=1e-4, atol=1e-5
    )


def test_the_rewriter_says_false_where_nothing_changes() -> None:
    proto = sp.optimize(source()).proto
    assert sp.onnxsim_rewriter()(proto) is False
    made = sp.onnxsim_rewriter(sp.Pipeline(sp.Rewrite("cleanup")))(source())
    assert isinstance(made, onnx.ModelProto) and "Identity" not in operators(made)
    same(run(made, x=floats(2, 4)), run(source(), x=floats(2, 4)))
