"""Models of one operator, and the plain rules applied to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from surgeon_passes import Rule
from surgeon_passes.patterns import npu_activation, npu_attention, npu_einsum, npu_indexing, npu_normalization
from surgeon_passes.rules.registry import rules_of
from surgeon_passes.runtime import RuntimeFailure, Session

from .harness import Result, apply

MODULES = (npu_activation, npu_normalization, npu_einsum, npu_indexing, npu_attention)
RULES = [rule for module in MODULES for rule in rules_of(module)]
REJECTED = {
    "HardSwish", "HardSigmoid", "Gelu", "Mish", "Swish", "Celu", "Selu", "IsNaN", "LayerNormalization",
    "RMSNormalization", "GroupNormalization", "LpNormalization", "Einsum", "GatherND",
    "ScatterND", "DepthToSpace", "SpaceToDepth", "Trilu", "Attention", "RotaryEmbedding",
}  # fmt: skip
BOUND = {np.dtype(np.float16): 4e-3, np.dtype(np.float32): 5e-6, np.dtype(np.float64): 1e-6}
"""Of the largest value; ONNX Runtime computes some operators in single precision, whatever the type."""
Arrays = Mapping[str, Any]


def one_node(
    op: str, feeds: Arrays, opset: int, dims: Mapping[str, Any] | None = None, **attrs: Any
) -> onnx.ModelProto:
    """``y = op(*feeds)``; a feed called ``k…`` is an initializer. ``dims`` replaces shapes of inputs."""
    shapes = {name: list((dims or {}).get(name, np.shape(value))) for name, value in feeds.items()}
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype) for name, value in feeds.items()}
    inputs = [helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in feeds if not n.startswith("k")]
    held = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in feeds.items() if n.startswith("k")]
    node = helper.make_node(op, [n if np.size(v) or n != "none" else "" for n, v in feeds.items()], ["y"], **attrs)
    result = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "g", inputs, [result], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(model)
    kind = inferred.graph.output[0].type.tensor_type
    if not kind.HasField("shape"):  # onnx infers nothing here: the result is like the first input
        kind.elem_type = kinds["x"]
        kind.shape.CopyFrom(inferred.graph.input[0].type.tensor_type.shape)
    onnx.checker.check_model(inferred)
    return inferred


def run_anywhere(model: onnx.ModelProto, feeds: Arrays) -> Any:
    """``y`` from ONNX Runtime, or from onnx's own reference where that lacks a kernel."""
    given = {i.name: feeds[i.name] for i in model.graph.input}
    try:
        return Session(model).run(given)["y"]
    except RuntimeFailure:
        return ReferenceEvaluator(model).run(None, given)[0]


def assert_decomposes(
    rule: Rule,
    op: str,
    feeds: Arrays,
    opset: int,
    dims: Mapping[str, Any] | None = None,
    exact: bool = False,
    **attrs: Any,
) -> Result:
    """The rule takes the operator out, and the result is the same to a few steps of its type."""
    model = one_node(op, feeds, opset, dims, **attrs)
    result = apply(rule, model)
    assert set(result.applied) == {rule.name} and op not in result.ops, result.reasons
    before, after = run_anywhere(model, feeds), run_anywhere(result.model, feeds)
    assert before.dtype == after.dtype and before.shape == after.shape
    if exact or before.dtype.kind != "f":
        assert before.tobytes() == after.tobytes()
    else:
        scale = max(float(np.abs(before.astype(np.float64)).max(initial=0)), 1e-6)
        gap = np.abs(before.astype(np.float64) - after.astype(np.float64)).max(initial=0)
        assert gap <= BOUND[before.dtype] * scale
    return result


def assert_declines(
    rule: Rule, says: str, op: str, feeds: Arrays, opset: int, dims: Mapping[str, Any] | None = None, **attrs: Any
) -> None:
    """The operator stays, with that reason ("" where the rule does not even look at it)."""
    result = apply(rule, one_node(op, feeds, opset, dims, **attrs))
    assert not result.applied and result.ops[op] == 1
    assert any(says in reason for reason in result.reasons) or not says, result.reasons
