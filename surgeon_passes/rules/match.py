"""What a rule's function reads: the bound tensors, constants and attributes of one match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from surgeon_passes.index import GraphIndex
from surgeon_passes.ops.schema import plain
from surgeon_passes.ops.view import CallerAttribute, NodeView, normalise_axis
from surgeon_passes.region import TensorType
from surgeon_passes.rules import flat
from surgeon_passes.rules.rule import Decline

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What the user of a pipeline allows beyond what rules do by themselves."""

    allow_lossy_casts: bool = False
    """whether a Cast that loses values (float32 to float16 and back) may be treated as if it lost none"""


class Context:
    """What a match may ask of the graph: links, values (logged), types; and of the user: options."""

    def __init__(
        self,
        index: GraphIndex,
        value: Callable[[gs.Tensor], Any],
        type_of: Callable[[gs.Tensor], TensorType],
        options: Options | None = None,
        ramp: Callable[[gs.Tensor], Any] = lambda tensor: None,
    ) -> None:
        self.index = index
        self._value = value
        self.type_of = type_of
        self.options = options or Options()
        self._ramp = ramp
        self._trees: dict[tuple[int, str, int | None], flat.Tree | None] = {}
        self._trees_at = -1

    def having(self, options: Options) -> Context:
        """The same graph, with these options."""
        return Context(self.index, self._value, self.type_of, options, self._ramp)

    def view(self, node: gs.Node) -> NodeView:
        return self.index.view(node)

    def tree(self, root: gs.Node, kind: str, limit: int | None = None) -> flat.Tree | None:
        """:func:`flat.flatten`, once for all rules that ask while the graph stays as it is."""
        if self._trees_at != self.index.version:
            self._trees.clear()
            self._trees_at = self.index.version
        key = (id(root), kind, limit)
        if key not in self._trees:
            self._trees[key] = flat.flatten(root, kind, self.index, limit)
        return self._trees[key]

    def value(self, tensor: gs.Tensor) -> Any:
        """Known (ndarray), partly known (Partial) or unknown (None)."""
        return self._value(tensor)

    def ramp(self, tensor: gs.Tensor) -> Any:
        """What is known as a formula over the indices (:class:`surgeon_passes.values.Ramp`), or None."""
        return self._ramp(tensor)


class Operand(NDArrayOperatorsMixin):
    """A bound tensor. One whose value is known works as an array in numpy expressions, floats in float64."""

    def __init__(self, tensor: gs.Tensor, context: Context, node: gs.Node | None = None) -> None:
        self.tensor = tensor
        self._context = context
        self._node = node

    @property
    def name(self) -> str:
        return str(self.tensor.name)

    @property
    def type(self) -> TensorType:
        return self._context.type_of(self.tensor)

    @property
    def dtype(self) -> int | None:
        """onnx.TensorProto.DataType, None where unknown."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[Any, ...] | None:
        """Dims: ints, symbols, None where unknown; None where the rank is unknown."""
        return self.type.shape

    @property
    def rank(self) -> int | None:
        return self.type.rank

    @property
    def consumers(self) -> list[gs.Node]:
        return self._context.index.consumers(self.tensor)

    @property
    def is_shared(self) -> bool:
        """Whether it has more than one use; being a graph's output is one, too."""
        return self._context.index.edge_count(self.tensor) > 1

    @property
    def value(self) -> Any:
        """ndarray in the tensor's own dtype, Partial, or None."""
        return self._context.value(self.tensor)

    @property
    def ramp(self) -> Any:
        """A :class:`surgeon_passes.values.Ramp`: one number everywhere, or even steps, whatever the size; or None."""
        return self._context.ramp(self.tensor)

    @property
    def fill(self) -> Any:
        """The number, a numpy scalar, that every element certainly is, whatever the size; None where there is none."""
        found = self.ramp
        return None if found is None else found.fill

    @property
    def node(self) -> NodeView:
        """The node that makes this tensor. Raises Decline for an input or a constant."""
        node = self._node or self._context.index.producer(self.tensor)
        if node is None:
            raise Decline(f"'{self.name}' is made by no node")
        return self._context.view(node)

    @property
    def is_made(self) -> bool:
        """Whether a node makes it: no input, no constant."""
        return self._node is not None or self._context.index.producer(self.tensor) is not None

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def operands(self) -> tuple[Operand | None, ...]:
        """What the node that makes this tensor reads; None where an operand is missing. Raises Decline as ``node``."""
        return tuple(None if t is None else Operand(t, self._context) for t in self.node.inputs)

    def operand(self, position: int) -> Operand | None:
        """One of :attr:`operands`; None where it is missing."""
        tensor = self.node.input(position)
        return None if tensor is None else Operand(tensor, self._context)

    def attr(self, name: str) -> Any:
        """An attribute of the node that makes this tensor, default filled in. Raises Decline where a caller gives it."""
        try:
            return self.node.attr(name)
        except CallerAttribute as error:
            raise Decline(str(error)) from None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        value = self.value
        if not isinstance(value, np.ndarray):
            raise TypeError(f"the value of '{self.name}' is not known: mark it ': const' in the pattern")
        wide = value.astype(np.float64) if is_floating(value.dtype) else value
        return wide if dtype is None else wide.astype(dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [np.asarray(i) if isinstance(i, Operand) else i for i in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def __repr__(self) -> str:
        return f"Operand({self.name!r})"


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is floating, ml_dtypes' bfloat16 and float8 included."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)


class _Bound:
    """Names bound to tensors, read as attributes."""

    def __init__(self, names: Mapping[str, Any], nodes: Mapping[str, gs.Node], context: Context) -> None:
        self._names = names
        self._nodes = nodes
        self._context = context

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._names:
            return self._wrap(name, self._names[name])
        raise AttributeError(f"the pattern binds no '{name}' (it binds {', '.join(sorted(self._names))})")

    def _wrap(self, name: str, bound: Any) -> Any:
        if bound is None:
            return None
        if isinstance(bound, tuple):
            return tuple(Operand(t, self._context) for t in bound)
        return Operand(bound, self._context, self._nodes.get(name))

    def tensor(self, name: str) -> Any:
        """The graphsurgeon tensor bound to ``name`` (a tuple for a variadic name, None for a missing one)."""
        return self._names[name]

    def attr(self, name: str) -> Any:
        """The attribute captured as ``@name``. Raises Decline where a function's caller gives it."""
        value = self._names[f"@{name}"]
        if isinstance(value, gs.Node.AttributeRef):
            raise Decline(f"attribute @{name} is given by the function's caller")
        return plain(value)


class Leaf(_Bound):
    """One leaf of a sum or product that its template fits. ``option`` is the number of the alternative that matched."""

    def __init__(
        self,
        tensor: gs.Tensor,
        option: int,
        names: Mapping[str, Any],
        nodes: Mapping[str, gs.Node],
        context: Context,
        matched: tuple[gs.Node, ...] = (),
    ) -> None:
        super().__init__(names, nodes, context)
        self.leaf = tensor
        self.option = option
        self.matched = matched

    @property
    def is_bare(self) -> bool:
        """Whether the leaf is the template's parameter itself."""
        return not self.matched

    @property
    def node(self) -> NodeView | None:
        """The node that makes the leaf; None for a bare one."""
        return self._context.view(self.matched[0]) if self.matched else None

    @property
    def op(self) -> str:
        """The operator that makes the leaf; "" for a bare one."""
        return self.node.op if self.node is not None else ""

    @property
    def steps(self) -> tuple[Operand, ...]:
        """What the nodes of the leaf make, in the order in which they run: from the parameter to the leaf, in a chain."""
        return tuple(Operand(node.outputs[0], self._context, node) for node in reversed(self.matched))

    @property
    def out(self) -> Operand:
        return Operand(self.leaf, self._context)


@dataclass(frozen=True)
class Group:
    """Leaves of a sum or product that bind the template's parameters to the same tensors."""

    names: Mapping[str, gs.Tensor]
    leaves: tuple[Leaf, ...]
    positions: frozenset[int]
    """of the leaves in the tree"""


class Match(_Bound):
    """``m.x`` is an :class:`Operand`, a tuple of them for ``x...``, None where missing; ``m.branches`` the leaves."""

    def __init__(
        self,
        root: gs.Node,
        names: Mapping[str, Any],
        nodes: Mapping[str, gs.Node],
        context: Context,
        leaves: Mapping[str, tuple[Leaf, ...]],
        matched: tuple[gs.Node, ...],
        leftovers: tuple[gs.Tensor, ...] = (),
        join: str = "Add",
        siblings: Mapping[str, tuple[Group, ...]] | None = None,
    ) -> None:
        super().__init__(names, nodes, context)
        self.sibling_groups = siblings or {}
        self.root = root
        self.leaf_groups = leaves
        self.matched = matched
        self.leftovers = leftovers
        self.join = join

    def __getattr__(self, name: str) -> Any:
        groups = self.__dict__.get("leaf_groups", {})
        for template, leaves in groups.items():
            if name in (plural(template), template):
                return leaves
        return super().__getattr__(name)

    @property
    def context(self) -> Context:
        return self._context

    @property
    def options(self) -> Options:
        """What the user allows: ``m.options.allow_lossy_casts``."""
        return self._context.options

    @property
    def opset(self) -> int:
        """Opset of ai.onnx where the match lies."""
        return self._context.index.scope(self.root).opset("")

    def siblings(self) -> Iterator[Match]:
        """The same match with each further group of leaves; what is matched are then its leaves' own nodes alone."""
        waits = (self.root.outputs[0],)  # what a sibling gives is joined to the rest
        for template, groups in self.sibling_groups.items():
            for group in groups:
                names, leaves = {**self._names, **group.names}, {**self.leaf_groups, template: group.leaves}
                own = tuple({id(n): n for leaf in group.leaves for n in leaf.matched}.values())
                yield Match(self.root, names, self._nodes, self._context, leaves, own, waits, self.join)

    def leaves(self, template: str) -> tuple[Leaf, ...]:
        return self.leaf_groups[template]

    def value(self, name: str) -> Any:
        """ndarray, Partial or None."""
        bound = self._names[name]
        return None if bound is None else self._context.value(bound)

    def axis(self, name: str, attr: str = "axis", rank: int | None = None) -> int:
        """A node's axis attribute as a non-negative number; the rank is that of its first operand unless given.

        Raises Decline where the rank is unknown.
        """
        operand = getattr(self, name)
        first = operand.node.input(0)
        known = rank if rank is not None else self._context.type_of(first).rank if first is not None else None
        axis = operand.attr(attr)
        if axis >= 0:
            return int(axis)
        if known is None:
            raise Decline(f"the rank of '{first.name if first is not None else name}' is unknown")
        try:
            return normalise_axis(int(axis), known)
        except ValueError as error:
            raise Decline(str(error)) from None


def plural(name: str) -> str:
    """branch -> branches, leaf -> leafs."""
    return name + ("es" if name.endswith(("ch", "sh", "s", "x")) else "s")
