"""Shapes of rearranged, joined, cut, repeated and resized tensors."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from surgeon_passes.ops import normalise_axis
from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import shape_of
from surgeon_passes.values.shapes.broadcast import broadcast


@shape_of("Reshape")
def reshape(n: Operands) -> Sequence[Shape | None]:
    return [reshaped(n)]


def reshaped(n: Operands) -> Shape:
    """The output shape of a Reshape as far as its target is known; gives up where not even its length is."""
    return resolve_target(n.shape(0), n.dims(1), bool(n.attr("allowzero", 0)))


def resolve_target(shape: Shape | None, target: Sequence[Dim], allowzero: bool) -> Shape:
    """Output dims of Reshape.

    0 copies the input's dim at that place (unless ``allowzero``); -1, or the one dim that is unknown, is what is left of
    the elements. A symbolic element that might be 0 or -1 says nothing.
    """
    copied = {k for k, t in enumerate(target) if t == 0 and not allowzero}
    if shape is not None and any(k >= len(shape) for k in copied):
        raise Unknown
    found: list[Dim] = []
    for k, t in enumerate(target):
        at = shape[k] if shape is not None and k < len(shape) else None
        beyond = shape is not None and k >= len(shape)
        found.append(at if k in copied else _literal(t, at, allowzero or beyond))
    open_ = [k for k, t in enumerate(found) if t is None and k not in copied]
    inferred = [k for k, t in enumerate(target) if t == -1]
    if len(open_) == 1 and shape is not None and (inferred or _not_empty(found, open_[0])):
        rest = dims.product(d for k, d in enumerate(found) if k not in copied and k != open_[0])
        elements = dims.product(d for k, d in enumerate(shape) if k not in copied)
        found[open_[0]] = None if rest == 0 else dims.floor_div(elements, rest)
    return tuple(found)


def _not_empty(found: Sequence[Dim], without: int) -> bool:
    """Whether the other dims certainly hold elements: then these decide the one that is left."""
    return all(dims.at_least(d, 1) for k, d in enumerate(found) if k != without)


def _literal(t: Dim, at: Dim, literal_zero: bool) -> Dim:
    """What an element of the target says of its dim; None for -1 and for one that might be 0 or -1.

    A 0 that copies says the same where the input's dim ``at`` is a multiple of ``t``; beyond the input's rank it is not
    legal, so ``literal_zero`` holds there.
    """
    if isinstance(t, int):
        return t if t >= 0 else None
    if dims.at_least(t, 1) or (dims.at_least(t, 0) and (literal_zero or dims.divides(t, at))):
        return t
    return None


@shape_of("Squeeze")
def squeeze(n: Operands) -> Sequence[Shape | None]:
    return [squeezed(n)]


def squeezed(n: Operands) -> Shape:
    """Without axes every dim that is 1 goes: the rank is known only where each dim is, or cannot be, 1."""
    shape = n.known_shape(0)
    if n.has(1):
        axes = {normalise_axis(a, len(shape)) for a in n.ints(1)}
        return tuple(d for k, d in enumerate(shape) if k not in axes)
    ones = [dims.equal(d, 1) for d in shape]
    if None in ones:
        raise Unknown
    return tuple(d for d, one in zip(shape, ones, strict=True) if not one)


@shape_of("Unsqueeze")
def unsqueeze(n: Operands) -> Sequence[Shape | None]:
    return [unsqueezed(n)]


def unsqueezed(n: Operands) -> Shape:
    shape = n.known_shape(0)
    axes = n.ints(1)
    rank = len(shape) + len(axes)
    places = {normalise_axis(a, rank) for a in axes}
    rest = iter(shape)
    return tuple(1 if k in places else next(rest) for k in range(rank))


@shape_of("Flatten")
def flatten(n: Operands) -> Sequence[Shape | None]:
    return [flattened(n)]


def flattened(n: Operands) -> Shape:
    """[dims before ``axis``, dims from it on]; axis may be the rank itself."""
    shape = n.known_shape(0)
    axis = n.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return dims.product(shape[:axis]), dims.product(shape[axis:])


@shape_of("Transpose")
def transpose(n: Operands) -> Sequence[Shape | None]:
    shape = n.known_shape(0)
    perm = n.attr("perm") if n.view.has_attr("perm") else tuple(reversed(range(len(shape))))
    return [tuple(shape[k] for k in perm)]


@shape_of("Concat")
def concat(n: Operands) -> Sequence[Shape | None]:
    shapes = [s for s in (dims.type_shape(entry) for entry in n.types()) if s is not None]
    if len(shapes) < len(n):
        return []
    axis = normalise_axis(n.attr("axis", 1 if n.opset < 4 else 0), len(shapes[0]))
    columns = zip(*shapes, strict=True)
    return [tuple(dims.total(column) if k == axis else _agreed(column) for k, column in enumerate(columns))]


def _agreed(column: Sequence[Dim]) -> Dim:
    """Of equal dims the one that says most."""
    return next((d for d in column if isinstance(d, int)), next((d for d in column if d is not None), None))


@shape_of("Split")
def split(n: Operands) -> Sequence[Shape | None]:
    shape = n.known_shape(0)
    axis = normalise_axis(n.attr("axis", 0), len(shape))
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in split_sizes(n, shape[axis])]


def split_sizes(n: Operands, dim: Dim) -> list[Dim]:
    """Sizes of the parts: as given, else equal ones (with ``num_outputs`` the last may be smaller)."""
    count = n.outputs()
    if n.has(1):
        sizes = n.maybe_dims(1)
        return [None] * count if sizes is None else sizes
    if n.attr("num_outputs") is None:
        return [dims.floor_div(dim, count)] * count
    size = dims.ceil_div(dim, count)
    return [size] * (count - 1) + [dims.sub(dim, dims.mul(size, count - 1))]


@shape_of("Expand")
def expand(n: Operands) -> Sequence[Shape | None]:
    return [broadcast(n.known_shape(0), tuple(n.dims(1)))]


@shape_of("Tile", until=6)
def tile_axis(n: Operands) -> Sequence[Shape | None]:
    shape, place = list(n.known_shape(0)), n.ints(2)[0]
    shape[place] = dims.mul(shape[place], n.ints(1)[0])
    return [tuple(shape)]


@shape_of("Tile", since=6)
def tile(n: Operands) -> Sequence[Shape | None]:
    shape = n.known_shape(0)
    repeats = n.maybe_dims(1) or [None] * len(shape)
    return [tuple(dims.mul(d, r) for d, r in zip(shape, repeats, strict=True))]


@shape_of("Pad")
def pad(n: Operands) -> Sequence[Shape | None]:
    shape = list(n.known_shape(0))
    axes = n.maybe_ints(3) if n.has(3) else list(range(len(shape)))
    pads = n.maybe_dims(1)
    if axes is None or pads is None or len(pads) != 2 * len(axes):
        return [(None,) * len(shape)]
    for k, axis in enumerate(axes):
        place = normalise_axis(axis, len(shape))
        shape[place] = dims.total((shape[place], pads[k], pads[k + len(axes)]))
    return [tuple(shape)]


@shape_of("DepthToSpace")
def depth_to_space(n: Operands) -> Sequence[Shape | None]:
    batch, channels, *spatial = n.known_shape(0)
    block = n.attr("blocksize")
    return [(batch, dims.floor_div(channels, block * block), *(dims.mul(d, block) for d in spatial))]


@shape_of("SpaceToDepth")
def space_to_depth(n: Operands) -> Sequence[Shape | None]:
    batch, channels, *spatial = n.known_shape(0)
    block = n.attr("blocksize")
    return [(batch, dims.mul(channels, block * block), *(dims.floor_div(d, block) for d in spatial))]


@shape_of("Resize", "Upsample")
def resize(n: Operands) -> Sequence[Shape | None]:
    """By sizes, or by scales that keep integers: whole ones, and fractions 1/k that float32 holds exactly."""
    shape = list(n.known_shape(0))
    axes = [normalise_axis(a, len(shape)) for a in n.attr("axes") or range(len(shape))]
    if n.has(3):
        sizes = n.maybe_dims(3)
        if sizes is None or n.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
            sizes = [None] * len(axes)
        new = sizes
    else:
        new = _scaled(n, [shape[axis] for axis in axes])
    for axis, dim in zip(axes, new, strict=True):
        shape[axis] = dim
    return [tuple(shape)]


def _scaled(n: Operands, old: list[Dim]) -> list[Dim]:
    if not n.has(2) or n.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        return [None] * len(old)
    scales = n.array(2).ravel()
    return [_scale(dim, Fraction(float(scale))) for dim, scale in zip(old, scales, strict=True)]


def _scale(dim: Dim, scale: Fraction) -> Dim:
    if scale.denominator == 1:
        return dims.mul(dim, scale.numerator)
    return dims.floor_div(dim, scale.denominator) if scale.numerator == 1 else None
