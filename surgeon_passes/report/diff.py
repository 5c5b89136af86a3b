"""What differs between two versions of a model, node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import onnx
from onnx import AttributeProto, helper

from surgeon_passes.model.nested import graphs_in

SHOWN = 80
"""Characters of an attribute's value."""
_Named = dict[str, dict[str, Any]]


def diff(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    """Lines for what went (``-``), came (``+``) and changed (``~``): nodes by name, or first result, then inputs
    whose dims changed, then initializers.

    Nodes of all graphs, those of bodies and functions with their path; where nothing differs there are no lines.
    """
    old, new = _nodes(before), _nodes(after)
    lines = []
    for path in dict.fromkeys([*old, *new]):
        lines += [f"{line} in {path}" if path else line for line in _graph(old.get(path, {}), new.get(path, {}))]
    return lines + _inputs(before.graph, after.graph) + _initializers(before.graph, after.graph)


def _graph(old: Mapping[str, onnx.NodeProto], new: Mapping[str, onnx.NodeProto]) -> Iterator[str]:
    for key, node in old.items():
        if key not in new or new[key].op_type != node.op_type:
            yield f"- {_show(node)}"
    for key, node in new.items():
        if key not in old or old[key].op_type != node.op_type:
            yield f"+ {_show(node)}"
        else:
            changes = list(_changes(old[key], node))
            if changes:
                yield f"~ {_label(node)}: {'; '.join(changes)}"


def _changes(old: onnx.NodeProto, new: onnx.NodeProto) -> Iterator[str]:
    for side in ("input", "output"):
        a, b = list(getattr(old, side)), list(getattr(new, side))
        for place in range(max(len(a), len(b))):
            was, now = (names[place] if place < len(names) else "" for names in (a, b))
            if was != now:
                yield f"{side} {place}: {_name(was)} -> {_name(now)}"
    was, now = _attributes(old), _attributes(new)
    for name in sorted(was.keys() | now.keys()):
        if was.get(name) != now.get(name):
            yield f"{name}: {was.get(name, 'none')} -> {now.get(name, 'none')}"


def _nodes(proto: onnx.ModelProto) -> _Named:
    """By path of the graph, nodes by key."""
    found: _Named = {}
    todo: list[tuple[str, Any]] = [("", proto.graph)]
    todo += [(f"function {f.domain}.{f.name}", f) for f in proto.functions]
    while todo:
        path, graph = todo.pop(0)
        held = found.setdefault(path, {})
        for node in graph.node:
            key = node.name or next((name for name in node.output if name), node.op_type)
            held[f"{key}#{len(held)}" if key in held else key] = node
            for attribute in node.attribute:
                bodies = graphs_in(attribute)
                for number, body in enumerate(bodies):
                    place = attribute.name if len(bodies) == 1 else f"{attribute.name}[{number}]"
                    todo.append((f"{path}/{key}/{place}" if path else f"{key}/{place}", body))
    return found


def _inputs(before: onnx.GraphProto, after: onnx.GraphProto) -> list[str]:
    old, new = ({v.name: _dims(v) for v in graph.input} for graph in (before, after))
    return [f"~ input '{name}': {old[name]} -> {new[name]}" for name in new if name in old and old[name] != new[name]]


def _dims(value: onnx.ValueInfoProto) -> str:
    shape = value.type.tensor_type.shape
    parts = (str(d.dim_value) if d.HasField("dim_value") else d.dim_param or "?" for d in shape.dim)
    return f"[{', '.join(parts)}]"


def _initializers(before: onnx.GraphProto, after: onnx.GraphProto) -> list[str]:
    old, new = ({t.name: t for t in graph.initializer} for graph in (before, after))
    gone = [f"- initializer {_tensor(old[name])}" for name in old if name not in new]
    come = [f"+ initializer {_tensor(new[name])}" for name in new if name not in old]
    changed = [
        f"~ initializer {_tensor(new[name])}: other values"
        for name in new
        if name in old and new[name].SerializeToString() != old[name].SerializeToString()
    ]
    return gone + come + changed


def _tensor(tensor: onnx.TensorProto) -> str:
    dtype = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
    return f"'{tensor.name}' {dtype}[{','.join(map(str, tensor.dims))}]"


def _show(node: onnx.NodeProto) -> str:
    attributes = ", ".join(f"{name}={value}" for name, value in _attributes(node).items())
    inputs, outputs = ", ".join(map(_name, node.input)), ", ".join(map(_name, node.output))
    return f"{_label(node)} ({inputs}) -> {outputs}" + (f" <{attributes}>" if attributes else "")


def _label(node: onnx.NodeProto) -> str:
    return f"{node.op_type} '{node.name}'" if node.name else node.op_type


def _name(name: str) -> str:
    return f"'{name}'" if name else "none"


def _attributes(node: onnx.NodeProto) -> dict[str, str]:
    """Values in short; bodies are compared as graphs of their own."""
    found = {}
    for attribute in node.attribute:
        if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            continue
        if attribute.ref_attr_name:
            text = f"@{attribute.ref_attr_name}"
        elif attribute.type == AttributeProto.TENSOR:
            text = _tensor_value(attribute.t)
        else:
            text = str(helper.get_attribute_value(attribute))
        found[attribute.name] = text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    return found


def _tensor_value(tensor: onnx.TensorProto) -> str:
    dtype = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
    small = not tensor.external_data and sum(tensor.dims) <= 8
    values = f" {onnx.numpy_helper.to_array(tensor).tolist()}" if small else ""
    return f"{dtype}[{','.join(map(str, tensor.dims))}]{values}"
