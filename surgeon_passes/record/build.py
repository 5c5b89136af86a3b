"""The decision record of a run: plain data, the one source of what reports say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from surgeon_passes.costs import ModelCost, model_cost
from surgeon_passes.decisions import APPLIED, CONFLICT, DECLINED, UNDONE
from surgeon_passes.model import import_model
from surgeon_passes.record.matches import match_record, number, plain
from surgeon_passes.record.places import Places
from surgeon_passes.record.source import options_record, result_record, source_record, tools
from surgeon_passes.traces import StepTrace

if TYPE_CHECKING:
    from surgeon_passes.report.counts import Counts
    from surgeon_passes.result import Result
    from surgeon_passes.stages.stage import Stage
    from surgeon_passes.timing.latency import Latency

FORMAT = "surgeon-passes decisions"
VERSION = 1


def record(result: Result) -> dict[str, Any]:
    """The record of ``result``, which JSON can hold; ``schema.json`` beside this file describes it.

    Raises ModelError where the model's weights cannot be read any more.
    """
    before, after = _costs(result)
    places = Places(import_model(result.original, result.source, result.weights)) if result.original else None
    matches = [d for d in result.decided if d.status != DECLINED]
    where = places.of(matches) if places is not None else [None] * len(matches)
    misses = [d for d in result.decisions if d.status == DECLINED]
    around = places.of(misses) if places is not None else [None] * len(misses)
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "tools": tools(),
        "options": options_record(result),
        "seed": result.verify.seed,
        "source": source_record(result),
        "result": result_record(result),
        "before": _counts(result.before, before),
        "after": _counts(result.after, after),
        "checks": _checks(result),
        "run": {
            "seconds": round(result.seconds, 6),
            "iterations": result.iterations,
            "converged": result.converged,
            "exit_code": result.exit_code,
            "isolated": result.isolated,
        },
        "passes": [_step(step) for step in result.ran.steps],
        "rules": _rules(result),
        "matches": [match_record(d, n, p) for n, (d, p) in enumerate(zip(matches, where, strict=True))],
        "near_misses": [match_record(d, n, p) for n, (d, p) in enumerate(zip(misses, around, strict=True))],
        "dynamic": _dynamic(result),
        "blocks": [
            {
                "node": b.node,
                "graph": b.graph,
                "tensor": b.tensor,
                "branches": list(b.branches),
                "reason": b.reason,
            }
            for b in result.blocks
        ],
        "latency": None if result.latency is None else _latency(result.latency),
        "stages": [_stage(stage) for stage in result.stages],
        "health": [
            {"kind": f.kind, "severity": f.severity, "text": f.text, "where": list(f.where)} for f in result.health
        ],
        "settings": list(result.settings),
        "notes": list(result.notes),
    }


def _costs(result: Result) -> tuple[ModelCost, ModelCost]:
    after = model_cost(import_model(result.light, result.source, result.weights), result.checked_at)
    if result.original is None:
        return after, after
    return model_cost(import_model(result.original, result.source, result.weights), result.checked_at), after


def _counts(counts: Counts, cost: ModelCost) -> dict[str, Any]:
    return {
        "nodes": counts.nodes,
        "operators": dict(sorted(counts.operators.items())),
        "constants": counts.constants,
        "constant_bytes": counts.bytes,
        "parameters": cost.parameters,
        "macs": number(cost.macs),
        "macs_at": {"sizes": dict(cost.sizes), "macs": cost.at},
        "macs_unknown": list(cost.unknown),
        "costs": [
            {
                "node": node.label,
                "op": node.op,
                "graph": node.graph,
                "macs": number(node.macs),
                "parameters": node.parameters,
            }
            for node in cost.nodes
            if node.parameters or node.macs is None or not (isinstance(node.macs, int) and node.macs == 0)
        ],
    }


def _checks(result: Result) -> dict[str, Any]:
    check = result.check
    end: dict[str, Any] = {"status": "off", "error": None, "noise": None, "output": "", "reason": ""}
    if check is not None:
        end = {
            "status": str(check.status),
            "error": plain(check.error),
            "noise": plain(check.noise),
            "output": check.output,
            "reason": check.reason,
        }
    verdicts = Counter(d.verdict or "none" for d in result.applied)
    return {
        "mode": result.verify.mode,
        "end": end,
        "checker": result.checker_error,
        "verdicts": dict(sorted(verdicts.items())),
        "refuted": len(result.undone),
    }


def _step(step: StepTrace) -> dict[str, Any]:
    return {
        "name": step.name,
        "iteration": step.iteration,
        "activated": step.changed,
        "seconds": round(step.seconds, 6),
        "nodes_before": step.nodes_before,
        "nodes_after": step.nodes_after,
    }


def _rules(result: Result) -> list[dict[str, Any]]:
    """Every rule that there was, and every other name under which something was decided."""
    decided: dict[str, Counter[str]] = {}
    for decision in result.decisions:
        decided.setdefault(decision.rule, Counter())[decision.status] += 1
    names = [*result.ran.known, *(name for name in decided if name not in result.ran.known)]
    return [
        {
            "name": name,
            "sets": list(result.ran.known.get(name, ())),
            "by": "rule" if name in result.ran.known else "pass",
            "activated": name in result.ran.rules or name not in result.ran.known,
            "applied": found[APPLIED],
            "declined": found[DECLINED],
            "undone": found[UNDONE],
            "conflict": found[CONFLICT],
        }
        for name in names
        for found in [decided.get(name, Counter())]
    ]


def _dynamic(result: Result) -> dict[str, Any]:
    found = result.dynamic
    return {
        "inputs": result.dynamic_inputs,
        "items": result.dynamic_items,
        "is_static": result.is_static,
        "data_dependent": [_source(s, s.tensors) for s in found.data_dependent],
        "shape_dependent": [
            {"node": s.node, "op": s.op, "graph": s.graph, "reason": s.reason, "needs": list(s.needs)}
            for s in found.shape_dependent
        ],
        "unknown": [_source(s, s.tensors) for s in found.unknown],
    }


def _source(source: Any, tensors: Sequence[str]) -> dict[str, Any]:
    return {
        "node": source.node,
        "op": source.op,
        "graph": source.graph,
        "reason": source.reason,
        "tensors": list(tensors),
    }


def _latency(found: Latency) -> dict[str, Any]:
    return {
        "before_ms": found.before,
        "after_ms": found.after,
        "rounds": found.rounds,
        "shapes": {name: list(shape) for name, shape in (found.shapes or {}).items()},
        "reason": found.reason,
        "batch": found.batch,
        "threads": found.threads,
        "p99_ms": None if found.sides is None else [side.p99 for side in found.sides],
        "spread_ms": None if found.sides is None else [side.spread for side in found.sides],
        "ratio": None if found.ratio is None else [found.ratio.low, found.ratio.median, found.ratio.high],
        "slower": found.is_slower,
        "more": [_latency(further) for further in found.more],
    }


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "name": stage.name,
        "round": stage.round,
        "nodes": stage.nodes,
        "constant_bytes": stage.bytes,
        "parameters": stage.parameters,
        "macs": number(stage.macs),
        "macs_at": stage.macs_at,
        "latency_ms": stage.latency,
        "drift": plain(stage.drift),
        "drift_at": stage.drift_at,
        "metric": plain(stage.metric),
        "undone": stage.undone,
        "guilty": list(stage.guilty),
    }
