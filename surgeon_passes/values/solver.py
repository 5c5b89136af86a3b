"""The demand-driven core under :class:`Evaluator` and :class:`TypeMap`: values and types ask for each other.

A task computes the values, or the types, of one node's outputs. It runs; where it needs what is not there yet it is
postponed (:class:`Missing`), what it needs is put on the stack, and it runs again. So nothing recurses, however deep the
graph, and every answer, unknown included, is computed once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.ir.tensor import LazyValues

from surgeon_passes.errors import ContradictionError, ModelError
from surgeon_passes.index import GraphIndex, node_label, subgraphs
from surgeon_passes.model import array_of, onnx_dtype
from surgeon_passes.ops import NodeView
from surgeon_passes.ops.schema import MICROSOFT, custom_schema, domain_of
from surgeon_passes.ops.view import CallerAttribute
from surgeon_passes.region import TensorType
from surgeon_passes.values import registry
from surgeon_passes.values.declared import declared_type, without_dims
from surgeon_passes.values.dims import Shape, show
from surgeon_passes.values.dtypes import Rule, dtype_rules, written_dtype
from surgeon_passes.values.inference import node_types
from surgeon_passes.values.lattice import MAX_ELEMENTS, Value, identical
from surgeon_passes.values.names import SizeNames
from surgeon_passes.values.operands import UNKNOWN_TYPE, Operands, Unknown
from surgeon_passes.values.required import Readers

log = logging.getLogger(__name__)

FAILURES = (ArithmeticError, ValueError, IndexError, TypeError, MemoryError, ModelError)
"""What a node that is no good, or a shape that cannot be, makes a handler raise: the answer then is unknown."""

MISINFERRED = frozenset({"ConvTranspose", "Einsum", "Squeeze"})
"""Operators that onnx infers otherwise than ONNX Runtime computes them, in corners: output_padding with auto_pad SAME, a
dim of 1 that broadcasts, axes in no order before opset 13. This package's shape functions are held against ONNX Runtime."""

Task = tuple[str, gs.Node]
_ABSENT: Any = object()
"""A node must be evaluated first."""


class Hints(Protocol):
    """What is stated of a tensor, by its id."""

    def get(self, key: int) -> TensorType | None: ...


class Missing(Exception):
    def __init__(self, tasks: list[Task]) -> None:
        self.tasks = tasks


class Solver:
    """Memo tables over one model. By id(tensor): ``seeds``, types from onnx's inference of the whole model (None where
    that was not run), and ``hints``, what the file states where nothing can be inferred. ``names``: for dims of the main
    graph that nothing tells. ``ask_readers``: whether the ranks that readers require count
    (:mod:`surgeon_passes.values.required`)."""

    def __init__(
        self,
        index: GraphIndex,
        seeds: dict[int, TensorType] | None,
        hints: Hints,
        names: SizeNames,
        strict: bool = False,
        ask_readers: bool = True,
    ) -> None:
        self.index = index
        self.seeds = seeds
        self.hints = hints
        self.names = names
        self.strict = strict
        self.readers = Readers(index, self._view, self._stated_value) if ask_readers else None
        self._values: dict[int, tuple[gs.Tensor, Value]] = {}
        self._types: dict[int, tuple[gs.Tensor, TensorType]] = {}
        self._waiting: set[tuple[str, int]] = set()
        self._corrected: set[int] = set()

    # --- asking ------------------------------------------------------------------------------------------------------

    def value(self, tensor: gs.Tensor) -> Value:
        held = self._values.get(id(tensor))
        return held[1] if held is not None else cast("Value", self._solve("value", tensor))

    def type(self, tensor: gs.Tensor) -> TensorType:
        held = self._types.get(id(tensor))
        return held[1] if held is not None else cast("TensorType", self._solve("type", tensor))

    def set_type(self, tensor: gs.Tensor, found: TensorType) -> None:
        self._types[id(tensor)] = (tensor, found)

    def forget_unknown(self) -> None:
        """Drop values that are None; types keep what they are."""
        self._values = {key: held for key, held in self._values.items() if held[1] is not None}

    def forget_values(self) -> None:
        """Drop all values; types keep what they are."""
        self._values.clear()

    def renew(self, nodes: Iterable[gs.Node], touched: Iterable[gs.Node]) -> list[gs.Node]:
        """Evaluate anew the nodes that were touched, and those that read what is no longer what it was; gives them.

        ``nodes`` are all, each after what it reads. What is known of others follows from the same as before.
        """
        stale = {id(node) for node in touched}
        done = []
        for node in nodes:
            if id(node) in stale:
                done.append(node)
                if self._differs_now(node):
                    stale.update(id(reader) for t in node.outputs if t.name for reader in self.index.consumers(t))
        return done

    def _differs_now(self, node: gs.Node) -> bool:
        """Evaluate what was known of the results anew: whether it is something else now."""
        named = [t for t in node.outputs if t.name]
        types = [self._types.pop(id(t), None) for t in named]
        values = [self._values.pop(id(t), None) for t in named]
        differs = [held is None or held[1] != self.type(t) for t, held in zip(named, types, strict=True)]
        differs += [
            not identical(held[1], self.value(t)) for t, held in zip(named, values, strict=True) if held is not None
        ]
        return any(differs)

    def _solve(self, kind: str, tensor: gs.Tensor) -> Any:
        known = self._lookup(kind, tensor)
        if known is not _ABSENT:
            return known
        node = self.index.producer(tensor)
        assert node is not None
        self._run_all((kind, node))
        answer = self._lookup(kind, tensor)
        assert answer is not _ABSENT
        return answer

    def finish(self, missing: Missing) -> None:
        """Evaluate what was missing."""
        for task in missing.tasks:
            self._run_all(task)

    def _run_all(self, goal: Task) -> None:
        stack = [goal]
        try:
            while stack:
                kind, node = stack[-1]
                if self._is_done(kind, node):
                    stack.pop()
                    continue
                try:
                    self._run(kind, node)
                except Missing as missing:
                    self._waiting.add((kind, id(node)))
                    stack.extend(missing.tasks)
                else:
                    self._waiting.discard((kind, id(node)))
                    stack.pop()
        finally:
            self._waiting.clear()

    def _is_done(self, kind: str, node: gs.Node) -> bool:
        table = self._values if kind == "value" else self._types
        return all(id(t) in table for t in node.outputs if t.name)

    def _run(self, kind: str, node: gs.Node) -> None:
        if kind == "value":
            self._remember(node, self._node_values(node))
        else:
            self._remember_types(node, self._node_types(node))

    # --- looking up (the Facts protocol) ---------------------------------------------------------------------------------

    def value_now(self, *tensors: gs.Tensor) -> list[Value]:
        return self._all_now("value", tensors)

    def type_now(self, *tensors: gs.Tensor) -> list[TensorType]:
        return self._all_now("type", tensors)

    def one_value_now(self, tensor: gs.Tensor) -> Value:
        """As :meth:`value_now`, of one tensor."""
        held = self._values.get(id(tensor))
        return held[1] if held is not None else cast("Value", self._all_now("value", (tensor,))[0])

    def one_type_now(self, tensor: gs.Tensor) -> TensorType:
        """As :meth:`type_now`, of one tensor."""
        held = self._types.get(id(tensor))
        return held[1] if held is not None else cast("TensorType", self._all_now("type", (tensor,))[0])

    def _all_now(self, kind: str, tensors: Iterable[gs.Tensor]) -> list[Any]:
        answers, missing = [], []
        for tensor in tensors:
            known = self._lookup(kind, tensor)
            if known is not _ABSENT:
                answers.append(known)
                continue
            node = self.index.producer(tensor)
            assert node is not None
            if (kind, id(node)) in self._waiting:
                answers.append(None if kind == "value" else UNKNOWN_TYPE)  # a cycle: no model
            else:
                missing.append((kind, node))
        if missing:
            raise Missing(missing)
        return answers

    def _lookup(self, kind: str, tensor: gs.Tensor) -> Any:
        """What is known; :data:`_ABSENT` where a node must be evaluated first."""
        table: dict[int, tuple[gs.Tensor, Any]] = self._values if kind == "value" else self._types
        held = table.get(id(tensor))
        if held is not None:
            return held[1]
        if isinstance(tensor, gs.Constant):
            return self._constant(tensor) if kind == "value" else self._constant_type(tensor)
        if self.index.producer(tensor) is not None:
            return _ABSENT
        return None if kind == "value" else (self.seeds or {}).get(id(tensor)) or self._leaf_type(tensor)

    def _leaf_type(self, tensor: gs.Tensor) -> TensorType:
        """Of a tensor that no node makes: the model's inputs keep what they declare, a body's only their dtype."""
        declared = declared_type(tensor)
        home = self.index.home(tensor)
        if home is not None and home.graph is self.index.graph:
            return self.names.of_input(tensor, declared)
        return TensorType(declared.dtype, None, declared.kind)

    def _constant_type(self, tensor: gs.Constant) -> TensorType:
        found = TensorType(onnx_dtype(tensor.dtype), tuple([int(d) for d in tensor.shape]))
        self._types[id(tensor)] = (tensor, found)
        return found

    def _constant(self, tensor: gs.Constant) -> Value:
        if self.index.is_graph_input(tensor):
            return None  # overridable: its value is only a default
        array: Value
        try:
            array = array_of(tensor)
        except FAILURES as error:
            log.debug("constant '%s' cannot be read: %s", tensor.name, error)
            array = None
        if array is None or (array.size <= MAX_ELEMENTS and isinstance(tensor._values, LazyValues)):
            self._values[id(tensor)] = (tensor, array)
        return array

    def _stated_value(self, tensor: gs.Tensor) -> Value:
        """The value of a constant or of what a Constant node gives; None for anything else. Never postpones."""
        if isinstance(tensor, gs.Constant):
            return self._constant(tensor)
        node = self.index.producer(tensor)
        return next(iter(self._node_values(node)), None) if node is not None and node.op == "Constant" else None

    # --- values ------------------------------------------------------------------------------------------------------

    def _node_values(self, node: gs.Node) -> tuple[Value, ...]:
        view = self._view(node)
        entry = registry.value_entry(view.op, view.opset) if view is not None and view.domain == "" else None
        if view is None or entry is None or not (view.regular or entry.irregular):
            return ()
        with np.errstate(all="ignore"):
            found = self._guarded(entry, view, node)
        return found if isinstance(found, tuple) else (found,)

    def _view(self, node: gs.Node) -> NodeView | None:
        try:
            return NodeView(node, self.index.opset(node))
        except (*FAILURES, CallerAttribute) as error:
            log.debug("%s cannot be read: %s", node_label(node), error)
            return None

    def _guarded(self, entry: registry.Entry, view: NodeView, node: gs.Node) -> Any:
        try:
            return entry.function(Operands(view, self, entry.large))
        except (Unknown, CallerAttribute):
            return None
        except FAILURES as error:
            if self.strict:
                raise
            log.debug("%s is unknown: %s", node_label(node), error)
            return None

    def _remember(self, node: gs.Node, found: tuple[Value, ...]) -> None:
        for position, tensor in enumerate(node.outputs):
            value = found[position] if position < len(found) else None
            if tensor.name:  # numpy gives scalars, not arrays of rank 0, here and there
                self._values[id(tensor)] = (tensor, np.asarray(value) if isinstance(value, np.generic) else value)

    # --- types -------------------------------------------------------------------------------------------------------

    def _node_types(self, node: gs.Node) -> list[TensorType]:
        view = self._view(node)
        own = list(self._own_shapes(view, node) if view is not None else ())
        own += [None] * (len(node.outputs) - len(own))
        if self.seeds is None:
            return self._alone(node, own)
        known = self.seeds
        if any(id(t) in self._corrected for t in node.inputs):
            self._corrected.update(id(t) for t in node.outputs)
            known = {}  # inferred from a shape that was wrong
        seeds = [known.get(id(t)) or _stated(t, shape) for t, shape in zip(node.outputs, own, strict=False)]
        if any(seed is None and t.name for seed, t in zip(seeds, node.outputs, strict=True)):
            inferred = self._inferred(node)
            if node.domain == MICROSOFT:
                inferred = [self._of_microsoft(node, shape) for shape in own]
            seeds = [seed or new for seed, new in zip(seeds, inferred, strict=True)]
        rows = zip(node.outputs, seeds, own, strict=False)
        return [self._merged(seed or self._hint(tensor), shape, node, tensor) for tensor, seed, shape in rows]

    def _alone(self, node: gs.Node, own: Sequence[Shape | None]) -> list[TensorType]:
        """Types where the whole model was not inferred: onnx is asked where the shape functions do not tell everything.

        Where they do, its schema tells the dtype. (A dim that they know as an expression onnx never knows better.)
        """
        domain = domain_of(node.domain)
        if node.op == "If" and not domain:
            return self._of_branches(node, own)
        rules = dtype_rules(node.op, self.index.opset(node), domain, len(node.outputs))
        if not domain and rules == (None,):
            rules = (written_dtype(node),)
        is_custom = custom_schema(domain, node.op) is not None  # onnx knows no more of it than its schema says
        found: list[TensorType] = []
        for tensor, shape, rule in zip(node.outputs, own, rules, strict=False):
            dtype = self._dtype_by(rule, node) if shape is not None and (is_custom or None not in shape) else None
            if not dtype and tensor.name:
                return self._with_onnx(node, own)
            found.append(TensorType(dtype, shape))
        return found

    def _of_branches(self, node: gs.Node, own: Sequence[Shape | None]) -> list[TensorType]:
        """An If gives what its branches give; onnx would have to infer these once more."""
        branches = [body.outputs for _, body in subgraphs(node)]
        rows = [self.type_now(*(outputs[place] for outputs in branches)) for place in range(len(node.outputs))]
        found = []
        for row, shape in zip(rows, own, strict=True):
            dtypes = {entry.dtype for entry in row}
            found.append(TensorType(dtypes.pop() if len(dtypes) == 1 else None, shape))
        return found

    def _dtype_by(self, rule: Rule, node: gs.Node) -> int | None:
        if rule is None or isinstance(rule, int):
            return rule
        for place in rule:
            if place < len(node.inputs) and node.inputs[place].name:
                entry = self.one_type_now(node.inputs[place])
                return entry.dtype if entry.kind == "tensor" else None
        return None

    def _with_onnx(self, node: gs.Node, own: Sequence[Shape | None]) -> list[TensorType]:
        found = []
        told = self._inferred(node) if node.domain != MICROSOFT else [self._of_microsoft(node, shape) for shape in own]
        for tensor, shape, inferred in zip(node.outputs, own, told, strict=False):
            seed = inferred or _stated(tensor, shape)
            found.append(self._merged(seed or self._hint(tensor), shape, node, tensor))
        return found

    def _of_microsoft(self, node: gs.Node, shape: Shape | None) -> TensorType | None:
        """Of ONNX Runtime's own operators onnx has no schemas: the dtype is the first operand's."""
        return None if shape is None else TensorType(self.one_type_now(node.inputs[0]).dtype)

    def _hint(self, tensor: gs.Tensor) -> TensorType:
        return self.hints.get(id(tensor)) or without_dims(declared_type(tensor))

    def _own_shapes(self, view: NodeView, node: gs.Node) -> Any:
        entry = registry.shape_entry(f"{view.domain}.{view.op}" if view.domain else view.op, view.opset)
        if entry is None or not (view.regular or entry.irregular):
            return ()
        return self._guarded(entry, view, node) or ()

    def _inferred(self, node: gs.Node) -> list[TensorType | None]:
        """onnx's inference of this node alone: for nodes that came after the whole graph was inferred."""
        operands = [t for t in node.inputs if t.name]
        types = dict(zip([id(t) for t in operands], self.type_now(*operands), strict=True))
        integers = [t for t in operands if types[id(t)].dtype in (6, 7)]
        values = dict(zip([id(t) for t in integers], self.value_now(*integers), strict=True))
        return node_types(node, types, values, self.index.scope(node))

    def _merged(self, seed: TensorType, own: Shape | None, node: gs.Node, tensor: gs.Tensor) -> TensorType:
        if own is None or seed.kind != "tensor":
            return seed
        if seed.shape is None:
            return TensorType(seed.dtype, own)
        if not _agree(seed.shape, own):
            if node.op not in MISINFERRED:
                raise _contradiction(node, tensor, seed, own)
            self._corrected.add(id(tensor))
            return TensorType(seed.dtype, own)
        rows = zip(seed.shape, own, strict=True)
        return TensorType(
            seed.dtype, tuple(theirs if ours is None or isinstance(theirs, int) else ours for theirs, ours in rows)
        )

    def _remember_types(self, node: gs.Node, found: list[TensorType]) -> None:
        runs_once = self.index.scope(node).graph is self.index.graph
        for tensor, entry in zip(node.outputs, found, strict=True):
            if tensor.name and id(tensor) not in self._types:
                self._types[id(tensor)] = (tensor, self.names.of_result(tensor, entry) if runs_once else entry)


def _agree(theirs: Sequence[object], ours: Sequence[object]) -> bool:
    """Whether two shapes can be the same: equal ranks, and equal dims where both are numbers."""
    if len(theirs) != len(ours):
        return False
    return all(a == b for a, b in zip(theirs, ours, strict=True) if isinstance(a, int) and isinstance(b, int))


def _contradiction(node: gs.Node, tensor: gs.Tensor, seed: TensorType, own: Shape) -> ContradictionError:
    theirs: Any = seed.shape
    return ContradictionError(
        f"{node_label(node)}: onnx infers {show(theirs)} for '{tensor.name}', the shape evaluator {show(own)}"
    )


def _stated(tensor: gs.Tensor, shape: Shape | None) -> TensorType | None:
    """Of a tensor that came after inference: its declared dtype, where the shape functions give the rest."""
    if shape is None or isinstance(tensor, gs.Constant) or tensor.dtype is None:
        return None
    return TensorType(onnx_dtype(tensor.dtype))
