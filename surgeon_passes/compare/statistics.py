"""What is told of a tensor's values, and of two tensors' that should be the same.

Everything is computed in float64 from the finite elements; NaN and Inf are counted. Arrays may have any shape; several
runs of one tensor are given as several arrays, and told of as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surgeon_passes.runtime import Array
from surgeon_passes.verify.compare import is_float

QUANTILES = (1, 5, 25, 50, 75, 95, 99)
"""per cent"""
BINS = 128
_SMOOTHING = 1e-6
_PLAIN = "biuf"

Wide = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Summary:
    """One tensor. ``shape`` is that of the first run; the numbers are of all runs' finite elements, None where there are
    none. ``variance`` is the population's; ``quantiles`` are by per cent, linearly interpolated (Hyndman and Fan's type 7,
    numpy's default)."""

    shape: tuple[int, ...]
    dtype: str
    mean: float | None = None
    variance: float | None = None
    max_abs: float | None = None
    quantiles: Mapping[int, float] = field(default_factory=dict)
    nan: int = 0
    inf: int = 0

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        found["shape"] = list(self.shape)
        found["quantiles"] = {str(k): v for k, v in self.quantiles.items()}
        return found


@dataclass(frozen=True, slots=True)
class Distance:
    """Two tensors ``a``, the reference, and ``b`` of equal shapes; places where either is not finite are left out.

    ``cosine``: a·b / (|a| |b|), 1 where both are zero, None where only one is.
    ``sqnr``: the signal-to-quantisation-noise ratio in dB, 10 log10(Σ a² / Σ (a - b)²), as in Lin, Talathi and
    Annapureddy, "Fixed Point Quantization of Deep Convolutional Networks" (ICML 2016); Inf where a and b are equal.
    ``max_abs``: max |a - b|. ``relative``: the relative error in the Euclidean norm, |a - b| / |a|.
    ``kl``: the Kullback-Leibler divergence (Kullback and Leibler, 1951) in nats of the histograms of a and b over their
    common range, Σ p ln(p / q), in :data:`BINS` equal bins; 1e-6 is added to each bin's share, as calibration by
    entropy does for empty bins, and the shares are normalised again.
    """

    cosine: float | None
    sqnr: float | None
    max_abs: float
    relative: float | None
    kl: float | None


def summarize(runs: Sequence[Array]) -> Summary:
    """Numbers of one tensor; of one that holds texts or the like only shape and dtype."""
    first = runs[0]
    if not all(map(is_number, runs)):
        return Summary(first.shape, first.dtype.name)
    flat = _flat(runs)
    finite = np.isfinite(flat)
    nan, inf = int(np.isnan(flat).sum()), int(np.isinf(flat).sum())
    values = flat if finite.all() else flat[finite]
    if not values.size:
        return Summary(first.shape, first.dtype.name, nan=nan, inf=inf)
    cuts = np.percentile(values, QUANTILES)
    return Summary(
        first.shape,
        first.dtype.name,
        float(values.mean()),
        float(values.var()),
        float(np.abs(values).max()),
        {q: float(v) for q, v in zip(QUANTILES, cuts, strict=True)},
        nan,
        inf,
    )


def distance(a: Sequence[Array], b: Sequence[Array]) -> Distance | None:
    """How far ``b`` is from ``a``; None where shapes differ, nothing is left to compare, or they hold no numbers."""
    if [x.shape for x in a] != [y.shape for y in b] or not all(map(is_number, (*a, *b))):
        return None
    x, y = _flat(a), _flat(b)
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.all():
        x, y = x[finite], y[finite]
    if not x.size:
        return None
    gap = x - y
    signal, noise = _dot(x, x), _dot(gap, gap)
    return Distance(
        cosine(x, y),
        _sqnr(signal, noise),
        float(max(gap.max(), -gap.min())),
        float(np.sqrt(noise / signal)) if signal else (0.0 if not noise else None),
        divergence(x, y),
    )


def is_number(array: Array) -> bool:
    """Whether an array holds real numbers or booleans (bfloat16 and float8 included)."""
    return array.dtype.kind in _PLAIN or (array.dtype.kind == "V" and is_float(array))


def cosine(x: Wide, y: Wide) -> float | None:
    """Of two vectors: 1 where both are zero, None where one is."""
    with np.errstate(over="ignore", under="ignore"):
        squares = _dot(x, x), _dot(y, y)
        if not all(1e-100 < s < 1e100 for s in squares):  # what is tiny or huge leaves the range
            top = float(np.abs(x).max()), float(np.abs(y).max())
            if not all(top):
                return None if any(top) else 1.0
            x, y = x / top[0], y / top[1]
            squares = _dot(x, x), _dot(y, y)
    return float(np.clip(_dot(x, y) / np.sqrt(squares[0] * squares[1]), -1.0, 1.0))


def divergence(x: Wide, y: Wide) -> float | None:
    """The Kullback-Leibler divergence of histograms, in nats: 0 where both are the same constant."""
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    if low == high:
        return 0.0
    if not low / 2 > high / 2 - np.finfo(np.float64).max / 2 or (high - low) / BINS == 0:
        return None  # their range, or a bin's width, is no number
    p, q = (_shares(v, low, high) for v in (x, y))
    return max(0.0, float(np.sum(p * np.log(p / q))))


def _shares(values: Wide, low: float, high: float) -> Wide:
    """Of each bin, smoothed."""
    places = np.clip(((values - low) * (BINS / (high - low))).astype(np.int64), 0, BINS - 1)
    shares = np.bincount(places, minlength=BINS) / values.size + _SMOOTHING
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _sqnr(signal: float, noise: float) -> float | None:
    if not noise:
        return float("inf")
    return float(10 * np.log10(signal / noise)) if signal else None


def _dot(x: Wide, y: Wide) -> float:
    """On one thread, and the same on any machine."""
    return float(np.einsum("i,i->", x, y))


def _flat(runs: Sequence[Array]) -> Wide:
    parts = [np.asarray(run).reshape(-1).astype(np.float64) for run in runs]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
