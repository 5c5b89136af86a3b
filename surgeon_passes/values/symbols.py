"""Integer polynomials over named dims: the exact language in which shapes of dynamic models are compared.

``Poly`` is immutable and canonical: equal text means equal polynomial, and ``==`` is exact for polynomials over its atoms.
Atoms are named dims and the four functions ``floordiv``, ``mod`` (both rounding toward minus infinity, as Python does),
``min`` and ``max`` of polynomials. Named dims are assumed to be at least 1; derived dims may be 0 (``N - 1``), and so may
sizes that only the data tells, whose names begin with ``~``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_MAX_TERMS = 48
_MAX_DEPTH = 12


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
ONE: Monomial = ()


def _atom_key(atom: Atom) -> tuple[bool, str]:
    return (isinstance(atom, Call), str(atom))


@lru_cache(maxsize=1 << 15)
def monomial_key(monomial: Monomial) -> tuple[int, list[tuple[tuple[bool, str], int]]]:
    """Higher degrees first, then by name: a graded order that multiplication respects."""
    return (-sum(p for _, p in monomial), [(_atom_key(a), -p) for a, p in monomial])


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[tuple[bool, str], int]]]:
    return monomial_key(term[0])


@lru_cache(maxsize=1 << 15)
def _depth(monomial: Monomial) -> int:
    """How deep calls are nested in each other."""
    return max((arg.depth for atom, _ in monomial if isinstance(atom, Call) for arg in atom.args), default=0)


@lru_cache(maxsize=1 << 15)
def times(a: Monomial, b: Monomial) -> Monomial:
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
        return Poly._of((*rest, (ONE, total)) if total else rest)

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
                monomial = times(m1, m2)
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
    return Poly({ONE: value})


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
