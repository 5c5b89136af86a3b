"""Broadcast application of a function: with numpy where all is known, element by element where something is symbolic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from surgeon_passes.values.dims import Dim
from surgeon_passes.values.lattice import MAX_PARTIAL, Array, Value, is_integer, object_array, pack
from surgeon_passes.values.operands import Operands, Unknown

ElementFunction = Callable[..., Dim]

_FLOATS = frozenset({"float16", "float32", "float64", "bfloat16"})


def zip_elements(function: ElementFunction, *arrays: Array) -> Array:
    """Apply a function to broadcast object arrays, element by element."""
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    if math.prod(shape) > MAX_PARTIAL:
        raise Unknown
    spread = [np.broadcast_to(a, shape).ravel() for a in arrays]
    return object_array((function(*elements) for elements in zip(*spread, strict=True)), shape)


def known_operands(n: Operands, positions: range) -> list[Array] | None:
    """All operands where all are fully known and their broadcast result is small."""
    values = [n.value(p) for p in positions]
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    if len(arrays) < len(values):
        return None
    arrays = _aligned(n, arrays)
    n.fits(math.prod(np.broadcast_shapes(*(a.shape for a in arrays))))
    return arrays


def _aligned(n: Operands, arrays: list[Array]) -> list[Array]:
    """Before opset 7 the second operand lies along the dims of the first from ``axis`` on, the last ones by default."""
    if n.view.regular:
        return arrays
    first, second = arrays
    axis = n.attr("axis", first.ndim - second.ndim)
    axis = axis + first.ndim if axis < 0 else axis
    return [first, second.reshape(second.shape + (1,) * (first.ndim - axis - second.ndim))]


def numeric(dtype: np.dtype[Any]) -> bool:
    """Whether numpy computes in ``dtype`` as ONNX Runtime does: integers and IEEE floats (bfloat16 included)."""
    return dtype.kind in "iu" or dtype.name in _FLOATS


def apply(n: Operands, on_arrays: Callable[..., Array], on_elements: ElementFunction, dtype: Any = None) -> Value:
    """A broadcast operator over all operands. ``dtype`` of the result where it is not the operands' own."""
    n.prepare()
    positions = range(len(n))
    arrays = known_operands(n, positions)
    if arrays is not None:
        return np.asarray(on_arrays(*arrays))
    if not is_integer(n.data_dtype(0)):
        raise Unknown
    found = zip_elements(on_elements, *_aligned(n, [n.elements(p) for p in positions]))
    return pack(found, np.dtype(dtype) if dtype is not None else n.data_dtype(0))
