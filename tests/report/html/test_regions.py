"""Drawings of regions: what is read and made on each side."""

from __future__ import annotations

from typing import Any

import pytest

import surgeon_passes as sp
from surgeon_passes.report.html.regions import Names, dims, drawing_of

from ...models import floats, model


def drawn(text: str, rule: str, **constants: Any) -> tuple[dict[str, Any], list[str]]:
    """The drawing of the first match of a rule, and the names of its tensors."""
    record = sp.optimize(model(text, **constants), record=True).record()
    region = next(m["region"] for m in record["matches"] if m["rule"] == rule and m["status"] == "applied")
    names = Names()
    drawing = drawing_of(region, names)
    return drawing, [name for name, _ in names.found]


def edges(side: list[Any], names: list[str]) -> list[tuple[list[str], str, list[str]]]:
    return [([names[i] for i in reads], op, [names[i] for i in makes]) for op, _, reads, makes, _ in side]


def test_a_fold_before_and_after() -> None:
    text = """
    g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
        [conv] c = Conv <pads = [1, 1, 1, 1], group = 2> (x, w)
        [bn] y = BatchNormalization (c, s, b, m, v)
    }
    """
    statistics = {name: abs(floats(4, seed=n)) + 0.5 for n, name in enumerate("sbmv")}
    drawing, names = drawn(text, "fold_batch_norm_into_conv", w=floats(4, 2, 3, 3), **statistics)
    assert sorted(edges(drawing["before"], names)) == [
        (["c"], "BatchNormalization", ["y"]),
        (["x"], "Conv", ["c"]),
    ]
    assert edges(drawing["after"], names) == [(["x"], "Conv", ["y"])]
    assert [names[i] for i in drawing["inputs"]] == ["x"]
    assert [[names[i] for i in pair] for pair in drawing["outputs"]] == [["y", "y"]]
    assert [node[4] for node in drawing["after"]] == ["3×3, 2 groups"]


def test_a_tensor_that_passes_through() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Relu (x)\n b = Identity (a)\n y = Neg (b) }"
    drawing, names = drawn(text, "drop_identity")
    assert edges(drawing["before"], names) == [(["a"], "Identity", ["b"])]
    assert drawing["after"] == []
    assert [names[i] for i in drawing["inputs"]] == ["a"]
    assert [[names[i] for i in pair] for pair in drawing["outputs"]] == [["b", "a"]]


def test_a_constant_that_stands_for_a_result() -> None:
    text = """
    g (float[2, 3] x) => (float[2, 3] y, int64[2] t) {
        s = Shape (x)
        k = Mul (s, two)
        t = Identity (k)
        y = Relu (x)
    }
    """
    record = sp.optimize(model(text, two=[2, 2]), record=True).record()
    regions = [m["region"] for m in record["matches"] if m["region"] is not None]
    constants = [r for r in regions if any(pair["after"]["constant"] for pair in r["outputs"])]
    assert constants, "nothing was folded: this test shows nothing"
    drawing = drawing_of(constants[0], Names())
    assert "constant" in [node[0] for node in drawing["after"]]
    made = {place for node in drawing["after"] for place in node[3]}
    assert all(after in made for _, after in drawing["outputs"])


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (None, ""),
        ([], "scalar"),
        ([1, "N", None], "1×N×?"),
        (["N", "2*H", "floordiv(H, 2) + 1"], "N×(2*H)×(floordiv(H, 2) + 1)"),
    ],
)
def test_dims(shape: Any, text: str) -> None:
    assert dims(shape) == text


def test_what_tells_a_node_from_others() -> None:
    text = """
    g (float16[1,4,8,8] x) => (float[1,8,4,4] y) {
        f = Cast <to = 1> (x)
        t = Identity (f)
        y = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (t, w)
    }
    """
    record = sp.optimize(model(text, w=floats(8, 4, 3, 3)), record=True).record()
    node = {"label": "", "op": "", "attributes": {}, "inputs": [], "outputs": []}
    region = {
        "removed": [
            {**node, "op": "Cast", "attributes": {"to": 1}},
            {**node, "op": "Conv", "attributes": {"kernel_shape": [3, 3], "strides": [2, 2], "group": 4}},
            {**node, "op": "MaxPool", "attributes": {"kernel_shape": [2, 3], "strides": [1, 2]}},
            {**node, "op": "Transpose", "attributes": {"perm": [0, 2, 1]}},
            {**node, "op": "Relu"},
        ],
        "added": [],
        "inputs": [],
        "outputs": [],
    }
    assert record["matches"][0]["region"].keys() >= region.keys()
    found = [detail for *_, detail in drawing_of(region, Names())["before"]]
    assert found == ["to float", "3×3, stride 2, 4 groups", "2×3, strides 1×2", "perm [0, 2, 1]", ""]
