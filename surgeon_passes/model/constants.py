"""Constant tensors that stay in the file's own bytes until somebody reads them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx_graphsurgeon.ir.tensor import LazyValues, SparseValues

from surgeon_passes.model.elements import numpy_dtype
from surgeon_passes.model.weights import Bytes, Weights

Array = NDArray[Any]
_KEPT = 1 << 10
"""Bytes up to which decoded values are kept: they are asked for again and again."""


class TensorValues(LazyValues):  # type: ignore[misc]
    """A TensorProto, decoded on demand; what it refers to is mapped, not read.

    ``shape``: list of ints; ``dtype``: numpy's (ml_dtypes where numpy has none).
    """

    def __init__(self, tensor: TensorProto, weights: Weights) -> None:
        self.tensor = tensor
        self.weights = weights
        self.shape = list(tensor.dims)
        self.dtype = numpy_dtype(tensor.data_type)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        self._kept: Array | None = None

    @property
    def is_reference(self) -> bool:
        """Whether the bytes lie outside the TensorProto."""
        return bool(self.tensor.data_location == TensorProto.EXTERNAL)

    def load(self) -> Array:
        """The values, without a copy where the bytes lie ready. Raises ModelError for missing external data."""
        if self._kept is not None:
            return self._kept
        found = self.weights.aligned(self.tensor)
        is_safe = not (self.is_reference or found.flags.writeable)  # nobody changes it for the others
        if is_safe and self.nbytes <= _KEPT:
            self._kept = found
        return found


class SparseTensorValues(LazyValues):  # type: ignore[misc]
    """A SparseTensorProto (COO, linear or coordinate indices), dense on demand."""

    def __init__(self, tensor: onnx.SparseTensorProto) -> None:
        self.tensor = tensor
        self.shape = list(tensor.dims)
        self.dtype = numpy_dtype(tensor.values.data_type)
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize

    def load(self) -> Array:
        dense = np.zeros(self.shape, self.dtype)
        indices = numpy_helper.to_array(self.tensor.indices)
        values = numpy_helper.to_array(self.tensor.values)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
        return dense


def bytes_of(constant: gs.Constant) -> Bytes:
    """The bytes of a constant's elements, as they lie where it is stored."""
    held = constant._values
    if isinstance(held, TensorValues) and held.is_reference:
        return held.weights.raw(held.tensor)
    return np.ascontiguousarray(array_of(constant)).reshape(-1).view(np.uint8)


def array_of(constant: gs.Constant) -> Array:
    """A constant's values; the constant itself keeps its encoded form."""
    held = constant._values
    if isinstance(held, SparseValues):  # graphsurgeon's own reader makes everything float64
        return SparseTensorValues(held.tensor).load()
    return np.asarray(held.load() if isinstance(held, LazyValues) else held)
