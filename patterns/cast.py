"""Cast: chains that lose nothing become one, what changes no type goes. All bit-exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from surgeon_passes import Decline, Match, Operand, Replacement, rule


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
        the input's type is another one, or unknown (a round trip is merge_casts' matter).

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


@rule(
    pattern="""
        a = Cast(x)
        y = Cast(a)
    """,
    rewrite={"drop": "y = x", "merge": "y = Cast(x)<@y>"},
    exactness="exact",
    sets=("shape",),
    opset=(9, None),
    recursive=True,
)
def merge_casts(m: Match) -> Replacement:
    """A Cast of a Cast to a type that holds every value is one Cast, or none.

    Algebra
        the first changes no value, so that the second sees what x holds

    Declines when
        the first may lose something (float to integer, double to float …): a round trip through such a type is a
        rounding that the model may want; or a type is unknown, text, or one of the small floats;
        an integer goes through a float into an integer type that is too small for it: out of range, that is undefined;
        the intermediate is used elsewhere.

    Example
        before:
            g (bool[N] x) => (float[N] y) {
                a = Cast<to = 7>(x)
                y = Cast<to = 1>(a)
            }
        after:
            g (bool[N] x) => (float[N] y) {
                y = Cast<to = 1>(x)
            }
    """
    own, first, second = _number(m.x), _number(m.a), _number(m.y)
    if not _holds(first, own):
        raise Decline(f"'{m.a.name}' may not hold every value of '{m.x.name}'")
    if own.kind in "iu" and first.kind == "f" and second.kind in "iu" and not _holds(second, own):
        raise Decline(f"'{m.y.name}' may not hold every value of '{m.x.name}'")
    return Replacement("drop" if second == own else "merge")


@rule(
    pattern="""
        a = Cast(x)
        y = Cast(a)
    """,
    rewrite={"drop": "y = x", "merge": "y = Cast(x)<@y>"},
    exactness="rounding",
    sets=("shape",),
    opset=(9, None),
    recursive=True,
)
def merge_lossy_casts(m: Match) -> Replacement:
    """A Cast of floats through a shorter float is left out, where ``allow_lossy_casts`` says that it may be.

    Algebra
        in real arithmetic no cast between floats changes a value; the shorter one rounds, and overflows sooner

    Declines when
        it is not allowed; a cast is not one between floats: what an integer cuts off is no rounding;
        the intermediate is used elsewhere.

    Example
        options:
            allow_lossy_casts
        before:
            g (double[N] x) => (double[N] y) {
                a = Cast<to = 1>(x)
                b = Cast<to = 11>(a)
                y = Relu(b)
            }
        after:
            g (double[N] x) => (double[N] y) {
                y = Relu(x)
            }
    """
    own, first, second = _number(m.x), _number(m.a), _number(m.y)
    if {own.kind, first.kind, second.kind} != {"f"} or _holds(first, own):
        raise Decline
    if not m.options.allow_lossy_casts:
        raise Decline(f"'{m.a.name}' rounds to {first}: allow_lossy_casts lets it go")
    return Replacement("drop" if second == own else "merge")


def _number(operand: Operand) -> np.dtype[Any]:
    """The dtype. Raises Decline where it is unknown, or is not one of numpy's own bools, integers and floats."""
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(operand.dtype)) if operand.dtype else None
    if dtype is None or dtype.isbuiltin != 1 or dtype.kind not in "biuf":
        raise Decline(f"the type of '{operand.name}' is unknown or not a plain number")
    return dtype


def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether ``wide`` has every value of ``narrow``. (To numpy, a double is safe for 64 bits.)"""
    long = narrow.kind in "iu" and narrow.itemsize == 8
    return np.can_cast(narrow, wide, "safe") and not (long and wide.kind == "f")
