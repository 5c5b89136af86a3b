"""Assertions for the families that put written-out operators together again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx

from surgeon_passes import Rule

from .harness import Arrays, Builder, apply, assert_equal, operators

SIZES = ({"N": 9, "T": 4, "H": 8, "W": 6}, {"N": 5, "T": 3, "H": 6, "W": 10})


def assert_fuses(
    rules: Sequence[Rule],
    model: onnx.ModelProto,
    tolerance: float | None = None,
    sizes: Iterable[Mapping[str, int]] = SIZES,
    approximate: bool = False,
    feeds: Arrays | None = None,
    **left: int,
) -> onnx.ModelProto:
    """The rules leave these operators, and the same function."""
    result = apply(rules, model, approximate=approximate)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, sizes, tolerance, feeds)
    return result.model


def assert_stays(rules: Sequence[Rule], model: onnx.ModelProto, reason: str = "", approximate: bool = False) -> None:
    """Nothing is rewritten; some decision says why where ``reason`` is given."""
    result = apply(rules, model, approximate=approximate)
    assert result.ops == operators(model)
    assert any(reason in r for r in result.reasons) or not reason, result.reasons


def unranked(b: Builder) -> str:
    """A tensor whose rank only a feed tells."""
    return str(b.node("Reshape", b.input("flat", ["N"]), b.input("shape", ["R"], np.int64)))


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
