"""Integer polynomials over named dims: the exact language in which shapes of dynamic models are compared.

``Poly`` is immutable and canonical: equal text means equal polynomial, and ``==`` is exact for polynomials over its atoms.
Atoms are named dims and the four functions ``floordiv``, ``mod`` (both rounding toward minus infinity, as Python does),
``min`` and ``max`` of polynomials. Named dims are assumed to be at least 1; derived dims may be 0 (``N - 1``), and so may
sizes that only the data tells, whose names begin with ``~``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from surgeon_passes.region import ANONYMOUS

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_MAX_TERMS = 48
_MAX_DEPTH = 12
_SHIFT_DEGREE = 6


class TooComplex(ArithmeticError):
    """A polynomial has outgrown what is worth reasoning about, or a coefficient has left int64."""


@dataclass(frozen=True, eq=False)
class Call:
    """An atom that is a function of polynomials: ``floordiv``, ``mod``, ``min`` or ``max``."""

    fn: str
    args: tuple[Poly, ...]

    @cached_property
    def text(self) -> str:
        return f"{self.fn}({', '.join(str(a) for a in self.args)})"

    @cached_property
    def _hash(self) -> int:
        return hash((self.fn, self.args))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Call) and (self._hash, self.fn, self.args) == (other._hash, other.fn, other.args)

    def __str__(self) -> str:
        return self.text


Atom = str | Call
Monomial = tuple[tuple[Atom, int], ...]
_ONE: Monomial = ()


def _atom_key(atom: Atom) -> tuple[bool, str]:
    return (isinstance(atom, Call), str(atom))


@lru_cache(maxsize=1 << 15)
def _monomial_key(monomial: Monomial) -> tuple[int, list[tuple[tuple[bool, str], int]]]:
    """Higher degrees first, then by name: a graded order that multiplication respects."""
    return (-sum(p for _, p in monomial), [(_atom_key(a), -p) for a, p in monomial])


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[tuple[bool, str], int]]]:
    return _monomial_key(term[0])


@lru_cache(maxsize=1 << 15)
def _depth(monomial: Monomial) -> int:
    """How deep calls are nested in each other."""
    return max((arg.depth for atom, _ in monomial if isinstance(atom, Call) for arg in atom.args), default=0)


@lru_cache(maxsize=1 << 15)
def _times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: _atom_key(item[0])))


def _over(a: Monomial, b: Monomial) -> Monomial | None:
    """a / b, None where b does not divide a."""
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, power) for atom, power in powers.items() if power)


class Poly:
    """A canonical integer polynomial. Build from ``Poly.symbol``, ``Poly.constant`` and arithmetic."""

    __slots__ = ("_hash", "_symbols", "_text", "depth", "is_constant", "offset", "terms")

    terms: tuple[tuple[Monomial, int], ...]
    depth: int
    is_constant: bool
    offset: int
    """The constant term."""

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        kept = [term for term in terms.items() if term[1]]
        if len(kept) > 1:
            kept.sort(key=_term_key)
        self._fill(tuple(kept))

    def _fill(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        """Take terms that are in order, none of them 0."""
        self.terms = terms
        self.offset = terms[-1][1] if terms and not terms[-1][0] else 0
        self.is_constant = len(terms) == (self.offset != 0)
        self.depth = depth = 1 if self.is_constant else 1 + max([_depth(m) for m, _ in terms])
        if len(terms) > _MAX_TERMS or depth > _MAX_DEPTH:
            raise TooComplex("polynomial too large")
        for _, coefficient in terms:
            if not INT64_MIN <= coefficient <= INT64_MAX:
                raise TooComplex("coefficient outside int64")
        self._hash: int | None = None
        self._text: str | None = None
        self._symbols: frozenset[str] | None = None

    @classmethod
    def _of(cls, terms: tuple[tuple[Monomial, int], ...]) -> Poly:
        """From terms that are in order, none of them 0."""
        found = cls.__new__(cls)
        found._fill(terms)
        return found

    @classmethod
    def symbol(cls, name: str) -> Poly:
        return _symbol(name)

    @classmethod
    def constant(cls, value: int) -> Poly:
        return _constant(value)

    @classmethod
    def call(cls, fn: str, *args: Poly) -> Poly:
        return _call(fn, args)

    # --- reading -----------------------------------------------------------------------------------------------------

    def atoms(self) -> frozenset[Atom]:
        return frozenset([a for m, _ in self.terms for a, _ in m])

    def symbols(self) -> frozenset[str]:
        """Names of the dims that the value depends on."""
        if self._symbols is None:
            self._symbols = self._named()
        return self._symbols

    def _named(self) -> frozenset[str]:
        found: set[str] = set()
        for atom in self.atoms():
            if isinstance(atom, Call):
                found.update(*(arg.symbols() for arg in atom.args))
            else:
                found.add(atom)
        return frozenset(found)

    def single_atom(self) -> Atom | None:
        """The atom, where the polynomial is one atom and nothing else."""
        if len(self.terms) == 1 and self.terms[0][1] == 1:
            monomial = self.terms[0][0]
            if len(monomial) == 1 and monomial[0][1] == 1:
                return monomial[0][0]
        return None

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value at concrete sizes. KeyError for a missing name, ZeroDivisionError where it is undefined."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom, power in monomial:
                base = sizes[atom] if isinstance(atom, str) else _evaluate_call(atom, sizes)
                product *= base**power
            total += product
        return total

    # --- arithmetic --------------------------------------------------------------------------------------------------

    def __add__(self, other: Poly | int) -> Poly:
        if isinstance(other, Poly):
            if other.is_constant:
                return self._shifted(other.offset)
            if self.is_constant:
                return other._shifted(self.offset)
            return self._merged(other.terms)
        return self._shifted(int(other))

    def _shifted(self, by: int) -> Poly:
        """The sum with a number, which is the last term."""
        if not by:
            return self
        total = self.offset + by
        rest = self.terms[:-1] if self.offset else self.terms
        return Poly._of((*rest, (_ONE, total)) if total else rest)

    def _merged(self, terms: Iterable[tuple[Monomial, int]]) -> Poly:
        total = dict(self.terms)
        for monomial, coefficient in terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return Poly(total)

    def __neg__(self) -> Poly:
        return Poly._of(tuple([(m, -c) for m, c in self.terms]))

    def __sub__(self, other: Poly | int) -> Poly:
        if isinstance(other, Poly):
            if other.is_constant:
                return self._shifted(-other.offset)
            return self._merged([(m, -c) for m, c in other.terms])
        return self._shifted(-int(other))

    def __rsub__(self, other: int) -> Poly:
        return -self + other

    def _scaled(self, by: int) -> Poly:
        """The product with a number."""
        if by == 1:
            return self
        return Poly._of(tuple([(m, c * by) for m, c in self.terms]) if by else ())

    def __mul__(self, other: Poly | int) -> Poly:
        if not isinstance(other, Poly):
            return self._scaled(int(other))
        if other.is_constant:
            return self._scaled(other.offset)
        if self.is_constant:
            return other._scaled(self.offset)
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in other.terms:
                monomial = _times(m1, m2)
                terms[monomial] = terms.get(monomial, 0) + c1 * c2
        return Poly(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def exact_div(self, other: Poly | int) -> Poly | None:
        """The polynomial q with ``self == q * other`` identically; None where there is none."""
        divisor = as_poly(other)
        if not divisor.terms:
            return None
        lead, lead_coefficient = divisor.terms[0]
        rest, quotient = self, Poly({})
        while rest.terms:
            monomial = _over(rest.terms[0][0], lead)
            if monomial is None or rest.terms[0][1] % lead_coefficient:
                return None
            step = Poly({monomial: rest.terms[0][1] // lead_coefficient})
            quotient, rest = quotient + step, rest - step * divisor
        return quotient

    # --- identity ----------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Poly):
            return len(self.terms) == len(other.terms) and hash(self) == hash(other) and self.terms == other.terms
        return isinstance(other, int) and self.is_constant and self.offset == other

    def __hash__(self) -> int:
        found = self._hash
        if found is None:
            found = self._hash = hash(self.offset) if self.is_constant else hash(self.terms)
        return found

    def __str__(self) -> str:
        if self._text is None:
            self._text = _render(self.terms)
        return self._text

    def __repr__(self) -> str:
        return f"Poly({self})"


# Interned, so that equal ones mostly are one object: those are compared at no cost.


@lru_cache(maxsize=1 << 14)
def _symbol(name: str) -> Poly:
    return Poly({((name, 1),): 1})


@lru_cache(maxsize=1 << 12, typed=True)
def _constant(value: int) -> Poly:
    return Poly({_ONE: value})


@lru_cache(maxsize=1 << 14)
def _call(fn: str, args: tuple[Poly, ...]) -> Poly:
    return Poly({((Call(fn, args), 1),): 1})


def as_poly(value: Poly | int) -> Poly:
    return value if isinstance(value, Poly) else _constant(int(value))


def _evaluate_call(call: Call, sizes: Mapping[str, int]) -> int:
    values = [arg.evaluate(sizes) for arg in call.args]
    if call.fn == "floordiv":
        return values[0] // values[1]
    if call.fn == "mod":
        return values[0] % values[1]
    return min(values) if call.fn == "min" else max(values)


def _render(terms: Iterable[tuple[Monomial, int]]) -> str:
    text = ""
    for monomial, coefficient in terms:
        factors = [str(a) if p == 1 else f"{a}**{p}" for a, p in monomial]
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        body = "*".join(factors)
        text += f" {sign} {body}" if text else (f"-{body}" if coefficient < 0 else body)
    return text or "0"


# --- division ----------------------------------------------------------------------------------------------------------


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
    return Poly.call(fn, *sorted(kept, key=lambda p: [(_monomial_key(m), c) for m, c in p.terms]))


def _dominates(fn: str, a: Poly, b: Poly) -> bool:
    """Whether ``b`` can be left out beside ``a``."""
    return is_nonnegative(b - a if fn == "min" else a - b) is True


# --- bounds ------------------------------------------------------------------------------------------------------------


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
        product = {_ONE: coefficient}
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
    return shifted.get(_ONE, 0)


def _expand(product: dict[Monomial, int], atom: Atom, bound: int, sign: int) -> dict[Monomial, int]:
    found: dict[Monomial, int] = {}
    for monomial, coefficient in product.items():
        found[monomial] = found.get(monomial, 0) + coefficient * bound
        raised = _times(monomial, ((atom, 1),))
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


# --- questions ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 15)
def is_nonnegative(a: Poly) -> bool | None:
    """True / False where ``a >= 0`` holds for every size / for none; None where it depends or is not known."""
    if _proves_nonnegative(a):
        return True
    return False if _proves_nonnegative(-a - 1) else None


@lru_cache(maxsize=8192)
def _proves_nonnegative(a: Poly, tries: int = 3) -> bool:
    low = _lower(a)
    if low is not None and low >= 0:
        return True
    return bool(tries) and any(_proves_nonnegative(b, tries - 1) for b in _weakened(a))


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
    apart = _proves_nonnegative(difference - 1) or _proves_nonnegative(-difference - 1)
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
