"""Whole runs of a pipeline on models that ONNX Runtime does not survive."""

from __future__ import annotations

import pytest
from onnx import parser

import surgeon_passes as sp
from surgeon_passes import Replacement, demo, rule
from surgeon_passes.child import Stopped
from surgeon_passes.engines.isolation import Isolation, RemoteEngine
from surgeon_passes.errors import RuntimeFailure
from tests.engines.hostile import crashing, endless


@rule(
    pattern="n = BatchNormalization(x, s, b, m, v)\ny = Relu(Relu(n))",
    rewrite="y = Relu(BatchNormalization(x, s, b, m, v)<@n>)",
    exactness="exact",
)
def relu_twice(m: sp.Match) -> Replacement:
    """One Relu behind a BatchNormalization is enough."""
    return Replacement()


def test_a_crash_costs_a_region_its_verdict_and_no_other() -> None:
    found = {}
    for mode in ("strict", "available"):
        result = sp.optimize(
            crashing(), rules=[relu_twice], skip=["merge_idempotent_pair"], verify=mode, isolate=sp.Isolate(timeout=60)
        )
        found[mode] = {(d.rule, d.status, d.verdict) for d in result.decisions}
        reasons = [d.reason for d in result.decisions if d.rule == "relu_twice"]
        assert reasons and all(r.startswith("ONNX Runtime crashed (SIG") for r in reasons), reasons
        assert result.check.status == "not run"
        assert result.check.reason.startswith("the original does not run: ONNX Runtime crashed (SIG")
        assert result.exit_code == 5 and "unverified" in result.report()
        operators = [n.op_type for n in result.proto.graph.node]
        assert operators == ["BatchNormalization", *["Relu"] * (2 if mode == "strict" else 1), "Abs"]
    sure = ("drop_identity", "applied", "verified")
    assert found["strict"] == {sure, ("relu_twice", "undone", "unverified")}
    assert found["available"] == {sure, ("relu_twice", "applied", "unverified")}


def test_a_run_that_never_ends_is_ended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each size and kind of inputs that could be tried."""
    lost: list[str] = []
    failed = Isolation._failed

    def counted(isolation: Isolation, stopped: Stopped) -> RuntimeFailure:
        lost.append(stopped.status)
        return failed(isolation, stopped)

    monkeypatch.setattr(Isolation, "_failed", counted)
    result = sp.optimize(endless(), isolate=sp.Isolate(timeout=2))
    assert result.check.reason == "the original does not run: ONNX Runtime timed out after 2 s"
    assert [(d.rule, d.verdict) for d in result.applied] == [("drop_identity", "verified")]
    assert lost == ["timeout"]


def test_apart_gives_what_together_gives() -> None:
    """The embedded network: same bytes, same verdicts, same error at the end. How fast it is, is not measured then."""
    together, apart = (sp.optimize(demo.build(), isolate=isolate) for isolate in (False, True))
    assert apart.proto.SerializeToString(deterministic=True) == together.proto.SerializeToString(deterministic=True)
    assert [(d.rule, d.root, d.verdict) for d in apart.applied] == [
        (d.rule, d.root, d.verdict) for d in together.applied
    ]
    assert apart.check == together.check and apart.check.status == "equal"
    assert str(apart.measure_latency()).startswith("not measured: ONNX Runtime was kept out of this process")


def test_folding_asks_the_process_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[3,3] x) => (float[3,3] y) <float[3,3] w = {1,2,3,4,5,6,7,8,10}> { i = Det (w) y = Mul (x, i) }
    """)
    opened: list[object] = []
    opens = RemoteEngine._open

    def counted(engine: RemoteEngine) -> None:
        opened.append(engine)
        opens(engine)

    monkeypatch.setattr(RemoteEngine, "_open", counted)
    result = sp.optimize(model, verify="off", isolate=True)
    assert [n.op_type for n in result.proto.graph.node] == ["Mul"] and len(opened) == 1
