"""What flows into a region's boundary: kinds of inputs, deterministic and made for mistakes to show."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper

from surgeon_passes.runtime import Array
from surgeon_passes.verify.resize import Shape

KINDS = ("normal", "zeros", "large", "sparse")
LARGE = (1e3, 30.0, 4.0)
"""Scales of "large", tried in turn until the original stays finite."""

_POOL_SIZE = 262_139
_STEP = 7_919
_SPARSE = 0.08
"""Part of the inner places of "sparse" that is not 0."""
_WORDS = ("", "a", "b", "surgeon", "pass", "onnx", "Zebra", "0")
_INDEX_TYPES = frozenset({TensorProto.INT32, TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64})


@cache
def _normal_pool() -> NDArray[np.float32]:
    return np.random.default_rng(20_240_229).standard_normal(_POOL_SIZE, dtype=np.float32)


@cache
def _uniform_pool() -> NDArray[np.float64]:
    return np.random.default_rng(19_700_101).random(_POOL_SIZE)


@cache
def _sparse_pool() -> NDArray[np.bool_]:
    return _uniform_pool() < _SPARSE


def _take(pool: NDArray[Any], shape: Shape, stream: int) -> Array:
    """A stretch of ``pool``; streams start apart. The pool's prime length keeps repeats off every axis."""
    count = int(np.prod(shape, dtype=np.int64))
    start = (stream * _STEP) % (_POOL_SIZE // 2)
    if start + count <= _POOL_SIZE:
        return pool[start : start + count].reshape(shape)
    found = np.empty(count, pool.dtype)
    for begin in range(0, count, _POOL_SIZE - start):
        found[begin : begin + _POOL_SIZE - start] = pool[start : start + count - begin]
    return found.reshape(shape)


_CACHED_ELEMENTS = 1 << 14


def make(kind: str, dtype: int, shape: Shape, stream: int, scale: float = LARGE[0], integers: str = "small") -> Array:
    """One boundary tensor. Equal ones may be one array: it is not to be written to.

    ``dtype`` is an onnx element type that numpy holds. ``stream`` separates the tensors of a region and its tries.
    ``scale`` is the standard deviation of "large". ``integers`` says what int32/int64 may hold: "small" (0 and 1, ones,
    0 to 3), "ones", "count" (0, 1, 2 ...) or "wide" (arithmetic only: -1000 to 1000 too).
    """
    if math.prod(shape) <= _CACHED_ELEMENTS:
        return _made_once(kind, dtype, shape, stream, scale, integers)
    key = (kind, dtype, shape, stream, scale, integers)
    found = _LARGE_ALIVE.get(key)
    if found is None:
        found = _LARGE_ALIVE[key] = _make(*key)
    return found


_LARGE_ALIVE: WeakValueDictionary[tuple[str, int, Shape, int, float, str], Array] = WeakValueDictionary()
"""Large arrays that somebody feeds: regions of a batch share theirs."""


@lru_cache(maxsize=512)
def _made_once(kind: str, dtype: int, shape: Shape, stream: int, scale: float, integers: str) -> Array:
    return _make(kind, dtype, shape, stream, scale, integers)


def _make(kind: str, dtype: int, shape: Shape, stream: int, scale: float, integers: str) -> Array:
    if dtype == TensorProto.STRING:
        return _strings(shape, stream)
    target = helper.tensor_dtype_to_np_dtype(dtype)
    if dtype == TensorProto.BOOL:
        return _bools(kind, shape, stream)
    if target.kind in "iu":
        return _integers(kind, dtype, target, shape, stream, integers)
    return np.asarray(_floats(kind, shape, stream, scale)).astype(target, copy=False)


def _floats(kind: str, shape: Shape, stream: int, scale: float) -> Array:
    if kind == "zeros":
        return np.zeros(shape, np.float32)
    values = _take(_normal_pool(), shape, stream)
    if kind == "large":
        return values * np.float32(scale)
    return np.where(_sparse_mask(shape, stream), values, np.float32(0)) if kind == "sparse" else values


def _sparse_mask(shape: Shape, stream: int) -> Array:
    """True on spatial borders and at few inner places. (Multiplying would make -0.0, which is another matter.)"""
    mask = np.array(_take(_sparse_pool(), shape, stream + 3))  # its own: the pool stays as it is
    for axis in range(2, len(shape)):
        if shape[axis]:
            view = np.moveaxis(mask, axis, 0)
            view[0] = view[-1] = True
    return mask


def _bools(kind: str, shape: Shape, stream: int) -> Array:
    if kind == "zeros":
        return np.zeros(shape, np.bool_)
    return np.asarray(_take(_uniform_pool(), shape, stream) < (0.1 if kind == "sparse" else 0.5))


def _strings(shape: Shape, stream: int) -> Array:
    picks = (_take(_uniform_pool(), shape, stream) * len(_WORDS)).astype(np.int64)
    return np.asarray(np.asarray(_WORDS, dtype=object)[picks], dtype=object)


def _integers(kind: str, dtype: int, target: np.dtype[Any], shape: Shape, stream: int, integers: str) -> Array:
    if dtype not in _INDEX_TYPES:
        info = np.iinfo(target) if target.kind in "iu" and target.itemsize else None
        low, high = (int(info.min), int(info.max) + 1) if info else (0, 8)
        return _between(low, high, shape, stream, target) if kind != "zeros" else np.zeros(shape, target)
    if integers == "ones":
        return np.ones(shape, target)
    if integers == "count":
        return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape).astype(target)
    if kind == "zeros":
        return np.zeros(shape, target)
    if integers == "wide":
        low = -1000 if kind == "large" else -9
        return _between(0 if target.kind == "u" else low, 1000 if kind == "large" else 10, shape, stream, target)
    return (
        np.ones(shape, target) if kind == "sparse" else _between(0, 4 if kind == "large" else 2, shape, stream, target)
    )


def indices(dtype: int, shape: Shape, stream: int, below: int) -> Array:
    """Indices over the whole of an axis of ``below`` elements."""
    return _between(0, below, shape, stream, helper.tensor_dtype_to_np_dtype(dtype))


def _between(low: int, high: int, shape: Shape, stream: int, target: np.dtype[Any]) -> Array:
    return np.asarray(np.floor(_take(_uniform_pool(), shape, stream) * (high - low) + low)).astype(target)


def one_ulp(array: Array, stream: int) -> Array:
    """``array`` with every float moved by one ulp of its type, up or down at random; zeros stay zero."""
    if array.dtype.kind != "f" or array.size == 0:
        return array
    whole = np.ascontiguousarray(array)
    kind = np.dtype(f"i{array.dtype.itemsize}")
    step = _take(_sign_pool(), array.shape, 1000 + stream) * ((whole != 0) & np.isfinite(whole))
    moved = np.asarray((whole.view(kind) + step.astype(kind)).view(array.dtype))
    return np.where(np.isfinite(moved), moved, array)


@cache
def _sign_pool() -> NDArray[np.int8]:
    return np.where(_uniform_pool() < 0.5, np.int8(1), np.int8(-1))
