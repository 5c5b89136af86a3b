"""Operands that an operator takes, by operator and place: shapes that fit the others, values that are plausible there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from surgeon_passes.authoring import indices
from surgeon_passes.authoring.slots import ODD, Array, Slot, Unfit

Maker = Callable[[Slot], Array]


def make(slot: Slot) -> Array:
    """An operand for a slot. Raises Unfit where what is there already leaves none."""
    maker = MAKERS.get((slot.op, slot.place)) or MAKERS.get((slot.op, None))
    try:
        return (maker or beside)(slot)
    except ODD as error:
        raise Unfit from error


# --- anything --------------------------------------------------------------------------------------------------------


def beside(slot: Slot) -> Array:
    """What broadcasts with the operands that are there."""
    known = slot.known(*range(len(slot.operands)))
    if known is None:
        return slot.random(slot.shape())
    shape = known.shape
    if (slot.op == "Where" and not slot.const) or not shape or slot.chance(0.3):
        return slot.random(shape)
    rank, style = len(shape), slot.size(-1, 5)
    if style <= 0:
        return slot.random(())
    if style == 1:
        return slot.random((1,) * slot.size(1, rank))
    if style == 2 and rank > 1:
        return slot.random((shape[1], *(1,) * (rank - 2)))
    if style == 3:
        return slot.random(shape[-1:])
    if style == 4 and rank > 1:
        return slot.random((1, *shape[1:]))
    return slot.random(shape)


def alike(slot: Slot) -> Array:
    """Operands of Concat: one shape, but for the axis."""
    known = slot.known(*range(len(slot.operands)))
    if known is None:
        return slot.random(slot.image(max(1, int(slot.one_of(*slot.ranks)))))
    axis = slot.axis(rank=known.rank)
    shape = list(known.shape)
    if shape and slot.chance(0.5):
        shape[axis] = slot.size(1, 4)
    return slot.random(shape)


def ranked(least: int, most: int = 5) -> Maker:
    def maker(slot: Slot) -> Array:
        ranks = [r for r in slot.ranks if least <= r <= most]
        return slot.random(slot.image(int(slot.one_of(*ranks)) if ranks else least))

    return maker


def with_ones(slot: Slot) -> Array:
    shape = list(slot.shape()) or [1]
    for _ in range(slot.size(1, 2)):
        shape.insert(slot.size(0, len(shape)), 1)
    return slot.random(shape[:5])


# --- layers ----------------------------------------------------------------------------------------------------------


def conv_weight(slot: Slot) -> Array:
    x = slot.at(0)
    if x.rank < 3:
        raise Unfit
    group, channels = int(slot.attrs.get("group", 1)), x.shape[1]
    if channels % group:
        raise Unfit
    kernel = slot.attrs.get("kernel_shape") or [1] * (x.rank - 2)
    if slot.op == "ConvTranspose":
        made = channels if slot.keeps else group * slot.size(1, 3)
        return slot.weights((channels, made // group, *kernel))
    made = channels if slot.keeps else group * slot.size(1, 3)
    return slot.weights((made, channels // group, *kernel))


def conv_bias(slot: Slot) -> Array:
    w = slot.at(1)
    if w.rank < 3:
        raise Unfit
    return slot.random((w.shape[1] * int(slot.attrs.get("group", 1)) if slot.op == "ConvTranspose" else w.shape[0],))


def channels(positive: bool = False) -> Maker:
    def maker(slot: Slot) -> Array:
        x = slot.at(0)
        if x.rank < 2:
            raise Unfit
        count = x.shape[1]
        if slot.op == "GroupNormalization" and slot.opset < 21:
            count = int(slot.attrs.get("num_groups", 1))
        return slot.positive((count,)) if positive else slot.weights((count,))

    return maker


def gemm(slot: Slot) -> Array:
    other = slot.known(1 - slot.place)
    if other is None:
        return slot.random((slot.size(1, 4), slot.size(2, 6)))
    if other.rank != 2:
        raise Unfit
    left = slot.place == 1
    inner = other.shape[0 if bool(slot.attrs.get("transA" if left else "transB", 0)) == left else 1]
    outer = inner if slot.keeps else slot.size(1, 5)
    turned = bool(slot.attrs.get("transB" if left else "transA", 0))
    return slot.weights((outer, inner) if turned == left else (inner, outer))


def gemm_bias(slot: Slot) -> Array:
    a, b = slot.at(0), slot.at(1)
    if a.rank != 2 or b.rank != 2:
        raise Unfit
    rows = a.shape[1 if slot.attrs.get("transA") else 0]
    columns = b.shape[0 if slot.attrs.get("transB") else 1]
    return slot.random(slot.one_of((columns,), (columns,), (1, columns), (rows, columns), (1,), ()))


def matmul(slot: Slot) -> Array:
    other = slot.known(1 - slot.place)
    if other is None:
        return slot.random(slot.image(max(2, int(slot.one_of(*slot.ranks)))))
    if not other.rank:
        raise Unfit
    inner = other.shape[-1] if slot.place == 1 else other.shape[-2 if other.rank > 1 else -1]
    outer = inner if slot.keeps else slot.size(1, 5)
    heads = () if slot.const or slot.chance(0.3) else other.shape[:-2]
    return slot.weights((*heads, inner, outer) if slot.place == 1 else (*heads, outer, inner))


def layer_scale(slot: Slot) -> Array:
    rank = slot.rank()
    return slot.random(slot.at(0).shape[slot.axis(default=-1, rank=rank) :])


def slope(slot: Slot) -> Array:
    shape = slot.at(0).shape
    if len(shape) < 2 or slot.chance(0.3):
        return slot.random(slot.one_of((), (1,)))
    return slot.random((shape[1], *(1,) * (len(shape) - 2)))


# --- recurrent -------------------------------------------------------------------------------------------------------

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(slot: Slot) -> Array:
    gates, hidden = _GATES[slot.op], int(slot.attrs.get("hidden_size", 3))
    ways = 2 if slot.attrs.get("direction") == "bidirectional" else 1
    if slot.place == 0:
        return slot.random((slot.size(1, 4), slot.size(1, 3), slot.size(1, 4)))
    x = slot.at(0)
    if x.rank != 3:
        raise Unfit
    if slot.place == 4:
        return np.full(x.shape[1:2], x.shape[0], np.int32)
    if slot.place in (5, 6):
        shape = (ways, x.shape[1], hidden)
        return np.zeros(shape, slot.dtype) if slot.const or slot.chance(0.5) else slot.random(shape)
    shapes = {1: (ways, gates * hidden, x.shape[2]), 2: (ways, gates * hidden, hidden), 3: (ways, 2 * gates * hidden)}
    return slot.weights(shapes.get(slot.place, (ways, 3 * hidden)))


# --- attention and the like ------------------------------------------------------------------------------------------


def heads(slot: Slot) -> Array:
    known = slot.known(0, 1, 2)
    return slot.random(known.shape if known else (slot.size(1, 2), 2, slot.size(2, 4), 4))


def score_mask(slot: Slot) -> Array:
    q, k = slot.at(0), slot.at(1)
    past = 2 if len(slot.given) > 4 and slot.given[4] else 0
    return slot.random((q.shape[-2], k.shape[-2] + past))


def past(slot: Slot) -> Array:
    """Keys and values of earlier steps, both or none."""
    q = slot.at(0)
    if not (len(slot.given) > 5 and slot.given[4] and slot.given[5]) or len(slot.given) > 6 or q.rank != 4:
        raise Unfit
    return slot.random((q.shape[0], q.shape[1], 2, q.shape[3]))


def valid_sizes(slot: Slot) -> Array:
    q, k = slot.at(0), slot.at(1)
    if q.rank != 4 or slot.given[4] or slot.given[5]:
        raise Unfit
    return slot.ints([k.shape[2]] * q.shape[0])


def rotary(slot: Slot) -> Array:
    x = slot.at(0)
    if x.rank != 4:
        raise Unfit
    return slot.random((x.shape[0], x.shape[2], x.shape[3] // 2))


def einsum(slot: Slot) -> Array:
    terms = str(slot.attrs.get("equation", "")).replace(" ", "").partition("->")[0].split(",")
    if slot.place >= len(terms):
        raise Unfit
    return slot.random([2 + (ord(letter) % 3) for letter in terms[slot.place]])


def scalar(*values: float) -> Maker:
    return lambda slot: np.asarray(slot.one_of(*values)).astype(slot.dtype)


def bound(slot: Slot) -> Array:
    low = slot.place == 1
    if slot.dtype.kind in "iu":
        return np.asarray(slot.one_of(0, 1) if low else slot.one_of(3, 6)).astype(slot.dtype)
    value = slot.one_of(0.0, 0.0, -1.0, -0.5, -3.0, 1e-12) if low else slot.one_of(6.0, 1.0, 6.0, 3.0, 0.5)
    return np.asarray(value).astype(slot.dtype)


def exponent(slot: Slot) -> Array:
    return np.asarray(
        slot.one_of(2, 2, 1, 3) if slot.dtype.kind in "iu" else slot.one_of(2.0, 2.0, 0.5, 3.0, 1.0)
    ).astype(slot.dtype)


def blocks(down: bool) -> Maker:
    def maker(slot: Slot) -> Array:
        size = int(slot.attrs.get("blocksize", 2))
        n, c = slot.size(1, 2), slot.size(1, 2)
        h, w = slot.size(1, 3), slot.size(1, 3)
        return slot.random((n, c, h * size, w * size) if down else (n, c * size * size, h, w))

    return maker


def _each(operators: Iterable[str], places: Iterable[int | None], maker: Maker) -> dict[tuple[str, int | None], Maker]:
    return {(op, place): maker for op in operators for place in places}


_REDUCTIONS = [f"Reduce{kind}" for kind in (
    "Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")]  # fmt: skip
_RANKED = ("Split", "Slice", "Pad", "Gather", "GatherND", "ScatterND", "Softmax", "LogSoftmax", "Resize", *_REDUCTIONS)
_IMAGES = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool",
           "InstanceNormalization", "GroupNormalization", "com.microsoft.FusedConv")  # fmt: skip

MAKERS: dict[tuple[str, int | None], Maker] = {
    **_each(_IMAGES, [0], ranked(3)),
    **_each(("Conv", "ConvTranspose", "com.microsoft.FusedConv"), [1], conv_weight),
    **_each(("Conv", "ConvTranspose", "com.microsoft.FusedConv"), [2], conv_bias),
    ("BatchNormalization", 0): ranked(2),
    **_each(("BatchNormalization",), [1, 4], channels(positive=True)),
    **_each(("BatchNormalization",), [2, 3], channels()),
    **_each(("InstanceNormalization", "GroupNormalization"), [1, 2], channels()),
    **_each(("Gemm", "com.microsoft.FusedGemm"), [0, 1], gemm),
    **_each(("Gemm", "com.microsoft.FusedGemm"), [2], gemm_bias),
    **_each(("MatMul", "com.microsoft.FusedMatMul"), [0, 1], matmul),
    **_each(("LayerNormalization", "RMSNormalization"), [0], ranked(2)),
    **_each(("LayerNormalization", "RMSNormalization"), [1, 2], layer_scale),
    ("PRelu", 1): slope,
    ("Concat", None): alike,
    **_each(("Transpose",), [0], ranked(1)),
    **_each(_RANKED, [0], ranked(1)),
    ("Trilu", 0): ranked(2),
    ("Squeeze", 0): with_ones,
    ("Reshape", 1): indices.reshape_target,
    ("Expand", 1): indices.expand_target,
    ("Tile", 1): indices.repeats,
    ("Squeeze", 1): indices.squeezed,
    ("Unsqueeze", 1): indices.added,
    **_each(("Slice",), [1, 2, 3, 4], indices.slice_bounds),
    ("Pad", 1): indices.pads,
    ("Pad", 2): indices.fill,
    ("Pad", 3): indices.padded_axes,
    ("Split", 1): indices.parts,
    ("Gather", 1): indices.rows,
    ("GatherND", 1): indices.places,
    ("ScatterND", 1): indices.places,
    ("ScatterND", 2): indices.updates,
    ("Resize", 1): lambda slot: np.zeros(0, slot.dtype),
    ("Resize", 2): indices.scales,
    ("Resize", 3): indices.sizes,
    **_each(_REDUCTIONS, [1], indices.reduced),
    ("Trilu", 1): lambda slot: slot.ints(slot.size(-1, 2)),  # type: ignore[arg-type]
    ("Clip", 1): bound,
    ("Clip", 2): bound,
    ("Pow", 1): exponent,
    ("Dropout", 1): scalar(0.5, 0.1),
    ("Dropout", 2): scalar(0),
    **_each(_GATES, [None], recurrent),
    **_each(("Attention",), [0, 1, 2], heads),
    ("Attention", 3): score_mask,
    **_each(("Attention",), [4, 5], past),
    ("Attention", 6): valid_sizes,
    ("RotaryEmbedding", 0): lambda slot: slot.random((slot.size(1, 2), 2, slot.size(2, 3), 4)),
    **_each(("RotaryEmbedding",), [1, 2], rotary),
    ("Einsum", None): einsum,
    ("DepthToSpace", 0): blocks(down=False),
    ("SpaceToDepth", 0): blocks(down=True),
}  # fmt: skip
"""By operator (with its domain where that is not ai.onnx) and place, None standing for all places."""
