"""Several models run in turn in one process, and how much faster one is than another, with an interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from surgeon_passes.runtime import Array

BLOCKS = 5
"""Times that all sessions are made anew: two sessions of one model may differ by some per cent."""
ROUNDS = 30
"""Rounds of a block, at most."""
MIN_ROUNDS = 4
SAMPLE = 0.001
"""Seconds that one sample takes at least: shorter runs are repeated."""
RESAMPLED = 2000

Runs: TypeAlias = Mapping[str, Callable[[], Any]]
Blocks: TypeAlias = Sequence[Sequence[float]]
"""Seconds of one run, round by round, of each block."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time over that of the original: the median over rounds, and its 95 % interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} [{self.low:.2f}, {self.high:.2f}]"


def interleaved(
    make: Callable[[], Runs], seconds: float, seed: int = 0, blocks: int = BLOCKS
) -> dict[str, list[list[float]]]:
    """Seconds of one run, by name a list a block. ``make`` gives runs on new sessions for each of the ``blocks``; all take
    about ``seconds``.

    Within a round every run is made once, in an order that is drawn anew.
    """
    random = np.random.default_rng(seed)
    found: dict[str, list[list[float]]] = {}
    for _ in range(blocks):
        runs = make()
        for name, times in _block(runs, seconds / blocks, random).items():
            found.setdefault(name, []).append(times)
    return found


def _block(runs: Runs, seconds: float, random: np.random.Generator) -> dict[str, list[float]]:
    repeats = {name: _repeats(run) for name, run in runs.items()}
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    end = time.perf_counter() + seconds
    for number in range(ROUNDS):
        if number >= MIN_ROUNDS and time.perf_counter() >= end:
            break
        for name in random.permutation(names):
            run = runs[name]
            began = time.perf_counter()
            for _ in range(repeats[name]):
                run()
            times[name].append((time.perf_counter() - began) / repeats[name])
    return times


def _repeats(run: Callable[[], Any]) -> int:
    """Runs that one sample holds; they warm the session up, too."""
    run()
    began = time.perf_counter()
    run()
    return max(1, int(np.ceil(SAMPLE / max(time.perf_counter() - began, 1e-7))))


def ratio(times: Blocks, base: Blocks, seed: int = 0) -> Ratio:
    """``times`` over ``base``, round by round; both hold the same rounds of the same blocks.

    The interval is a bootstrap in two steps: blocks are drawn, then rounds within each, since sessions differ, too.
    """
    blocks = [np.asarray(a) / np.asarray(b) for a, b in zip(times, base, strict=True)]
    random = np.random.default_rng(seed)
    draws = [np.median(_drawn(blocks, random)) for _ in range(RESAMPLED)]
    low, high = np.quantile(draws, (0.025, 0.975))
    return Ratio(float(np.median(np.concatenate(blocks))), float(low), float(high))


def _drawn(blocks: Sequence[Array], random: np.random.Generator) -> Array:
    chosen = random.integers(0, len(blocks), len(blocks))
    return np.concatenate([random.choice(blocks[k], len(blocks[k])) for k in chosen])
