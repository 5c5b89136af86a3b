"""What is said between processes."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgeon_passes.messages import Message, decode, encode


def sent(message: Message) -> Message:
    stream = io.BytesIO(b"".join(bytes(piece) for piece in encode(message)))
    got = decode(stream.readline(), lambda size: bytearray(stream.read(size)))
    assert not stream.read()
    return got


@pytest.mark.parametrize(
    "value",
    [None, True, 7, 0.1, float("inf"), "α\n", b"\x00\n\xff", b"", [1, ["a"]], {"x": {2: [b"y"]}}, []],
)
def test_plain_values(value: Any) -> None:
    assert sent({"value": value}) == {"value": value}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2],
        np.float16([np.nan, -0.0, np.inf]),
        np.array(-3, np.int64),
        np.zeros((0, 5), np.uint8),
        np.array([True, False]),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([-8, 7], ml_dtypes.int4),
        np.array([0.5, -448], ml_dtypes.float8_e4m3fn),
        np.array([1 + 2j], np.complex64),
        np.array([["a", ""], ["ω", "\n"]], dtype=object),
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)
def test_arrays_keep_dtype_shape_and_bytes(array: Any) -> None:
    got = sent({"first": [array], "second": array})["second"]
    assert got.dtype == array.dtype and got.shape == array.shape
    if array.dtype == object:
        assert got.tolist() == array.tolist()
    else:
        assert got.tobytes() == array.tobytes()


def test_nothing_that_is_read_is_executed() -> None:
    with pytest.raises(ValueError):
        decode(b"cos\nsystem\n", lambda _: bytearray())
