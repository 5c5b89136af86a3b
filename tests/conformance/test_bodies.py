"""Rules work inside If, Loop, Scan and functions, two deep; never across their borders."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import surgeon_passes as sp
from tests.e2e.holds import operators
from tests.models import floats, model, run, same

WEIGHTS = {
    "w": floats(4, 4, 1, 1), "s": floats(4, seed=1), "b": floats(4, seed=2), "m": floats(4, seed=3),
    "v": np.abs(floats(4, seed=4)) + 0.5,
}  # fmt: skip
X = "float[1,4,3,3]"
NORM = "BatchNormalization({}, s, b, m, v)"
PAIR = f"c = Conv({{}}, w) {{}} = {NORM.format('c')}"
"""what fuses to one Conv"""


def branch(name: str, body: str, result: str = "r") -> str:
    return f"{name} = {name[0]} () => ({X} {result}) {{ {body} }}"


def two(then: str, other: str, result: str = "y", condition: str = "p") -> str:
    return f"{result} = If({condition})<{branch('then_branch', then)}, {branch('else_branch', other)}>"


CASES = {
    "in both branches, twins by name": (two(PAIR.format("x", "r"), PAIR.format("x", "r")), {"If": 1, "Conv": 2}),
    "the input is captured from around two bodies": (
        f"a = Neg(x) {two(two(PAIR.format('a', 'r'), 'r = Exp(a)', 'r', 'q'), 'r = Abs(a)')}",
        {"Neg": 1, "If": 2, "Conv": 1, "Exp": 1, "Abs": 1},
    ),
    "the Conv is outside": (
        f"c = Conv(x, w) {two('r = ' + NORM.format('c'), 'r = Exp(c)')}",
        {"Conv": 1, "If": 1, "BatchNormalization": 1, "Exp": 1},
    ),
    "the Conv is read outside and inside": (
        f"c = Conv(x, w) n = {NORM.format('c')} {two('r = Sub(c, n)', 'r = Exp(n)')}",
        {"Conv": 1, "BatchNormalization": 1, "If": 1, "Sub": 1, "Exp": 1},
    ),
    "the BatchNormalization is outside, the Conv in a branch": (
        two("r = Conv(x, w)", "r = Exp(x)", "c") + f" y = {NORM.format('c')}",
        {"If": 1, "Conv": 1, "Exp": 1, "BatchNormalization": 1},
    ),
    "the Conv is in one body, its reader in a body inside": (
        two(f"c = Conv(x, w) {two('r = ' + NORM.format('c'), 'r = Exp(c)', 'r', 'q')}", "r = Exp(x)"),
        {"If": 2, "Conv": 1, "BatchNormalization": 1, "Exp": 2},
    ),
    "an inner name is that of a later outer tensor": (
        f"{two(PAIR.format('x', 'r'), 'c = Neg(x) r = Exp(c)', 'z')} c = Conv(z, w) y = {NORM.format('c')}",
        {"If": 1, "Conv": 2, "Neg": 1, "Exp": 1},
    ),
    "in a Loop, with what a body inside captures": (
        f"""y = Loop(three, yes, x)<body = l (int64 i, bool go, {X} h) => (bool go_on, {X} k) {{
            go_on = Identity(go)
            {PAIR.format("h", "n")}
            {two("r = Add(n, x)", "r = Sub(n, h)", "k", "q")}
        }}>""",
        {"Loop": 1, "Conv": 1, "If": 1, "Add": 1, "Sub": 1, "Identity": 1},
    ),
    "in a Scan": (
        f"""a = Neg(x) y, t = Scan<num_scan_inputs = 1, body = l ({X} h, float e) => ({X} k, {X} o) {{
            {PAIR.format("h", "n")}
            k = Add(n, a)
            o = Mul(n, e)
        }}>(x, two)""",
        {"Neg": 1, "Scan": 1, "Conv": 1, "Add": 1, "Mul": 1},
    ),
    "a condition that is known": (
        two(PAIR.format("x", "r"), "r = Exp(x)", "y", "yes"),
        {"Conv": 1},
    ),
    "a known condition inside an unknown one": (
        two(two(PAIR.format("x", "r"), "r = Exp(x)", "r", "yes"), two("r = Neg(x)", "r = Abs(x)", "r", "q")),
        {"If": 2, "Conv": 1, "Neg": 1, "Abs": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", ["strict", "off"])
def test_bodies(name: str, mode: str) -> None:
    """Equal for every choice of branches, and exactly those operators are left."""
    text, left = CASES[name]
    constants = {**WEIGHTS, "three": np.int64(3), "yes": np.array(True), "two": np.float32([1, 2])}
    proto = model(f"g ({X} x, bool p, bool q) => ({X} y) {{ {text} }}", opset=18, **constants)
    onnx.checker.check_model(proto, full_check=True)
    result = sp.optimize(proto, verify=mode)
    assert Counter({k: n for k, n in operators(result.proto).items() if k != "Identity"}) == Counter(
        {k: n for k, n in left.items() if k != "Identity"}
    )
    assert result.undone == [] and result.checker_error == ""
    for p, q in product([True, False], repeat=2):
        _close(proto, result.proto, x=floats(1, 4, 3, 3, seed=9), p=np.array(p), q=np.array(q))


def _close(before: onnx.ModelProto, after: onnx.ModelProto, **feeds: Any) -> None:
    wanted, found = run(before, **feeds), run(after, **feeds)
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5 * float(np.abs(value).max()))


FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 18, "pkg" : 1]>
g (float[1,4,5,5] x, bool p, float[4,4,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v)
    => (float[1,4,5,5] y, float[1,4,5,5] z) {
    y = pkg.Block<pads = [1, 1, 1, 1], slope = 0.5>(x, w, s, b, m, v)
    z = If(p)<then_branch = t () => (float[1,4,5,5] r) { r = pkg.Block<pads = [1, 1, 1, 1]>(y, w, s, b, m, v) },
              else_branch = e () => (float[1,4,5,5] r) { r = pkg.Twice(y) }>
}
<domain: "pkg", opset_import: ["" : 18, "pkg" : 1]>
Block <pads, slope: float = 0.1>(x, w, s, b, m, v) => (y) {
    i = Identity(x)
    c = Conv<pads: ints = @pads>(i, w)
    n = BatchNormalization(c, s, b, m, v)
    d = Dropout(n)
    y = LeakyRelu<alpha: float = @slope>(d)
}
<domain: "pkg", opset_import: ["" : 18]>
Twice (x) => (y) {
    t = Transpose<perm = [0, 1, 3, 2]>(x)
    y = Transpose<perm = [0, 1, 3, 2]>(t)
}
"""


@pytest.mark.parametrize("mode", ["strict", "off"])
@pytest.mark.parametrize("inline", [False, True])
def test_functions_with_references_to_attributes(mode: str, inline: bool) -> None:
    """What rules do in a body of which neither sizes nor attributes are known."""
    proto = onnx.parser.parse_model(FUNCTIONS)
    onnx.checker.check_model(proto, full_check=True)
    result = sp.optimize(proto, verify=mode, inline_functions=inline)
    assert result.checker_error == "" and result.undone == []
    left = operators(result.proto)
    unknown = (
        mode == "strict" and not inline
    )  # the type of a Conv whose pads are its caller's: not checked, so not applied
    assert left["Transpose"] == 0 and left["Dropout"] == int(unknown)
    assert [f.name for f in result.proto.functions if f.name == "Block"] == ([] if inline else ["Block"])
    if not inline:
        (block,) = (f for f in result.proto.functions if f.name == "Block")
        references = {a.ref_attr_name for n in block.node for a in n.attribute if a.ref_attr_name}
        assert references == {"pads", "slope"} and block.attribute_proto[0].f == np.float32(0.1)
    feeds = {"x": floats(1, 4, 5, 5), "w": floats(4, 4, 3, 3), **{k: WEIGHTS[k] for k in "sbmv"}}
    for p in (True, False):
        same(run(proto, **feeds, p=np.array(p)), run(result.proto, **feeds, p=np.array(p)))
