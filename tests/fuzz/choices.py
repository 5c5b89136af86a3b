"""Where choices come from: hypothesis, which shrinks what fails, or a seed, which is even and quick."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
from hypothesis import strategies as st

T = TypeVar("T")


class Choices(Protocol):
    def pick(self, options: Sequence[T]) -> T:
        """One of the options; the simplest first."""

    def number(self, low: int, high: int) -> int:
        """``high`` included."""

    def order(self, count: int) -> list[int]:
        """A permutation of range(count)."""


class Drawn:
    """Choices of hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def pick(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def order(self, count: int) -> list[int]:
        return list(self._draw(st.permutations(range(count))))


class Seeded:
    """Choices of a generator of random numbers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def order(self, count: int) -> list[int]:
        return self._random.sample(range(count), count)


def flip(choices: Choices) -> bool:
    return choices.pick((False, True))


def odds(choices: Choices, one_in: int) -> bool:
    """True once in so many; simplest is False."""
    return choices.number(0, one_in - 1) == one_in - 1


def noise(choices: Choices) -> np.random.Generator:
    """Numbers for weights."""
    return np.random.default_rng(choices.number(0, 1 << 16))
