"""Cast: what changes no type goes. Bit-exact."""

from __future__ import annotations

from surgeon_passes import Decline, Match, Replacement, rule


@rule(
    pattern="y = Cast(x)<to=@to>",
    rewrite="y = x",
    exactness="exact",
    sets=("cleanup",),
    opset=(6, None),
)
def drop_cast(m: Match) -> Replacement:
    """A Cast to the type that its input has goes.

    Algebra
        a value of a type is unchanged by a cast to that type

    Declines when
        the input's type is another one, or unknown. A round trip through another type loses bits: it stays.

    Example
        before:
            g (float[N] x) => (float[N] y) {
                a = Cast<to = 1>(x)
                y = Relu(a)
            }
        after:
            g (float[N] x) => (float[N] y) {
                y = Relu(x)
            }
    """
    if m.x.dtype is None:
        raise Decline(f"the type of '{m.x.name}' is unknown")
    if m.x.dtype != m.attr("to"):
        raise Decline
    return Replacement()
