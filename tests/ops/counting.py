"""An independent counter of multiplications: operators carried out, by their definitions, on numbers that count them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np


class Counter:
    """Makes arrays whose elements count when one is multiplied by another."""

    def __init__(self) -> None:
        self.count = 0

    def array(self, *shape: int) -> Any:
        found = np.empty(shape, object)
        found.fill(_Number(self))
        return found


class _Number:
    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def __mul__(self, other: object) -> _Number:
        self._counter.count += 1
        return self

    def __add__(self, other: object) -> _Number:
        return self

    __radd__ = __add__


def convolution(
    x: Sequence[int],
    w: Sequence[int],
    group: int = 1,
    stride: int = 1,
    dilation: int = 1,
    pad: int = 0,
) -> int:
    """x [N, C, spatial...], w [M, C / group, kernel...]: a window of the padded input times a kernel, at each place."""
    count = Counter()
    data = count.array(x[0], x[1], *(size + 2 * pad for size in x[2:]))
    kernel = count.array(*w)
    places = [range(0, size - dilation * (k - 1), stride) for size, k in zip(data.shape[2:], w[2:], strict=True)]
    per_group = w[0] // group
    for n, m in itertools.product(range(x[0]), range(w[0])):
        first = m // per_group * w[1]
        for place in itertools.product(*places):
            window = tuple(slice(p, p + dilation * (k - 1) + 1, dilation) for p, k in zip(place, w[2:], strict=True))
            np.dot(data[(n, slice(first, first + w[1]), *window)].ravel(), kernel[m].ravel())
    return count.count


def transposed(x: Sequence[int], w: Sequence[int], group: int = 1) -> int:
    """x [N, C, spatial...], w [C, M / group, kernel...]: each element of the input times the kernels of its channel."""
    count = Counter()
    data, kernel = count.array(*x), count.array(*w)
    for n, c in itertools.product(range(x[0]), range(x[1])):
        np.multiply.outer(data[n, c].ravel(), kernel[c].ravel())
    return count.count


def matmul(a: Sequence[int], b: Sequence[int]) -> int:
    count = Counter()
    np.matmul(count.array(*a), count.array(*b))
    return count.count


def einsum(steps: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> int:
    """Two operands at a time."""
    count = Counter()
    for equation, a, b in steps:
        np.einsum(equation, count.array(*a), count.array(*b))
    return count.count


def recurrent(gates: int, steps: int, batch: int, size: int, hidden: int, directions: int) -> int:
    """Each step: the input and the state, times the weights of all gates."""
    count = Counter()
    for _ in range(directions * steps):
        np.matmul(count.array(batch, size), count.array(size, gates * hidden))
        np.matmul(count.array(batch, hidden), count.array(hidden, gates * hidden))
    return count.count


def attention(batch: int, heads: int, queries: int, keys: int, size: int, value_size: int) -> int:
    """Scores, then values weighted by them."""
    count = Counter()
    np.matmul(count.array(batch, heads, queries, size), count.array(batch, heads, size, keys))
    np.matmul(count.array(batch, heads, queries, keys), count.array(batch, heads, keys, value_size))
    return count.count
