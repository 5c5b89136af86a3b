"""Traces of edits, taken while the nodes are at hand: names, operators, attributes and types, but no weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx import TensorProto

from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.model.constants import array_of
from surgeon_passes.model.elements import onnx_dtype
from surgeon_passes.region import NodeImage, TensorType, Types
from surgeon_passes.rules.journal import Edit
from surgeon_passes.traces import NodeTrace, TensorTrace, Trace, WeightChange

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
PLAIN = frozenset({int, float, str, bytes, bool})
HELD = 64
"""Elements up to which a tensor among the attributes is held, values and all."""
_BLOCK = 1 << 16


def trace(edit: Edit, index: GraphIndex, types: Types) -> Trace:
    """What ``edit`` took out and brought in."""
    before = sorted(edit.removed, key=lambda image: index.position(image.node))
    after = [image for image, _ in edit.added]
    make = _Tracer(index, types)
    return Trace(
        tuple(map(make.node, before)),
        tuple(map(make.node, after)),
        tuple((make.tensor(a), make.tensor(b)) for a, b in edit.pairs),
        tuple(_changes(before, after)),
    )


class _Tracer:
    def __init__(self, index: GraphIndex, types: Types) -> None:
        self.index = index
        self.types = types
        self.made: dict[int, TensorTrace] = {}

    def node(self, image: NodeImage) -> NodeTrace:
        node = image.node
        return NodeTrace(
            node_label(node),
            str(node.op),
            node.domain or "",
            self.index.opset(node),
            {n: v if type(v) in PLAIN else _slim(v) for n, v in node.attrs.items()},
            tuple(self.tensor(t) if t.name else None for t in image.inputs),
            tuple(self.tensor(t) if t.name else None for t in image.outputs),
        )

    def tensor(self, tensor: gs.Tensor) -> TensorTrace:
        found = self.made.get(id(tensor))
        if found is None:
            found = self.made[id(tensor)] = self._tensor(tensor)
        return found

    def _tensor(self, tensor: gs.Tensor) -> TensorTrace:
        if isinstance(tensor, gs.Constant):
            found = TensorType(onnx_dtype(tensor.dtype), tuple(tensor.shape))
            return TensorTrace(str(tensor.name), found, True, id(tensor))
        producer = self.index.producer(tensor)
        is_constant = producer is not None and producer.op == "Constant"
        return TensorTrace(str(tensor.name), self.types.type_of(tensor), is_constant, id(tensor))


def _slim(value: Any) -> Any:
    if isinstance(value, gs.Graph):
        return f"a graph of {len(value.nodes)} nodes"
    if isinstance(value, gs.Constant):
        is_small = math.prod(value.shape) <= HELD
        return array_of(value) if is_small else f"a tensor {value.dtype}{list(value.shape)}"
    if isinstance(value, gs.Node.AttributeRef):
        return f"@{value.name}"
    return value


def _changes(before: Iterable[NodeImage], after: Iterable[NodeImage]) -> Iterator[WeightChange]:
    """New weights against those of the same shape that went, those of the same operator first."""
    old = [(image.node.op, t) for image in before for t in _weights(image)]
    held = {id(t) for _, t in old}
    for image in after:
        for tensor in _weights(image):
            if id(tensor) in held or not old:
                continue
            fits = [(op != image.node.op, t) for op, t in old if list(t.shape) == list(tensor.shape)]
            label = node_label(image.node)
            if fits:
                was = min(fits, key=lambda pair: pair[0])[1]
                yield WeightChange(label, str(tensor.name), str(was.name), *distance(array_of(was), array_of(tensor)))
            else:
                yield WeightChange(label, str(tensor.name))


def _weights(image: NodeImage) -> list[gs.Constant]:
    """Floating-point constants of rank 2 and more."""
    constants = (t for t in image.inputs if isinstance(t, gs.Constant) and len(t.shape) > 1)
    return [t for t in constants if onnx_dtype(t.dtype) in FLOATS]


def distance(old: np.ndarray[Any, Any], new: np.ndarray[Any, Any]) -> tuple[float, float]:
    """(L2 norm of ``new - old``, L2 norm of ``old``), summed in float64; both of one shape, any float dtype."""
    a, b = old.reshape(-1), new.reshape(-1)
    apart = norm = 0.0
    for start in range(0, a.size, _BLOCK):
        x = a[start : start + _BLOCK].astype(np.float64)
        y = b[start : start + _BLOCK].astype(np.float64)
        norm += _squares(x)
        y -= x
        apart += _squares(y)
    return math.sqrt(apart), math.sqrt(norm)


def _squares(x: np.ndarray[Any, Any]) -> float:
    return float(np.einsum("i,i->", x, x))  # a dot product would wait for BLAS's threads
