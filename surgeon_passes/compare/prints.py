"""Prints: a few hundred elements of a tensor, always from the same places, by which it is known again without its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surgeon_passes.compare.statistics import is_number
from surgeon_passes.compare.stream import Stream, groups
from surgeon_passes.runtime import Value

SAMPLES = 256
_TELLING = 8
"""Different values that a sample holds at least to be taken for evidence."""
_HALF = {"float16": 1e-2, "bfloat16": 8e-2}
_SAME = 1e-3

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Print:
    """``shapes``: of all runs. ``key``: sizes of all runs, and whether floats, integers or booleans; () for what is no tensor
    of numbers. ``sample``: float64 values at places that depend on the sizes alone. ``top``: max |x| over all runs."""

    key: Key
    shapes: tuple[tuple[int, ...], ...] = ()
    dtype: str = ""
    sample: NDArray[np.float64] | None = None
    top: float = 0.0
    tells: bool = False
    """whether another tensor is unlikely to hold the same by chance"""

    @property
    def is_float(self) -> bool:
        return bool(self.key) and self.key[1] == "f"


def print_of(runs: Sequence[Value]) -> Print:
    """The print of one tensor's values in all runs."""
    if not all(isinstance(run, np.ndarray) and is_number(run) for run in runs):
        return Print(())
    arrays = [np.asarray(run) for run in runs]
    kind = {"i": "i", "u": "i", "b": "b"}.get(arrays[0].dtype.kind, "f")
    parts = [x.reshape(-1)[_places(x.size)].astype(np.float64) for x in arrays]
    sample = np.concatenate(parts) if parts else np.zeros(0)
    finite = sample[np.isfinite(sample)]
    top = max((_top(x) for x in arrays), default=0.0)
    tells = len(np.unique(finite)) >= _TELLING
    key = (tuple(x.size for x in arrays), kind)
    return Print(key, tuple(x.shape for x in arrays), arrays[0].dtype.name, sample, top, tells)


def _top(array: NDArray[Any]) -> float:
    if not array.size:
        return 0.0
    wide = array.astype(np.float32) if array.dtype.kind not in "fiub" else array
    high, low = float(np.nanmax(wide, initial=0.0)), float(np.nanmin(wide, initial=0.0))
    found = max(high, -low)
    return found if np.isfinite(found) else float(np.finfo(np.float32).max)


@lru_cache(maxsize=256)
def _places(size: int) -> NDArray[np.int64]:
    if size <= SAMPLES:
        return np.arange(size)
    return np.sort(np.random.default_rng(size).choice(size, SAMPLES, replace=False))


def take(stream: Stream, names: Iterable[str], sizes: Mapping[str, int], budget: int) -> dict[str, Print]:
    """Prints of tensors of one side, their values held one group at a time. Raises RuntimeFailure."""
    found: dict[str, Print] = {}
    for group in groups(names, sizes, budget):
        runs = stream.values(group)
        for name in group:
            found[name] = print_of([run[name] for run in runs])
    return found


def gap(a: Print, b: Print) -> float:
    """The largest difference of two samples over max |a|; Inf where the tensors are of another kind or size."""
    if not a.key or a.key != b.key or a.sample is None or b.sample is None:
        return float("inf")
    if not a.sample.size:
        return 0.0
    return float(gaps(a.sample[None, :], np.array([a.top]), b)[0])


def gaps(samples: NDArray[np.float64], tops: NDArray[np.float64], b: Print) -> NDArray[np.float64]:
    """:func:`gap` of ``b`` from each row of ``samples``, at once; of the first elements where rows are shorter."""
    assert b.sample is not None
    other = b.sample[: samples.shape[1]]
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.abs(samples - other).max(axis=1, initial=0.0)
    odd = ~np.isfinite(largest)
    if odd.any():
        largest[odd] = _with_odd(samples[odd], other)
    scale = np.where(tops > 0, tops, max(b.top, 1e-300))
    return np.asarray(largest / scale, dtype=np.float64)


def _with_odd(samples: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest differences of rows with NaN or Inf: none where both have the same there."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(samples - other)
    same = (samples == other) | (np.isnan(samples) & np.isnan(other))
    apart = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return np.asarray(apart.max(axis=1), dtype=np.float64)


def same_within(a: Print, b: Print) -> float:
    """Up to which gap two tensors are taken for the same."""
    return max(_SAME, _HALF.get(a.dtype, 0.0), _HALF.get(b.dtype, 0.0))
