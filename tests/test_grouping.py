"""Groups that a model shows by itself."""

from __future__ import annotations

import onnx

import surgeon_passes as sp
from tests.models import model, seconds


def found(text: str, kind: str) -> dict[str, tuple[int, int, tuple[str, ...], tuple[str, ...]]]:
    return {g.name: (g.depth, g.nodes, g.inputs, g.outputs) for g in sp.groups(model(text)) if g.kind == kind}


MODULES = """g (float[2] x) => (float[2] y) {
    [/m/enc/l.0/att/q] a = Abs (x)
    [/m/enc/l.0/att/k] k = Constant <value_floats = [1.0, 2.0]> ()
    [/m/enc/l.0/att/a] b = Add (a, k)
    [/m/enc/l.0/ffn] c = Relu (b)
    [/m/enc/l.1/ffn] d = Relu (c)
    [/m/enc/l.1/out] e = Add (d, c)
    [/m/head] f = Neg (e)
    [plain] y = Abs (f)
}"""


def test_modules_are_prefixes_of_names() -> None:
    assert found(MODULES, "module") == {
        "/m": (0, 6, ("x",), ("f",)),
        "/m/enc/l": (1, 5, ("x",), ("e",)),
        "/m/enc/l.0": (2, 3, ("x",), ("c",)),
        "/m/enc/l.0/att": (3, 2, ("x",), ("b",)),
        "/m/enc/l.1": (2, 2, ("c",), ("e",)),
    }


def test_dots_separate_as_well() -> None:
    text = "g (float[2] x) => (float[2] y) { [s.a] a = Abs (x) [s.b] b = Neg (a) [t] y = Relu (b) }"
    assert found(text, "module") == {"s": (0, 2, ("x",), ("b",))}


BLOCKS = """g (float[2] x) => (float[2] y) {
    a = Abs (x)  b = Neg (x)  c = Add (a, b)
    d = Relu (c)
    e = Abs (d)  f = Mul (d, e)
    g1 = Neg (f)  h = Relu (g1)  i = Add (g1, f)  y = Mul (h, i)
}"""


def test_regions_lie_between_single_tensors() -> None:
    assert found(BLOCKS, "region") == {
        "region1": (0, 3, ("x",), ("c",)),
        "region2": (0, 3, ("c",), ("f",)),  # a node alone goes with what follows
        "region3": (0, 4, ("f",), ("y",)),
    }


def test_a_side_input_is_no_hindrance_before_it_enters() -> None:
    text = """g (float[2] x, float[2] mask) => (float[2] y) {
        a = Abs (x)  b = Neg (x)  c = Add (a, b)
        d = Add (c, mask)  e = Abs (c)  f = Add (d, e)
        h = Relu (f)  y = Add (h, f) }"""
    regions = found(text, "region")
    assert regions["region1"] == (0, 6, ("x", "mask"), ("f",))
    assert regions["region2"] == (0, 2, ("f",), ("y",))


def test_constants_and_their_arithmetic_are_no_hindrance() -> None:
    text = """g (float[2] x) => (float[2] y) {
        k = Constant <value_floats = [1.0, 2.0]> ()  l = Abs (k)
        a = Add (x, l)  b = Neg (x)  c = Add (a, b)
        d = Add (c, k)  e = Abs (c)  y = Add (d, e) }"""
    regions = found(text, "region")
    assert regions["region1"] == (0, 4, ("x",), ("c",))
    assert regions["region2"] == (0, 3, ("c",), ("y",))


def test_each_head_is_a_region_of_its_own() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) {
        a = Abs (x)  b = Neg (x)  c = Add (a, b)
        d = Relu (c)  e = Neg (c)  y = Add (d, e)
        f = Abs (c)  h = Mul (c, f)  z = Sub (h, c) }"""
    assert found(text, "region") == {
        "region1": (0, 3, ("x",), ("c",)),
        "region2": (0, 3, ("c",), ("y",)),
        "region3": (0, 3, ("c",), ("z",)),
    }


def test_what_bodies_read_counts() -> None:
    text = """g (float[2] x, bool p) => (float[2] y) {
        a = Abs (x)  b = Neg (x)  c = Add (a, b)
        [m.if] d = If (p) <then_branch = t () => (float[2] q) { q = Add (c, x) }, else_branch = e () => (float[2] r)
            { r = Relu (c) }>
        [m.neg] y = Neg (d) }"""
    assert found(text, "module") == {"m": (0, 2, ("p", "c", "x"), ("y",))}
    assert found(text, "region") == {"region1": (0, 4, ("x", "p"), ("d",))}


def test_heads_that_share_more_than_a_tensor_are_one_region() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) {
        a = Abs (x)  b = Neg (x)  c = Add (a, b)  y = Mul (b, c)  z = Sub (c, a) }"""
    assert found(text, "region") == {"region1": (0, 5, ("x",), ("y", "z"))}


def test_dead_ends_are_no_regions() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Abs (x)  b = Neg (a)  c = Add (a, b)  y = Relu (x)  d = Neg (c) }"
    assert found(text, "region") == {}


def test_a_model_without_nodes() -> None:
    assert sp.groups(model("g (float[2] x) => (float[2] x) { }")) == []


def chain(length: int) -> onnx.ModelProto:
    lines = [f"[m{n // 10}.n{n}] t{n + 1} = Abs (t{n})  u{n + 1} = Add (t{n + 1}, t{n})" for n in range(length)]
    body = "\n".join(lines).replace(f"u{length} =", "y =")
    return model(f"g (float[2] t0) => (float[2] y) {{ {body} }}")


def test_linear_in_the_number_of_nodes() -> None:
    small, large = chain(500), chain(4000)
    assert len(sp.groups(small)) >= 50
    assert seconds(lambda: sp.groups(large)) < 24 * seconds(lambda: sp.groups(small))
