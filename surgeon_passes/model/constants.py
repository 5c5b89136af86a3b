"""Constant tensors that stay in the file's own bytes until somebody reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues, SparseValues

from surgeon_passes.errors import ModelError

Array = NDArray[Any]


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


def onnx_dtype(dtype: Any) -> int:
    """The onnx element type of a numpy dtype, or of what graphsurgeon holds in its place."""
    if isinstance(dtype, int):
        return dtype
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class TensorValues(LazyValues):  # type: ignore[misc]
    """A TensorProto, decoded on demand; external data is mapped, not read.

    ``shape``: list of ints; ``dtype``: numpy's (ml_dtypes where numpy has none).
    """

    def __init__(self, tensor: TensorProto, folder: str = "") -> None:
        self.tensor = tensor
        self.folder = folder
        self.shape = list(tensor.dims)
        self.dtype = numpy_dtype(tensor.data_type)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def is_external(self) -> bool:
        return bool(self.tensor.data_location == TensorProto.EXTERNAL)

    def load(self) -> Array:
        """The values, without a copy where the bytes lie ready. Raises ModelError for missing external data."""
        if self.is_external:
            return map_external(self.tensor, self.folder)
        array = numpy_helper.to_array(self.tensor)
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)


class SparseTensorValues(LazyValues):  # type: ignore[misc]
    """A SparseTensorProto (COO, linear or coordinate indices), dense on demand."""

    def __init__(self, tensor: onnx.SparseTensorProto) -> None:
        self.tensor = tensor
        self.shape = list(tensor.dims)
        self.dtype = numpy_dtype(tensor.values.data_type)
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def load(self) -> Array:
        dense = np.zeros(self.shape, self.dtype)
        indices = numpy_helper.to_array(self.tensor.indices)
        values = numpy_helper.to_array(self.tensor.values)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
        return dense


def array_of(constant: gs.Constant) -> Array:
    """A constant's values; the constant itself keeps its encoded form."""
    held = constant._values
    if isinstance(held, SparseValues):  # graphsurgeon's own reader makes everything float64
        return SparseTensorValues(held.tensor).load()
    return np.asarray(held.load() if isinstance(held, LazyValues) else held)


def external_fields(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def external_number(tensor: TensorProto, key: str, default: int) -> int:
    """ "offset" or "length" of external data. Raises ModelError where it is no number."""
    text = external_fields(tensor).get(key, str(default))
    if not (text.isascii() and text.isdigit()):
        raise ModelError(f"tensor '{tensor.name}': the {key} of its external data is '{text}', no number of bytes")
    return int(text)


def map_external(tensor: TensorProto, folder: str) -> Array:
    """External data as a read-only mapping. Raises ModelError naming tensor and file where it is missing or short."""
    fields = external_fields(tensor)
    location = fields.get("location", "")
    path = Path(folder) / location.replace("\0", "")
    offset, dtype = external_number(tensor, "offset", 0), numpy_dtype(tensor.data_type)
    count = int(np.prod(list(tensor.dims), dtype=np.int64))
    if not location.strip(".") or "\0" in location:
        raise ModelError(f"tensor '{tensor.name}': its external data names no file")
    if os.path.isabs(location) or ".." in Path(location).parts:
        raise ModelError(f"tensor '{tensor.name}': its external data '{location}' lies outside the model's folder")
    needed = (count + 1) // 2 if tensor.data_type in _PACKED else count * dtype.itemsize
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ModelError(f"tensor '{tensor.name}': external data {path} cannot be read ({error.strerror})") from None
    if offset + needed > size:
        raise ModelError(f"tensor '{tensor.name}': external data {path} ends before byte {offset + needed}")
    if tensor.data_type in _PACKED:
        whole = TensorProto()
        whole.CopyFrom(tensor)
        whole.data_location = TensorProto.DEFAULT
        whole.raw_data = path.read_bytes()[offset : offset + needed]
        return np.asarray(numpy_helper.to_array(whole))
    if count == 0:
        return np.zeros(list(tensor.dims), dtype)
    return np.memmap(path, dtype, "r", offset, tuple(tensor.dims))


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
