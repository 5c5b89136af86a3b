"""Values out of attributes, types and sizes: Constant, Shape, Size, ConstantOfShape, EyeLike, Range."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.model import array_of, numpy_dtype
from surgeon_passes.model.constants import SparseTensorValues
from surgeon_passes.values import dims
from surgeon_passes.values.lattice import Array, Value, object_array, pack
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import handler
from surgeon_passes.values.shapes.create import shape_slice

_INT64 = np.dtype(np.int64)
_EXACT_FLOAT = 1 << 20

_CONSTANT_DTYPES: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


@handler("Constant")
def constant(n: Operands) -> Value:
    """Every form: ``value``, ``sparse_value`` and the plain ones (value_float is float32, value_int int64)."""
    for name in n.view.attrs:
        value = n.attr(name)
        if isinstance(value, gs.Constant):
            return array_of(value)
        if isinstance(value, onnx.AttributeProto) and value.HasField("sparse_tensor"):
            return SparseTensorValues(value.sparse_tensor).load()
        if name in _CONSTANT_DTYPES:
            return np.array(value, _CONSTANT_DTYPES[name])
    raise Unknown


@handler("Shape")
def shape(n: Operands) -> Value:
    """``start`` and ``end`` (opset 15) may be negative and are clamped to the rank."""
    cut = shape_slice(n.known_shape(0), n.attr("start", 0), n.attr("end"))
    return pack(object_array(cut, (len(cut),)), _INT64)


@handler("Size")
def size(n: Operands) -> Value:
    return pack(object_array([dims.product(n.known_shape(0))], ()), _INT64)


@handler("ConstantOfShape")
def constant_of_shape(n: Operands) -> Value:
    """Float 0 unless ``value`` says otherwise; an empty shape gives a scalar."""
    target = n.ints(0)
    n.fits(int(np.prod(target, dtype=object)) if target else 1)
    value = n.attr("value")
    fill: Array = array_of(value).reshape(()) if isinstance(value, gs.Constant) else np.array(0, np.float32)
    return np.full(target, fill, fill.dtype)


@handler("EyeLike")
def eye_like(n: Operands) -> Value:
    """Ones on diagonal ``k``, of the operand's dtype unless ``dtype`` says otherwise."""
    shape = dims.static(n.known_shape(0))
    if shape is None:
        raise Unknown
    rows, columns = shape
    n.fits(rows * columns)
    to = n.attr("dtype")
    return np.eye(rows, columns, int(n.attr("k", 0)), numpy_dtype(int(to)) if to else n.dtype(0))


@handler("Range", since=11)
def range_(n: Operands) -> Value:
    """Integers, and floats whose every step is a whole number (exact whichever way it is summed)."""
    start, limit, delta = (n.array(p).reshape(()) for p in range(3))
    dtype = start.dtype
    numbers = [v.item() for v in (start, limit, delta)]
    if any(float(v) != int(v) or (dtype.kind == "f" and abs(v) > _EXACT_FLOAT) for v in numbers):
        raise Unknown
    low, high, step = (int(v) for v in numbers)
    count = max(0, -((low - high) // step))
    n.fits(count)
    return np.array([low + step * k for k in range(count)], dtype)
