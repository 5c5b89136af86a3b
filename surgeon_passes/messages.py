"""Messages between processes: one JSON line, then the bytes of the arrays in it.

Nothing that is read is ever executed (as pickles are): the other side may be a library that a hostile model has upset.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Message: TypeAlias = dict[str, Any]
"""By name: numbers, text, bytes, None, arrays, and lists and dicts of such."""
Pieces: TypeAlias = list[Any]
"""Buffers to write, one after the other."""

_SIZES = "buffers"


def encode(message: Message) -> Pieces:
    """The line, and the buffers that follow it. Arrays are not copied where they are contiguous."""
    buffers: list[memoryview] = []
    body = {name: _plain(value, buffers) for name, value in message.items()}
    line = json.dumps({**body, _SIZES: [b.nbytes for b in buffers]}).encode() + b"\n"
    return [line, *(b for b in buffers if b.nbytes)]


def decode(line: bytes, read: Callable[[int], bytearray]) -> Message:
    """The message that begins with ``line``; ``read`` gives the next so many bytes."""
    body = json.loads(line)
    buffers = [read(size) if size else bytearray() for size in body.pop(_SIZES, ())]
    return {name: _value(value, buffers) for name, value in body.items()}


def _plain(value: Any, buffers: list[memoryview]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray)):
        buffers.append(memoryview(value))
        return {"bytes": len(buffers) - 1}
    if isinstance(value, dict):
        return {"map": [[_plain(k, buffers), _plain(v, buffers)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_plain(v, buffers) for v in value]
    return _array(np.asarray(value), buffers)


def _array(array: NDArray[Any], buffers: list[memoryview]) -> Message:
    shape = list(array.shape)
    if array.dtype.kind in "OU":
        return {"text": [str(v) for v in array.ravel().tolist()], "shape": shape}
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    buffers.append(flat.data)
    return {"dtype": array.dtype.name, "shape": shape, "at": len(buffers) - 1}


def _value(value: Any, buffers: Sequence[bytearray]) -> Any:
    if isinstance(value, list):
        return [_value(v, buffers) for v in value]
    if not isinstance(value, dict):
        return value
    if "map" in value:
        return {_value(k, buffers): _value(v, buffers) for k, v in value["map"]}
    if "bytes" in value:
        return bytes(buffers[value["bytes"]])
    if "text" in value:
        made = np.empty(math.prod(value["shape"]), dtype=object)
        made[:] = value["text"]
        return made.reshape(value["shape"])
    return np.frombuffer(buffers[value["at"]], _dtype(value["dtype"])).reshape(value["shape"])


def _dtype(name: str) -> np.dtype[Any]:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # numpy knows its types once it is loaded

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
