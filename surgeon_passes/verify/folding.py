"""Constant expressions, computed by ONNX Runtime itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray
from onnx import helper

from surgeon_passes.index import GraphIndex, Scope
from surgeon_passes.model.constants import array_of
from surgeon_passes.model.elements import onnx_dtype
from surgeon_passes.model.export import node_proto, write_tensor
from surgeon_passes.model.wire import PLAIN
from surgeon_passes.runtime import RuntimeFailure, Session, external_stub

Array = NDArray[Any]


def compute(index: GraphIndex, nodes: Sequence[gs.Node], wanted: Sequence[gs.Tensor]) -> dict[int, Array]:
    """Values of ``wanted`` by id(tensor), made by ``nodes`` from constants alone.

    What ONNX Runtime cannot compute is missing from the answer; it never costs the others theirs.
    """
    by_opsets: dict[tuple[tuple[str, int], ...], list[gs.Tensor]] = {}
    for tensor in wanted:
        producer = index.producer(tensor)
        if producer is not None:
            by_opsets.setdefault(_opsets(index.scope(producer)), []).append(tensor)
    allowed = {id(n) for n in nodes}
    found: dict[int, Array] = {}
    for opsets, tensors in by_opsets.items():
        _compute(index, allowed, tensors, dict(opsets), found)
    return found


def _opsets(scope: Scope) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(scope.opsets.items()))


def _compute(
    index: GraphIndex, allowed: set[int], wanted: list[gs.Tensor], opsets: dict[str, int], found: dict[int, Array]
) -> None:
    todo = [wanted]
    while todo:
        tensors = todo.pop()
        model, names, external = _model(index, allowed, tensors, opsets)
        try:
            values = Session(model, external=external).run({}, [names[id(t)] for t in tensors])
        except RuntimeFailure:
            if len(tensors) > 1:
                half = len(tensors) // 2
                todo += [tensors[half:], tensors[:half]]
            continue
        found.update({id(t): values[names[id(t)]] for t in tensors})


def _model(
    index: GraphIndex, allowed: set[int], wanted: list[gs.Tensor], opsets: dict[str, int]
) -> tuple[onnx.ModelProto, dict[int, str], dict[str, Array]]:
    """The nodes behind ``wanted``, tensors renamed (bodies may repeat names); and weights that lie in a file, by name."""
    nodes, constants = _behind(index, allowed, wanted)
    names: dict[int, str] = {}
    for node in nodes:
        for tensor in (*node.inputs, *node.outputs):
            if tensor.name:
                names.setdefault(id(tensor), f"t{len(names)}")
    model = onnx.ModelProto()
    model.ir_version = index.graph.ir_version or helper.VERSION_TABLE[-1][1]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    model.graph.name = "fold"
    external: dict[str, Array] = {}
    for constant in constants:
        name, elem_type = names[id(constant)], onnx_dtype(constant.dtype)
        if getattr(constant._values, "is_reference", False) and elem_type in PLAIN:
            external[name] = array_of(constant)
            model.graph.initializer.append(external_stub(name, external[name].shape, elem_type))
        else:
            write_tensor(constant, name, model.graph.initializer.add())
    for number, node in enumerate(nodes):
        proto = node_proto(node, _named(node.inputs, names), _named(node.outputs, names), opset=opsets.get("", 0))
        proto.name = f"n{number}"
        model.graph.node.append(proto)
    for tensor in wanted:
        model.graph.output.add().name = names[id(tensor)]
    return model, names, external


def _named(tensors: Sequence[gs.Tensor], names: dict[int, str]) -> list[gs.Variable]:
    return [gs.Variable(names[id(t)] if t.name else "") for t in tensors]


def _behind(index: GraphIndex, allowed: set[int], wanted: list[gs.Tensor]) -> tuple[list[gs.Node], list[gs.Constant]]:
    """Nodes in topological order, and the constants that they read."""
    order: list[gs.Node] = []
    constants: dict[int, gs.Constant] = {}
    state: dict[int, int] = {}
    stack = [n for t in wanted if (n := index.producer(t)) is not None]
    while stack:
        node = stack[-1]
        if state.get(id(node)) == 2:
            stack.pop()
            continue
        if state.get(id(node)) == 1:
            state[id(node)] = 2
            order.append(node)
            stack.pop()
            continue
        state[id(node)] = 1
        for tensor in node.inputs:
            producer = index.producer(tensor)
            if producer is not None and (id(producer) in allowed or producer.op == "Constant"):
                stack.append(producer)
            elif isinstance(tensor, gs.Constant):
                constants[id(tensor)] = tensor
    return order, list(constants.values())
