"""Edits against their verdicts: what is refuted is undone, alone."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from surgeon_passes.decisions import APPLIED, CONFLICT, REFUTED, UNDONE, UNVERIFIED, VERIFIED, Decision
from surgeon_passes.passes.state import State
from surgeon_passes.region import Verdict
from surgeon_passes.rules.journal import Edit, connected, region_of

Judged: TypeAlias = tuple[list[Edit], Verdict]


def settle(state: State, edits: Sequence[Edit]) -> list[Edit]:
    """Check the edits of one sweep, undo what must not stand, and give what stands. The journal is emptied."""
    if state.check is None:
        for edit in edits:
            _accept(state, edit, Verdict(UNVERIFIED, reason="verification is off"))
        state.rewriter.journal.forget()
        return list(edits)
    state.index.sync_bodies()
    groups = connected(edits)
    verdicts = _checked(state, groups)
    standing, failed = _divided(state, list(zip(groups, verdicts, strict=True)))
    kept: list[Edit] = []
    for group, verdict in standing:
        kept += group
        for edit in group:
            _accept(state, edit, verdict)
    if failed:
        kept += _bisect(state, failed)
    state.rewriter.journal.forget()
    return kept


def _divided(state: State, judged: list[Judged]) -> tuple[list[Judged], list[Judged]]:
    """Groups that stand, and those that do not: a value that a failed edit made may have been read by an edit far from it,
    which is right only as long as the other is there."""
    standing: list[Judged] = []
    failed: list[Judged] = []
    for one in judged:
        (standing if _stands(state, one[1]) else failed).append(one)
    fallen = failed
    while fallen:
        brought = set[Hashable]().union(*(edit.brought() for group, _ in fallen for edit in group))
        fallen = [one for one in standing if any(edit.reads_of(brought) for edit in one[0])]
        gone = set(map(id, fallen))
        standing = [one for one in standing if id(one) not in gone]
        failed = [*failed, *fallen]
    return standing, failed


def _checked(state: State, groups: Sequence[Sequence[Edit]]) -> list[Verdict]:
    assert state.check is not None
    verdicts = state.check([region_of(group) for group in groups])
    return [
        Verdict(VERIFIED, reason=f"the same nodes, moved; alone they do not run: {v.reason}")
        if v.status == UNVERIFIED and all(e.moved_whole for e in group)
        else v
        for group, v in zip(groups, verdicts, strict=True)
    ]


def _stands(state: State, verdict: Verdict) -> bool:
    if verdict.status == VERIFIED:
        return True
    return verdict.status == UNVERIFIED and state.verify.mode == "available"


def _bisect(state: State, failed: list[Judged]) -> list[Edit]:
    """Undo the failed groups, then do again what is sound by itself and as a whole."""
    assert state.check is not None
    for group, _ in reversed(failed):
        for edit in reversed(group):
            state.rewriter.journal.undo(edit)
    state.evaluator.forget()
    state.index.sync_bodies()
    alone = [edit for group, _ in failed if len(group) > 1 for edit in group]
    singles = dict(zip(map(id, alone), _checked(state, [[e] for e in alone]), strict=True)) if alone else {}
    kept: list[Edit] = []
    for group, whole in failed:
        again = []
        for edit in group:
            verdict = singles.get(id(edit), whole)
            if _stands(state, verdict):
                again.append((edit, verdict))
            else:
                _reject(state, edit, verdict)
        drifts = whole.status == REFUTED and len(again) == len(group) > 1
        if drifts:  # no edit fails alone: together they go too far
            for edit, _ in again:
                _reject(state, edit, whole)
            continue
        kept += _redo(state, again)
    return kept


def _redo(state: State, edits: list[tuple[Edit, Verdict]]) -> list[Edit]:
    done = []
    for edit, verdict in edits:
        if state.rewriter.journal.can_redo(edit):
            state.rewriter.journal.apply(edit)
            done.append((edit, verdict))
        else:
            edit.decision.status = CONFLICT
            edit.decision.reason = "it builds on a rewrite that was undone; tried again in the next sweep"
            state.decide(edit.decision)
    if len(done) > 1:
        state.index.sync_bodies()
        whole = _checked(state, [[edit for edit, _ in done]])[0]
        if whole.status == REFUTED:  # each is sound alone; together they are not
            for edit, _ in reversed(done):
                state.rewriter.journal.undo(edit)
            state.evaluator.forget()
            for edit, _ in done:
                _reject(state, edit, whole)
            return []
    for edit, verdict in done:
        _accept(state, edit, verdict)
    return [edit for edit, _ in done]


def _accept(state: State, edit: Edit, verdict: Verdict) -> None:
    decision = edit.decision
    decision.status, decision.verdict = APPLIED, verdict.status
    decision.reason = verdict.reason
    _measure(decision, verdict)
    state.decide(decision)
    state.applied.append(decision)


def _reject(state: State, edit: Edit, verdict: Verdict) -> None:
    decision = edit.decision
    decision.status, decision.verdict = UNDONE, verdict.status
    decision.reason = verdict.reason
    _measure(decision, verdict)
    if verdict.status == REFUTED and not decision.reason:
        decision.reason = f"error {verdict.error} at '{verdict.tensor}'"
    state.refuted.add(edit.key())
    state.decide(decision)


def _measure(decision: Decision, verdict: Verdict) -> None:
    if verdict.error is not None or verdict.tensor:
        found = {"max_error": verdict.error, "mean_error": verdict.mean, "tensor": verdict.tensor}
        decision.metrics = {**decision.metrics, **found}
