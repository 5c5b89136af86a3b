"""Every rule's docstring: its sections, and its example, which is run."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from surgeon_passes import patterns
from surgeon_passes.report import catalogue
from surgeon_passes.rules.registry import rules_of
from surgeon_passes.rules.rule import Rule

from .harness import apply, assert_equal, graph_model

RULES = {rule.name: rule for rule in rules_of(patterns)}
EXAMPLE_OPSET = {"default": 20}


def section(rule: Rule, title: str) -> str:
    """The text under a title of a rule's docstring, dedented."""
    found = catalogue.section(rule, title)
    assert found, f"{rule.name} has no section '{title}'"
    return f"{found}\n"


def options(rule: Rule) -> dict[str, bool]:
    """What the example needs to be allowed."""
    found = re.match(r"options:\n((?: +\w+\n)+)", section(rule, "Example"))
    return dict.fromkeys(found[1].split(), True) if found else {}


def example(rule: Rule) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    text = section(rule, "Example")
    before, after = re.split(r"^after:\n", text[text.index("before:\n") :], flags=re.MULTILINE)
    first, last = rule.opset
    opset = min(max(first, EXAMPLE_OPSET["default"]), last or 1 << 20)
    return _model(before.removeprefix("before:\n"), opset), _model(after, opset)


def _model(text: str, opset: int) -> onnx.ModelProto:
    return graph_model(text, opset, **({"com.microsoft": 1} if "com.microsoft." in text else {}))


def canonical(model: onnx.ModelProto) -> list[tuple[object, ...]]:
    """Nodes in order with their wiring and constants by value, names of inner tensors left out."""
    held = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    number: dict[str, int] = {}
    lines: list[tuple[object, ...]] = []
    for node in model.graph.node:
        if node.op_type == "Constant":
            held[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            continue
        operands = tuple(_operand(n, held, number) for n in node.input)
        attrs = {a.name: _attribute(a) for a in node.attribute}
        lines.append((node.op_type, operands, tuple(sorted(attrs.items()))))
        number.update({n: len(number) + i for i, n in enumerate(node.output)})
    return sorted(lines, key=str)


def _operand(name: str, held: dict[str, np.ndarray], number: dict[str, int]) -> object:
    if name in held:
        array = held[name]
        return (str(array.dtype), array.shape, [float(f"{v:.6g}") for v in array.astype(np.float64).ravel()])
    return number.get(name, name)


def _attribute(attribute: onnx.AttributeProto) -> str:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return str(numpy_helper.to_array(value).tolist())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def test_families_are_listed() -> None:
    assert len(RULES) == len(list(rules_of(patterns)))
    assert all(rule.source.startswith("surgeon_passes.patterns.") for rule in RULES.values())


@pytest.mark.parametrize("name", RULES)
def test_docstring_explains_the_rule(name: str) -> None:
    rule = RULES[name]
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", name)
    assert rule.doc.splitlines()[0].endswith(".")
    assert section(rule, "Algebra").strip() and section(rule, "Declines when").strip()


@pytest.mark.parametrize("name", RULES)
def test_example_is_what_the_rule_does(name: str) -> None:
    rule = RULES[name]
    before, after = example(rule)
    result = apply(rule, before, **options(rule))
    assert result.applied == [name]
    assert canonical(result.model) == canonical(after)
    assert_equal(before, result.model, tolerance=0 if rule.exactness.value == "exact" else None)
    assert_equal(before, after)
