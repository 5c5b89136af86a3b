"""The two sides of a region: the nodes that compute its outputs, what they read, and where the boundary runs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx_graphsurgeon as gs

from surgeon_passes.index import node_label, subgraphs
from surgeon_passes.model.constants import array_of
from surgeon_passes.model.elements import onnx_dtype
from surgeon_passes.model.keys import Keys
from surgeon_passes.ops.traits import SHAPE_READERS, is_random
from surgeon_passes.region import NodeImage, Region, TensorType, Types


class Unfit(Exception):
    """A region that cannot be made into a model of its own; the message is the reason."""


@dataclass(eq=False, slots=True)
class Sides:
    """``before`` and ``after`` are in topological order, cone included, and free of nodes that no output needs.

    ``names`` gives every tensor (by id) its local name on each side: i0, k0, b0, a0 ...
    """

    region: Region
    before: list[NodeImage] = field(default_factory=list)
    after: list[NodeImage] = field(default_factory=list)
    inputs: list[gs.Tensor] = field(default_factory=list)
    input_types: list[TensorType] = field(default_factory=list)
    constants: list[gs.Constant] = field(default_factory=list)
    new_constants: list[gs.Constant] = field(default_factory=list)
    names: tuple[dict[int, str], dict[int, str]] = field(default_factory=lambda: ({}, {}))
    has_bodies: bool = False

    def images(self) -> Iterator[NodeImage]:
        yield from self.before
        yield from self.after

    def old_constants(self) -> list[gs.Constant]:
        """Constants that are read before alone, those of Constant nodes too."""
        kept = {id(t) for image in self.after for t in image.inputs}
        kept |= {id(after) for _, after in self.region.outputs}
        known = {id(t) for image in self.before for t in image.inputs}
        made = [i for i in self.before if i.node.op == "Constant" and not any(id(t) in kept for t in i.outputs)]
        values = (image.node.attrs.get("value") for image in made)
        return [c for c in self.constants if id(c) in known - kept] + [v for v in values if isinstance(v, gs.Constant)]

    def gives_constants(self) -> bool:
        """Whether an output is a constant on either side: its size is written down, whatever that of the inputs."""
        return any(isinstance(t, gs.Constant) for pair in self.region.outputs for t in pair)

    def original_name(self, local: str) -> str:
        """What the model calls the tensor or node behind a local name."""
        for names in self.names:
            for image in self.images():
                for tensor in (*image.inputs, *image.outputs):
                    if names.get(id(tensor)) == local:
                        return str(tensor.name)
        return local


def inner_nodes(node: gs.Node) -> Iterator[gs.Node]:
    """Nodes of the bodies of ``node``, at any depth."""
    todo = [body for _, body in subgraphs(node)]
    while todo:
        for inner in todo.pop().nodes:
            yield inner
            todo.extend(body for _, body in subgraphs(inner))


def captured(node: gs.Node) -> list[gs.Tensor]:
    """Tensors that bodies of ``node`` read from outside, constants included, each once."""
    made: set[int] = set()
    read: dict[int, gs.Tensor] = {}
    todo = [body for _, body in subgraphs(node)]
    while todo:
        graph = todo.pop()
        made.update(id(t) for t in graph.inputs)
        read.update((id(t), t) for t in graph.outputs)
        for inner in graph.nodes:
            made.update(id(t) for t in inner.outputs)
            read.update((id(t), t) for t in inner.inputs if t.name)
            todo.extend(body for _, body in subgraphs(inner))
    return [t for key, t in read.items() if key not in made]


def loop_counts(sides: Sides) -> set[int]:
    """Ids of the constants that are trip counts and nothing else, where the region is loops alone that turn equally often.

    Counts that differ stay what they are: cut to one length, they would look the same.
    """
    loops = list(sides.images())
    if not sides.has_bodies or any(image.node.op != "Loop" or image.node.domain for image in loops):
        return set()
    counts = {id(t): t for i in loops for t in i.inputs[:1]}
    turns = {tuple(array_of(c).flat) if isinstance(c, gs.Constant) else None for c in counts.values()}
    if len(turns) != 1 or None in turns or not all(i.inputs for i in loops):
        return set()
    read = {id(t) for i in loops for t in (*i.inputs[1:], *captured(i.node))}
    return counts.keys() - read - {id(t) for pair in sides.region.outputs for t in pair}


def sides_of(region: Region, types: Types) -> Sides:
    """Cut ``region`` free. Raises Unfit where it cannot stand alone."""
    sides = Sides(region)
    drawn = _shared_draws(region)
    made_before = {id(t): t for image in region.before for t in image.outputs}
    made_after = {id(t) for image in region.after for t in image.outputs}
    forward = {id(b): a for b, a in region.outputs if b is not a and id(b) not in made_after}
    backward = {id(a): b for b, a in region.outputs if b is not a and id(a) in made_after and id(a) not in made_before}
    for after, alias in ((False, backward), (True, forward)):
        walk = _Walk(region, types, sides, after, alias, drawn)
        walk.run([pair[after] for pair in region.outputs])
    stray = next((t for t in sides.inputs if id(t) in made_before and id(t) not in drawn), None)
    if stray is not None:
        raise Unfit(f"'{stray.name}' is read after the change, but nothing makes it any more")
    sides.input_types = [types.type_of(t) for t in sides.inputs]
    known = {id(t) for image in sides.before for t in image.inputs}
    sides.new_constants = [c for c in sides.constants if id(c) not in known]
    return sides


def _shared_draws(region: Region) -> set[int]:
    """Outputs (by id) of random nodes that stand on both sides: boundary inputs. Raises Unfit for one on one side."""
    before = {id(i.node): i for i in (*region.before, *region.cone) if is_random(i.node.op)}
    after = {id(i.node): i for i in (*region.after, *region.cone) if is_random(i.node.op)}
    for key in before.keys() ^ after.keys():
        image = before.get(key) or after[key]
        raise Unfit(f"{node_label(image.node)} draws random numbers")
    return {id(t) for image in before.values() for t in image.outputs}


class _Walk:
    """Collects one side from its outputs backwards, without recursion."""

    def __init__(
        self, region: Region, types: Types, sides: Sides, after: bool, alias: dict[int, gs.Tensor], drawn: set[int]
    ) -> None:
        images = region.after if after else region.before
        own = {id(image.node) for image in images}
        self.made = {id(t): image for image in images for t in image.outputs if t.name}
        self.cone = {id(t): i for i in region.cone if id(i.node) not in own for t in i.outputs if t.name}
        self.types, self.sides, self.alias, self.drawn = types, sides, alias, drawn
        self.found = sides.after if after else sides.before
        self.names, self.others = sides.names[after], sides.names[not after]
        self.letter = "a" if after else "b"
        self.asks_for_types = any(i.node.op in SHAPE_READERS for i in (*images, *self.cone.values()))
        self.valued: set[int] = set()

    def run(self, outputs: Sequence[gs.Tensor]) -> None:
        self.valued = self.read_by_value(outputs)
        state: dict[int, bool] = {}
        todo: list[tuple[NodeImage, bool]] = []
        for tensor in reversed(outputs):
            image = self.producer(tensor, None)
            if image is not None:
                todo.append((image, False))
        while todo:
            image, done = todo.pop()
            if done:
                self.emit(image)
            elif not state.get(id(image)):
                state[id(image)] = True
                todo.append((image, True))
                reads = self.reads(image)
                makers = [self.producer(t, image) for t in reads]
                todo.extend((m, False) for m in reversed(makers) if m is not None and not state.get(id(m)))
        for tensor in outputs:
            self.name(tensor)

    def read_by_value(self, outputs: Sequence[gs.Tensor]) -> set[int]:
        """Ids of tensors whose values are needed: those are not cut, though another node asks only for their type."""
        found: set[int] = set()
        if not self.asks_for_types:
            return found
        todo = list(outputs)
        while todo:
            tensor = todo.pop()
            tensor = tensor if id(tensor) in self.made else self.alias.get(id(tensor), tensor)
            image = self.made.get(id(tensor)) or self.cone.get(id(tensor))
            if image is None or id(tensor) in found:
                continue
            found.add(id(tensor))
            if image.node.op not in SHAPE_READERS:
                todo.extend(self.reads(image))
        return found

    def reads(self, image: NodeImage) -> list[gs.Tensor]:
        tensors = [t for t in image.inputs if t.name]
        if image.node.attrs and any(True for _ in subgraphs(image.node)):
            self.sides.has_bodies = True
            tensors += captured(image.node)
        return tensors

    def producer(self, tensor: gs.Tensor, reader: NodeImage | None) -> NodeImage | None:
        """The node that makes ``tensor`` on this side; None at the boundary, which is noted."""
        if isinstance(tensor, gs.Constant):
            self.name(tensor)
            return None
        if id(tensor) in self.made and id(tensor) not in self.drawn:
            return self.made[id(tensor)]
        tensor = self.alias.get(id(tensor), tensor)
        image = self.made.get(id(tensor)) or self.cone.get(id(tensor))
        if image is not None and id(tensor) not in self.drawn and not self.is_cut(tensor, reader):
            return image
        self.name(tensor)
        return None

    def is_cut(self, tensor: gs.Tensor, reader: NodeImage | None) -> bool:
        """Whether ``reader`` asks only for a type that is known, so that what computes the tensor does not matter."""
        if (
            reader is None
            or reader.node.op not in SHAPE_READERS
            or id(tensor) in self.made
            or id(tensor) in self.valued
        ):
            return False
        shape = self.types.type_of(tensor).shape
        return shape is not None and all(d is not None for d in shape)

    def emit(self, image: NodeImage) -> None:
        for attribute in image.node.attrs.values():
            if isinstance(attribute, gs.Node.AttributeRef):
                raise Unfit(f"an attribute of {node_label(image.node)} is given by the caller of the function")
        for tensor in image.outputs:
            if tensor.name:
                self.names[id(tensor)] = f"{self.letter}{len(self.names)}"
        self.found.append(image)

    def name(self, tensor: gs.Tensor) -> str:
        """The local name; a tensor that nothing here makes becomes a boundary input or a constant."""
        if id(tensor) not in self.names:
            aliased = self.alias.get(id(tensor))
            if aliased is not None and id(tensor) not in self.made:
                self.names[id(tensor)] = self.name(aliased)
            else:
                shared = self.others.get(id(tensor), "")
                self.names[id(tensor)] = shared if shared[:1] in ("i", "k") else self.boundary(tensor)
        return self.names[id(tensor)]

    def boundary(self, tensor: gs.Tensor) -> str:
        kind, held = ("k", self.sides.constants) if isinstance(tensor, gs.Constant) else ("i", self.sides.inputs)
        held.append(tensor)
        return f"{kind}{len(held) - 1}"


# --- equal regions -------------------------------------------------------------------------------------------------------


class Print(NamedTuple):
    """What is equal for equal regions: structure, attributes and types, those of constants too; and the constants."""

    structure: Hashable
    constants: Hashable


class Fingerprints:
    """Makes the prints of regions; each constant is read once."""

    def __init__(self) -> None:
        self._keys = Keys()

    def of(self, sides: Sides) -> Print | None:
        """None for a region with bodies, which is checked for itself."""
        if sides.has_bodies:
            return None
        region = sides.region
        structure = (
            region.exactness,
            tuple(sorted(region.scope.opsets.items())),
            tuple(self._images(sides.before, sides.names[0])),
            tuple(self._images(sides.after, sides.names[1])),
            tuple((sides.names[0].get(id(b)), sides.names[1].get(id(a))) for b, a in region.outputs),
            tuple(sides.input_types),  # with dims, not their text: a name may read like a size
            tuple((onnx_dtype(c.dtype), tuple(c.shape)) for c in sides.constants),
        )
        return Print(structure, tuple(map(self._keys.constant, sides.constants)))

    def _images(self, images: Iterable[NodeImage], names: dict[int, str]) -> Iterator[tuple[Any, ...]]:
        for image in images:
            node = image.node
            yield (
                node.op,
                node.domain or "",
                tuple(names[id(t)] if t.name else "" for t in image.inputs),
                tuple(names[id(t)] if t.name else "" for t in image.outputs),
                self._keys.attributes(node),
            )
