"""What is asked of a made-up operand: for which operator, at which place, beside which others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Unfit(Exception):
    """What was drawn so far leaves no way to go on: draw anew."""


ODD = (ValueError, IndexError, ZeroDivisionError)
"""What comes of shapes that no maker has thought of (a dim of 0, no axis at all)."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph under construction; ``array`` is its value where it is an input or constant."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    array: Array | None = None

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True)
class Slot:
    """``place`` of operator ``op``. ``operands`` are those that are there already (None elsewhere), ``given`` says which
    will be; ``keeps``: weights and windows keep shapes, so that branches fit each other; ``ranks`` are likely ranks."""

    op: str
    place: int
    operands: Sequence[Tensor | None]
    given: Sequence[bool]
    attrs: Mapping[str, Any]
    dtype: np.dtype[Any]
    rng: np.random.Generator
    const: bool = False
    keeps: bool = True
    ranks: Sequence[int] = (4, 3, 2, 4, 3, 2, 1, 0, 5)
    opset: int = 20
    outputs: int = 1
    others: Sequence[tuple[int, ...]] = field(default=())
    """shapes of tensors that the graph holds already"""
    indexes: bool = False
    """whether integers may come to be indices"""
    first: np.dtype[Any] | None = None
    """the type of the first input"""

    def one_of(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def size(self, low: int, high: int) -> int:
        """Both ends are possible."""
        return int(self.rng.integers(low, high + 1))

    def at(self, place: int) -> Tensor:
        """The operand at ``place``; Unfit where it is not there yet."""
        found = self.operands[place] if place < len(self.operands) else None
        if found is None:
            raise Unfit
        return found

    def known(self, *places: int) -> Tensor | None:
        """The first of the operands at ``places`` that is there."""
        return next((t for p in places if p < len(self.operands) and (t := self.operands[p]) is not None), None)

    def rank(self, least: int = 1) -> int:
        """Of the first operand. Unfit below ``least``."""
        rank = self.at(0).rank
        if rank < least:
            raise Unfit
        return rank

    def axis(self, name: str = "axis", default: int = 0, rank: int | None = None) -> int:
        rank = self.at(0).rank if rank is None else rank
        axis = int(self.attrs.get(name, default))
        axis = axis + rank if axis < 0 else axis
        if not 0 <= axis < max(rank, 1):
            raise Unfit
        return axis

    # --- arrays ------------------------------------------------------------------------------------------------------

    def random(self, shape: Sequence[int]) -> Array:
        """Normal floats, small integers, coin flips; a constant one may be one number throughout."""
        if self.dtype == np.bool_ and self.chance(0.4):
            return np.full(tuple(shape), self.chance(0.6))
        if self.dtype == np.bool_:
            return self.rng.integers(0, 2, tuple(shape)).astype(np.bool_)
        if self.const and self.chance(0.45):
            return np.full(tuple(shape), self.number(), self.dtype)
        if self.dtype.kind in "iu":
            low = 1 if self.dtype.kind == "u" or self.op in ("Div", "Mod") else -5
            if self.indexes:
                return self.rng.integers(0, 2, tuple(shape)).astype(self.dtype)
            return self.rng.integers(low, 6, tuple(shape)).astype(self.dtype)
        drawn = self.rng.standard_normal(tuple(shape))
        if self.op == "Div" and self.place == 1:
            drawn = np.sign(drawn + 1e-9) * (0.5 + np.abs(drawn))
        return np.asarray(drawn, dtype=np.float64).astype(self.dtype)

    def number(self) -> float:
        """A number as rules look for: neutral elements, halves, bounds, small epsilons."""
        if self.dtype.kind in "iub":
            return float(self.one_of(0, 1, 1, 2, 3))
        found = float(self.one_of(0.0, 1.0, 1.0, 0.5, 2.0, -1.0, 0.1, 3.0, 6.0, 1 / 6, 1e-5, 1e-6, 20.0))
        return 2.0 if found == 0 and self.op == "Div" and self.place == 1 else found

    def positive(self, shape: Sequence[int]) -> Array:
        return np.asarray(0.5 + self.rng.random(tuple(shape))).astype(self.dtype)

    def weights(self, shape: Sequence[int]) -> Array:
        """Normal, scaled so that sums stay near one."""
        fan = max(1, int(np.prod(shape[1:])) if len(shape) > 1 else 1)
        return np.asarray(self.rng.standard_normal(tuple(shape)) / np.sqrt(fan)).astype(self.dtype)

    def ints(self, values: Sequence[int]) -> Array:
        """Of the slot's type; what is beyond it is the largest there is."""
        dtype = self.dtype if self.dtype.kind in "iu" else np.dtype(np.int64)
        found = np.asarray(values, dtype=np.int64)
        return np.clip(found, np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)

    def shape(self) -> tuple[int, ...]:
        """A shape by itself, sometimes one that the graph has already. In half precision it is no small one: an error is
        measured over the largest element, and of a few all may be next to nothing."""
        if self.others and self.chance(0.4):
            return tuple(self.one_of(*self.others))
        found = self.image(int(self.one_of(*self.ranks)))
        return found if self.dtype != np.float16 or np.prod(found) >= 16 else (*found[:-1], 16)

    def image(self, rank: int) -> tuple[int, ...]:
        if rank == 0:
            return ()
        head = [self.one_of(1, 1, 2, 3), self.one_of(4, 4, 2, 8, 1, 3, 6)][:rank]
        return (*head, *(self.one_of(6, 4, 5, 8, 8, 1) for _ in range(rank - 2)))
