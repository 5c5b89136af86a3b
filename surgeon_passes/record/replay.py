"""A recorded run, done again: on the same file to the same bytes, on another by structure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from surgeon_passes.engines import Isolate
from surgeon_passes.errors import UsageError
from surgeon_passes.model import Model
from surgeon_passes.model.files import digest_of_file, digest_of_model
from surgeon_passes.passes import Pass, Rewrite, Specialize, Verify, toml
from surgeon_passes.passes.rewrite import NOT_PERMITTED
from surgeon_passes.passes.state import Progress
from surgeon_passes.pipeline import MAX_ITERATIONS, Pipeline, Source, load
from surgeon_passes.record.diff import Diff, Record, diff
from surgeon_passes.record.pairing import Match
from surgeon_passes.record.source import data_digest
from surgeon_passes.record.structure import structure_of
from surgeon_passes.region import Tolerances
from surgeon_passes.result import Result
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Rule
from surgeon_passes.traces import Trace


@dataclass(frozen=True, eq=False)
class Replay:
    """``same_file``: whether the model is the recorded one, byte for byte. ``diff``: the record against what was done now.

    ``left``: places where a rule would apply now, and the record holds no rewrite of this structure: they were left alone.
    """

    result: Result
    same_file: bool
    reproduced: bool
    """whether the result is the recorded one, byte for byte"""
    diff: Diff
    left: tuple[Match, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether something else was done than what the record holds."""
        return not self.reproduced if self.same_file else not self.diff.is_empty or bool(self.left)


def replay(
    record: Record,
    source: Source,
    *,
    rules: Iterable[Rule] = (),
    data: object = None,
    registry: Registry | None = None,
    progress: Progress | None = None,
    isolate: bool | Isolate = False,
) -> Replay:
    """Run the recorded pipeline, with the recorded options, on ``source``.

    On the recorded file everything is done as then. On another, rules make only rewrites of a structure that the record
    holds; inputs that are called otherwise are told apart by their place. ``rules`` are those that were given as objects
    then, ``data`` are inputs in the place of the recorded ones. Raises UsageError for a record that cannot be done again, or
    not on this model; SurgeonError for the model.
    """
    options = record["options"]
    if options["not_replayable"] and (data is None or options["pipeline"] is None):
        raise UsageError(f"the record cannot be replayed: {options['not_replayable']}")
    model = load(source)
    same = _is_recorded(record["source"], source, model)
    names = {} if same else _names(record, model)
    allowed = {m["region"]["structure"] for m in record["matches"] if m["status"] == "applied" and m["region"]}

    def permit(rule: str, trace: Trace) -> bool:
        return structure_of(rule, trace) in allowed

    result = _pipeline(record, list(rules), names).run(
        model,
        verify=_verify(record, data, names),
        registry=registry,
        progress=progress,
        skip=options["skip"],
        keep=options["keep"],
        only=options["only"] or None,
        isolate=isolate,
        permit=None if same else permit,
        record=True,
    )
    now = result.record()
    left = [m for m in now["near_misses"] if m["reason"] == NOT_PERMITTED]
    reproduced = now["result"]["sha256"] == record["result"]["sha256"]
    return Replay(result, same, reproduced, diff(record, now), tuple(left))


def _is_recorded(told: Mapping[str, Any], source: Source, model: Model) -> bool:
    """Whether a model is the recorded one, byte for byte, weights beside it included."""
    if told["sha256"] is None or _digest(source, model) != told["sha256"]:
        return False
    return bool(data_digest(model.proto, model.weights, model.external) == told["data_sha256"])


def _digest(source: Source, model: Model) -> str | None:
    if isinstance(source, (str, os.PathLike)):
        return digest_of_file(source)[0]
    return None if model.proto is None else digest_of_model(model.proto, model.weights)[0]


def _names(record: Record, model: Model) -> dict[str, str]:
    """Inputs as this model calls them, by what the recorded one called them: by place, where their number is the same."""
    if model.proto is None:
        return {}
    held = {t.name for t in model.proto.graph.initializer}
    then = [value["name"] for value in record["source"]["inputs"]]
    now = [value.name for value in model.proto.graph.input if value.name not in held]
    if set(then) <= set(now) or len(then) != len(now):
        return {}
    return dict(zip(then, now, strict=True))


def _pipeline(record: Record, rules: Sequence[Rule], names: Mapping[str, str]) -> Pipeline:
    options = record["options"]
    passes, iterations = toml.loads(options["pipeline"], "the record's pipeline")
    if [step.name for step in passes] != [told["name"] for told in options["passes"]]:
        raise UsageError("the record's pipeline and its passes do not fit together: it was changed by hand")
    known = {rule.name: rule for rule in rules}
    made: list[Pass] = []
    for step, told in zip(passes, options["passes"], strict=True):
        missing = [name for name in told["rules"] if name not in known]
        if missing:
            raise UsageError(f"the record uses rules that are in no file of it: give {', '.join(missing)} (--rules)")
        if isinstance(step, Rewrite) and told["rules"]:
            made.append(_with_rules(step, told["options"]["sets"], [known[name] for name in told["rules"]]))
        elif isinstance(step, Specialize):
            made.append(Specialize({names.get(name, name): shape for name, shape in step.shapes.items()}))
        else:
            made.append(step)
    return Pipeline(*made, max_iterations=MAX_ITERATIONS if iterations is None else iterations)


def _with_rules(step: Rewrite, sets: Sequence[str], rules: Sequence[Rule]) -> Rewrite:
    """The pass with rules as objects; with no ``sets`` those alone."""
    return Rewrite(
        *(sets or rules),
        rules=rules if sets else (),
        skip=step.skip,
        approximate=step.approximate,
        allow_lossy_casts=step.allow_lossy_casts,
    )


def _verify(record: Record, data: object, names: Mapping[str, str]) -> Verify:
    told = record["options"]["verify"]
    unknown = told["tolerances"].keys() - {field.name for field in fields(Tolerances)}
    if unknown:
        raise UsageError(f"the record has tolerances that there are not: {', '.join(sorted(unknown))}")
    made = Verify(
        mode=told["mode"],
        data=data if data is not None else told["data"],
        end_check=told["end_check"],
        tolerances=Tolerances(**told["tolerances"]),
        seed=record["seed"],
        custom_ops=tuple(told["custom_ops"]),
    )
    if made.data is None or not names or data is not None:
        return made
    return replace(made, data=lambda: _renamed(made.data, names))


def _renamed(data: object, names: Mapping[str, str]) -> list[dict[str, Any]]:
    from surgeon_passes.verify import load_data

    return [{names.get(name, name): value for name, value in feeds.items()} for feeds in load_data(data)]
