"""ONNX Runtime: the only module that imports it, and only when a session is made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from surgeon_passes.errors import SurgeonError

Array: TypeAlias = NDArray[Any]
Value: TypeAlias = Any
"""An ndarray, or a list of them where the type is a sequence."""

_LEVELS = {
    "off": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_PREFIX = re.compile(r"^\s*\[ONNXRuntimeError\]\s*:\s*\d+\s*:\s*(\w+)\s*:\s*")
_SOURCE = re.compile(r"/\S*?onnxruntime\S*?:\d+\s*")
_PIECE_LIMIT = 1_500_000_000
_EXTERNAL_BYTES = 1 << 20
_FED_BYTES = 1 << 22
"""Bytes of weights from which they are fed: ONNX Runtime copies what it is given as initializers."""
_NO_NUMPY = ("bfloat16", "float8", "float4", "int4", "int2")


class RuntimeFailure(SurgeonError):
    """ONNX Runtime refused a model or a run. ``code`` is its error code, such as NOT_IMPLEMENTED, or ""."""

    exit_code = 5

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


def _failure(error: Exception) -> RuntimeFailure:
    text = str(error)
    found = _PREFIX.match(text)
    if found:
        text = text[found.end() :]
    text = " ".join(_SOURCE.sub("", text).split()) or type(error).__name__
    return RuntimeFailure(text if len(text) <= 400 else text[:397] + "...", found.group(1) if found else "")


@cache
def _ort() -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def version() -> str:
    """The version of ONNX Runtime that checks."""
    return str(_ort().__version__)


def _options(level: str, threads: int = 1) -> Any:
    ort = _ort()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[level])
    options.log_severity_level = 4
    if threads > 1:  # else the threads of one session go on spinning while another session runs
        options.add_session_config_entry("session.force_spinning_stop", "1")
    if level != "all":
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _ort_value(array: Array, elem_type: int) -> Any:
    make = _ort().OrtValue
    if elem_type == onnx.helper.np_dtype_to_tensor_dtype(array.dtype) and not array.dtype.name.startswith(_NO_NUMPY):
        return make.ortvalue_from_numpy(array)
    return make.ortvalue_from_numpy_with_onnx_type(array, elem_type)


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


def _load_inlined(model: ModelProto, arrays: Mapping[str, Array], level: str) -> Any:
    """A session whose weights lie in the model, for where ONNX Runtime has dropped a stub before it looks for its data."""
    whole = ModelProto()
    whole.CopyFrom(model)
    for tensor in whole.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(arrays[tensor.name]), tensor.name))
    try:
        return _ort().InferenceSession(_serialized(whole), _options(level), providers=["CPUExecutionProvider"])
    except RuntimeFailure:
        raise
    except Exception as error:
        raise _failure(error) from error


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
    Raises RuntimeFailure where the model does not load.
    """

    def __init__(
        self,
        model: ModelProto | str | Path,
        *,
        level: str = "off",
        external: Mapping[str, Array] | None = None,
        threads: int = 1,
    ) -> None:
        arrays = dict(external or {})
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
            except RuntimeFailure:
                self._fed = {}  # an operator may want constants
        self._load(model, arrays, level)

    def _load(self, model: ModelProto | str | Path, arrays: Mapping[str, Array], level: str) -> None:
        source: str | bytes
        if isinstance(model, ModelProto):
            source = _serialized(model)
            read = _names_read(model.graph) if arrays else set()
            declared = {t.name: t.data_type for t in model.graph.initializer if t.name in arrays and t.name in read}
        else:
            source, declared = str(model), {}
        options = _options(level, self._threads)
        ready = {name: np.require(arrays[name], requirements=["C", "A"]) for name in declared}
        self._kept = [_ort_value(ready[name], kind) for name, kind in declared.items()]
        try:
            if self._kept:
                options.add_external_initializers(list(declared), self._kept)
                if level == "off":  # nothing rewrites initializers: they are used in place, not copied
                    for name, value in zip(declared, self._kept, strict=True):
                        options.add_initializer(name, value)
            self._session = _ort().InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            if "ReplaceInitializedTensor" not in str(error) or not isinstance(model, ModelProto):
                raise _failure(error) from error
            self._session = _load_inlined(model, arrays, level)
        self.inputs: dict[str, tuple[str, list[Any]]] = {
            i.name: (i.type, list(i.shape)) for i in self._session.get_inputs() if i.name not in self._fed
        }
        self.outputs: dict[str, str] = {o.name: o.type for o in self._session.get_outputs()}

    def run(self, feeds: Mapping[str, Value], outputs: Iterable[str] | None = None) -> dict[str, Value]:
        """Values of ``outputs`` (all of them by default). Raises RuntimeFailure."""
        names = list(self.outputs if outputs is None else outputs)
        try:
            values = self._session.run(names, {**self._fed, **feeds})
        except Exception as error:
            if not self._fed:
                raise _failure(error) from error
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
