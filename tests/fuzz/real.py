"""Real models in another dress: exporters' files and what packages ship."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import version_converter

from benchmarks.entries import Entry, feeds

from .cases import Case
from .choices import Choices, odds
from .dress import dressed

NEWEST = 23


def real_case(choices: Choices, entry: Entry, path: Path) -> Case:
    """The model, now and then upgraded, in another dress, with legal inputs at one or two sizes."""
    model = onnx.load(path)
    model = dressed(choices, converted(choices, model))
    given = [feeds(entry, 0)]
    if "alt_static_inputs" in entry:
        given.append(feeds(entry, 1, alt=True))
    return Case(model, given, sources=(entry["name"],), is_real=True)


def converted(choices: Choices, model: onnx.ModelProto) -> onnx.ModelProto:
    """At a newer opset, by onnx's converter, where that can do it."""
    opset = next((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), NEWEST)
    if opset >= NEWEST or not odds(choices, 3):
        return model
    try:
        found = version_converter.convert_version(model, choices.number(opset + 1, NEWEST))
        onnx.checker.check_model(found, full_check=True)
    except Exception:  # the converter's own errors have no common class
        return model
    return found
