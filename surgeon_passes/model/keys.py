"""Keys that are equal for equal contents: of constants, arrays and attributes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.model.constants import array_of, bytes_of
from surgeon_passes.model.elements import onnx_dtype

Key = tuple[Any, ...]


DIGESTED = 1 << 12
"""Bytes up to which a constant's key holds a digest; what larger ones hold is read only where their ends are equal."""
_ENDS = 512
_BLOCK = 1 << 22


class _Contents:
    """The bytes of a large constant: hashed by their ends, compared in full."""

    __slots__ = ("constant", "ends")

    def __init__(self, constant: gs.Constant) -> None:
        self.constant = constant
        data = bytes_of(constant)
        self.ends = data[:_ENDS].tobytes() + data[-_ENDS:].tobytes()

    def __hash__(self) -> int:
        return hash(self.ends)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Contents):
            return NotImplemented
        if self.constant is other.constant or self.ends != other.ends:
            return self.constant is other.constant
        a, b = bytes_of(self.constant), bytes_of(other.constant)
        blocks = range(0, a.size, _BLOCK)
        return a.size == b.size and all(np.array_equal(a[k : k + _BLOCK], b[k : k + _BLOCK]) for k in blocks)


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
            held = self._constants[id(constant)] = (constant, self._key(constant))
        return held[1]

    def _key(self, constant: gs.Constant) -> Key:
        elem_type = onnx_dtype(constant.dtype)
        if constant._values.nbytes > DIGESTED and elem_type != onnx.TensorProto.STRING:
            return (elem_type, tuple(constant.shape), _Contents(constant))
        return (elem_type, *array_key(array_of(constant)))

    def attribute(self, value: Any) -> str:
        if isinstance(value, gs.Constant):
            return repr((onnx_dtype(value.dtype), *array_key(array_of(value))))
        if isinstance(value, np.ndarray):
            return repr(array_key(value))
        return f"{type(value).__name__} {value!r}"

    def attributes(self, node: gs.Node) -> Key:
        return tuple(sorted((name, self.attribute(value)) for name, value in node.attrs.items())) if node.attrs else ()
