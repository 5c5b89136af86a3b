"""The nodes that an expression of sizes stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex
from surgeon_passes.values.expressions import Apply, Const, Expression, Join, Pick, Scalar, ShapeOf


class SizeEmitter:
    """New nodes for an expression, operands before their readers.

    ``tensors`` are the sources by number; names of what is made begin with ``base``.
    """

    def __init__(self, index: GraphIndex, opset: int, tensors: Sequence[gs.Tensor], base: str) -> None:
        self.index = index
        self.opset = opset
        self.tensors = tensors
        self.base = base
        self.nodes: list[gs.Node] = []
        self.made: dict[Expression, gs.Tensor] = {}

    def emit(self, expression: Expression) -> gs.Tensor:
        if expression not in self.made:
            self.made[expression] = self.new(expression)
        return self.made[expression]

    def as_output(self, tensor: gs.Tensor) -> gs.Tensor:
        """Let the last node make ``tensor``, which the model gives out."""
        list.__setitem__(self.nodes[-1].outputs, 0, tensor)
        return tensor

    def new(self, expression: Expression) -> gs.Tensor:
        match expression:
            case Const(values=values, scalar=scalar):
                return self.constant(values[0] if scalar else values)
            case ShapeOf(source=source, start=start, end=end, whole=whole):
                attrs = {} if whole else {"start": start, "end": end}
                return self.node("Shape", [self.tensors[source]], attrs, (end - start,))
            case Pick(vector=vector, places=places, scalar=scalar):
                indices = self.constant(places[0] if scalar else places)
                return self.node("Gather", [self.emit(vector), indices], {"axis": 0}, () if scalar else (len(places),))
            case Join(parts=parts):
                tensors = [self.emit(p) for p in parts]
                return self.node("Concat", tensors, {"axis": 0}, (sum(int(t.shape[0]) for t in tensors),))
            case Apply(op=op, first=first, second=second):
                a, b = self.emit(first), self.emit(second)
                return self.node(op, [a, b], {}, tuple(a.shape))
            case Scalar(vector=vector):
                return self.squeeze(self.emit(vector))

    def squeeze(self, tensor: gs.Tensor) -> gs.Tensor:
        if self.opset < 13:
            return self.node("Squeeze", [tensor], {"axes": [0]}, ())
        return self.node("Squeeze", [tensor, self.constant((0,))], {}, ())

    def constant(self, values: Any) -> gs.Constant:
        return gs.Constant(self.index.unique_tensor_name(f"{self.base}.size"), np.array(values, np.int64))

    def node(self, op: str, inputs: Iterable[gs.Tensor], attrs: dict[str, Any], shape: tuple[int, ...]) -> gs.Tensor:
        name = self.index.unique_tensor_name(f"{self.base}.{op.lower()}")
        result = gs.Variable(name, np.dtype(np.int64), list(shape))
        node = gs.Node(op, self.index.unique_node_name(name), attrs)
        list.extend(node.inputs, inputs)
        list.append(node.outputs, result)
        self.nodes.append(node)
        return result
