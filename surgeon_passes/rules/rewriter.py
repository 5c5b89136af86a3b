"""The only thing that changes a graph: legality, the cost gate, and edits for the journal."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.decisions import APPLIED, Decision
from surgeon_passes.errors import RuleError
from surgeon_passes.index import GraphIndex, Position, Scope, node_label
from surgeon_passes.ops.cost import Cost, cost, total
from surgeon_passes.ops.view import CallerAttribute
from surgeon_passes.region import Exactness, NodeImage
from surgeon_passes.rules.emit import Emitter
from surgeon_passes.rules.guard import Guard
from surgeon_passes.rules.journal import Edit, Journal, Slot
from surgeon_passes.rules.match import Context, Match, is_floating
from surgeon_passes.rules.part import Part, Rest, identity, matched
from surgeon_passes.rules.rule import Decline, Replacement, Rule
from surgeon_passes.watch import within

Cone = Callable[[gs.Tensor], Iterable[gs.Node]]
GROWTH = 1.001
SMALL_GROWTH = 4096
"""Bytes that a rewrite may always add: a bias where there was none."""

INTEGER_CONSTANTS = 9
"""Opset from which a Constant node, the one form that a function has for them, may hold more than floats."""


class Rewriter:
    """Makes edits and gives them to the journal."""

    def __init__(self, context: Context, cone: Cone = lambda tensor: (), guard: Guard | None = None) -> None:
        self.context = context
        self.guard = guard or Guard()
        self.index: GraphIndex = context.index
        self.journal = Journal(self.index)
        self.cone = cone

    # --- rules -------------------------------------------------------------------------------------------------------

    def rewrite(
        self,
        rule: Rule,
        match: Match,
        reads: Iterable[gs.Tensor] = (),
        refuted: Container[tuple[str, frozenset[int]]] = (),
    ) -> Edit:
        """Apply ``rule`` to ``match``. Raises Decline, naming why, where it is not legal or not worth it.

        Of a sum, the groups of leaves that are siblings of the match are merged in the same edit, unless it is among the
        ``refuted``: group by group, each would build the rest of the sum anew.
        """
        parts = self.parts(rule, match)
        if len(parts) > 1 and (rule.name, identity(parts)) in refuted:
            parts = [self.part(rule, match)]
        while True:
            edit = self.plan(rule, parts, reads)
            self.journal.apply(edit)
            failed = self.weigh(rule, parts, edit.decision)
            if not failed:
                return edit
            self.journal.undo(edit)
            if id(parts[0]) in failed:
                raise failed[id(parts[0])]
            inside = {id(n) for n in parts[0].removed}
            kept = [p.match for p in parts[1:] if id(p) not in failed]
            parts = [self.part(rule, match), *(self.part(rule, m, inside) for m in kept)]

    def parts(self, rule: Rule, match: Match) -> list[Part]:
        """The match, and those of its siblings that are legal and take other leaves."""
        first = self.part(rule, match)
        rest, inside = Rest(first.emitter.leftovers), {id(n) for n in first.removed}
        found = [first]
        for sibling in match.siblings():
            try:
                part = self.part(rule, sibling, inside)
            except Decline:
                continue  # what is said of it is heard when it is tried by itself
            if rest.take(part):
                found.append(part)
        return found

    def part(self, rule: Rule, match: Match, inside: Container[int] = ()) -> Part:
        """What the rewrite does for one match; ``inside`` are nodes (by id) that go, too. Raises Decline."""
        replacement = self.call(rule, match)
        outcome = replacement.outcome if replacement.outcome is not None else next(iter(rule.rewrites))
        if outcome not in rule.rewrites:
            named = ", ".join(filter(None, rule.rewrites))
            choices = f"not one of {named}" if named else "but the rule has one rewrite, without a name"
            raise RuleError(f"{rule.name}: the function chose '{outcome}', {choices}")
        rewrite = rule.rewrites[outcome]
        produced = {name for line in rewrite.lines for name in line.outputs}
        removed = _removed(match, replacement)
        self.check_interior(match, produced, removed, inside)
        emitter = Emitter(rule, match, replacement)
        emitted = emitter.run(rewrite)
        _check_operands(removed, emitted.nodes)
        before = cost([self.context.view(n) for n in removed], self.context.type_of, self.constant_shape)
        return Part(match, replacement, removed, emitter, before)

    def weigh(self, rule: Rule, parts: Iterable[Part], decision: Decision) -> dict[int, Decline]:
        """The gate on cost: why which parts (by id) do not pass it. The new nodes must be in the graph: only then are the
        types of what they make known."""
        failed: dict[int, Decline] = {}
        costs: list[tuple[Cost, Cost]] = []
        for part in parts:
            after = cost([self.context.view(n) for n in part.added], self.context.type_of, self.constant_shape)
            costs.append((part.before, after))
            try:
                if not rule.may_grow:
                    _check_cost(part.before, after)
                    _check_bytes(part.removed, part.added)
            except Decline as decline:
                failed[id(part)] = decline
        decision.metrics = _metrics(*(total(column) for column in zip(*costs, strict=True)))
        return failed

    def call(self, rule: Rule, match: Match) -> Replacement:
        if rule.function is None:
            return Replacement()
        try:
            with within(rule.label):
                found = rule.function(match)
        except (Decline, RuleError):
            raise
        except CallerAttribute as error:
            raise Decline(str(error)) from None
        except Exception as error:
            where = node_label(match.root)
            raise RuleError(f"{rule.label}: its function failed at {where}: {type(error).__name__}: {error}") from error
        return found if found is not None else Replacement()

    def constant_shape(self, tensor: gs.Tensor) -> tuple[int, ...] | None:
        """The shape of an initializer, or of what a Constant node makes: both are weights."""
        if isinstance(tensor, gs.Constant):
            return tuple(tensor.shape)
        producer = self.index.producer(tensor)
        value = self.context.value(tensor) if producer is not None and producer.op == "Constant" else None
        return tuple(value.shape) if isinstance(value, np.ndarray) else None

    def check_interior(
        self, match: Match, produced: set[str], removed: Iterable[gs.Node], inside: Container[int] = ()
    ) -> None:
        """A tensor that goes away must have no reader outside the match (and ``inside``) and be no output."""
        kept = {id(match._names[n]) for n in produced if match._names.get(n) is not None}
        kept.add(id(match.root.outputs[0]) if match.leftovers else 0)
        matched = {id(n) for n in removed}
        for node in removed:
            for tensor in node.outputs:
                if not tensor.name or id(tensor) in kept:
                    continue
                if self.index.is_output(tensor):
                    raise Decline(f"'{tensor.name}' is a graph output")
                readers = self.index.readers(tensor)
                outside = next((c for c in readers if id(c) not in matched and id(c) not in inside), None)
                if outside is not None:
                    raise Decline(f"'{tensor.name}' is also used by {node_label(outside)}")

    def behind(self, reads: Iterable[gs.Tensor], nodes: Iterable[gs.Node]) -> list[gs.Node]:
        """What computes the values that were read, and the Constant nodes (functions keep theirs) that ``nodes`` read."""
        found = {id(n): n for t in reads for n in self.cone(t)}
        for tensor in (t for node in nodes for t in node.inputs):
            maker = self.index.producer(tensor)
            if maker is not None and maker.op == "Constant":
                found[id(maker)] = maker
        return list(found.values())

    # --- edits -------------------------------------------------------------------------------------------------------

    def plan(self, rule: Rule, parts: Sequence[Part], reads: Iterable[gs.Tensor]) -> Edit:
        """The edit that puts what was emitted in the place of the match; parts and leaves that stay are joined."""
        match, emitter = parts[0].match, parts[0].emitter
        rest = Rest(emitter.leftovers)
        for part in parts[1:]:
            rest.take(part)
        emitter.join([*(part.emitter.joined for part in parts[1:]), *rest.left()])
        replaced = [
            (match._names[name], tensor)
            for name, tensor in emitter.done.results.items()
            if isinstance(match._names.get(name), gs.Tensor)
        ]
        nodes = matched(parts)
        decision = Decision(
            rule.name,
            self.index.scope(match.root).path,
            node_label(match.root),
            APPLIED,
            nodes=tuple(map(node_label, nodes)),
        )
        return self.edit(
            rule=rule.name,
            root=match.root,
            decision=decision,
            removed=tuple({id(n): n for part in parts for n in part.removed}.values()),
            key=identity(parts),
            added=[n for part in (*parts[1:], parts[0]) for n in part.added],
            replaced=replaced,
            exactness=rule.exactness,
            reads=reads,
        )

    def edit(
        self,
        *,
        rule: str,
        root: gs.Node,
        decision: Decision,
        removed: Iterable[gs.Node],
        added: Iterable[gs.Node],
        replaced: Iterable[tuple[gs.Tensor, gs.Tensor]],
        exactness: Exactness,
        reads: Iterable[gs.Tensor] = (),
        beside: Iterable[gs.Node] = (),
        key: frozenset[int] | None = None,
    ) -> Edit:
        """An edit with everything that moving its results entails; :meth:`Journal.apply` carries it out.

        ``replaced`` are (result before, tensor that stands for it now); equal where a new node makes the same tensor.
        ``beside`` are nodes that stay and make what stands for a result now: verification needs them.
        Raises Decline where a result and what replaces it both are interface, and where something has to stay as it is.
        """
        scope = self.index.scope(root)
        position = self.index.position(root)
        gone = {id(n) for n in removed}
        new = list(added)
        made = {id(t) for n in new for t in n.outputs}
        moves = _Moves(self.index, gone, made)
        pairs = list(replaced)
        for old, now in sorted(pairs, key=lambda pair: not self.index.is_output(pair[0])):
            if old is not now:
                new += moves.forward(old, now, scope)
        for node in new:
            list.__setitem__(node.inputs, slice(None), [moves.renamed.get(id(t), t) for t in node.inputs])
        found = Edit(
            rule=rule,
            scope=scope,
            root=root,
            decision=decision,
            removed=tuple(NodeImage.of(n) for n in removed),
            added=tuple((NodeImage.of(n), _place(position, i)) for i, n in enumerate(new)),
            inputs=tuple(moves.inputs),
            outputs=tuple(moves.outputs),
            graph_outputs=tuple(moves.graph_outputs),
            pairs=tuple(pairs),
            touched=tuple(moves.touched.values()),
            cone=tuple(NodeImage.of(n) for n in (*self.behind(reads, (*removed, *new)), *beside)),
            exactness=exactness,
            identity=key if key is not None else frozenset(gone),
        )
        if scope.is_function and scope.opset("") < INTEGER_CONSTANTS:
            _check_constants([*(t for n in new for t in n.inputs), *(t for _, t in pairs)])
        self.guard.check(found, self.index)
        return found


def _check_constants(tensors: Iterable[gs.Tensor]) -> None:
    """Decline constants that a function cannot hold below opset 9."""
    for tensor in tensors:
        if isinstance(tensor, gs.Constant) and not is_floating(tensor.dtype):
            raise Decline(f"'{tensor.name}' is {tensor.dtype}, and below opset 9 functions hold floats alone")


def _check_bytes(removed: Iterable[gs.Node], added: Iterable[gs.Node]) -> None:
    """Decline what would write out constants that the file holds as a formula (ConstantOfShape, Tile …)."""
    held = _constant_bytes(removed)
    growth = _constant_bytes(added) - held
    if growth > max(SMALL_GROWTH, held // 4):
        raise Decline(f"it would add {growth} bytes of constants to the file")


def _constant_bytes(nodes: Iterable[gs.Node]) -> int:
    constants = {id(t): t for node in nodes for t in node.inputs if isinstance(t, gs.Constant)}
    return sum(int(t._values.nbytes) for t in constants.values())


class _Moves:
    """Edges that move when one tensor takes the place of another."""

    def __init__(self, index: GraphIndex, gone: set[int], made: set[int]) -> None:
        self.index = index
        self.gone = gone
        self.made = made
        self.inputs: list[Slot] = []
        self.outputs: list[Slot] = []
        self.graph_outputs: list[tuple[Scope, int, gs.Tensor, gs.Tensor]] = []
        self.touched: dict[int, NodeImage] = {}
        self.renamed: dict[int, gs.Tensor] = {}
        """by id(tensor) that an output's tensor takes the place of"""

    def forward(self, old: gs.Tensor, now: gs.Tensor, scope: Scope) -> list[gs.Node]:
        """Consumers of ``old`` read ``now``; gives nodes that are needed besides."""
        if not self.index.is_output(old):
            self.readers(old, self.renamed.get(id(now), now))
            return []
        if isinstance(now, gs.Constant):
            node = gs.Node("Constant", attrs={"value": gs.Constant(f"{old.name}.value", now._values)})
            list.append(node.outputs, old)
            return [node]
        return self.take_over(old, now, scope)

    def take_over(self, old: gs.Tensor, now: gs.Tensor, scope: Scope) -> list[gs.Node]:
        """``old`` is an output: the producer of ``now`` makes it instead."""
        producer = self.index.producer(now)
        is_interface = producer is None or self.index.is_output(now) or id(now) in self.renamed
        if producer is None or is_interface or self.index.scope(producer) is not scope:
            return [self.identity(old, now)]
        if id(producer) in self.gone:
            if id(now) in self.made:
                return [self.identity(old, now)]
            raise Decline(f"'{now.name}' is made by a node that goes away")
        self.touch(producer)
        self.renamed[id(now)] = old
        self.outputs.append((producer, _slot(producer.outputs, now), now, old))
        self.readers(now, old)
        return []

    def identity(self, old: gs.Tensor, now: gs.Tensor) -> gs.Node:
        """Both are interface: a node between them stays. Raises Decline where that is what goes away."""
        maker = self.index.producer(old)
        if maker is not None and maker.op == "Identity" and maker.inputs[0] is now:
            raise Decline(f"'{old.name}' is a graph output and '{now.name}' is interface too: an Identity stays")
        node = gs.Node(
            "Identity", self.index.unique_node_name(f"{maker.name}_Identity") if maker and maker.name else ""
        )
        list.append(node.inputs, now)
        list.append(node.outputs, old)
        return node

    def readers(self, old: gs.Tensor, now: gs.Tensor) -> None:
        for node in self.index.consumers(old):
            if id(node) in self.gone:
                continue
            self.touch(node)
            self.inputs += [(node, i, old, now) for i, t in enumerate(node.inputs) if t is old]

    def touch(self, node: gs.Node) -> None:
        self.touched.setdefault(id(node), NodeImage.of(node))


def _check_operands(removed: Iterable[gs.Node], added: Iterable[gs.Node]) -> None:
    """What comes must not read what goes: a free operand may be bound to a tensor from inside the match."""
    made = {id(t) for node in added for t in node.outputs}
    gone = {id(t) for node in removed for t in node.outputs} - made
    for node in added:
        for tensor in node.inputs:
            if id(tensor) in gone:
                raise Decline(f"'{tensor.name}' goes with the match, and is an operand besides")


def _removed(match: Match, replacement: Replacement) -> tuple[gs.Node, ...]:
    """What a rewrite takes out: the match, less what makes the leaves that it leaves."""
    left = {id(n) for leaf in replacement.leave for n in leaf.matched}
    return tuple(n for n in match.matched if id(n) not in left)


def _slot(tensors: Iterable[gs.Tensor], tensor: gs.Tensor) -> int:
    return next(i for i, t in enumerate(tensors) if t is tensor)


def _place(position: Position, number: int) -> Position:
    return (*position, number)


def _check_cost(before: Cost, after: Cost) -> None:
    if before.per_position != after.per_position:
        return
    if after.macs > before.macs * GROWTH:
        times = after.macs / before.macs if before.macs else float("inf")
        raise Decline(f"it would cost {times:.3g}x the multiply-accumulates ({before.macs} to {after.macs})")
    if after.weights > before.weights * GROWTH:
        times = after.weights / before.weights if before.weights else float("inf")
        raise Decline(f"it would hold {times:.3g}x the weights ({before.weights} to {after.weights})")


def _metrics(before: Cost, after: Cost) -> Mapping[str, Any]:
    return {
        "macs_before": before.macs,
        "macs_after": after.macs,
        "weights_before": before.weights,
        "weights_after": after.weights,
        "per_position": before.per_position,
    }
