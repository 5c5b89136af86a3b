"""A model under construction: nodes with inferred types, inputs and constants with their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from surgeon_passes.authoring import operands as makers
from surgeon_passes.authoring.slots import Array, Slot, Tensor, Unfit
from surgeon_passes.engines import libraries
from surgeon_passes.ops.schema import STANDARD, schema
from surgeon_passes.ops.traits import SPATIAL
from surgeon_passes.rules.pattern import OpId, Pattern

_NP = {f"tensor({kind})": np.dtype(name) for kind, name in (
    ("float", "float32"), ("float16", "float16"), ("double", "float64"), ("int64", "int64"), ("int32", "int32"),
    ("bool", "bool"), ("uint8", "uint8"), ("int8", "int8"))}  # fmt: skip
_SAMPLES = 2
_INDEXING = frozenset({"Gather", "GatherND", "GatherElements", "ScatterND", "OneHot"})
IR_VERSION = 10
_Mark = tuple[int, dict[str, Tensor], dict[str, Array], dict[str, Array], set[str]]


@cache
def runtime_operators() -> frozenset[OpId]:
    """Operators of other domains that ONNX Runtime has."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return frozenset(OpId(s.domain, s.name) for s in state.get_all_operator_schema())


def is_runnable(op: OpId) -> bool:
    """Whether ONNX Runtime knows the operator at all; what a library registers only a run can tell."""
    return op.domain in STANDARD or op in runtime_operators() or bool(libraries())


class Draft:
    """``keeps``, ``float_dtype``, ``ranks`` and ``whole`` are drawn once a graph."""

    def __init__(self, rng: np.random.Generator, opset: int, pattern: Pattern) -> None:
        self.rng, self.opset = rng, opset
        casts = any(op.name == "Cast" for op in pattern.facts.operators)
        shares = [0.5, 0.35, 0.15] if casts else [0.76, 0.12, 0.12]
        self.float_dtype = np.dtype(rng.choice(["float32", "float16", "float64"], p=shares))
        self.indexes = any(op.name in _INDEXING for op in pattern.facts.operators)
        share = 0.4 if self.indexes else 0.08
        self.whole = np.dtype(rng.choice(["int64", "int64", "int32"])) if rng.random() < share else None
        self.keeps = bool(rng.random() < 0.7)
        self.ranks = _ranks(pattern, rng)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, Tensor] = {}
        self.inputs: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.names: set[str] = set()
        self.domains: set[str] = set()

    # --- going back --------------------------------------------------------------------------------------------------

    def mark(self) -> _Mark:
        return len(self.nodes), dict(self.tensors), dict(self.inputs), dict(self.constants), set(self.names)

    def restore(self, mark: _Mark) -> None:
        count, tensors, inputs, constants, names = mark
        del self.nodes[count:]
        self.tensors, self.inputs, self.constants, self.names = dict(tensors), dict(inputs), dict(constants), set(names)

    # --- leaves ------------------------------------------------------------------------------------------------------

    def slot(
        self,
        op: str,
        place: int,
        operands: Sequence[Tensor | None],
        given: Sequence[bool],
        attrs: Mapping[str, Any],
        dtype: Any,
        const: bool,
        outputs: int,
    ) -> Slot:
        others = tuple(dict.fromkeys(t.shape for t in self.tensors.values() if t.name not in self.constants))
        return Slot(
            op, place, operands, given, attrs, np.dtype(dtype), self.rng, const, self.keeps, self.ranks, self.opset,
            outputs, others, self.indexes, next((a.dtype for a in self.inputs.values()), None),
        )  # fmt: skip

    def leaf(self, slot: Slot, name: str, const: bool) -> Tensor:
        """An operand made up for a slot: a constant, or an input of the model."""
        array = np.asarray(makers.make(slot))
        if array.size > 4096 or array.ndim > 6:
            raise Unfit
        if const:
            return self.constant(array, name)
        if slot.const and array.ndim == 1 and array.dtype == np.int64 and array.size:
            return self.computed(array, name, slot.known(0))
        found = self._keep(Tensor(self.fresh(name), array.dtype, array.shape, array))
        self.inputs[found.name] = array
        return found

    def constant(self, array: Array, name: str) -> Tensor:
        found = self._keep(Tensor(self.fresh(name), array.dtype, array.shape, array))
        self.constants[found.name] = array
        return found

    def computed(self, array: Array, name: str, data: Tensor | None) -> Tensor:
        """Integers that are no constant though they can be told before the model runs: in part the shape of ``data``, or of
        an input of its own."""
        place = int(self.rng.integers(0, array.size))
        if np.abs(array).max() > 1 << 40:
            return self.constant(array, name)
        same = [i for i, d in enumerate(data.shape if data is not None else ()) if d == array[place]]
        own = data is None or not same or self.opset < 15 or self.rng.random() < 0.3
        if own and (self.rng.random() < 0.5 or not 0 < array[place] <= 64):
            return self.shifted(array, name)
        source, attrs = data, {}
        if own or data is None:
            sized = np.zeros(int(array[place]), np.float32)
            source = self._keep(Tensor(self.fresh("sized"), sized.dtype, sized.shape, sized))
            self.inputs[source.name] = sized
        else:
            attrs = {"start": same[0], "end": same[0] + 1}
        pieces = [self.constant(array[:place], "before"), None, self.constant(array[place + 1 :], "after")]
        (pieces[1],) = self.node(OpId("", "Shape"), [source], attrs, ["size"])
        joined = [p for p in pieces if p is not None and p.shape != (0,)]
        (made,) = self.node(OpId("", "Concat"), joined, {"axis": 0}, [name])
        assert made is not None
        return self._keep(Tensor(made.name, made.dtype, made.shape, array))

    def shifted(self, array: Array, name: str) -> Tensor:
        """The size of an input and a constant added up."""
        source = np.zeros(int(self.rng.integers(1, 9)), np.float32)
        sized = self._keep(Tensor(self.fresh("sized"), source.dtype, source.shape, source))
        self.inputs[sized.name] = source
        (size,) = self.node(OpId("", "Shape"), [sized], {}, ["size"])
        (made,) = self.node(OpId("", "Add"), [size, self.constant(array - source.size, "shift")], {}, [name])
        assert made is not None
        return self._keep(Tensor(made.name, made.dtype, made.shape, array))

    def _keep(self, tensor: Tensor) -> Tensor:
        self.tensors[tensor.name] = tensor
        return tensor

    def fresh(self, name: str) -> str:
        found, number = name, 1
        while found in self.names:
            number += 1
            found = f"{name}_{number}"
        self.names.add(found)
        return found

    # --- types -------------------------------------------------------------------------------------------------------

    def knows(self, op: OpId) -> bool:
        return is_runnable(op) and (op.domain not in STANDARD or schema(op.name, self.opset, op.domain) is not None)

    @property
    def usual(self) -> np.dtype[Any]:
        """The type of what may have any."""
        found: np.dtype[Any] = self.float_dtype if self.whole is None else self.whole
        return found

    def dtype(self, op: OpId, place: int, operands: Sequence[Tensor | None]) -> np.dtype[Any]:
        """One that the schema allows beside the operands that are there."""
        entry = schema(op.name, self.opset, op.domain)
        if entry is None or not entry.inputs:
            return self.usual
        formal = [entry.inputs[min(i, len(entry.inputs) - 1)] for i in range(max(place, len(operands)) + 1)]
        kind = formal[place].type_str
        bound = [t.dtype for t, f in zip(operands, formal, strict=False) if t is not None and f.type_str == kind]
        if bound and "(" not in kind:
            return bound[0]
        allowed = [_NP[t] for t in sorted(formal[place].types) if t in _NP]
        if self.usual in allowed:
            return self.usual
        for name in ("float32", "int64", "bool", "int32"):
            if np.dtype(name) in allowed:
                return np.dtype(name)
        raise Unfit

    def node(
        self, op: OpId, operands: Sequence[Tensor | None], attrs: Mapping[str, Any], results: Sequence[str]
    ) -> list[Tensor | None]:
        """Add a node; its results. Raises Unfit where onnx or ONNX Runtime says that it cannot be."""
        names = [self.fresh(name) if name else "" for name in results]
        inputs = [t.name if t is not None else "" for t in operands]
        if any(isinstance(v, (list, tuple)) and not v for v in attrs.values()):
            raise Unfit
        proto = helper.make_node(op.name, inputs, names, f"n{len(self.nodes)}", domain=op.domain, **_plain(attrs))
        self.domains.add(op.domain)
        types = self._inferred(op, proto, [t for t in operands if t is not None])
        self.nodes.append(proto)
        if any(n not in types for n in names if n):
            raise Unfit
        return [self._keep(Tensor(n, *types[n])) if n else None for n in names]

    def _inferred(
        self, op: OpId, proto: onnx.NodeProto, operands: Iterable[Tensor]
    ) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        entry = schema(op.name, self.opset, op.domain)
        if entry is None:
            return self._run(proto, list(operands))
        types = {t.name: helper.make_tensor_type_proto(_elem(t.dtype), list(t.shape)) for t in operands}
        data = {t.name: numpy_helper.from_array(t.array, t.name) for t in operands if t.array is not None}
        imports = [helper.make_opsetid("", self.opset)]
        try:
            found = shape_inference.infer_node_outputs(entry, proto, types, data, opset_imports=imports)
        except Exception as error:
            raise Unfit from error
        made = {}
        for name, kind in found.items():
            dims = kind.tensor_type.shape.dim
            known = kind.tensor_type.HasField("shape") and all(d.HasField("dim_value") for d in dims)
            if not known or not kind.tensor_type.elem_type:
                return self._run(proto, list(operands))
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type))
            made[name] = dtype, tuple(int(d.dim_value) for d in dims)
        return made

    def _run(self, proto: onnx.NodeProto, operands: list[Tensor]) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        """Types of what ONNX Runtime gives."""
        from surgeon_passes.runtime import RuntimeFailure, Session

        arrays = {t.name: t.array if t.array is not None else np.ones(t.shape, t.dtype) for t in operands}
        inputs = [helper.make_tensor_value_info(n, _elem(a.dtype), list(a.shape)) for n, a in arrays.items()]
        outputs = [onnx.ValueInfoProto(name=n) for n in proto.output if n]
        graph = helper.make_graph([proto], "one", inputs, outputs)
        try:
            found = Session(self._model(graph)).run(arrays)
        except RuntimeFailure as error:
            raise Unfit from error
        return {n: (np.dtype(a.dtype), tuple(a.shape)) for n, a in found.items() if isinstance(a, np.ndarray)}

    # --- the model ---------------------------------------------------------------------------------------------------

    def model(self, results: Sequence[Tensor]) -> tuple[onnx.ModelProto, tuple[dict[str, Array], ...]]:
        """The model, some of its dims without a size at times, and feeds for it."""
        read = {name for node in self.nodes for name in node.input}
        inputs = {n: a for n, a in self.inputs.items() if n in read}
        symbolic = self._symbolic(inputs)
        infos = [
            helper.make_tensor_value_info(n, _elem(a.dtype), [symbolic.get(d, d) for d in a.shape])
            for n, a in inputs.items()
        ]
        shown = [*results, *self._besides(results)]
        outputs = [
            helper.make_tensor_value_info(
                t.name, _elem(t.dtype), [f"{t.name}_{i}" for i in range(t.rank)] if symbolic else list(t.shape)
            )
            for t in shown
        ]
        held = [numpy_helper.from_array(a, n) for n, a in self.constants.items() if n in read]
        graph = helper.make_graph(self.nodes, "generated", infos, outputs, held)
        return self._model(graph), self._samples(inputs)

    def _symbolic(self, inputs: Mapping[str, Array]) -> dict[int, str]:
        """Sizes that are given names: equal sizes one name, so that what is said of one graph holds."""
        if self.rng.random() >= 0.25:
            return {}
        sizes = sorted({d for a in inputs.values() for d in a.shape if d > 1})
        return {d: f"s{d}" for d in sizes if self.rng.random() < 0.5}

    def _besides(self, results: Sequence[Tensor]) -> list[Tensor]:
        """An inner tensor that something else reads, at times."""
        if self.rng.random() >= 0.08:
            return []
        inner = [
            self.tensors[n] for node in self.nodes for n in node.output if n and n not in {t.name for t in results}
        ]
        return [inner[int(self.rng.integers(len(inner)))]] if inner else []

    def _samples(self, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], ...]:
        """The last one in whole numbers: zeros (never -0) and equal elements show what others do not."""
        drawn = [self._feeds(inputs, number) for number in range(_SAMPLES)]
        tied = {n: np.asarray(np.rint(a) + a.dtype.type(0)) if a.dtype.kind == "f" else a for n, a in drawn[-1].items()}
        return (*drawn, tied)

    def _feeds(self, inputs: Mapping[str, Array], number: int) -> dict[str, Array]:
        """The arrays that shapes were drawn with; floats are drawn anew for a further sample."""
        if not number:
            return dict(inputs)
        return {
            n: np.asarray(3 * self.rng.standard_normal(a.shape)).astype(a.dtype) if a.dtype.kind == "f" else a
            for n, a in inputs.items()
        }

    def _model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        imports = [helper.make_opsetid("", self.opset)]
        imports += [helper.make_opsetid(d, 1) for d in sorted(self.domains - {""})]
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


def _elem(dtype: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in attrs.items()}


def _ranks(pattern: Pattern, rng: np.random.Generator) -> tuple[int, ...]:
    """Ranks that the operators of a pattern point to."""
    names = {op.name for op in pattern.facts.operators}
    if rng.random() < 0.85:
        if names & {*SPATIAL, "GlobalAveragePool", "DepthToSpace", "SpaceToDepth", "Resize", "GroupNormalization"}:
            return (2, 2, 4, 3) if names & {"Gemm", "MatMul"} else (4, 4, 4, 4, 3, 5)
        if "Gemm" in names or "FusedGemm" in names:
            return (2, 2, 3) if "Reshape" in names else (2,)
    return (4, 3, 2, 4, 3, 2, 1, 0, 5)
