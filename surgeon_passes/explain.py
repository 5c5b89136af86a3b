"""Why a rule was not applied: how far its pattern went at each place, and what stopped it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import onnx_graphsurgeon as gs

from surgeon_passes.decisions import Decision
from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.index import node_label
from surgeon_passes.model import import_model
from surgeon_passes.model.nested import every_node
from surgeon_passes.passes import Rewrite, State, Verify
from surgeon_passes.passes.rewrite import MAX_BINDINGS
from surgeon_passes.pipeline import Pipeline, Source, load
from surgeon_passes.result import Result
from surgeon_passes.rules.goals import Miss
from surgeon_passes.rules.matcher import MAX_NAMED, Matcher
from surgeon_passes.rules.pattern import Alternatives, Call, Flat, NameRef, OpId, Pattern, Span, TemplateUse
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Decline, Rule

STOPPED, DECLINED, APPLIES = "stopped", "declined", "applies"
MAX_DEPTH = 24
"""Readers of readers of a node that may be the root of a pattern in which it stands."""


@dataclass(frozen=True)
class Attempt:
    """One rule at one root of the result.

    ``outcome``: the pattern "stopped" at ``line`` (1-based; ``start`` and ``end`` are columns of ``text``), the function or a
    gate "declined", or the rule "applies". ``nodes`` matched, ``reach`` of the ``wanted`` that the pattern names at least.
    """

    rule: str
    graph: str
    root: str
    outcome: str
    reason: str
    nodes: tuple[str, ...] = ()
    reach: int = 0
    wanted: int = 1
    line: int | None = None
    text: str = ""
    start: int = 0
    end: int = 0

    @property
    def rank(self) -> tuple[int, float, int]:
        """Best attempts first."""
        far = (APPLIES, DECLINED, STOPPED).index(self.outcome)
        return far, -self.reach / self.wanted, -self.reach


@dataclass(frozen=True)
class Explanation:
    """``decisions`` are those that a run made about the node or by the rule, ``attempts`` what is tried on its result."""

    result: Result
    decisions: tuple[Decision, ...]
    attempts: tuple[Attempt, ...]
    remarks: tuple[str, ...] = ()
    """why there was nothing to try"""


def explain(
    source: Source,
    *,
    node: str | None = None,
    rule: str | None = None,
    pipeline: Pipeline | None = None,
    registry: Registry | None = None,
    verify: Verify | str | None = None,
    **options: Any,
) -> Explanation:
    """Run the pipeline on a model, then try rules in full on its result: around the node called ``node``, or everywhere the
    root of ``rule`` could sit, or both. ``options`` are those of :meth:`Pipeline.run`.

    Raises UsageError where neither is given, and for a rule or node that there is not; SurgeonError for the model.
    """
    if node is None and rule is None:
        raise UsageError("name what to explain: a node, a rule, or both")
    registry = registry or Registry.installed()
    wanted = None if rule is None else _rule(registry, rule)
    pipeline = pipeline or Pipeline()
    result = pipeline.run(load(source), registry=registry, verify=verify, **options)
    state = State(import_model(result.light, result.source, result.weights), registry, Verify("off"))
    decisions = [d for d in result.decided if (rule is None or d.rule == rule) and (node is None or _is_about(d, node))]
    targets = [] if node is None else [n for n in state.index.nodes() if _is_called(n, node)]
    if node is not None and not targets and not decisions and not _was_there(result, node):
        known = [n.name for n in state.index.nodes() if n.name]
        raise UsageError(f"{result.source} has no node '{node}'{did_you_mean(node, known)}")
    chosen = {r.name for step in pipeline.passes if isinstance(step, Rewrite) for r in step.chosen(state)}
    rules = [wanted] if wanted is not None else [r for r in registry if r.name in chosen]
    remarks = list(_remarks(state, rules if wanted else [], chosen, node, targets))
    attempts = _attempts(state, rules, targets if node is not None else None)
    tried = {(a.rule, a.graph, a.root) for a in attempts}
    said = [d for d in decisions if d.status != "declined" or (d.rule, d.graph, d.root) not in tried]
    return Explanation(result, tuple(said), tuple(sorted(attempts, key=lambda a: a.rank)), tuple(remarks))


def _rule(registry: Registry, name: str) -> Rule:
    found = registry.get(name)
    if found is None:
        raise UsageError(f"no rule is called '{name}'{did_you_mean(name, [r.name for r in registry])}")
    return found


def _is_called(node: gs.Node, name: str) -> bool:
    return bool(name == node.name or (not node.name and any(t.name == name for t in node.outputs)))


def _is_about(decision: Decision, name: str) -> bool:
    return any(f"'{name}'" in label for label in (decision.root, *decision.nodes))


def _was_there(result: Result, name: str) -> bool:
    if result.original is None:
        return False
    functions = (n for f in result.original.functions for n in every_node(f.node))
    nodes = (*every_node(result.original.graph.node), *functions)
    return any(n.name == name or (not n.name and name in n.output) for n in nodes)


def _remarks(
    state: State, rules: Iterable[Rule], chosen: set[str], node: str | None, targets: list[gs.Node]
) -> Iterator[str]:
    if node is not None and not targets:
        yield f"the result has no node '{node}' any more"
    for rule in rules:
        opset = state.index.scopes[0].opset()
        if rule.name not in chosen:
            yield f"{rule.name} is not part of the pipeline: it belongs to {', '.join(rule.sets)} (--set adds a set)"
        if not rule.is_for(opset):
            yield f"{rule.name} is for opset {_span(rule.opset)}, the model has {opset}"
        if not any(OpId(n.domain or "", n.op) in rule.pattern.facts.roots for n in state.index.nodes()):
            roots = " or ".join(sorted(map(str, rule.pattern.facts.roots)))
            yield f"{rule.name} begins at {roots}: the result has no such node"


def _span(opset: tuple[int, int | None]) -> str:
    first, last = opset
    return f"{first} and newer" if last is None else f"{first} to {last}"


# --- trying ----------------------------------------------------------------------------------------------------------


def _attempts(state: State, rules: Iterable[Rule], targets: list[gs.Node] | None) -> list[Attempt]:
    roots = state.index.nodes() if targets is None else _downstream(state, targets)
    names = None if targets is None else {node_label(n) for n in targets}
    operators = None if targets is None else {OpId(n.domain or "", n.op) for n in targets}
    found = []
    for rule in rules:
        if operators is not None and not operators & rule.pattern.facts.operators:
            continue
        for root in roots:
            if OpId(root.domain or "", root.op) in rule.pattern.facts.roots:
                attempt = _attempt(state, rule, root)
                if names is None or names & {attempt.root, *attempt.nodes}:
                    found.append(attempt)
    return found


def _downstream(state: State, targets: list[gs.Node]) -> list[gs.Node]:
    """The nodes, and those that read what they give, at some steps: roots of patterns in which they stand."""
    found = {id(n): n for n in targets}
    last = list(targets)
    for _ in range(MAX_DEPTH):
        last = [r for n in last for t in n.outputs for r in state.index.readers(t) if id(r) not in found]
        found.update((id(n), n) for n in last)
    return list(found.values())


class _Asker(Matcher):
    """Hears of what stops at the root, too: rewriting does not ask."""

    def note(self, matched: Mapping[int, gs.Node], span: Span, reason: str) -> None:
        if len(matched) >= self.miss.reach:
            self.miss = Miss(tuple(islice(matched.values(), MAX_NAMED)), span, reason, len(matched))


def _attempt(state: State, rule: Rule, root: gs.Node) -> Attempt:
    matcher = _Asker(rule.pattern, state.context)
    where = (rule.name, state.index.scope(root).path, node_label(root))
    declined: Attempt | None = None
    for match in islice(matcher.matches(root), MAX_BINDINGS):
        labels = tuple(map(node_label, match.matched))
        try:
            state.rewriter.journal.undo(state.rewriter.rewrite(rule, match))
        except Decline as reason:
            if declined is None or str(reason):
                text = str(reason) or "the function says that this is not what the rule is about"
                declined = Attempt(*where, DECLINED, text, labels, len(labels), len(labels))
            continue
        return Attempt(*where, APPLIES, "it applies here", labels, len(labels), len(labels))
    if declined is not None:
        return declined
    return _stopped(where, matcher, _smallest(rule.pattern))


def _stopped(where: tuple[str, str, str], matcher: Matcher, wanted: int) -> Attempt:
    miss, lines = matcher.miss, matcher.pattern.text.splitlines()
    return Attempt(
        *where,
        STOPPED,
        miss.reason,
        nodes=tuple(map(node_label, miss.nodes)),
        reach=miss.reach,
        wanted=max(wanted, miss.reach),
        line=miss.span.line or None,
        text=lines[miss.span.line - 1] if 0 < miss.span.line <= len(lines) else "",
        start=miss.span.start,
        end=miss.span.end,
    )


def _smallest(pattern: Pattern) -> int:
    """Nodes that a match has at least."""
    definitions = pattern.facts.made_by

    def size(value: Any, seen: frozenset[str] = frozenset()) -> int:
        if isinstance(value, (Call, Flat)):
            return 1 + sum(size(a, seen) for a in value.args if not isinstance(a, TemplateUse))
        if isinstance(value, Alternatives):
            return min(size(o, seen) for o in value.options)
        if isinstance(value, NameRef) and value.name in definitions and value.name not in seen and not value.optional:
            return size(definitions[value.name].value, seen | {value.name})
        return 0

    return max(1, size(pattern.root.value))


__all__ = ["Attempt", "Explanation", "explain"]
