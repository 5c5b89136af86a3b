"""Types of tensors: onnx's inference, refined on demand by symbolic shape functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex
from surgeon_passes.model import Extras, numpy_dtype
from surgeon_passes.model.importer import variable
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.region import TensorType, Types
from surgeon_passes.values.declared import declared_type, without_dims
from surgeon_passes.values.dims import Dim, Shape, show, type_shape
from surgeon_passes.values.dtypes import is_for_tensors
from surgeon_passes.values.inference import model_types
from surgeon_passes.values.loops import carried_types
from surgeon_passes.values.names import SizeNames
from surgeon_passes.values.solver import Solver
from surgeon_passes.values.symbols import Poly

Stated: TypeAlias = "onnx.ValueInfoProto | TensorType"
"""What is stated of a tensor's type: by the file, or by a gs.Variable."""


@dataclass(frozen=True, slots=True)
class StaleShape:
    """A shape that the file states and the recomputed one contradicts."""

    tensor: str
    declared: Shape
    computed: Shape

    def __str__(self) -> str:
        return f"'{self.tensor}' is declared {show(self.declared)} and computed {show(self.computed)}"


class TypeMap:
    """What is known of every tensor's type (:class:`surgeon_passes.region.Types`).

    onnx infers the whole model once, on construction; dims it does not know are refined when asked for, and tensors that
    rewrites add are inferred when asked for. Without ``whole`` that is left out where no body, function or sequence needs
    it: the shape functions tell the same, and onnx is asked node by node where they do not tell everything; they are not
    held against each other then. ``extras`` is what the model importer kept (interfaces, hints).
    """

    def __init__(
        self,
        graph: gs.Graph,
        index: GraphIndex | None = None,
        extras: Extras | None = None,
        strict: bool = False,
        whole: bool = True,
    ) -> None:
        self.index = index if index is not None else GraphIndex(graph)
        self._hints = _Hints(self.index, extras)
        self.names = SizeNames(graph)
        self._had_bodies = self.index.has_bodies()
        seeds = None
        if whole or _needs_whole(self.index, self.index.nodes()):
            seeds = model_types(self.index, extras, self.names)
        self.solver = _with_loops(Solver(self.index, seeds, self._hints, self.names, strict))
        self._stated: list[tuple[gs.Tensor, TensorType]] = []

    def type_of(self, tensor: gs.Tensor) -> TensorType:
        """dtype, shape (ints, polynomials, None) and kind. Raises ContradictionError where onnx and the shape functions
        both know a dim and differ.

        In the main graph every dim of a shape has a name: where the file gives none it is an invented one.
        """
        return self.solver.type(tensor)

    @property
    def declarable(self) -> Types:
        """The same types as a file may state them: dims with invented names are unknown, and so is what follows from a
        rank that only readers tell (a branch that never runs may be illegal at it: no runtime would load the model)."""
        return _Declarable(self)

    def set(self, tensor: gs.Tensor, entry: TensorType) -> None:
        """State a type, over whatever was known."""
        self.solver.set_type(tensor, entry)
        self._stated.append((tensor, entry))

    @cached_property
    def without_readers(self) -> Solver:
        """What is known without the ranks that readers require."""
        own = self.solver
        solver = _with_loops(Solver(self.index, own.seeds, own.hints, self.names, own.strict, ask_readers=False))
        for tensor, entry in self._stated:
            solver.set_type(tensor, entry)
        return solver

    def stale(self) -> list[StaleShape]:
        """Shapes in the file (value_info, outputs) that the recomputed ones contradict."""
        found, computed_types = [], self.declarable
        for tensor, stated in self._hints.all():
            if self.index.producer(tensor) is None:
                continue
            computed = type_shape(computed_types.type_of(tensor))
            if computed is None or not _may_contradict(stated, computed):
                continue
            declared = type_shape(_read(stated))
            if declared is not None and _contradicts(declared, computed):
                found.append(StaleShape(tensor.name, declared, computed))
        return found

    def store(self) -> None:
        """Write dtype and shape to every gs.Variable that a node makes, the model's own outputs excepted.

        Dims are ints, names of single dims, or None.
        """
        self._store(self.index.nodes())

    def renew(self) -> bool:
        """Infer anew what has changed since all was inferred, and store it; False where that takes a map made anew."""
        touched = self.index.take_touched()
        if self._had_bodies or self.solver.seeds is not None or _needs_whole(self.index, touched):
            return False
        if touched:
            self._hints.add(t for node in touched for t in node.outputs)
            order = [node for _, nodes in self.index.ordered() for node in nodes]
            self._store(self.solver.renew(order, touched))
        return True

    def _store(self, nodes: Iterable[gs.Node]) -> None:
        interface = {id(t) for t in self.index.graph.outputs}
        declarable = self.declarable
        self.index.forget_views()
        for node in nodes:
            for tensor in node.outputs:
                if tensor.name and isinstance(tensor, gs.Variable) and id(tensor) not in interface:
                    _store(tensor, declarable.type_of(tensor))


def _with_loops(solver: Solver) -> Solver:
    for tensor, entry in carried_types(solver):
        solver.set_type(tensor, entry)
    return solver


def _store(tensor: gs.Variable, entry: TensorType) -> None:
    if entry.kind != "tensor":
        return
    if entry.dtype:
        tensor.dtype = numpy_or_onnx(entry.dtype)
    shape = type_shape(entry)
    tensor.shape = None if shape is None else [_plain(d) for d in shape]


class _Declarable:
    def __init__(self, types: TypeMap) -> None:
        self._types = types

    def type_of(self, tensor: gs.Tensor) -> TensorType:
        entry = self._types.type_of(tensor)
        if self._types.solver.readers is not None and self._types.solver.readers.told:
            entry = self._types.without_readers.type(tensor)
        shape = type_shape(entry)
        if shape is None or entry.is_static:
            return entry
        return TensorType(entry.dtype, tuple([self._types.names.told(d) for d in shape]), entry.kind)


def numpy_or_onnx(elem_type: int) -> Any:
    """What gs.Variable.dtype holds: numpy's dtype, or onnx's number where numpy itself has none (bfloat16, float8 …)."""
    dtype = numpy_dtype(elem_type)
    return dtype if dtype.isbuiltin == 1 or dtype == np.dtype(object) else elem_type


def _plain(dim: Dim) -> int | str | None:
    if isinstance(dim, Poly):
        atom = dim.single_atom()
        return atom if isinstance(atom, str) else None
    return dim


def _needs_whole(index: GraphIndex, nodes: Iterable[gs.Node]) -> bool:
    """Whether some types can be told only from the whole model: what bodies of Loop and Scan are given, what a function
    gives, and whatever is no tensor among what ``nodes`` make. Branches of an If are given nothing."""
    if not index.has_only_branches() or any(declared_type(t).kind != "tensor" for t in index.graph.inputs):
        return True
    return not all(is_for_tensors(n.op, index.opset(n), domain_of(n.domain)) for n in nodes)


class _Hints:
    """What the file states of nodes' outputs, read when it is asked for."""

    def __init__(self, index: GraphIndex, extras: Extras | None) -> None:
        written = {k: v for g in (extras.graphs.values() if extras else ()) for k, v in g.hints.items()}
        self._sources: dict[int, tuple[gs.Tensor, Stated]] = {}
        for tensor in index.tensors():
            if index.producer(tensor) is None or isinstance(tensor, gs.Constant):
                continue
            if id(tensor) in written:
                self._sources[id(tensor)] = (tensor, written[id(tensor)])
            else:
                self.add([tensor])

    def add(self, tensors: Iterable[gs.Tensor]) -> None:
        """Take what tensors state themselves, where nothing else is stated of them."""
        for tensor in tensors:
            states = tensor.name and (tensor.dtype is not None or tensor.shape is not None)
            if states and id(tensor) not in self._sources:
                self._sources[id(tensor)] = (tensor, declared_type(tensor))

    def get(self, key: int) -> TensorType | None:
        """dtype and rank by id(tensor), None where nothing is stated: dims that are stated may be stale."""
        found = self._sources.get(key)
        if found is None:
            return None
        entry = _read(found[1])
        return without_dims(entry) if entry.dtype or entry.shape is not None else None

    def all(self) -> Iterable[tuple[gs.Tensor, Stated]]:
        return self._sources.values()


def _read(stated: Stated) -> TensorType:
    return stated if isinstance(stated, TensorType) else declared_type(variable(stated))


def _may_contradict(stated: Stated, computed: Shape) -> bool:
    """Whether the shapes have to be compared: a file's value_info mostly says the same numbers, and is read no further."""
    if isinstance(stated, TensorType):
        return stated.shape is not None
    dims = stated.type.tensor_type.shape.dim
    pairs = zip(dims, computed, strict=False)
    return len(dims) != len(computed) or any([isinstance(b, int) and a.dim_value != b for a, b in pairs])


def _contradicts(declared: Shape, computed: Shape) -> bool:
    if len(declared) != len(computed):
        return True
    pairs = zip(declared, computed, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
