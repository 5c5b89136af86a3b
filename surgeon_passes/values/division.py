"""Division of polynomials, rounding toward minus infinity, and when two polynomials that hold such are equal."""

from __future__ import annotations

import math
from functools import lru_cache

from surgeon_passes.values.order import is_nonnegative, lower, proves_nonnegative, upper
from surgeon_passes.values.symbols import Atom, Call, Monomial, Poly


def floor_div(a: Poly, b: Poly) -> Poly:
    """a // b, rounding toward minus infinity. Raises ZeroDivisionError for a constant 0 divisor."""
    if b.is_constant:
        return _floor_div_constant(a, b.offset)
    exact = a.exact_div(b)
    if exact is not None:
        return exact
    quotient, rest = _pull_out(a, b)
    if _within(rest, b):
        return quotient
    return quotient + Poly.call("floordiv", rest, b)


def _floor_div_constant(a: Poly, k: int) -> Poly:
    if k < 0:
        a, k = -a, -k
    if a.is_constant or k == 1:
        return Poly.constant(a.offset // k) if a.is_constant else a
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in a.terms:
        # The constant's rest lies in (-k, 0], the others' in [0, k): one form for every way to write it.
        q = coefficient // k if monomial else -(-coefficient // k)
        quotient[monomial], rest[monomial] = q, coefficient - q * k
    return Poly(quotient) + _floor_div_reduced(Poly(rest), k)


def _floor_div_reduced(rest: Poly, k: int) -> Poly:
    if rest.is_constant:
        return Poly.constant(rest.offset // k)
    common = math.gcd(k, *(c for m, c in rest.terms if m))
    if common > 1:
        return floor_div(_scaled_down(rest, common), Poly.constant(k // common))
    inner = (rest - rest.offset).single_atom()
    if isinstance(inner, Call) and inner.fn == "floordiv" and inner.args[1].is_constant:
        m = inner.args[1].offset
        if m > 0:
            return floor_div(inner.args[0] + m * rest.offset, Poly.constant(m * k))
    low, high = lower(rest), upper(rest)
    if low is not None and high is not None and low // k == high // k:
        return Poly.constant(low // k)
    return Poly.call("floordiv", rest, Poly.constant(k))


def _scaled_down(a: Poly, common: int) -> Poly:
    """floor(a / common) where every non-constant coefficient is divisible."""
    return Poly({m: c // common for m, c in a.terms})


def _pull_out(a: Poly, b: Poly) -> tuple[Poly, Poly]:
    """(q, r) with ``a == q * b + r``: the terms that the single-term ``b`` divides, and the others."""
    quotient, rest = Poly({}), Poly({})
    for monomial, coefficient in a.terms:
        term = Poly({monomial: coefficient})
        part = term.exact_div(b) if len(b.terms) == 1 else None
        if part is None:
            rest += term
        else:
            quotient += part
    return quotient, rest


def _within(a: Poly, b: Poly) -> bool:
    """Whether 0 <= a < b for every size."""
    return is_nonnegative(a) is True and is_nonnegative(b - a - 1) is True


def modulo(a: Poly, b: Poly) -> Poly:
    """a mod b with the sign of ``b``, as Python has it. Raises ZeroDivisionError for a constant 0 divisor."""
    if b.is_constant:
        return _modulo_constant(a, b.offset)
    if a.exact_div(b) is not None:
        return Poly({})
    _, rest = _pull_out(a, b)
    return rest if _within(rest, b) else Poly.call("mod", rest, b)


def _modulo_constant(a: Poly, k: int) -> Poly:
    if a.is_constant:
        return Poly.constant(a.offset % k)
    if k < 0:
        return -_modulo_constant(-a, -k)
    rest = Poly({m: c % k for m, c in a.terms})
    if rest.is_constant:
        return rest
    common = math.gcd(k, *(c for m, c in rest.terms if m))
    if common > 1:
        return _modulo_constant(_scaled_down(rest, common), k // common) * common + rest.offset % common
    inner = rest.single_atom()
    if isinstance(inner, Call) and inner.fn == "mod" and inner.args[1].is_constant and inner.args[1].offset % k == 0:
        return _modulo_constant(inner.args[0], k)
    return rest if _within(rest, Poly.constant(k)) else Poly.call("mod", rest, Poly.constant(k))


# --- equality ----------------------------------------------------------------------------------------------------------


def is_equal(a: Poly, b: Poly) -> bool | None:
    """True / False where equal for every size / for none; None where it depends or is not known."""
    return True if a is b else _is_equal(a, b)


@lru_cache(maxsize=1 << 15)
def _is_equal(a: Poly, b: Poly) -> bool | None:
    difference = _plain_form(a - b)
    if not difference.terms:
        return True
    common = math.gcd(*(c for m, c in difference.terms if m))
    if common and difference.offset % common:
        return False
    apart = proves_nonnegative(difference - 1) or proves_nonnegative(-difference - 1)
    return False if apart or difference.is_constant else None


def _plain_form(a: Poly) -> Poly:
    """One form for what can be written in two: ``mod(x, k)`` is ``x - k*floordiv(x, k)``, and the odd half
    ``floordiv(x - 1, 2)`` is ``x - 1 - floordiv(x, 2)``."""
    if any(p > 1 for m, _ in a.terms for _, p in m):
        return a
    total = Poly({})
    for monomial, coefficient in a.terms:
        product = Poly.constant(coefficient)
        for atom, _ in monomial:
            product *= _plain_atom(atom)
        total += product
    return total


def _plain_atom(atom: Atom) -> Poly:
    if isinstance(atom, Call) and atom.fn == "mod":
        x, k = atom.args
        return x - k * floor_div(x, k)
    if isinstance(atom, Call) and atom.fn == "floordiv" and atom.args[1] == 2 and atom.args[0].offset == -1:
        x = atom.args[0] + 1
        return x - 1 - floor_div(x, Poly.constant(2))
    return Poly({((atom, 1),): 1})
