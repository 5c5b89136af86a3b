"""Where elements lie, and the sizes that are computed for it."""

from __future__ import annotations

import numpy as np

from ..fragment import Fragment
from ..grow import Grower
from ..piece import Piece

END = (1 << 63) - 1


def permutation(p: Piece, rank: int) -> list[int]:
    return p.grower.choices.order(rank)


def transposes(grower: Grower) -> Fragment:
    """Transposes in a row, with something pointwise between."""
    p = Piece(grower, "transposes")
    x = p.any_float()
    perm = permutation(p, x.rank)
    name = p.node("Transpose", p.read(x), perm=perm)
    if p.maybe():
        name = p.node(p.choose("Relu", "Neg", "Softplus"), name)
    if p.maybe():
        dims = [d if (d := x.fixed(a)) is not None and p.maybe() else 1 for a in perm]
        name = p.node(p.choose("Add", "Mul"), name, p.weights(*dims))
    back = [int(k) for k in np.argsort(perm)] if p.maybe() else permutation(p, x.rank)
    return p.done(p.node("Transpose", name, perm=back))


def size(p: Piece, x: str, axis: int) -> str:
    """One dim as a vector of one element, computed."""
    if p.grower.opset >= 15 and p.maybe():
        return p.node("Shape", x, start=axis, end=axis + 1)
    shape = p.node("Shape", x)
    if p.maybe():
        return p.node("Slice", shape, p.ints(axis), p.ints(axis + 1), p.ints(0))
    picked = p.node("Gather", shape, p.constant(np.array(axis, np.int64)), axis=0)
    return p.node("Unsqueeze", picked, p.ints(0))


def flatten_and_back(grower: Grower) -> Fragment:
    """A Reshape to a target that is put together of sizes and numbers, and a Reshape to the old shape."""
    p = Piece(grower, "flatten_and_back")
    x = p.ranked(4, 3, 2)
    name = p.read(x)
    cut = p.number(1, x.rank)
    kept = [size(p, name, a) if x.fixed(a) is None or p.maybe() else p.ints(x.fixed(a) or 0) for a in range(cut)]
    kept[p.number(0, cut - 1)] = p.ints(-1) if cut < x.rank and p.maybe() else kept[0]
    target = p.node("Concat", *kept[:cut], p.ints(-1), axis=0)
    flat = p.node("Reshape", name, target)
    if p.maybe():
        flat = p.node("Relu", flat)
    return p.done(p.node("Reshape", flat, p.node("Shape", name)) if p.maybe() else flat)


def reshapes(grower: Grower) -> Fragment:
    """Reshapes to constant targets, in a row."""
    p = Piece(grower, "reshapes")
    x = p.ranked(4, 3, 2)
    name = p.read(x)
    for _ in range(p.number(1, 2)):
        target = p.choose([0, -1], [-1], [0, 1, -1], [-1, 1], [0, 0, -1], [1, 0, -1])
        name = p.node("Reshape", name, p.ints(*target), **({"allowzero": 0} if p.grower.opset >= 14 else {}))
    return p.done(name)


def squeezes(grower: Grower) -> Fragment:
    p = Piece(grower, "squeezes")
    x = p.any_float()
    axes = sorted({p.number(0, x.rank) for _ in range(p.number(1, 2))})
    name = p.node("Unsqueeze", p.read(x), p.ints(*axes))
    if p.maybe():
        name = p.node("Relu", name)
    if p.maybe():
        rank = x.rank + len(axes)
        name = p.node("Transpose", name, perm=permutation(p, rank))
        return p.done(name if p.maybe() else p.node("Unsqueeze", name, p.ints(p.number(0, rank))))
    gone = axes[: p.number(1, len(axes))]
    name = p.node("Squeeze", name, p.ints(*gone))
    return p.done(p.node("Unsqueeze", name, p.ints(*gone)) if p.maybe() else name)


def slices(grower: Grower) -> Fragment:
    p = Piece(grower, "slices")
    x = p.any_float()
    name = p.read(x)
    for _ in range(p.number(1, 2)):
        start, end, step = p.choose(
            (0, END, 1), (1, END, 1), (0, -1, 1), (0, 2, 1), (-1, -END, -1), (0, END, 2), (1, 1, 1), (-100, 100, 1)
        )
        axis = p.number(-x.rank, x.rank - 1)
        given = [p.ints(start), p.ints(end), p.ints(axis), *([p.ints(step)] if step != 1 or p.maybe() else [])]
        name = p.node("Slice", name, *given)
    return p.done(name)


def split_concat(grower: Grower) -> Fragment:
    p = Piece(grower, "split_concat")
    x = p.ranked(3, 2, 4, channels=(4, 2, 3))
    channels = x.fixed(1) or 1
    if channels < 2:
        return p.done(p.node("Concat", p.read(x), axis=1))
    first = p.number(0, channels)
    parts = p.several("Split", p.read(x), p.ints(first, channels - first), count=2, axis=1)
    if p.maybe():
        parts = [p.node("Relu", part) for part in parts]
    if p.maybe():
        parts.reverse()
    return p.done(p.node("Concat", *parts, axis=1)) if p.maybe() else p.done(*parts)


def expands(grower: Grower) -> Fragment:
    """What is spread to the size of something else."""
    p = Piece(grower, "expands")
    x = p.any_float()
    small = p.weights(*[d if (d := x.fixed(k)) is not None and p.maybe() else 1 for k in range(x.rank)])
    if p.maybe():
        zeros = p.node("ConstantOfShape", p.node("Shape", p.read(x)))
        return p.done(p.node(p.choose("Add", "Mul"), zeros, p.node("Relu", p.read(x))))
    spread = p.node("Expand", small, p.node("Shape", p.read(x)))
    if p.maybe():
        spread = p.node(p.choose("Neg", "Exp"), spread)
    return p.done(p.node(p.choose("Add", "Mul", "Sub"), p.read(x), spread) if p.maybe() else spread)


def pads(grower: Grower) -> Fragment:
    p = Piece(grower, "pads")
    x = p.ranked(4, 3)
    name = p.read(x)
    for _ in range(p.number(1, 2)):
        amounts = [p.choose(0, 0, 1, -1) for _ in range(2 * x.rank)]
        value = [p.constant(p.choose(0.0, 1.0))] if p.maybe() else []
        name = p.node("Pad", name, p.ints(*amounts), *value, mode=p.choose("constant", "constant", "edge"))
    return p.done(name)


def gathers(grower: Grower) -> Fragment:
    """Rows of a tensor, or all of them by a Range."""
    p = Piece(grower, "gathers")
    x = p.ranked(2, 3, channels=(4, 2))
    name = p.read(x)
    if p.maybe():
        count = p.node("Squeeze", size(p, name, 0), p.ints(0))
        rows = p.node("Range", p.constant(np.int64(0)), count, p.constant(np.int64(1)))
        return p.done(p.node("Gather", name, rows, axis=0))
    shape = p.choose((), (1,), (2,), (1, 2), (0,))
    places = grower.random.integers(-2, 2, shape).astype(np.int64)
    return p.done(p.node("Gather", name, p.constant(places), axis=1))


def spaces(grower: Grower) -> Fragment:
    """Blocks of an image to channels and back, written out or not."""
    p = Piece(grower, "spaces")
    x = p.ranked(4, channels=(4,))
    name, channels = p.read(x), x.fixed(1) or 1
    if channels % 4 or p.maybe():
        return p.done(p.node("SpaceToDepth", name, blocksize=1 if p.maybe() else 2))
    if p.maybe():
        return p.done(p.node("DepthToSpace", name, blocksize=2, mode=p.choose("DCR", "CRD")))
    halves = [
        p.node("Slice", name, p.ints(a, b), p.ints(END, END), p.ints(2, 3), p.ints(2, 2))
        for a in (0, 1)
        for b in (0, 1)
    ]
    return p.done(p.node("Concat", *halves, axis=1))


def resize(grower: Grower) -> Fragment:
    p = Piece(grower, "resize")
    x = p.ranked(4, channels=(2, 3))
    name = p.read(x)
    factor = p.choose(1.0, 2.0)
    mode = p.choose("nearest", "linear")
    if grower.opset < 11 or p.maybe():
        scales = p.constant(np.array([1, 1, factor, factor], np.float32))
        return p.done(p.node("Resize", name, *([""] if grower.opset >= 11 else []), scales, mode=mode))
    sides = [size(p, name, a) if k < 2 else p.node("Mul", size(p, name, a), p.ints(2)) for k, a in enumerate(range(4))]
    return p.done(p.node("Resize", name, "", "", p.node("Concat", *sides, axis=0), mode=mode))


def empty(grower: Grower) -> Fragment:
    """No elements: cut away, joined again."""
    p = Piece(grower, "empty")
    x = p.ranked(2, 3, channels=(2, 4))
    nothing = p.node("Slice", p.read(x), p.ints(0), p.ints(0), p.ints(1))
    if p.maybe():
        nothing = p.node("Relu", nothing)
    return p.done(p.node("Concat", nothing, p.read(x), axis=1) if p.maybe() else nothing)


def tiles(grower: Grower) -> Fragment:
    p = Piece(grower, "tiles")
    x = p.any_float()
    counts = [p.choose(1, 1, 2) for _ in range(x.rank)]
    return p.done(p.node("Tile", p.read(x), p.ints(*counts)))


BLOCKS = (
    transposes,
    flatten_and_back,
    reshapes,
    squeezes,
    slices,
    split_concat,
    expands,
    pads,
    gathers,
    spaces,
    resize,
    empty,
    tiles,
)
