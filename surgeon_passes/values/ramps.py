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
from surgeon_passes.model import array_of, numpy_dtype
from surgeon_passes.ops import NodeView
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
        return self.dtype.type(self.start)

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
Handler = Callable[["_Node"], Found]
_HANDLERS: dict[str, Handler] = {}


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

    def forget(self) -> None:
        """Forget every answer that is unknown: more may be known by now."""
        self._known = {key: held for key, held in self._known.items() if held[1] is not None}

    def _sources(self, tensor: gs.Tensor) -> list[gs.Tensor]:
        node = self.index.producer(tensor)
        if node is None or node.op not in _HANDLERS or node.domain not in (None, "", "ai.onnx"):
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
        handler = _HANDLERS.get(node.op) if node is not None else None
        if node is None or handler is None or node.outputs[0] is not tensor or not self._sources(tensor):
            return None
        entry = self.types.type_of(tensor)
        shape = type_shape(entry)
        if shape is None or not entry.dtype:
            return None
        try:
            view = NodeView(node, self.index.opset(node))
            return handler(_Node(view, self, shape, numpy_dtype(entry.dtype))) if view.regular else None
        except (CallerAttribute, ValueError, ArithmeticError, IndexError, TypeError):
            return None


class _Node:
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

    def stepped(self, start: Dim, steps: Sequence[Dim]) -> Found:
        if start is None or any(s is None for s in steps):
            return None
        return Ramp(self.shape, start, tuple(steps), self.dtype)

    def spread(self, ramp: Ramp) -> list[Dim]:
        """Its steps along the axes of the result: 0 where the operand is broadcast.

        An axis of one element has no step; one that may or may not be one element makes it unknown.
        """
        missing = len(self.shape) - len(ramp.shape)
        steps: list[Dim] = [0] * missing
        for dim, step, wide in zip(ramp.shape, ramp.steps, self.shape[missing:], strict=True):
            steps.append(0 if dim == 1 else step if step == 0 or same(dim, wide) else None)
        return steps


def _handles(*ops: str) -> Callable[[Handler], Handler]:
    def register(function: Handler) -> Handler:
        _HANDLERS.update(dict.fromkeys(ops, function))
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


# --- made ----------------------------------------------------------------------------------------------------------------


@_handles("Range")
def _range(n: _Node) -> Found:
    start, step = n.number(0), n.number(2)
    return n.stepped(start, [step]) if is_integer(n.dtype) else None


@_handles("ConstantOfShape")
def _constant_of_shape(n: _Node) -> Found:
    value = n.view.attr("value", None)
    fill = array_of(value).reshape(()) if isinstance(value, gs.Constant) else np.array(0, np.float32)
    return n.filled(int(fill) if is_integer(n.dtype) else n.dtype.type(fill))


# --- moved ---------------------------------------------------------------------------------------------------------------


@_handles("Identity")
def _identity(n: _Node) -> Found:
    return n.ramp(0)


@_handles("Expand")
def _expand(n: _Node) -> Found:
    ramp = n.ramp(0)
    return None if ramp is None else n.stepped(ramp.start, n.spread(ramp))


@_handles("Tile")
def _tile(n: _Node) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    repeated = [
        step != 0 and not same(dim, wide) for dim, step, wide in zip(ramp.shape, ramp.steps, n.shape, strict=True)
    ]
    return None if any(repeated) else n.stepped(ramp.start, ramp.steps)


@_handles("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def _reshape(n: _Node) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    if all(s == 0 for s in ramp.steps):
        return n.stepped(ramp.start, [0] * len(n.shape))
    return _same_axes(n, ramp) or _row_major(n, ramp)


def _same_axes(n: _Node, ramp: Ramp) -> Found:
    """Where only axes of one element come and go."""
    before = [(d, s) for d, s in zip(ramp.shape, ramp.steps, strict=True) if d != 1]
    after = [d for d in n.shape if d != 1]
    if len(before) != len(after) or not all(same(d, e) for (d, _), e in zip(before, after, strict=True)):
        return None
    steps = iter(s for _, s in before)
    return n.stepped(ramp.start, [0 if d == 1 else next(steps) for d in n.shape])


def _row_major(n: _Node, ramp: Ramp) -> Found:
    """Where elements step evenly in row-major order, in whatever shape."""
    step = next((s for d, s in zip(reversed(ramp.shape), reversed(ramp.steps), strict=True) if d != 1), 0)
    weight: Dim = step
    for dim, own in zip(reversed(ramp.shape), reversed(ramp.steps), strict=True):
        if dim != 1 and not same(own, weight):
            return None
        weight = dims.mul(weight, dim)
    steps: list[Dim] = []
    weight = step
    for dim in reversed(n.shape):
        steps.append(0 if dim == 1 else weight)
        weight = dims.mul(weight, dim)
    return n.stepped(ramp.start, steps[::-1])


@_handles("Transpose")
def _transpose(n: _Node) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    perm = n.view.attr("perm", None) or range(len(ramp.steps))[::-1]
    return n.stepped(ramp.start, [ramp.steps[p] for p in perm])


@_handles("Slice", "Gather", "GatherElements", "GatherND")
def _picked(n: _Node) -> Found:
    """Whatever is picked out of one number is that number."""
    ramp = n.ramp(0)
    return None if ramp is None or any(s != 0 for s in ramp.steps) else n.filled(ramp.start)


@_handles("Concat")
def _concat(n: _Node) -> Found:
    parts = [n.ramp(k) for k in range(len(n.view.inputs))]
    fills = [None if p is None else p.fill for p in parts]
    if len({None if f is None else f.tobytes() for f in fills}) != 1 or fills[0] is None:
        return None
    first = parts[0]
    assert first is not None
    return n.filled(first.start)


# --- computed ------------------------------------------------------------------------------------------------------------


@_handles("Add", "Sub")
def _add(n: _Node) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None:
        return None
    if not is_integer(n.dtype):
        return _number(n, a, b)
    join = dims.add if n.op == "Add" else dims.sub
    steps = [join(p, q) for p, q in zip(n.spread(a), n.spread(b), strict=True)]
    return n.stepped(join(a.start, b.start), steps)


@_handles("Mul")
def _mul(n: _Node) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None:
        return None
    if not is_integer(n.dtype):
        return _number(n, a, b)
    if any(s != 0 for s in b.steps):
        a, b = b, a
    if any(s != 0 for s in b.steps):
        return None
    return n.stepped(dims.mul(a.start, b.start), [dims.mul(s, b.start) for s in n.spread(a)])


_FLOATS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@_handles("Div")
def _div(n: _Node) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None or a.fill is None or b.fill is None:
        return None
    if not is_integer(n.dtype):
        return _number(n, a, b)
    return n.stepped(dims.trunc_div(a.start, b.start), [0] * len(n.shape))


def _number(n: _Node, a: Ramp, b: Ramp) -> Found:
    """One IEEE operation on two numbers of one float type."""
    first, second = a.fill, b.fill
    if first is None or second is None or n.dtype not in (np.float32, np.float64):
        return None
    with np.errstate(all="ignore"):
        return n.filled(n.dtype.type(_FLOATS[n.op](first, second)))


@_handles("Cast")
def _cast(n: _Node) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    if is_integer(n.dtype) and is_integer(ramp.dtype):
        return _cast_integers(n, ramp)
    fill = ramp.fill
    if fill is None or not np.isfinite(fill) or abs(float(fill)) > 1 << 20 or float(fill) != int(fill):
        return None  # what no type rounds
    number = int(fill)
    if n.dtype.kind == "b":
        return n.filled(int(number != 0))
    if is_integer(n.dtype):
        info = np.iinfo(n.dtype)
        return n.filled(number) if info.min <= number <= info.max else None
    return n.filled(n.dtype.type(number)) if n.dtype in (np.float32, np.float64) else None


def _cast_integers(n: _Node, ramp: Ramp) -> Found:
    if n.dtype.kind == "b":
        fill = ramp.fill
        return None if fill is None else n.filled(int(fill != 0))
    if n.dtype.kind != "i" or n.dtype.itemsize < 4:
        return None  # a small type would wrap
    info = np.iinfo(n.dtype)
    fits = not isinstance(ramp.start, int) or info.min <= ramp.start <= info.max
    return n.stepped(ramp.start, ramp.steps) if fits else None


@_handles("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _compare(n: _Node) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None or not is_integer(a.dtype) or not is_integer(b.dtype):
        return None
    start = dims.sub(a.start, b.start)
    steps = [dims.sub(p, q) for p, q in zip(n.spread(a), n.spread(b), strict=True)]
    if start is None or any(s is None for s in steps):
        return None
    low, high = Ramp(n.shape, start, tuple(steps), np.dtype(np.int64)).range()
    answer = _ANSWERS[n.op](low, high)
    return None if answer is None else n.filled(int(answer))


def _is_less(low: Dim, high: Dim) -> bool | None:
    """Whether a difference between ``low`` and ``high`` is below 0: everywhere, nowhere, or not known."""
    if dims.at_least(dims.neg(high), 1):
        return True
    return False if dims.at_least(low, 0) else None


def _is_equal(low: Dim, high: Dim) -> bool | None:
    if same(low, 0) and same(high, 0):
        return True
    return False if dims.at_least(low, 1) or dims.at_least(dims.neg(high), 1) else None


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


_ANSWERS: dict[str, Callable[[Dim, Dim], bool | None]] = {
    "Less": _is_less,
    "GreaterOrEqual": lambda low, high: _not(_is_less(low, high)),
    "Greater": lambda low, high: _is_less(dims.neg(high), dims.neg(low)),
    "LessOrEqual": lambda low, high: _not(_is_less(dims.neg(high), dims.neg(low))),
    "Equal": _is_equal,
}


@_handles("And", "Or")
def _and(n: _Node) -> Found:
    fills = [None if (ramp := n.ramp(k)) is None else ramp.fill for k in (0, 1)]
    decides = n.op == "Or"
    if any(f is not None and bool(f) == decides for f in fills):
        return n.filled(int(decides))
    return n.filled(int(not decides)) if all(f is not None for f in fills) else None


@_handles("Not")
def _negated(n: _Node) -> Found:
    fill = None if (ramp := n.ramp(0)) is None else ramp.fill
    return None if fill is None else n.filled(int(not fill))


@_handles("Where")
def _where(n: _Node) -> Found:
    condition = None if (ramp := n.ramp(0)) is None else ramp.fill
    if condition is not None:
        chosen = n.ramp(1 if condition else 2)
        return None if chosen is None else n.stepped(chosen.start, n.spread(chosen))
    a, b = n.ramp(1), n.ramp(2)
    first, second = None if a is None else a.fill, None if b is None else b.fill
    if a is None or first is None or second is None or first.tobytes() != second.tobytes():
        return None
    return n.filled(a.start)
