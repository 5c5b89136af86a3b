"""Model-local functions are inlined on request: nested ones, in bodies, with their attributes and defaults."""

from __future__ import annotations

import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.passes.functions import inlined
from tests.models import floats, operators, run, same

NESTED = """
<ir_version: 10, opset_import: ["" : 18, "pkg" : 1], metadata_props: ["labels" : "cat"]>
g (float[N,4] x, bool c) => (float[N,4] y) <float[4] w = {1,2,3,4}> {
    [first] t__1 = pkg.Outer<alpha: float = 0.3>(x)
    b = If(c) <
        then_branch = b1 () => (float[N,4] p) { t__2 = Neg(x)  p = pkg.Outer(t__2) },
        else_branch = b2 () => (float[N,4] r) { r = Add(t__1, w) }
    >
    y = pkg.Last(b, w)
}
<domain: "pkg", opset_import: ["" : 18, "pkg" : 1]>
Outer <alpha: float = 0.2>(x) => (y) { t = pkg.Inner<slope: float = @alpha>(x)  y = Neg(t) }
<domain: "pkg", opset_import: ["" : 18, "com.microsoft" : 1]>
Inner <slope>(x) => (y) { [lk] k = LeakyRelu<alpha: float = @slope>(x)  y = com.microsoft.Gelu(k) }
<domain: "pkg", opset_import: ["" : 18, "pkg" : 1]>
Last (x, w) => (y) { k = pkg.Outer(x)  y = Add(k, w) }
"""


def nested() -> onnx.ModelProto:
    return onnx.parser.parse_model(NESTED)


def decisions(result: sp.Result) -> list[sp.Decision]:
    return [d for d in result.decisions if d.rule == "inline_function"]


def names(graph: onnx.GraphProto) -> list[str]:
    found = [name for node in graph.node for name in node.output]
    return found + [n for node in graph.node for a in node.attribute if a.HasField("g") for n in names(a.g)]


def test_functions_stay_by_default() -> None:
    assert len(sp.optimize(nested()).proto.functions) == 3


@pytest.mark.parametrize("c", [True, False])
def test_all_functions_are_inlined(c: bool) -> None:
    result = sp.optimize(nested(), inline_functions=True)
    (decision,) = decisions(result)
    assert (decision.status, decision.verdict) == ("applied", "verified")
    assert decision.root == "pkg.Outer, pkg.Inner, pkg.Last" and "first" in decision.nodes
    assert not result.proto.functions and result.check.status == "equal"
    assert result.proto.metadata_props[0].value == "cat"
    same(run(nested(), x=floats(3, 4), c=c), run(result.proto, x=floats(3, 4), c=c))


def test_names_are_unique_over_graph_and_bodies() -> None:
    found = names(inlined(nested(), [("pkg", "Outer"), ("pkg", "Inner"), ("pkg", "Last")]).graph)
    assert len(found) == len(set(found)) and {"t__1", "t__2", "b", "y"} <= set(found)


def test_defaults_of_attributes_reach_nested_functions() -> None:
    graph = inlined(nested(), [("pkg", "Outer"), ("pkg", "Inner"), ("pkg", "Last")]).graph
    (leaky,) = [n for n in graph.node if n.op_type == "LeakyRelu" and n.input[0] == "b"]
    assert leaky.attribute[0].f == pytest.approx(0.2)


def test_by_pattern() -> None:
    result = sp.optimize(nested(), inline_functions="pkg.[IL]*")
    assert decisions(result)[0].root == "pkg.Inner, pkg.Last"
    (function,) = result.proto.functions
    assert function.name == "Outer" and function.attribute_proto[0].f == pytest.approx(0.2)
    assert {o.domain for o in function.opset_import} >= {"", "com.microsoft"}
    same(run(nested(), x=floats(3, 4), c=True), run(result.proto, x=floats(3, 4), c=True))


def test_a_pattern_that_fits_nothing() -> None:
    with pytest.raises(
        sp.UsageError, match=r"no function of the model is called 'pkg.Outr' \(did you mean 'pkg.Outer'"
    ):
        sp.optimize(nested(), inline_functions=["pkg.Outr"])
    plain = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    with pytest.raises(sp.UsageError, match="it has none"):
        sp.optimize(plain, inline_functions=["pkg.Outer"])
    assert not decisions(sp.optimize(plain, inline_functions=True))


def test_a_function_whose_operators_would_mean_something_else_stays() -> None:
    proto = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 18, "pkg" : 1]>
        g (float[N,4] x) => (float[N,M] y) { y = pkg.Old(x) }
        <domain: "pkg", opset_import: ["" : 12]>
        Old (x) => (y) { y = Softmax<axis = 0>(x) }
    """)
    result = sp.optimize(proto, inline_functions=True)
    (left,) = decisions(result)
    assert (left.root, left.status) == ("pkg.Old", "declined")
    assert left.reason == "its Softmax is that of opset 12: at the model's opset 18 it is another operator"
    assert operators(result.proto) == ["Old"]


def test_a_wrong_inlining_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import inliner

    def wrong(*arguments: object, **options: object) -> onnx.ModelProto:
        found = real(*arguments, **options)  # type: ignore[arg-type]
        found.graph.node[-1].op_type = "Sub"
        return found

    real = inliner.inline_selected_functions
    monkeypatch.setattr(inliner, "inline_selected_functions", wrong)
    result = sp.optimize(nested(), inline_functions=True)
    assert (decisions(result)[0].status, decisions(result)[0].verdict) == ("undone", "refuted")
    assert len(result.proto.functions) == 3 and result.check.status == "equal"


def test_large_weights_are_not_handed_to_the_inliner(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import inliner

    proto = nested()
    proto.graph.node.append(onnx.helper.make_node("MatMul", ["y", "big"], ["z"]))
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, ["N", 999]))
    proto.graph.initializer.append(onnx.numpy_helper.from_array(floats(4, 999), "big"))
    sizes: list[int] = []

    def inline(light: onnx.ModelProto, *arguments: object, **options: object) -> onnx.ModelProto:
        sizes.append(light.ByteSize())
        return real(light, *arguments, **options)  # type: ignore[arg-type]

    real = inliner.inline_selected_functions
    monkeypatch.setattr(inliner, "inline_selected_functions", inline)
    result = sp.optimize(proto, inline_functions=True)
    assert sizes[0] < 4000 and result.check.status == "equal" and not result.proto.functions


def test_what_confines_a_run_keeps_the_functions() -> None:
    result = sp.optimize(nested(), inline_functions=True, keep=["first"])
    assert "a run of its own" in decisions(result)[0].reason and len(result.proto.functions) == 3


def test_as_a_pass() -> None:
    result = sp.Pipeline(sp.InlineFunctions("pkg.*")).run(nested())
    assert not result.proto.functions and result.converged


def test_a_dim_whose_name_reads_like_a_size_is_none_in_a_body_either() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 18, "pkg" : 1]>
        g (float[2,4] a, float[N,4] b) => (float[2,8] c, float[M,8] d) { c = pkg.F(a)  d = pkg.F(b) }
        <domain: "pkg", opset_import: ["" : 18]>
        F (x) => (y) { s = Shape(x)  z = ConstantOfShape(s)  y = Concat<axis: int = 1>(z, x) }
    """)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "2"
    result = sp.optimize(model, verify="off")
    given = {"a": floats(2, 4), "b": floats(5, 4)}
    same(run(model, **given), run(result.proto, **given))
