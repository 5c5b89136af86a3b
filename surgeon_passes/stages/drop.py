"""A run that leaves out what costs more of a metric than it may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from surgeon_passes.attempt import Attempt
from surgeon_passes.decisions import UNDONE, Decision
from surgeon_passes.runtime import RuntimeFailure
from surgeon_passes.stages.measure import Metrics, drift, latencies, sized
from surgeon_passes.stages.recorder import Recorder, Shot
from surgeon_passes.stages.stage import Stage, Stages

if TYPE_CHECKING:
    from surgeon_passes.result import Result


def run_in_stages(attempt: Attempt, options: Stages) -> tuple[Result, tuple[str, ...]]:
    """The result with its stages, and the names of the passes, rules and edits that were left out for the metric.

    Raises UsageError where the metric fails.
    """
    metrics = None if options.evaluate is None else Metrics(options.evaluate)
    left_out: tuple[str, ...] = ()
    undone: list[Stage] = []
    while True:
        recorder = Recorder()
        result = attempt(left_out, recorder)
        shots = recorder.shots
        values = [None if metrics is None else metrics.of(shot) for shot in shots]
        place = None if metrics is None else _costly(values, options.max_drop)
        if metrics is None or place is None:
            break
        guilty = tuple(_guilty(attempt, left_out, shots, place, metrics, options.max_drop or 0.0))
        stage = sized(shots[place], values[place])
        fall = f"the metric fell from {values[place - 1]:.6g} to {values[place]:.6g}"
        reason = f"{fall}; {options.max_drop:.6g} less is allowed"
        undone.append(replace(stage, undone=reason, guilty=guilty))
        left_out = (*left_out, *guilty)
    result.stages = (*_measured(result, shots, values, options), *undone)
    result.decided += [Decision(n, "", "", UNDONE, reason=s.undone) for s in undone for n in s.guilty]
    return result, left_out


def _costly(values: Sequence[float | None], allowed: float | None) -> int | None:
    """The first stage that costs more than ``allowed``."""
    for place, (before, after) in enumerate(pairwise(values), start=1):
        if allowed is not None and before is not None and after is not None and before - after > allowed:
            return place
    return None


def _guilty(
    attempt: Attempt, left_out: Sequence[str], shots: Sequence[Shot], place: int, metrics: Metrics, allowed: float
) -> Iterator[str]:
    """The one rule or edit of a stage without which it costs no more than it may; else the whole pass."""
    shot = shots[place]
    if len(shot.edits) > 1:
        for name in shot.edits:
            recorder = Recorder()
            attempt((*left_out, name), recorder)
            if not _falls(recorder.shots, shot, metrics, allowed):
                yield name
                return
    yield from shot.edits if len(shot.edits) == 1 else (shot.name,)


def _falls(shots: Sequence[Shot], like: Shot, metrics: Metrics, allowed: float) -> bool:
    """Whether the stage of the same pass and round costs more than is allowed. Where it has gone, it does not."""
    for before, after in pairwise(shots):
        if (after.name, after.round) == (like.name, like.round):
            return metrics.of(before) - metrics.of(after) > allowed
    return False


def _measured(
    result: Result, shots: Sequence[Shot], values: Sequence[float | None], options: Stages
) -> Iterator[Stage]:
    from surgeon_passes.timing.latency import feeds_of, unmeasurable

    reason = unmeasurable(result) if options.latency else ""
    if reason:
        result.notes.append(f"stages: no latency was measured: {reason}")
    try:
        feeds = feeds_of(result)
        timed = options.latency and not reason
        times = latencies(shots, feeds, options.threads) if timed else [None] * len(shots)
    except RuntimeFailure as failure:
        result.notes.append(f"stages: neither latency nor drift was measured: {failure}")
        yield from (sized(shot, value) for shot, value in zip(shots, values, strict=True))
        return
    for shot, value, time in zip(shots, values, times, strict=True):
        error, tensor = None, ""
        if shot is not shots[0]:
            try:
                error, tensor = drift(shots[0], shot, feeds)
            except RuntimeFailure as failure:
                result.notes.append(f"stages: the drift of {shot.name} was not measured: {failure}")
        yield replace(sized(shot, value, feeds), latency=time, drift=error, drift_at=tensor)
