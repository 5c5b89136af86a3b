"""Feeds for a whole model: given by a person, or guessed so that the original runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, TensorProto, TensorShapeProto, ValueInfoProto, helper

from surgeon_passes.errors import UsageError
from surgeon_passes.runtime import Array, RuntimeFailure, Value
from surgeon_passes.verify.claims import as_shape, with_shapes
from surgeon_passes.verify.segments import Model, Runner, open_model, read_model

Feeds: TypeAlias = dict[str, Value]
Dims: TypeAlias = tuple[int | str | None, ...]
Shapes: TypeAlias = Mapping[str, Any]
"""per input a list of dims or a mapping of dim names to sizes; or a dim's name to its size"""

_SIZES = (8, 16, 32, 64, 224, 3, 2, 1, 4, 96, 128, 256)
_FLOATS = ("normal", "uniform")
_INTEGERS = ("ids", "binary", "ones", "zeros", "arange")
_IDS = 100
"""Ids are drawn below this: an embedding that is wrong beyond its first rows must show."""
_SMALL_CHANNELS = 3
_MOST_ELEMENTS = 1 << 28


@dataclass(frozen=True, slots=True)
class InputType:
    """A graph input; ``dims`` is None where the rank is unknown, ``dtype`` an onnx element type."""

    name: str
    dtype: int
    dims: Dims | None
    kind: str = "tensor"


def model_inputs(model: ModelProto) -> list[InputType]:
    """Inputs that a caller must feed: those without an initializer."""
    held = {t.name for t in model.graph.initializer} | {t.values.name for t in model.graph.sparse_initializer}
    return [_input_type(v) for v in model.graph.input if v.name not in held]


def _input_type(value: ValueInfoProto) -> InputType:
    kind = str(value.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
    tensor = value.type.tensor_type
    dims: Dims | None = None
    if kind == "tensor" and tensor.HasField("shape"):
        dims = tuple(map(_dim, tensor.shape.dim))
    return InputType(value.name, tensor.elem_type, dims, kind)


def _dim(dim: TensorShapeProto.Dimension) -> int | str | None:
    """Some exporters write -1 for a size that is open."""
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


# --- guessing ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """One set of feeds, what the model gives on it where it has run, and shapes of tensors inside that were asked for."""

    feeds: Feeds
    outputs: dict[str, Value] | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def generate_feeds(
    model: Model, shapes: Shapes | None = None, seed: int = 0, runner: Runner | None = None
) -> list[Feeds]:
    """One or two sets of feeds with which ``model`` runs; two sizes where dims are dynamic and both run.

    Raises RuntimeFailure, with the first reason of ONNX Runtime, where nothing that was tried runs.
    """
    return [sample.feeds for sample in generate_samples(model, shapes, seed, runner)]


def generate_samples(
    model: Model, shapes: Shapes | None = None, seed: int = 0, runner: Runner | None = None
) -> list[Sample]:
    """As :func:`generate_feeds`, with the outputs of the run that each set of feeds has shown to be legal."""
    proto, _ = read_model(model)
    inputs = [_with_shapes(i, shapes or {}) for i in model_inputs(proto)]
    odd = next((i for i in inputs if i.kind != "tensor"), None)
    if odd is not None:
        raise RuntimeFailure(f"input '{odd.name}' is a {odd.kind}, which is not made up; give --data")
    session = runner or open_model(model)
    wanted = 2 if any(not isinstance(d, int) for i in inputs for d in i.dims or (None,)) else 1
    return _first_that_run(inputs, session, wanted, seed)


def observed_samples(model: Model, names: Sequence[str], shapes: Shapes | None = None, seed: int = 0) -> list[Sample]:
    """As :func:`generate_samples`; the runs show the shapes of ``names``, tensors that nodes make, too, where that can be."""
    proto, weights = read_model(model)
    seeing, seen = with_shapes(proto, names)
    try:
        runner = open_model((seeing, weights), shapes_first=True) if names else None
    except RuntimeFailure as failure:
        if failure.is_fatal:
            raise
        runner = None
    samples = generate_samples(model, shapes, seed, runner)
    return samples if runner is None else [_divided(sample, names, seen) for sample in samples]


def _divided(sample: Sample, names: Sequence[str], seen: Sequence[str]) -> Sample:
    """Without the outputs ``seen``, which are the shapes of ``names``."""
    outputs = dict(sample.outputs or {})
    found = {name: as_shape(outputs.pop(by)) for name, by in zip(names, seen, strict=True)}
    return Sample(sample.feeds, outputs, found)


def _first_that_run(inputs: Sequence[InputType], session: Runner, wanted: int, seed: int) -> list[Sample]:
    found: list[Sample] = []
    seen: set[tuple[tuple[int, ...], ...]] = set()
    reason = ""
    modes = _modes(inputs)
    for sizes in _sizes(inputs):
        if sizes in seen:
            continue
        seen.add(sizes)
        large = next((i.name for i, s in zip(inputs, sizes, strict=True) if math.prod(s) > _MOST_ELEMENTS), None)
        if large is not None:
            reason = reason or f"input '{large}' has more than {_MOST_ELEMENTS} elements, which are not made up"
            continue
        tried: set[tuple[Any, ...]] = set()
        for floats, integers in modes:
            feeds = _feeds(inputs, sizes, floats, integers, seed + len(found))
            drawn = (floats, *(x.tobytes() for x in feeds.values() if x.dtype.kind in "iu"))
            if drawn in tried:  # of a single number two ways to draw it may make the same
                continue
            tried.add(drawn)
            try:
                outputs = session.run(feeds)
            except RuntimeFailure as failure:
                if failure.is_fatal:
                    raise
                reason = reason or str(failure)
                continue
            found.append(Sample(feeds, outputs))
            modes = [(floats, integers)]
            break
        if len(found) == wanted or (found and len(seen) > 2 * len(_SIZES)):
            break
    if not found:
        raise RuntimeFailure(f"{reason or 'no sizes to try'}; give --data")
    return found


def _modes(inputs: Sequence[InputType]) -> list[tuple[str, str]]:
    kinds = {helper.tensor_dtype_to_np_dtype(i.dtype).kind for i in inputs if i.dtype}
    integers = _INTEGERS if kinds & set("iu") else _INTEGERS[1:2]
    floats = _FLOATS if kinds & set("fV") else _FLOATS[:1]
    return [(f, i) for f in floats for i in integers]


def _with_shapes(found: InputType, shapes: Shapes) -> InputType:
    given = shapes.get(found.name)
    if isinstance(given, Sequence) and not isinstance(given, str):
        if found.dims is not None and len(given) != len(found.dims):
            raise UsageError(f"input '{found.name}' has rank {len(found.dims)}; a shape of rank {len(given)} was given")
        return InputType(found.name, found.dtype, tuple(given), found.kind)
    named = {**{k: v for k, v in shapes.items() if isinstance(v, int)}, **(given if isinstance(given, Mapping) else {})}
    dims = None if found.dims is None else tuple(named.get(d, d) if isinstance(d, str) else d for d in found.dims)
    return InputType(found.name, found.dtype, dims, found.kind)


def _sizes(inputs: Sequence[InputType]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Shapes of all inputs: one size for all open dims but the batch, a batch of 2 and then 1."""
    for size in _SIZES:
        for batch in (2, 1) if size > 1 else (1,):
            for channels in (_SMALL_CHANNELS, 1, size):
                named: dict[str, int] = {}
                yield tuple(_shape(i, size, batch, channels, named) for i in inputs)


def _shape(found: InputType, size: int, batch: int, channels: int, named: dict[str, int]) -> tuple[int, ...]:
    """``named`` holds the sizes of dim names: one name is one size, in all inputs."""
    dims: Dims = (None, None, None, None) if found.dims is None else found.dims
    shape: list[int] = []
    for axis, dim in enumerate(dims):
        if isinstance(dim, int):
            shape.append(dim)
            continue
        if axis == 0 and len(dims) > 1:
            made = batch
        elif axis == 1 and len(dims) >= 4 and dim is None:
            made = channels
        else:
            made = size
        shape.append(made if dim is None else named.setdefault(dim, made))
    return tuple(shape)


def _feeds(
    inputs: Sequence[InputType], sizes: Sequence[tuple[int, ...]], floats: str, integers: str, seed: int
) -> Feeds:
    generator = np.random.default_rng(seed)
    return {i.name: _array(i.dtype, s, floats, integers, generator) for i, s in zip(inputs, sizes, strict=True)}


def _array(dtype: int, shape: tuple[int, ...], floats: str, integers: str, generator: np.random.Generator) -> Array:
    if dtype == TensorProto.STRING:
        return np.asarray(generator.choice(["a", "b", "onnx", ""], size=shape), dtype=object)
    target = helper.tensor_dtype_to_np_dtype(dtype)
    if target.kind == "b":
        return np.asarray(generator.random(shape) < 0.5)
    if target.kind in "iu":
        return _integers(dtype, shape, integers, generator).astype(target)
    values = generator.standard_normal(shape) if floats == "normal" else generator.random(shape)
    return np.asarray(values).astype(target)


def _integers(dtype: int, shape: tuple[int, ...], integers: str, generator: np.random.Generator) -> Array:
    if dtype in (TensorProto.UINT8, TensorProto.INT8) and integers in ("ids", "binary"):
        return generator.integers(0, 128 if dtype == TensorProto.INT8 else 256, shape)
    if integers == "ids" and len(shape) > 1:
        return generator.integers(0, _IDS, shape)
    if integers in ("ids", "binary"):
        return generator.integers(0, 2, shape)
    if integers == "arange":
        return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    return np.ones(shape, np.int64) if integers == "ones" else np.zeros(shape, np.int64)


# --- given ---------------------------------------------------------------------------------------------------------------


def load_data(source: Any, model: Model | None = None) -> list[Feeds]:
    """Feeds from an .npz (one set), a folder of .npy (one set, a file an input) or of .npz, or a callable.

    A callable returns a mapping, or yields several. With ``model``, names, dtypes and ranks are checked. Raises UsageError.
    """
    feeds = _called(source) if callable(source) else _read(Path(source))
    if not feeds:
        raise UsageError(f"{source} holds no data")
    return feeds if model is None else fit_feeds(feeds, read_model(model)[0])


def _called(source: Callable[[], Any]) -> list[Feeds]:
    given = source()
    sets = [given] if isinstance(given, Mapping) else list(given) if isinstance(given, Iterable) else [given]
    wrong = next((s for s in sets if not isinstance(s, Mapping)), None)
    if wrong is not None:
        raise UsageError(f"the data callable must give mappings of input names to arrays, not {type(wrong).__name__}")
    return [{str(k): _as_value(v) for k, v in s.items()} for s in sets]


def _as_value(value: Any) -> Value:
    return (
        [np.asarray(v) for v in value]
        if isinstance(value, list) and any(isinstance(v, np.ndarray) for v in value)
        else np.asarray(value)
    )


def _read(path: Path) -> list[Feeds]:
    if path.is_dir():
        archives = sorted(path.glob("*.npz"))
        if archives:
            return [_load_file(p) for p in archives]
        single = {p.stem: _load_file(p)[""] for p in sorted(path.glob("*.npy"))}
        return [single] if single else []
    if path.suffix not in (".npz", ".npy") or not path.is_file():
        raise UsageError(f"{path} is no .npz file and no folder of .npy or .npz files")
    return [_load_file(path)]


def _load_file(path: Path) -> Feeds:
    try:
        held = np.load(path, allow_pickle=False)
        return {"": held} if isinstance(held, np.ndarray) else {name: held[name] for name in held.files}
    except Exception as error:
        raise UsageError(f"{path} cannot be read as numpy data ({error})") from error


def fit_feeds(feeds: Sequence[Mapping[str, Value]], model: ModelProto) -> list[Feeds]:
    """``feeds`` under the model's input names. Raises UsageError where names, dtypes or ranks do not fit."""
    inputs = model_inputs(model)
    return [_fit(dict(one), inputs) for one in feeds]


def _fit(given: Feeds, inputs: Sequence[InputType]) -> Feeds:
    plain = {_as_file(i.name): i.name for i in inputs}
    names = {i.name for i in inputs}
    if len(inputs) == 1 and list(given) == [""]:
        given = {inputs[0].name: given[""]}
    given = {(n if n in names else plain.get(n, n)): x for n, x in given.items()}
    if set(given) != names:
        raise UsageError(f"the data names {_list(given)}; the model's inputs are {_list(names)}")
    for found in inputs:
        _check(found, given[found.name])
    return {i.name: given[i.name] for i in inputs}


def _as_file(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name)


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"'{n}'" for n in sorted(names)) or "none"


def _check(found: InputType, value: Value) -> None:
    if found.kind != "tensor" or not isinstance(value, np.ndarray):
        return
    target = helper.tensor_dtype_to_np_dtype(found.dtype)
    if value.dtype != target and not (target == np.dtype(object) and value.dtype.kind in "OU"):
        raise UsageError(f"input '{found.name}' is {target}; the data gives {value.dtype}")
    if found.dims is None:
        return
    if value.ndim != len(found.dims):
        raise UsageError(f"input '{found.name}' has rank {len(found.dims)}; the data gives rank {value.ndim}")
    for dim, size in zip(found.dims, value.shape, strict=True):
        if isinstance(dim, int) and dim != size:
            raise UsageError(f"input '{found.name}' is {list(found.dims)}; the data gives {list(value.shape)}")
