"""Feeding a session of many inputs: small arrays that are alike come as one, and a Split takes them apart.

ONNX Runtime's time to take feeds grows with the square of their number (20,000 take it three seconds, one with a Split of
20,000 outputs a tenth of that).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper

from surgeon_passes.runtime import Array

MANY_FEEDS = 512
"""Feeds from which packing pays."""

_LEAST_ALIKE, _MOST_ALIKE = 64, 1000
"""Arrays of a pack; loading a Split is quadratic in its outputs."""
_MOST_ELEMENTS = 1 << 14
_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64}
"""What every version of Split takes in ONNX Runtime."""
_NAMES_OUTPUTS_FROM = 18


@dataclass(frozen=True, slots=True)
class Pack:
    """Arrays of one type and shape, of rank 1 or more, that come as ``name``, one behind the other on axis 0."""

    name: str
    members: tuple[str, ...]
    elem_type: int
    rank: int

    def fits(self, values: Mapping[str, Any]) -> bool:
        """Whether the members are still alike: of one shape, which is of this rank and has elements."""
        shape = np.shape(values[self.members[0]])
        return len(shape) == self.rank and 0 not in shape and all(values[n].shape == shape for n in self.members)

    def array(self, values: Mapping[str, Any]) -> Array:
        return np.concatenate([values[name] for name in self.members])

    def add_to(self, graph: GraphProto, opset: int) -> None:
        """The input and the node that takes it apart; ``opset`` is that of ONNX's own domain."""
        graph.input.append(helper.make_tensor_value_info(self.name, self.elem_type, [None] * self.rank))
        graph.node.insert(0, self._split(opset))

    def _split(self, opset: int) -> NodeProto:
        node = helper.make_node("Split", [self.name], self.members, axis=0)
        if opset >= _NAMES_OUTPUTS_FROM:
            node.attribute.append(helper.make_attribute("num_outputs", len(self.members)))
        return node


def packs_of(values: Mapping[str, Any]) -> list[Pack]:
    """Which of many values of tensors, by name, may come together; [] where they are few."""
    if len(values) < MANY_FEEDS:
        return []
    alike: dict[Any, list[str]] = {}
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype in _TYPES and value.ndim and 0 < value.size <= _MOST_ELEMENTS:
            alike.setdefault((value.dtype, value.shape), []).append(name)
    parts = [
        (tuple(members[start : start + _MOST_ALIKE]), _TYPES[dtype], len(shape))
        for (dtype, shape), members in alike.items()
        for start in range(0, len(members) if len(members) >= _LEAST_ALIKE else 0, _MOST_ALIKE)
    ]
    return [Pack(f"~pack{number}", *part) for number, part in enumerate(parts)]
