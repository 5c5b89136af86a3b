"""Custom operators that a shared library brings: ONNX Runtime checks with it, wherever it runs."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
import surgeon_passes.ort
from surgeon_passes.testing import model
from tests.cli.conftest import Call, assert_refused
from tests.cli.conftest import call as call  # noqa: PLC0414

if importlib.util.find_spec("onnxruntime_extensions") is None:
    pytest.skip("onnxruntime-extensions is not installed", allow_module_level=True)
extensions: Any = importlib.import_module("onnxruntime_extensions")
LIBRARY = extensions.get_library_path()
TEXT = """g (float[N,2] x) => (float[N,2] y) {
    i = Identity(x) n, p = ai.onnx.contrib.NegPos(i) r = Relu(n) s = Relu(r) y = Add(s, p)
}"""


def source() -> onnx.ModelProto:
    proto = model(TEXT)
    proto.graph.node[1].domain = "ai.onnx.contrib"
    if "ai.onnx.contrib" not in {o.domain for o in proto.opset_import}:
        proto.opset_import.add(domain="ai.onnx.contrib", version=1)
    return proto


@pytest.mark.parametrize("isolate", [False, True])
def test_a_model_of_its_operators_is_checked(isolate: bool) -> None:
    without = sp.optimize(source(), isolate=isolate)
    assert without.check.status == "not run"
    result = sp.optimize(source(), verify=sp.Verify(custom_ops=(LIBRARY,)), isolate=isolate)
    assert result.check.status == "equal" and result.exit_code == 0
    assert [n.op_type for n in result.proto.graph.node] == ["NegPos", "Relu", "Relu", "Add"]
    assert {d.verdict for d in result.applied} == {"verified"}


def test_a_rewrite_of_its_operators_is_judged() -> None:
    wrong = sp.Rule.from_text("wrong", "n, p = ai.onnx.contrib.NegPos(x)", "n = Neg(x)\np = Relu(x)", exactness="exact")
    verify = sp.Verify(custom_ops=(LIBRARY,))
    result = sp.Pipeline(sp.Rewrite(wrong)).run(source(), verify=verify)
    assert [(d.rule, d.verdict) for d in result.undone] == [("wrong", "refuted")]


def test_a_session_knows_them(tmp_path: Path) -> None:
    options: dict[str, Any] = {"cache": tmp_path, "verify": sp.Verify(custom_ops=(LIBRARY,))}
    for _ in range(2):
        session = surgeon_passes.ort.session(source(), **options)
        np.testing.assert_equal(session.run(None, {"x": np.float32([[1, -2]])})[0], [[1, 0]])
    assert len(list(tmp_path.iterdir())) == 1


RULES = """
from surgeon_passes import rule


@rule(pattern="n, p = ai.onnx.contrib.NegPos(x)\\ny = Add(n, p)", rewrite="y = {made}(x)")
def sum_of_parts(m): ...
"""


def test_rules_of_its_operators_are_tried(call: Call) -> None:
    """NegPos splits a tensor into its negative and its positive elements."""
    for made, code in (("Identity", 0), ("Neg", 2)):
        Path("parts.py").write_text(RULES.format(made=made))
        without = call("rules", "check", "parts.py", "--graphs", "4")
        assert without.code == 0 and "ai.onnx.contrib.NegPos" in without.out
        outcome = call("rules", "check", "parts.py", "--graphs", "8", "--custom-ops", LIBRARY)
        assert outcome.code == code, outcome.out


def test_the_command_line_takes_them(call: Call) -> None:
    onnx.save(source(), "m.onnx")
    assert "end check           not run" in call("optimize", "m.onnx").out
    outcome = call("optimize", "m.onnx", "-o", "out.onnx", "--custom-ops", LIBRARY)
    assert outcome.code == 0 and "end check           equal" in outcome.out
    assert_refused(call, 2, "optimize", "m.onnx", "--custom-ops", "none.so", says="--custom-ops none.so: no such file")
    Path("text.so").write_text("no library")
    outcome = call("optimize", "m.onnx", "--custom-ops", "text.so")
    assert outcome.code == 2 and "text.so: ONNX Runtime cannot load it" in outcome.err
