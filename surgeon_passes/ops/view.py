"""The node view: the one way in which rules and values read a node.

Attributes have their defaults (the schema's, or computed where it has none), old opset forms look like the newest one
(axes as an input, Clip's bounds as inputs …), domains are normalised, trailing missing operands are cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.ops.defaults import COMPUTED
from surgeon_passes.ops.legacy import LEGACY
from surgeon_passes.ops.schema import default_attributes, domain_of, plain

_UNSET = object()


class CallerAttribute(Exception):
    """An attribute inside a function body that only the caller knows."""


class NodeView:
    """A node in the newest form of its operator.

    ``inputs`` / ``outputs``: tensors, None where an optional one is missing. ``regular`` is False where an old form has
    no newest equivalent (Softmax < 13 over several axes, legacy broadcasting …): patterns do not match such a node.
    """

    __slots__ = ("_attrs", "domain", "inputs", "is_translated", "node", "op", "opset", "outputs", "regular")

    def __init__(self, node: gs.Node, opset: int) -> None:
        self.node = node
        self.op: str = node.op
        self.domain = domain_of(node.domain)
        self.opset = opset
        self.inputs: tuple[gs.Tensor | None, ...] = _present(node.inputs)
        self.outputs: tuple[gs.Tensor | None, ...] = _present(node.outputs)
        self._attrs: dict[str, Any] = node.attrs
        self.regular = True
        legacy = LEGACY.get(self.op) if self.domain == "" else None
        self.is_translated = legacy is not None and opset < legacy.until
        """whether an old form was read as the newest one: some of them by the rank of an operand"""
        if legacy is not None and self.is_translated:
            if any(isinstance(value, gs.Node.AttributeRef) for value in node.attrs.values()):
                self.regular = False  # an attribute that became an input, given by the function's caller
                return
            form = legacy.normalise(self)
            self.inputs, self._attrs, self.regular = _present(form.inputs), form.attrs, form.regular

    def input(self, position: int) -> gs.Tensor | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def output(self, position: int) -> gs.Tensor | None:
        return self.outputs[position] if position < len(self.outputs) else None

    def has_attr(self, name: str) -> bool:
        """Whether the attribute is written out (in the newest form)."""
        return name in self._attrs

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes that are written out, in the newest form, as graphsurgeon holds them."""
        return self._attrs

    def attr(self, name: str, default: Any = _UNSET) -> Any:
        """An attribute's value: as written, else its default (schema's or computed), else ``default`` or None.

        Raises CallerAttribute where a function's caller gives it.
        """
        if name in self._attrs:
            value = self._attrs[name]
            if isinstance(value, gs.Node.AttributeRef):
                raise CallerAttribute(f"attribute {name} of {self.op} is given by the function's caller")
            return plain(value)
        computed = COMPUTED.get((self.op, name)) if self.domain == "" else None
        if computed is not None:
            return computed(self)
        defaults = default_attributes(self.op, self.opset, self.domain)
        if name in defaults:
            return defaults[name]
        return None if default is _UNSET else default


def _present(tensors: Any) -> tuple[gs.Tensor | None, ...]:
    found = [t if t is not None and t.name else None for t in tensors]
    while found and found[-1] is None:
        found.pop()
    return tuple(found)


def normalise_axis(axis: int, rank: int) -> int:
    """A non-negative axis. Raises ValueError outside [-rank, rank)."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis
