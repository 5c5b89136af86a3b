"""What no turn of a Loop changes is read from around it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.runtime import Session
from tests.models import run


def looped(body: str, carried: str = "float[2] wi", start: str = "w") -> onnx.ModelProto:
    """x, w -> y: a loop of three turns that carries ``s`` (changing) and more."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x, float[2] w) => (float[2] y, float[2] last) {{
            three = Constant<value = int64 {{3}}>()
            true = Constant<value = bool {{1}}>()
            y, last = Loop(three, true, x, {start}) <body = b (int64 i, bool c, float[2] s, {carried})
                => (bool c2, float[2] s2, float[2] wo) {body}>
        }}""")
    onnx.checker.check_model(model)
    return model


def folded(model: onnx.ModelProto) -> sp.Result:
    result = sp.Pipeline(sp.Fold(), sp.Cleanup()).run(model)
    assert result.exit_code == 0, result.report()
    assert not result.undone
    feeds = {"x": np.array([1, 2], np.float32), "w": np.array([3, -5], np.float32)}
    want = run(model, **feeds)
    for name, value in Session(result.proto).run(feeds).items():
        np.testing.assert_array_equal(value, want[name])
    return result


def rules(result: sp.Result) -> Counter[str]:
    return Counter(d.rule for d in result.applied)


def reads(result: sp.Result) -> set[str]:
    loop = next(n for n in result.proto.graph.node if n.op_type == "Loop")
    found: set[str] = set()
    todo = [loop.attribute[0].g]
    while todo:
        graph = todo.pop()
        for node in graph.node:
            found |= set(node.input)
            todo += [a.g for a in node.attribute if a.HasField("g")]
    return found


UNCHANGED = "{ c2 = Identity(c) s2 = Add(s, wi) wo = Identity(wi) }"


def test_a_carried_value_that_comes_back_is_read_outside() -> None:
    result = folded(looped(UNCHANGED))
    assert rules(result)["read_loop_invariant"] == 1
    assert [d.verdict for d in result.applied if d.rule == "read_loop_invariant"] == ["verified"]
    assert "w" in reads(result)


def test_running_again_changes_nothing() -> None:
    first = folded(looped(UNCHANGED))
    again = folded(first.proto)
    assert again.proto.SerializeToString() == first.proto.SerializeToString()


@pytest.mark.parametrize(
    "body",
    [
        "{ c2 = Identity(c) s2 = Add(s, wi) wo = Neg(wi) }",
        "{ c2 = Identity(c) s2 = Add(s, wi) wo = Identity(s) }",
        "{ c2 = Identity(c) s2 = Neg(s) wo = Add(wi, s) }",
    ],
)
def test_a_value_that_changes_is_handed_on(body: str) -> None:
    assert "read_loop_invariant" not in rules(folded(looped(body)))


def test_bodies_inside_read_it_outside_too() -> None:
    body = """{
        c2 = Identity(c)
        s2 = If(c) <
            then_branch = t () => (float[2] p) { p = Add(s, wi) },
            else_branch = e () => (float[2] q) { q = Sub(s, wi) }
        >
        wo = Identity(wi)
    }"""
    result = folded(looped(body))
    assert rules(result)["read_loop_invariant"] == 1
    assert "wi" not in reads(result) - {"wi"} and "w" in reads(result)


def test_a_weight_that_is_carried_becomes_a_constant_of_the_body() -> None:
    """Then rules that want a constant find one: MatMul and Add of one are a Gemm."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1,2] x, int64 n) => (float[1,2] y)
            <float[2,2] w = {0.5, 0.1, 0.2, 0.3}, float[2] b = {1.0, 2.0}> {
            true = Constant<value = bool {1}>()
            y, wl, bl = Loop(n, true, x, w, b) <body = l (int64 i, bool c, float[1,2] s, float[2,2] wi, float[2] bi)
                => (bool c2, float[1,2] s2, float[2,2] wo, float[2] bo)
                { c2 = Identity(c) m = MatMul(s, wi) s2 = Add(m, bi) wo = Identity(wi) bo = Identity(bi) }>
        }""")
    onnx.checker.check_model(model)
    result = sp.optimize(model)
    assert result.exit_code == 0, result.report()
    assert result.after.operators["Gemm"] == 1 and result.after.operators["MatMul"] == 0
    for turns in (0, 1, 4):
        feeds = {"x": np.array([[1, 2]], np.float32), "n": np.array(turns, np.int64)}
        np.testing.assert_allclose(run(result.proto, **feeds)["y"], run(model, **feeds)["y"], rtol=1e-6)


def test_a_loop_that_is_undone_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refuted edit leaves the very same model."""
    from surgeon_passes.passes import loops
    from surgeon_passes.passes.settle import settle
    from surgeon_passes.region import Verdict

    def refuting(state, edits):  # type: ignore[no-untyped-def]
        state.check = lambda regions: [Verdict("refuted", 1.0)] * len(regions)
        return settle(state, edits)

    model = looped(UNCHANGED)
    plain = sp.Pipeline(sp.Cleanup()).run(model).proto
    monkeypatch.setattr(loops, "settle", refuting)
    monkeypatch.setattr("surgeon_passes.passes.fold._Folder.lift", lambda self: False)
    monkeypatch.setattr("surgeon_passes.passes.fold._Folder.by_runtime", lambda self: False)
    result = sp.Pipeline(sp.Fold(), sp.Cleanup()).run(model)
    assert [d.rule for d in result.undone] == ["read_loop_invariant"]
    assert result.proto.SerializeToString() == plain.SerializeToString()
