"""The operators of a branch, one after the other, read as one convolution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from surgeon_passes import Decline, Operand

from ._affine_branch import AffineBranch, explicit_pads, pointwise
from ._arrays import Floats, batch_norm, channel_vector, finite
from ._compose import compose, composed_cost


@dataclass(frozen=True)
class Frame:
    """What a branch reads: a tensor of ``channels`` and ``rank`` spatial axes."""

    channels: int
    rank: int


def frame_of(chains: Iterable[Sequence[Operand]], x: Operand) -> Frame:
    """Channels and spatial rank of ``x``: from a Conv that reads it, else from its shape. Raises Decline."""
    for steps in chains:
        if steps and steps[0].op == "Conv":
            weight = steps[0].operand(1)
            shape = None if weight is None else weight.shape
            if shape is not None and all(isinstance(d, int) for d in shape):
                return Frame(int(shape[1]) * int(steps[0].attr("group")), len(shape) - 2)
    shape = x.shape
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int):
        raise Decline(f"the number of channels of '{x.name}' is not known")
    return Frame(shape[1], len(shape) - 2)


def steps_between(x: Operand, y: Operand) -> list[Operand]:
    """What is made from ``x`` to ``y``, a chain that a pattern has matched. Raises Decline for a constant ``x``: what is read
    beside it is constant too, and the chain is to be folded."""
    if isinstance(x.value, np.ndarray):
        raise Decline(f"'{x.name}' is constant")
    found: list[Operand] = []
    while y.tensor is not x.tensor:
        found.append(y)
        y = next(o for o in y.operands if o is not None and not isinstance(o.value, np.ndarray))
    return found[::-1]


def read_branch(steps: Sequence[Operand], frame: Frame, budget: int) -> AffineBranch:
    """A chain of operators as one convolution; none at all are the bare tensor.

    Raises Decline, naming what is in the way, and where it would hold more than ``budget`` weights.
    """
    found: AffineBranch | None = None
    for step in steps:
        channels = frame.channels if found is None else found.outputs
        if step.op == "Conv":
            read = convolution(step)
        elif step.op == "AveragePool":
            read = average(step, channels)
        else:
            read = _affine(step, channels, frame.rank)
        found = read if found is None else _within(budget, found, read)
    if found is None:
        return pointwise(np.ones(frame.channels), np.zeros(frame.channels), frame.rank)
    return found


def _within(budget: int, first: AffineBranch, second: AffineBranch) -> AffineBranch:
    cost = composed_cost(first, second)
    if cost > budget:
        raise Decline(f"as one convolution it would hold {cost} weights, all branches hold {budget}")
    return compose(first, second)


def weights_of(steps: Sequence[Operand]) -> int:
    """Weights that the convolutions among them hold."""
    held = [step.operand(1) for step in steps if step.op == "Conv"]
    return sum(int(w.value.size) for w in held if w is not None and isinstance(w.value, np.ndarray))


def sizes_of(x: Operand | None) -> tuple[Any, ...] | None:
    """Spatial sizes: ints where known; None where the rank is not."""
    return x.shape[2:] if x is not None and x.shape is not None else None


def convolution(y: Operand) -> AffineBranch:
    """The Conv that makes ``y``. Raises Decline where a weight is not constant or not finite."""
    w, b = y.operand(1), y.operand(2)
    assert w is not None
    weight = finite(w)
    return _convolution(y, weight, np.zeros(weight.shape[0]) if b is None else finite(b))


def outline(y: Operand) -> AffineBranch:
    """The Conv that makes ``y``, with zeros that take no memory for its weight. Raises Decline where that is empty."""
    weight = y.operand(1)
    assert weight is not None
    shape = weight.value.shape
    if not prod(shape):
        raise Decline(f"'{weight.name}' holds no elements")
    return _convolution(y, np.broadcast_to(np.float64(0), shape), np.broadcast_to(np.float64(0), shape[:1]))


def _convolution(y: Operand, weight: Floats, bias: Floats) -> AffineBranch:
    branch = AffineBranch(
        weight,
        bias,
        tuple(y.attr("pads")),
        tuple(y.attr("strides")),
        tuple(y.attr("dilations")),
        int(y.attr("group")),
    )
    return explicit_pads(branch, str(y.attr("auto_pad")), sizes_of(y.operand(0)))


def average(y: Operand, channels: int) -> AffineBranch:
    """The AveragePool that makes ``y``: a depthwise convolution with 1/k.

    Raises Decline where windows at the border are averaged otherwise.
    """
    kernel = tuple(y.attr("kernel_shape"))
    rank = len(kernel)
    weight = np.full((channels, 1, *kernel), 1 / prod(kernel))
    dilations = tuple(y.attr("dilations") or (1,) * rank)
    raw = AffineBranch(
        weight, np.zeros(channels), tuple(y.attr("pads")), tuple(y.attr("strides")), dilations, channels, held=0
    )
    sizes = sizes_of(y.operand(0))
    branch = explicit_pads(raw, str(y.attr("auto_pad")), sizes)
    if branch.auto_pad != "NOTSET":
        raise Decline("the AveragePool's pads depend on an input size that is not known")
    if any(branch.pads) and not y.attr("count_include_pad"):
        raise Decline("the AveragePool averages fewer elements at the border (count_include_pad = 0)")
    if y.attr("ceil_mode") and not _is_even(branch, sizes):
        raise Decline("the AveragePool's last window may reach over the border (ceil_mode = 1)")
    return branch


def _is_even(branch: AffineBranch, sizes: tuple[Any, ...] | None) -> bool:
    """Whether the strides certainly end at the border, so that rounding up is rounding down."""
    if all(stride == 1 for stride in branch.strides):
        return True
    if sizes is None or not all(isinstance(n, int) for n in sizes):
        return False
    return all((n + s - 1) % t == 0 for n, s, t in zip(sizes, branch.slack, branch.strides, strict=True))


def _affine(y: Operand, channels: int, rank: int) -> AffineBranch:
    """A BatchNormalization, or a Mul or Div by a constant, of ``channels``."""
    if y.op == "BatchNormalization":
        _, scale, bias, mean, var = y.operands
        assert scale is not None and bias is not None and mean is not None and var is not None
        affine = batch_norm(y, scale, bias, mean, var)
        affine.require_channels(channels, f"what {y.name} normalises")
        return pointwise(affine.scale, affine.shift, rank)
    factor = next(o for o in reversed(y.operands) if o is not None and isinstance(o.value, np.ndarray))
    numbers = channel_vector(factor, channels, axis=1, rank=rank + 2)
    if y.op == "Div":
        if not numbers.all():
            raise Decline(f"'{factor.name}' divides by zero")
        numbers = 1 / numbers
    return pointwise(numbers, np.zeros(channels), rank)
