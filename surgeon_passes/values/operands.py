"""What a handler sees of its node: attributes, and what is known of each operand."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.model import numpy_dtype
from surgeon_passes.ops import NodeView
from surgeon_passes.region import TensorType
from surgeon_passes.values.dims import Dim, Shape, static, type_shape
from surgeon_passes.values.lattice import (
    MAX_ELEMENTS,
    MAX_PARTIAL,
    Array,
    Partial,
    Value,
    dims_of,
    elements_of,
    is_integer,
    object_array,
    pack,
)

UNKNOWN_TYPE = TensorType()


class Unknown(Exception):
    """A handler gives up: the result is unknown."""


class Facts(Protocol):
    """Where operands are looked up. Each method may postpone: the handler then runs again from its start."""

    def value_now(self, *tensors: gs.Tensor) -> list[Value]: ...

    def type_now(self, *tensors: gs.Tensor) -> list[TensorType]: ...

    def one_value_now(self, tensor: gs.Tensor) -> Value: ...

    def one_type_now(self, tensor: gs.Tensor) -> TensorType: ...


class Operands:
    """One node's operands. Handlers are pure: they may be run again until everything they ask for is there."""

    __slots__ = ("_large", "facts", "op", "opset", "view")

    def __init__(self, view: NodeView, facts: Facts, large: bool = False) -> None:
        self.view = view
        self.op = view.op
        self.opset = view.opset
        self.facts = facts
        self._large = large

    # --- the node ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.view.inputs)

    def has(self, position: int) -> bool:
        return self.view.input(position) is not None

    def attr(self, name: str, default: Any = None) -> Any:
        return self.view.attr(name, default)

    def outputs(self) -> int:
        return len(self.view.node.outputs)

    # --- types -------------------------------------------------------------------------------------------------------

    def type(self, position: int) -> TensorType:
        """The type of an operand; all unknown for one that is left out."""
        tensor = self.view.input(position)
        return UNKNOWN_TYPE if tensor is None else self.facts.one_type_now(tensor)

    def types(self) -> list[TensorType]:
        """Types of all operands that are present, asked for at once."""
        return self.facts.type_now(*(t for t in self.view.inputs if t is not None))

    def types_of(self, *tensors: gs.Tensor) -> list[TensorType]:
        """Types of tensors that are no operands: what a body gives."""
        return self.facts.type_now(*tensors)

    def shape(self, position: int) -> Shape | None:
        return type_shape(self.type(position))

    def known_shape(self, position: int) -> Shape:
        """As :meth:`shape`; gives up where the rank is unknown."""
        shape = self.shape(position)
        if shape is None:
            raise Unknown
        return shape

    def dtype(self, position: int) -> np.dtype[Any]:
        """numpy's dtype of an operand; gives up where it is unknown."""
        elem_type = self.type(position).dtype
        if not elem_type:
            raise Unknown
        return numpy_dtype(elem_type)

    # --- values ------------------------------------------------------------------------------------------------------

    def values_of(self, *tensors: gs.Tensor) -> list[Value]:
        """Values of tensors that are no operands: what a body gives."""
        return self.facts.value_now(*tensors)

    def value(self, position: int) -> Value:
        """What is known of an operand; None also for one that is left out."""
        tensor = self.view.input(position)
        return None if tensor is None else self._within_budget(self.facts.one_value_now(tensor))

    def prepare(self) -> None:
        """Ask for the values of all operands at once: linear in operands where there may be many."""
        self.facts.value_now(*(t for t in self.view.inputs if t is not None))

    def _within_budget(self, value: Value) -> Value:
        if isinstance(value, np.ndarray) and value.size > MAX_ELEMENTS and not self._large:
            return None
        return value

    def array(self, position: int) -> Array:
        """A fully known operand; gives up on any other."""
        value = self.value(position)
        if not isinstance(value, np.ndarray):
            raise Unknown
        return value

    def data(self, position: int) -> Array:
        """An operand as an array to take elements from: its own dtype where known, else an object array of dims.

        An unknown small integer tensor of known shape is an array of None. Gives up on anything less.
        """
        value = self.value(position)
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, Partial):
            return value.elements
        found = self.type(position)
        shape = static(type_shape(found))
        if not found.dtype or shape is None or not is_integer(numpy_dtype(found.dtype)):
            raise Unknown
        count = math.prod(shape)
        if count > MAX_PARTIAL:
            raise Unknown
        return object_array([None] * count, shape)

    def data_dtype(self, position: int) -> np.dtype[Any]:
        """The dtype of what :meth:`data` stands for."""
        value = self.value(position)
        return self.dtype(position) if value is None else value.dtype

    def elements(self, position: int) -> Array:
        """As :meth:`data`, always as an object array of ints, polys and Nones; integers and bools only."""
        found = self.data(position)
        if found.dtype != object:
            if not is_integer(found.dtype):
                raise Unknown
            found = elements_of(found)
        return found

    def dims(self, position: int) -> list[Dim]:
        """Elements of an integer vector; gives up where nothing is known of it."""
        found = dims_of(self.value(position))
        if found is None:
            return list(self.elements(position).ravel())
        return found

    def maybe_dims(self, position: int) -> list[Dim] | None:
        """As :meth:`dims`, None where nothing is known or the operand is left out."""
        try:
            return self.dims(position) if self.has(position) else None
        except Unknown:
            return None

    def maybe_ints(self, position: int) -> list[int] | None:
        """As :meth:`ints`, None where they are not all known or the operand is left out."""
        value = self.value(position)
        return [int(e) for e in value.ravel()] if isinstance(value, np.ndarray) else None

    def ints(self, position: int) -> list[int]:
        """Elements of a fully known integer operand."""
        return [int(e) for e in self.array(position).ravel()]

    # --- results -----------------------------------------------------------------------------------------------------

    def result(self, array: Array, dtype: np.dtype[Any]) -> Value:
        """An array taken from :meth:`data` as a value of ``dtype``."""
        if array.dtype.kind == "O" and dtype.kind != "O":
            return pack(array, dtype)
        return array

    def fits(self, count: int) -> None:
        """Give up before an array of more than the budget's elements is made."""
        if count > MAX_ELEMENTS:
            raise Unknown
