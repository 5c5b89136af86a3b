"""Expand: what enlarges nothing goes. Bit-exact."""

from __future__ import annotations

import numpy as np

from surgeon_passes import Decline, Match, Replacement, rule


@rule(
    pattern="y = Expand(x, target: partial)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_expand(m: Match) -> Replacement:
    """An Expand to the shape that its input has goes.

    Algebra
        a target dim of 1, or equal to the input's, leaves that axis as it is

    Declines when
        the target has more dims, or one that is not known to be 1 or the input's.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                target = Constant<value = int64[2] {1, 2}>()
                a = Expand(x, target)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    target = m.target.value
    dims = list(target) if isinstance(target, np.ndarray) else target.dims()
    held = m.x.shape
    if held is None:
        raise Decline(f"the rank of '{m.x.name}' is unknown")
    if len(dims) > len(held):
        raise Decline
    for dim, own in zip(reversed(dims), reversed(held), strict=False):
        if dim is None or (dim != 1 and (own is None or dim != own)):
            raise Decline
    return Replacement()
