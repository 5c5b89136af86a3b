"""Integer arithmetic, sizes as numbers, quantisation, sizes that data decides."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..fragment import Fragment
from ..grow import Grower
from ..piece import Piece


def sizes(grower: Grower) -> Fragment:
    """Arithmetic on the dims of a tensor, as a result, or as the target of a Reshape or Expand."""
    p = Piece(grower, "sizes")
    x = p.ranked(3, 2, 4)
    shape = p.node("Shape", p.read(x))
    made = shape
    for _ in range(p.number(1, 4)):
        op = p.choose("Add", "Mul", "Div", "Sub", "Mod", "Max")
        other = p.choose(shape, made, p.ints(p.choose(2, 3, 1, -1)), p.ints(*range(1, x.rank + 1)))
        if op in ("Div", "Mod"):
            other = p.ints(p.choose(2, 3, -2, 1))
        made = p.node(op, made, other)
    end = p.choose("vector", "product", "float")
    if end == "product":
        made = p.node("ReduceProd", made, p.ints(0), keepdims=p.number(0, 1))
    elif end == "float":
        made = p.node("Cast", made, to=TensorProto.FLOAT)
    return p.done(made)


def integers(grower: Grower) -> Fragment:
    p = Piece(grower, "integers")
    dtype = p.choose(np.int64, np.int32)
    x = grower.tensor(lambda t: t.rank in (1, 2), lambda: (grower.some_dim(), grower.some_dim()), dtype)
    name = p.read(x)
    for _ in range(p.number(1, 3)):
        op = p.choose("Add", "Mul", "Sub", "Div", "Max", "Mod")
        if op in ("Max", "Mod") and grower.opset < 13:
            op = "Add"
        value = p.choose(1, 2, 3, -1) if op in ("Div", "Mod") else p.choose(0, 1, 2, -3)
        name = p.node(op, name, p.constant(np.full(p.choose((), (1,)), value, dtype)))
    return p.done(p.node("Cast", name, to=TensorProto.FLOAT) if p.maybe() else name)


def quantised(grower: Grower) -> Fragment:
    """QuantizeLinear and DequantizeLinear around a layer or alone."""
    p = Piece(grower, "quantised")
    x = p.ranked(2, 4, 3, channels=(2, 4))
    scale, zero = p.constant(np.float32(p.choose(0.05, 0.1))), p.constant(np.array(3, p.choose(np.int8, np.uint8)))
    name = p.node("DequantizeLinear", p.node("QuantizeLinear", p.read(x), scale, zero), scale, zero)
    if x.rank == 4 and p.maybe():
        channels = x.fixed(1) or 1
        held = p.constant(grower.random.integers(-9, 9, (2, channels, 1, 1)).astype(np.int8))
        weights = p.node("DequantizeLinear", held, p.constant(np.float32(0.1)))
        name = p.node("Conv", name, weights)
    name = p.node("Relu", name) if p.maybe() else name
    return p.done(p.node("DequantizeLinear", p.node("QuantizeLinear", name, scale, zero), scale, zero))


def by_data(grower: Grower) -> Fragment:
    """Sizes that only the data tells."""
    p = Piece(grower, "by_data")
    x = p.any_float()
    name = p.read(x)
    kind = p.choose("nonzero", "compress", "top", "unique")
    if kind == "nonzero":
        return p.done(p.node("NonZero", p.node("Relu", name)))
    if kind == "compress":
        keep = p.constant(np.array([True, False, True])[: p.number(1, 3)])
        return p.done(p.node("Compress", name, keep))
    if kind == "top":
        return p.done(*p.several("TopK", name, p.ints(1), count=2, axis=-1))
    return p.done(*p.several("Unique", p.node("Floor", name), count=1))


def picks(grower: Grower) -> Fragment:
    p = Piece(grower, "picks")
    x = p.any_float()
    op = p.choose("ArgMax", "ArgMin")
    made = p.node(op, p.read(x), axis=p.number(0, x.rank - 1), keepdims=p.number(0, 1))
    return p.done(p.node("Cast", made, to=TensorProto.FLOAT) if p.maybe() else made)


BLOCKS = (sizes, integers, quantised, by_data, picks)
