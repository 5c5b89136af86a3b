"""The same function in another dress: names, order of nodes, constants in pieces, defaults that callers may override."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from .choices import Choices, flip, odds

STYLES = ("{}", "/layer.{}/out", "t:{}", "'{}'", 'a "{}"', "é{}", "{} {}")
LARGEST = 1 << 20
"""elements of a weight that is taken apart"""


def dressed(choices: Choices, model: onnx.ModelProto) -> onnx.ModelProto:
    """Some of the changes, one after the other, on a copy."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for change in CHANGES:
        if odds(choices, 2):
            change(choices, made)
    return made


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Nodes of the graph and its bodies; functions have names of their own."""
    todo = [model.graph]
    while todo:
        graph = todo.pop()
        for node in graph.node:
            yield node
            todo += [g for a in node.attribute for g in ([a.g] if a.type == AttributeProto.GRAPH else a.graphs)]


def graphs_of(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield model.graph
    for node in nodes_of(model):
        for attribute in node.attribute:
            yield from [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs


def rename(choices: Choices, model: onnx.ModelProto) -> None:
    """Every tensor but inputs and outputs, and every node, is called otherwise."""
    style = choices.pick(STYLES)
    kept = {v.name for v in (*model.graph.input, *model.graph.output)} | {""}
    names: dict[str, str] = {}

    def new(name: str) -> str:
        if name in kept:
            return name
        return names.setdefault(name, style.replace("{}", f"n{len(names)}"))

    for graph in list(graphs_of(model)):
        _rename_in(graph, new, graph is model.graph)
    for annotation in model.graph.quantization_annotation:
        annotation.tensor_name = new(annotation.tensor_name)
        for entry in annotation.quant_parameter_tensor_names:
            entry.value = new(entry.value)


def _rename_in(graph: onnx.GraphProto, new: Callable[[str], str], is_main: bool) -> None:
    for node in graph.node:
        node.input[:] = [new(n) for n in node.input]
        node.output[:] = [new(n) for n in node.output]
        node.name = new(node.name)
    for entry in (*graph.initializer, *graph.value_info):
        entry.name = new(entry.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = new(sparse.values.name)
    if not is_main:
        for value in (*graph.input, *graph.output):
            value.name = new(value.name)


def shuffle(choices: Choices, model: onnx.ModelProto) -> None:
    """Another topological order of the main graph."""
    from .exact import read_by

    waiting = list(model.graph.node)
    made_here = {o for n in waiting for o in n.output}
    wants = [read_by(n) & made_here for n in waiting]
    ready: set[str] = set()
    order = []
    while waiting:
        able = [k for k, want in enumerate(wants) if want <= ready]
        at = choices.pick(able)
        wants.pop(at)
        node = waiting.pop(at)
        ready |= set(node.output)
        order.append(node)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in order]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def split_constants(choices: Choices, model: onnx.ModelProto) -> None:
    """Some initializers become what nodes make of others: the same bytes."""
    graph = model.graph
    fixed = {v.name for v in (*graph.input, *graph.output)}
    fixed |= {e.value for a in graph.quantization_annotation for e in a.quant_parameter_tensor_names}
    able = [t for t in graph.initializer if t.name not in fixed and t.dims and 0 < np.prod(t.dims) < LARGEST]
    able = [t for t in able if t.data_type in (TensorProto.FLOAT, TensorProto.INT64) and not t.external_data]
    for _ in range(min(3, len(able))):
        tensor = able.pop(choices.number(0, len(able) - 1))
        array = numpy_helper.to_array(tensor)
        graph.initializer.remove(tensor)
        for node in reversed(list(_pieces(choices, graph, tensor.name, array))):
            graph.node.insert(0, node)


def _pieces(choices: Choices, graph: onnx.GraphProto, name: str, array: Any) -> Iterator[onnx.NodeProto]:
    def held(part: Any, label: str) -> str:
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(part), f"{name}_{label}"))
        return f"{name}_{label}"

    kind = choices.pick(("concat", "transpose", "reshape", "identity"))
    if kind == "concat" and array.shape[0] > 1:
        cut = choices.number(1, array.shape[0] - 1)
        yield helper.make_node("Concat", [held(array[:cut], "a"), held(array[cut:], "b")], [name], axis=0)
    elif kind == "transpose" and array.ndim > 1:
        perm = choices.order(array.ndim)
        back = [int(k) for k in np.argsort(perm)]
        yield helper.make_node("Transpose", [held(array.transpose(perm), "t")], [name], perm=back)
    elif kind == "reshape":
        yield helper.make_node("Reshape", [held(array.reshape(-1), "f"), held(np.int64(array.shape), "s")], [name])
    else:
        yield helper.make_node("Identity", [held(array, "i")], [name])


def defaults(choices: Choices, model: onnx.ModelProto) -> None:
    """Some initializers may be overridden by the caller: they are no constants."""
    if model.ir_version < 4:
        return
    public = {v.name for v in (*model.graph.input, *model.graph.output)}
    for tensor in model.graph.initializer:
        if tensor.name not in public and odds(choices, 4):
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            model.graph.input.append(value)


def old_form(choices: Choices, model: onnx.ModelProto) -> None:
    """IR 3: all initializers are inputs, too, and constants all the same."""
    bodies = any(g is not model.graph and g.initializer for g in graphs_of(model))
    if model.opset_import[0].version > 8 or model.functions or bodies or len(model.opset_import) > 1:
        return
    model.ir_version = 3
    public = {v.name for v in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name not in public:
            value = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            model.graph.input.append(value)


def inferred(choices: Choices, model: onnx.ModelProto) -> None:
    """value_info of what is inside."""
    if flip(choices) and not any(t.external_data for t in model.graph.initializer):
        found = onnx.shape_inference.infer_shapes(model)
        del model.graph.value_info[:]
        model.graph.value_info.extend(found.graph.value_info)


CHANGES: tuple[Callable[[Choices, onnx.ModelProto], None], ...] = (
    split_constants,
    shuffle,
    rename,
    inferred,
    defaults,
    old_form,
)
