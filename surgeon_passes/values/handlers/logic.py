"""Comparisons and logic, three-valued where operands are symbolic: an element is 1, 0 or unknown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim
from surgeon_passes.values.handlers.elementwise import apply, known_operands, zip_elements
from surgeon_passes.values.lattice import Array, Value, is_integer, pack
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler


def _truth(answer: bool | None) -> Dim:
    return None if answer is None else int(answer)


_COMPARE: dict[str, tuple[Any, Any]] = {
    "Equal": (np.equal, lambda a, b: _truth(dims.equal(a, b))),
    "Less": (np.less, lambda a, b: _truth(dims.less(a, b))),
    "LessOrEqual": (np.less_equal, lambda a, b: _truth(dims.less_equal(a, b))),
    "Greater": (np.greater, lambda a, b: _truth(dims.less(b, a))),
    "GreaterOrEqual": (np.greater_equal, lambda a, b: _truth(dims.less_equal(b, a))),
}


@handler(*_COMPARE, irregular=True)
def compare(n: Operands) -> Value:
    on_arrays, on_elements = _COMPARE[n.op]
    return apply(n, lambda a, b: on_arrays(a, b).astype(bool), on_elements, bool)


def _not(a: Dim) -> Dim:
    return None if a is None else dims.sub(1, a)


def _and(a: Dim, b: Dim) -> Dim:
    if a == 0 or b == 0:
        return 0
    return 1 if a == 1 and b == 1 else None


def _or(a: Dim, b: Dim) -> Dim:
    return _not(_and(_not(a), _not(b)))


def _xor(a: Dim, b: Dim) -> Dim:
    return None if a is None or b is None else int(a != b)


_LOGIC: dict[str, tuple[Any, Any]] = {
    "Not": (np.logical_not, _not),
    "And": (np.logical_and, _and),
    "Or": (np.logical_or, _or),
    "Xor": (np.logical_xor, _xor),
}


@handler(*_LOGIC, irregular=True)
def logic(n: Operands) -> Value:
    on_arrays, on_elements = _LOGIC[n.op]
    return apply(n, on_arrays, on_elements, bool)


@handler("Where")
def where(n: Operands) -> Value:
    """A known condition picks per element; where the condition is unknown, branches that are equal agree anyway."""
    arrays = known_operands(n, range(3))
    if arrays is not None:
        return np.asarray(np.where(arrays[0], arrays[1], arrays[2]))
    uniform = _uniform_condition(n)
    if uniform is not None:
        return _picked(n, uniform)
    dtype = n.data_dtype(1)
    if not is_integer(dtype):
        raise Unknown
    return pack(zip_elements(_pick, n.elements(0), n.elements(1), n.elements(2)), dtype)


def _uniform_condition(n: Operands) -> int | None:
    """Operand that a condition with equal elements picks throughout."""
    condition = n.value(0)
    if isinstance(condition, np.ndarray) and condition.size and (condition == condition.flat[0]).all():
        return 1 if condition.flat[0] else 2
    return None


def _picked(n: Operands, position: int) -> Value:
    """One branch, spread over the shape of all three operands."""
    shapes = [dims.static(n.shape(p)) for p in range(3)]
    known = [s for s in shapes if s is not None]
    if len(known) < 3:
        raise Unknown
    shape = np.broadcast_shapes(*known)
    n.fits(math.prod(shape))
    data: Array = n.data(position)
    return n.result(np.asarray(np.broadcast_to(data, shape)), n.data_dtype(position))


def _pick(condition: Dim, yes: Dim, no: Dim) -> Dim:
    if condition is None:
        return yes if dims.same(yes, no) else None
    return yes if condition == 1 else no
