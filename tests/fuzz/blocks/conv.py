"""Convolutions, BatchNormalization, sums of branches, pools."""

from __future__ import annotations

from typing import Any

from ..fragment import Fragment, Tensor
from ..grow import Grower
from ..piece import Piece

CHANNELS = (2, 4, 1, 3)


def geometry(p: Piece, rank: int) -> dict[str, Any]:
    """Attributes of a window over so many spatial dims."""
    kernel = [p.choose(1, 3, 2) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    padding = p.choose("same", "none", "odd", "auto")
    if padding == "same":
        attrs["pads"] = [k // 2 for k in kernel] * 2
    elif padding == "odd":
        attrs["pads"] = [p.number(0, k - 1) for k in kernel * 2]
    elif padding == "auto":
        attrs["auto_pad"] = p.choose("SAME_UPPER", "SAME_LOWER", "VALID")
    if p.number(0, 3) == 0:
        attrs["strides"] = [p.choose(1, 2) for _ in kernel]
    if p.number(0, 4) == 0 and padding != "auto":
        attrs["dilations"] = [p.choose(1, 2) for _ in kernel]
    return attrs


def conv(p: Piece, x: str, channels: int, out: int, attrs: dict[str, Any], group: int = 1) -> str:
    given = [x, p.weights(out, channels // group, *attrs["kernel_shape"])]
    if p.maybe():
        given.append(p.weights(out))
    attrs = {k: v for k, v in attrs.items() if k != "kernel_shape" or p.maybe()}
    return p.node("Conv", *given, group=group, **attrs)


def batch_norm(p: Piece, x: str, channels: int) -> str:
    held = [p.weights(channels), p.weights(channels), p.weights(channels), p.positive(channels)]
    return p.node("BatchNormalization", x, *held, epsilon=p.choose(1e-5, 1e-3, 0.1))


def divisor(p: Piece, channels: int) -> int:
    return int(p.choose(*[g for g in (1, channels, 2) if channels % g == 0]))


def image(p: Piece) -> tuple[Tensor, str, int]:
    x = p.ranked(4, 4, 3, 5, channels=CHANNELS)
    return x, p.read(x), x.fixed(1) or 1


def affine(p: Piece, x: str, channels: int, spatial: int) -> str:
    """Arithmetic with a constant, of the channels or of all."""
    shape = p.choose((1, channels, *[1] * spatial), (channels, *[1] * spatial), (), (1,))
    op = p.choose("Mul", "Add", "Sub", "Div")
    operands = [x, p.positive(*shape) if op == "Div" else p.weights(*shape)]
    if p.maybe():
        operands.reverse()
    return p.node(op, *operands)


def conv_and_more(grower: Grower) -> Fragment:
    """Conv, and in a row behind it BatchNormalization, arithmetic, activations, pads in front."""
    p = Piece(grower, "conv_and_more")
    x, name, channels = image(p)
    spatial = x.rank - 2
    before = p.choose("", "", "norm", "affine", "pad")
    if before == "norm":
        name = batch_norm(p, name, channels)
    elif before == "affine":
        name = affine(p, name, channels, spatial)
    elif before == "pad":
        sides = [p.number(0, 2) for _ in range(spatial * 2)]
        amounts = p.ints(0, 0, *sides[:spatial], 0, 0, *sides[spatial:])
        name = p.node("Pad", name, amounts, *([p.constant(0.0)] if p.maybe() else []))
    out = p.choose(channels, 2, 4)
    group = divisor(p, channels)
    out = out if out % group == 0 else channels
    name = conv(p, name, channels, out, geometry(p, spatial), group)
    for _ in range(p.number(0, 3)):
        step = p.choose("norm", "affine", "relu", "conv")
        if step == "norm":
            name = batch_norm(p, name, out)
        elif step == "affine":
            name = affine(p, name, out, spatial)
        elif step == "relu":
            name = p.node(p.choose("Relu", "Sigmoid", "Tanh"), name)
        else:
            name = conv(p, name, out, out, geometry(p, spatial), divisor(p, out))
    return p.done(name)


def transposed(grower: Grower) -> Fragment:
    p = Piece(grower, "transposed")
    x, name, channels = image(p)
    spatial, group = x.rank - 2, divisor(p, channels)
    per = p.choose(1, 2)
    attrs = geometry(p, spatial)
    if "strides" in attrs and "auto_pad" not in attrs:
        attrs["output_padding"] = [p.number(0, s - 1) for s in attrs["strides"]]
    if p.maybe():
        name = affine(p, name, channels, spatial)
    given = [name, p.weights(channels, per, *attrs["kernel_shape"]), *([p.weights(per * group)] if p.maybe() else [])]
    name = p.node("ConvTranspose", *given, group=group, **attrs)
    name = batch_norm(p, name, per * group) if p.maybe() else affine(p, name, per * group, spatial)
    return p.done(name)


def branches(grower: Grower) -> Fragment:
    """A sum of linear branches on one tensor."""
    p = Piece(grower, "branches")
    x, name, channels = image(p)
    spatial, group = x.rank - 2, divisor(p, channels)
    stride = p.choose(1, 1, 2)
    parts: list[str] = []
    for _ in range(p.number(2, 4)):
        kind = p.choose("conv", "conv_norm", "norm", "bare", "pool", "sequence")
        if kind in ("norm", "bare") and stride == 1:
            parts.append(batch_norm(p, name, channels) if kind == "norm" else name)
        elif kind == "pool":
            attrs = _window(p, spatial, stride)
            parts.append(p.node("AveragePool", name, **attrs, count_include_pad=p.number(0, 1)))
        else:
            made = conv(p, name, channels, channels, _window(p, spatial, stride), group)
            if kind == "sequence":
                made = conv(p, made, channels, channels, _window(p, spatial, 1), divisor(p, channels))
            parts.append(made if kind == "conv" else batch_norm(p, made, channels))
    if p.maybe():
        return p.done(p.node("Sum", *parts))
    total = parts[0]
    for part in parts[1:]:
        operands = [total, part]
        if p.maybe():
            operands.reverse()
        total = p.node(p.choose("Add", "Add", "Add", "Sub"), *operands)
    return p.done(total if p.maybe() else p.node("Relu", total))


def _window(p: Piece, spatial: int, stride: int) -> dict[str, Any]:
    kernel = [p.choose(3, 1) for _ in range(spatial)]
    return {"kernel_shape": kernel, "pads": [k // 2 for k in kernel] * 2, "strides": [stride] * spatial}


def pool(grower: Grower) -> Fragment:
    p = Piece(grower, "pool")
    x, name, channels = image(p)
    before = p.choose("", "norm", "affine", "pad", "relu")
    if before == "norm":
        name = batch_norm(p, name, channels)
    elif before == "affine":
        name = affine(p, name, channels, x.rank - 2)
    elif before == "relu":
        name = p.node("Relu", name)
    if before in ("pad", "relu"):
        amounts = [0, 0, *[p.number(0, 1)] * (x.rank - 2)] * 2
        name = p.node("Pad", name, p.ints(*amounts), *([p.constant(p.choose(0.0, -3e38))] if p.maybe() else []))
    kind = p.choose("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    attrs = geometry(p, x.rank - 2) if not kind.startswith("Global") else {}
    if kind == "AveragePool":
        attrs.pop("dilations", None)
        attrs["count_include_pad"] = p.number(0, 1)
    return p.done(p.node(kind, name, **attrs))


def training(grower: Grower) -> Fragment:
    """A BatchNormalization that trains stays one. ONNX Runtime writes its statistics over the given ones, where those are
    initializers: each run of a session gives others."""
    p = Piece(grower, "training")
    _, name, channels = image(p)
    held = [p.weights(channels), p.weights(channels), p.weights(channels), p.positive(channels)]
    made = p.several("BatchNormalization", name, *held, count=3, training_mode=1)
    return p.done(made[0])


BLOCKS = (conv_and_more, branches, transposed, pool, branches, conv_and_more, training)
