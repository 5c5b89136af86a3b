"""The model in double precision: what rounding and overflow alone do to float32 and float16 is seen against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, inliner, numpy_helper
from onnx.reference import ReferenceEvaluator

from surgeon_passes.region import Tolerances
from surgeon_passes.runtime import RuntimeFailure, Session
from surgeon_passes.verify.endcheck import output_gap
from surgeon_passes.verify.inputs import one_ulp

from .fragment import Array

SMALL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
ALWAYS = "always_true"
FACTOR = 4.0
"""by how much the result may be farther from what is exact than the original is"""


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every float in it a double: types, constants, what is cast to."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), ALWAYS))  # onnx's reference wants a condition
    _graph(made.graph)
    for function in made.functions:
        _nodes(function.node)
    return made


def needed_for(model: onnx.ModelProto, output: str) -> onnx.ModelProto:
    """What computes one output alone."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    wanted = {output}
    nodes = []
    for node in reversed(model.graph.node):
        if wanted.intersection(node.output):
            wanted |= read_by(node)
            nodes.append(node)
    del made.graph.node[:]
    made.graph.node.extend(reversed(nodes))
    kept = next(o for o in model.graph.output if o.name == output)
    del made.graph.output[:]
    made.graph.output.append(kept)
    for held in (made.graph.initializer, made.graph.input):
        for entry in [e for e in held if e.name not in wanted]:
            held.remove(entry)
    return made


def read_by(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, its bodies included."""
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            found |= {o.name for o in attribute.g.output}
            found |= {name for inner in attribute.g.node for name in read_by(inner)}
    return found


def _graph(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type in SMALL:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for held in graph.initializer:
        _tensor(held)
    _nodes(graph.node)


def _nodes(nodes: Any) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i in SMALL:
                attribute.i = TensorProto.DOUBLE
            elif attribute.type == AttributeProto.TENSOR:
                _tensor(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                _graph(attribute.g)
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                value = numpy_helper.from_array(np.array(onnx.helper.get_attribute_value(attribute), np.float64))
                attribute.CopyFrom(onnx.helper.make_attribute("value", value))
        if node.op_type == "Loop" and not node.input[1]:
            node.input[1] = ALWAYS
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))


def _tensor(tensor: TensorProto) -> None:
    if tensor.data_type in SMALL:
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), name))


def exact_output(model: onnx.ModelProto, feeds: Mapping[str, Array], output: str) -> Array | None:
    """What the model gives in double precision; None where nothing can run it so."""
    wide = widened(needed_for(model, output))
    read = {i.name for i in wide.graph.input}
    given = {n: v.astype(np.float64) if v.dtype.kind == "f" else v for n, v in feeds.items() if n in read}
    try:
        return np.asarray(Session(wide).run(given)[output])
    except RuntimeFailure:
        pass
    try:
        with np.errstate(all="ignore"):
            return np.asarray(ReferenceEvaluator(wide).run(None, given)[0])
    except Exception:  # onnx's reference has no common class of errors
        return None


def moved(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The model with every weight moved by one step of its type, up or down."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    held = [*made.graph.initializer, *(t for nodes in _all_nodes(made) for n in nodes for t in _constants(n))]
    for number, tensor in enumerate(held):
        value = numpy_helper.to_array(tensor)
        if value.dtype.kind == "f" and value.size > 1:
            tensor.CopyFrom(numpy_helper.from_array(one_ulp(value, 100 * seed + number), tensor.name))
    return made


def _all_nodes(model: onnx.ModelProto) -> Iterator[Any]:
    todo: list[Any] = [model.graph.node, *(f.node for f in model.functions)]
    while todo:
        nodes = todo.pop()
        yield nodes
        todo += [a.g.node for n in nodes for a in n.attribute if a.type == AttributeProto.GRAPH]


def _constants(node: onnx.NodeProto) -> list[TensorProto]:
    return [a.t for a in node.attribute if node.op_type == "Constant" and a.type == AttributeProto.TENSOR]


def has_extremes(model: onnx.ModelProto) -> bool:
    """Whether some constant is not finite, or squared would not be."""
    held = [*model.graph.initializer, *(t for nodes in _all_nodes(model) for n in nodes for t in _constants(n))]
    values = (v for v in map(numpy_helper.to_array, held) if v.dtype.kind == "f")
    return any(not (np.abs(v) < np.sqrt(np.finfo(v.dtype).max)).all() for v in values)


def is_noise(model: onnx.ModelProto, feeds: Mapping[str, Array], output: str, a: Array, b: Array) -> bool:
    """Whether ``b`` is no farther from ``a``, of the original, than four times what the last bits of its weights do."""
    alone = needed_for(model, output)
    read = {i.name for i in alone.graph.input}
    noise = 0.0
    for seed in range(3):
        given = {n: one_ulp(v, seed + 50) for n, v in feeds.items() if n in read}
        gap = output_gap(a, Session(moved(alone, seed)).run(given)[output])
        noise = max(noise, 0.0 if gap.reason else gap.error)
    gap = output_gap(a, b)
    return not gap.reason and gap.error <= FACTOR * noise


def is_beyond_numbers(model: onnx.ModelProto, feeds: Mapping[str, Array], output: str, a: Array, b: Array) -> bool:
    """Whether infinities or NaN flow inside, and ``a`` and ``b`` agree where both are finite.

    Of ``x - x`` and ``0 * x``, no rule of real arithmetic holds for an infinite x.
    """
    if a.dtype.kind != "f" or a.shape != b.shape or a.dtype != b.dtype:
        return False
    both = np.isfinite(a) & np.isfinite(b)
    gap = output_gap(np.where(both, a, 0), np.where(both, b, 0))
    if gap.reason or gap.error > Tolerances().end:
        return False
    alone = needed_for(model, output)
    return has_extremes(alone) or _overflows_inside(alone, feeds)  # inside bodies nothing can be looked at


def _overflows_inside(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> bool:
    model = inliner.inline_local_functions(model)  # what overflows in a function is seen, too
    public = {o.name for o in model.graph.output}
    inside = [o for n in model.graph.node for o in n.output if o and o not in public]
    model.graph.output.extend(onnx.ValueInfoProto(name=o) for o in inside)
    read = {i.name for i in model.graph.input}
    found = Session(model).run({n: v for n, v in feeds.items() if n in read}, inside)
    values = (v for v in found.values() if isinstance(v, np.ndarray) and v.dtype.kind == "f")
    return any(not np.isfinite(v).all() for v in values)


def is_rounding(a: Array, b: Array, exact: Array) -> bool:
    """Whether ``b``, of the result, is about as near to what is exact as ``a``, of the original.

    Where the original is not finite and the exact value is, the result may be either. Where there are no floats, all
    elements must be equal.
    """
    if a.dtype != b.dtype or a.shape != b.shape or a.shape != exact.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    step = float(np.finfo(a.dtype).eps)
    wide_a, wide_b, true = (v.astype(np.float64) for v in (a, b, exact))
    same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    with np.errstate(invalid="ignore"):
        lost = ~np.isfinite(wide_a) & np.isfinite(true)
        off_a, off_b = np.abs(wide_a - true), np.abs(wide_b - true)
        usual = np.isfinite(off_a)
        scale = np.abs(true[np.isfinite(true)]).max(initial=0.0)
        allowed = FACTOR * off_a[usual].max(initial=0.0) + 16 * step * np.where(lost, np.abs(true), scale)
        good = np.isfinite(off_b) & (off_b <= allowed)
    return bool((same | good | (lost & ~np.isfinite(wide_b))).all())
