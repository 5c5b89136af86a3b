"""The example of a rule's docstring as a model: ``before:`` and a graph in ONNX text, options in front."""

from __future__ import annotations

import re

import onnx

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
    domains = "".join(f', "{d}" : 1' for d in sorted({"com.microsoft"}) if f"{d}." in found[1])
    try:
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{domains}]> {found[1]}')
        onnx.checker.check_model(model)
    except (onnx.parser.ParseError, onnx.checker.ValidationError):
        return None
    options = re.match(r"options:\n((?: +\w+\n)+)", section(rule, "Example"))
    return model, dict.fromkeys(options[1].split(), True) if options else {}
