"""Cast and CastLike. A symbolic integer stays symbolic in any integer type wide enough for a dim; never in a float."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from surgeon_passes.model import numpy_dtype
from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim
from surgeon_passes.values.handlers.elementwise import numeric, zip_elements
from surgeon_passes.values.lattice import Array, Value, is_integer, pack
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler


@handler("Cast")
def cast(n: Operands) -> Value:
    """Before opset 6 the type is named."""
    to = n.attr("to")
    return _cast(n, numpy_dtype(TensorProto.DataType.Value(to) if isinstance(to, str) else int(to)))


@handler("CastLike")
def cast_like(n: Operands) -> Value:
    return _cast(n, n.dtype(1))


def _cast(n: Operands, to: np.dtype[Any]) -> Value:
    value = n.value(0)
    if isinstance(value, np.ndarray):
        n.fits(value.size)
        return _cast_array(value, to)
    if value is None or not is_integer(to):
        raise Unknown
    if to.kind == "b":
        return pack(zip_elements(_nonzero, value.elements), to)
    return pack(zip_elements(lambda e: _integer(e, to), value.elements), to)


def _nonzero(element: Dim) -> Dim:
    answer = dims.equal(element, 0)
    return None if answer is None else int(not answer)


def _integer(element: Dim, to: np.dtype[Any]) -> Dim:
    """Dims are taken to fit 32 bits (:func:`pack` says which sums of them do); an int that does not fit would wrap."""
    if isinstance(element, int) or element is None:
        return element
    if to.itemsize < 4 or (to.kind == "u" and not dims.at_least(element, 0)):
        return None
    return element


def _cast_array(array: Array, to: np.dtype[Any]) -> Array:
    source = array.dtype
    if source == to:
        return array
    if not _castable(source) or not _castable(to):
        raise Unknown
    if is_integer(to) and to.kind != "b" and not is_integer(source):
        return _float_to_int(array, to)
    if to.kind == "b":
        return np.asarray(array != 0)
    found = array.astype(to)
    narrow = to.itemsize < 4 and not is_integer(to)
    if narrow and source.itemsize > to.itemsize and source != np.float32 and not _same(found.astype(source), array):
        raise Unknown  # rounded once or twice: ONNX Runtime goes by way of float32
    return found


def _castable(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "b" or numeric(dtype)


def _float_to_int(array: Array, to: np.dtype[Any]) -> Array:
    """Toward zero; out of range and NaN are undefined in ONNX."""
    whole = np.trunc(array.astype(np.float64))
    info = np.iinfo(to)
    if not np.isfinite(whole).all() or (whole < info.min).any() or (whole >= float(info.max) + 1).any():
        raise Unknown
    return whole.astype(to)


def _same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b))
