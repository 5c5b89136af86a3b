"""The operators of a branch, one after the other, read as one convolution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from surgeon_passes import Decline, Leaf, Match, Operand

from ._affine_branch import AffineBranch, explicit_pads, pointwise
from ._arrays import batch_norm, channel_vector, floats, require_finite
from ._compose import compose, composed_cost

Operands = tuple[Operand | None, ...]
Step = tuple[Any, Operands]
"""A node, as its view, and what it reads."""


@dataclass(frozen=True)
class Frame:
    """What a branch reads: a tensor of ``channels`` and ``rank`` spatial axes."""

    channels: int
    rank: int


def frame_of(chains: Iterable[Sequence[Step]], x: Operand) -> Frame:
    """Channels and spatial rank of ``x``: from a Conv that reads it, else from its shape. Raises Decline."""
    for steps in chains:
        if steps and steps[0][0].op == "Conv":
            first, (_, weight, *_) = steps[0]
            shape = None if weight is None else weight.shape
            if shape is not None and all(isinstance(d, int) for d in shape):
                return Frame(int(shape[1]) * int(first.attr("group")), len(shape) - 2)
    shape = x.shape
    if shape is None or len(shape) < 3 or not isinstance(shape[1], int):
        raise Decline(f"the number of channels of '{x.name}' is not known")
    return Frame(shape[1], len(shape) - 2)


def steps_of(leaf: Leaf) -> list[Step]:
    """A leaf's operators in the order in which they run, with what they read."""
    return [(node, leaf.operands(node)) for node in leaf.nodes]


def steps_between(x: Operand, y: Operand, m: Match) -> list[Step]:
    """The operators from ``x`` to ``y``, a chain that a pattern has matched."""
    found: list[Step] = []
    while y.tensor is not x.tensor:
        operands = tuple(None if t is None else Operand(t, m.context) for t in y.node.inputs)
        found.append((y.node, operands))
        y = next(o for o in operands if o is not None and not isinstance(o.value, np.ndarray))
    return found[::-1]


def read_branch(steps: Sequence[Step], frame: Frame, budget: int) -> AffineBranch:
    """A chain of operators as one convolution; none at all are the bare tensor.

    Raises Decline, naming what is in the way, and where it would hold more than ``budget`` weights.
    """
    found: AffineBranch | None = None
    for node, operands in steps:
        channels = frame.channels if found is None else found.outputs
        if node.op == "Conv":
            step = convolution(node, operands)
        elif node.op == "AveragePool":
            step = average(node, operands, channels)
        else:
            step = _affine(node, operands, channels, frame.rank)
        found = step if found is None else _within(budget, found, step)
    if found is None:
        return pointwise(np.ones(frame.channels), np.zeros(frame.channels), frame.rank)
    return found


def _within(budget: int, first: AffineBranch, second: AffineBranch) -> AffineBranch:
    cost = composed_cost(first, second)
    if cost > budget:
        raise Decline(f"as one convolution it would hold {cost} weights, all branches hold {budget}")
    return compose(first, second)


def weights_of(steps: Sequence[Step]) -> int:
    """Weights that the convolutions among them hold."""
    held = [operands[1] for node, operands in steps if node.op == "Conv"]
    return sum(int(w.value.size) for w in held if w is not None and isinstance(w.value, np.ndarray))


def sizes_of(x: Operand | None) -> tuple[Any, ...] | None:
    """Spatial sizes: ints where known; None where the rank is not."""
    return x.shape[2:] if x is not None and x.shape is not None else None


def convolution(node: Any, operands: Operands) -> AffineBranch:
    """A Conv. Raises Decline where a weight is not constant or not finite."""
    _, w, b = (*operands, None)[:3]
    assert w is not None
    weight = require_finite(floats(w), f"'{w.name}'")
    bias = np.zeros(weight.shape[0])
    if b is not None:
        bias = require_finite(floats(b), f"'{b.name}'")
    branch = AffineBranch(
        weight,
        bias,
        tuple(node.attr("pads")),
        tuple(node.attr("strides")),
        tuple(node.attr("dilations")),
        int(node.attr("group")),
    )
    return explicit_pads(branch, str(node.attr("auto_pad")), sizes_of(operands[0]))


def average(node: Any, operands: Operands, channels: int) -> AffineBranch:
    """An AveragePool: a depthwise convolution with 1/k. Raises Decline where windows at the border are averaged otherwise."""
    kernel = tuple(node.attr("kernel_shape"))
    rank = len(kernel)
    weight = np.full((channels, 1, *kernel), 1 / prod(kernel))
    dilations = tuple(node.attr("dilations") or (1,) * rank)
    raw = AffineBranch(
        weight, np.zeros(channels), tuple(node.attr("pads")), tuple(node.attr("strides")), dilations, channels, held=0
    )
    sizes = sizes_of(operands[0])
    branch = explicit_pads(raw, str(node.attr("auto_pad")), sizes)
    if branch.auto_pad != "NOTSET":
        raise Decline("the AveragePool's pads depend on an input size that is not known")
    if any(branch.pads) and not node.attr("count_include_pad"):
        raise Decline("the AveragePool averages fewer elements at the border (count_include_pad = 0)")
    if node.attr("ceil_mode") and not _is_even(branch, sizes):
        raise Decline("the AveragePool's last window may reach over the border (ceil_mode = 1)")
    return branch


def _is_even(branch: AffineBranch, sizes: tuple[Any, ...] | None) -> bool:
    """Whether the strides certainly end at the border, so that rounding up is rounding down."""
    if all(stride == 1 for stride in branch.strides):
        return True
    if sizes is None or not all(isinstance(n, int) for n in sizes):
        return False
    return all((n + s - 1) % t == 0 for n, s, t in zip(sizes, branch.slack, branch.strides, strict=True))


def _affine(node: Any, operands: Operands, channels: int, rank: int) -> AffineBranch:
    """A BatchNormalization, or a Mul or Div by a constant, of ``channels``."""
    if node.op == "BatchNormalization":
        _, scale, bias, mean, var = operands
        assert scale is not None and bias is not None and mean is not None and var is not None
        affine = batch_norm(node, scale, bias, mean, var)
        affine.require_channels(channels, f"what {node.outputs[0].name} normalises")
        return pointwise(affine.scale, affine.shift, rank)
    factor = next(o for o in reversed(operands) if o is not None and isinstance(o.value, np.ndarray))
    numbers = channel_vector(factor, channels, axis=1, rank=rank + 2)
    if node.op == "Div":
        if not numbers.all():
            raise Decline(f"'{factor.name}' divides by zero")
        numbers = 1 / numbers
    return pointwise(numbers, np.zeros(channels), rank)
