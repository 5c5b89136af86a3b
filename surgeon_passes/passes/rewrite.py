"""Rules over the graph, sweep by sweep."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Self

import onnx_graphsurgeon as gs

from surgeon_passes.errors import RuleError, UsageError, did_you_mean
from surgeon_passes.index import node_label
from surgeon_passes.passes.base import OBJECTS, Pass
from surgeon_passes.passes.settle import settle
from surgeon_passes.passes.state import Permit, State, remove_dead
from surgeon_passes.region import Exactness
from surgeon_passes.rules.journal import Edit
from surgeon_passes.rules.match import Match, Operand, Options
from surgeon_passes.rules.matcher import Matcher
from surgeon_passes.rules.misses import declined
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Decline, Rule
from surgeon_passes.rules.table import RuleTable, table_of
from surgeon_passes.watch import within

DEFAULT_SETS = ("cleanup", "shape", "fusion", "reparam", "user")
MAX_BINDINGS = 16
"""Bindings of one rule at one root that are tried before the last reason stands."""
MAX_SWEEPS = 100
NOT_PERMITTED = "the rewrite is not permitted: the record holds none of this structure"
WIDE = 64
"""Readers of one tensor from which they are visited again once, when all else is done, and not with each edit there."""


@dataclass(frozen=True, init=False)
class Rewrite(Pass):
    """Apply rules until nothing changes: ``Rewrite()``, ``Rewrite("fusion", "drop_cast")``, ``Rewrite(my_rule)``.

    Sets of rules, names of single ones, or rules themselves; those alone are applied. ``rules`` are applied besides them,
    ``skip`` names rules or sets to leave out. ``allow_lossy_casts`` lets rules drop Casts that lose values. Raises
    UsageError for an unknown set or name, or for what is no rule.
    """

    name: ClassVar[str] = "rewrite"
    requires: ClassVar[tuple[str, ...]] = ("fold",)
    sets: tuple[str, ...] = DEFAULT_SETS
    skip: tuple[str, ...] = ()
    approximate: bool = False
    allow_lossy_casts: bool = False
    rules: tuple[Rule, ...] = field(default=(), metadata={OBJECTS: True})

    def __init__(
        self,
        *sets: str | Rule,
        skip: Iterable[str] = (),
        approximate: bool = False,
        allow_lossy_casts: bool = False,
        rules: Iterable[Rule] = (),
    ) -> None:
        names = tuple(s for s in sets if isinstance(s, str))
        alone = tuple(s for s in sets if not isinstance(s, str))
        own = (*alone, *rules)
        wrong = next((r for r in own if not isinstance(r, Rule)), None)
        if wrong is not None:
            raise UsageError(f"{wrong!r} is no rule: decorate a function with @surgeon_passes.rule, or name a set")
        object.__setattr__(self, "sets", names or (() if alone else DEFAULT_SETS))
        object.__setattr__(self, "skip", (skip,) if isinstance(skip, str) else tuple(skip))
        object.__setattr__(self, "approximate", approximate)
        object.__setattr__(self, "allow_lossy_casts", allow_lossy_casts)
        object.__setattr__(self, "rules", tuple(own))

    @classmethod
    def of(cls, **options: Any) -> Self:
        return cls(*options.pop("sets", ()), **options)

    def run(self, state: State) -> bool:
        rules = self.chosen(state)
        state.looked_for.update(rule.name for rule in rules)
        if not rules:
            return False
        options = Options(allow_lossy_casts=self.allow_lossy_casts)
        sweeper = _Sweeper(state, options)
        return any([_to_rest(state, sweeper, layer) for layer in _layers(rules)])

    def chosen(self, state: State) -> list[Rule]:
        """The rules that are applied, in their order."""
        return self.without_opposed(self.selected(state), state)

    def without_opposed(self, rules: list[Rule], state: State) -> list[Rule]:
        """The rules less those that another of them opposes: together they would never come to rest. Settings say so."""
        opposed = {name: rule.name for rule in rules for name in rule.opposes}
        added = [s for s in self.sets if s not in DEFAULT_SETS]
        left_out = [rule.name for rule in rules if rule.name in opposed]
        lines = [f"sets {', '.join(added)}"] if added else []
        if left_out:
            lines.append(f"left out as others do the opposite: {', '.join(left_out)}")
        state.settings += [line for line in lines if line not in state.settings]
        return [rule for rule in rules if rule.name not in opposed]

    def known_names(self, registry: Registry) -> set[str]:
        """Rules, and sets of rules, that may be named."""
        return registry.known_sets() | {r.name for r in (*registry, *self.rules)} | set(DEFAULT_SETS)

    def check_names(self, registry: Registry) -> None:
        """Raise UsageError for an unknown set or name."""
        known = self.known_names(registry)
        for name in (*self.sets, *self.skip):
            if name not in known:
                raise UsageError(f"no rule or set of rules is called '{name}'{did_you_mean(name, known)}")

    def selected(self, state: State) -> list[Rule]:
        """The rules of this pass in their order. Raises UsageError for an unknown set or name."""
        registry = state.registry
        self.check_names(registry)
        chosen = [r for r in registry.select(self.sets) if r.name not in {o.name for o in self.rules}]
        chosen += [r for r in self.rules if r not in chosen]
        skip = set(self.skip) | state.skip
        return [
            r
            for r in chosen
            if not skip & {r.name, *r.sets} and (self.approximate or r.exactness is not Exactness.APPROXIMATE)
        ]


def _layers(rules: list[Rule]) -> list[tuple[list[Rule], list[Rule]]]:
    """Rules to begin with, and rules for what a rewrite touches: first those that do not wait for others; then, all of those
    being at rest, the late ones begin."""
    early, late = [r for r in rules if not r.late], [r for r in rules if r.late]
    return [(part, known) for part, known in ((early, early), (late, rules)) if part]


def _to_rest(state: State, sweeper: _Sweeper, layer: tuple[list[Rule], list[Rule]]) -> bool:
    """Sweep until nothing changes; gives whether anything did."""
    changed = False
    pending: list[gs.Node] = state.index.nodes()
    begin, again = map(table_of, layer)
    for number in range(MAX_SWEEPS):
        edits = sweeper.sweep(pending, again if number else begin, again)
        if not edits:
            break
        kept = settle(state, edits)
        changed = changed or bool(kept)
        pending = sweeper.touched(edits)
        remove_dead(state)
    return changed


class _Sweeper:
    """One worklist pass over some nodes, in order; what a rewrite touches is visited again."""

    def __init__(self, state: State, options: Options) -> None:
        self.state = state
        self.context = state.context.having(options)
        self.index = state.index
        self.limit = 10 * len(self.index.nodes()) + 1000
        self.matchers: dict[int, Matcher] = {}

    def sweep(self, nodes: Iterable[gs.Node], first: RuleTable, again: RuleTable) -> list[Edit]:
        """``first`` holds the rules for ``nodes``, ``again`` those for what a rewrite touches."""
        queue = deque(nodes)
        waiting = dict.fromkeys(map(id, queue), first)
        edits: list[Edit] = []
        wide: dict[int, gs.Tensor] = {}
        done = 0
        while queue or wide:
            if not queue:
                readers = [n for t in wide.values() for n in self.index.readers(t) if self.index.is_live(n)]
                waiting = dict.fromkeys(map(id, readers), again)
                queue.extend({id(n): n for n in readers}.values())
                wide.clear()
                continue
            node = queue.popleft()
            rules = waiting.pop(id(node))
            done += 1
            if done % 256 == 0:
                self.state.report_progress("rewrite", done, done + len(queue))
            if not self.index.is_live(node):
                continue
            edit = self.visit(node, rules)
            if edit is None:
                continue
            edits.append(edit)
            for touched in self.touched([edit], wide):
                if id(touched) not in waiting:
                    queue.append(touched)
                waiting[id(touched)] = again
        return edits

    def touched(self, edits: Iterable[Edit], wide: dict[int, gs.Tensor] | None = None) -> list[gs.Node]:
        """Live nodes around the edits: new ones, restored ones, and who reads their results.

        Tensors with many readers are put into ``wide``, where it is given, in place of their readers.
        """
        found: dict[int, gs.Node] = {}
        done: set[int] = set()

        def spread(tensor: gs.Tensor) -> None:
            if id(tensor) in done:
                return
            done.add(id(tensor))
            if wide is not None and self.index.reader_count(tensor) > WIDE:
                wide[id(tensor)] = tensor
            else:
                found.update((id(c), c) for c in self.index.readers(tensor))

        for edit in edits:
            nodes = [i.node for i, _ in edit.added] + [i.node for i in edit.removed]
            nodes += [slot[0] for slot in (*edit.inputs, *edit.outputs)]
            for node in nodes:
                if self.index.is_live(node):
                    found[id(node)] = node
                    for tensor in node.outputs:
                        spread(tensor)
            for _, now in edit.pairs:
                spread(now)
        return [n for n in found.values() if self.index.is_live(n)]

    def matcher(self, rule: Rule) -> Matcher:
        found = self.matchers.get(id(rule))
        if found is None:
            found = self.matchers[id(rule)] = Matcher(rule.pattern, self.context)
        return found

    def visit(self, node: gs.Node, rules: RuleTable) -> Edit | None:
        for rule in rules.candidates(node, self.index):
            matcher = self.matcher(rule)
            if not matcher.may_match(node):
                continue
            if not rule.recursive and self.state.made_by.get(id(node)) == rule.name:
                continue
            if rule.guard is not None and not self.allows(rule, node):
                continue
            edit = self.attempt(rule, matcher, node)
            if edit is not None:
                return edit
        return None

    def allows(self, rule: Rule, node: gs.Node) -> bool:
        """What the rule's guard says of a root; what the guard cannot read is left to the function, which says why."""
        assert rule.guard is not None
        try:
            with within(rule.label):
                return bool(rule.guard(Operand(node.outputs[0], self.context, node)))
        except Decline:
            return True
        except Exception as error:
            where = node_label(node)
            raise RuleError(f"{rule.label}: its guard failed at {where}: {type(error).__name__}: {error}") from error

    def attempt(self, rule: Rule, matcher: Matcher, node: gs.Node) -> Edit | None:
        if not self.state.may_edit():
            return None
        began = time.perf_counter()
        reason = ""
        nodes: tuple[gs.Node, ...] = ()
        with self.state.evaluator.recording() as log:
            for match in islice(matcher.matches(node), MAX_BINDINGS):
                try:
                    edit = self.apply(rule, match, log.tensors)
                except Decline as decline:
                    if str(decline) or not nodes:
                        reason, nodes = str(decline), match.matched
                    if decline.is_final:
                        break
                    continue
                if edit is not None:
                    edit.decision.metrics = {**edit.decision.metrics, "seconds": time.perf_counter() - began}
                    return edit
        if reason:
            self.state.decide(declined(rule.name, node, self.index, reason, nodes), node)
        return None

    def apply(self, rule: Rule, match: Match, reads: Iterable[gs.Tensor]) -> Edit | None:
        state = self.state
        root = node_label(match.root)
        if (rule.name, frozenset(id(n) for n in match.matched)) in state.refuted:
            return None
        if (rule.name, self.index.scope(match.root).path, root) in state.banned:
            return None
        edit = state.rewriter.rewrite(rule, match, reads, state.refuted)  # the function adds to them
        state.take(edit)
        if state.permit is not None:
            self.require_permit(state.permit, rule, edit)
        self.state.times[rule.name] += 1
        if self.state.times[rule.name] > self.limit:
            raise RuleError(
                f"{rule.name}: rewrote more than {self.limit} places: it seems to match its own output for ever"
            )
        self.note(rule, edit)
        return edit

    def require_permit(self, permit: Permit, rule: Rule, edit: Edit) -> None:
        """Take an edit back that is not permitted. Raises Decline."""
        assert edit.decision.trace is not None
        if not permit(rule.name, edit.decision.trace):
            self.state.made.pop()
            self.state.rewriter.journal.undo(edit)
            raise Decline(NOT_PERMITTED)

    def note(self, rule: Rule, edit: Edit) -> None:
        """Take note of what an edit brings in."""
        reference = rule.reference_function()
        if reference is not None:
            self.state.references[reference.domain, reference.name] = reference
        for image, _ in edit.added:
            self.state.made_by[id(image.node)] = rule.name
            self.state.refer(image.node)
