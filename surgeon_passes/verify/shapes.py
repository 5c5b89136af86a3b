"""Concrete shapes for the boundary of a region: candidates in the order in which they are tried."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.ops.traits import ELEMENTWISE, SPATIAL
from surgeon_passes.region import ANONYMOUS, Dim, NodeImage, TensorType

Shape = tuple[int, ...]
Hint = Mapping[int, int]

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23)
_BATCH = 16
_EQUAL = (1, 2, 4, 8, 16, 32, 64, 96, 128, 224, 256)
_UNKNOWN = (6, 4, 8, 1, 16, 32)
_MAX_ELEMENTS = 1 << 24
_GLOBAL = frozenset({"GlobalAveragePool", "GlobalMaxPool"})
_CHANNELS_FIRST = frozenset({"BatchNormalization", "InstanceNormalization", "PRelu"})


@dataclass(frozen=True, slots=True)
class Candidates:
    """``shapes``: one tuple of shapes (one per boundary input) per try; ``wanted``: how many of them are to be checked."""

    shapes: tuple[tuple[Shape, ...], ...]
    wanted: int


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What the nodes of a region say of a boundary input: a rank, and sizes by axis (negative ones count from the end)."""

    rank: int | None = None
    sizes: Hint | None = None


def candidates(
    types: Sequence[TensorType],
    before: Sequence[NodeImage],
    after: Sequence[NodeImage],
    inputs: Sequence[gs.Tensor],
    reducible: bool = True,
) -> Candidates:
    """Shapes to try for ``inputs`` of ``types``.

    Static shapes are one candidate, with the spatial size reduced in a first one where that loses nothing. Symbolic dims
    take distinct sizes, then equal ones, and two are wanted; what is unknown is guessed.
    """
    if all(t.is_static for t in types):
        whole = tuple(tuple(int(d) for d in t.shape or ()) for t in types)  # type: ignore[arg-type]
        images = (*before, *after)
        small = (reduced(whole, before, after) if reducible else None) or whole
        small = (enlarged(small, images) if reducible else None) or small
        return Candidates((whole,) if small == whole else (small, whole), 1)
    return _open_candidates(types, [_knowledge(t, (*before, *after)) for t in inputs])


# --- symbols and guesses -------------------------------------------------------------------------------------------------


def _open_candidates(types: Sequence[TensorType], known: Sequence[Knowledge]) -> Candidates:
    """First with the sizes that the nodes say, then without; enough of the first are all that is to be checked."""
    said = _said_sizes(types, known)
    found: dict[tuple[Shape, ...], None] = {}
    wanted = 2
    for held in (said, {}) if said else ({},):
        for shapes in _tries(types, known, held):
            if sum(math.prod(s) for s in shapes) <= _MAX_ELEMENTS:
                found.setdefault(shapes)
        if held and found:
            wanted = min(wanted, len(found))
    return Candidates(tuple(found), wanted)


def _tries(
    types: Sequence[TensorType], known: Sequence[Knowledge], held: Mapping[str, int]
) -> Iterator[tuple[Shape, ...]]:
    symbols = sorted({s for t in types for d in _symbolic(t) for s in d.symbols()})
    named = [s for s in symbols if not s.startswith(ANONYMOUS)]
    flat = all(t.shape is not None and len(t.shape) <= 2 for t in types)
    for sizes in _assignments(named, _BATCH if flat else 0):
        for guess in _UNKNOWN if len(named) < len(symbols) or _has_unknown(types) else (1,):
            full = {**sizes, **held}
            _guess_anonymous(types, full, guess)
            shapes = tuple(_concrete(t, k, full, guess) for t, k in zip(types, known, strict=True))
            legal = tuple(s for s in shapes if s is not None)
            if len(legal) == len(shapes):
                yield legal
        if not named:
            break


def _symbolic(found: TensorType) -> list[Dim]:
    return [d for d in found.shape or () if d is not None and not isinstance(d, int)]


def _bare(dim: Dim | int | None) -> str | None:
    """The name of a dim that is no more than a name."""
    if dim is None or isinstance(dim, int) or len(dim.symbols()) != 1:
        return None
    (name,) = dim.symbols()
    return name if all(dim.evaluate({name: size}) == size for size in _PRIMES) else None


def _said_sizes(types: Sequence[TensorType], known: Sequence[Knowledge]) -> dict[str, int]:
    """Sizes of names, where a node reads the dim with a constant that has it: a Conv's channels, a MatMul's rows."""
    found: dict[str, int] = {}
    for entry, knowledge in zip(types, known, strict=True):
        shape = entry.shape or ()
        for axis, size in (knowledge.sizes or {}).items():
            name = _bare(shape[axis]) if -len(shape) <= axis < len(shape) else None
            if name is not None:
                found.setdefault(name, size)
    return found


def _guess_anonymous(types: Sequence[TensorType], sizes: dict[str, int], guess: int) -> None:
    """Sizes that only the data tells are guessed as unknown dims are; one name is one size."""
    for entry in types:
        for axis, dim in enumerate(entry.shape or ()):
            name = _bare(dim)
            if name is not None and name.startswith(ANONYMOUS):
                sizes.setdefault(name, _guessed(axis, guess))
    for name in (s for t in types for d in _symbolic(t) for s in d.symbols()):
        sizes.setdefault(name, guess)


def _guessed(axis: int, guess: int) -> int:
    return min(guess, 2) if axis == 0 else guess


def _has_unknown(types: Sequence[TensorType]) -> bool:
    return any(t.shape is None or any(d is None for d in t.shape) for t in types)


def _assignments(symbols: Sequence[str], more: int = 0) -> Iterator[dict[str, int]]:
    """Distinct small sizes in both orders (``more`` larger first), then one for all (and 1 for the first, often a batch)."""
    count = len(symbols)
    primes = [_PRIMES[i % len(_PRIMES)] + (i // len(_PRIMES)) for i in range(count)]
    if more:
        yield {s: p + more for s, p in zip(symbols, primes, strict=True)}
        yield {s: p + 2 * more for s, p in zip(symbols, reversed(primes), strict=True)}
    yield dict(zip(symbols, primes, strict=True))
    yield {s: 2 * p + 3 for s, p in zip(symbols, reversed(primes), strict=True)}
    for size in _EQUAL:
        yield dict.fromkeys(symbols, size)
        if size > 1:
            yield {s: (1 if i == 0 else size) for i, s in enumerate(symbols)}


def _concrete(found: TensorType, known: Knowledge, sizes: Mapping[str, int], guess: int) -> Shape | None:
    """The shape at ``sizes``; None where a dim would be below 1."""
    shape: tuple[int | Dim | None, ...]
    shape = (None,) * (known.rank if known.rank is not None else 4) if found.shape is None else found.shape
    hints = {axis % len(shape): size for axis, size in (known.sizes or {}).items() if -len(shape) <= axis < len(shape)}
    dims: list[int] = []
    for axis, dim in enumerate(shape):
        if isinstance(dim, int):
            dims.append(dim)
        elif dim is None:
            dims.append(hints.get(axis, _guessed(axis, guess)))
        else:
            dims.append(dim.evaluate(sizes))
            if dims[-1] < 1:
                return None
    return tuple(dims)


def _knowledge(tensor: gs.Tensor, images: Sequence[NodeImage]) -> Knowledge:
    rank: int | None = None
    sizes: dict[int, int] = {}
    for image in images:
        for position, used in enumerate(image.inputs):
            if used is tensor:
                found = _said_by(image, position)
                rank = found.rank if rank is None else rank
                sizes.update(found.sizes or {})
    return Knowledge(rank, sizes)


def _constant_shape(image: NodeImage, position: int) -> Shape | None:
    if len(image.inputs) <= position or not isinstance(image.inputs[position], gs.Constant):
        return None
    return tuple(int(d) for d in image.inputs[position].shape)


def _said_by(image: NodeImage, position: int) -> Knowledge:
    op = image.node.op
    other = _constant_shape(image, 1 - position) if position < 2 else None
    if other is None:
        return Knowledge()
    if op in ("Conv", "ConvTranspose"):
        channels = other[1] * int(image.node.attrs.get("group", 1)) if op == "Conv" else other[0]
        return Knowledge(len(other), {1: channels})
    if op in _CHANNELS_FIRST:
        return Knowledge(None, {1: other[0]} if other else None)
    if op in ("MatMul", "Gemm") and len(other) >= 2:
        return _contracted(image, position, other)
    if op in ELEMENTWISE:
        return Knowledge(None, {axis - len(other): size for axis, size in enumerate(other) if size > 1})
    return Knowledge()


def _contracted(image: NodeImage, position: int, other: Shape) -> Knowledge:
    rank = 2 if image.node.op == "Gemm" else None
    if position == 0:
        size = other[-1] if image.node.attrs.get("transB") else other[-2]
        return Knowledge(rank, {-2 if image.node.attrs.get("transA") else -1: size})
    size = other[-2] if image.node.attrs.get("transA") else other[-1]
    return Knowledge(rank, {-1 if image.node.attrs.get("transB") else -2: size})


# --- larger batches -------------------------------------------------------------------------------------------------------


def enlarged(shapes: Sequence[Shape], images: Sequence[NodeImage]) -> tuple[Shape, ...] | None:
    """``shapes`` with a larger batch where that only adds rows, or None.

    One element says little about its channel: [1, 512] leaves nothing to take a scale from.
    """
    batched = [s for s in shapes if len(s) >= 2]
    if not batched or any(s[0] != 1 for s in batched) or any(len(s) == 1 and s[0] > 1 for s in shapes):
        return None
    collapses = any(image.node.op in _GLOBAL for image in images)
    if not collapses and max(math.prod(s[2:]) for s in batched) >= _BATCH:
        return None
    if not all(_adds_rows(image) for image in images):
        return None
    return tuple((_BATCH, *s[1:]) if len(s) >= 2 else s for s in shapes)


def _adds_rows(image: NodeImage) -> bool:
    """Whether every row along axis 0 is computed from the same row of the inputs alone."""
    op = image.node.op
    held = [list(t.shape) for t in image.inputs if isinstance(t, gs.Constant)]
    if op == "Gemm":
        return (
            not image.node.attrs.get("transA")
            and not isinstance(image.inputs[0], gs.Constant)
            and len(held) + 1 == len(image.inputs)
        )
    if op == "MatMul":
        return isinstance(image.inputs[1], gs.Constant) and len(image.inputs[1].shape) == 2
    if op in ELEMENTWISE:
        return all(len(s) < 2 or s[0] == 1 for s in held)
    return op in _GLOBAL or op in SPATIAL


# --- smaller spatial sizes -----------------------------------------------------------------------------------------------


def reduced(
    shapes: Sequence[Shape], before: Sequence[NodeImage], after: Sequence[NodeImage]
) -> tuple[Shape, ...] | None:
    """``shapes`` with smaller spatial sizes, or None where the region's meaning might depend on them.

    The new size keeps the remainder by the product of the strides, so that windows end at the same offset, and leaves
    room for a whole receptive field away from every border.
    """
    ranks = {len(s) for s in shapes if len(s) >= 3}
    if len(ranks) != 1 or not all(_reducible(image) for image in (*before, *after)):
        return None
    spatial = ranks.pop() - 2
    sizes = {s[2:] for s in shapes if len(s) >= 3 and math.prod(s[2:]) > 1}
    if len(sizes) != 1 or any(1 < len(s) < 3 and math.prod(s) > 1 for s in shapes):
        return None
    (size,) = sizes
    small = tuple(_smaller(size[axis], (before, after), axis, spatial) for axis in range(spatial))
    if small == size:
        return None
    return tuple((*s[:2], *small) if len(s) >= 3 and s[2:] == size else s for s in shapes)


def _reducible(image: NodeImage) -> bool:
    op = image.node.op
    if op in ELEMENTWISE or op in _GLOBAL:
        return all(_broadcasts(t) for t in image.inputs)
    return op in SPATIAL


def _broadcasts(tensor: gs.Tensor) -> bool:
    """Whether a constant operand has no spatial extent of its own."""
    if not isinstance(tensor, gs.Constant):
        return True
    shape = list(tensor.shape)
    return math.prod(shape[2:]) == 1 if len(shape) >= 3 else math.prod(shape) == 1 or not shape


def _smaller(size: int, sides: Sequence[Sequence[NodeImage]], axis: int, spatial: int) -> int:
    reach, strides = 1, 1
    for images in sides:
        side_reach, side_strides = 1, 1
        for image in images:
            kernel, stride, dilation = _window(image, axis, spatial)
            side_reach += dilation * (kernel - 1) * side_strides
            side_strides *= stride
        reach, strides = max(reach, side_reach), max(strides, side_strides)
    least = reach + 2 * strides + 2
    return size if size <= least else least + (size - least) % strides


def _window(image: NodeImage, axis: int, spatial: int) -> tuple[int, int, int]:
    """(kernel, stride, dilation) of a node along a spatial axis."""
    attrs = image.node.attrs
    kernel = list(attrs.get("kernel_shape") or ())
    if not kernel and image.node.op in ("Conv", "ConvTranspose"):
        weight = _constant_shape(image, 1)
        kernel = list(weight[2:]) if weight else []
    values = (kernel, list(attrs.get("strides") or ()), list(attrs.get("dilations") or ()))
    one, two, three = (int(v[axis]) if len(v) == spatial else 1 for v in values)
    return one, two, three


def elements(shapes: Sequence[Shape]) -> int:
    """Elements of all shapes together."""
    return int(sum(np.prod(s, dtype=np.int64) for s in shapes))
