"""The part of a model between tensors, as the text of a rule."""

from __future__ import annotations

import keyword
import math
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.errors import UsageError, did_you_mean
from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.ops.defaults import COMPUTED
from surgeon_passes.ops.schema import default_attributes, plain, schema
from surgeon_passes.ops.view import NodeView
from surgeon_passes.pipeline import Source, load
from surgeon_passes.rules.pattern import (
    AttrPattern,
    Attrs,
    Call,
    Capture,
    Definition,
    Emit,
    Literal,
    NameRef,
    OpId,
    OutputName,
    Pattern,
    Rewrite,
    RewriteLine,
    SameOp,
    Value,
)
from surgeon_passes.rules.printer import unparse, unparse_rewrite
from surgeon_passes.rules.schemas import is_operator

INPUTS = ("x", "z", "u", "v")
"""What tensors are called that a part reads; further ones are numbered."""
_RESERVED = frozenset({"sum", "prod", "true", "false", "const", "partial", "unshared"})


@dataclass(frozen=True)
class Cut:
    """``pattern`` fits the part with its root at ``root``; ``rewrite`` puts the same there again."""

    source: str
    pattern: Pattern
    rewrite: Rewrite
    graph: str
    """path of the graph that the part lies in, "" for the main graph"""
    root: str


def cut(source: Source, begin: Sequence[str], end: str) -> Cut:
    """What lies between the tensors called ``begin`` and the tensor ``end``: every node that depends on one of them and that
    ``end`` depends on. What else these nodes read is a constant or a name of its own.

    Raises UsageError where there is no such tensor or no way between them, where another tensor that is made there is read
    outside, and for an operator that holds a graph; ModelError for the model.
    """
    model = load(source)
    index = GraphIndex(model.graph)
    tensors = _tensors(index)
    for name in (*begin, end):
        if name not in tensors:
            raise UsageError(f"{model.source} has no tensor '{name}'{did_you_mean(name, tensors)}")
    target = tensors[end]
    nodes = _between(index, [tensors[name] for name in begin], target, model.source)
    _check_results(index, nodes, target)
    root = nodes[-1]
    scope = index.scope(root)
    pattern, rewrite = _Writer(index, nodes, target).write()
    return Cut(model.source, pattern, rewrite, scope.path, node_label(root))


def _tensors(index: GraphIndex) -> dict[str, gs.Tensor]:
    """By name; the main graph's where others use the name too."""
    found: dict[str, gs.Tensor] = {}
    for scope in index.scopes:
        known = [*scope.graph.inputs, *(t for n in index.scope_nodes(scope) for t in (*n.outputs, *n.inputs))]
        for tensor in known:
            if tensor.name:
                found.setdefault(tensor.name, tensor)
    return found


def _between(index: GraphIndex, begin: Sequence[gs.Tensor], end: gs.Tensor, source: str) -> list[gs.Node]:
    """In the order in which they run."""
    behind: dict[int, gs.Node] = {}
    stops = {id(t) for t in begin}
    todo = deque([end])
    while todo:
        tensor = todo.popleft()
        maker = index.producer(tensor)
        if maker is None or id(maker) in behind or (id(tensor) in stops and tensor is not end):
            continue
        behind[id(maker)] = maker
        todo.extend(t for t in maker.inputs if t.name)
    reached: dict[int, gs.Node] = {}
    for tensor in begin:
        before = len(reached)
        starts = [n for n in index.consumers(tensor) if id(n) in behind]
        waiting = deque(starts)
        while waiting:
            node = waiting.popleft()
            if id(node) not in reached:
                reached[id(node)] = node
                waiting.extend(n for t in node.outputs for n in index.consumers(t) if id(n) in behind)
        if not starts and len(reached) == before:
            raise UsageError(f"{source}: there is no way from tensor '{tensor.name}' to '{end.name}'")
    _check_nodes(index, reached.values(), end)
    return sorted(reached.values(), key=_order(index, reached, end))


def _order(index: GraphIndex, nodes: Mapping[int, gs.Node], end: gs.Tensor) -> Any:
    """A key that puts every node behind those that it reads, the one that makes ``end`` last."""
    place: dict[int, int] = {}
    todo: list[tuple[gs.Node, bool]] = [(index.producer(end), False)]
    while todo:
        node, ready = todo.pop()
        if ready:
            place.setdefault(id(node), len(place))
        elif id(node) not in place:
            todo.append((node, True))
            makers = [index.producer(t) for t in node.inputs]
            todo += [(m, False) for m in reversed(makers) if m is not None and id(m) in nodes]
    return lambda node: place[id(node)]


def _check_nodes(index: GraphIndex, nodes: Iterable[gs.Node], end: gs.Tensor) -> None:
    maker = index.producer(end)
    assert maker is not None
    for node in nodes:
        if index.holds_bodies(node):
            raise UsageError(
                f"{node_label(node)} holds a graph: a pattern cannot say what is inside; cut before or behind it"
            )
        if index.scope(node) is not index.scope(maker):
            raise UsageError(
                f"{node_label(node)} lies in another graph than '{end.name}': a match never spans two graphs"
            )
        if not index.view(node).regular:
            raise UsageError(
                f"{node_label(node)} is of an old form that no pattern fits; raise the opset first (--opset)"
            )


def _check_results(index: GraphIndex, nodes: Sequence[gs.Node], end: gs.Tensor) -> None:
    inside = {id(n) for n in nodes}
    for tensor in (t for node in nodes for t in node.outputs if t is not end):
        if index.is_output(tensor):
            raise UsageError(
                f"'{tensor.name}' leaves the part too: it is a graph output; end the part there, or begin behind it"
            )
        outside = next((n for n in index.consumers(tensor) if id(n) not in inside), None)
        if outside is not None:
            raise UsageError(
                f"'{tensor.name}' leaves the part too: {node_label(outside)} reads it; end the part there, or begin behind it"
            )


# --- text ----------------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, index: GraphIndex, nodes: Sequence[gs.Node], target: gs.Tensor) -> None:
        from surgeon_passes.rules.match import Match

        self.index, self.nodes, self.target = index, nodes, target
        self.made = {id(t) for n in nodes for t in n.outputs}
        members = {m for m in dir(Match) if not m.startswith("_")} | {"root", "matched", "leftovers", "join", "m"}
        self.taken: set[str] = {"y", *members, *_RESERVED}
        self.names: dict[int, str] = {id(target): "y"}
        self.captures: set[str] = set()
        self.missing: set[str] = set()

    def write(self) -> tuple[Pattern, Rewrite]:
        definitions, lines = [], []
        for node in self.nodes:
            view = self.index.view(node)
            args = tuple(self.operands(view))
            outputs = self.results(node)
            op = OpId(view.domain, view.op)
            definitions.append(Definition(outputs, Call((op,), args, tuple(self.attributes(view)))))
            base = next(o.name for o in outputs if o.name)
            emitted = tuple(NameRef(a.name) for a in args if isinstance(a, NameRef))
            lines.append(RewriteLine(tuple(o.name for o in outputs), Emit(SameOp(base), emitted, Attrs(base=base))))
        return Pattern(tuple(definitions)), Rewrite(tuple(lines))

    def operands(self, view: NodeView) -> Iterable[Value]:
        entry = schema(view.op, view.opset, view.domain)
        formal = [p.name for p in entry.inputs] if entry is not None else []
        for place, tensor in enumerate(view.inputs):
            called = formal[place] if place < len(formal) else "k"
            if tensor is None:
                yield NameRef(self.fresh(called, "k"), optional=True)
            elif id(tensor) in self.made:
                yield NameRef(self.names[id(tensor)])
            else:
                yield self.outside(tensor, called)

    def outside(self, tensor: gs.Tensor, called: str) -> NameRef:
        """A constant is called as the operator calls it, anything else ``x``, ``z``, …"""
        maker = self.index.producer(tensor)
        const = isinstance(tensor, gs.Constant) or (maker is not None and maker.op == "Constant")
        if id(tensor) not in self.names:
            free = next((n for n in INPUTS if n not in self.taken), "x")
            self.names[id(tensor)] = self.fresh(called if const else free, "k")
        return NameRef(self.names[id(tensor)], kind="const" if const else "any")

    def results(self, node: gs.Node) -> tuple[OutputName, ...]:
        """Those that are read, and what stands before them."""
        read = [t is self.target or self.index.edge_count(t) > 0 for t in node.outputs]
        last = max(i for i, is_read in enumerate(read) if is_read)
        found = []
        for tensor, is_read in zip(node.outputs[: last + 1], read, strict=False):
            if is_read and id(tensor) not in self.names:
                self.names[id(tensor)] = self.fresh(str(node.op), "t")
            found.append(OutputName(self.names[id(tensor)] if is_read else ""))
        return tuple(found)

    def fresh(self, called: str, otherwise: str) -> str:
        """A name like ``called`` that says nothing else in a pattern."""
        word = re.sub(r"\W+", "_", called).strip("_").lower()
        word = word if re.fullmatch(r"[a-z]\w*", word) else otherwise
        number, found = 1, word
        while found in self.taken or is_operator(found):
            number += 1
            found = f"{word}{number}"
        self.taken.add(found)
        return found

    def attributes(self, view: NodeView) -> Iterable[AttrPattern]:
        """Those that are not as the operator has them by default."""
        for name in view.attrs:
            value = view.attr(name)
            if _is_default(view, name, value):
                continue
            written = _written(value)
            if written is None:
                yield AttrPattern(name, Capture(self.captured(name)))
            else:
                yield AttrPattern(name, Literal(written))

    def captured(self, name: str) -> str:
        found, number = name, 1
        while found in self.captures:
            number += 1
            found = f"{name}{number}"
        self.captures.add(found)
        return found


def _is_default(view: NodeView, name: str, value: Any) -> bool:
    computed = COMPUTED.get((view.op, name)) if view.domain == "" else None
    if computed is not None:
        bare = NodeView.__new__(NodeView)
        for slot in NodeView.__slots__:
            setattr(bare, slot, getattr(view, slot))
        bare._attrs = {k: v for k, v in view.attrs.items() if k != name}
        default = computed(bare)
    else:
        default = default_attributes(view.op, view.opset, view.domain).get(name)
    return default is not None and bool(default == value)


def _written(value: Any) -> Any:
    """An attribute's value as a literal; None for what has no text (tensors, graphs, what is not finite)."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(str(np.float32(value))) if math.isfinite(value) else None
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        items = [_written(plain(v)) for v in value]
        return None if not items or any(i is None or isinstance(i, tuple) for i in items) else tuple(items)
    return None


def write_rule(found: Cut, name: str) -> str:
    """A Python file that defines the rule ``name``. Raises UsageError for what Python cannot call a function."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UsageError(f"a rule cannot be called '{name}': it is no Python name")
    pattern = "\n".join(f"        {line}" for line in unparse(found.pattern).splitlines())
    rewrite = "\n".join(f"        {line}" for line in unparse_rewrite(found.rewrite).splitlines())
    quote = "'''" if '"""' in pattern + rewrite else '"""'
    raw = "r" if "\\" in pattern + rewrite else ""
    return _FILE.format(name=name, pattern=pattern, rewrite=rewrite, quote=f"{raw}{quote}", end=quote)


_FILE = '''\
from surgeon_passes import Match, Replacement, rule


@rule(
    pattern={quote}
{pattern}
    {end},
    # The same again: write what is to stand there instead.
    rewrite={quote}
{rewrite}
    {end},
    exactness="rounding",
)
def {name}(m: Match) -> Replacement:
    """Say in one line what becomes of what.

    Declines when
        say what the pattern cannot; raise Decline("reason") for it.
    """
    return Replacement()
'''


__all__ = ["Cut", "cut", "write_rule"]
