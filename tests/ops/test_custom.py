"""Custom operators that somebody tells about: matched, typed, merged, weighed, and checked by what stands for them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import surgeon_passes as sp
from surgeon_passes import Operator, operators
from surgeon_passes.costs import model_cost
from surgeon_passes.errors import OperatorError
from surgeon_passes.ops.cost import cost
from surgeon_passes.pipeline import load
from surgeon_passes.testing import assert_rule, model
from surgeon_passes.values import registry as values
from tests.models import floats, run
from tests.rules.ground import Ground

schemas: Any = importlib.import_module("surgeon_passes.ops.schema")
BODY = """<domain: "my.domain", opset_import: ["" : 17]>
Swish <alpha: float = 1.0> (x) => (y) {
    a = Constant <value_float: float = @alpha> ()
    c = Mul (x, a)
    s = Sigmoid (c)
    y = Mul (x, s)
}"""
TEXT = """g (float[N,4] x) => (float[N,4] y) <float[4] k = {1, 2, 3, 4}> {
    a = my.domain.Swish(x) b = my.domain.Swish(x) i = Identity(a) d = Add(i, b) e = Mul(d, k) y = Mul(e, k)
}"""


PLAIN = "g (float[N,4] x) => (float[N,4] y) { s = Sigmoid(x) y = Mul(s, x) }"
FUSED = "g (float[N,4] x) => (float[N,4] y) { y = my.domain.Swish(x) }"


def swish(**more: Any) -> Operator:
    return Operator("my.domain.Swish", inputs="x", attributes={"alpha": 1.0}, **more)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """What a test tells of operators is nothing to the next."""
    held, shapes = dict(schemas._CUSTOM), dict(values._SHAPES)
    yield
    for table, kept in ((schemas._CUSTOM, held), (values._SHAPES, shapes)):
        table.clear()  # type: ignore[attr-defined]
        table.update(kept)  # type: ignore[attr-defined]
    for clear in (*schemas._FORGET, values.shape_entry.cache_clear):
        clear()


def status(result: sp.Result) -> list[tuple[str, str]]:
    return [(d.rule, d.verdict) for d in result.applied]


def test_without_facts_nothing_around_it_can_be_run() -> None:
    result = sp.optimize(model(TEXT))
    assert result.custom_operators == {"my.domain.Swish": 2}
    assert result.check.status == "not run" and [n.op_type for n in result.proto.graph.node].count("Swish") == 2


def test_with_them_it_is_typed_merged_and_checked() -> None:
    operators.register(swish(deterministic=True, shape=lambda n: [n.shape(0)], reference=BODY))
    result = sp.optimize(model(TEXT))
    assert status(result) == [
        ("drop_identity", "verified"), ("merge_constant_pair", "verified"), ("merge_duplicate_nodes", "verified"),
    ]  # fmt: skip
    assert result.check.status == "equal" and result.exit_code == 0
    assert not result.custom_operators and "custom operators" not in result.report()
    assert [n.op_type for n in result.proto.graph.node] == ["Swish", "Add", "Mul"]
    assert not result.proto.functions, "what stands for it is for the checks alone"
    (info,) = [v for v in result.proto.graph.value_info if v.name == "a"]
    dims = info.type.tensor_type.shape.dim
    assert (info.type.tensor_type.elem_type, dims[0].dim_param, dims[1].dim_value) == (TensorProto.FLOAT, "N", 4)


def test_what_was_concluded_before_is_forgotten() -> None:
    pattern = "y = my.domain.Join(Relu(x), z)"
    text = "g (float[N,4] x, float[N,4] z) => (float[N,4] y) { r = Relu(x) j = my.domain.Join(z, r) y = Neg(j) }"
    rule = sp.Rule.from_text("own", pattern, "y = Add(x, z)")
    for register in (False, True):
        if register:
            operators.register(
                Operator("my.domain.Join", inputs="a, b", commutative=True, shape=lambda n: [n.shape(0)])
            )
        result = sp.Pipeline(sp.Sizes()).run(model(text), verify="off")
        assert [v.name for v in result.proto.graph.value_info] == ["r", "j"][: 1 + register]
        assert len(sp.Pipeline(sp.Rewrite(rule)).run(model(text), verify="off").applied) == register


def test_a_wrong_rewrite_around_it_is_refuted() -> None:
    operators.register(swish(reference=BODY))
    spoil = sp.Rule.from_text("spoil", "y = my.domain.Swish(x)", "y = Relu(x)", exactness="exact")
    result = sp.Pipeline(sp.Rewrite(spoil)).run(model("g (float[N,4] x) => (float[N,4] y) { y = my.domain.Swish(x) }"))
    assert [(d.rule, d.verdict) for d in result.undone] == [("spoil", "refuted")]
    assert result.proto.graph.node[0].op_type == "Swish" and result.exit_code == 7


def test_a_rule_that_emits_it_needs_no_body_of_its_own() -> None:
    operators.register(swish(reference=BODY))
    fuse = sp.Rule.from_text("fuse", "y = Mul(x, Sigmoid(x))", "y = my.domain.Swish(x)")
    assert_rule(fuse, PLAIN, FUSED)


def test_a_rule_may_carry_the_body_of_what_it_emits() -> None:
    fuse = sp.Rule.from_text("fuse", "y = Mul(x, Sigmoid(x))", "y = my.domain.Swish(x)", reference=BODY)
    assert_rule(fuse, PLAIN, FUSED)
    bare = "Swish (x) => (y) { s = Sigmoid(x) y = Mul(x, s) }"
    for emitted, body, says in (
        ("my.domain.Swsh", BODY, "fuse: reference defines my.domain.Swish, the rewrite emits my.domain.Swsh; begin it"),
        (
            "my.domain.Swish",
            bare,
            "fuse: reference defines Swish of no domain, the rewrite emits my.domain.Swish; begin",
        ),
    ):
        with pytest.raises(sp.RuleError) as error:
            sp.Rule.from_text("fuse", "y = Mul(x, Sigmoid(x))", f"y = {emitted}(x)", reference=body)
        assert says in str(error.value)


def test_defaults_of_attributes_and_orders_of_operands_are_known_to_patterns() -> None:
    operators.register(swish())
    operators.register(Operator("my.domain.Join", inputs="a, b", commutative=True))
    operators.register(Operator("my.domain.Pair", inputs="a, b"))
    text = "g (float[N] x, float[N] z) => (float[N] y) {{ s = my.domain.Swish(x) y = my.domain.{}(z, s) }}"
    for op, found in (("Join", 1), ("Pair", 0)):
        pattern = f"y = my.domain.{op}(my.domain.Swish(x)<alpha=1.0>, z)"
        rule = sp.Rule.from_text("own", pattern, "y = Add(x, z)")
        result = sp.Pipeline(sp.Rewrite(rule)).run(model(text.format(op)), verify="off")
        assert len(result.applied) == found


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("y = my.domain.Swish(x)<beta=1>", "my.domain.Swish has no attribute 'beta'"),
        ("y = my.domain.Swish(x, w)", "my.domain.Swish takes 1 input, not 2"),
        ("y, z = my.domain.Swish(x)", "my.domain.Swish has 1 result, not 2"),
    ],
)
def test_patterns_are_held_against_what_is_known(pattern: str, says: str) -> None:
    rewrite = "y = Relu(x)\nz = Relu(x)" if "z" in pattern else "y = Relu(x)"
    sp.Rule.from_text("free", pattern, rewrite)  # of an unknown domain all is taken as it is written
    operators.register(swish())
    with pytest.raises(sp.RuleError, match=says):
        sp.Rule.from_text("held", pattern, rewrite)


def test_multiply_accumulates_count_in_the_gate() -> None:
    operators.register(
        Operator("my.domain.Mix", inputs="x, w", macs=lambda view, type_of: 1000, shape=lambda n: [n.shape(0)])
    )
    text = "g (float[{},4] x, float[4,4] w) => (float[{},4] y) {{ y = my.domain.Mix(x, w) }}"
    for size, macs in (("2", 1000), ("N", 0)):
        ground = Ground(model(text.format(size, size)))
        context = ground.state.context
        found = cost([context.view(n) for n in ground.state.index.nodes()], context.type_of)
        assert (found.macs, found.per_position) == (macs, size == "N")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Operator("Swish", inputs="x"), "operator 'Swish': write domain and name, as in my.domain.Swish"),
        (lambda: Operator("ai.onnx.Swish", inputs="x"), "write domain and name"),
        (lambda: Operator("d.A", inputs="x y"), "operator d.A: 'x y' is no operand; write x, b?, parts... or n: int64"),
        (lambda: Operator("d.A", inputs="n: text"), "'n: text' is no operand"),
        (lambda: Operator("d.A", inputs="a..., b"), "operator d.A: 'a...' takes all that is left: it must be the last"),
        (lambda: Operator("d.A", inputs=["x"]), "operator d.A: inputs is ['x'], not text"),
        (lambda: Operator("d.A", inputs="x", reference=5), "operator d.A: reference is 5, not text"),
        (lambda: Operator("d.A", inputs="x", attributes={"k": list}), "attribute k is <class 'list'>, not int, float, str"),
        (lambda: Operator("d.A", inputs="x", reference="A (x) =>"), "operator d.A: reference is no ONNX function"),
        (lambda: Operator("d.A", inputs="x", reference=BODY), "operator d.A: its reference defines my.domain.Swish"),
        (lambda: [operators.register(swish(), "a.py"), operators.register(swish(), "b.py")],
         "two operators are called 'my.domain.Swish': one from a.py, one from b.py"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_said(make: Any, says: str) -> None:
    with pytest.raises(OperatorError) as error:
        make()
    assert says in str(error.value)


@pytest.mark.parametrize(("gives", "shape"), [((np.int64(3), 4), ["3", "4"]), ((None, 4), None)])
def test_sizes_that_a_shape_function_gives_are_taken(gives: tuple[Any, ...], shape: list[str] | None) -> None:
    operators.register(Operator("my.domain.Fix", inputs="x", shape=lambda n: [gives]))
    proto = model("g (float[N,4] x) => (float[a,b] y) { f = my.domain.Fix(x) y = Neg(f) }")
    result = sp.optimize(proto, verify="off")
    infos = [v for v in result.proto.graph.value_info if v.name == "f"]
    dims = [[str(d.dim_value) for d in v.type.tensor_type.shape.dim] for v in infos]
    assert dims == ([shape] if shape else [["0", "4"]])


@pytest.mark.parametrize("gives", [3, "ab", [[2.5]], [["N"]], [[10**30]], [[-5]], [[True]]])
def test_what_is_no_shape_is_refused(gives: Any) -> None:
    operators.register(Operator("my.domain.Fix", inputs="x", shape=lambda n: gives))
    proto = model("g (float[N,4] x) => (float[a,b] y) { f = my.domain.Fix(x) y = Neg(f) }")
    with pytest.raises(OperatorError, match=r"operator my\.domain\.Fix: shape gave .*, not one list of sizes"):
        sp.optimize(proto, verify="off")


def test_a_rules_file_may_hold_operators(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        f"from surgeon_passes import Operator\n\nSWISH = Operator('my.domain.Swish', inputs='x', reference='''{BODY}''')\n"
    )
    registry = sp.Registry.installed()
    assert registry.add_path(str(path)) == []
    result = sp.optimize(model(TEXT), registry=registry)
    assert result.check.status == "equal"
    before = run(_with_body(model(TEXT)), x=floats(3, 4))
    np.testing.assert_allclose(before["y"], run(_with_body(result.proto), x=floats(3, 4))["y"], rtol=1e-5)


def _with_body(proto: Any) -> Any:
    from surgeon_passes.run import with_references

    return with_references(proto)


def test_packages_offer_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(operators)("acme")
    module.SWISH = swish()  # type: ignore[attr-defined]
    entry = SimpleNamespace(name="acme", dist=SimpleNamespace(name="acme-ops"), value="acme", load=lambda: module)
    monkeypatch.setattr(operators, "entry_points", lambda group: [entry] if group == operators.GROUP else [])
    operators.load_installed.cache_clear()
    operators.load_installed()
    assert operators.find("my.domain", "Swish") is module.SWISH
    assert schemas.custom_schema("my.domain", "Swish").source == "package acme-ops"  # type: ignore[union-attr]
    entry.load = lambda: 1 / 0
    operators.load_installed.cache_clear()
    with pytest.raises(OperatorError, match="package acme-ops, entry point 'acme' cannot be loaded: division by zero"):
        operators.load_installed()
    operators.load_installed.cache_clear()


def test_multiply_accumulates_are_those_that_were_told() -> None:
    fixed = FUSED.replace("N", "2")
    assert model_cost(load(model(fixed))).unknown == ("Swish -> 'y'",)
    operators.register(swish(shape=lambda n: [n.shape(0)], macs=lambda view, type_of: 77))
    found = model_cost(load(model(fixed)))
    assert (found.macs, found.unknown) == (77, ())
