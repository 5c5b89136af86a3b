"""Concrete shapes for the boundary of a region: candidates in the order in which they are tried."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.ops.traits import ELEMENTWISE
from surgeon_passes.region import ANONYMOUS, Dim, NodeImage, TensorType
from surgeon_passes.verify.resize import BATCH, Shape, constant_shape, enlarged, fills_channels, is_local, reduced

Hint = Mapping[int, int]

_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23)
_EQUAL = (1, 2, 4, 8, 16, 32, 64, 96, 128, 224, 256)
_UNKNOWN = (6, 4, 8, 1, 16, 32)
_BROADCAST = 4
"""Names that are 1 in turn, while the others are not."""
_MAX_ELEMENTS = 1 << 24
_MANY_ELEMENTS = 1 << 18
"""Of a boundary: from here on named dims are as small as they may be."""
_CHANNELS_FIRST = frozenset({"BatchNormalization", "InstanceNormalization", "PRelu"})


class Candidates:
    """Shapes of a boundary in the order in which they are tried, each made when it is asked for.

    A try is one tuple of shapes, one per boundary input; ``wanted`` is how many of them are to be checked, ``alike``
    whether nothing in the region can tell them apart but a batch that is written into it.
    """

    def __init__(self, tries: Iterable[tuple[Shape, ...]], wanted: int, alike: bool = False) -> None:
        self._rest = iter(tries)
        self._found: dict[tuple[Shape, ...], None] = {}
        self.wanted, self.alike = wanted, alike

    def first(self, count: int) -> list[tuple[Shape, ...]]:
        """The first ``count`` distinct tries, fewer where there are not so many."""
        while len(self._found) < count:
            more = next(self._rest, None)
            if more is None:
                break
            self._found.setdefault(more)
        return list(islice(self._found, count))

    def __iter__(self) -> Iterator[tuple[Shape, ...]]:
        number = 0
        while len(found := self.first(number + 1)) > number:
            yield found[number]
            number += 1

    @property
    def shapes(self) -> tuple[tuple[Shape, ...], ...]:
        """All tries."""
        return tuple(self)


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
    take distinct sizes, then equal ones, and two are wanted; what is unknown is guessed. Of those, too, the first have
    their spatial size reduced where it is static, and few rows where they are large.
    """
    if all(t.is_static for t in types):
        whole = tuple(tuple(int(d) for d in t.shape or ()) for t in types)  # type: ignore[arg-type]
        images = (*before, *after)
        small = (reduced(whole, before, after) if reducible else None) or whole
        small = (enlarged(small, images) if reducible else None) or small
        return Candidates((small, whole), 1)
    known = [_knowledge(t, before) for t in inputs]  # after may hold what was written for one size
    said = _said_sizes(types, known)
    least = list(islice(_affordable(types, known, said), 2))
    local = reducible and all(map(is_local, (*before, *after)))
    inside = local and _is_static_inside(types)
    near: list[tuple[Shape, ...]] = []
    clamps = any(image.node.op == "Slice" for image in (*before, *after))  # few rows are within any bound
    if local or (not clamps and any(elements(shapes) > _MANY_ELEMENTS for shapes in least)):
        few = list(_few_rows(types, known, said))
        near = [reduced(s, before, after) or s for s in few] if inside else few
        near = near if all(fills_channels(s, (*before, *after)) for s in near) else []
    return Candidates(_open_tries(types, known, said, near), len(least) if said and least else 2, alike=inside)


def _is_static_inside(types: Sequence[TensorType]) -> bool:
    """Whether no spatial size is symbolic or unknown: such a size is small as it is."""
    return all(t.shape is not None and all(isinstance(d, int) for d in t.shape[2:]) for t in types)


def _few_rows(
    types: Sequence[TensorType], known: Sequence[Knowledge], said: Mapping[str, int]
) -> Iterator[tuple[Shape, ...]]:
    """The first two tries with batches that are as small as they can be with every broadcast still showing."""
    batches = _batches(types)
    symbols = sorted({s for t in types for d in _symbolic(t) for s in _symbols(d)})
    if not batches or any(s.startswith(ANONYMOUS) for s in symbols):
        return
    for rows, sizes in zip((2, 3), _assignments(symbols), strict=False):
        full = {**sizes, **{s: rows + 2 * i for i, s in enumerate(batches)}, **said}
        shapes = [_concrete(t, k, full, 2) for t, k in zip(types, known, strict=True)]
        legal = tuple(s for s in shapes if s is not None)
        if len(legal) == len(shapes):
            yield legal


def _batches(types: Sequence[TensorType]) -> list[str]:
    """Names that stand on axis 0 alone."""
    first, others = set[str](), set[str]()
    for entry in types:
        for axis, dim in enumerate(entry.shape or ()):
            if dim is not None and not isinstance(dim, int):
                name = _bare(dim) if axis == 0 else None
                (first if name else others).update(_symbols(dim))
    return sorted(first - others)


# --- symbols and guesses -------------------------------------------------------------------------------------------------


def _open_tries(
    types: Sequence[TensorType],
    known: Sequence[Knowledge],
    said: Mapping[str, int],
    small: Sequence[tuple[Shape, ...]],
) -> Iterator[tuple[Shape, ...]]:
    """The small ones; then all with the sizes that the nodes say, then all without."""
    yield from small
    yield from _affordable(types, known, said)
    if said:
        yield from _affordable(types, known, {})


def _affordable(
    types: Sequence[TensorType], known: Sequence[Knowledge], held: Mapping[str, int]
) -> Iterator[tuple[Shape, ...]]:
    """Distinct tries with at most :data:`_MAX_ELEMENTS`."""
    seen: set[tuple[Shape, ...]] = set()
    for shapes in _tries(types, known, held):
        if shapes not in seen and sum(math.prod(s) for s in shapes) <= _MAX_ELEMENTS:
            seen.add(shapes)
            yield shapes


def _tries(
    types: Sequence[TensorType], known: Sequence[Knowledge], held: Mapping[str, int]
) -> Iterator[tuple[Shape, ...]]:
    symbols = sorted({s for t in types for d in _symbolic(t) for s in _symbols(d)})
    named = [s for s in symbols if not s.startswith(ANONYMOUS)]
    guessed = _anonymous(types)
    flat = all(t.shape is not None and len(t.shape) <= 2 for t in types)
    for sizes in _assignments(named, BATCH if flat else 0, _rivals(types)):
        for guess in _UNKNOWN if len(named) < len(symbols) or _has_unknown(types) else (1,):
            full = {**sizes, **held}
            for name, axis in guessed.items():
                full.setdefault(name, guess if axis is None else _guessed(axis, guess))
            shapes = tuple(_concrete(t, k, full, guess) for t, k in zip(types, known, strict=True))
            legal = tuple(s for s in shapes if s is not None)
            if len(legal) == len(shapes):
                yield legal
        if not named:
            break


def _symbolic(found: TensorType) -> list[Dim]:
    return [d for d in found.shape or () if d is not None and not isinstance(d, int)]


@lru_cache(maxsize=4096)
def _symbols(dim: Dim) -> frozenset[str]:
    return dim.symbols()


def _bare(dim: Dim | int | None) -> str | None:
    """The name of a dim that is no more than a name."""
    return None if dim is None or isinstance(dim, int) else _name_of(dim)


@lru_cache(maxsize=4096)
def _name_of(dim: Dim) -> str | None:
    if len(_symbols(dim)) != 1:
        return None
    (name,) = _symbols(dim)
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


def _anonymous(types: Sequence[TensorType]) -> dict[str, int | None]:
    """Names that may need a guess, with the first axis where one stands for a whole dim: one name is one size."""
    found: dict[str, int | None] = {}
    for entry in types:
        for axis, dim in enumerate(entry.shape or ()):
            name = _bare(dim)
            if name is not None and name.startswith(ANONYMOUS):
                found.setdefault(name, axis)
    for name in (s for t in types for d in _symbolic(t) for s in _symbols(d)):
        found.setdefault(name, None)
    return found


def _guessed(axis: int, guess: int) -> int:
    return min(guess, 2) if axis == 0 else guess


def _has_unknown(types: Sequence[TensorType]) -> bool:
    return any(t.shape is None or any(d is None for d in t.shape) for t in types)


def _rivals(types: Sequence[TensorType]) -> list[str]:
    """Names that stand for the same axis, counted from the end, of different inputs: where both are not 1 they may have to be
    equal."""
    found: dict[int, set[str]] = {}
    for entry in types:
        for axis, dim in enumerate(reversed(entry.shape or ())):
            name = _bare(dim)
            if name is not None and not name.startswith(ANONYMOUS):
                found.setdefault(axis, set()).add(name)
    return sorted(set[str]().union(*(names for names in found.values() if len(names) > 1)))


def _assignments(symbols: Sequence[str], more: int = 0, rivals: Sequence[str] = ()) -> Iterator[dict[str, int]]:
    """Distinct small sizes in both orders (``more`` larger first), then 1 for each of the ``rivals`` in turn, then one for
    all (and 1 for the first, often a batch).

    The first are odd, the second even: windows that step over an axis end elsewhere. Where distinct sizes do not fit, one of
    them may have to be 1: what is broadcast shows only there.
    """
    count = len(symbols)
    primes = [_PRIMES[i % len(_PRIMES)] + (i // len(_PRIMES)) for i in range(count)]
    if more:
        yield {s: p + more for s, p in zip(symbols, primes, strict=True)}
        yield {s: p + 2 * more + 1 for s, p in zip(symbols, reversed(primes), strict=True)}
    yield dict(zip(symbols, primes, strict=True))
    yield {s: 2 * p + 4 for s, p in zip(symbols, reversed(primes), strict=True)}
    for name in rivals[:_BROADCAST]:
        yield {s: 1 if s == name else 5 if s in rivals else p for s, p in zip(symbols, primes, strict=True)}
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


def _said_by(image: NodeImage, position: int) -> Knowledge:
    op = image.node.op
    other = constant_shape(image, 1 - position) if position < 2 else None
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


def elements(shapes: Sequence[Shape]) -> int:
    """Elements of all shapes together."""
    return int(sum(np.prod(s, dtype=np.int64) for s in shapes))
