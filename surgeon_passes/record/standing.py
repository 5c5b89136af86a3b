"""Nodes that stand for those of a trace, so that operators' facts can be asked for after a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.ops.macs import macs, parameters
from surgeon_passes.ops.view import NodeView
from surgeon_passes.region import TensorType
from surgeon_passes.traces import NodeTrace, TensorTrace


class Standing:
    """``views`` of the nodes of a trace, in order; their tensors hold types and no values."""

    def __init__(self, nodes: Sequence[NodeTrace]) -> None:
        self._nodes = nodes
        self._tensors: dict[int, gs.Variable] = {}
        self._types: dict[int, TensorType] = {}
        self.views = [NodeView(self._node(node), node.opset) for node in nodes]

    def _node(self, node: NodeTrace) -> gs.Node:
        made = gs.Node(node.op, node.label, dict(node.attrs), domain=node.domain or None)
        list.extend(made.inputs, map(self._tensor, node.inputs))
        list.extend(made.outputs, map(self._tensor, node.outputs))
        return made

    def _tensor(self, tensor: TensorTrace | None) -> gs.Variable:
        if tensor is None:
            return gs.Variable("")
        if tensor.key not in self._tensors:
            shape = tensor.type.shape
            made = gs.Variable(tensor.name, shape=None if shape is None else list(shape))
            self._tensors[tensor.key] = made
            self._types[id(made)] = tensor.type
        return self._tensors[tensor.key]

    def type_of(self, tensor: gs.Tensor) -> TensorType:
        return self._types.get(id(tensor), TensorType())

    def macs(self) -> Any:
        """Sum over the nodes; None where one is not known."""
        total: Any = 0
        for view in self.views:
            own = macs(view, self.type_of)
            total = None if total is None or own is None else total + own
        return total

    def parameters(self) -> int:
        """Elements of the constants that the nodes read, each once."""
        constants = {t.key: t.type for n in self._nodes for t in n.inputs if t is not None and t.constant}
        return sum(map(parameters, constants.values()))
