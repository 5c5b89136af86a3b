"""ONNX Runtime as the rest of the package sees it: sessions over protobufs, whose weights are copied as little as can be.

Which process they live in, :mod:`surgeon_passes.engines` decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from surgeon_passes.engines.plan import Array, Engine, External, Plan, Value, open_engine
from surgeon_passes.errors import RuntimeFailure

_PIECE_LIMIT = 1_500_000_000
_EXTERNAL_BYTES = 1 << 20
_FED_BYTES = 1 << 22
"""Bytes of weights from which they are fed: ONNX Runtime copies what it is given as initializers."""
_NO_NUMPY = ("bfloat16", "float8", "float4", "int4", "int2")


def version() -> str:
    """The version of ONNX Runtime that checks."""
    from surgeon_passes.engines.local import version

    return version()


def _external(array: Array, elem_type: int) -> External:
    own = elem_type == onnx.helper.np_dtype_to_tensor_dtype(array.dtype) and not array.dtype.name.startswith(_NO_NUMPY)
    return External(array, 0 if own else elem_type)


def external_stub(name: str, dims: Sequence[int], elem_type: int) -> TensorProto:
    """An initializer without data, whose value is given to :class:`Session` as ``external``."""
    itemsize = onnx.helper.tensor_dtype_to_np_dtype(elem_type).itemsize
    stub = TensorProto(name=name, dims=dims, data_type=elem_type, data_location=TensorProto.EXTERNAL)
    length = math.prod(dims) * itemsize
    for key, value in (("location", "memory"), ("offset", "0"), ("length", str(length))):
        stub.external_data.add(key=key, value=value)
    return stub


def _weight_bytes(tensor: TensorProto) -> int:
    if tensor.data_location == TensorProto.EXTERNAL or tensor.data_type == TensorProto.STRING:
        return 0
    return math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def is_too_large(model: ModelProto) -> bool:
    """Whether the initializers of ``model`` keep it from being serialised in one piece."""
    inside = [t for t in model.graph.initializer if not t.external_data]
    if sum(math.prod(t.dims) for t in inside) * 16 <= _PIECE_LIMIT:
        return False
    return sum(map(_weight_bytes, inside)) > _PIECE_LIMIT


def _without_large_weights(model: ModelProto) -> tuple[ModelProto, dict[str, Array]]:
    """A copy whose large initializers are stubs, and their arrays by name."""
    slim = ModelProto(ir_version=model.ir_version)
    slim.opset_import.extend(model.opset_import)
    slim.functions.extend(model.functions)
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(slim.graph, name).extend(getattr(model.graph, name))
    slim.graph.name = model.graph.name or "graph"
    arrays: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if _weight_bytes(tensor) < _EXTERNAL_BYTES:
            slim.graph.initializer.append(tensor)
        else:
            arrays[tensor.name] = numpy_helper.to_array(tensor)
            slim.graph.initializer.append(external_stub(tensor.name, tensor.dims, tensor.data_type))
    return slim, arrays


def _names_read(graph: GraphProto) -> set[str]:
    """Names that nodes, also those of bodies, and outputs read: ONNX Runtime drops initializers that nothing reads."""
    found = {value.name for value in graph.output}
    for node in graph.node:
        found.update(node.input)
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                found |= _names_read(body)
    return found


def _serialized(model: ModelProto) -> bytes:
    try:
        return model.SerializeToString()
    except Exception as error:
        reason = "the model is larger than 2 GB in one piece; save it with external data"
        raise RuntimeFailure(reason, "TOO_LARGE") from error


def _inlined(model: ModelProto, arrays: Mapping[str, Array]) -> ModelProto:
    """A copy whose weights lie in it, for where ONNX Runtime has dropped a stub before it looks for its data."""
    whole = ModelProto()
    whole.CopyFrom(model)
    for tensor in whole.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(arrays[tensor.name]), tensor.name))
    return whole


def _with_fed_weights(model: ModelProto, arrays: Mapping[str, Array]) -> tuple[ModelProto, dict[str, Array]]:
    """A copy in which initializers called as ``arrays`` are inputs, where that may be, and the arrays to feed to them."""
    interface = {value.name for value in (*model.graph.input, *model.graph.output)}
    read = _names_read(model.graph)
    fed: dict[str, Array] = {}
    copy = ModelProto()
    copy.CopyFrom(model)
    del copy.graph.initializer[:]
    for tensor in model.graph.initializer:
        array, name = arrays.get(tensor.name), tensor.name
        plain = array is not None and tensor.data_type == onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        if array is None or not plain or array.dtype.name.startswith(_NO_NUMPY) or name in interface:
            copy.graph.initializer.append(tensor)
        elif name in read:
            copy.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, list(array.shape)))
            fed[name] = np.require(array, requirements=["C", "A"])
    return copy, fed


class Session:
    """One model, loaded on the CPU, on one thread or ``threads``.

    ``level`` is how far ONNX Runtime may optimise: off, basic, extended or all. ``external`` gives the arrays of
    initializers that the model declares with :func:`external_stub`; with optimisations off large ones are not copied.
    ``shapes_first`` runs a Shape as soon as it can, so that what it reads need not live on.

    Raises RuntimeFailure where the model does not load.
    """

    def __init__(
        self,
        model: ModelProto | str | Path,
        *,
        level: str = "off",
        external: Mapping[str, Array] | None = None,
        threads: int = 1,
        shapes_first: bool = False,
    ) -> None:
        arrays = dict(external or {})
        self._shapes_first = shapes_first
        if isinstance(model, ModelProto) and is_too_large(model):
            model, large = _without_large_weights(model)
            arrays.update(large)
        self._model, self._arrays, self._threads = model, arrays, threads
        self._fed: dict[str, Array] = {}
        if isinstance(model, ModelProto) and level == "off" and sum(a.nbytes for a in arrays.values()) >= _FED_BYTES:
            copy, self._fed = _with_fed_weights(model, arrays)
            try:
                self._load(copy, {n: a for n, a in arrays.items() if n not in self._fed}, level)
                return
            except RuntimeFailure as failure:
                if failure.is_fatal:
                    raise
                self._fed = {}  # an operator may want constants
        self._load(model, arrays, level)

    def _load(self, model: ModelProto | str | Path, arrays: Mapping[str, Array], level: str) -> None:
        self._engine = self._open(model, arrays, level)
        self.inputs: dict[str, tuple[str, list[Any]]] = {
            name: found for name, found in self._engine.inputs.items() if name not in self._fed
        }
        self.outputs: dict[str, str] = self._engine.outputs

    def _open(self, model: ModelProto | str | Path, arrays: Mapping[str, Array], level: str) -> Engine:
        if not isinstance(model, ModelProto):
            return open_engine(Plan(str(model), level, self._threads, shapes_first=self._shapes_first))
        read = _names_read(model.graph) if arrays else set()
        stubs = (t for t in model.graph.initializer if t.name in arrays and t.name in read)
        external = {t.name: _external(arrays[t.name], t.data_type) for t in stubs}
        plan = Plan(_serialized(model), level, self._threads, external, self._fed, shapes_first=self._shapes_first)
        try:
            return open_engine(plan)
        except RuntimeFailure as failure:
            if "ReplaceInitializedTensor" not in str(failure):
                raise
        return open_engine(replace(plan, source=_serialized(_inlined(model, arrays)), external={}, fed={}))

    def run(self, feeds: Mapping[str, Value], outputs: Iterable[str] | None = None) -> dict[str, Value]:
        """Values of ``outputs`` (all of them by default). Raises RuntimeFailure."""
        names = list(self.outputs if outputs is None else outputs)
        try:
            values = self._engine.run(names, feeds)
        except RuntimeFailure as failure:
            if not self._fed or failure.is_fatal:
                raise
            self._fed = {}  # an operator may want constants
            self._load(self._model, self._arrays, "off")
            return self.run(feeds, names)
        return dict(zip(names, values, strict=True))

    def opaque_outputs(self) -> list[str]:
        """Outputs whose element type numpy does not have (bfloat16, float8, int4): :meth:`run` cannot give them."""
        return [name for name, kind in self.outputs.items() if any(t in kind for t in _NO_NUMPY)]


def run(
    model: ModelProto | str | Path, feeds: Mapping[str, Value], outputs: Iterable[str] | None = None, level: str = "off"
) -> dict[str, Value]:
    """Load ``model``, run it once. Raises RuntimeFailure."""
    return Session(model, level=level).run(feeds, outputs)


__all__ = [
    "Array",
    "RuntimeFailure",
    "Session",
    "Value",
    "external_stub",
    "is_too_large",
    "run",
    "version",
]
