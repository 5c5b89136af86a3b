"""Where the original fails at a size, the result fails, too: what would hide an error stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.runtime import RuntimeFailure, Session


def parsed(body: str, signature: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {signature} {body}')
    onnx.checker.check_model(model)
    return model


def runs(model: onnx.ModelProto, feeds: dict[str, Any]) -> bool:
    try:
        Session(model).run(feeds)
    except RuntimeFailure:
        return False
    return True


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


CASES = {
    "a Reshape to a fixed size": (
        "{ t = Constant<value = int64[2] {2, 3}>() a = Reshape(x, t) y = Relu(a) }",
        "(float[2,K] x) => (float[2,3] y)",
        {"x": ones(2, 4)},
    ),
    "a Reshape to the shape of another": (
        "{ s = Shape(w) a = Reshape(x, s) y = Relu(a) }",
        "(float[N,K] x, float[N,M] w) => (float[N,M] y)",
        {"x": ones(2, 4), "w": ones(2, 3)},
    ),
    "a Reshape that does not divide": (
        """{ t = Constant<value = int64[2] {-1, 6}>() u = Constant<value = int64[1] {-1}>()
            a = Reshape(x, t) y = Reshape(a, u) }""",
        "(float[N,K] x) => (float[M] y)",
        {"x": ones(2, 5)},
    ),
    "a Squeeze of what is not 1": (
        """{ first = Constant<value = int64[1] {0}>() second = Constant<value = int64[1] {1}>()
            a = Squeeze(x, first) y = Unsqueeze(a, second) }""",
        "(float[N,M] x) => (float[M,1] y)",
        {"x": ones(2, 5)},
    ),
    "an Expand of another size": (
        "{ s = Shape(w) e = Expand(x, s) y = Add(a, e) }",
        "(float[1] x, float[M] w, float[5] a) => (float[5] y)",
        {"x": ones(1), "w": ones(3), "a": ones(5)},
    ),
    "a Split of other sizes": (
        "{ s = Constant<value = int64[2] {1, 3}>() p, q = Split<axis = 0>(x, s) y = Concat<axis = 0>(p, q) }",
        "(float[K] x) => (float[K] y)",
        {"x": ones(5)},
    ),
    "a number everywhere, of another size": (
        "{ s = Shape(w) c = ConstantOfShape<value = float[1] {1.0}>(s) y = Add(b, c) }",
        "(float[M] w, float[5] b) => (float[5] y)",
        {"w": ones(3), "b": ones(5)},
    ),
    "an index outside": (
        """{ s = Shape(w) c = ConstantOfShape<value = float[1] {1.0}>(s) g = Gather(c, i) y = Add(b, g) }""",
        "(float[M] w, float[N] b, int64[N] i) => (float[N] y)",
        {"w": ones(3), "b": ones(2), "i": np.array([0, 5])},
    ),
    "a mask of another size": (
        """{ s = Shape(w) t = ConstantOfShape<value = bool[1] {1}>(s) k = And(t, m)
            p = Constant<value = float {0.0}>() q = Constant<value = float {-9.0}>()
            v = Where(k, p, q) y = Add(a, v) }""",
        "(float[M] w, bool[1] m, float[5] a) => (float[5] y)",
        {"w": ones(3), "m": np.array([True]), "a": ones(5)},
    ),
    "a Gemm of longer rows": (
        """{ w = Constant<value = float[2,1] {1.0, 2.0}>() s = Shape(x) at = Constant<value = int64[1] {0}>()
            two = Constant<value = int64[1] {2}>() one = Constant<value = int64[1] {1}>() lead = Slice(s, at, two)
            t = Concat<axis = 0>(lead, one) f = Flatten<axis = 1>(x) g = Gemm(f, w) y = Reshape(g, t) }""",
        "(float[N,T,2] x) => (float[N,T,1] y)",
        {"x": ones(2, 3, 2)},
    ),
    "a state of another batch": (
        "{ s = Shape(z) h = ConstantOfShape(s) all, y = RNN<hidden_size = 3>(x, w, r, , , h) }",
        "(float[S,N,2] x, float[1,3,2] w, float[1,3,3] r, float[1,M,3] z) => (float[1,N,3] y)",
        {"x": ones(4, 2, 2), "w": ones(1, 3, 2), "r": ones(1, 3, 3), "z": ones(1, 5, 3)},
    ),
}


@pytest.mark.parametrize("verify", ["off", "strict"])
@pytest.mark.parametrize("name", CASES)
def test_what_fails_still_fails(name: str, verify: str) -> None:
    body, signature, feeds = CASES[name]
    model = parsed(body, signature)
    assert not runs(model, feeds)
    result = sp.optimize(model, verify=sp.Verify(mode=verify, end_check=False))
    assert not runs(result.proto, feeds), onnx.printer.to_text(result.proto.graph)
