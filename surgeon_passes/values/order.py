"""What is certain of a polynomial for every size: its bounds, whether it is negative, and so which of two is smaller."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from surgeon_passes.region import ANONYMOUS
from surgeon_passes.values.symbols import ONE, Atom, Call, Monomial, Poly, monomial_key, times

_SHIFT_DEGREE = 6


def lower(a: Poly) -> int | None:
    """A value that ``a`` never goes below (often the smallest); None where none is found."""
    return _lower(a)


def upper(a: Poly) -> int | None:
    """A value that ``a`` never exceeds; None where none is found."""
    low = _lower(-a)
    return None if low is None else -low


@lru_cache(maxsize=8192)
def _lower(a: Poly) -> int | None:
    """Every atom is written as its bound plus (or minus) something that is not negative; then the rest must not be."""
    if a.is_constant:
        return a.offset
    if max(sum(p for _, p in m) for m, _ in a.terms) > _SHIFT_DEGREE:
        return None
    shifted: dict[Monomial, int] = {}
    bounds = {atom: _substitute(a, atom) for atom in a.atoms()}
    for monomial, coefficient in a.terms:
        product = {ONE: coefficient}
        for atom, power in monomial:
            bound = bounds[atom]
            if bound is None:
                return None
            for _ in range(power):
                product = _expand(product, atom, *bound)
        for key, value in product.items():
            shifted[key] = shifted.get(key, 0) + value
    if any(value < 0 for key, value in shifted.items() if key):
        return None
    return shifted.get(ONE, 0)


def _expand(product: dict[Monomial, int], atom: Atom, bound: int, sign: int) -> dict[Monomial, int]:
    found: dict[Monomial, int] = {}
    for monomial, coefficient in product.items():
        found[monomial] = found.get(monomial, 0) + coefficient * bound
        raised = times(monomial, ((atom, 1),))
        found[raised] = found.get(raised, 0) + coefficient * sign
    return found


def _substitute(a: Poly, atom: Atom) -> tuple[int, int] | None:
    """(bound, +1) for ``atom = bound + t``, (bound, -1) for ``atom = bound - t``, t >= 0."""
    low, high = _atom_range(atom)
    signs = {c > 0 for m, c in a.terms if any(x == atom for x, _ in m)}
    if high is not None and (signs == {False} or low is None):
        return high, -1
    return None if low is None else (low, 1)


def _atom_range(atom: Atom) -> tuple[int | None, int | None]:
    if isinstance(atom, str):
        return (0 if atom.startswith(ANONYMOUS) else 1), None
    if atom.fn in ("floordiv", "mod"):
        return _division_range(atom)
    lows, highs = [_lower(arg) for arg in atom.args], [upper(arg) for arg in atom.args]
    known_low, known_high = [v for v in lows if v is not None], [v for v in highs if v is not None]
    all_low, all_high = len(known_low) == len(lows), len(known_high) == len(highs)
    if atom.fn == "min":
        return min(known_low) if all_low else None, min(known_high, default=None)
    return max(known_low, default=None), max(known_high) if all_high else None


def _division_range(atom: Call) -> tuple[int | None, int | None]:
    a, b = atom.args
    divisor = b.offset if b.is_constant else _lower(b)
    if divisor is None or divisor < 1:
        return None, None
    if atom.fn == "mod":
        high = upper(b)
        return 0, None if high is None else high - 1
    low, high = _lower(a), upper(a)
    if b.is_constant:
        return None if low is None else low // divisor, None if high is None else high // divisor
    return (0, None if high is None else high // divisor) if low is not None and low >= 0 else (None, None)


# --- signs -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 15)
def is_nonnegative(a: Poly) -> bool | None:
    """True / False where ``a >= 0`` holds for every size / for none; None where it depends or is not known."""
    if proves_nonnegative(a):
        return True
    return False if proves_nonnegative(-a - 1) else None


@lru_cache(maxsize=8192)
def proves_nonnegative(a: Poly, tries: int = 3) -> bool:
    """Whether ``a >= 0`` was found to hold for every size; not finding it says nothing."""
    low = _lower(a)
    if low is not None and low >= 0:
        return True
    return bool(tries) and any(proves_nonnegative(b, tries - 1) for b in _weakened(a))


def _weakened(a: Poly) -> Iterator[Poly]:
    """Polynomials whose being >= 0 implies it for ``a``: one atom is replaced by what bounds it.

    From ``q = floordiv(x, k)`` follow ``k*q <= x`` and ``k*q >= x - k + 1``; ``min(x, …) <= x`` and ``max(x, …) >= x``.
    """
    for monomial, coefficient in a.terms:
        if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(monomial[0][0], Call):
            continue
        call = monomial[0][0]
        if sum(any(x == call for x, _ in m) for m, _ in a.terms) > 1:
            continue
        rest = a - Poly({monomial: coefficient})
        if call.fn == "floordiv" and call.args[1].is_constant and call.args[1].offset > 0:
            k = call.args[1].offset
            bound = call.args[0] if coefficient < 0 else call.args[0] - k + 1
            yield rest * k + bound * coefficient
        elif call.fn == ("min" if coefficient < 0 else "max"):
            yield from (rest + arg * coefficient for arg in call.args)


# --- min and max -------------------------------------------------------------------------------------------------------


def minimum(a: Poly, b: Poly) -> Poly:
    return _extremum("min", a, b)


def maximum(a: Poly, b: Poly) -> Poly:
    return _extremum("max", a, b)


def _operands(fn: str, a: Poly) -> tuple[Poly, ...]:
    atom = a.single_atom()
    return atom.args if isinstance(atom, Call) and atom.fn == fn else (a,)


def _extremum(fn: str, a: Poly, b: Poly) -> Poly:
    kept: list[Poly] = []
    for new in (*_operands(fn, a), *_operands(fn, b)):
        if any(_dominates(fn, old, new) for old in kept):
            continue
        kept = [old for old in kept if not _dominates(fn, new, old)]
        kept.append(new)
    if len(kept) == 1:
        return kept[0]
    return Poly.call(fn, *sorted(kept, key=lambda p: [(monomial_key(m), c) for m, c in p.terms]))


def _dominates(fn: str, a: Poly, b: Poly) -> bool:
    """Whether ``b`` can be left out beside ``a``."""
    return is_nonnegative(b - a if fn == "min" else a - b) is True
