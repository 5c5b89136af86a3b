"""Keys that are equal for equal contents: of constants, arrays and attributes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.model.constants import array_of
from surgeon_passes.model.elements import onnx_dtype

Key = tuple[Any, ...]


def array_key(array: np.ndarray[Any, Any]) -> Key:
    """dtype, shape and bytes (a digest of many)."""
    if array.dtype == object:
        return ("object", array.shape, repr(array.tolist()))
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    content = data.tobytes() if data.nbytes <= 32 else hashlib.blake2b(data.data, digest_size=16).digest()
    return (array.dtype.str, array.shape, content)


class Keys:
    """Keys of constants, each computed once."""

    def __init__(self) -> None:
        self._constants: dict[int, tuple[gs.Constant, Key]] = {}

    def constant(self, constant: gs.Constant) -> Key:
        """onnx element type (numpy's dtype does not tell bfloat16 from float8 everywhere), shape and bytes."""
        held = self._constants.get(id(constant))
        if held is None:
            key = (onnx_dtype(constant.dtype), *array_key(array_of(constant)))
            held = self._constants[id(constant)] = (constant, key)
        return held[1]

    def attribute(self, value: Any) -> str:
        if isinstance(value, gs.Constant):
            return repr(self.constant(value))
        if isinstance(value, np.ndarray):
            return repr(array_key(value))
        return f"{type(value).__name__} {value!r}"

    def attributes(self, node: gs.Node) -> Key:
        return tuple(sorted((name, self.attribute(value)) for name, value in node.attrs.items())) if node.attrs else ()
