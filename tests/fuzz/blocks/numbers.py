"""Arithmetic, broadcasting, casts, comparisons, activations."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from ..fragment import Fragment, Tensor
from ..grow import Grower
from ..piece import Piece

UNARY = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Identity", "Exp", "Sqrt", "Floor", "Ceil", "Sign", "Softplus", "Erf")
WITH_ATTRIBUTE = ("LeakyRelu", "Elu", "HardSigmoid", "Selu", "ThresholdedRelu")
FLOATS = (TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.FLOAT)
OTHERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.INT8, TensorProto.UINT8)


def smaller(p: Piece, x: Tensor) -> tuple[int, ...]:
    """A shape that broadcasts into that of ``x``, where that is fixed."""
    shape = [d if (d := x.fixed(k)) is not None and p.maybe() else 1 for k in range(x.rank)]
    return tuple(shape[p.number(0, x.rank) :])


def unary(grower: Grower) -> Fragment:
    p = Piece(grower, "unary")
    name = p.read(p.anything())
    for _ in range(p.number(1, 3)):
        name = p.node(p.choose(*UNARY, *WITH_ATTRIBUTE), name)
    return p.done(name)


def clips(grower: Grower) -> Fragment:
    p = Piece(grower, "clips")
    name = p.read(p.anything())
    for _ in range(p.number(1, 3)):
        op = p.choose("Clip", "Relu", "Max", "Min")
        if op == "Clip":
            low, high = p.choose((-1.0, 1.0), (0.0, 6.0), (2.0, -2.0), (-0.0, np.inf), (np.nan, 1.0))
            name = p.node("Clip", name, p.constant(np.float32(low)), p.constant(np.float32(high)))
        else:
            name = p.node(op, name, *([] if op == "Relu" else [p.constant(p.choose(0.0, 1.0, -1.0, 6.0))]))
    return p.done(name)


def constants(grower: Grower) -> Fragment:
    """A chain of arithmetic with constants that broadcast."""
    p = Piece(grower, "constants")
    x = p.anything()
    name = p.read(x)
    for _ in range(p.number(1, 4)):
        op = p.choose("Mul", "Add", "Sub", "Div", "Pow", "Max")
        shape = smaller(p, x)
        value = p.choose("weights", "neutral")
        other = p.weights(*shape) if value == "weights" and op != "Div" else p.positive(*shape)
        if value == "neutral":
            other = p.constant(np.full(shape, p.choose(0.0, 1.0, -0.0, 2.0), np.float32))
        operands = [name, other]
        if op != "Pow" and p.number(0, 2) == 0:
            operands.reverse()
        name = p.node(op, *operands)
    return p.done(name)


def pairs(grower: Grower) -> Fragment:
    """Two tensors of the same dims, or one that broadcasts."""
    p = Piece(grower, "pairs")
    x = p.anything()
    other = p.like(x)
    op = p.choose("Add", "Mul", "Sub", "Div", "Max", "Min", "Sum", "Mean")
    return p.done(p.node(op, p.read(x), p.read(other)))


def casts(grower: Grower) -> Fragment:
    p = Piece(grower, "casts")
    name = p.read(p.anything())
    if p.maybe():  # legal integers
        name = p.node("Clip", name, p.constant(np.float32(0)), p.constant(np.float32(9)))
        kinds = (*FLOATS, *OTHERS)
    else:
        kinds = FLOATS
    for _ in range(p.number(1, 3)):
        name = p.node("Cast", name, to=p.choose(*kinds))
    return p.done(p.node("Cast", name, to=TensorProto.FLOAT))


def where(grower: Grower) -> Fragment:
    """A choice by a comparison, by a constant mask, or by an input."""
    p = Piece(grower, "where")
    x = p.anything()
    name = p.read(x)
    kind = p.choose("compare", "constant", "logic")
    if kind == "constant":
        mask = p.constant(np.asarray(grower.random.random(smaller(p, x)) < p.choose(0.5, 2.0, -1.0)))
    else:
        mask = p.node(p.choose("Less", "Greater", "Equal"), name, p.constant(0.0))
    if kind == "logic":
        other = p.constant(np.asarray(grower.random.random(smaller(p, x)) < p.choose(0.5, 2.0, -1.0)))
        mask = p.node(p.choose("And", "Or", "Xor"), mask, other)
        mask = p.node("Not", mask) if p.maybe() else mask
    other = p.constant(np.full(smaller(p, x), p.choose(0.0, -1e9, 1.0), np.float32))
    operands = [name, other]
    if p.maybe():
        operands.reverse()
    return p.done(p.node("Where", mask, *operands))


def activation(grower: Grower) -> Fragment:
    """x·f(x), written out."""
    p = Piece(grower, "activation")
    x = p.read(p.anything())
    kind = p.choose("swish", "hard", "gelu", "softplus", "tanh", "leaky")
    if kind == "swish":
        gate = p.node("Sigmoid", x)
    elif kind == "hard":
        six = p.constant(np.float32(6))
        clipped = p.node("Clip", p.node("Add", x, p.constant(3.0)), p.constant(np.float32(0)), six)
        gate = p.node("Div", clipped, six)
    elif kind == "gelu":
        inner = p.node("Erf", p.node("Div", x, p.constant(np.float32(np.sqrt(2)))))
        gate = p.node("Mul", p.node("Add", inner, p.constant(1.0)), p.constant(0.5))
    elif kind == "softplus":
        gate = p.node("Tanh", p.node("Log", p.node("Add", p.node("Exp", x), p.constant(1.0))))
    elif kind == "tanh":
        gate = p.node("Tanh", p.node("Softplus", x))
    else:
        return p.done(p.node("Max", x, p.node("Mul", x, p.constant(p.choose(0.1, 0.01, 1.5)))))
    return p.done(p.node("Mul", *((x, gate) if p.maybe() else (gate, x))))


def dropout(grower: Grower) -> Fragment:
    p = Piece(grower, "dropout")
    count = p.number(1, 2)
    made = p.several("Dropout", p.read(p.anything()), count=count)
    return p.done(*made)


BLOCKS = (unary, clips, constants, pairs, casts, where, activation, dropout, constants, pairs)
