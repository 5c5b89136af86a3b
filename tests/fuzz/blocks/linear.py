"""Gemm, MatMul, what surrounds them, normalisation, softmax."""

from __future__ import annotations

from ..fragment import Fragment
from ..grow import Grower
from ..piece import Piece
from .conv import batch_norm

WIDTHS = (4, 2, 3)


def gemm(grower: Grower) -> Fragment:
    p = Piece(grower, "gemm")
    x = p.ranked(2, channels=WIDTHS)
    name, wide = p.read(x), x.fixed(1) or 1
    for _ in range(p.number(1, 3)):
        out = p.choose(2, 4, 1)
        turned = p.number(0, 1)
        given = [name, p.weights(*((out, wide) if turned else (wide, out)))]
        if p.maybe():
            given.append(p.weights(*p.choose((out,), (1, out), (), (1,))))
        name = p.node("Gemm", *given, transB=turned, alpha=p.choose(1.0, 0.5), beta=p.choose(1.0, 2.0))
        step = p.choose("", "norm", "add", "mul", "relu")
        if step == "norm":
            name = batch_norm(p, name, out)
        elif step in ("add", "mul"):
            name = p.node(step.capitalize(), name, p.weights(*p.choose((out,), (1, out), ())))
        elif step:
            name = p.node("Relu", name)
        wide = out
    return p.done(name)


def matmul(grower: Grower) -> Fragment:
    p = Piece(grower, "matmul")
    x = p.ranked(3, 2, 4, channels=WIDTHS, axis=-1)
    name, wide = p.read(x), x.fixed(-1) or 1
    for _ in range(p.number(1, 3)):
        out = p.choose(2, 4, 1)
        if p.number(0, 2) == 0:
            name = p.node(p.choose("Mul", "Add", "Div", "Sub"), name, p.positive(*p.choose((wide,), (), (1, wide))))
        name = p.node("MatMul", name, p.weights(wide, out))
        if p.maybe():
            operands = [name, p.weights(*p.choose((out,), (1, out), ()))]
            name = p.node("Add", *(operands[::-1] if p.maybe() else operands))
        if x.rank == 2 and p.number(0, 3) == 0:
            name = batch_norm(p, name, out)
        if p.number(0, 2) == 0:
            name = p.node(p.choose("Relu", "Sigmoid", "Tanh"), name)
        wide = out
    return p.done(name)


def parallel(grower: Grower) -> Fragment:
    """Layers on one tensor, joined by Concat or a sum."""
    p = Piece(grower, "parallel")
    x = p.ranked(3, 2, channels=WIDTHS, axis=-1)
    name, wide = p.read(x), x.fixed(-1) or 1
    joined = p.maybe()
    width = p.choose(2, 3)
    parts = []
    for _ in range(p.number(2, 3)):
        out = p.choose(1, 2, 4) if joined else width
        part = p.node("MatMul", name, p.weights(wide, out))
        parts.append(p.node("Add", part, p.weights(out)) if p.maybe() else part)
    return p.done(p.node("Concat", *parts, axis=-1) if joined else p.node("Sum", *parts))


def attention(grower: Grower) -> Fragment:
    """Softmax(q·kᵀ·s)·v, with or without a mask."""
    p = Piece(grower, "attention")
    x = p.ranked(3, channels=(4, 2), axis=-1)
    name, wide = p.read(x), x.fixed(-1) or 1
    q, k, v = (p.node("MatMul", name, p.weights(wide, 4)) for _ in range(3))
    scores = p.node("MatMul", q, p.node("Transpose", k, perm=[0, 2, 1]))
    scores = p.node(p.choose("Mul", "Div"), scores, p.constant(p.choose(0.5, 2.0)))
    if p.maybe():
        scores = p.node("Add", scores, p.weights(*p.choose((), (1, 1, 1))))
    return p.done(p.node("MatMul", p.node("Softmax", scores, axis=-1), v))


def normalise(grower: Grower) -> Fragment:
    """(x - mean) / sqrt(var + e), written out."""
    p = Piece(grower, "normalise")
    x = p.ranked(3, 2, 4, channels=(4, 2, 3), axis=-1)
    name, wide = p.read(x), x.fixed(-1) or 1
    axes = p.ints(-1)
    centred = p.node("Sub", name, p.node("ReduceMean", name, axes)) if p.maybe() else name
    square = p.node("Mul", centred, centred) if p.maybe() else p.node("Pow", centred, p.constant(2.0))
    root = p.node("Sqrt", p.node("Add", p.node("ReduceMean", square, axes), p.constant(p.choose(1e-5, 1e-3))))
    made = p.node("Div", centred, root) if p.maybe() else p.node("Mul", centred, p.node("Reciprocal", root))
    if p.maybe():
        made = p.node("Mul", made, p.weights(wide))
    if p.maybe():
        made = p.node("Add", made, p.weights(wide))
    return p.done(made)


def reduce(grower: Grower) -> Fragment:
    p = Piece(grower, "reduce")
    x = p.any_float()
    op = p.choose("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceMin")
    axes = sorted({p.number(0, x.rank - 1) for _ in range(p.number(1, x.rank))})
    if p.maybe():
        axes = [a - x.rank for a in axes]
    source = p.read(x)
    given = [source] if p.number(0, 4) == 0 else [source, p.ints(*axes)]
    return p.done(p.node(op, *given, keepdims=p.number(0, 1)))


BLOCKS = (gemm, matmul, parallel, attention, normalise, reduce)
