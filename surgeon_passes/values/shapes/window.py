"""Sliding windows: convolutions and pools. Spatial dims become floordiv polynomials of the input's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, Shape
from surgeon_passes.values.operands import Operands, Unknown
from surgeon_passes.values.registry import shape_of


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial axis: kernel extent with dilation, stride, pads before and after."""

    extent: int
    stride: int
    begin: int
    end: int


def _written(n: Operands, name: str, default: Sequence[int]) -> Sequence[int]:
    found: Sequence[int] = n.attr(name) if n.view.has_attr(name) else default
    return found


def _windows(n: Operands, rank: int, weight: int | None) -> list[Window]:
    """Windows per spatial axis; gives up where the kernel is unknown."""
    if n.view.has_attr("kernel_shape"):
        kernel = tuple(n.attr("kernel_shape"))
    else:
        known = dims.static(n.known_shape(weight)[2:]) if weight is not None else None
        if known is None:
            raise Unknown
        kernel = known
    strides = _written(n, "strides", (1,) * rank)
    dilations = _written(n, "dilations", (1,) * rank)
    pads = _written(n, "pads", (0,) * 2 * rank) if n.attr("auto_pad", "NOTSET") == "NOTSET" else (0,) * 2 * rank
    extents = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    return [Window(e, s, pads[k], pads[k + rank]) for k, (e, s) in enumerate(zip(extents, strides, strict=True))]


def _swept(dim: Dim, window: Window, same: bool) -> Dim:
    """floor((dim + pads - extent) / stride) + 1; with auto_pad SAME_* ceil(dim / stride).

    Where no window fits, onnx and ONNX Runtime divide towards zero: a pool of stride 2 whose window is one too large gives
    one element, of what there is.
    """
    if same:
        return dims.ceil_div(dim, window.stride)
    free = dims.add(dim, window.begin + window.end - window.extent)
    if isinstance(free, int) and free < 0:
        return 1 - (-free // window.stride)
    return dims.add(dims.floor_div(free, window.stride), 1)


def _swept_ceil(dim: Dim, window: Window) -> Dim:
    """ceil_mode: known where the last window surely starts inside the input or its left pad (else it is dropped)."""
    free = dims.add(dim, window.begin + window.end - window.extent)
    count = dims.add(dims.ceil_div(free, window.stride), 1)
    last = dims.mul(dims.sub(count, 1), window.stride)
    return count if dims.less(last, dims.add(dim, window.begin)) is True else None


def _is_same(n: Operands) -> bool:
    return str(n.attr("auto_pad", "NOTSET")).startswith("SAME")


@shape_of("Conv", "ConvInteger", "DeformConv")
def conv(n: Operands) -> Sequence[Shape | None]:
    return [_convolved(n, n.known_shape(0), 1)]


@shape_of("QLinearConv")
def qlinear_conv(n: Operands) -> Sequence[Shape | None]:
    return [_convolved(n, n.known_shape(0), 3)]


def _convolved(n: Operands, data: Shape, weight: int) -> Shape:
    windows = _windows(n, len(data) - 2, weight)
    same = _is_same(n)
    spatial = (_swept(d, w, same) for d, w in zip(data[2:], windows, strict=True))
    shape = n.shape(weight)
    return (data[0], None if shape is None else shape[0], *spatial)


@shape_of("MaxPool", "AveragePool", "LpPool")
def pool(n: Operands) -> Sequence[Shape | None]:
    data = n.known_shape(0)
    windows = _windows(n, len(data) - 2, None)
    same, ceil = _is_same(n), bool(n.attr("ceil_mode", 0))
    spatial = (
        _swept_ceil(d, w) if ceil and not same else _swept(d, w, same) for d, w in zip(data[2:], windows, strict=True)
    )
    return [(*data[:2], *spatial)] * n.outputs()


@shape_of("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(n: Operands) -> Sequence[Shape | None]:
    data = n.known_shape(0)
    return [(*data[:2], *(1 for _ in data[2:]))]


@shape_of("ConvTranspose")
def conv_transpose(n: Operands) -> Sequence[Shape | None]:
    """stride·(dim - 1) + output_padding + extent - pads, or ``output_shape``; with auto_pad SAME_* dim·stride."""
    data, weight = n.known_shape(0), n.shape(1)
    rank = len(data) - 2
    channels = None if weight is None else dims.mul(weight[1], n.attr("group", 1))
    if n.view.has_attr("output_shape"):
        return [(data[0], channels, *n.attr("output_shape")[-rank:])]
    windows = _windows(n, rank, 1)
    extra = _written(n, "output_padding", (0,) * rank)
    spread = _spread_same if _is_same(n) else _spread
    spatial = [spread(d, w, e) for d, w, e in zip(data[2:], windows, extra, strict=True)]
    return [(data[0], channels, *spatial)]


def _spread(dim: Dim, window: Window, extra: int) -> Dim:
    return dims.add(dims.mul(window.stride, dims.sub(dim, 1)), extra + window.extent - window.begin - window.end)


def _spread_same(dim: Dim, window: Window, extra: int) -> Dim:
    """dim·stride; where the kernel is smaller than its stride ONNX Runtime gives less, against the specification."""
    return dims.mul(dim, window.stride) if window.extent + extra >= window.stride else None
