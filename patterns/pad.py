"""Pad: what pads by nothing goes. Bit-exact."""

from __future__ import annotations

from surgeon_passes import Decline, Match, Replacement, rule


@rule(
    pattern="y = Pad(x, amounts: const, fill?, axes?)",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
)
def drop_zero_pad(m: Match) -> Replacement:
    """A Pad by nothing goes.

    Algebra
        no side gets or loses an element, in any mode

    Declines when
        some amount is not 0 (a negative one crops).

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                none = Constant<value = int64[4] {0, 0, 0, 0}>()
                a = Pad(x, none)
                y = Relu(a)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                y = Relu(x)
            }
    """
    if m.amounts.value.any():
        raise Decline
    return Replacement()
