"""Element types of results where the operator's schema alone says them: fixed ones, or an operand's."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto, defs

from surgeon_passes.model import onnx_dtype
from surgeon_passes.ops.schema import forgotten_by, schema

_NAMES = frozenset(TensorProto.DataType.keys())
Rule = int | tuple[int, ...] | None
"""An element type; or operands by position of which the first that is there has it; None where neither says it."""


@lru_cache(maxsize=4096)
def dtype_rules(op: str, opset: int, domain: str, count: int) -> tuple[Rule, ...]:
    """One rule for each of ``count`` results."""
    declared = schema(op, opset, domain)
    if declared is None:
        return (None,) * count
    rules = [_rule(declared, result) for result in declared.outputs]
    variadic = bool(rules) and declared.outputs[-1].option == defs.OpSchema.FormalParameterOption.Variadic
    last = rules[-1] if variadic and declared.outputs[-1].is_homogeneous else None
    return tuple(rules[k] if k < len(rules) - variadic else last for k in range(count))


forgotten_by(dtype_rules.cache_clear)


def _rule(declared: defs.OpSchema, result: Any) -> Rule:
    fixed = _element_type(declared, result.type_str)
    if fixed is not None:
        return fixed
    same = [
        place
        for place, operand in enumerate(declared.inputs)
        if operand.type_str == result.type_str
        and (operand.option != defs.OpSchema.FormalParameterOption.Variadic or operand.is_homogeneous)
    ]
    return tuple(same) or None


def _element_type(declared: defs.OpSchema, text: str) -> int | None:
    """The one element type that a type string, or the constraint of that name, allows; None for any other."""
    allowed = next((c.allowed_type_strs for c in declared.type_constraints if c.type_param_str == text), [text])
    if len(allowed) != 1 or not allowed[0].startswith("tensor("):
        return None
    name = allowed[0].removeprefix("tensor(").removesuffix(")").upper()
    return int(TensorProto.DataType.Value(name)) if name in _NAMES else None


def written_dtype(node: gs.Node) -> int | None:
    """What Constant, ConstantOfShape and Cast say in an attribute; None for other operators, and old forms of these."""
    if node.op in ("Constant", "ConstantOfShape"):
        value = node.attrs.get("value")
        if isinstance(value, gs.Constant):
            return onnx_dtype(value.dtype)
        return int(TensorProto.FLOAT) if node.op == "ConstantOfShape" and value is None else None
    if node.op == "Cast" and isinstance(node.attrs.get("to"), (int, np.dtype, type)):
        return onnx_dtype(node.attrs["to"])
    return None


@lru_cache(maxsize=4096)
def is_for_tensors(op: str, opset: int, domain: str) -> bool:
    """Whether every operand and result may be a tensor: not so of operators for sequences, optionals and maps."""
    declared = schema(op, opset, domain)
    if declared is None:
        return True
    constraints = {c.type_param_str: c.allowed_type_strs for c in declared.type_constraints}
    return all(
        any(allowed.startswith("tensor(") for allowed in constraints.get(entry.type_str, [entry.type_str]))
        for entry in (*declared.inputs, *declared.outputs)
    )


forgotten_by(is_for_tensors.cache_clear)
