"""Polynomials over dims: each operation against the same operation on numbers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.values import dims
from surgeon_passes.values.symbols import Poly, TooComplex, as_poly

N, T, H = Poly.symbol("N"), Poly.symbol("T"), Poly.symbol("H")

SIZES = st.fixed_dictionaries({name: st.integers(1, 40) for name in ("N", "T", "H")})
BINARY = {
    "add": (dims.add, lambda a, b: a + b),
    "sub": (dims.sub, lambda a, b: a - b),
    "mul": (dims.mul, lambda a, b: a * b),
    "floor_div": (dims.floor_div, lambda a, b: a // b),
    "floor_mod": (dims.floor_mod, lambda a, b: a % b),
    "trunc_div": (dims.trunc_div, lambda a, b: int(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)),
    "minimum": (dims.minimum, min),
    "maximum": (dims.maximum, max),
}


def value(dim, sizes):
    return dim.evaluate(sizes) if isinstance(dim, Poly) else dim


def expressions():
    leaf = st.one_of(st.integers(-6, 12), st.sampled_from([N, T, H]))

    def grow(children):
        def combine(op, a, b):
            result = BINARY[op][0](a, b)
            return a if result is None else result

        return st.builds(combine, st.sampled_from(sorted(BINARY)), children, children)

    return st.recursive(leaf, grow, max_leaves=6)


@settings(max_examples=400, deadline=None)
@given(expressions(), expressions(), st.sampled_from(sorted(BINARY)), SIZES)
def test_operations_commute_with_evaluation(a, b, op, sizes):
    symbolic, numeric = BINARY[op]
    result = symbolic(a, b)
    if result is None:
        return
    try:
        x, y = value(a, sizes), value(b, sizes)
        expected = numeric(x, y)
    except ZeroDivisionError:
        return
    assert value(result, sizes) == expected


@settings(max_examples=400, deadline=None)
@given(expressions(), expressions(), SIZES)
def test_comparisons_hold_at_every_size(a, b, sizes):
    try:
        x, y = value(a, sizes), value(b, sizes)
    except ZeroDivisionError:
        return
    for answer, truth in ((dims.equal(a, b), x == y), (dims.less(a, b), x < y), (dims.less_equal(a, b), x <= y)):
        assert answer is None or answer == truth


@settings(max_examples=200, deadline=None)
@given(expressions(), expressions())
def test_equal_polynomials_are_one_object_for_dicts(a, b):
    left, right = dims.add(a, b), dims.add(b, a)
    if left is not None:
        assert left == right
        assert hash(left) == hash(right)
        assert str(left) == str(right)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (dims.mul(N, T), "N*T"),
        (dims.add(dims.floor_div(dims.sub(H, 1), 2), 1), "floordiv(H - 1, 2) + 1"),
        (dims.floor_div(dims.add(H, 1), 2), "floordiv(H - 1, 2) + 1"),
        (dims.floor_div(dims.mul(6, N), 6), "N"),
        (dims.floor_div(dims.add(dims.mul(6, N), 4), 4), "N + floordiv(N, 2) + 1"),
        (dims.floor_div(dims.mul(N, T), N), "T"),
        (dims.floor_div(dims.floor_div(H, 2), 2), "floordiv(H, 4)"),
        (dims.floor_mod(dims.mul(4, N), 2), "0"),
        (dims.floor_mod(dims.mul(4, N), 8), "4*mod(N, 2)"),
        (dims.floor_div(dims.floor_mod(H, 2), 2), "0"),
        (dims.minimum(N, N), "N"),
        (dims.maximum(N, 1), "N"),
        (dims.maximum(dims.sub(N, 1), 0), "N - 1"),
        (dims.minimum(0, dims.sub(N, 1)), "0"),
        (dims.minimum(N, T), "min(N, T)"),
        (dims.minimum(dims.minimum(N, T), dims.minimum(T, 3)), "min(N, T, 3)"),
        (dims.maximum(dims.floor_div(H, 2), H), "H"),
        (dims.sub(dims.mul(2, N), dims.mul(N, 2)), "0"),
        (dims.neg(N), "-N"),
        (dims.mul(N, N), "N**2"),
    ],
)
def test_canonical_text(dim, text):
    assert str(dim) == text


def test_division_rules():
    assert dims.trunc_div(dims.mul(-2, N), 2) == dims.neg(N)
    assert dims.trunc_div(dims.sub(H, 3), 2) is None  # may be negative: truncation is not the floor
    assert dims.trunc_div(dims.sub(H, 1), 2) == dims.floor_div(dims.sub(H, 1), 2)
    assert dims.trunc_div(-7, 2) == -3
    assert dims.floor_div(N, 0) is None
    assert dims.trunc_div(N, 0) is None
    assert as_poly(N * N - 1).exact_div(N - 1) == N + 1
    assert as_poly(N * N + 1).exact_div(N - 1) is None


def test_three_valued_comparison():
    assert dims.equal(N, T) is None
    assert dims.equal(N, 0) is False
    assert dims.equal(N, -1) is False
    assert dims.equal(dims.mul(2, N), 3) is False  # parity
    assert dims.equal(N, 1) is None
    assert dims.less(0, N) is True
    assert dims.less(N, 1) is False
    assert dims.less(N, dims.mul(N, T)) is None
    assert dims.less_equal(N, dims.mul(N, T)) is True
    assert dims.less_equal(dims.floor_div(H, 2), H) is True
    rebuilt = dims.add(dims.mul(2, dims.floor_div(H, 2)), dims.floor_mod(H, 2))
    assert dims.equal(rebuilt, H) is True
    halves = dims.add(dims.floor_div(H, 2), dims.ceil_div(H, 2))
    assert dims.equal(halves, H) is True


def test_overflow_and_growth_are_unknown():
    assert dims.mul(2**40, 2**40) is None
    assert dims.mul(dims.mul(2**40, N), 2**40) is None
    assert dims.add(2**63 - 1, 1) is None
    deep = H
    for _ in range(40):
        deep = dims.floor_div(dims.add(dims.mul(3, deep), T), 2)
    assert deep is None
    with pytest.raises(TooComplex):
        as_poly(2**62) * N * 4


def test_unknown_absorbs():
    assert dims.add(None, 1) is None
    assert dims.mul(None, 0) == 0
    assert dims.minimum(None, N) is None
    assert dims.equal(None, None) is None
    assert not dims.same(None, None)


def test_symbols_and_evaluate():
    dim = dims.add(dims.mul(N, T), dims.floor_div(H, 2))
    assert dim.symbols() == {"N", "T", "H"}
    assert dim.evaluate({"N": 2, "T": 3, "H": 9}) == 10
    with pytest.raises(KeyError):
        dim.evaluate({"N": 2})
