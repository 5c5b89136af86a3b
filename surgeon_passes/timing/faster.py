"""Rules without which a model is faster: a merge may suit ONNX Runtime's kernels worse than what it replaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from surgeon_passes.attempt import Attempt
from surgeon_passes.decisions import UNDONE, Decision
from surgeon_passes.runtime import RuntimeFailure
from surgeon_passes.timing.interleaved import Ratio, interleaved, ratio
from surgeon_passes.timing.latency import SESSIONS, feeds_of, unmeasurable

if TYPE_CHECKING:
    from surgeon_passes.result import Result
    from surgeon_passes.verify.feeds import Feeds

FASTER = 0.98
"""A ratio whose 95 % interval lies below is a model that is faster without a rule."""
SECONDS = 0.6
"""Time for each of the models that are run in turn."""
TOGETHER = 6
"""Models that are run in turn at a time."""


def keep_if_faster(
    attempt: Attempt, result: Result, rules: Sequence[str], left_out: Sequence[str] = (), threads: int = 1
) -> Result:
    """The result without those of ``rules`` whose removal makes it faster, one by one, the costliest first.

    ``left_out`` is what was left out of ``result`` already. Stages stay those of ``result``.
    """
    reason = unmeasurable(result)
    if reason:
        result.notes.append(f"keep-if-faster: not measured: {reason}")
        return result
    try:
        feeds = feeds_of(result)
        found = _search(attempt, result, rules, tuple(left_out), feeds, threads)
    except RuntimeFailure as failure:
        result.notes.append(f"keep-if-faster: not measured: {failure}")
        return result
    if found is not result:  # what was left out for a metric is told all the same
        found.stages = result.stages
        found.decided += [Decision(n, "", "", UNDONE, reason=s.undone) for s in result.stages for n in s.guilty]
    return found


def _search(
    attempt: Attempt, result: Result, rules: Sequence[str], left_out: tuple[str, ...], feeds: Feeds, threads: int
) -> Result:
    undone: list[Decision] = []
    suspects = list(dict.fromkeys(d.rule for d in result.applied if d.rule in rules))
    while suspects:
        without = {name: attempt((*left_out, name), None) for name in suspects}
        found = _ratios(result, without, feeds, threads)
        faster = {name: one for name, one in found.items() if one.high < FASTER}
        if not faster:
            break
        name = min(faster, key=lambda n: faster[n].median)
        times = sum(d.rule == name for d in result.applied)
        reason = f"without its {times} rewrites the model takes {faster[name]} of the time"
        undone.append(Decision(name, "", "", UNDONE, reason=reason))
        left_out, result = (*left_out, name), without[name]
        applied = {d.rule for d in result.applied}
        suspects = [n for n in faster if n != name and n in applied]
    result.decided += undone
    return result


def _ratios(result: Result, without: Mapping[str, Result], feeds: Feeds, threads: int) -> dict[str, Ratio]:
    """Time without a rule over time with it; rules whose removal changes nothing are left out."""
    changed = [n for n, other in without.items() if _bytes(other) != _bytes(result)]
    found: dict[str, Ratio] = {}
    for start in range(0, len(changed), TOGETHER):
        names = changed[start : start + TOGETHER]
        times = interleaved(
            partial(_runs, {"": result, **{n: without[n] for n in names}}, feeds, threads),
            SECONDS * (len(names) + 1),
            blocks=SESSIONS,
        )
        found.update({n: ratio(times[n], times[""]) for n in names})
    return found


def _runs(results: Mapping[str, Result], feeds: Feeds, threads: int) -> dict[str, partial[Any]]:
    from surgeon_passes.verify import open_model

    opened = {n: open_model((r.light, r.weights), level="all", threads=threads) for n, r in results.items()}
    return {name: partial(runner.run, feeds) for name, runner in opened.items()}


def _bytes(result: Result) -> bytes:
    return result.light.SerializeToString(deterministic=True)


__all__ = ["keep_if_faster"]
