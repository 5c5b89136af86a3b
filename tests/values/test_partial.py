"""Partly known values: exact text, and agreement with ONNX Runtime at several sizes."""

from __future__ import annotations

import numpy as np
import pytest

from surgeon_passes.values import Partial
from tests.values.build import assert_holds, evaluator, model, run, text

SIZES = [{"N": 1, "H": 1, "W": 5}, {"N": 4, "H": 9, "W": 12}, {"N": 2, "H": 16, "W": 1}]
I64 = np.int64


def ints(*values):
    return np.array(values, I64)


CONSTANTS = {
    "i0": I64(0),
    "i2": I64(2),
    "two": I64(2),
    "minus": ints(-1),
    "idx": ints(3, 0),
    "ax": ints(0),
    "one": ints(1),
    "three": ints(3),
    "v22": ints(2, 2),
    "zero": ints(0),
}

CASES = [
    ("v = Shape(x)", ["N", "3", "H", "W"]),
    ("v = Shape<start=2>(x)", ["H", "W"]),
    ("v = Size(x)", "3*H*N*W"),
    ("s = Shape(x) v = Gather(s, i2)", "H"),
    ("s = Shape(x) v = Gather(s, idx)", ["W", "N"]),
    ("s = Shape(x) g = Gather(s, i0) u = Unsqueeze(g, ax) v = Concat<axis=0>(u, minus)", ["N", "-1"]),
    ("s = Shape(x) v = Slice(s, one, three)", ["3", "H"]),
    ("s = Shape(x) h = Slice(s, v22_, big) v = Div(h, v22)", ["floordiv(H, 2)", "floordiv(W, 2)"]),
    ("s = Shape(x) g = Gather(s, i2) a = Add(g, two) v = Mul(a, g)", "H**2 + 2*H"),
    ("s = Shape(x) g = Gather(s, i2) a = Sub(g, two) v = Mod(g, two)", "mod(H, 2)"),
    ("s = Shape(x) v = ReduceProd<keepdims=0>(s)", "3*H*N*W"),
    ("s = Shape(x) v = ReduceMax<keepdims=1>(s)", ["max(H, N, W, 3)"]),
    ("s = Shape(x) v = ReduceSum<keepdims=0>(s)", "H + N + W + 3"),
    ("s = Shape(x) v = Equal(s, minus)", None),
    ("s = Shape(x) c = Cast<to=6>(s) v = Cast<to=7>(c)", ["N", "3", "H", "W"]),
    ("s = Shape(x) v = Cast<to=1>(s)", None),
    ("s = Shape(x) v = Reshape(s, v22)", ["N", "3", "H", "W"]),
    ("s = Shape(x) r = Reshape(s, v22) v = Transpose(r)", ["N", "H", "3", "W"]),
    ("s = Shape(x) a, v = Split(s, c13)", ["3", "H", "W"]),
    ("s = Shape(x) v = Expand(s, v21)", ["N", "3", "H", "W"] * 2),
    ("s = Shape(x) v = Tile(s, three)", ["N", "3", "H", "W"] * 3),
    ("s = Shape(x) v = ScatterElements(s, idx, v22)", ["2", "3", "H", "2"]),
    ("s = Shape(x) g = Gather(s, i2) u = Unsqueeze(g, ax) v = ScatterElements(c13, ax, u)", ["H", "3"]),
    ('s = Shape(x) v = ScatterElements<reduction="add">(s, idx, v22)', ["N + 2", "3", "H", "W + 2"]),
    ('s = Shape(x) v = ScatterElements<reduction="max">(s, idx, v22)', ["max(N, 2)", "3", "H", "max(W, 2)"]),
    ("s = Shape(x) e = EyeLike<dtype=7>(c22) v = ReduceSum<keepdims=0>(e)", "2"),
    ("s = Shape(x) m = Greater(s, minus) v = Where(m, s, c4)", ["N", "3", "H", "W"]),
    ("s = Shape(x) m = Equal(s, minus) v = Where(m, c4, s)", ["N", "3", "H", "W"]),
    ("s = Shape(x) m = Equal(s, one) v = Where(m, s, s)", ["N", "3", "H", "W"]),
    ("s = Shape(x) m = Equal(s, one) v = Where(m, c4, s)", ["?", "3", "?", "?"]),
    ("s = Shape(x) v = Neg(s)", ["-N", "-3", "-H", "-W"]),
    ("s = Shape(x) m = Neg(s) v = Abs(m)", ["N", "3", "H", "W"]),
    ("s = Shape(x) v = Min(s, three)", ["min(N, 3)", "3", "min(H, 3)", "min(W, 3)"]),
    ("s = Shape(x) v = Clip(s, two, two)", None),
    ("s = Shape(x) e = Slice(s, zero, zero) v = Concat<axis=0>(e, s)", ["N", "3", "H", "W"]),
    ("s = Shape(x) v = Concat<axis=0>(s, k)", ["N", "3", "H", "W", "?", "?"]),
    ("z = NonZero(x) v = Shape(z)", ["4", "~z.1"]),
    ("s = Shape(x) v = Pad(s, one1, i0)", ["0", "N", "3", "H", "W"]),
    ("s = Shape(x) f = Flatten<axis=0>(s) v = Squeeze(f, zero)", ["N", "3", "H", "W"]),
    ("s = Shape(x) v = Pow(s, two)", ["N**2", "9", "H**2", "W**2"]),
    ("s = Shape(x) v = Sign(s)", ["1", "1", "1", "1"]),
    ("s = Shape(x) a = Greater(s, zero) n = Not(a) o = Or(a, n) v = Xor(o, n)", ["1", "1", "1", "1"]),
    ("s = Shape(x) v = Compress(s, keep)", ["3", "W"]),
    ("s = Shape(x) t = Identity(s) v = GatherND(t, pick)", ["H"]),
    ("s = Shape(x) v = GatherElements(s, idx)", ["W", "N"]),
]
EXTRA = {
    "v22_": ints(2),
    "big": ints(2**63 - 1),
    "c13": ints(1, 3),
    "v21": ints(2, 1),
    "c22": np.zeros((2, 2), np.float32),
    "c4": ints(7, 8, 9, 10),
    "one1": ints(1, 0),
    "keep": np.array([False, True, False, True]),
    "pick": np.array([[2]], I64),
}


def build(nodes):
    used = {**CONSTANTS, **EXTRA}
    words = set(nodes.replace("(", " ").replace(")", " ").replace(",", " ").split())
    kept = {name: array for name, array in used.items() if name in words}
    return model(f"(float[N,3,H,W] x, int64[2] k) => (v) {{ {nodes} }}", **kept)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_partial_value(case):
    nodes, expected = case
    proto = build(nodes)
    ev = evaluator(proto)
    found = ev.value("v")
    shown = text(ev, "v")
    if isinstance(found, np.ndarray) and found.dtype == bool:
        shown = [str(int(e)) for e in found]
    if expected is not None:
        assert shown == expected
    for sizes in SIZES:
        x = np.ones((sizes["N"], 3, sizes["H"], sizes["W"]), np.float32)
        assert_holds(found, run(proto, {"x": x, "k": ints(5, 6)})[0], dict(sizes))


def test_equal_minus_one_is_false_for_a_dim():
    ev = evaluator(build("s = Shape(x) v = Equal(s, minus)"))
    assert ev.value("v").tolist() == [False] * 4


def test_partial_knows_its_type():
    value = evaluator(build("v = Shape(x)")).value("v")
    assert isinstance(value, Partial)
    assert value.dtype == np.int64
    assert value.elem_type == 7
    assert value.shape == (4,)
    assert [str(d) for d in value.dims()] == ["N", "3", "H", "W"]
