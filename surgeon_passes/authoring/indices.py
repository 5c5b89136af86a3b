"""Operands that say where and how large: targets, axes, amounts, indices."""

from __future__ import annotations

from math import prod

import numpy as np

from surgeon_passes.authoring.slots import Array, Slot, Unfit


def reshape_target(slot: Slot) -> Array:
    """Every element kept: the same shape, dims merged or split, one of them left to be found."""
    shape = slot.at(0).shape
    styles = [_same, _flat, _rows, _merged, _split, _grouped, _with_one, _halves, _halves]
    other = slot.chance(0.35) and len(shape) < 6
    target = list((_other if other else slot.one_of(*styles))(slot, shape))
    if prod(target) != prod(shape):
        raise Unfit
    if target and 0 not in shape and slot.chance(0.35):
        target[slot.size(0, len(target) - 1)] = -1
    return slot.ints(target)


def _same(_: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def _flat(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    cut = slot.size(0, len(shape))
    return (prod(shape[:cut]), prod(shape[cut:]))


def _rows(_: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (prod(shape[:-1]), *shape[-1:])


def _merged(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) < 2:
        return shape
    at = slot.size(0, len(shape) - 2)
    return (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])


def _split(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not shape:
        return (1,)
    at = slot.size(0, len(shape) - 1)
    factor = slot.one_of(*[f for f in range(1, shape[at] + 1) if shape[at] % f == 0] or [1])
    return (*shape[:at], factor, shape[at] // factor, *shape[at + 1 :])


def _with_one(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    at = slot.size(0, len(shape))
    return (*shape[:at], 1, *shape[at:])


def _other(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that the graph has, of as many elements: what a reshape back asks for."""
    fitting = [s for s in slot.others if prod(s) == prod(shape)]
    return tuple(slot.one_of(*fitting)) if fitting else shape


def _grouped(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Channels in groups, all else in one."""
    if len(shape) < 3:
        return shape
    groups = slot.one_of(*[g for g in range(1, shape[1] + 1) if shape[1] % g == 0])
    return (shape[0], groups, prod(shape[1:]) // groups)


def _halves(slot: Slot, shape: tuple[int, ...]) -> tuple[int, ...]:
    """[N, C, H, W] as blocks of two, or its channels as groups of two: what shuffles begin with; and their inverse."""
    if len(shape) == 4 and not shape[2] % 2 and not shape[3] % 2 and slot.chance(0.6):
        return (*shape[:2], shape[2] // 2, 2, shape[3] // 2, 2)
    if len(shape) == 4 and not shape[1] % 4:
        return (shape[0], shape[1] // 4, 2, 2, *shape[2:])
    if len(shape) == 6 and slot.chance(0.5):
        return (shape[0], shape[1] * shape[2] * shape[3], *shape[4:])
    if len(shape) == 6:
        return (*shape[:2], shape[2] * shape[3], shape[4] * shape[5])
    return shape


def expand_target(slot: Slot) -> Array:
    shape = [d if d != 1 or slot.chance(0.4) else slot.size(2, 3) for d in slot.at(0).shape]
    if slot.chance(0.3) and len(shape) < 5:
        shape.insert(0, slot.size(1, 2))
    return slot.ints([1 if slot.chance(0.15) else d for d in shape])


def repeats(slot: Slot) -> Array:
    rank = slot.at(0).rank
    if slot.chance(0.3):
        return slot.ints([1] * rank)
    return slot.ints([slot.one_of(1, 1, 2, 3) for _ in range(rank)])


def squeezed(slot: Slot) -> Array:
    shape = slot.at(0).shape
    ones = [i for i, d in enumerate(shape) if d == 1]
    if not ones:
        raise Unfit
    chosen = sorted(slot.rng.choice(ones, slot.size(1, len(ones)), replace=False).tolist())
    return slot.ints([a - len(shape) if slot.chance(0.2) else a for a in chosen])


def added(slot: Slot) -> Array:
    rank = slot.at(0).rank
    count = slot.one_of(1, 1, 2)
    return slot.ints(sorted(slot.rng.choice(rank + count, count, replace=False).tolist()))


def slice_bounds(slot: Slot) -> Array:
    shape, rank = slot.at(0).shape, slot.rank()
    first = slot.known(1)
    count = first.shape[0] if first is not None else slot.one_of(1, 1, min(2, rank))
    if count > rank:
        raise Unfit
    if slot.place == 1:
        return slot.ints([slot.one_of(0, 0, 0, 1, -2) for _ in range(count)])
    if slot.place == 2:
        half = max(1, shape[-1] // 2)
        return slot.ints([slot.one_of(2**63 - 1, 2**63 - 1, half, max(1, shape[0]), 3, -1) for _ in range(count)])
    if slot.place == 3:
        axes = list(range(rank)) if slot.chance(0.6) else [rank - 1, *range(rank - 1)]
        return slot.ints(axes[:count] if slot.chance(0.3) else axes[rank - count :])
    return slot.ints([slot.one_of(1, 1, 1, 2) for _ in range(count)])


def pads(slot: Slot) -> Array:
    rank = slot.rank()
    count = 1 if len(slot.given) > 3 and slot.given[3] else rank
    if slot.chance(0.2):
        return slot.ints([0] * (2 * count))
    side = [0 if i < rank - 2 and count == rank else slot.one_of(0, 1, 1, 2) for i in range(count)]
    return slot.ints([*side, *(side if slot.chance(0.7) else [slot.one_of(0, 1) if s else 0 for s in side])])


def fill(slot: Slot) -> Array:
    values = (0,) if slot.dtype.kind in "iub" else (0.0, 0.0, 0.0, 1.5, -np.inf)
    return np.asarray(slot.one_of(*values)).astype(slot.dtype)


def padded_axes(slot: Slot) -> Array:
    return slot.ints([slot.one_of(slot.rank() - 1, -1, 0)])


def parts(slot: Slot) -> Array:
    size = slot.at(0).shape[slot.axis()]
    if slot.outputs > size:
        raise Unfit
    cuts = sorted(slot.rng.choice(np.arange(1, size), slot.outputs - 1, replace=False).tolist())
    return slot.ints(np.diff([0, *cuts, size]).tolist())


def rows(slot: Slot) -> Array:
    size = slot.at(0).shape[slot.axis()]
    if slot.chance(0.25):
        return slot.ints(list(range(size)))
    if slot.chance(0.25):
        return np.full(slot.one_of((1,), (2,), (2, 3)), slot.size(0, size - 1), slot.dtype)
    shape = slot.one_of((), (1,), (size,), (2, 1), (2, 3))
    return np.asarray(slot.rng.integers(0, size, shape)).astype(slot.dtype)


def places(slot: Slot) -> Array:
    """Rows in a row, or places drawn each once."""
    shape, depth = slot.at(0).shape, slot.size(1, min(2, slot.rank()))
    total = prod(shape[:depth])
    count = slot.size(1, total)
    if slot.chance(0.5):
        begin = slot.size(0, total - count)
        chosen = np.arange(begin, begin + count)
    else:
        chosen = slot.rng.choice(total, count, replace=False)
    return np.stack(np.unravel_index(chosen, shape[:depth]), axis=-1).astype(slot.dtype)


def updates(slot: Slot) -> Array:
    x, at = slot.at(0), slot.at(1)
    if not at.rank or at.shape[-1] > x.rank:
        raise Unfit
    return slot.random((*at.shape[:-1], *x.shape[at.shape[-1] :]))


def scales(slot: Slot) -> Array:
    if len(slot.given) > 3 and slot.given[3]:
        return np.zeros(0, slot.dtype)
    tail = slot.one_of([1.0], [2.0], [2.0], [0.5])
    rank = slot.rank()
    return np.asarray([1.0] * min(2, rank - 1) + tail * (rank - min(2, rank - 1))).astype(slot.dtype)


def sizes(slot: Slot) -> Array:
    shape = slot.at(0).shape
    factor = slot.one_of(1, 2, 2, 3)
    return slot.ints([d if i < 2 else d * factor for i, d in enumerate(shape)])


def reduced(slot: Slot) -> Array:
    rank = slot.rank()
    styles = [[-1], [rank - 1], [min(1, rank - 1)], list(range(2, rank)) or [0], list(range(rank)), [0]]
    return slot.ints(slot.one_of(*styles))
