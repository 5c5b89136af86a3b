"""Every change of a graph, so that it can be taken back exactly and handed to verification."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from surgeon_passes.connect import connected_by
from surgeon_passes.decisions import Decision
from surgeon_passes.index import GraphIndex, Position, Scope
from surgeon_passes.region import Exactness, NodeImage, Region

Slot = tuple[gs.Node, int, gs.Tensor, gs.Tensor]
"""(node, operand or result number, tensor before, tensor after)"""


@dataclass(eq=False)
class Edit:
    """One rewrite: nodes out, nodes in, edges moved. ``pairs`` are (tensor before, tensor after) that must be equal."""

    rule: str
    scope: Scope
    root: gs.Node
    decision: Decision
    removed: tuple[NodeImage, ...] = ()
    added: tuple[tuple[NodeImage, Position], ...] = ()
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    graph_outputs: tuple[tuple[Scope, int, gs.Tensor, gs.Tensor], ...] = ()
    pairs: tuple[tuple[gs.Tensor, gs.Tensor], ...] = ()
    renamed: tuple[tuple[gs.Tensor, str, str], ...] = ()
    """tensors that get another name, since they come into a graph where theirs is taken"""
    touched: tuple[NodeImage, ...] = ()
    """nodes that stay and whose edges move, as they were"""
    cone: tuple[NodeImage, ...] = ()
    exactness: Exactness = Exactness.ROUNDING
    identity: frozenset[int] = frozenset()
    """ids of the nodes that matched"""
    moved_whole: bool = False
    """whether the nodes that come in are those that ran before, unchanged, in another graph"""

    def footprint(self) -> set[int]:
        """Ids of the nodes that this edit touches: edits that share one belong to one region."""
        found = {id(i.node) for i in self.removed} | {id(i.node) for i, _ in self.added}
        return found | {id(slot[0]) for slot in (*self.inputs, *self.outputs)}

    def key(self) -> tuple[str, frozenset[int]]:
        """The rewrite's identity, for not doing again what was refuted."""
        return (self.rule, self.identity)

    def moved(self) -> set[int]:
        """Ids of the tensors whose readers read another one now."""
        found = {id(old) for old, now in self.pairs if old is not now}
        return found | {id(old) for _, _, old, _ in self.outputs}

    def brought(self) -> set[Hashable]:
        """What :meth:`reads_of` is asked about: nodes that came in, and places of nodes that hold another tensor now."""
        moved = {(id(n), "in", i, id(now)) for n, i, _, now in self.inputs}
        moved |= {(id(n), "out", i, id(now)) for n, i, _, now in self.outputs}
        return {id(image.node) for image, _ in self.added} | moved

    def reads_of(self, brought: Container[Hashable]) -> bool:
        """Whether a value that the rule read comes from what edits have ``brought``."""
        return any(
            id(image.node) in brought
            or any((id(image.node), "in", i, id(t)) in brought for i, t in enumerate(image.inputs))
            or any((id(image.node), "out", i, id(t)) in brought for i, t in enumerate(image.outputs))
            for image in self.cone
        )


class Journal:
    """Applies edits to an index and takes them back, last in first out."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index
        self.edits: list[Edit] = []

    def apply(self, edit: Edit) -> None:
        self._do(edit)
        self.edits.append(edit)

    def _do(self, edit: Edit) -> None:
        for tensor, _, name in edit.renamed:
            tensor.name = name
        for image in edit.removed:
            self.index.remove_node(image.node)
        for node, position, _, new in edit.outputs:
            self.index.set_output(node, position, new)
        for image, place in edit.added:
            if self.index.is_live(image.node):
                continue
            try:
                self.index.position(image.node)
            except KeyError:
                self.index.add_node(image.node, edit.scope, place)
            else:
                self.index.restore_node(image.node)
        for node, position, _, new in edit.inputs:
            self.index.set_input(node, position, new)
        for scope, position, _, new in edit.graph_outputs:
            self.index.set_graph_output(scope, position, new)

    def undo(self, edit: Edit) -> None:
        """Exactly the state before ``edit``; edits after it that share its region must be undone already."""
        for scope, position, old, _ in reversed(edit.graph_outputs):
            self.index.set_graph_output(scope, position, old)
        for node, position, old, _ in reversed(edit.inputs):
            self.index.set_input(node, position, old)
        for image, _ in reversed(edit.added):
            self.index.remove_node(image.node)
        for node, position, old, _ in reversed(edit.outputs):
            self.index.set_output(node, position, old)
        for image in reversed(edit.removed):
            self.index.restore_node(image.node)
        for tensor, name, _ in edit.renamed:
            tensor.name = name
        place = next(i for i in reversed(range(len(self.edits))) if self.edits[i] is edit)
        del self.edits[place]  # it is among the last: many are undone in reverse order

    def can_redo(self, edit: Edit) -> bool:
        """Whether everything the edit touches, and all that its rule read values of, is as it was when it was made."""
        for image in (*edit.removed, *edit.cone):
            node = image.node
            if (
                not self.index.is_live(node)
                or not _same(node.inputs, image.inputs)
                or not _same(node.outputs, image.outputs)
            ):
                return False
        return (
            all(self.index.is_live(n) and n.inputs[i] is old for n, i, old, _ in edit.inputs)
            and self._reaches_all_readers(edit)
            and all(self.index.is_live(n) and n.outputs[i] is old for n, i, old, _ in edit.outputs)
            and all(s.graph.outputs[i] is old for s, i, old, _ in edit.graph_outputs)
        )

    def _reaches_all_readers(self, edit: Edit) -> bool:
        """Whether nothing reads a tensor that the edit moves but what it takes out or turns to the new one."""
        reached = {id(i.node) for i in edit.removed} | {id(slot[0]) for slot in edit.inputs}
        moved = [old for old, now in edit.pairs if old is not now and not self.index.is_output(old)]
        moved += [old for _, _, old, _ in edit.outputs]
        return all(id(reader) in reached for tensor in moved for reader in self.index.consumers(tensor))

    def forget(self) -> list[Edit]:
        """Hand out the edits and start anew: they are final."""
        done, self.edits = self.edits, []
        return done


def _same(first: Sequence[gs.Tensor], second: Sequence[gs.Tensor]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def connected(edits: Iterable[Edit]) -> list[list[Edit]]:
    """Edits grouped by shared nodes, each group in order.

    An edit that moved the readers of a tensor belongs to one that took such a reader out, too: taken back alone, the
    latter would bring back a reader of what is no more.
    """
    items = list(edits)
    moved = {key for edit in items for key in edit.moved()}

    def keys(edit: Edit) -> set[int]:
        read = {id(t) for i in edit.removed for t in i.inputs if id(t) in moved}
        return edit.footprint() | edit.moved() | read

    return connected_by(items, keys)


def region_of(edits: Sequence[Edit]) -> Region:
    """What a group of edits changed, from the state before its first to the state after its last."""
    before, after = _images(edits)
    cone = _cone(edits, before)
    made_before = {id(t) for i in before.values() for t in i.outputs}
    made_after = {id(t) for i in after.values() for t in i.outputs}
    gone = {id(t) for e in edits for i, _ in e.added for t in i.outputs} | made_before
    alias = {id(b): a for e in edits for b, a in e.pairs if b is not a}
    renamed = {id(old): new for e in edits for _, _, old, new in e.outputs}
    pairs = []
    for tensor in _unique(b for e in edits for b, _ in e.pairs):
        final = _resolve(tensor, alias)
        final = renamed[id(final)] if id(renamed.get(id(final))) in made_after else final
        if id(tensor) in made_before and (id(final) in made_after or id(final) not in gone):
            pairs.append((tensor, final))
    exactness = max((e.exactness for e in edits), key=list(Exactness).index)
    return Region(
        scope=edits[0].scope,
        before=tuple(before.values()),
        after=tuple(after.values()),
        outputs=tuple(pairs),
        exactness=exactness,
        cone=cone,
        rules=tuple(dict.fromkeys(e.rule for e in edits)),
    )


def _images(edits: Sequence[Edit]) -> tuple[dict[int, NodeImage], dict[int, NodeImage]]:
    """Nodes that the edits took out, as they were first; nodes that they leave in, as they are last."""
    before: dict[int, NodeImage] = {}
    after: dict[int, NodeImage] = {}
    first: dict[int, NodeImage] = {}
    for edit in edits:
        for image in edit.touched:
            first.setdefault(id(image.node), image)
        for image in edit.removed:
            if after.pop(id(image.node), None) is None:
                before[id(image.node)] = first.get(id(image.node), image)
        for image, _ in edit.added:
            after[id(image.node)] = image
        for node, position, _, new in edit.inputs:
            if id(node) in after:
                after[id(node)] = _with(after[id(node)], position, new, is_input=True)
        for node, position, _, new in edit.outputs:
            if id(node) in after:
                after[id(node)] = _with(after[id(node)], position, new, is_input=False)
    was = {id(new): old for e in edits for node, _, old, new in e.outputs if id(node) not in after}
    return before, {key: _reading(image, was) for key, image in after.items()}


def _reading(image: NodeImage, was: dict[int, gs.Tensor]) -> NodeImage:
    """The image with tensors from outside under the names that they had before an output took their place."""
    return NodeImage(image.node, tuple(was.get(id(t), t) for t in image.inputs), image.outputs)


def _with(image: NodeImage, position: int, tensor: gs.Tensor, is_input: bool) -> NodeImage:
    inputs, outputs = list(image.inputs), list(image.outputs)
    (inputs if is_input else outputs)[position] = tensor
    return NodeImage(image.node, tuple(inputs), tuple(outputs))


def _resolve(tensor: gs.Tensor, alias: dict[int, gs.Tensor]) -> gs.Tensor:
    seen = set()
    while id(tensor) in alias and id(tensor) not in seen:
        seen.add(id(tensor))
        tensor = alias[id(tensor)]
    return tensor


def _unique(tensors: Iterable[gs.Tensor]) -> list[gs.Tensor]:
    return list({id(t): t for t in tensors}.values())


def _cone(edits: Sequence[Edit], before: dict[int, NodeImage]) -> tuple[NodeImage, ...]:
    """Nodes behind the values that rules read, less those that the region itself holds."""
    made = {id(t) for i in before.values() for t in i.outputs}
    found: dict[int, NodeImage] = {}
    for edit in edits:
        for image in edit.cone:
            if id(image.node) not in before and not any(id(t) in made for t in image.outputs):
                found.setdefault(id(image.node), image)
    return tuple(found.values())
