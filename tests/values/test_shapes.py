"""Symbolic shapes: exact text, and the same shapes as ONNX Runtime at several sizes."""

from __future__ import annotations

import numpy as np
import pytest

from surgeon_passes.values import Poly
from tests.values.build import dims, evaluator, model, run

SIZES = [{"N": 1, "H": 9, "W": 12}, {"N": 3, "H": 16, "W": 7}, {"N": 2, "H": 11, "W": 31}]


def weight(*shape):
    return np.ones(shape, np.float32)


CASES = [
    ("y = Conv<pads=[1,1,1,1]>(x, w)", {"w": weight(8, 4, 3, 3)}, "N 8 H W"),
    (
        "y = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w)",
        {"w": weight(8, 4, 3, 3)},
        "N 8 floordiv(H-1,2)+1 floordiv(W-1,2)+1",
    ),
    ("y = Conv<dilations=[2,1]>(x, w)", {"w": weight(8, 4, 3, 1)}, "N 8 H-4 W"),
    (
        'y = Conv<auto_pad="SAME_UPPER", strides=[2,3]>(x, w)',
        {"w": weight(8, 4, 3, 3)},
        "N 8 floordiv(H-1,2)+1 floordiv(W-1,3)+1",
    ),
    ('y = Conv<auto_pad="VALID", group=2>(x, w)', {"w": weight(6, 2, 1, 5)}, "N 6 H W-4"),
    (
        "y = MaxPool<kernel_shape=[3,3], strides=[2,2]>(x)",
        {},
        "N 4 floordiv(H-1,2) floordiv(W-1,2)",
    ),
    (
        "y = AveragePool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)",
        {},
        "N 4 floordiv(H-1,2)+1 floordiv(W-1,2)+1",
    ),
    ("y = MaxPool<kernel_shape=[2,2], dilations=[3,1], pads=[1,0,1,0]>(x)", {}, "N 4 H-1 W-1"),
    ("y = GlobalAveragePool(x)", {}, "N 4 1 1"),
    ("y = ConvTranspose<strides=[2,2]>(x, w)", {"w": weight(4, 3, 2, 2)}, "N 3 2*H 2*W"),
    (
        "y = ConvTranspose<strides=[2,2], pads=[1,1,1,1], output_padding=[1,1], group=2>(x, w)",
        {"w": weight(4, 3, 3, 3)},
        "N 6 2*H 2*W",
    ),
    ("y = Transpose<perm=[0,2,3,1]>(x)", {}, "N H W 4"),
    ("y = Transpose(x)", {}, "W H 4 N"),
    ("y = Flatten(x)", {}, "N 4*H*W"),
    ("y = Concat<axis=-1>(x, x)", {}, "N 4 H 2*W"),
    ("y = Add(x, b)", {"b": weight(4, 1, 1)}, "N 4 H W"),
    ("s = Transpose<perm=[0,1,3,2]>(x) y = MatMul(x, s)", {}, "N 4 H H"),
    ("y = ReduceMean(x, a)", {"a": np.array([2, 3])}, "N 4 1 1"),
    ("y = ReduceMean<keepdims=0>(x, a)", {"a": np.array([-1])}, "N 4 H"),
    ("y = Reshape(x, t)", {"t": np.array([0, 2, -1])}, "N 2 2*H*W"),
    ("y = Reshape(x, t)", {"t": np.array([-1, 4])}, "H*N*W 4"),
    ("y = Slice(x, s, e, a)", {"s": np.array([1]), "e": np.array([2**63 - 1]), "a": np.array([2])}, "N 4 H-1 W"),
    ("y = Slice(x, s, e, a)", {"s": np.array([0]), "e": np.array([-2]), "a": np.array([3])}, "N 4 H max(0,W-2)"),
    (
        "y = Slice(x, s, e, a, p)",
        {"s": np.array([-1]), "e": np.array([-(2**63)]), "a": np.array([3]), "p": np.array([-2])},
        "N 4 H floordiv(W-1,2)+1",
    ),
    (
        "y = Slice(x, s, e, a, p)",
        {"s": np.array([1]), "e": np.array([2**31 - 1]), "a": np.array([2]), "p": np.array([2])},
        "N 4 floordiv(H,2) W",
    ),
    ("y = Pad(x, p)", {"p": np.array([0, 0, 1, 2, 0, 0, 1, 2])}, "N 4 H+2 W+4"),
    ("y = Pad(x, p, , a)", {"p": np.array([0, 1]), "a": np.array([-1])}, "N 4 H W+1"),
    ("y = Resize(x, , s)", {"s": np.array([1, 1, 2, 0.5], np.float32)}, "N 4 2*H floordiv(W,2)"),
    ("y = Tile(x, r)", {"r": np.array([1, 1, 2, 1])}, "N 4 2*H W"),
    ("y = Expand(x, s)", {"s": np.array([5, 1, 1, 1, 1])}, "5 N 4 H W"),
    ("y = Unsqueeze(x, a)", {"a": np.array([0, -1])}, "1 N 4 H W 1"),
    ("g = GlobalMaxPool(x) y = Squeeze(g, a)", {"a": np.array([2, -1])}, "N 4"),
    ("y = Gather<axis=2>(x, i)", {"i": np.array([[0, 1], [1, 2]])}, "N 4 2 2 W"),
    ("y, z = Split<axis=1>(x, s)", {"s": np.array([1, 3])}, "N 1 H W"),
    ("y, z = Split<axis=3, num_outputs=2>(x)", {}, "N 4 H floordiv(W-1,2)+1"),
    ("y = DepthToSpace<blocksize=2>(x)", {}, "N 1 2*H 2*W"),
    (
        "t = Reshape(x, c) p = Expand(t, f) y = Identity(p)",
        {"c": np.array([0, 4, -1]), "f": np.array([1, 4, 1])},
        "N 4 H*W",
    ),
    (
        "m = MaxPool<kernel_shape=[4,4], strides=[4,4]>(x) f = Reshape(m, c) s = Shape(m) y = Reshape(f, s)",
        {"c": np.array([0, 4, -1])},
        "N 4 floordiv(H,4) floordiv(W,4)",
    ),
    (
        "s = Shape<start=2, end=3>(x) m = Min(s, limit) o = ConstantOfShape(m) e = Expand(o, s) y = Relu(e)",
        {"limit": np.array([50])},
        "H",
    ),
    ("y = Softmax<axis=1>(x)", {}, "N 4 H W"),
    ("i, y0 = TopK<axis=1>(x, k) y = Identity(i)", {"k": np.array([2])}, "N 2 H W"),
    ('y = Einsum<equation="nchw,ncsw->nhs">(x, x)', {}, "N H H"),
    ("s = Shape(x) r = ConstantOfShape(s) y = Add(x, r)", {}, "N 4 H W"),
    ("s = Shape<start=2>(x) t = Concat<axis=0>(p, s) y = Reshape(x, t)", {"p": np.array([-1])}, "4*N H W"),
    (
        "s = Shape(x) h = Gather(s, i) d = Div(h, two) q = Mul(d, two) e = Unsqueeze(q, i0) y = Slice(x, i0, e, ax)",
        {"i": np.int64(2), "two": np.int64(2), "i0": np.array([0]), "ax": np.array([2])},
        "N 4 2*floordiv(H,2) W",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_shape_is_exact_at_every_size(case):
    nodes, constants, expected = case
    proto = model(f"(float[N,4,H,W] x) => (float[] y) {{ {nodes} }}", **constants)
    ev = evaluator(proto)
    found = ev.types.type_of(ev.tensor("y")).shape
    assert " ".join(str(d).replace(" ", "") for d in found) == expected
    for sizes in SIZES:
        feed = np.zeros((sizes["N"], 4, sizes["H"], sizes["W"]), np.float32)
        at = tuple(d.evaluate(sizes) if isinstance(d, Poly) else d for d in found)
        assert run(proto, {"x": feed})[0].shape == at


@pytest.mark.parametrize(
    ("inputs", "nodes", "expected"),
    [
        ("float[N,3] a, float[M,3] b", "y = Add(a, b)", ["max(M, N)", "3"]),
        ("float[N,3] a, float[N,3] b", "y = Add(a, b)", ["N", "3"]),
        ("float[N,3] a, float[1,3] b", "y = Add(a, b)", ["N", "3"]),
        ("float[N,3] a, float[5,3] b", "y = Add(a, b)", ["5", "3"]),
        ("float[N,1] a, float[M] b", "y = Mul(a, b)", ["N", "M"]),
        ("float[N,2] a, float[M] b", "c = Concat<axis=0>(a, a) d = Transpose(c) y = Mul(d, b)", ["2", "2*N"]),
        ("float a, float[N] b", "y = Sub(a, b)", ["N"]),
        ("float[N,3] a", "y = Squeeze(a)", None),
        ("float[N,3] a", "b = Concat<axis=0>(a, a) y = Squeeze(b)", ["2*N", "3"]),
        ("float[N,3] a", "c = NonZero(a) y = Cast<to=1>(c)", ["2", "~c.1"]),
    ],
)
def test_broadcast_and_rank_rules(inputs, nodes, expected):
    proto = model(f"({inputs}) => (float[] y) {{ {nodes} }}")
    assert dims(evaluator(proto), "y") == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("hidden_size=5", (["T", "1", "N", "5"], ["1", "N", "5"])),
        ('hidden_size=5, direction="bidirectional"', (["T", "2", "N", "5"], ["2", "N", "5"])),
        ('hidden_size=5, direction="bidirectional", layout=1', (["T", "N", "2", "5"], ["T", "2", "5"])),
    ],
)
def test_recurrent(attributes, expected):
    directions = int(expected[1][-2]) if "layout" in attributes else int(expected[1][0])
    proto = model(
        f"(float[T,N,3] x) => (float[] y, float[] h) {{ y, h = GRU<{attributes}>(x, w, r) }}",
        w=weight(directions, 15, 3),
        r=weight(directions, 15, 5),
    )
    ev = evaluator(proto)
    assert (dims(ev, "y"), dims(ev, "h")) == expected


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (3, 1), (4, 2), (4, 3)])
def test_a_window_larger_than_what_there_is(op: str, kernel: int, stride: int) -> None:
    """ONNX Runtime divides towards zero: with a stride there may be one element, though no window fits."""
    proto = model(
        f"(float[1,1,2] x) => (float[a,b,c] y) {{ y = {op}<kernel_shape=[{kernel}], strides=[{stride}]>(x) }}"
    )
    (found,) = run(proto, {"x": np.ones((1, 1, 2), np.float32)})
    ev = evaluator(proto)
    assert ev.types.type_of(ev.tensor("y")).shape == found.shape
