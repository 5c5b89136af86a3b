"""A convolution of a convolution as one.

The second reads place ``s2·out + o2`` of what the first makes, which reads place ``s1·(s2·out + o2) + o1`` of the input: taps
lie at ``o1 + s1·o2``, the stride is ``s1·s2``. Where the second pads, it reads zeros; the composed one reads there what the
first would make beyond its border. Both are equal only where the first makes zeros there: it has no bias, and its taps
reach no element of the input.
"""

from __future__ import annotations

from math import gcd, prod

import numpy as np

from surgeon_passes import Decline

from ._affine_branch import AffineBranch, Ints, regroup
from ._arrays import Floats


def composed_cost(first: AffineBranch, second: AffineBranch) -> int:
    """Weights of the composed convolution."""
    _, count = _grid(first, second)
    width = first.inputs // _groups(first, second)
    return second.outputs * width * prod(count)


def compose(first: AffineBranch, second: AffineBranch) -> AffineBranch:
    """``x -> second(first(x))`` as one branch, whose ``cost`` is that of the two.

    Raises Decline where it is none: channels differ, pads depend on an unknown size, or the second pads with zeros what
    would not be zero.
    """
    if second.inputs != first.outputs:
        raise Decline(f"{first.outputs} channels meet a Conv of {second.inputs}")
    if first.auto_pad != "NOTSET" or second.auto_pad != "NOTSET":
        raise Decline("its pads depend on an input size that is not known")
    _require_zero_border(first, second)
    step, count = _grid(first, second)
    kernel = _kernel(first, second, step, count)
    taps = second.kernel.reshape(*second.kernel.shape[:2], -1).sum(-1)
    bias = second.bias + _grouped(taps, first.bias[:, None], second.group)[:, 0]
    pads = tuple(
        p + first.strides[i % first.rank] * q for i, (p, q) in enumerate(zip(first.pads, second.pads, strict=True))
    )
    strides = tuple(s * t for s, t in zip(first.strides, second.strides, strict=True))
    return AffineBranch(kernel, bias, pads, strides, step, _groups(first, second), held=first.cost + second.cost)


def _groups(first: AffineBranch, second: AffineBranch) -> int:
    """A depthwise second keeps the first's groups; else the groups that both respect."""
    return first.group if _is_depthwise(second) else gcd(first.group, second.group)


def _is_depthwise(branch: AffineBranch) -> bool:
    return branch.group == branch.inputs


def _require_zero_border(first: AffineBranch, second: AffineBranch) -> None:
    if not any(second.pads):
        return
    if first.bias.any():
        raise Decline("its padding puts zeros where the convolution before it would give its bias")
    for axis in range(first.rank):
        begin, end = first.pads[axis], first.pads[first.rank + axis]
        reach, stride = first.reach[axis], first.strides[axis]
        reads_before = second.pads[axis] and reach >= stride + begin
        reads_after = second.pads[first.rank + axis] and reach > end
        if reads_before or reads_after:
            raise Decline("its padding puts zeros where the convolution before it would still read its input")


def _grid(first: AffineBranch, second: AffineBranch) -> tuple[Ints, Ints]:
    """The step between taps of the composed kernel, and their number, by axis."""
    steps, counts = [], []
    for axis in range(first.rank):
        inner, outer = first.dilations[axis], first.strides[axis] * second.dilations[axis]
        small, large = first.spatial[axis] == 1, second.spatial[axis] == 1
        step = 1 if small and large else outer if small else inner if large else gcd(inner, outer)
        steps.append(step)
        counts.append((first.reach[axis] + first.strides[axis] * second.reach[axis]) // step + 1)
    return tuple(steps), tuple(counts)


def _kernel(first: AffineBranch, second: AffineBranch, step: Ints, count: Ints) -> Floats:
    group = _groups(first, second)
    own = first if _is_depthwise(second) else regroup(first, group)
    other = second if _is_depthwise(second) else regroup(second, group)
    kernel = np.zeros((second.outputs, first.inputs // group, *count))
    flat = own.kernel.reshape(own.outputs, -1)
    for tap in np.ndindex(*second.spatial):
        places = [slice(None), slice(None)]
        for axis, number in enumerate(tap):
            start = number * first.strides[axis] * second.dilations[axis] // step[axis]
            stride = max(first.dilations[axis] // step[axis], 1)
            places.append(slice(start, start + stride * (first.spatial[axis] - 1) + 1, stride))
        part = _grouped(other.kernel[(slice(None), slice(None), *tap)], flat, other.group)
        kernel[tuple(places)] += part.reshape(second.outputs, *own.kernel.shape[1:])
    return kernel


def _grouped(weight: Floats, values: Floats, group: int) -> Floats:
    """``weight`` [O, M/group] times ``values`` [M, K], group by group: [O, K]."""
    if weight.shape[1] == 1:
        return weight * np.repeat(values, weight.shape[0] // values.shape[0], axis=0)
    rows = weight.reshape(group, -1, weight.shape[1]) @ values.reshape(group, weight.shape[1], -1)
    return rows.reshape(weight.shape[0], -1)
