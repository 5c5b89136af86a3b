"""Tensors that a formula gives although their size is not known: one number everywhere, or a step for every index.

``Range(0, N, 1)`` and ``ConstantOfShape(Shape(x))`` have no value before the model runs; that the first counts up and the
second is zero everywhere is known all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex
from surgeon_passes.model import numpy_dtype
from surgeon_passes.ops import NodeView
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.ops.view import CallerAttribute
from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape, same, type_shape
from surgeon_passes.values.lattice import Array, Partial, Value, dims_of, is_integer
from surgeon_passes.values.types import TypeMap

_MAX_ELEMENTS = 1 << 14
"""Elements of the largest constant that is looked through."""


@dataclass(frozen=True, slots=True, eq=False)
class Ramp:
    """The element at index (i, j, …) is ``start + i * steps[0] + j * steps[1] + …``.

    ``start`` is a dim for integer tensors, else a numpy scalar of the tensor's dtype (then every step is 0). ``shape`` has
    one dim per step, None where unknown.
    """

    shape: Shape
    start: Any
    steps: tuple[Dim, ...]
    dtype: np.dtype[Any]

    @property
    def fill(self) -> Any:
        """The one number that every element is, as a numpy scalar; None where they differ or it is symbolic."""
        if any(s != 0 for s in self.steps) or (is_integer(self.dtype) and not isinstance(self.start, int)):
            return None
        return np.array(self.start).astype(self.dtype)[()]

    def counts(self) -> bool:
        """Whether the elements are 0, 1, 2 … in row-major order."""
        if not is_integer(self.dtype) or self.start != 0:
            return False
        weight: Dim = 1
        for dim, step in zip(reversed(self.shape), reversed(self.steps), strict=True):
            if dim != 1 and not same(step, weight):
                return False
            weight = dims.mul(weight, dim)
        return True

    def range(self) -> tuple[Dim, Dim]:
        """The least and the largest element of an integer ramp that is not empty; None where not known."""
        low = high = self.start
        for dim, step in zip(self.shape, self.steps, strict=True):
            reach = dims.mul(step, dims.sub(dim, 1))
            if step == 0:
                continue
            if dims.at_least(step, 0):
                high = dims.add(high, reach)
            elif dims.at_least(dims.neg(step), 0):
                low = dims.add(low, reach)
            else:
                return None, None
        return low, high


Found = Ramp | None
Handler = Callable[["RampNode"], Found]
HANDLERS: dict[str, Handler] = {}


class Ramps:
    """Ramps of tensors on demand, each found once."""

    def __init__(self, index: GraphIndex, types: TypeMap, value: Callable[[gs.Tensor], Value]) -> None:
        self.index = index
        self.types = types
        self.value = value
        self._known: dict[int, tuple[gs.Tensor, Found]] = {}

    def ramp(self, tensor: gs.Tensor) -> Found:
        """What is known of ``tensor`` in this form; None for nothing."""
        todo = [tensor]
        while todo:
            current = todo[-1]
            if id(current) in self._known:
                todo.pop()
                continue
            waiting = [t for t in self._sources(current) if id(t) not in self._known]
            if waiting:
                todo.extend(waiting)
                continue
            todo.pop()
            self._known[id(current)] = (current, self._find(current))
        return self._known[id(tensor)][1]

    def forget(self, known: bool = False) -> None:
        """Forget every answer that is unknown: more may be known by now; with ``known`` the others, too."""
        self._known = {key: held for key, held in self._known.items() if held[1] is not None and not known}

    def _sources(self, tensor: gs.Tensor) -> list[gs.Tensor]:
        node = self.index.producer(tensor)
        if node is None or node.op not in HANDLERS or domain_of(node.domain):
            return []
        if self.types.type_of(tensor).kind != "tensor":
            return []
        return [t for t in node.inputs if t.name]

    def _find(self, tensor: gs.Tensor) -> Found:
        known = self.value(tensor)
        if isinstance(known, np.ndarray):
            return _of_array(known)
        if isinstance(known, Partial):
            return _of_partial(known)
        node = self.index.producer(tensor)
        handler = HANDLERS.get(node.op) if node is not None else None
        if node is None or handler is None or node.outputs[0] is not tensor or not self._sources(tensor):
            return None
        entry = self.types.type_of(tensor)
        shape = type_shape(entry)
        if shape is None or not entry.dtype:
            return None
        try:
            view = NodeView(node, self.index.opset(node))
            return handler(RampNode(view, self, shape, numpy_dtype(entry.dtype))) if view.regular else None
        except (CallerAttribute, ValueError, ArithmeticError, IndexError, TypeError):
            return None


class RampNode:
    """What a handler sees: the node, its result's shape and dtype, ramps of its operands."""

    def __init__(self, view: NodeView, ramps: Ramps, shape: Shape, dtype: np.dtype[Any]) -> None:
        self.view = view
        self.op = view.op
        self.shape = shape
        self.dtype = dtype
        self._ramps = ramps

    def ramp(self, position: int) -> Found:
        tensor = self.view.input(position)
        return None if tensor is None else self._ramps.ramp(tensor)

    def number(self, position: int) -> Dim:
        """A scalar operand as a dim; None where unknown."""
        tensor = self.view.input(position)
        found = None if tensor is None else dims_of(self._ramps.value(tensor))
        return found[0] if found is not None and len(found) == 1 else None

    def filled(self, start: Any) -> Ramp:
        """The result with one number everywhere."""
        return Ramp(self.shape, start, (0,) * len(self.shape), self.dtype)

    def within(self, position: int, axis: int) -> bool:
        """Whether the indices at ``position`` certainly lie inside an axis of the first operand."""
        indices, shape = self.ramp(position), self.operand_shape(0)
        if indices is None or shape is None or not -len(shape) <= axis < len(shape):
            return False
        low, high = indices.range()
        size = shape[axis]
        return dims.at_least(dims.add(low, size), 0) and dims.at_least(dims.sub(size, high), 1)

    def operand_shape(self, position: int) -> Shape | None:
        tensor = self.view.input(position)
        return None if tensor is None else type_shape(self._ramps.types.type_of(tensor))

    def stepped(self, start: Dim, steps: Sequence[Dim]) -> Found:
        if start is None or any(s is None for s in steps):
            return None
        ramp = Ramp(self.shape, start, tuple(steps), self.dtype)
        return ramp if not is_integer(self.dtype) or self.dtype.kind == "b" or self._holds(ramp) else None

    def _holds(self, ramp: Ramp) -> bool:
        """Whether no element leaves the integer type: what does would have wrapped."""
        info = np.iinfo(self.dtype)
        ends = ramp.range()
        if self.dtype.itemsize >= 8:
            return all(not isinstance(e, int) or info.min <= e <= info.max for e in ends)
        fit = (
            info.min <= e <= info.max if isinstance(e, int) else info.bits == 32 and dims.stays_small(e) for e in ends
        )
        return all(fit)

    def spread(self, ramp: Ramp) -> list[Dim]:
        """Its steps along the axes of the result: 0 where the operand is broadcast.

        An axis of one element has no step; one that may or may not be one element makes it unknown.
        """
        missing = len(self.shape) - len(ramp.shape)
        steps: list[Dim] = [0] * missing
        for dim, step, wide in zip(ramp.shape, ramp.steps, self.shape[missing:], strict=True):
            steps.append(0 if dim == 1 else step if step == 0 or same(dim, wide) else None)
        return steps


def handles(*ops: str) -> Callable[[Handler], Handler]:
    def register(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, function))
        return function

    return register


def _of_array(array: Array) -> Found:
    """A constant that is one number, or whose integers step evenly."""
    if array.size == 0 or array.size > _MAX_ELEMENTS or array.dtype.kind not in "fiub":
        return None
    first = array.ravel()[0]
    shape = tuple(int(d) for d in array.shape)
    start = int(first) if is_integer(array.dtype) else first
    if array.tobytes() == first.tobytes() * array.size:
        return Ramp(shape, start, (0,) * len(shape), array.dtype)
    if array.dtype.kind not in "iu":
        return None
    steps = [_step(array, axis) for axis in range(array.ndim)]
    ramp = Ramp(shape, start, tuple(steps), array.dtype)
    grids = np.indices(array.shape, dtype=object)
    wanted = start + sum((grid * step for grid, step in zip(grids, steps, strict=True)), np.zeros(array.shape, object))
    return ramp if bool(np.all(array.astype(object) == wanted)) else None


def _of_partial(value: Partial) -> Found:
    """A size, or the same size at every place."""
    first, *others = value.dims()
    if first is None or not all(same(first, other) for other in others):
        return None
    return Ramp(value.shape, first, (0,) * len(value.shape), value.dtype)


def _step(array: Array, axis: int) -> int:
    if array.shape[axis] == 1:
        return 0
    index = [0] * array.ndim
    index[axis] = 1
    return int(array[tuple(index)]) - int(array[(0,) * array.ndim])
