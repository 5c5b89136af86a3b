"""Constants of a match as float64 arrays, and the per-channel arithmetic that the linear operators share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from surgeon_passes import Decline, Operand

Floats = NDArray[np.float64]
GEMM_TYPES = (1, 10, 11)
"""TensorProto.FLOAT, FLOAT16, DOUBLE: what ONNX Runtime has a Gemm for."""


def floats(operand: Operand) -> Floats:
    """A constant in float64. Raises Decline where it is not constant, not floating, or holds no elements."""
    value = operand.value
    if not isinstance(value, np.ndarray):
        raise Decline(f"'{operand.name}' is not constant")
    if value.dtype.kind in "iub":
        raise Decline(f"'{operand.name}' holds integers")
    if not value.size:
        raise Decline(f"'{operand.name}' holds no elements")
    return np.asarray(operand, dtype=np.float64)


def finite(operand: Operand) -> Floats:
    """A constant in float64. Raises Decline as :func:`floats` does, and where it holds NaN or an infinity."""
    return require_finite(floats(operand), f"'{operand.name}'")


def require_finite(array: Floats, what: str) -> Floats:
    """The array. Raises Decline where it holds NaN or an infinity."""
    if not np.isfinite(array).all():
        raise Decline(f"{what} is not finite")
    return array


def require_float(*operands: Operand) -> None:
    """That all are float32. Raises Decline."""
    for operand in operands:
        if operand.dtype != TensorProto.FLOAT:
            raise Decline(f"'{operand.name}' is not known to be float32")


def scalar(operand: Operand, rank: int | None) -> float:
    """The one number that a constant holds. Raises Decline for several, and where it may raise a tensor of ``rank``."""
    value = require_finite(floats(operand), f"'{operand.name}'")
    if value.size != 1 or rank is None or value.ndim > rank:
        raise Decline(f"'{operand.name}' is not one number, or may raise the rank")
    return float(value.reshape(()))


def along_last(x: Operand, bias: Operand) -> None:
    """That ``bias`` is a vector along the last axis of ``x``, both float32. Raises Decline."""
    require_float(x, bias)
    if bias.rank != 1 or not x.shape or not bias.shape or x.shape[-1] != bias.shape[0]:
        raise Decline(f"'{bias.name}' is no vector along the last axis of '{x.name}'")


def along(vector: Floats, axis: int, rank: int) -> Floats:
    """A vector [n] in the shape that broadcasts along ``axis`` of an array of ``rank``."""
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)


def channel_vector(operand: Operand, channels: int, axis: int, rank: int) -> Floats:
    """A constant that broadcasts over the channels of a tensor and over nothing else, as [channels].

    ``axis`` is where the channels lie in a tensor of ``rank``. Raises Decline for every other shape, and for one that
    would enlarge the tensor: broadcasting aligns from the right, so [C] runs along the width of [N, C, H, W].
    """
    values = require_finite(floats(operand), f"'{operand.name}'")
    shape = values.shape
    if len(shape) > rank:
        raise Decline(f"'{operand.name}' of shape {list(shape)} raises the rank")
    aligned = (1,) * (rank - len(shape)) + shape
    others = aligned[:axis] + aligned[axis + 1 :]
    if any(d != 1 for d in others) or aligned[axis] not in (1, channels):
        raise Decline(f"'{operand.name}' of shape {list(shape)} is not one number a channel")
    return np.broadcast_to(values.reshape(-1), (channels,)).astype(np.float64)


@dataclass(frozen=True)
class Affine:
    """``y -> scale * y + shift`` per channel; both are float64 [channels]."""

    scale: Floats
    shift: Floats

    @property
    def channels(self) -> int:
        return len(self.scale)

    @property
    def scales(self) -> bool:
        return bool((self.scale != 1).any())

    @property
    def shifts(self) -> bool:
        return bool(self.shift.any())

    def bias(self, bias: Floats | None) -> Floats | None:
        """What becomes of a bias [channels]; None where there was none and there is nothing to add."""
        if bias is None:
            return self.shift if self.shift.any() else None
        return self.scale * bias + self.shift

    def require_channels(self, channels: int, what: str) -> None:
        if self.channels != channels:
            raise Decline(f"{what} has {channels} channels, not {self.channels}")


def constant_affine(op: str, k: Floats, name: str, *, from_constant: bool) -> Affine:
    """What Mul, Div, Add, Sum or Sub with a constant [channels] does; ``from_constant``: it is what is subtracted from.

    Raises Decline where ``name``, the constant, divides by zero.
    """
    one, zero = np.ones_like(k), np.zeros_like(k)
    match op:
        case "Mul":
            return Affine(k, zero)
        case "Div":
            if not k.all():
                raise Decline(f"'{name}' divides by zero")
            with np.errstate(over="ignore"):
                return Affine(require_finite(1 / k, f"1 / '{name}'"), zero)
        case "Sub":
            return Affine(-one, k) if from_constant else Affine(one, -k)
        case _:
            return Affine(one, k)


def output_channels(op: str, weight: Floats, group: int) -> int:
    """Output channels of a Conv [O, I/group, k…] or ConvTranspose [I, O/group, k…]."""
    return int(weight.shape[0]) if op == "Conv" else int(weight.shape[1]) * group


def product(weight: Floats, scale: Floats) -> Floats:
    """Both multiplied. Raises Decline where a number overflows a double."""
    with np.errstate(over="ignore"):
        return require_finite(weight * scale, "the scaled weight")


def scale_outputs(op: str, weight: Floats, scale: Floats, group: int) -> Floats:
    """The weight whose output channels are ``scale`` [O] times as large.

    A ConvTranspose's output channel lies on axis 1, within the group that its row on axis 0 belongs to.
    """
    if op == "Conv":
        return product(weight, along(scale, 0, weight.ndim))
    rows = np.repeat(scale.reshape(group, -1), weight.shape[0] // group, axis=0)
    return product(weight, rows.reshape(rows.shape + (1,) * (weight.ndim - 2)))


def batch_norm(node: Any, gamma: Operand, beta: Operand, mean: Operand, var: Operand) -> Affine:
    """What an inference BatchNormalization does to a channel. ``node`` answers ``attr``.

    Raises Decline in training mode, and where a channel's variance gives NaN.
    """
    if node.attr("training_mode"):
        raise Decline("the BatchNormalization is in training mode")
    variance = floats(var) + float(node.attr("epsilon"))
    if not (variance > 0).all():
        channel = int(np.argmin(variance > 0))
        raise Decline(f"variance + epsilon is {variance[channel]:.3g} in channel {channel}")
    with np.errstate(all="ignore"):  # what overflows is declined
        scale = floats(gamma) / np.sqrt(variance)
        shift = floats(beta) - floats(mean) * scale
    return Affine(require_finite(scale, "the scale"), require_finite(shift, "the shift"))
