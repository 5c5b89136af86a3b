"""How ramps are made, moved and computed with: one small function an operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs

from surgeon_passes.model import array_of
from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim, same
from surgeon_passes.values.lattice import is_integer
from surgeon_passes.values.ramps.core import Found, Ramp, RampNode, handles

# --- made ----------------------------------------------------------------------------------------------------------------


@handles("Range")
def _range(n: RampNode) -> Found:
    start, step = n.number(0), n.number(2)
    return n.stepped(start, [step]) if is_integer(n.dtype) else None


@handles("ConstantOfShape")
def _constant_of_shape(n: RampNode) -> Found:
    value = n.view.attr("value", None)
    fill = array_of(value).reshape(()) if isinstance(value, gs.Constant) else np.array(0, np.float32)
    return n.filled(int(fill) if is_integer(n.dtype) else n.dtype.type(fill))


# --- moved ---------------------------------------------------------------------------------------------------------------


@handles("Identity")
def _identity(n: RampNode) -> Found:
    return n.ramp(0)


@handles("Expand")
def _expand(n: RampNode) -> Found:
    ramp = n.ramp(0)
    return None if ramp is None else n.stepped(ramp.start, n.spread(ramp))


@handles("Tile")
def _tile(n: RampNode) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    repeated = [
        step != 0 and not same(dim, wide) for dim, step, wide in zip(ramp.shape, ramp.steps, n.shape, strict=True)
    ]
    return None if any(repeated) else n.stepped(ramp.start, ramp.steps)


@handles("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def _reshape(n: RampNode) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    if all(s == 0 for s in ramp.steps):
        return n.stepped(ramp.start, [0] * len(n.shape))
    return _same_axes(n, ramp) or _row_major(n, ramp)


def _same_axes(n: RampNode, ramp: Ramp) -> Found:
    """Where only axes of one element come and go."""
    before = [(d, s) for d, s in zip(ramp.shape, ramp.steps, strict=True) if d != 1]
    after = [d for d in n.shape if d != 1]
    if len(before) != len(after) or not all(same(d, e) for (d, _), e in zip(before, after, strict=True)):
        return None
    steps = iter(s for _, s in before)
    return n.stepped(ramp.start, [0 if d == 1 else next(steps) for d in n.shape])


def _row_major(n: RampNode, ramp: Ramp) -> Found:
    """Where elements step evenly in row-major order, in whatever shape."""
    step = next((s for d, s in zip(reversed(ramp.shape), reversed(ramp.steps), strict=True) if d != 1), 0)
    weight: Dim = step
    for dim, own in zip(reversed(ramp.shape), reversed(ramp.steps), strict=True):
        if dim != 1 and not same(own, weight):
            return None
        weight = dims.mul(weight, dim)
    steps: list[Dim] = []
    weight = step
    for dim in reversed(n.shape):
        steps.append(0 if dim == 1 else weight)
        weight = dims.mul(weight, dim)
    return n.stepped(ramp.start, steps[::-1])


@handles("Transpose")
def _transpose(n: RampNode) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    perm = n.view.attr("perm", None) or range(len(ramp.steps))[::-1]
    return n.stepped(ramp.start, [ramp.steps[p] for p in perm])


@handles("Slice", "Gather", "GatherElements")
def _picked(n: RampNode) -> Found:
    """Whatever is picked out of one number is that number; an index outside must stay the error that it is."""
    ramp = n.ramp(0)
    if ramp is None or any(s != 0 for s in ramp.steps):
        return None
    if n.op != "Slice" and not n.within(1, int(n.view.attr("axis", 0))):
        return None
    return n.stepped(ramp.start, [0] * len(n.shape))


@handles("Concat")
def _concat(n: RampNode) -> Found:
    parts = [n.ramp(k) for k in range(len(n.view.inputs))]
    fills = [None if p is None else p.fill for p in parts]
    if len({None if f is None else f.tobytes() for f in fills}) != 1 or fills[0] is None:
        return None
    first = parts[0]
    assert first is not None
    return n.filled(first.start)


# --- computed ------------------------------------------------------------------------------------------------------------


@handles("Add", "Sub")
def _add(n: RampNode) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None:
        return None
    if not is_integer(n.dtype):
        return _number(n, a, b)
    join = dims.add if n.op == "Add" else dims.sub
    steps = [join(p, q) for p, q in zip(n.spread(a), n.spread(b), strict=True)]
    return n.stepped(join(a.start, b.start), steps)


@handles("Mul")
def _mul(n: RampNode) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None:
        return None
    if not is_integer(n.dtype):
        return _number(n, a, b)
    if any(s != 0 for s in b.steps):
        a, b = b, a
    if any(s != 0 for s in b.steps):
        return None
    return n.stepped(dims.mul(a.start, b.start), [dims.mul(s, b.start) for s in n.spread(a)])


_FLOATS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}


@handles("Div")
def _div(n: RampNode) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None or a.fill is None or b.fill is None:
        return None
    if not is_integer(n.dtype):
        return _number(n, a, b)
    return n.stepped(dims.trunc_div(a.start, b.start), [0] * len(n.shape))


def _number(n: RampNode, a: Ramp, b: Ramp) -> Found:
    """One IEEE operation on two numbers of one float type."""
    first, second = a.fill, b.fill
    if first is None or second is None or n.dtype not in (np.float32, np.float64):
        return None
    with np.errstate(all="ignore"):
        return n.filled(n.dtype.type(_FLOATS[n.op](first, second)))


@handles("Cast")
def _cast(n: RampNode) -> Found:
    ramp = n.ramp(0)
    if ramp is None:
        return None
    if is_integer(n.dtype) and is_integer(ramp.dtype):
        return _cast_integers(n, ramp)
    fill = ramp.fill
    if fill is None or not np.isfinite(fill) or abs(float(fill)) > 1 << 20 or float(fill) != int(fill):
        return None  # what no type rounds
    if n.dtype.kind == "f" and np.signbit(fill) and fill == 0:
        return n.filled(n.dtype.type(-0.0)) if n.dtype in (np.float32, np.float64) else None
    number = int(fill)
    if n.dtype.kind == "b":
        return n.filled(int(number != 0))
    if is_integer(n.dtype):
        info = np.iinfo(n.dtype)
        return n.filled(number) if info.min <= number <= info.max else None
    return n.filled(n.dtype.type(number)) if n.dtype in (np.float32, np.float64) else None


def _cast_integers(n: RampNode, ramp: Ramp) -> Found:
    if n.dtype.kind == "b":
        fill = ramp.fill
        return None if fill is None else n.filled(int(fill != 0))
    if n.dtype.kind != "i" or n.dtype.itemsize < 4:
        return None  # a small type would wrap
    info = np.iinfo(n.dtype)
    fits = not isinstance(ramp.start, int) or info.min <= ramp.start <= info.max
    return n.stepped(ramp.start, ramp.steps) if fits else None


@handles("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _compare(n: RampNode) -> Found:
    a, b = n.ramp(0), n.ramp(1)
    if a is None or b is None or not is_integer(a.dtype) or not is_integer(b.dtype):
        return None
    start = dims.sub(a.start, b.start)
    steps = [dims.sub(p, q) for p, q in zip(n.spread(a), n.spread(b), strict=True)]
    if start is None or any(s is None for s in steps):
        return None
    low, high = Ramp(n.shape, start, tuple(steps), np.dtype(np.int64)).range()
    answer = _ANSWERS[n.op](low, high)
    return None if answer is None else n.filled(int(answer))


def _is_less(low: Dim, high: Dim) -> bool | None:
    """Whether a difference between ``low`` and ``high`` is below 0: everywhere, nowhere, or not known."""
    if dims.at_least(dims.neg(high), 1):
        return True
    return False if dims.at_least(low, 0) else None


def _is_equal(low: Dim, high: Dim) -> bool | None:
    if same(low, 0) and same(high, 0):
        return True
    return False if dims.at_least(low, 1) or dims.at_least(dims.neg(high), 1) else None


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


_ANSWERS: dict[str, Callable[[Dim, Dim], bool | None]] = {
    "Less": _is_less,
    "GreaterOrEqual": lambda low, high: _not(_is_less(low, high)),
    "Greater": lambda low, high: _is_less(dims.neg(high), dims.neg(low)),
    "LessOrEqual": lambda low, high: _not(_is_less(dims.neg(high), dims.neg(low))),
    "Equal": _is_equal,
}


@handles("And", "Or")
def _and(n: RampNode) -> Found:
    fills = [None if (ramp := n.ramp(k)) is None else ramp.fill for k in (0, 1)]
    decides = n.op == "Or"
    if any(f is not None and bool(f) == decides for f in fills):
        return n.filled(int(decides))
    return n.filled(int(not decides)) if all(f is not None for f in fills) else None


@handles("Not")
def _negated(n: RampNode) -> Found:
    fill = None if (ramp := n.ramp(0)) is None else ramp.fill
    return None if fill is None else n.filled(int(not fill))


@handles("Where")
def _where(n: RampNode) -> Found:
    condition = None if (ramp := n.ramp(0)) is None else ramp.fill
    if condition is not None:
        chosen = n.ramp(1 if condition else 2)
        return None if chosen is None else n.stepped(chosen.start, n.spread(chosen))
    a, b = n.ramp(1), n.ramp(2)
    first, second = None if a is None else a.fill, None if b is None else b.fill
    if a is None or first is None or second is None or first.tobytes() != second.tobytes():
        return None
    return n.filled(a.start)
