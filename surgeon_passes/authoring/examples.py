"""The example of a rule's docstring as a model: ``before:`` and a graph in ONNX text, options in front."""

from __future__ import annotations

import re

import onnx

from surgeon_passes import testing
from surgeon_passes.errors import ModelError
from surgeon_passes.report.catalogue import section
from surgeon_passes.rules.rule import Rule

OPSET = 20
"""Of an example, where the rule holds there."""


def example_of(rule: Rule) -> tuple[onnx.ModelProto, dict[str, bool]] | None:
    """The graph before, and options that it needs; None for a docstring without one, or with text of another kind."""
    found = re.search(r"^before:\n(.*?)(?=^after:|\Z)", section(rule, "Example"), re.MULTILINE | re.DOTALL)
    if found is None:
        return None
    first, last = rule.opset
    opset = min(max(first, OPSET), last or OPSET + first)
    try:
        model = testing.model(found[1], opset)
        onnx.checker.check_model(model)
    except (ModelError, onnx.checker.ValidationError):
        return None
    options = re.match(r"options:\n((?: +\w+\n)+)", section(rule, "Example"))
    return model, dict.fromkeys(options[1].split(), True) if options else {}
