"""Chains of Mul, Div, Add, Sub and Neg with constants: as few of them as say the same.

Every step is ``x -> s·x + t`` with constants, and so is every chain. Computed in float64 and rounded once; integers, whose
sums and products wrap around in every order alike, in their own type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from surgeon_passes import Decline, Match, Operand, Replacement, rule

from ._arrays import require_finite

CANCELS = 16.0
"""How much smaller than its parts a sum of constants may be: far beyond, the original rounds x on purpose or by mistake."""


@dataclass(frozen=True)
class Step:
    """``x -> scale·x + shift``, each broadcast against x. None is 1, or 0."""

    scale: Any
    shift: Any

    def then(self, after: Step) -> Step:
        """This step, and ``after`` on what it gives. Raises Decline where the shifts nearly cancel."""
        scale = after.scale if self.scale is None else _times(self.scale, after.scale)
        moved = None if self.shift is None else _times(self.shift, after.scale)
        return Step(scale, _plus(moved, after.shift))


def _times(a: Any, b: Any) -> Any:
    with np.errstate(over="ignore"):  # integers wrap around, as they do in the model
        return a if b is None else a * b


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    with np.errstate(over="ignore"):
        total = a + b
    if total.dtype.kind == "f" and (np.abs(total) * CANCELS < np.maximum(np.abs(a), np.abs(b))).any():
        raise Decline("the constants nearly cancel: what the original rounds would be lost")
    return total


def _step(y: Operand, k: Operand | None, other: Operand | None = None) -> Step:
    """What one node does; without a constant it is a Neg, beside ``other``. Raises Decline where it is no such step."""
    if k is None:
        assert other is not None
        return Step(-np.ones_like(_number(other), shape=()), None)
    held = _number(k)
    match y.op:
        case "Mul":
            return Step(held, None)
        case "Div":
            if held.dtype.kind != "f":
                raise Decline("a division of integers rounds")
            if not held.all():
                raise Decline(f"'{k.name}' divides by zero")
            return Step(1 / held, None)
        case "Sub" if y.node.input(0) is k.tensor:
            return Step(-np.ones_like(held), held)
        case "Sub":
            return Step(None, -held)
        case _:
            return Step(None, held)


def _number(k: Operand) -> Any:
    value = np.asarray(k.value)
    if value.dtype.kind in "iu":
        return value
    if value.dtype.kind == "b":
        raise Decline(f"'{k.name}' holds truth values")
    return require_finite(np.asarray(k, dtype=np.float64), f"'{k.name}'")


def _written(step: Step, parts: int, *constants: Operand | None) -> Replacement:
    """The shortest way to write ``step``. Raises Decline where that is not shorter than ``parts`` nodes."""
    sizes = [np.asarray(c.value).size for c in constants if c is not None]
    for value in (step.scale, step.shift):
        if value is not None and np.size(value) > max(sizes, default=1):
            raise Decline("the constants lie along different axes: their product is larger")
    scale, shift = step.scale, step.shift
    if shift is None:
        return Replacement("scale", S=_constant(scale, *constants))
    if scale is None or (scale == 1).all():
        return Replacement("shift", T=_constant(shift, *constants))
    if (scale == -1).all():
        return Replacement("from", T=_constant(np.broadcast_to(shift, np.broadcast(scale, shift).shape), *constants))
    if parts < 3:
        raise Decline
    return Replacement("both", S=_constant(scale, *constants), T=_constant(shift, *constants))


def _constant(value: Any, *constants: Operand | None) -> Any:
    """The value with as many dims as all constants together give: they may be what gives the result its rank."""
    shape = np.broadcast_shapes(*(np.shape(c.value) for c in constants if c is not None), np.shape(value))
    found = np.asarray(value)
    ranked = found.reshape((1,) * (len(shape) - found.ndim) + found.shape)
    for place, (size, own) in enumerate(zip(shape, ranked.shape, strict=True)):
        if size != own:
            ranked = np.repeat(ranked, size, axis=place)
    return ranked


@rule(
    pattern="""
        a = Mul|Div|Add|Sub(x, k: const) | Sub(k: const, x) | Neg(x)
        y = Mul|Div|Add|Sub(a, l: const) | Sub(l: const, a) | Neg(a)
    """,
    rewrite={
        "scale": "y = Mul(x, S)",
        "shift": "y = Add(x, T)",
        "from": "y = Sub(T, x)",
        "both": "y = Add(Mul(x, S), T)",
    },
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    may_grow=True,  # no constant is larger than the largest before; a vector may get dims of 1, and count as a weight
    recursive=True,
    tag="chained",
)
def merge_constant_pair(m: Match) -> Replacement:
    """Two operations with constants are one where one says the same: x·2·3, (x + 1) + 2, 1 - (2 - x), -(x·2).

    Algebra
        (x·k)·l = x·(k·l);  (x + k) + l = x + (k + l);  l - (k - x) = x + (l - k);  -(x·k) = x·(-k)

    Declines when
        they are a scale and a shift: those are two;
        the sum of the constants is far smaller than they are ((x + 1e8) - 1e8 rounds x);
        the constants lie along different axes, hold NaN or infinities, or divide by zero; integers are divided;
        the inner result is used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                k = Constant<value = float[2] {2.0, 3.0}>()
                l = Constant<value = float {4.0}>()
                a = Mul(x, k)
                y = Div(a, l)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                k = Constant<value = float[2] {0.5, 0.75}>()
                y = Mul(x, k)
            }
    """
    if m.k is None and m.l is None:
        raise Decline
    return _written(_step(m.a, m.k, m.l).then(_step(m.y, m.l, m.k)), 2, m.k, m.l)


@rule(
    pattern="""
        a = Mul|Div|Add|Sub(x, k: const) | Sub(k: const, x)
        b = Mul|Div|Add|Sub(a, l: const) | Sub(l: const, a)
        y = Mul|Div|Add|Sub(b, n: const) | Sub(n: const, b)
    """,
    rewrite={
        "scale": "y = Mul(x, S)",
        "shift": "y = Add(x, T)",
        "from": "y = Sub(T, x)",
        "both": "y = Add(Mul(x, S), T)",
    },
    exactness="rounding",
    sets=("fusion",),
    opset=(7, None),
    may_grow=True,  # no constant is larger than the largest before; a vector may get dims of 1, and count as a weight
    recursive=True,
    tag="chained",
)
def merge_constant_chain(m: Match) -> Replacement:
    """Three operations with constants are one Mul and one Add, or one of them.

    Algebra
        ((x - k)/l)·n + … : every chain is s·x + t

    Declines when
        the sum of the constants is far smaller than they are;
        the constants lie along different axes, hold NaN or infinities, or divide by zero; integers are divided;
        an inner result is used elsewhere.

    Example
        before:
            g (float[N,2] x) => (float[N,2] y) {
                k = Constant<value = float[2] {2.0, 3.0}>()
                l = Constant<value = float {4.0}>()
                n = Constant<value = float {1.0}>()
                a = Sub(x, k)
                b = Mul(a, l)
                y = Sub(b, n)
            }
        after:
            g (float[N,2] x) => (float[N,2] y) {
                s = Constant<value = float[2] {4.0, 4.0}>()
                t = Constant<value = float[2] {-9.0, -13.0}>()
                p = Mul(x, s)
                y = Add(p, t)
            }
    """
    return _written(_step(m.a, m.k).then(_step(m.b, m.l)).then(_step(m.y, m.n)), 3, m.k, m.l, m.n)
