"""Assertions for rules that are bit-exact: what goes and what stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from surgeon_passes import Rule, patterns
from surgeon_passes.rules.registry import rules_of

from .harness import Builder, apply, assert_equal, constants, operators

ODD = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1e-42, 3e38, -7.0], np.float32)
"""Where "nearly the same" would show."""
SIZES = ({"N": 2, "H": 7, "W": 9}, {"N": 1, "H": 4, "W": 1}, {"N": 3, "H": 1, "W": 2})
EXACT = [
    rule for rule in rules_of(patterns) if rule.exactness.value == "exact" and {"cleanup", "shape"} & set(rule.sets)
]
"""Elimination and data movement: the rules that run together before any other."""
DRAWN = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
FLOATS = st.sampled_from([np.float32, np.float16, np.float64])
SHAPES = st.lists(
    st.sampled_from([1, 2, 3, "N", "H"]), min_size=1, max_size=4, unique_by=lambda d: d if d in ("N", "H") else object()
)
"""Shapes of up to two dims of no known size."""


def assert_becomes(
    model: onnx.ModelProto,
    *,
    rules: Rule | Iterable[Rule] = EXACT,
    sizes: Iterable[Mapping[str, int]] = SIZES,
    **left: int,
) -> onnx.ModelProto:
    """The rules leave these operators, and both models give the same bits, odd floats included."""
    result = apply(rules, model)
    assert result.ops == left, result.reasons
    assert_equal(model, result.model, sizes, tolerance=0)
    if len(model.graph.input) == 1 and model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        _assert_odd_numbers(model, result.model)
    return result.model


def _assert_odd_numbers(model: onnx.ModelProto, after: onnx.ModelProto) -> None:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    shape = [d.dim_value if d.HasField("dim_value") else 3 for d in dims]
    assert_equal(model, after, [{}], tolerance=0, feeds={"x": np.resize(ODD, shape)})


def assert_stays(model: onnx.ModelProto, reason: str = "", rules: Rule | Iterable[Rule] = EXACT) -> None:
    """Nothing is rewritten; some decision says why where ``reason`` is given, else there is none."""
    result = apply(rules, model)
    assert result.ops == operators(model)
    assert any(reason in r for r in result.reasons) if reason else not result.reasons, result.reasons


def after(b: Builder, tensor: str, rank: int | None = None, dtype: Any = None) -> onnx.ModelProto:
    """The tensor read by a node that stays, so that no interface is in the way."""
    return b.model(b.node("Neg", tensor), rank=rank, dtype=dtype)


def target(model: onnx.ModelProto) -> list[int]:
    """The constant target of the only Reshape."""
    name = next(n.input[1] for n in model.graph.node if n.op_type == "Reshape")
    return [int(v) for v in constants(model)[name]]
