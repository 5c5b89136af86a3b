"""What graphsurgeon's tensors state of their type."""

from __future__ import annotations

from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.model import onnx_dtype
from surgeon_passes.region import TensorType
from surgeon_passes.values.dims import Dim, symbol


def as_dim(dim: Any) -> Dim:
    """A dim as graphsurgeon or a file holds it: text is a symbol, whatever it says; a negative size is unknown."""
    if isinstance(dim, str):
        return symbol(dim) if dim else None
    return int(dim) if dim is not None and int(dim) >= 0 else None


_KINDS = {"tensor_type": "tensor", None: "tensor"}


def declared_type(tensor: gs.Tensor) -> TensorType:
    """The type that a gs.Variable states."""
    kind = _KINDS.get(getattr(tensor, "type", None), str(getattr(tensor, "type", "")).removesuffix("_type"))
    dtype = onnx_dtype(tensor.dtype) if tensor.dtype is not None else None
    if kind != "tensor":
        return TensorType(dtype, None, kind)
    shape = None if tensor.shape is None else tuple(as_dim(d) for d in tensor.shape)
    return TensorType(dtype, shape)


def without_dims(entry: TensorType) -> TensorType:
    """dtype and rank: the dims that a file or a gs.Variable states are hints that may be stale."""
    return TensorType(entry.dtype, None if entry.shape is None else (None,) * len(entry.shape), entry.kind)
