"""The machine that matches: goals, a trail of bindings, a stack of choices.

Every operand order, alternative and group of leaves is a choice on one stack, so that every order is tried without
cloning patterns, and nothing recurses over the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.ops.schema import domain_of, plain
from surgeon_passes.ops.view import CallerAttribute, NodeView
from surgeon_passes.rules import flat
from surgeon_passes.rules.flat import Tree
from surgeon_passes.rules.goals import (
    SETTLED,
    Assign,
    Bindings,
    Define,
    Finish,
    Goal,
    Goals,
    Leaves,
    Options,
    Order,
    Seed,
    Seek,
    is_rest,
    orders,
    push,
    same,
    selectivity,
)
from surgeon_passes.rules.literals import equals
from surgeon_passes.rules.match import Group, Leaf
from surgeon_passes.rules.pattern import (
    Alternatives,
    AttrPattern,
    Call,
    Capture,
    Definition,
    Flat,
    Literal,
    NameRef,
    OpId,
    Span,
    Template,
    TemplateUse,
    Value,
)

if TYPE_CHECKING:
    from surgeon_passes.rules.matcher import Matcher

MAX_READINGS = 4
"""Ways to read one leaf by one option: operand orders that bind the parameters otherwise."""
MAX_STEPS = 100_000
"""Choices that are looked at for one root before a match is given up."""


class Machine:
    def __init__(self, matcher: Matcher, root: gs.Node, made_by: Mapping[str, Definition]) -> None:
        self.matcher = matcher
        self.context = matcher.context
        self.index = matcher.index
        self.scope = self.index.scope(root)
        self.made_by = made_by
        self.state = Bindings()
        self.trail: list[tuple[dict[Any, Any], Any]] = []

    # --- the machine -------------------------------------------------------------------------------------------------

    def run(self, goals: Goals) -> Iterator[Bindings]:
        choices: list[tuple[Goals, int, Seed]] = [(goals, 0, None)]
        spent = 0
        while choices and spent < MAX_STEPS:
            pending, mark, seed = choices.pop()
            self.undo(mark)
            if seed is not None and not seed():
                continue
            while True:
                if pending is None:
                    yield self.state
                    break
                goal, rest = pending
                options = self.step(goal)
                spent += 1 + len(options)
                if not options:
                    break
                for steps, start in reversed(options[1:]):
                    choices.append((push(steps, rest), len(self.trail), start))
                steps, start = options[0]
                if start is not None and not start():
                    break
                pending = push(steps, rest)

    def run_single(self, definition: Definition, calls: Sequence[Call], node: gs.Node) -> Iterator[Bindings]:
        """As :meth:`run`, for a pattern of one call, or alternatives of one, on names and literals.

        Nothing is left to choose but the order of operands.
        """
        if not self.begin(definition, node):
            return
        for call in calls:
            first = len(self.trail)
            for args, operands, tail in self.ways(call, node):
                mark = len(self.trail)
                start = self.rest(tail)
                if (start is None or start()) and all(map(self.leaf, args, operands)):
                    yield self.state
                self.undo(mark)
            self.undo(first)

    def leaf(self, value: Value, tensor: gs.Tensor | None) -> bool:
        if isinstance(value, NameRef):
            return bool(self.name(value, tensor))
        assert isinstance(value, Literal)
        return self.literal(value, tensor)

    def undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            table, key = self.trail.pop()
            if isinstance(table, Slot):
                table.restore(key)
            else:
                del table[key]

    def put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        table[key] = value
        self.trail.append((table, key))

    def bind(self, name: str, value: Any, span: Span) -> bool:
        if name in self.state.names:
            if same(self.state.names[name], value, self.context):
                return True
            return self.fail(span, f"'{name}' stands for two different tensors")
        self.put(self.state.names, name, value)
        return True

    def fail(self, span: Span, reason: str) -> bool:
        self.matcher.note(self.state.matched, span, reason)
        return False

    def step(self, goal: Goal) -> Options:
        if isinstance(goal, Seek):
            return self.seek(goal.value, goal.tensor)
        if isinstance(goal, Define):
            return self.define(goal.definition, goal.node)
        if isinstance(goal, Finish):
            return self.rest_of_names(goal.number)
        return self.assign(goal)

    def rest_of_names(self, number: int) -> Options:
        if number == len(self.state.waiting):
            return SETTLED
        return [((*steps, Finish(number + 1)), start) for steps, start in self.state.waiting[number]]

    # --- values ------------------------------------------------------------------------------------------------------

    def seek(self, value: Value, tensor: gs.Tensor | None) -> Options:
        if isinstance(value, NameRef):
            return self.name(value, tensor)
        if isinstance(value, Alternatives):
            return [((Seek(option, tensor),), None) for option in value.options]
        if isinstance(value, Literal):
            return SETTLED if self.literal(value, tensor) else []
        node = self.producer(tensor, value.span)
        if node is None:
            return []
        return self.call(value, node) if isinstance(value, Call) else self.flat(value, node, False)

    def producer(self, tensor: gs.Tensor | None, span: Span) -> gs.Node | None:
        if tensor is None:
            self.fail(span, "the operand is missing")
            return None
        node = self.index.producer(tensor)
        if node is None:
            self.fail(span, f"'{tensor.name}' is made by no node")
        elif self.index.scope(node) is not self.scope:
            self.fail(span, f"'{tensor.name}' comes from an outer graph")
            return None
        return node

    def literal(self, value: Literal, tensor: gs.Tensor | None) -> bool:
        if value.value == "" and tensor is None:
            return True
        if tensor is None:
            return self.fail(value.span, "the operand is missing")
        if value.value == "":
            return self.fail(value.span, f"'{tensor.name}' should be missing")
        known = self.context.value(tensor)
        if isinstance(known, np.ndarray) and equals(value.value, known):
            return True
        return self.fail(value.span, f"'{tensor.name}' is not the constant {value.value}")

    def name(self, ref: NameRef, tensor: gs.Tensor | None) -> Options:
        definition = self.made_by.get(ref.name)
        if definition is not None and tensor is not None:
            return self.defined(ref, definition, tensor)
        if tensor is None and not ref.optional:
            self.fail(ref.span, f"operand '{ref.name}' is missing")
            return []
        if tensor is not None and not self.kind(ref, tensor):
            return []
        return SETTLED if self.bind(ref.name, tensor, ref.span) else []

    def defined(self, ref: NameRef, definition: Definition, tensor: gs.Tensor) -> Options:
        if ref.name in self.state.names:
            return SETTLED if self.bind(ref.name, tensor, ref.span) else []
        if not isinstance(definition.value, (Call, Flat)):
            self.put(self.state.names, ref.name, tensor)
            node = self.index.producer(tensor)
            if node is not None:
                self.put(self.state.nodes, ref.name, node)
            return [((Seek(definition.value, tensor),), None)]
        node = self.producer(tensor, ref.span)
        if node is None:
            return []
        position = [o.name for o in definition.outputs].index(ref.name)
        variadic = definition.outputs[position].variadic
        if not variadic and (position >= len(node.outputs) or node.outputs[position] is not tensor):
            self.fail(ref.span, f"'{tensor.name}' is not result {position + 1} of {node.op}")
            return []
        return [((Define(definition, node),), None)]

    def kind(self, ref: NameRef, tensor: gs.Tensor) -> bool:
        if ref.kind == "const" and not isinstance(self.context.value(tensor), np.ndarray):
            return self.fail(ref.span, f"'{tensor.name}' is not constant")
        if ref.kind == "partial" and self.context.value(tensor) is None:
            return self.fail(ref.span, f"nothing is known of the value of '{tensor.name}'")
        if ref.kind == "unshared" and self.index.edge_count(tensor) != 1:
            return self.fail(ref.span, f"'{tensor.name}' is used elsewhere too")
        return True

    # --- nodes -------------------------------------------------------------------------------------------------------

    def define(self, definition: Definition, node: gs.Node) -> Options:
        value = definition.value
        if not self.begin(definition, node):
            return []
        if isinstance(value, Call):
            return self.call(value, node)
        if isinstance(value, Flat):
            return self.flat(value, node, definition is self.matcher.pattern.root)
        return [((Seek(value, node.outputs[0]),), None)]

    def begin(self, definition: Definition, node: gs.Node) -> bool:
        """Bind the names of a definition's results, and the node to them."""
        if isinstance(definition.value, (Call, Flat)):
            if not self.results(definition, node):
                return False
        elif not self.bind(definition.outputs[0].name, node.outputs[0], definition.span):
            return False
        for output in definition.outputs:
            if output.name:
                self.put(self.state.nodes, output.name, node)
        return True

    def results(self, definition: Definition, node: gs.Node) -> bool:
        named = definition.outputs
        if named and named[-1].variadic:
            head, rest = node.outputs[: len(named) - 1], tuple(node.outputs[len(named) - 1 :])
            if len(head) < len(named) - 1 or not self.bind(named[-1].name, rest, named[-1].span):
                return False
            pairs = list(zip(named, head, strict=False))
        else:
            for extra in node.outputs[len(named) :]:
                if extra.name and self.index.edge_count(extra):
                    return self.fail(definition.span, f"result '{extra.name}' of {node.op} is used")
            pairs = [(o, node.outputs[i] if i < len(node.outputs) else None) for i, o in enumerate(named)]
        for output, tensor in pairs:
            present = tensor if tensor is not None and tensor.name else None
            if not output.name:
                if present is not None and self.index.edge_count(present):
                    return self.fail(definition.span, f"result '{present.name}' of {node.op} is used")
                continue
            if present is None and not output.optional:
                return self.fail(output.span, f"{node.op} has no result for '{output.name}'")
            if not self.bind(output.name, present, output.span):
                return False
        return True

    def call(self, call: Call, node: gs.Node) -> Options:
        ways = self.ways(call, node)
        options: Options = [(tuple(map(Seek, args, ops)), self.rest(tail)) for args, ops, tail in ways]
        if len(options) > 1 and all(self.is_free(arg) for arg in call.args):
            self.put(self.state.waiting, len(self.state.waiting), options)
            return SETTLED
        return options

    def ways(self, call: Call, node: gs.Node) -> list[Order]:
        """Each way to lay the call's arguments on the operands of ``node``; none where it is no such call."""
        name = OpId(domain_of(node.domain), node.op)
        if name not in call.ops:
            self.fail(call.span, f"{name} stands where {'|'.join(map(str, call.ops))} is wanted")
            return []
        view = self.context.view(node)
        if not view.regular:
            self.fail(call.span, f"{name} at opset {view.opset} means something else")
            return []
        if not all(self.attribute(a, view) for a in call.attrs):
            return []
        self.match_node(node)
        ways = orders(call, view)
        if not ways:
            self.fail(call.span, f"{name} has {len(view.inputs)} operands where {len(call.args)} are wanted")
        return ways

    def is_free(self, value: Value) -> bool:
        """Whether any tensor fits a name, whatever the rest of the pattern binds."""
        if not isinstance(value, NameRef) or value.kind != "any" or value.name in self.made_by:
            return False
        return self.matcher.facts.uses[value.name] == 1

    def match_node(self, node: gs.Node) -> None:
        if id(node) not in self.state.matched:
            self.put(self.state.matched, id(node), node)

    def rest(self, tail: tuple[NameRef, tuple[gs.Tensor, ...]] | None) -> Seed:
        if tail is None:
            return None
        ref, tensors = tail

        def start() -> bool:
            if ref.kind == "const" and not all(isinstance(self.context.value(t), np.ndarray) for t in tensors):
                return self.fail(ref.span, f"an operand of '{ref.name}...' is not constant")
            definition = self.made_by.get(ref.name)
            if definition is not None and ref.name not in self.state.names:
                return self.rest_of_definition(ref, definition, tensors)
            return self.bind(ref.name, tensors, ref.span)

        return start

    def rest_of_definition(self, ref: NameRef, definition: Definition, tensors: tuple[gs.Tensor, ...]) -> bool:
        """``Concat(parts...)`` with ``parts... = Split(x)``: one node makes all, in order."""
        node = self.producer(tensors[0] if tensors else None, ref.span)
        if node is None or not isinstance(definition.value, Call):
            return False
        if len(node.outputs) != len(tensors) or any(a is not b for a, b in zip(node.outputs, tensors, strict=True)):
            return self.fail(ref.span, f"'{ref.name}...' are not the results of one {node.op}, in order")
        self.put(self.state.names, ref.name, tensors)
        self.put(self.state.nodes, ref.name, node)
        options = self.call(definition.value, node)
        return any(self.settle(steps, start) for steps, start in options)

    def settle(self, steps: tuple[Goal, ...], start: Seed) -> bool:
        """Run goals to their first solution, keeping its bindings."""
        mark = len(self.trail)
        if start is not None and not start():
            self.undo(mark)
            return False
        for goal in steps:
            if not any(self.settle(inner, begin) for inner, begin in self.step(goal)):
                self.undo(mark)
                return False
        return True

    def attribute(self, pattern: AttrPattern, view: NodeView) -> bool:
        try:
            value = view.attr(pattern.name)
        except CallerAttribute:
            value = view.attrs[pattern.name]
        if isinstance(pattern.value, Capture):
            key = f"@{pattern.value.name}"
            if key in self.state.names:
                if plain(self.state.names[key]) == plain(value):
                    return True
                return self.fail(pattern.span, f"{key} stands for two different values")
            self.put(self.state.names, key, value)
            return True
        wanted = pattern.value.value
        if equals(wanted, value) or self.same_axis(pattern.name, wanted, value, view):
            return True
        return self.fail(pattern.span, f"attribute {pattern.name} is {value}, not {wanted}")

    def same_axis(self, name: str, wanted: Any, value: Any, view: NodeView) -> bool:
        """``axis=-1`` is the last axis however the model writes it."""
        if name != "axis" or not isinstance(wanted, int) or not isinstance(value, int):
            return False
        first = view.input(0)
        rank = self.context.type_of(first).rank if first is not None else None
        return rank is not None and wanted % rank == value % rank and -rank <= value < rank

    # --- sums and products -------------------------------------------------------------------------------------------

    def flat(self, pattern: Flat, node: gs.Node, is_root: bool) -> Options:
        if is_root and flat.is_inner(node, pattern.kind, self.index):
            return []
        fixed = tuple(a for a in pattern.args if not isinstance(a, TemplateUse) and not is_rest(a))
        is_open = is_root or len(fixed) < len(pattern.args)
        tree = self.context.tree(node, pattern.kind, None if is_open else len(fixed))
        if tree is None:
            self.fail(pattern.span, f"{node.op} is no {pattern.kind} of two or more")
            return []
        for member in tree.nodes:
            self.match_node(member)
        if len(pattern.args) == 1 and isinstance(pattern.args[0], TemplateUse):
            return self.template(pattern, pattern.args[0], tree, is_root)
        if len(tree.leaves) < len(fixed) or (len(tree.leaves) > len(fixed) and not is_open):
            more = "" if len(tree.leaves) < len(fixed) else "or more "
            self.fail(pattern.span, f"{len(tree.leaves)} {more}operands where {len(fixed)} are wanted")
            return []
        return [((Assign(pattern, tuple(sorted(fixed, key=selectivity)), Leaves(tree.leaves, self.context)),), None)]

    def assign(self, goal: Assign) -> Options:
        if not goal.args:
            return SETTLED if self.finish(goal) else []
        first, rest = goal.args[0], goal.args[1:]
        options: Options = []
        seen: set[int] = set()
        for position in goal.leaves.candidates(first, self.state.names):
            leaf = goal.leaves.tensors[position]
            if position not in goal.taken and id(leaf) not in seen:
                seen.add(id(leaf))
                after = Assign(goal.flat, rest, goal.leaves, goal.taken | {position})
                options.append(((Seek(first, leaf), after), None))
        if not options:
            self.fail(first.span, f"no operand of the {goal.flat.kind} fits")
        return options

    def finish(self, goal: Assign) -> bool:
        rest = next((a for a in goal.flat.args if is_rest(a)), None)
        if isinstance(rest, NameRef):
            return self.bind(rest.name, goal.others, rest.span)
        if goal.others:
            self.set_leftovers(goal.others)
        return True

    def set_leftovers(self, tensors: tuple[gs.Tensor, ...]) -> None:
        self.trail.append((Slot(self.state), self.state.leftovers))  # type: ignore[arg-type]
        self.state.leftovers = tensors

    def template(self, pattern: Flat, use: TemplateUse, tree: Tree, is_root: bool) -> Options:
        """One choice for each group of leaves that bind the same parameters, largest group first."""
        template = self.matcher.pattern.templates[use.template]
        members: dict[tuple[int, ...], dict[int, tuple[Leaf, tuple[gs.Tensor, ...]]]] = {}
        for position, tensor in enumerate(tree.leaves):
            for leaf, params in self.candidates(template, tensor):
                members.setdefault(tuple(map(id, params)), {}).setdefault(position, (leaf, params))
        groups = [
            Group(
                dict(zip(use.params, next(iter(g.values()))[1], strict=True)),
                tuple(leaf for leaf, _ in g.values()),
                frozenset(g),
            )
            for g in members.values()
        ]
        useful = [g for g in groups if len(g.leaves) > 1 and not all(leaf.is_bare for leaf in g.leaves)]
        useful.sort(key=lambda g: -sum(not leaf.is_bare for leaf in g.leaves))
        if not useful:
            plural = "es" if use.template.endswith(("s", "x", "ch", "sh")) else "s"
            several = f"no two operands of the {pattern.kind} are {use.template}{plural} of one tensor"
            bare = f"operands of the {pattern.kind} are one tensor, but none is made by a {use.template} of it"
            self.fail(pattern.span, bare if any(len(g.leaves) > 1 for g in groups) else several)
        if not is_root:
            useful = [g for g in useful if len(g.leaves) == len(tree.leaves)]
        return [((), self.take(use, useful, number, tree)) for number in range(len(useful))]

    def take(self, use: TemplateUse, groups: list[Group], number: int, tree: Tree) -> Seed:
        """Bind one of the groups; those behind it are its siblings."""

        def start() -> bool:
            group = groups[number]
            for name, tensor in group.names.items():
                if not self.bind(name, tensor, use.span):
                    return False
            for leaf in group.leaves:
                for node in leaf.matched:
                    self.match_node(node)
            self.put(self.state.leaves, use.template, group.leaves)
            self.put(self.state.siblings, use.template, tuple(groups[number + 1 :]))
            self.set_leftovers(tuple(t for i, t in enumerate(tree.leaves) if i not in group.positions))
            return True

        return start

    def candidates(self, template: Template, tensor: gs.Tensor) -> Iterator[tuple[Leaf, tuple[gs.Tensor, ...]]]:
        """Ways to read one leaf. A leaf that has another use can only be the bare parameter."""
        single = self.index.edge_count(tensor) == 1
        for number, option in enumerate(template.options):
            is_bare = isinstance(option, NameRef)
            if not single and not is_bare:
                continue
            inner = Machine(self.matcher, self.matcher_root(tensor), {})
            inner.scope = self.scope
            seen: set[tuple[int, ...]] = set()
            for state in islice(inner.run((Seek(option, tensor), (Finish(), None))), MAX_READINGS):
                params = tuple(state.names[p] for p in template.params)
                key = tuple(id(p) for p in params)
                if key not in seen and inner.private(state, tensor):
                    seen.add(key)
                    matched = tuple(state.matched.values())
                    yield Leaf(tensor, number, dict(state.names), dict(state.nodes), self.context, matched), params

    def matcher_root(self, tensor: gs.Tensor) -> gs.Node:
        node = self.index.producer(tensor)
        if node is not None:
            return node
        return next(iter(self.state.matched.values()))

    def private(self, state: Bindings, leaf: gs.Tensor) -> bool:
        """Whether nothing outside the leaf reads what lies inside it."""
        for node in state.matched.values():
            for tensor in node.outputs:
                if tensor is leaf or not tensor.name:
                    continue
                inside = all(id(c) in state.matched for c in self.index.readers(tensor))
                if not inside or self.index.is_output(tensor):
                    return False
        return True


class Slot:
    """Trail entry for the leftovers, which are replaced, not added."""

    def __init__(self, state: Bindings) -> None:
        self.state = state

    def restore(self, old: Any) -> None:
        self.state.leftovers = old
