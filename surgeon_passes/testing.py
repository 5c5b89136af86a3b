"""For tests of rules: what a rule makes of a graph, what it declines, and whether two models are equal.

Models are ONNX text, with or without the header of a model, or a ModelProto. What does not hold is an AssertionError.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.parser
import onnx.printer
from onnx import helper, numpy_helper

from surgeon_passes.errors import ModelError
from surgeon_passes.explain import Explanation, explain
from surgeon_passes.model import Weights
from surgeon_passes.operators import load_installed
from surgeon_passes.ops.schema import STANDARD, schema
from surgeon_passes.passes import Cleanup, Rewrite, Verify
from surgeon_passes.pipeline import Pipeline
from surgeon_passes.report.explanation import render
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Rule
from surgeon_passes.run import with_references

Text: TypeAlias = "str | onnx.ModelProto"
Feeds: TypeAlias = Mapping[str, Any]
OPSET = 17
CLOSE = 1e-5
"""Relative difference up to which constants of a rewritten graph are those that were expected."""
_DOMAIN = re.compile(r"=\s*((?:\w+\.)+)\w+\s*[<(]")


def model(text: Text, opset: int = OPSET) -> onnx.ModelProto:
    """A model from ONNX text. Without a header (``<ir_version: …>``) it is one of ``opset``, and of the first version of each
    other domain whose operators stand in it. Raises ModelError, with the parser's words, for what is no model.

    In ONNX text a graph is ``name (inputs) => (outputs) <initializers> { nodes }``.
    """
    if isinstance(text, onnx.ModelProto):
        return text
    text = textwrap.dedent(text).strip()
    if not text.startswith("<"):
        domains = {found[1].rstrip(".") for found in _DOMAIN.finditer(text)} - {""}
        imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in sorted(domains))]
        ir = helper.find_min_ir_version_for([o for o in imports if o.domain in STANDARD], ignore_unknown=True)
        listed = ", ".join(f'"{o.domain}" : {o.version}' for o in imports)
        text = f"<ir_version: {max(8, ir)}, opset_import: [{listed}]>\n{text}"
    try:
        return onnx.parser.parse_model(text)
    except onnx.parser.ParseError as error:
        raise ModelError(f"this is no model in ONNX text: {' '.join(str(error).split())}") from None


def assert_rule(rule: Rule, before: Text, after: Text, *, opset: int = OPSET, **options: Any) -> None:
    """That ``rule`` alone turns ``before`` into ``after``, and ONNX Runtime finds the two equal.

    Graphs are compared from their outputs: operators, attributes (one that is left out is its default), wiring, and constants
    by dtype, shape and value; names of inner tensors and nodes do not matter. ``options`` are those of :class:`Rewrite`.
    Where the rule does not fire, the message says how far its pattern went.
    """
    source, wanted = model(before, opset), model(after, opset)
    found = _tried(rule, source, options)
    result = found.result
    if result.undone:
        undone = result.undone[0]
        raise AssertionError(f"{rule.name} was refuted at {undone.root}: {undone.reason}")
    if not any(d.rule == rule.name for d in result.applied):
        raise AssertionError(f"{rule.name} was not applied:\n{render(found, 3)}")
    unverified = next((d for d in result.applied if d.verdict != "verified"), None)
    if unverified is not None:
        raise AssertionError(f"{rule.name} is {unverified.verdict} at {unverified.root}: {unverified.reason}")
    difference = next(_differences(result.proto.graph, wanted.graph), None)
    if difference:
        raise AssertionError(
            f"{rule.name}: {difference}\n--- it gave\n{_printed(result.proto)}\n--- expected\n{_printed(wanted)}"
        )
    _assert_equal(source, wanted, None, [f for f in (rule.reference_function(),) if f is not None])


def assert_declined(rule: Rule, before: Text, reason: str, *, opset: int = OPSET, **options: Any) -> None:
    """That ``rule`` leaves ``before`` as it is, and that ``reason`` is part of what it says somewhere."""
    found = _tried(rule, model(before, opset), options)
    if not reason:
        raise ValueError("say which reason the rule should give")
    fired = [d for d in found.result.decided if d.rule == rule.name and d.status in ("applied", "undone")]
    if fired:
        what = "applied" if fired[0].status == "applied" else fired[0].verdict
        raise AssertionError(f"{rule.name} was {what} at {fired[0].root}, where it should say: {reason}")
    said = [*(d.reason for d in found.decisions), *(a.reason for a in found.attempts)]
    if not any(reason in text for text in said):
        raise AssertionError(f"{rule.name} does not say '{reason}':\n{render(found, 3)}")


def assert_equal_models(a: Text, b: Text, feeds: Feeds | Sequence[Feeds] | None = None, *, opset: int = OPSET) -> None:
    """That both give the same in ONNX Runtime, within the end check's bounds; without ``feeds`` on made-up inputs."""
    _assert_equal(model(a, opset), model(b, opset), feeds)


def _assert_equal(
    a: onnx.ModelProto,
    b: onnx.ModelProto,
    feeds: Feeds | Sequence[Feeds] | None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> None:
    """``functions`` stand for custom operators, besides those of Operators that are registered."""
    from surgeon_passes.verify import compare_models

    load_installed()
    first, second = ((with_references(m, functions), Weights()) for m in (a, b))
    sets = [feeds] if isinstance(feeds, Mapping) else feeds
    arrays = None if sets is None else [{k: np.asarray(v) for k, v in one.items()} for one in sets]
    check = compare_models(first, second, arrays)
    if check.status != "equal":
        where = f" at '{check.output}'" if check.output else ""
        raise AssertionError(f"the models are {check.status}{where}: {check.reason or f'error {check.error}'}")


def _tried(rule: Rule, source: onnx.ModelProto, options: Mapping[str, Any]) -> Explanation:
    load_installed()
    pipeline = Pipeline(Rewrite(rule, **{"approximate": True, **options}), Cleanup())
    return explain(source, rule=rule.name, pipeline=pipeline, registry=Registry([rule]), verify=Verify())


# --- comparing graphs ------------------------------------------------------------------------------------------------


def _differences(got: onnx.GraphProto, wanted: onnx.GraphProto) -> Iterator[str]:
    for side in ("input", "output"):
        names = [[v.name for v in getattr(graph, side)] for graph in (got, wanted)]
        if names[0] != names[1]:
            yield f"{side}s are {names[0]}, not {names[1]}"
    yield from _compared(_Maker(got), _Maker(wanted))
    counts = [sum(n.op_type != "Constant" for n in graph.node) for graph in (got, wanted)]
    if counts[0] != counts[1]:
        yield f"it has {counts[0]} nodes, not {counts[1]}"


class _Maker:
    """Who makes a tensor of a graph, or of those around it."""

    def __init__(self, graph: onnx.GraphProto, outer: _Maker | None = None) -> None:
        self.graph = graph
        self.outer = outer
        self.nodes = {name: node for node in graph.node for name in node.output}
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.constants |= {n.output[0]: value for n in graph.node for value in _constant(n)}

    def node(self, name: str) -> onnx.NodeProto | None:
        return self.nodes.get(name) or (self.outer.node(name) if self.outer else None)

    def constant(self, name: str) -> Any:
        return self.constants[name] if name in self.constants else self.outer.constant(name) if self.outer else None


def _constant(node: onnx.NodeProto) -> Iterator[Any]:
    if node.op_type != "Constant" or not node.attribute:
        return
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        yield numpy_helper.to_array(value)
    else:
        yield np.asarray(
            value, np.float32 if "float" in attribute.name else np.int64 if "int" in attribute.name else None
        )


def _compared(got: _Maker, wanted: _Maker) -> Iterator[str]:
    """Pairs of tensors, from the outputs on; each must be made alike."""
    todo = list(zip((v.name for v in got.graph.output), (v.name for v in wanted.graph.output), strict=False))
    seen: set[tuple[str, str]] = set()
    while todo:
        a, b = todo.pop(0)
        if (a, b) in seen:
            continue
        seen.add((a, b))
        values = got.constant(a), wanted.constant(b)
        makers = got.node(a), wanted.node(b)
        if values[0] is not None or values[1] is not None:
            yield from _same_constants(a, b, *values)
        elif makers[0] is None or makers[1] is None:
            if a != b or makers[0] is not makers[1]:
                yield f"'{a}' stands where '{b}' is expected"
        else:
            places = list(makers[0].output).index(a), list(makers[1].output).index(b)
            if places[0] != places[1]:
                yield f"'{a}' is result {places[0] + 1} of {makers[0].op_type}, '{b}' is result {places[1] + 1}"
            yield from _same_nodes(makers[0], makers[1], got, wanted)
            todo += zip(_operands(makers[0]), _operands(makers[1]), strict=False)


def _operands(node: onnx.NodeProto) -> list[str]:
    names = list(node.input)
    while names and not names[-1]:
        names.pop()
    return names


def _same_constants(a: str, b: str, got: Any, wanted: Any) -> Iterator[str]:
    if got is None or wanted is None:
        yield f"'{a}' is {'no ' if got is None else 'a '}constant, unlike '{b}'"
    elif got.dtype != wanted.dtype or got.shape != wanted.shape:
        yield f"constant '{a}' is {got.dtype}{list(got.shape)}, '{b}' is {wanted.dtype}{list(wanted.shape)}"
    elif not (np.array_equal(got, wanted) or _close(got, wanted)):
        yield f"constant '{a}' is {got.tolist()}, '{b}' is {wanted.tolist()}"


def _close(got: Any, wanted: Any) -> bool:
    is_number = np.issubdtype(wanted.dtype, np.floating)
    return bool(is_number and np.allclose(got, wanted, rtol=CLOSE, atol=CLOSE * float(np.abs(wanted).max(initial=0))))


def _same_nodes(a: onnx.NodeProto, b: onnx.NodeProto, got: _Maker, wanted: _Maker) -> Iterator[str]:
    names = [f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in (a, b)]
    if names[0] != names[1]:
        yield f"{names[0]} stands where {names[1]} is expected"
        return
    if len(_operands(a)) != len(_operands(b)):
        yield f"{names[0]} has {len(_operands(a))} operands, not {len(_operands(b))}"
    held, expected = _attributes(a), _attributes(b)
    for name in sorted(held.keys() | expected.keys()):
        one, other = held.get(name), expected.get(name)
        if isinstance(one, onnx.GraphProto) and isinstance(other, onnx.GraphProto):
            yield from _compared(_Maker(one, got), _Maker(other, wanted))
        elif repr(one) != repr(other) and not _close_numbers(one, other):
            yield f"attribute {name} of {names[0]} is {one}, not {other}"


def _close_numbers(a: Any, b: Any) -> bool:
    return isinstance(a, float) and isinstance(b, float) and abs(a - b) <= CLOSE * abs(b)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """With the schema's defaults filled in."""
    known = schema(node.op_type, 1 << 20, node.domain)
    defaults = {name: a.default_value for name, a in known.attributes.items()} if known else {}
    found = {name: helper.get_attribute_value(value) for name, value in defaults.items() if value.type}
    return {**found, **{a.name: helper.get_attribute_value(a) for a in node.attribute}}


def _printed(proto: onnx.ModelProto) -> str:
    return str(onnx.printer.to_text(proto.graph))


__all__ = ["assert_declined", "assert_equal_models", "assert_rule", "model"]
