"""Arguments for operators: what hypothesis draws for each, at the opsets at which its meaning changed.

A generator gets ``r``, a random.Random whose every answer hypothesis chooses, and the opset.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

Array = np.ndarray
BOOL, I32, I64, F16, F32, F64 = np.bool_, np.int32, np.int64, np.float16, np.float32, np.float64
U8, U32, U64, I8 = np.uint8, np.uint32, np.uint64, np.int8
INTS, FLOATS = (I64, I64, I32), (F32, F32, F64)
NUMBERS = (*INTS, *FLOATS)
EXTREMES = (2**62, -(2**63), 2**63 - 1, 2**31, -1, 0, 1)


@dataclass
class Example:
    """One node on constants; None is an operand left out."""

    op: str
    inputs: list[Array | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1

    @property
    def signature(self) -> tuple[str, ...]:
        return (self.op, *(str(a.dtype) for a in self.inputs if a is not None), str(self.attrs.get("to", "")))


def shape(r: Random, ranks=(0, 1, 2, 3), least=0, most=4) -> tuple[int, ...]:
    """Empty dims are drawn now and then."""
    rank = r.choice(ranks)
    return tuple(max(least, r.choice((1, 2, 3, most, 2, 3, most, 0))) for _ in range(rank))


def fill(r: Random, dims: tuple[int, ...], dtype: Any) -> Array:
    """Small numbers of both signs, now and then the ends of the range; floats with halves, thirds, -0.0 and infinity."""
    g = np.random.default_rng(r.getrandbits(30))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(g.random(dims) < 0.5)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        found = g.integers(max(-9, info.min), 10, dims)
        odd = np.clip(g.choice(np.array(EXTREMES, dtype=object), dims), info.min, info.max)
        return np.where(g.random(dims) < 0.1, odd, found.astype(object)).astype(dtype).reshape(dims)
    found = g.choice(np.array([0.5, -0.5, 1.5, 2.5, -2.5, 1 / 3, -7.25, 100.0, 0.0, -0.0, 3.0, -1e-3]), dims)
    return np.asarray(np.where(g.random(dims) < 0.03, np.inf, found)).astype(dtype).reshape(dims)


def small(r: Random, dims: tuple[int, ...], dtype: Any, low=-4, high=5) -> Array:
    """Whole numbers that sums and products keep exact."""
    g = np.random.default_rng(r.getrandbits(30))
    return np.asarray(g.integers(low, high, dims)).astype(dtype).reshape(dims)


def ints(*values: int, dtype: Any = I64) -> Array:
    return np.array(values, dtype)


def scalar(value: Any, dtype: Any = I64) -> Array:
    return np.array(value, dtype)


def narrowed(r: Random, dims: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to ``dims``."""
    kept = tuple(d if r.random() < 0.6 else 1 for d in dims)
    return kept[r.randint(0, len(kept)) if r.random() < 0.4 else 0 :]


def axis_of(r: Random, rank: int, negative=True) -> int:
    axis = r.randrange(rank)
    return axis - rank if negative and r.random() < 0.4 else axis


def axes_of(r: Random, rank: int, negative=True) -> list[int]:
    chosen = [a for a in range(rank) if r.random() < 0.5] or [r.randrange(rank)]
    return [a - rank if negative and r.random() < 0.3 else a for a in chosen]


# --- element by element --------------------------------------------------------------------------------------------------


def binary(op: str, dtypes, **attrs):
    def make(r: Random, opset: int) -> Example:
        full, dtype = shape(r), r.choice(dtypes(opset) if callable(dtypes) else dtypes)
        parts = [fill(r, narrowed(r, full), dtype), fill(r, full, dtype)]
        if op in ("Div", "Mod") and np.dtype(dtype).kind in "iu":
            parts = [parts[0], np.where((parts[1] == 0) | (parts[1] == -1), dtype(3), parts[1]).astype(dtype)]
        elif r.random() < 0.5:
            parts.reverse()
        return Example(op, parts, dict(attrs))

    return make


def mod(r: Random, opset: int) -> Example:
    fmod = r.randint(0, 1)
    return binary("Mod", (I64, I32, U8, *((F32, F64) if fmod else ())), fmod=fmod)(r, opset)


def power(r: Random, opset: int) -> Example:
    dims = shape(r)
    if r.random() < 0.3:
        return Example("Pow", [fill(r, dims, F32), scalar(r.choice((1, 2)), F32)])
    kinds = (I64, I32) if opset >= 12 else (F32,)
    if opset < 12:
        return Example("Pow", [fill(r, dims, F32), scalar(2, F32)])
    return Example("Pow", [small(r, dims, r.choice(kinds)), small(r, narrowed(r, dims), r.choice(kinds), 0, 7)])


def unary(op: str, dtypes):
    return lambda r, opset: Example(op, [fill(r, shape(r), r.choice(dtypes(opset) if callable(dtypes) else dtypes))])


def root(r: Random, opset: int) -> Example:
    return Example("Sqrt", [np.abs(fill(r, shape(r), r.choice(FLOATS)))])


def variadic(op: str, dtypes):
    def make(r: Random, opset: int) -> Example:
        full, dtype = shape(r), r.choice(dtypes(opset))
        count = r.randint(1, 4)
        narrow = narrowed if opset >= 8 else lambda _, dims: dims
        parts = [fill(r, narrow(r, full), dtype) for _ in range(count)]
        return Example(op, parts)

    return make


def clip(r: Random, opset: int) -> Example:
    dtype = r.choice((I64, I32, F32, F64, U8) if opset >= 12 else (F32,))
    data = fill(r, shape(r), dtype)
    low, high = (np.asarray(v, dtype) for v in (r.choice((0, 1, 2)), r.choice((0 if opset >= 12 else 2, 3, 5))))
    if opset < 11:
        attrs = {name: float(v) for name, v in (("min", low), ("max", high)) if r.random() < 0.7}
        return Example("Clip", [data], attrs)
    return Example("Clip", [data, low if r.random() < 0.7 else None, high if r.random() < 0.7 else None])


def where(r: Random, opset: int) -> Example:
    full, dtype = shape(r), r.choice((I64, I32, F32, U8))
    return Example("Where", [fill(r, narrowed(r, full), BOOL), fill(r, narrowed(r, full), dtype), fill(r, full, dtype)])


def shift(r: Random, opset: int) -> Example:
    full, dtype = shape(r), r.choice((U8, U32, U64))
    amounts = small(r, full, dtype, 0, 8 * np.dtype(dtype).itemsize)
    return Example("BitShift", [fill(r, full, dtype), amounts], {"direction": r.choice(("LEFT", "RIGHT"))})


def cast(r: Random, opset: int) -> Example:
    source, to = (r.choice((I64, I32, F32, F64, BOOL, F16, U8, I8, U32, U64)) for _ in range(2))
    data = fill(r, shape(r), source)
    if np.dtype(source).kind == "f" and np.dtype(to).kind in "iu":
        data = np.abs(np.where(np.isfinite(data), data, 1)).astype(source)
    if np.dtype(source).kind in "iuf" and np.dtype(to) == F16:
        data = (
            np.clip(data, -100, 100).astype(source) if np.dtype(source).kind != "u" else np.minimum(data, source(100))
        )
    return Example("Cast", [data], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))})


def cast_like(r: Random, opset: int) -> Example:
    to = r.choice((I64, I32, F32, BOOL))
    return Example("CastLike", [small(r, shape(r), r.choice(NUMBERS)), np.zeros(1, to)])


# --- made ----------------------------------------------------------------------------------------------------------------


def shape_op(r: Random, opset: int) -> Example:
    data = fill(r, shape(r), r.choice((I64, F32)))
    attrs = {}
    if opset >= 15:
        attrs = {name: r.randint(-5, 5) for name in ("start", "end") if r.random() < 0.6}
    return Example("Shape", [data], attrs)


def constant_of_shape(r: Random, opset: int) -> Example:
    attrs = {}
    if r.random() < 0.7:
        attrs["value"] = numpy_helper.from_array(fill(r, (1,), r.choice((I64, I32, F32, F64, BOOL, U8))), "v")
    return Example("ConstantOfShape", [np.array(shape(r), I64)], attrs)


def range_(r: Random, opset: int) -> Example:
    dtype = r.choice((I64, I64, I32, F32, F64))
    return Example(
        "Range", [scalar(v, dtype) for v in (r.randint(-9, 9), r.randint(-9, 9), r.choice((1, 2, 3, -1, -4)))]
    )


def eye_like(r: Random, opset: int) -> Example:
    attrs: dict[str, Any] = {"k": r.randint(-5, 5)} if r.random() < 0.6 else {}
    if r.random() < 0.5:
        attrs["dtype"] = r.choice((1, 7, 6, 11))
    return Example("EyeLike", [fill(r, shape(r, (2,)), r.choice((I64, I32, F32, F64)))], attrs)


# --- arranged ------------------------------------------------------------------------------------------------------------


def same(op: str):
    return lambda r, opset: Example(op, [fill(r, shape(r), r.choice((*NUMBERS, BOOL)))])


def dropout(r: Random, opset: int) -> Example:
    data, outputs = fill(r, shape(r, (1, 2, 3), least=1), F32), r.randint(1, 2) if opset >= 12 else 1
    if opset < 12:
        return Example("Dropout", [data], {"ratio": 0.5} if r.random() < 0.5 else {}, outputs)
    return Example("Dropout", [data, *([scalar(0.3, F32)] if r.random() < 0.5 else [])], {}, outputs)


def reshape(r: Random, opset: int) -> Example:
    dims = shape(r, (0, 1, 2, 3))
    data = fill(r, dims, r.choice((I64, F32)))
    allowzero = opset >= 14 and 0 in dims
    target = list(dims)
    r.shuffle(target)
    cut = r.randint(0, len(target))
    target = [*target[:cut], math.prod(target[cut:])] if r.random() < 0.5 else target
    if allowzero:
        return Example("Reshape", [data, np.array(target, I64)], {"allowzero": 1})
    copied = [0 if k < len(dims) and dims[k] == t and r.random() < 0.5 else t for k, t in enumerate(target)]
    if 0 in dims:  # a literal 0 copies: only the shape itself can be said
        return Example("Reshape", [data, np.array(dims, I64)])
    if copied and r.random() < 0.5:
        copied[r.randrange(len(copied))] = -1
    return Example("Reshape", [data, np.array(copied, I64)])


def _with_ints(op: str, data: Array, values: list[int], opset: int, moved: int, **attrs: Any) -> Example:
    """An axes list: an attribute before opset ``moved``."""
    if opset < moved:
        return Example(op, [data], {"axes": values, **attrs})
    return Example(op, [data, np.array(values, I64)], attrs)


def squeeze(r: Random, opset: int) -> Example:
    dims = [r.choice((1, 2, 1, 3)) for _ in range(r.randint(1, 4))]
    ones = [k for k, d in enumerate(dims) if d == 1 and r.random() < 0.8]
    data = fill(r, tuple(dims), r.choice((I64, F32)))
    if not ones or r.random() < 0.2:
        return Example("Squeeze", [data])
    axes = [a - len(dims) if opset >= 11 and r.random() < 0.4 else a for a in ones]
    return _with_ints("Squeeze", data, axes, opset, 13)


def unsqueeze(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (0, 1, 2)), r.choice((I64, F32)))
    count = r.randint(1, 2)
    axes = r.sample(range(data.ndim + count), count)
    axes = axes if opset >= 13 else sorted(axes)
    axes = [a - data.ndim - count if opset >= 11 and r.random() < 0.4 else a for a in axes]
    return _with_ints("Unsqueeze", data, axes, opset, 13)


def flatten(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (1, 2, 3)), r.choice((I64, F32) if opset >= 9 else (F32,)))
    axis = r.randint(-data.ndim if opset >= 11 else 0, data.ndim)
    return Example("Flatten", [data], {"axis": axis} if r.random() < 0.8 else {})


def transpose(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (1, 2, 3)), r.choice(NUMBERS))
    attrs = {"perm": r.sample(range(data.ndim), data.ndim)} if r.random() < 0.7 else {}
    return Example("Transpose", [data], attrs)


def concat(r: Random, opset: int) -> Example:
    dims, dtype = list(shape(r, (1, 2, 3))), r.choice((I64, I32, F32))
    axis = axis_of(r, len(dims), opset >= 11)
    parts = []
    for _ in range(r.randint(1, 4)):
        dims[axis] = r.randint(0, 3)
        parts.append(fill(r, tuple(dims), dtype))
    return Example("Concat", parts, {"axis": axis})


def split(r: Random, opset: int) -> Example:
    dims = list(shape(r, (1, 2, 3), least=1))
    axis, count = axis_of(r, len(dims), opset >= 11), r.randint(1, 3)
    sizes = [r.randint(0, 3) for _ in range(count)]
    attrs: dict[str, Any] = {"axis": axis}
    dtype = r.choice((I64, F32))
    if r.random() < 0.4:
        if opset >= 18:
            dims[axis] = r.choice([d for d in range(count, 9) if -(-d // count) * (count - 1) < d])
            attrs["num_outputs"] = count
        else:
            dims[axis] = count * r.randint(1, 3)
        return Example("Split", [fill(r, tuple(dims), dtype)], attrs, count)
    dims[axis] = sum(sizes)
    data = fill(r, tuple(dims), dtype)
    if opset < 13:
        return Example("Split", [data], {**attrs, "split": sizes}, count)
    return Example("Split", [data, np.array(sizes, I64)], attrs, count)


def expand(r: Random, opset: int) -> Example:
    full = shape(r, (1, 2, 3))
    kept = tuple(d if r.random() < 0.5 else 1 for d in full)[r.randint(0, 1) :]
    target = [1 if r.random() < 0.2 and k >= len(full) - len(kept) else d for k, d in enumerate(full)]
    return Example("Expand", [fill(r, kept, r.choice((I64, I32, F32, BOOL))), np.array(target, I64)])


def tile(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (1, 2, 3)), r.choice((I64, I32, F32, BOOL)))
    return Example("Tile", [data, small(r, (data.ndim,), I64, 0, 4)])


def pad(r: Random, opset: int) -> Example:
    dims = shape(r, (1, 2, 3), least=2)
    dtype = r.choice((F32,) if opset < 13 else (I64, I32, F32, F64))
    data = fill(r, dims, dtype)
    mode = r.choice(("constant", "constant", "edge", "reflect"))
    low = -1 if mode == "constant" else 0
    pads = [r.randint(low, 2 if mode == "constant" else min(d - 1, 2)) for d in (*dims, *dims)]
    attrs: dict[str, Any] = {"mode": mode} if mode != "constant" or r.random() < 0.3 else {}
    if opset < 11:
        value = {"value": 2.5} if mode == "constant" and r.random() < 0.5 else {}
        return Example("Pad", [data], {**attrs, "pads": pads, **value})
    inputs: list[Array | None] = [data, np.array(pads, I64)]
    if mode == "constant" and r.random() < 0.5:
        inputs.append(scalar(3, dtype))
    if opset >= 18 and r.random() < 0.4:
        axis = axis_of(r, len(dims))
        inputs = [data, ints(pads[axis], pads[axis + len(dims) if axis >= 0 else axis]), *inputs[2:]]
        inputs += [None] * (3 - len(inputs)) + [ints(axis)]
    return Example("Pad", inputs, attrs)


# --- picked --------------------------------------------------------------------------------------------------------------


def indices(r: Random, dims: tuple[int, ...], size: int, negative=True, dtype: Any = None) -> Array:
    return small(r, dims, dtype or r.choice(INTS), -size if negative else 0, size)


def gather(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (1, 2, 3), least=1), r.choice((I64, I32, F32)))
    axis = axis_of(r, data.ndim)
    return Example("Gather", [data, indices(r, shape(r, (0, 1, 2)), data.shape[axis], opset >= 11)], {"axis": axis})


def gather_elements(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (1, 2, 3), least=1), r.choice((I64, I32, F32)))
    axis = axis_of(r, data.ndim)
    dims = [r.randint(1, d) for d in data.shape]
    dims[axis] = r.randint(0, 5)
    return Example("GatherElements", [data, indices(r, tuple(dims), data.shape[axis])], {"axis": axis})


def gather_nd(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (2, 3), least=1), r.choice((I64, F32)))
    batch = r.randint(0, 1) if opset >= 12 else 0
    depth = r.randint(1, data.ndim - batch)
    outer = (*data.shape[:batch], *shape(r, (0, 1, 2) if batch else (1, 2), least=1))
    columns = [small(r, outer, I64, -size, size) for size in data.shape[batch : batch + depth]]
    return Example("GatherND", [data, np.stack(columns, -1)], {"batch_dims": batch} if batch else {})


BOUNDS = (0, 1, 2, 3, 5, -1, -2, -3, -9, 100, 2**31 - 1, 2**63 - 1, -(2**63), -(2**31))


def slice_(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (1, 2, 3)), r.choice((I64, I32, F32)))
    axes = axes_of(r, data.ndim, opset >= 10)
    starts, ends = ([r.choice(BOUNDS) for _ in axes] for _ in range(2))
    drawn = [r.choice((1, 1, 2, 3, -1, -2, -5)) for _ in axes]
    steps = [1 if end >= 2**31 - 1 and step < 0 else step for end, step in zip(ends, drawn, strict=True)]
    if opset < 10:
        attrs = {"starts": starts, "ends": ends, "axes": axes}
        if len(axes) == data.ndim and r.random() < 0.5:
            del attrs["axes"]
        return Example("Slice", [data], attrs)
    dtype = r.choice(INTS)
    if dtype == I32:
        starts, ends = ([max(-(2**31), min(v, 2**31 - 1)) for v in values] for values in (starts, ends))
    inputs: list[Array | None] = [data, np.array(starts, dtype), np.array(ends, dtype)]
    if sorted(axes) == list(range(data.ndim)) and r.random() < 0.5:
        return Example("Slice", [*inputs, None, np.array(steps, dtype)] if r.random() < 0.5 else inputs)
    inputs.append(np.array(axes, dtype))
    return Example("Slice", [*inputs, np.array(steps, dtype)] if r.random() < 0.7 else inputs)


def scatter_elements(op: str):
    def make(r: Random, opset: int) -> Example:
        reduction = r.choice(("none", "add", "mul", "max", "min")[: 1 if opset < 16 else 3 if opset < 18 else 5])
        data = small(r, shape(r, (1, 2, 3), least=1), r.choice((I64, F32)))
        axis = axis_of(r, data.ndim)
        dims = [r.randint(1, d) for d in data.shape]
        dims[axis] = r.randint(1, data.shape[axis]) if reduction == "none" or data.dtype == F32 else r.randint(1, 5)
        g = np.random.default_rng(r.getrandbits(30))
        size = data.shape[axis]
        if dims[axis] <= size and (reduction == "none" or data.dtype == F32):
            rows = np.argsort(g.random([*np.delete(dims, axis), size]), -1)[..., : dims[axis]]
            index = np.moveaxis(rows, -1, axis % data.ndim)
        else:
            index = g.integers(-size, size, dims)
        attrs = {"axis": axis, **({"reduction": reduction} if opset >= 16 else {})}
        return Example(op, [data, index.astype(I64), small(r, tuple(dims), data.dtype)], attrs)

    return make


def scatter_nd(r: Random, opset: int) -> Example:
    reduction = r.choice(("none", "add", "mul", "max", "min")[: 1 if opset < 16 else 3 if opset < 18 else 5])
    data = small(r, shape(r, (1, 2, 3), least=1), r.choice((I64, F32)))
    depth = r.randint(1, data.ndim)
    places = list(np.ndindex(data.shape[:depth]))
    once = reduction == "none" or data.dtype == F32
    chosen = r.sample(places, r.randint(1, min(4, len(places)))) if once else [r.choice(places) for _ in range(4)]
    index = np.array(
        [[v - d if r.random() < 0.3 else v for v, d in zip(p, data.shape, strict=False)] for p in chosen], I64
    )
    updates = small(r, (len(chosen), *data.shape[depth:]), data.dtype)
    return Example("ScatterND", [data, index, updates], {"reduction": reduction} if opset >= 16 else {})


def nonzero(r: Random, opset: int) -> Example:
    return Example("NonZero", [small(r, shape(r, (1, 2, 3)), r.choice((I64, F32, BOOL)), 0, 2)])


def compress(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (1, 2, 3), least=1), r.choice((I64, F32)))
    if r.random() < 0.4:
        return Example("Compress", [data, fill(r, (r.randint(0, data.size),), BOOL)])
    axis = axis_of(r, data.ndim, opset >= 11)
    return Example("Compress", [data, fill(r, (r.randint(1, data.shape[axis]),), BOOL)], {"axis": axis})


def trilu(r: Random, opset: int) -> Example:
    data = fill(r, shape(r, (2, 3)), r.choice((I64, F32, F64)))
    attrs = {"upper": r.randint(0, 1)} if r.random() < 0.7 else {}
    return Example("Trilu", [data, *([scalar(r.choice((-6, -2, -1, 0, 1, 2, 6)))] if r.random() < 0.7 else [])], attrs)


def one_hot(r: Random, opset: int) -> Example:
    depth, kind = r.randint(1, 4), r.choice((I64, F32))
    index = small(r, shape(r, (1, 2), least=1), kind, -6 if opset >= 11 else 0, 7)
    attrs = {"axis": r.randint(-index.ndim - 1, index.ndim)} if r.random() < 0.6 else {}
    values = small(r, (2,), r.choice((I64, F32) if kind == I64 else (F32,)))
    return Example("OneHot", [index, scalar(depth, kind), values], attrs)


# --- reduced and ordered -------------------------------------------------------------------------------------------------


def reduce_op(op: str, moved: int):
    def make(r: Random, opset: int) -> Example:
        dims = shape(r, (1, 2, 3), least=0 if op in ("ReduceSum", "ReduceProd") and opset >= 13 else 1)
        dtype = r.choice((F32, I32, I64) if op != "ReduceMean" else (F32, F64))
        data = small(r, dims, dtype)
        if op == "ReduceMean":
            data = data * dtype(math.prod(dims))  # divides without a rest along any axes
        if op == "ReduceProd":  # beyond the digits of its type a product is unknown
            every_fifth = np.arange(data.size).reshape(data.shape) % 5 == 0
            data = np.where(every_fifth, data, np.clip(data, -1, 1)).astype(dtype)
        attrs: dict[str, Any] = {"keepdims": r.randint(0, 1)} if r.random() < 0.7 else {}
        if r.random() < 0.25:
            if opset >= moved and r.random() < 0.6:
                return Example(
                    op,
                    [data, *([ints()] if r.random() < 0.5 else [])],
                    {**attrs, "noop_with_empty_axes": r.randint(0, 1)},
                )
            return Example(op, [data], attrs)
        return _with_ints(op, data, axes_of(r, len(dims), opset >= 11), opset, moved, **attrs)

    return make


def cum_sum(r: Random, opset: int) -> Example:
    data = small(r, shape(r, (1, 2, 3)), r.choice((I64, I32, F32, F64)), 1 if r.random() < 0.5 else -4)
    axis = scalar(axis_of(r, data.ndim), r.choice(INTS))
    return Example("CumSum", [data, axis], {k: r.randint(0, 1) for k in ("exclusive", "reverse") if r.random() < 0.6})


def arg(op: str):
    def make(r: Random, opset: int) -> Example:
        data = small(r, shape(r, (1, 2, 3), least=1), r.choice((F32, I32) if opset < 13 else (F32, F64, I32, I64)))
        attrs = {"keepdims": r.randint(0, 1)} if r.random() < 0.5 else {}
        if r.random() < 0.8:
            attrs["axis"] = axis_of(r, data.ndim, opset >= 11)
        if opset >= 12 and r.random() < 0.5:
            attrs["select_last_index"] = r.randint(0, 1)
        return Example(op, [data], attrs)

    return make


def top_k(r: Random, opset: int) -> Example:
    data = small(r, shape(r, (1, 2, 3), least=1), r.choice((F32,) if opset < 11 else (F32, F64, I64, I32)))
    axis = axis_of(r, data.ndim)
    k = r.randint(1, data.shape[axis])
    attrs: dict[str, Any] = {"axis": axis}
    if opset < 10:
        return Example("TopK", [data], {**attrs, "k": k}, 2)
    if opset >= 11 and r.random() < 0.6:
        attrs["largest"] = r.randint(0, 1)
    return Example("TopK", [data, ints(k)], attrs, 2)


def unique(r: Random, opset: int) -> Example:
    data = small(r, shape(r, (1, 2), least=1), r.choice((I64, F32)), 0, 4)
    attrs: dict[str, Any] = {"sorted": r.randint(0, 1)} if r.random() < 0.6 else {}
    if r.random() < 0.5:
        attrs["axis"] = axis_of(r, data.ndim)
    return Example("Unique", [data], attrs, 4)


def _compare(first: int):
    return lambda opset: (F32, F64) if opset < first else NUMBERS


def _extremum(opset: int):
    return (F32,) if opset < 8 else (F32, F64) if opset < 12 else (I64, I32, F32, F64, U8)


Generator = Callable[[Random, int], Example]
LOGIC = (BOOL,)

GENERATORS: dict[str, tuple[Generator, tuple[int, ...]]] = {
    **{op: (binary(op, NUMBERS), (7, 13, 14)) for op in ("Add", "Sub", "Mul", "Div")},
    "Mod": (mod, (10, 13)),
    "Pow": (power, (7, 12, 13, 15)),
    "Neg": (unary("Neg", NUMBERS), (7, 13)),
    "Abs": (unary("Abs", NUMBERS), (7, 13)),
    "Sign": (unary("Sign", NUMBERS), (9, 13)),
    "Floor": (unary("Floor", FLOATS), (7, 13)),
    "Ceil": (unary("Ceil", FLOATS), (7, 13)),
    "Round": (unary("Round", FLOATS), (11, 22)),
    "Sqrt": (root, (7, 13)),
    "Max": (variadic("Max", _extremum), (7, 8, 12, 13)),
    "Min": (variadic("Min", _extremum), (7, 8, 12, 13)),
    "Sum": (variadic("Sum", lambda opset: (F32, F64)), (7, 8, 13)),
    "Clip": (clip, (7, 11, 12, 13)),
    "Equal": (binary("Equal", lambda opset: (I64, I32, BOOL) if opset < 11 else (*NUMBERS, BOOL)), (7, 11, 13, 19)),
    "Less": (binary("Less", _compare(9)), (7, 9, 13)),
    "Greater": (binary("Greater", _compare(9)), (7, 9, 13)),
    "LessOrEqual": (binary("LessOrEqual", NUMBERS), (12, 16)),
    "GreaterOrEqual": (binary("GreaterOrEqual", NUMBERS), (12, 16)),
    **{op: (binary(op, LOGIC), (7,)) for op in ("And", "Or", "Xor")},
    "Not": (unary("Not", LOGIC), (7,)),
    **{op: (binary(op, (I64, I32, U8)), (18,)) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    "BitwiseNot": (unary("BitwiseNot", (I64, I32, U8)), (18,)),
    "BitShift": (shift, (11,)),
    "Where": (where, (9, 16)),
    "Cast": (cast, (7, 9, 13, 19)),
    "CastLike": (cast_like, (15, 19)),
    "Shape": (shape_op, (7, 13, 15)),
    "Size": (same("Size"), (7, 13)),
    "ConstantOfShape": (constant_of_shape, (9, 20)),
    "Range": (range_, (11,)),
    "EyeLike": (eye_like, (9, 22)),
    "Identity": (same("Identity"), (7, 13, 14)),
    "Dropout": (dropout, (7, 10, 12, 13)),
    "Reshape": (reshape, (7, 13, 14, 19, 21)),
    "Squeeze": (squeeze, (7, 11, 13)),
    "Unsqueeze": (unsqueeze, (7, 11, 13)),
    "Flatten": (flatten, (7, 9, 11, 13)),
    "Transpose": (transpose, (7, 13)),
    "Concat": (concat, (7, 11, 13)),
    "Split": (split, (7, 11, 13, 18)),
    "Expand": (expand, (8, 13)),
    "Tile": (tile, (7, 13)),
    "Pad": (pad, (7, 11, 13, 18)),
    "Gather": (gather, (7, 11, 13)),
    "GatherElements": (gather_elements, (11, 13)),
    "GatherND": (gather_nd, (11, 12, 13)),
    "Slice": (slice_, (7, 10, 11, 13)),
    "Scatter": (scatter_elements("Scatter"), (9,)),
    "ScatterElements": (scatter_elements("ScatterElements"), (11, 13, 16, 18)),
    "ScatterND": (scatter_nd, (11, 13, 16, 18)),
    "NonZero": (nonzero, (9, 13)),
    "Compress": (compress, (9, 11)),
    "Trilu": (trilu, (14,)),
    "OneHot": (one_hot, (9, 11)),
    "ReduceSum": (reduce_op("ReduceSum", 13), (7, 11, 13)),
    **{op: (reduce_op(op, 18), (7, 11, 13, 18)) for op in ("ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean")},
    "CumSum": (cum_sum, (11, 14)),
    "ArgMax": (arg("ArgMax"), (7, 11, 12, 13)),
    "ArgMin": (arg("ArgMin"), (7, 11, 12, 13)),
    "TopK": (top_k, (7, 10, 11)),
    "Unique": (unique, (11,)),
}  # fmt: skip
"""A generator and the opsets at which the operator's meaning changed, from the first that ONNX Runtime runs on."""
