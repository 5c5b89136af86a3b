"""Interleaved runs and the interval of their ratio."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from surgeon_passes.timing import interleaved as timing
from surgeon_passes.timing.interleaved import BLOCKS, MIN_ROUNDS, interleaved, ratio


def noisy(scale: float, seed: int) -> list[list[float]]:
    random = np.random.default_rng(seed)
    return [list(scale * random.uniform(0.98, 1.02, 30)) for _ in range(BLOCKS)]


def test_sessions_are_made_anew_and_runs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SAMPLE", 0.0)
    made, order = [0], list[str]()

    def make() -> dict[str, Callable[[], None]]:
        made[0] += 1
        return {name: lambda name=name: order.append(name) for name in "abc"}  # type: ignore[misc]

    times = interleaved(make, seconds=0.0)
    assert made == [BLOCKS]
    assert {name: [len(block) for block in blocks] for name, blocks in times.items()} == {
        name: [MIN_ROUNDS] * BLOCKS for name in "abc"
    }
    first = order[6 : 6 + 3 * MIN_ROUNDS]  # behind two runs of each that warm it up
    rounds = [first[k : k + 3] for k in range(0, len(first), 3)]
    assert all(Counter(one) == Counter("abc") for one in rounds) and len({tuple(one) for one in rounds}) > 1


def test_short_runs_are_repeated_within_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = (4e-4 * number for number in itertools.count())  # each look at the clock is 0.4 ms later
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    ran = [0]
    interleaved(lambda: {"a": lambda: ran.__setitem__(0, ran[0] + 1)}, seconds=0.0)
    assert ran[0] == BLOCKS * (2 + 3 * MIN_ROUNDS)


def test_the_interval_holds_the_ratio() -> None:
    found = ratio(noisy(3.0, 1), noisy(4.0, 2))
    assert found.low < 0.75 < found.high and found.high - found.low < 0.03
    assert str(found) == "0.75 [0.75, 0.75]" or str(found).startswith("0.75 [0.7")
    assert ratio(noisy(3.0, 1), noisy(4.0, 2)) == found


def test_drift_that_all_share_does_not_widen_it() -> None:
    drift = np.linspace(1, 5, 30)
    base = [list(drift * b) for b in noisy(1.0, 3)]
    found = ratio([list(np.asarray(b) * 2) for b in base], base)
    assert found.low == pytest.approx(2) and found.high == pytest.approx(2)


def test_sessions_that_differ_widen_it() -> None:
    """One block of five is 20 per cent slower: the interval must not be as narrow as 150 equal rounds would make it."""
    slower = [[1.2] * 30, *[[1.0] * 30] * 4]
    found = ratio(slower, [[1.0] * 30] * 5)
    assert (found.median, found.low) == (1.0, 1.0)
    uneven = ratio([[1.2] * 30, [1.2] * 30, *[[1.0] * 30] * 3], [[1.0] * 30] * 5)
    assert (uneven.median, uneven.high) == (1.0, 1.2)
