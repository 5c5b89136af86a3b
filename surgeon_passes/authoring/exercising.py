"""A rule by itself on graphs made from its pattern: what it did there, and whether the result is the same function."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from surgeon_passes.authoring.choices import Tally
from surgeon_passes.authoring.drawing import is_runnable
from surgeon_passes.authoring.examples import example_of
from surgeon_passes.authoring.generating import Generated, Generator
from surgeon_passes.authoring.slots import Array, Unfit
from surgeon_passes.decisions import APPLIED, REFUTED
from surgeon_passes.errors import SurgeonError
from surgeon_passes.passes import Cleanup, Rewrite, Verify
from surgeon_passes.pipeline import Pipeline
from surgeon_passes.result import Result
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.pattern import OpId
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Replacement, Rule
from surgeon_passes.run import with_references
from surgeon_passes.runtime import RuntimeFailure, Session

NEWEST_OPSET = 24
"""Of ai.onnx, of the graphs: newer ones are not final in what ONNX Runtime can be asked for."""
DRAWS = 25
"""Draws of a graph for each that is wanted, until one goes together."""


@dataclass(frozen=True)
class Fault:
    """``kind``: "different", "refuted" or "failed"; ``model`` is the smallest graph that shows it."""

    kind: str
    reason: str
    model: onnx.ModelProto


@dataclass
class Exercise:
    """What became of the graphs that were made for one rule.

    ``tried`` were drawn, ``valid`` are those that ONNX Runtime runs; of these some ``matched``, and some of those were
    ``rewritten`` or ``declined``. ``verdict`` is that of the verification of one of them.
    """

    rule: Rule
    tried: int = 0
    valid: int = 0
    matched: int = 0
    rewritten: int = 0
    declined: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    worst: Fault | None = None
    by_example: bool = False
    """whether the example of the docstring was rewritten"""
    never: list[str] = field(default_factory=list)
    """alternatives, optional operands, orders and outcomes that no rewritten graph had"""
    verdict: str = ""
    uncompared: str = ""
    """an operator of the rewrite that ONNX Runtime does not know and that has no body: results could not be compared"""
    equal: int = 0
    """results that were compared, and are equal"""
    unequal: Counter[str] = field(default_factory=Counter)
    """why others could not be compared, or say nothing"""
    unknown: str = ""
    """an operator of the pattern that ONNX Runtime does not know: nothing could be run"""

    @property
    def fired(self) -> bool:
        return self.rewritten > 0 or self.by_example

    @property
    def passed(self) -> bool:
        return bool(self.unknown) or (self.fired and not self.faults and bool(self.equal or self.uncompared))


def exercise(rule: Rule, graphs: int = 40, seconds: float = 60.0, seed: int = 0) -> Exercise:
    """Try ``rule`` on ``graphs`` graphs made from its pattern, for at most ``seconds``; the same ``seed`` makes the same
    graphs. Raises nothing for what the rule does: its faults are part of the result."""
    return _Exerciser(rule, seed).run(graphs, seconds)


class _Exerciser:
    def __init__(self, rule: Rule, seed: int) -> None:
        self.found = Exercise(rule)
        self.outcomes: Counter[str] = Counter()
        self.calls: list[str] = []
        self.rule = rule if rule.function is None else dataclasses.replace(rule, function=self.heard(rule.function))
        self.tally = Tally(rule.pattern)
        self.size = 0
        words = [seed, *rule.name.encode()]
        self.generator = Generator(rule.pattern, self.tally, np.random.default_rng(words), _opsets(rule))

    def heard(self, function: Callable[[Match], Replacement | None]) -> Callable[[Match], Replacement | None]:
        """The rule's function, each call and its outcome noted."""

        def wrapped(match: Match) -> Replacement | None:
            self.calls.append("")
            made = function(match)
            if isinstance(made, Replacement):
                self.calls[-1] = made.outcome or ""
            return made

        return wrapped

    def run(self, graphs: int, seconds: float) -> Exercise:
        unknown = _unknown(self.rule)
        if unknown is not None:
            self.found.unknown = str(unknown)
            return self.found
        until = time.monotonic() + seconds
        self.example()
        while self.found.valid < graphs and self.found.tried < DRAWS * graphs and time.monotonic() < until:
            self.found.tried += 1
            try:
                drawn = self.generator.draw()
            except Unfit:
                continue
            if self.runs(drawn):
                self.found.valid += 1
                self.one(drawn)
        self.found.never = list(self.never())
        return self.found

    def never(self) -> Iterator[str]:
        yield from self.tally.never()
        if len(self.rule.rewrites) > 1:
            yield from (f"outcome '{name}'" for name in self.rule.rewrites if not self.outcomes[name])

    def runs(self, drawn: Generated) -> bool:
        try:
            onnx.checker.check_model(drawn.model)
            session = Session(drawn.model)
            for feeds in drawn.feeds:
                session.run(feeds)
        except (onnx.checker.ValidationError, RuntimeFailure):
            return False
        return True

    def example(self) -> None:
        """The graph of the docstring, where it has one."""
        made = example_of(self.rule)
        if made is None:
            return
        model, options = made
        result = self.rewrite(model, options)
        if result is None or not result.applied:
            return
        self.found.by_example = True
        self.note_outcomes()
        self.compare(model, result, _guessed(model))

    def one(self, drawn: Generated) -> None:
        result = self.rewrite(drawn.model, {})
        if result is None:
            self.found.matched += 1
            return
        decisions = [d for d in result.decided if d.rule == self.rule.name]
        applied = [d for d in decisions if d.status == APPLIED]
        self.found.matched += bool(self.calls or decisions)
        if not applied:
            self.found.declined.update(
                {d.reason for d in decisions if d.reason} or ({"without a reason"} if self.calls else ())
            )
            return
        self.found.rewritten += 1
        self.note_outcomes()
        if any(len(d.nodes) >= drawn.nodes for d in applied) or len(applied) > 1:
            self.tally.matched.update(drawn.choices)
        if self.compare(drawn.model, result, drawn.feeds) and not self.found.verdict:
            self.verify(drawn)

    def note_outcomes(self) -> None:
        self.outcomes.update(self.calls if self.rule.function is not None else list(self.rule.rewrites))

    def rewrite(self, model: onnx.ModelProto, options: dict[str, bool], verify: Any = "off") -> Result | None:
        """The result of the rule alone; None where it failed, which is noted."""
        self.calls = []
        step = Rewrite.of(sets=(self.rule,), **{"approximate": True, **options})
        try:
            return Pipeline(step, Cleanup()).run(model, verify=verify, registry=Registry())
        except SurgeonError as error:
            self.fault("failed", str(error), model)
        return None

    def verify(self, drawn: Generated) -> None:
        """Once: what verification says of the region."""
        result = self.rewrite(drawn.model, {}, Verify("strict", data=_lists(drawn.feeds), end_check=False))
        if result is None:
            return
        decisions = [d for d in result.decided if d.rule == self.rule.name and d.verdict]
        self.found.verdict = decisions[0].verdict if decisions else ""
        if any(d.verdict == REFUTED for d in decisions):
            self.fault("refuted", decisions[0].reason, drawn.model)

    def compare(self, model: onnx.ModelProto, result: Result, feeds: tuple[dict[str, Array], ...]) -> bool:
        from surgeon_passes.verify.endcheck import end_check

        body = self.rule.reference_function()
        whole = with_references(result.proto, [] if body is None else [body])
        try:
            onnx.checker.check_model(result.proto)
        except onnx.checker.ValidationError as error:
            self.fault("failed", f"the result is no valid model: {error}", model)
            return False
        bodies = {OpId(f.domain, f.name) for f in whole.functions}
        lacking = sorted({OpId(n.domain, n.op_type) for n in whole.graph.node} - bodies)
        lacking = [op for op in lacking if not is_runnable(op)]
        if lacking:
            self.found.uncompared = str(lacking[0])
            return False
        check = end_check(model, whole, feeds)
        if check.status == "different":
            self.fault("different", check.reason or f"error {check.error:.1e} of the scale of '{check.output}'", model)
            return False
        if check.status != "equal":
            self.found.unequal[f"{check.status}: {check.reason}" if check.reason else check.status] += 1
            return False
        self.found.equal += 1
        return True

    def fault(self, kind: str, reason: str, model: onnx.ModelProto) -> None:
        self.found.faults[kind] += 1
        size = 1000 * len(model.graph.node) + min(999, model.ByteSize() // 100)
        if self.found.worst is None or size < self.size:
            self.found.worst, self.size = Fault(kind, " ".join(reason.split()), model), size


def _opsets(rule: Rule) -> tuple[int, int]:
    first, last = rule.opset
    newest = min(NEWEST_OPSET, onnx.defs.onnx_opset_version())
    last = newest if last is None else min(last, newest)
    return max(min(first, last), min(11, last)), last


def _unknown(rule: Rule) -> OpId | None:
    """An operator of the pattern without which there is no graph to run."""
    unknown = sorted(op for op in rule.pattern.facts.operators if not is_runnable(op))
    return unknown[0] if unknown else None


def _lists(feeds: tuple[dict[str, Array], ...]) -> Callable[[], Any]:
    return lambda: list(feeds)


def _guessed(model: onnx.ModelProto) -> tuple[dict[str, Array], ...]:
    """Feeds as the end check guesses them; none where nothing runs."""
    from surgeon_passes.verify.feeds import generate_feeds

    try:
        return tuple(generate_feeds(model))
    except SurgeonError:
        return ()


__all__ = ["Exercise", "Fault", "exercise"]
