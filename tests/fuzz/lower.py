"""Nodes are written in the newest form; these are those of older opsets."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from .fragment import Array, Fragment

REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare")
REDUCTIONS += ("ReduceLogSum", "ReduceLogSumExp")
MOVED: dict[str, tuple[int, tuple[str, ...]]] = {
    "Squeeze": (13, ("axes",)),
    "Unsqueeze": (13, ("axes",)),
    "ReduceSum": (13, ("axes",)),
    **dict.fromkeys(REDUCTIONS, (18, ("axes",))),
    "Split": (13, ("split",)),
    "Pad": (11, ("pads", "value")),
    "Slice": (10, ("starts", "ends", "axes")),
    "Clip": (11, ("min", "max")),
    "Dropout": (12, ("ratio",)),
    "TopK": (10, ("k",)),
}
"""opset below which operands behind the first are attributes of these names"""
ADDED = {
    "noop_with_empty_axes": 18,
    "num_outputs": 18,
    "training_mode": 14,
    "seed": 12,
    "saturate": 19,
    "allowzero": 14,
}
"""attributes that are left out below an opset, where they say what held before"""
FLOATS = ("min", "max", "value", "ratio")
SINGLE = (*FLOATS, "k")


class CannotLower(Exception):
    """There is no such form at that opset."""


def lowered(fragment: Fragment, opset: int) -> Fragment:
    """The fragment at ``opset``. Raises CannotLower."""
    nodes = [_lowered(node, fragment.constants, opset) for node in fragment.nodes]
    read = {n for node in nodes for n in node.input} | set(fragment.outputs)
    constants = {n: v for n, v in fragment.constants.items() if n in read}
    return Fragment(nodes, fragment.inputs, fragment.outputs, constants, fragment.functions, fragment.source)


def _lowered(node: onnx.NodeProto, constants: Mapping[str, Array], opset: int) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    if node.domain:
        return made
    for attribute in list(made.attribute):
        if opset < ADDED.get(attribute.name, 0):
            if attribute.name not in ("num_outputs", "seed") and helper.get_attribute_value(attribute):
                raise CannotLower(f"{node.op_type}.{attribute.name}")
            made.attribute.remove(attribute)
    if node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and opset < 13:
        if [a.i for a in node.attribute if a.name == "axis"] not in ([-1], []):
            raise CannotLower("these flatten all axes behind theirs")
        del made.attribute[:]
        made.attribute.append(helper.make_attribute("axis", -1 if opset >= 11 else 99))
    until, names = MOVED.get(node.op_type, (0, ()))
    if opset < until:
        _move(made, names, constants)
    if opset < 11 and any(a.name == "axes" and min(a.ints, default=0) < 0 for a in made.attribute):
        raise CannotLower("axes are not counted from the end yet")
    return made


def _move(node: onnx.NodeProto, names: tuple[str, ...], constants: Mapping[str, Array]) -> None:
    operands = list(node.input)
    if len(operands) > 1 + len(names):
        steps = constants.get(operands[-1])
        if node.op_type != "Slice" or steps is None or (np.asarray(steps) != 1).any():
            raise CannotLower(f"{node.op_type} has too many operands")
    del node.input[1:]
    for name, operand in zip(names, operands[1:], strict=False):
        if not operand:
            continue
        if operand not in constants:
            raise CannotLower(f"{name} of {node.op_type} is computed")
        value = np.asarray(constants[operand])
        if name in SINGLE:
            if value.size != 1:
                raise CannotLower(f"{name} has {value.size} elements")
            single = value.reshape(()).item()
            node.attribute.append(helper.make_attribute(name, float(single) if name in FLOATS else int(single)))
        else:
            node.attribute.append(helper.make_attribute(name, [int(v) for v in value.ravel()], attr_type=7))
