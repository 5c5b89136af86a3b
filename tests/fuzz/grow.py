"""A graph grows fragment by fragment; each runs in ONNX Runtime at all sizes before it stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from surgeon_passes.runtime import RuntimeFailure, Session

from .bodies import BODIES
from .changes import changed, retyped
from .choices import Choices, flip, noise, odds
from .fragment import Array, Fragment, Pair, Tensor, as_model, finished, renamed, value_info
from .lower import CannotLower, lowered

SIZES = {"N": (2, 1), "T": (5, 4), "H": (6, 9), "W": (7, 8), "K": (3, 2), "M": (1, 3), "B": (4, 5), "S": (3, 6)}
"""dims with a name, at the two sizes that graphs are run at"""
DEADLY = ("ConvTranspose", "Einsum")
"""operators of which ONNX Runtime 1.32 dies where an operand has no elements"""
LARGEST = 20_000
"""elements of a tensor"""
REFUSED: Counter[str] = Counter()
"""fragments that ONNX Runtime does not run, by their source"""


@dataclass
class Grower:
    choices: Choices
    opset: int
    fixed: bool
    """whether all inputs have fixed sizes"""
    pool: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    held: dict[str, Array] = field(default_factory=dict)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    count: int = 0

    def __post_init__(self) -> None:
        self.random = noise(self.choices)

    # --- inputs ------------------------------------------------------------------------------------------------------

    @property
    def runs(self) -> int:
        return 1 if self.fixed else 2

    def pair(self, name: str) -> Pair:
        return (SIZES[name][0],) if self.fixed else SIZES[name]

    def some_dim(self) -> Pair:
        if odds(self.choices, 30):
            return self.whole(0)
        name = self.choices.pick(tuple(SIZES))
        if self.choices.number(0, 2) == 0:
            return (SIZES[name][0],) * self.runs
        return self.pair(name)

    def whole(self, size: int) -> Pair:
        return (size,) * self.runs

    def new_input(self, dims: tuple[Pair, ...], dtype: Any = np.float32) -> Tensor:
        """A new input of the graph."""
        kind = np.dtype(dtype)
        scale = self.choices.pick((1.0, 1.0, 1.0, 30.0))
        values = tuple(self._value(shape, kind, scale) for shape in self._shapes(dims))
        tensor = Tensor(f"in{len(self.inputs)}", values)
        self.inputs.append(tensor)
        self.pool.append(tensor)
        return tensor

    def _shapes(self, dims: tuple[Pair, ...]) -> list[tuple[int, ...]]:
        return [tuple(d[k] for d in dims) for k in range(self.runs)]

    def _value(self, shape: tuple[int, ...], kind: np.dtype[Any], scale: float) -> Array:
        if kind.kind == "b":
            return np.asarray(self.random.random(shape) < 0.5)
        if kind.kind in "iu":
            return self.random.integers(0, 2, shape).astype(kind)
        return np.asarray(self.random.standard_normal(shape) * scale).astype(kind)

    def tensor(self, fits: Callable[[Tensor], bool], dims: Callable[[], tuple[Pair, ...]], dtype: Any) -> Tensor:
        """One of the last tensors that fit, or a new input."""
        found = [t for t in self.pool[-12:] if t.dtype == np.dtype(dtype) and fits(t)]
        if found and not odds(self.choices, 6):
            return self.choices.pick(found[::-1])
        return self.new_input(dims(), dtype)

    def flag(self) -> Tensor:
        for tensor in self.inputs:
            if tensor.name == "flag":
                return tensor
        flag = Tensor("flag", tuple(np.array(k == 0) for k in range(self.runs)))
        self.inputs.append(flag)
        return flag

    # --- growing -----------------------------------------------------------------------------------------------------

    def commit(self, fragment: Fragment, change: bool = True) -> list[Tensor]:
        """Change the fragment at random, run it, keep it; no tensors where it cannot be run."""
        self.count += 1
        prefix = f"b{self.count}_"
        if change:
            fragment = self._shared(changed(self.choices, fragment))
        fragment = self._retyped(fragment)
        try:
            fragment = renamed(lowered(fragment, self.opset), prefix)
        except CannotLower:
            REFUSED[fragment.source] += 1
            return []
        made = self._run(fragment)
        depth = 0
        while made and depth < 2 and odds(self.choices, 6):
            depth += 1
            wrap = self.choices.pick(BODIES)
            inside = wrap(self.choices, fragment, {t.name: t for t in made}, self.flag(), f"{prefix}{depth}_")
            for function in inside.functions:
                function.opset_import[0].version = self.opset
            again = self._run(inside)
            if again:
                fragment, made = inside, again
        if made:
            self._keep(fragment, made)
        return made

    def _shared(self, fragment: Fragment) -> Fragment:
        """Now and then weights that are there already."""
        constants = dict(fragment.constants)
        for name, value in fragment.constants.items():
            same = [v for v in self.held.values() if v.dtype == value.dtype and v.shape == value.shape]
            if same and value.dtype.kind == "f" and value.size > 1 and odds(self.choices, 4):
                constants[name] = self.choices.pick(same)
        return replace(fragment, constants=constants)

    def _retyped(self, fragment: Fragment) -> Fragment:
        """As half or double precision, with Casts in front."""
        if not odds(self.choices, 8) or not any(t.dtype == np.float32 for t in fragment.inputs.values()):
            return fragment
        dtype = np.dtype(self.choices.pick((np.float16, np.float64)))
        made = retyped(fragment, dtype)
        kind = helper.np_dtype_to_tensor_dtype(dtype)
        casts, inputs = [], {}
        for name, tensor in fragment.inputs.items():
            if tensor.dtype != np.float32:
                inputs[name] = tensor
            elif flip(self.choices):
                casts.append(helper.make_node("Cast", [f"{name}_wide"], [name], to=kind))
                inputs[f"{name}_wide"] = tensor
            else:
                inputs[name] = self.new_input(tensor.dims, dtype)
        return replace(made, nodes=[*casts, *made.nodes], inputs=inputs)

    def _run(self, fragment: Fragment) -> list[Tensor]:
        if fragment.reads_nothing and any(n.op_type in DEADLY for n in fragment.nodes):
            return []
        try:
            session = Session(as_model(replace(fragment, outputs=fragment.all_outputs), self.opset))
            runs = [session.run({n: t.values[k] for n, t in fragment.inputs.items()}) for k in range(self.runs)]
        except (RuntimeFailure, ValueError, TypeError):
            REFUSED[fragment.source] += 1
            return []
        if not _joins(fragment, runs[0]):
            REFUSED[fragment.source] += 1
            return []
        made = [Tensor(name, tuple(run[name] for run in runs)) for name in dict.fromkeys(fragment.outputs)]
        usable = all(isinstance(v, np.ndarray) and v.size <= LARGEST for t in made for v in t.values)
        return made if usable and all(t.rank == t.values[-1].ndim for t in made) else []

    def _keep(self, fragment: Fragment, made: list[Tensor]) -> None:
        names = {name: self._place(name, value) for name, value in fragment.constants.items()}
        names = {old: new for old, new in names.items() if old != new}
        self.nodes += renamed_constants(fragment.nodes, names)
        self.functions += fragment.functions
        self.read |= set(fragment.inputs)
        self.pool += made

    def _place(self, name: str, value: Array) -> str:
        """An initializer or a Constant node, or an initializer of the same bytes that is there already."""
        for other, held in self.held.items():
            if held.dtype == value.dtype and held.shape == value.shape and held.tobytes() == value.tobytes():
                return other
        if self.choices.number(0, 2) == 0:
            node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
            self.nodes.append(node)
        else:
            self.held[name] = value
        return name

    # --- the whole ---------------------------------------------------------------------------------------------------

    def model(self) -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
        """The model, and its feeds at each of the sizes."""
        made = [t for t in self.pool if t not in self.inputs]
        outputs = [t for t in made if t.name not in self.read]
        if made and flip(self.choices):
            outputs.append(self.choices.pick(made))
        outputs = outputs or made[-1:]
        if self.inputs and odds(self.choices, 16):
            outputs.append(self.choices.pick(self.inputs))
        if self.held and odds(self.choices, 16):
            name = self.choices.pick(tuple(self.held))
            outputs.append(Tensor(name, (self.held[name],) * self.runs))
        if not odds(self.choices, 8):
            outputs = list({t.name: t for t in outputs}.values())
        by_pair = {pair: name for name, pair in SIZES.items()}
        inputs = [value_info(t, [self._declared(d, by_pair) for d in t.dims]) for t in self.inputs]
        values = [value_info(t, [None] * t.rank) for t in outputs]
        held = [numpy_helper.from_array(v, n) for n, v in self.held.items()]
        graph = helper.make_graph(self.nodes, "g", inputs, values, held)
        model = finished(graph, self.opset, self.functions)
        return model, [{t.name: t.values[k] for t in self.inputs} for k in range(self.runs)]

    def _declared(self, dim: Pair, by_pair: dict[Pair, str]) -> int | str:
        if len(set(dim)) == 1:
            return dim[0]
        return by_pair.get(dim) or "D" + "_".join(map(str, dim))


def _joins(fragment: Fragment, run: dict[str, Array]) -> bool:
    """Whether operands of Concat agree beside their axis: of empty ones ONNX Runtime does not ask it."""
    held = {**fragment.constants, **{n: t.values[0] for n, t in fragment.inputs.items()}, **run}
    for node in fragment.nodes:
        if node.op_type == "Concat":
            axis = next(a.i for a in node.attribute if a.name == "axis")
            shapes = {tuple(np.delete(held[n].shape, axis)) for n in node.input if n in held}
            if len(shapes) > 1:
                return False
    return True


def renamed_constants(nodes: list[onnx.NodeProto], names: dict[str, str]) -> list[onnx.NodeProto]:
    """The nodes, reading constants under other names, in bodies too."""
    if not names:
        return nodes
    for node in nodes:
        node.input[:] = [names.get(n, n) for n in node.input]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                renamed_constants(list(attribute.g.node), names)
    return nodes
