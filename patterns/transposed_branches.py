"""Parallel transposed convolutions on one tensor become one.

Along an axis, tap ``t`` of a ConvTranspose with stride ``s`` adds input ``i`` to output ``s·i + t·dilation - pad_begin``; the
output has ``s·(size - 1) + extent`` elements, with ``extent = dilation·(kernel - 1) + 1 + output_padding - pads``. Taps of
different branches with the same offset from ``s·i`` add to the same element: branches of equal stride and extent are one
ConvTranspose over the union of their taps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd, prod
from typing import Any

import numpy as np

from surgeon_passes import Decline, Leaf, Match, Replacement, rule

from ._arrays import Floats, finite

Ints = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Transposed:
    """``kernel`` float64 [I, O/group, k…], ``bias`` float64 [O]; the others by axis."""

    kernel: Floats
    bias: Floats
    first: Ints
    """offset of the first tap"""
    strides: Ints
    dilations: Ints
    extent: Ints
    group: int

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for those that can be added."""
        return (self.strides, self.extent, self.group, self.kernel.shape[:2])

    def taps(self, axis: int) -> list[int]:
        return [self.first[axis] + t * self.dilations[axis] for t in range(self.kernel.shape[2 + axis])]


@rule(
    pattern="""
        branch(x) = ConvTranspose(x, w, b?)
        y = sum(branch(x)...)
    """,
    rewrite="y = ConvTranspose(x, W, B)<@geometry>",
    exactness="rounding",
    sets=("reparam",),
    recursive=True,
    tag="merged",
)
def merge_transposed_branches(m: Match) -> Replacement:
    """A sum of ConvTransposes on one tensor (deconvolutions of several kernel sizes) is one ConvTranspose.

    Algebra
        a transposed convolution is linear in its kernel, too: Σ kernels, each laid into the union of all taps at its own
        offset (t·dilation - pad_begin); what pads cut off, or output_padding adds, follows from the common output size

    Declines when
        strides, output sizes, groups or channels differ, so that no two can be merged;
        output_shape or auto_pad say the size; a weight or bias is not constant, or not finite;
        the union of the kernels costs more than the branches do.
        Branches that cannot take part stay and are added to the result.

    Example
        before:
            g (float[1,1,L] x) => (float[1,1,M] y) {
                w = Constant<value = float[1,1,4] {1.0, 2.0, 3.0, 4.0}>()
                v = Constant<value = float[1,1,2] {10.0, 20.0}>()
                b = Constant<value = float[1] {0.5}>()
                c = ConvTranspose<strides = [2], pads = [1, 1]>(x, w, b)
                d = ConvTranspose<strides = [2]>(x, v)
                y = Add(c, d)
            }
        after:
            g (float[1,1,L] x) => (float[1,1,M] y) {
                w = Constant<value = float[1,1,4] {1.0, 12.0, 23.0, 4.0}>()
                b = Constant<value = float[1] {0.5}>()
                y = ConvTranspose<kernel_shape = [4], strides = [2], dilations = [1], group = 1, pads = [1, 1],
                                  output_padding = [0]>(x, w, b)
            }
    """
    readable: list[tuple[Leaf, _Transposed]] = []
    reasons: list[str] = []
    for leaf in m.branches:
        try:
            readable.append((leaf, _read(leaf)))
        except Decline as decline:
            reasons.append(f"{leaf.out.name}: {decline}")
    kinds: dict[Any, list[tuple[Leaf, _Transposed]]] = {}
    for leaf, branch in readable:
        kinds.setdefault(branch.kind, []).append((leaf, branch))
    chosen = max(kinds.values(), key=len, default=[])
    if len(chosen) < 2:
        differ = "no two branches fit together; strides, output sizes, groups or channels differ"
        raise Decline("; ".join([differ if len(readable) > 1 else "only one can be merged", *reasons]))
    branches = [branch for _, branch in chosen]
    first, step, count = _window(branches)
    held, wanted = sum(b.kernel.size for b in branches), prod((*branches[0].kernel.shape[:2], *count))
    if wanted > held:
        raise Decline(f"merged they would cost {wanted / held:.3g}x ({held} to {wanted} weights)")
    taken = {id(leaf) for leaf, _ in chosen}
    has_bias = any(leaf.b is not None for leaf, _ in chosen)
    return Replacement(
        W=np.sum([_place(b, first, step, count) for b in branches], axis=0),
        B=np.sum([b.bias for b in branches], axis=0) if has_bias else None,
        geometry=_attributes(branches[0], first, step, count),
        leave=[leaf for leaf in m.branches if id(leaf) not in taken],
    )


def _read(leaf: Leaf) -> _Transposed:
    weight = finite(leaf.w)
    node = leaf.node
    assert node is not None
    if node.attr("output_shape") or str(node.attr("auto_pad")) not in ("NOTSET", "VALID"):
        raise Decline("its output size is given, not its pads")
    rank, group = weight.ndim - 2, int(node.attr("group"))
    outputs = weight.shape[1] * group
    bias = np.zeros(outputs) if leaf.b is None else finite(leaf.b)
    pads = [0] * (2 * rank) if str(node.attr("auto_pad")) == "VALID" else list(node.attr("pads"))
    dilations, extra = tuple(node.attr("dilations")), node.attr("output_padding") or [0] * rank
    extent = tuple(
        dilations[a] * (weight.shape[2 + a] - 1) + 1 + extra[a] - pads[a] - pads[rank + a] for a in range(rank)
    )
    first = tuple(-pad for pad in pads[:rank])
    return _Transposed(weight, bias, first, tuple(node.attr("strides")), dilations, extent, group)


def _window(branches: Sequence[_Transposed]) -> tuple[Ints, Ints, Ints]:
    """First offset, step and number of the united taps, by axis; pads and output_padding must be able to say it."""
    firsts, steps, counts = [], [], []
    for axis, stride in enumerate(branches[0].strides):
        taps = sorted({t for b in branches for t in b.taps(axis)})
        first = min(taps[0], 0)  # pads are never negative
        step = reduce(gcd, (t - first for t in taps), 0) or 1
        count = (taps[-1] - first) // step + 1
        missing = branches[0].extent[axis] - (first + (count - 1) * step + 1)  # elements that no tap reaches
        if missing >= stride:  # more than output_padding can add in ONNX Runtime: taps of zeros
            count += -(-(missing - stride + 1) // step)
        firsts.append(first)
        steps.append(step)
        counts.append(count)
    return tuple(firsts), tuple(steps), tuple(counts)


def _place(branch: _Transposed, first: Ints, step: Ints, count: Ints) -> Floats:
    """The branch's kernel within the window."""
    kernel = np.zeros((*branch.kernel.shape[:2], *count))
    places = [slice(None), slice(None)]
    for axis in range(len(count)):
        found = [(t - first[axis]) // step[axis] for t in branch.taps(axis)]
        places.append(slice(found[0], found[-1] + 1, found[1] - found[0] if len(found) > 1 else 1))
    kernel[tuple(places)] = branch.kernel
    return kernel


def _attributes(like: _Transposed, first: Ints, step: Ints, count: Ints) -> dict[str, Any]:
    ends = [f + (n - 1) * s + 1 - e for f, n, s, e in zip(first, count, step, like.extent, strict=True)]
    return {
        "kernel_shape": list(count),
        "strides": list(like.strides),
        "dilations": list(step),
        "group": like.group,
        "pads": [*(-f for f in first), *(max(end, 0) for end in ends)],
        "output_padding": [max(-end, 0) for end in ends],
    }
