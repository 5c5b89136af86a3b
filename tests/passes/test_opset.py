"""A model is upgraded before anything else, checked like a rewrite, and loses nothing on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, version_converter

import surgeon_passes as sp
from surgeon_passes.passes.opset import converted, opset_of
from tests.models import floats, model, operators, run, same

UNSQUEEZED = """
g (float[N,4] x) => (float[N,4] y, float[N,1,4] z) <float[4] w = {1,2,3,4}> {
    [widen] a = Unsqueeze<axes = [1]>(x)
    s = Squeeze<axes = [1]>(a)
    t = Softmax<axis = 1>(s)
    y = Add(t, w)
    z = Identity(a)
}
"""
LAYER_NORM = """
g (float[N,T,8] x) => (float[N,T,8] y) {
    mu = ReduceMean<axes = [-1]>(x)
    d = Sub(x, mu)
    q = Pow(d, two)
    v = ReduceMean<axes = [-1]>(q)
    e = Add(v, eps)
    s = Sqrt(e)
    n = Div(d, s)
    m = Mul(n, scale)
    y = Add(m, bias)
}
"""


def written_out_layer_norm() -> onnx.ModelProto:
    two, eps = np.float32(2), np.float32(1e-5)
    return model(LAYER_NORM, opset=13, two=two, eps=eps, scale=floats(8), bias=floats(8, seed=1))


def of(result: sp.Result, rule: str = "convert_opset") -> sp.Decision:
    (found,) = [d for d in result.decisions if d.rule == rule]
    return found


def test_an_upgrade_makes_fusions_available() -> None:
    proto = written_out_layer_norm()
    assert "LayerNormalization" not in operators(sp.optimize(proto).proto)
    result = sp.optimize(proto, opset=17)
    assert operators(result.proto) == ["LayerNormalization"]
    assert opset_of(result.proto) == 17 and result.check.status == "equal"
    decision = of(result)
    assert (decision.status, decision.verdict, decision.root) == ("applied", "verified", "opset 13 -> 17")
    assert opset_of(proto) == 13  # the caller's model is as it was


def test_what_was_upgraded_is_the_same_function() -> None:
    proto = model(UNSQUEEZED, opset=11)
    new = converted(proto, 17)
    onnx.checker.check_model(new)
    x = floats(3, 4)
    same(run(proto, x=x), run(new, x=x))
    assert [n.op_type for n in new.graph.node].count("Constant") == 2  # axes are inputs now


def test_nothing_is_lost() -> None:
    proto = model(UNSQUEEZED, opset=11, ir=8)
    proto.doc_string, proto.model_version, proto.domain, proto.producer_name = "a model", 7, "org.example", "somebody"
    proto.metadata_props.add(key="labels", value="cat,dog")
    proto.graph.doc_string = "a graph"
    proto.graph.node[0].doc_string = "a node"
    proto.graph.node[0].metadata_props.add(key="from", value="layer 1")
    proto.graph.node[3].doc_string = "adds"
    proto.graph.input[0].doc_string = "an input"
    proto.graph.value_info.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["N", 1, 4]))
    proto.graph.quantization_annotation.add(tensor_name="w")
    proto.opset_import.add(domain="some.custom", version=3)
    new = converted(proto, 17)
    for name in ("doc_string", "model_version", "domain", "producer_name", "metadata_props", "ir_version"):
        assert getattr(new, name) == getattr(proto, name)
    assert {o.domain: o.version for o in new.opset_import} == {"": 17, "some.custom": 3}
    for name in ("doc_string", "input", "output", "value_info", "initializer", "quantization_annotation", "name"):
        assert getattr(new.graph, name) == getattr(proto.graph, name)
    by_output = {n.output[0]: n for n in new.graph.node}
    widened = by_output["a"]
    assert (widened.name, widened.doc_string) == ("widen", "a node")
    assert widened.metadata_props[0].value == "layer 1" and not widened.attribute
    assert by_output["y"] == proto.graph.node[3]


def test_large_weights_are_not_handed_to_the_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model("g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }", opset=11, w=floats(64, 64))
    given: list[onnx.ModelProto] = []

    def convert(light: onnx.ModelProto, version: int) -> onnx.ModelProto:
        given.append(light)
        return real(light, version)

    real = version_converter.convert_version
    monkeypatch.setattr(version_converter, "convert_version", convert)
    new = converted(proto, 17)
    assert given[0].ByteSize() < 1000 and not given[0].graph.initializer
    assert new.graph.initializer == proto.graph.initializer and len(new.graph.input) == 1


def test_external_weights_stay_outside(tmp_path: Path) -> None:
    proto = model("g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }", opset=11, w=floats(64, 64))
    path = str(tmp_path / "m.onnx")
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    result = sp.optimize(path, opset=17)
    assert of(result).verdict == "verified" and result.proto.graph.initializer[0].external_data
    result.save(tmp_path / "out.onnx")
    x = floats(2, 64)
    same(run(onnx.load(path), x=x), run(onnx.load(tmp_path / "out.onnx"), x=x))


def test_weights_of_an_old_file_do_not_become_overridable() -> None:
    proto = model("g (float[N,4] x, float[4] w) => (float[N,4] y) { y = Add(x, w) }", opset=7, ir=3, w=floats(4))
    result = sp.optimize(proto, opset=17)
    assert [v.name for v in result.proto.graph.input] == ["x"]
    assert result.proto.ir_version == 8
    assert [n for n in result.notes if "IR version 8: raised from 3" in n]
    assert result.check.status == "equal"


def test_an_ir_version_that_will_do_stays() -> None:
    result = sp.optimize(model(UNSQUEEZED, opset=11, ir=9), opset=17)
    assert result.proto.ir_version == 9 and not result.notes


def test_bodies_are_upgraded_too() -> None:
    text = """
    g (float[N,4] x, bool c) => (float[N,4] y) {
        t = Relu(x)
        y = If(c) <
            then_branch = b1 () => (float[N,4] p) { [in] u = Unsqueeze<axes = [0]>(t)  p = Squeeze<axes = [0]>(u) },
            else_branch = b2 () => (float[N,4] r) { r = Add(t, w) }
        >
    }
    """
    proto = model(text, opset=11, w=floats(4))
    proto.graph.node[1].attribute[0].g.node[0].doc_string = "inside"
    new = converted(proto, 17)
    onnx.checker.check_model(new)
    body = new.graph.node[1].attribute[0].g
    assert next(n for n in body.node if n.name == "in").doc_string == "inside"
    for c in (True, False):
        same(run(proto, x=floats(2, 4), c=c), run(new, x=floats(2, 4), c=c))


def test_where_the_converter_fails_the_model_stays() -> None:
    text = """
    g (float[N,4,5] x, bool c) => (float[N,4,5] y) {
        t = Softmax<axis = 1>(x)
        y = If(c) <
            then_branch = b1 () => (float[N,4,5] p) { p = Neg(t) },
            else_branch = b2 () => (float[N,4,5] r) { r = Add(t, t) }
        >
    }
    """
    result = sp.optimize(model(text, opset=11), opset=17)
    decision = of(result)
    assert decision.status == "declined"
    assert decision.reason.startswith("the model stays at opset 11: ") and "\n" not in decision.reason
    assert "ir.h" not in decision.reason
    assert opset_of(result.proto) == 11 and result.check.status == "equal" and result.exit_code == 0


def test_a_wrong_conversion_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(light: onnx.ModelProto, version: int) -> onnx.ModelProto:
        found = real(light, version)
        found.graph.node[-1].op_type = "Sub"
        return found

    real = version_converter.convert_version
    monkeypatch.setattr(version_converter, "convert_version", convert)
    result = sp.optimize(model("g (float[N,4] x) => (float[N,4] y) { y = Add(x, w) }", opset=11, w=floats(4)), opset=17)
    decision = of(result)
    assert (decision.status, decision.verdict) == ("undone", "refuted")
    assert opset_of(result.proto) == 11 and operators(result.proto) == ["Add"] and result.exit_code == 7


def test_an_invalid_conversion_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(light: onnx.ModelProto, version: int) -> onnx.ModelProto:
        found = real(light, version)
        found.graph.node[-1].op_type = "NoSuchOperator"
        return found

    real = version_converter.convert_version
    monkeypatch.setattr(version_converter, "convert_version", convert)
    result = sp.optimize(model("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }", opset=11), opset=17)
    assert "NoSuchOperator" in of(result).reason and opset_of(result.proto) == 11


def test_a_conversion_that_cannot_be_run_is_not_strict() -> None:
    text = (
        "g (float[N,4] x) => (float[N,4] y) { a = Unsqueeze<axes = [0]>(x)  b = Squeeze<axes = [0]>(a)  y = odd.Op(b) }"
    )
    proto = model(text, opset=11)
    proto.opset_import.add(domain="odd", version=1)
    strict = of(sp.optimize(proto, opset=17))
    assert (strict.status, strict.verdict) == ("undone", "unverified") and strict.reason.startswith("not run")
    loose = sp.optimize(proto, opset=17, verify="available")
    assert (of(loose).status, of(loose).verdict) == ("applied", "unverified")
    assert opset_of(loose.proto) == 17
    assert of(sp.optimize(proto, opset=17, verify="off")).status == "applied"


@pytest.mark.parametrize(
    ("version", "says"),
    [(10, "the model is at opset 11, and models are only upgraded"), (999, "knows opsets up to"), (0, "say which one")],
)
def test_opsets_that_cannot_be(version: int, says: str) -> None:
    with pytest.raises(sp.UsageError, match=says):
        sp.optimize(model(UNSQUEEZED, opset=11), opset=version)


def test_the_opset_that_it_has_is_no_decision() -> None:
    result = sp.optimize(model(UNSQUEEZED, opset=11), opset=11)
    assert not [d for d in result.decisions if d.rule == "convert_opset"]


@pytest.mark.parametrize("option", [{"keep": ["a"]}, {"only": "to:y"}])
def test_what_confines_a_run_holds_the_opset(option: dict[str, object]) -> None:
    result = sp.optimize(model(UNSQUEEZED, opset=11), opset=17, **option)  # type: ignore[arg-type]
    assert "a run of its own" in of(result).reason and opset_of(result.proto) == 11


def test_functions_keep_their_opset_where_that_is_legal() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 15, "pkg" : 1]>
        g (float[N,4] x) => (float[N,4] y) { a = pkg.Twice(x)  y = Relu(a) }
        <domain: "pkg", opset_import: ["" : 15]>
        Twice (x) => (y) { y = Add(x, x) }
    """)
    result = sp.optimize(proto, opset=17)
    assert of(result).verdict == "verified"
    assert opset_of(result.proto) == 17 and opset_of_function(result.proto) == 15


def test_functions_that_would_mean_something_else_hold_the_opset() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 11, "pkg" : 1]>
        g (float[N,4] x) => (float[N,4] y) { y = pkg.Widen(x) }
        <domain: "pkg", opset_import: ["" : 11]>
        Widen (x) => (y) { a = Unsqueeze<axes = [0]>(x)  y = Squeeze<axes = [0]>(a) }
    """)
    result = sp.optimize(proto, opset=17)
    assert of(result).status == "declined" and opset_of(result.proto) == 11
    both = sp.optimize(proto, opset=17, inline_functions=True)
    assert of(both).verdict == "verified" and opset_of(both.proto) == 17 and not both.proto.functions


def opset_of_function(proto: onnx.ModelProto) -> int:
    return proto.functions[0].opset_import[0].version


def test_shapes_and_opset_together() -> None:
    result = sp.optimize(written_out_layer_norm(), {"x": [2, 3, 8]}, opset=17)
    assert of(result).verdict == "verified" and result.is_static and operators(result.proto) == ["LayerNormalization"]


def test_a_graph_gets_the_new_opset() -> None:
    import onnx_graphsurgeon as gs

    graph = gs.import_onnx(written_out_layer_norm())
    sp.optimize(graph, opset=17)
    assert graph.opset == 17 and [n.op for n in graph.nodes] == ["LayerNormalization"]


def test_weights_that_the_converter_brings_keep_apart() -> None:
    proto = model(UNSQUEEZED, opset=11)
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(1), "_v_11"))
    new = converted(proto, 17)
    onnx.checker.check_model(new)
    same(run(proto, x=floats(2, 4)), run(new, x=floats(2, 4)))


BRANCHES = """
g ({of} x, bool c) => (float s) {{
    s = If(c)<
        then_branch = t () => (float u) {{ w = {node}
            u = ReduceSum<keepdims=0>(w) }},
        else_branch = e () => (float v) {{ v = ReduceSum<keepdims=0>(x) }}
    >
}}
"""
CHANGED = [
    ("float[2,3,4]", "Hardmax<axis=1>(x)", 12, 13),
    ("float[2,3,4]", "Hardmax(x)", 12, 13),
    ("float[1,1,3,4]", 'Resize<mode="linear">(x, k)', 10, 18),
    ("float[1,1,3,4]", 'Upsample<mode="linear">(x, k)', 9, 11),
    ("float[1,1,3,4]", "Resize(x, half)", 10, 11),
    ("float[4]", "Selu(x)", 5, 6),
]


def scales() -> dict[str, Any]:
    held = {"k": [1, 1, 2, 3], "half": [1, 1, 2, 1.5]}
    return {name: np.array(value, np.float32) for name, value in held.items()}


@pytest.mark.parametrize(("kind", "node", "old", "new"), CHANGED)
@pytest.mark.parametrize("inside", [True, False])
def test_what_the_converter_misreads_holds_the_opset(kind: str, node: str, old: int, new: int, inside: bool) -> None:
    """In the body of an If the end check may never see it."""
    plain = f"g ({kind} x) => (float s) {{ w = {node}\n s = ReduceSum<keepdims=0>(w) }}"
    proto = model(BRANCHES.format(of=kind, node=node) if inside else plain, opset=old, **scales())
    found = of(sp.optimize(proto, opset=new))
    assert found.status == "declined" and "means something else from opset" in found.reason
    assert node.partition("<")[0].partition("(")[0] in found.reason


def test_a_scan_over_batches_holds_the_opset() -> None:
    """Scan of opset 8 has a batch axis in front and lengths as its first input; from 9 on it has neither."""
    proto = model(
        """g (float[1,2] s, float[1,3,2] x) => (float[1,2] y, float[1,3,2] z) {
            y, z = Scan<num_scan_inputs = 1, body = b (float[2] p, float[2] q) => (float[2] r, float[2] t) {
                r = Add(p, q) t = Identity(r)
            }>(, s, x)
        }""",
        opset=8,
    )
    found = of(sp.optimize(proto, opset=13, verify="off"))
    assert found.status == "declined" and "Scan 'y' means something else from opset 9 on" in found.reason


@pytest.mark.parametrize(
    ("kind", "node", "old", "new"),
    [
        ("float[2,3]", "Hardmax(x)", 12, 13),
        ("float[2,3,4]", "Hardmax<axis=-1>(x)", 12, 13),
        ("float[2,3,4]", "Hardmax<axis=2>(x)", 12, 13),
        ("float[1,1,3,4]", "Resize(x, k)", 10, 11),
        ("float[1,1,3,4]", "Upsample(x, k)", 9, 11),
    ],
)
def test_what_keeps_its_meaning_is_upgraded(kind: str, node: str, old: int, new: int) -> None:
    proto = model(BRANCHES.format(of=kind, node=node), opset=old, **scales())
    held = converted(proto, new)
    assert of(sp.optimize(proto, opset=new)).status == "applied"
    x = floats(*map(int, kind[6:-1].split(",")))
    for c in (True, False):
        same(run(proto, x=x, c=np.array(c)), run(held, x=x, c=np.array(c)))
