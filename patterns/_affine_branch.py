"""Linear branches on one tensor, read as convolutions, and their sum.

Along an axis, tap ``i`` of a convolution with stride ``s`` reads the input at ``s·out - pad_begin + i·dilation``. So a tap is
an offset from ``s·out``, taps of different branches with the same offset read the same element, and outside the input all
of them read zero. The output has ``floor((size + slack - 1) / s) + 1`` elements, with
``slack = pad_begin + pad_end - dilation·(kernel - 1)``: branches of equal stride and slack give equal sizes, whatever the
input's. The sum of such branches is one convolution over the union of their taps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd, prod
from typing import Any

import numpy as np

from ._arrays import Floats

Ints = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class AffineBranch:
    """A convolution: ``kernel`` float64 [O, I/group, k…], ``bias`` float64 [O].

    ``pads`` are ONNX's (all begins, then all ends). ``auto_pad`` is "NOTSET", or SAME_UPPER / SAME_LOWER where the pads
    depend on an input size that is not known; ``pads`` then say nothing.
    """

    kernel: Floats
    bias: Floats
    pads: Ints
    strides: Ints
    dilations: Ints
    group: int
    auto_pad: str = "NOTSET"
    held: int | None = None
    """weights that the branch holds as it stands, where they are not its kernel's"""

    @property
    def rank(self) -> int:
        """Spatial axes."""
        return len(self.strides)

    @property
    def spatial(self) -> Ints:
        return tuple(self.kernel.shape[2:])

    @property
    def outputs(self) -> int:
        return int(self.kernel.shape[0])

    @property
    def inputs(self) -> int:
        return int(self.kernel.shape[1]) * self.group

    @property
    def reach(self) -> Ints:
        """Distance from the first tap to the last, by axis."""
        return tuple(d * (k - 1) for d, k in zip(self.dilations, self.spatial, strict=True))

    @property
    def slack(self) -> Ints:
        """By how much the output is larger than the input at stride 1, by axis."""
        return tuple(self.pads[a] + self.pads[self.rank + a] - self.reach[a] for a in range(self.rank))

    def offsets(self, axis: int) -> list[int]:
        """Where the taps read, relative to stride times output position."""
        return [i * self.dilations[axis] - self.pads[axis] for i in range(self.spatial[axis])]

    def sizing(self, sizes: Sequence[Any] | None = None) -> tuple[object, ...]:
        """Equal for branches whose outputs are equally large: for every input, or for one of ``sizes`` where known."""
        if self.auto_pad != "NOTSET":
            return (self.strides, self.auto_pad, self.spatial, self.dilations)
        given = sizes if sizes is not None else (None,) * self.rank
        axes = zip(given, self.slack, self.strides, strict=True)
        return (self.strides, tuple((n, (n + s - 1) // t) if isinstance(n, int) else s for n, s, t in axes))

    @property
    def cost(self) -> int:
        """Weights as it stands, which are about the multiply-accumulates for each output place."""
        return int(self.kernel.size) if self.held is None else self.held

    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the Conv."""
        found: dict[str, Any] = {
            "kernel_shape": list(self.spatial),
            "strides": list(self.strides),
            "dilations": list(self.dilations),
            "group": self.group,
        }
        if self.auto_pad != "NOTSET":
            return {**found, "auto_pad": self.auto_pad}
        return {**found, "pads": list(self.pads)}


def pointwise(scale: Floats, shift: Floats, rank: int) -> AffineBranch:
    """``x -> scale·x + shift`` per channel: a depthwise 1x1 convolution. Both are float64 [C]."""
    channels, ones = len(scale), (1,) * rank
    kernel = scale.reshape((channels, 1, *ones))
    return AffineBranch(kernel, shift, (0,) * (2 * rank), ones, ones, channels, held=0)


def explicit_pads(branch: AffineBranch, mode: str, sizes: Sequence[Any] | None) -> AffineBranch:
    """A branch whose ``auto_pad`` mode is written out, as far as it can be.

    SAME at stride 1 needs ``reach`` pads, whatever the size; at other strides the input's size (``sizes``, by axis, ints
    where known) decides.
    """
    if mode == "VALID":
        return replace(branch, pads=(0,) * (2 * branch.rank))
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return branch
    begins, ends = [], []
    for axis, (stride, reach) in enumerate(zip(branch.strides, branch.reach, strict=True)):
        total = reach
        if stride != 1:
            size = sizes[axis] if sizes is not None else None
            if not isinstance(size, int):
                return replace(branch, auto_pad=mode)
            total = max((-(-size // stride) - 1) * stride + reach + 1 - size, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return replace(branch, pads=(*begins, *ends))


def regroup(branch: AffineBranch, group: int) -> AffineBranch:
    """The same convolution with fewer groups; ``group`` divides the branch's. What lies between groups is zero."""
    if group == branch.group:
        return branch
    merged = branch.group // group
    width, rows = branch.kernel.shape[1], branch.outputs // branch.group
    kernel = np.zeros((branch.outputs, width * merged, *branch.spatial))
    for old in range(branch.group):
        column = (old % merged) * width
        row = slice(old * rows, (old + 1) * rows)
        kernel[row, column : column + width] = branch.kernel[row]
    return replace(branch, kernel=kernel, group=group)


def widen(branch: AffineBranch, outputs: int) -> AffineBranch:
    """A branch of one output channel repeated ``outputs`` times, as broadcasting in a sum does; others as they are."""
    if branch.outputs == outputs or branch.outputs != 1:
        return branch
    kernel = np.broadcast_to(branch.kernel, (outputs, *branch.kernel.shape[1:]))
    return replace(branch, kernel=kernel, bias=np.broadcast_to(branch.bias, (outputs,)))


@dataclass(frozen=True)
class Window:
    """The union of the taps of some branches: by axis the first offset, the step and the number of taps."""

    first: Ints
    step: Ints
    count: Ints
    pads: Ints

    @classmethod
    def around(cls, branches: Sequence[AffineBranch]) -> Window:
        first, step, count, ends = [], [], [], []
        for axis in range(branches[0].rank):
            taps = sorted({o for b in branches for o in b.offsets(axis)})
            distance = reduce(gcd, (t - taps[0] for t in taps[1:]), 0)
            first.append(taps[0])
            step.append(distance or 1)
            count.append((taps[-1] - taps[0]) // (distance or 1) + 1)
            ends.append(max(b.slack[axis] for b in branches) + taps[-1])
        return cls(tuple(first), tuple(step), tuple(count), (*(-f for f in first), *ends))

    def place(self, branch: AffineBranch) -> Floats:
        """The branch's kernel [O, I/group, k…] within the window."""
        kernel = np.zeros((*branch.kernel.shape[:2], *self.count))
        kernel[self.slices(branch)] = branch.kernel
        return kernel

    def slices(self, branch: AffineBranch) -> tuple[slice, ...]:
        """Where the branch's taps lie: evenly spaced on every axis."""
        found = [slice(None), slice(None)]
        for axis in range(branch.rank):
            places = [(o - self.first[axis]) // self.step[axis] for o in branch.offsets(axis)]
            found.append(slice(places[0], places[-1] + 1, places[1] - places[0] if len(places) > 1 else 1))
        return tuple(found)


def _common(branches: Sequence[AffineBranch]) -> tuple[int, int]:
    """The number of groups, and of outputs, of their sum."""
    return reduce(gcd, (b.group for b in branches)), max(b.outputs for b in branches)


def merged_cost(branches: Sequence[AffineBranch]) -> int:
    """Weights of the merged convolution."""
    group, outputs = _common(branches)
    count = branches[0].spatial if branches[0].auto_pad != "NOTSET" else Window.around(branches).count
    return outputs * (branches[0].inputs // group) * prod(count)


def merge(branches: Sequence[AffineBranch]) -> AffineBranch:
    """Their sum as one branch. They have equal ``sizing`` and ``inputs``, and equal outputs (or one, which broadcasts)."""
    group, outputs = _common(branches)
    same = [widen(regroup(b, group), outputs) for b in branches]
    bias = np.sum([b.bias for b in same], axis=0)
    if same[0].auto_pad != "NOTSET":
        return replace(same[0], held=None, kernel=np.sum([b.kernel for b in same], axis=0), bias=bias)
    window = Window.around(same)
    kernel = np.sum([window.place(b) for b in same], axis=0)
    return AffineBranch(kernel, bias, window.pads, same[0].strides, window.step, group)


def cheapest(branches: Sequence[AffineBranch]) -> list[int]:
    """Positions of the branches to merge: all where that costs no more than they do, else a largest part that does not.

    Fewer than two where no two can be merged without loss.
    """

    def affordable(chosen: Iterable[int]) -> bool:
        some = [branches[i] for i in chosen]
        return merged_cost(some) <= sum(b.cost for b in some)

    everything = list(range(len(branches)))
    if affordable(everything):
        return everything
    best: list[int] = []
    for start in sorted(everything, key=lambda i: -branches[i].cost):
        chosen = [start]
        for other in everything:
            if other != start and affordable([*chosen, other]):
                chosen.append(other)
        if len(chosen) > len(best):
            best = chosen
    return best
