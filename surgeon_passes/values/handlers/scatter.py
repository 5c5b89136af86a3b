"""Scatter and its kin: a copy of the data with elements, or slices, put in or reduced into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values import dims
from surgeon_passes.values.handlers.elementwise import numeric, zip_elements
from surgeon_passes.values.lattice import MAX_ELEMENTS, Array, Value, is_integer, object_array
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler

Place = tuple[int, ...]

_REDUCTIONS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "add": (np.add, dims.add),
    "mul": (np.multiply, dims.mul),
    "max": (np.maximum, dims.maximum),
    "min": (np.minimum, dims.minimum),
}


@handler("ScatterElements", "Scatter")
def scatter_elements(n: Operands) -> Value:
    indices, data, updates = n.array(1), n.data(0), n.data(2)
    if indices.size > MAX_ELEMENTS or indices.shape != updates.shape:
        raise Unknown
    axis = normalise_axis(n.attr("axis", 0), data.ndim)
    places = list(np.ndindex(indices.shape))
    targets = [(*p[:axis], normalise_axis(int(indices[p]), data.shape[axis]), *p[axis + 1 :]) for p in places]
    return _scattered(n, data, targets, [updates[p] for p in places])


@handler("ScatterND")
def scatter_nd(n: Operands) -> Value:
    indices, data, updates = n.array(1), n.data(0), n.data(2)
    places = list(np.ndindex(indices.shape[:-1]))
    targets = [tuple(normalise_axis(int(i), data.shape[k]) for k, i in enumerate(indices[p])) for p in places]
    return _scattered(n, data, targets, [updates[p] for p in places])


def _scattered(n: Operands, data: Array, targets: list[Place], pieces: list[Any]) -> Value:
    """Where a target stands twice the result is undefined without a reduction, and depends on the order for floats."""
    dtype, reduction = n.data_dtype(0), n.attr("reduction", "none")
    twice = len(set(targets)) < len(targets)
    symbolic = data.dtype == object or n.data(2).dtype == object
    if not is_integer(dtype) and data.dtype == object:
        raise Unknown
    found = data.astype(object) if symbolic else data.copy()
    combine = _assign if reduction == "none" else _reducer(reduction, found, n.data(2), twice)
    if reduction == "none" and twice:
        raise Unknown
    for target, piece in zip(targets, pieces, strict=True):
        found[target] = combine(found[target], piece)
    return n.result(found, dtype)


def _assign(old: Any, new: Any) -> Any:
    return new.item() if isinstance(new, np.generic) and new.dtype.kind in "iub" else new


def _reducer(reduction: str, data: Array, updates: Array, twice: bool) -> Callable[[Any, Any], Any]:
    on_arrays, on_elements = _REDUCTIONS[reduction]
    if data.dtype == object:
        return lambda old, new: _each(on_elements, old, new)
    if not numeric(data.dtype) or (data.dtype.kind == "f" and not _orderless(reduction, data, updates, twice)):
        raise Unknown
    combine: Callable[[Any, Any], Any] = on_arrays
    return combine


def _each(function: Callable[..., Any], old: Any, new: Any) -> Any:
    if not isinstance(old, np.ndarray):
        return function(old, _assign(old, new))
    whole = object_array((_assign(None, e) for e in np.asarray(new, object).ravel()), old.shape)
    return zip_elements(function, old, whole)


def _orderless(reduction: str, data: Array, updates: Array, twice: bool) -> bool:
    """Whether floats give the same bits in any order: one operation each, or an extremum without NaN and -0.0."""
    if reduction in ("add", "mul"):
        return not twice and data.dtype.itemsize >= 4
    odd = (np.isnan(a).any() or np.signbit(a[a == 0]).any() for a in (data, updates))
    return not any(odd)
