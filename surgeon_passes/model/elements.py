"""Element types of tensors, as onnx numbers them and as numpy names them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from surgeon_passes.errors import ModelError


@cache
def numpy_dtype(elem_type: int) -> np.dtype[Any]:
    """numpy's dtype of an onnx element type (ml_dtypes' for bfloat16, float8, int4); object for strings.

    Raises ModelError for a number that is no element type.
    """
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(elem_type))
    except KeyError:
        raise ModelError(
            f"{elem_type} is no element type of ONNX (or one that onnx {onnx.__version__} lacks)"
        ) from None


def stated_dims(shape: onnx.TensorShapeProto) -> list[Any]:
    """What a file says of sizes: numbers, names, None."""
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in shape.dim]


def onnx_dtype(dtype: Any) -> int:
    """The onnx element type of a numpy dtype, or of what graphsurgeon holds in its place."""
    return dtype if type(dtype) is int else _onnx_dtype(dtype)


@cache
def _onnx_dtype(dtype: Any) -> int:
    return int(dtype) if isinstance(dtype, int) else int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


_PACKED = {
    getattr(TensorProto, name)
    for name in ("INT4", "UINT4", "FLOAT4E2M1", "INT2", "UINT2")
    if hasattr(TensorProto, name)
}


def element_bits(elem_type: int) -> int:
    """Bits that one element takes in raw data: 4 or 2 for the packed types. Raises ModelError for no element type."""
    if elem_type in _PACKED:
        return 2 if TensorProto.DataType.Name(elem_type).endswith("INT2") else 4
    return numpy_dtype(elem_type).itemsize * 8


def raw_bytes(tensor: TensorProto) -> int:
    """Bytes of raw data that a tensor's dims and element type ask for. Raises ModelError for no element type."""
    return (math.prod(tensor.dims) * element_bits(tensor.data_type) + 7) // 8
