"""``keep`` and ``only``: which nodes and tensors of a model they mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import onnx_graphsurgeon as gs

from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.grouping import find_groups
from surgeon_passes.index import GraphIndex, subgraphs
from surgeon_passes.rules.guard import Guard

GROUP = "group:"
_BETWEEN = re.compile(r"(?:from:(?P<inputs>\S+))?\s*(?:to:(?P<outputs>\S+))?")


@dataclass(frozen=True)
class Only:
    """The part of a model that may be changed: between tensors, or nodes by pattern (or ``group:NAME``).

    Between ``inputs`` and ``outputs`` lie the nodes that depend on an input and lead to an output, and those that only
    depend on constants and lead to one; without ``inputs`` (``outputs``) it begins (ends) where the model does.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    pattern: str = ""

    @classmethod
    def parse(cls, text: str) -> Only:
        """``from:a,b to:c``, either half of it, ``group:NAME``, or a pattern. Raises UsageError for an empty one."""
        found = _BETWEEN.fullmatch(text.strip())
        if not text.strip():
            raise UsageError("only is empty: write 'from:A to:B', 'group:NAME' or a pattern of node names")
        if found is None:
            return cls(pattern=text)
        inputs, outputs = (tuple(filter(None, (found[side] or "").split(","))) for side in ("inputs", "outputs"))
        return cls(inputs, outputs)

    def __str__(self) -> str:
        sides = (("from:", self.inputs), ("to:", self.outputs))
        return self.pattern or " ".join(side + ",".join(names) for side, names in sides if names)


def make_guard(
    index: GraphIndex, keep: Iterable[str] = (), only: Only | str | None = None, skip: Iterable[str] = ()
) -> Guard:
    """What the options mean for the graph as it is now. Raises UsageError for what matches nothing."""
    keep = [keep] if isinstance(keep, str) else list(keep)
    found = _Selection(index)
    nodes: dict[int, str] = {}
    holders: dict[int, str] = {}
    constants: dict[int, str] = {}
    for pattern in keep:
        found.keep(pattern, nodes, holders, constants)
    if only is not None:
        region = Only.parse(only) if isinstance(only, str) else only
        inside = {id(n) for n in found.inside(region)}
        outside = [n for n in index.nodes() if id(n) not in inside]
        nodes = {**{id(n): f"it is outside of what may change (only {region})" for n in outside}, **nodes}
    return Guard(nodes, holders, constants, frozenset(skip))


class _Selection:
    def __init__(self, index: GraphIndex) -> None:
        self.index = index
        self.nodes = index.nodes()

    @cached_property
    def groups(self) -> dict[str, list[gs.Node]]:
        return {group.name: nodes for group, nodes in find_groups(self.index)}

    def keep(self, pattern: str, nodes: dict[int, str], holders: dict[int, str], constants: dict[int, str]) -> None:
        reason = f"it is kept ({pattern})"
        chosen = self.group(pattern) if pattern.startswith(GROUP) else self.named(pattern)
        nodes.update((id(n), reason) for n in chosen)
        tensors = [] if pattern.startswith(GROUP) else self.tensors(pattern)
        if not chosen and not tensors:
            raise UsageError(f"keep '{pattern}' matches no node and no tensor{self.hint(pattern)}")
        for tensor in tensors:
            why = f"'{tensor.name}' is kept ({pattern})"
            maker = self.index.producer(tensor)
            if maker is not None:
                holders[id(maker)] = why
            elif isinstance(tensor, gs.Constant):
                constants[id(tensor)] = why
                holders.update((id(reader), why) for reader in self.index.consumers(tensor))

    def inside(self, only: Only) -> list[gs.Node]:
        """Nodes that may change, with what their bodies hold."""
        if bool(only.pattern) == bool(only.inputs or only.outputs):
            raise UsageError("only takes tensors (inputs, outputs) or a pattern: give one of the two")
        if only.pattern.startswith(GROUP):
            chosen = self.group(only.pattern)
        elif only.pattern:
            chosen = self.matching(only.pattern)
        else:
            chosen = self.between(only)
        return [member for node in chosen for member in self.index.with_bodies(node)]

    def group(self, name: str) -> list[gs.Node]:
        wanted = name.removeprefix(GROUP)
        if wanted not in self.groups:
            raise UsageError(f"the model has no group '{wanted}'{did_you_mean(wanted, self.groups)}")
        return self.groups[wanted]

    def named(self, pattern: str) -> list[gs.Node]:
        return [n for n in self.nodes if n.name and _fits(n.name, pattern)]

    def matching(self, pattern: str) -> list[gs.Node]:
        """Nodes that are called so, or that make a tensor that is."""
        found = [n for n in self.nodes if any(_fits(s, pattern) for s in (n.name, *(t.name for t in n.outputs)) if s)]
        if not found:
            raise UsageError(f"only '{pattern}' matches no node{self.hint(pattern)}")
        return found

    def tensors(self, pattern: str) -> list[gs.Tensor]:
        return [t for t in self.index.tensors() if t.name and _fits(t.name, pattern)]

    def hint(self, name: str) -> str:
        names = {n.name for n in self.nodes} | {t.name for t in self.index.tensors()}
        return did_you_mean(name, {str(n) for n in names if n})

    # --- between tensors ---------------------------------------------------------------------------------------------

    def between(self, only: Only) -> list[gs.Node]:
        inputs, outputs = ([self.tensor(name) for name in side] for side in (only.inputs, only.outputs))
        above = self.leading_to(outputs, {id(t) for t in inputs}) if outputs else {id(n) for n in self.nodes}
        below = self.depending_on(inputs or self.index.graph.inputs)
        moving = self.depending_on(self.index.graph.inputs)
        for tensor in outputs if inputs else ():
            maker = self.index.producer(tensor)
            if maker is None or id(maker) not in below:
                raise UsageError(f"only {only}: '{tensor.name}' does not depend on {' or '.join(only.inputs)}")
        for tensor in inputs if outputs else ():
            if not any(id(self.index.holder(user)) in above for user in self.index.consumers(tensor)):
                raise UsageError(f"only {only}: '{tensor.name}' does not lead to {' or '.join(only.outputs)}")
        chosen = above & below
        main = [n for n in self.index.scope_nodes(self.index.scopes[0]) if id(n) in above]
        fixed = [n for n in main if id(n) not in moving]
        return [n for n in main if id(n) in chosen] + self.feeding(fixed, chosen)

    def feeding(self, fixed: list[gs.Node], chosen: set[int]) -> list[gs.Node]:
        """Those of ``fixed`` (in order), which depend on constants alone, whose results go into the region."""
        found: dict[int, gs.Node] = {}
        for node in reversed(fixed):
            users = [self.index.holder(user) for t in node.outputs for user in self.index.consumers(t)]
            if any(id(user) in chosen or id(user) in found for user in users):
                found[id(node)] = node
        return list(found.values())

    def tensor(self, name: str) -> gs.Tensor:
        main = self.index.scopes[0]
        for tensor in self.index.tensors():
            if tensor.name == name and self.index.home(tensor) is main:
                return tensor
        raise UsageError(f"only: the main graph has no tensor '{name}'{self.hint(name)}")

    def leading_to(self, tensors: Iterable[gs.Tensor], stop: set[int]) -> set[int]:
        """Ids of the nodes that the tensors are computed by, back to those whose ids are in ``stop``."""
        found: set[int] = set()
        todo = list(tensors)
        while todo:
            tensor = todo.pop()
            node = self.index.producer(tensor)
            if node is None or id(node) in found or id(tensor) in stop:
                continue
            found.add(id(node))
            members = self.index.with_bodies(node)
            todo += [t for m in members for t in m.inputs if t.name]
            todo += [t for m in members for _, body in subgraphs(m) for t in body.outputs]
        return found

    def depending_on(self, tensors: Iterable[gs.Tensor]) -> set[int]:
        """Ids of the nodes of the main graph that read the tensors, directly or not."""
        found: set[int] = set()
        todo = list(tensors)
        while todo:
            for user in self.index.consumers(todo.pop()):
                node = self.index.holder(user)
                if id(node) not in found:
                    found.add(id(node))
                    todo += [t for t in node.outputs if t.name]
        return found


def _fits(name: str, pattern: str) -> bool:
    return name == pattern or fnmatchcase(name, pattern)
