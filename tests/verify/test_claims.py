"""Sizes that the evaluator gets wrong are refuted where a Shape reads them, the end check off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import surgeon_passes as sp
from surgeon_passes.errors import ModelError
from surgeon_passes.index import Scope
from surgeon_passes.region import Exactness
from surgeon_passes.runtime import RuntimeFailure, Session
from surgeon_passes.values import dims, registry
from surgeon_passes.verify import (
    Activations,
    Sample,
    activations,
    check,
    generate_samples,
    may_be_asked,
    observed_samples,
)
from surgeon_passes.verify.claims import with_shapes
from tests.models import model as parsed
from tests.values.build import model
from tests.values.test_shapes import CASES

from .regions import FLOAT, Sym, graph_of, region, typed

ORIGINAL = parsed("g (float[N,3] x) => (int64[2] y) { h = Concat<axis = 0>(x, x) y = Shape(h) }")
FEEDS = [{"x": np.zeros((n, 3), np.float32)} for n in (2, 5)]
FOLDED = region(
    "y = Shape(h)", "", [("y", "Y")], constants={"Y": np.array([4, 3])}, exactness=Exactness.EXACT
)  # right at one size


def verdict(dim: object, feeds: Sequence[dict[str, Any]]) -> Any:
    types = typed(h=(FLOAT, [dim, 3]))
    return check(
        [FOLDED], types, graph_of(), activations=Activations(ORIGINAL, None, lambda: [Sample(f) for f in feeds])
    )[0]


def test_a_size_is_held_against_the_original() -> None:
    assert verdict(4, FEEDS[:1]).status == "verified"
    found = verdict(4, FEEDS)
    assert found.status == "refuted"
    assert found.reason == "'h' is taken for [4, 3], and has [10, 3]"


def test_the_run_that_shows_feeds_to_be_legal_shows_sizes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original is neither loaded nor run once more."""
    assert may_be_asked(ORIGINAL) == ["h"]
    plain, seeing = generate_samples(ORIGINAL), observed_samples(ORIGINAL, ["h"])
    assert [s.shapes for s in plain] == [{}, {}]
    assert [s.shapes["h"] for s in seeing] == [(2 * s.feeds["x"].shape[0], 3) for s in seeing]
    for a, b in zip(plain, seeing, strict=True):
        np.testing.assert_equal((a.feeds, a.outputs), (b.feeds, b.outputs))

    monkeypatch.setattr(activations, "open_model", lambda *_, **__: pytest.fail("it was loaded again"))
    real = Activations(ORIGINAL, None, lambda: seeing)
    assert [found["h"] for _, found in real.shapes(["h"])] == [(4, 3), (2, 3)]


def test_a_model_in_which_shapes_cannot_be_seen_is_run_as_it_is() -> None:
    """Nothing is asked that would keep feeds from being found; names that are taken are not taken again."""
    taken = parsed("g (float[N,3] x) => (int64[2] y) { h = Neg(x) s = Shape(h) y = Identity(s) }")
    taken.graph.node[1].output[0] = taken.graph.node[2].input[0] = "h~shape"
    seeing, outputs = with_shapes(taken, ["h"])
    assert outputs == ["h~shape~"]
    assert [node.op_type for node in seeing.graph.node] == ["Neg", "Shape", "Shape", "Identity"]
    (found,) = observed_samples(ORIGINAL, ["lacking"], {"N": 4})
    assert found.shapes == {} and found.outputs is not None
    assert found.outputs["y"].tolist() == [8, 3]


def test_a_result_that_is_left_out_computes_no_size() -> None:
    proto = parsed(
        """g (float[N,4] x, float[4] s) => (int64[2] n, float[any] y, float[any] z) {
        n = Shape(x) y, mask = Dropout(x) q = Neg(x) z = Resize(q, mask, s) }"""
    )
    assert may_be_asked(proto) == ["q"]
    proto.graph.node[1].output[1] = proto.graph.node[3].input[1] = ""
    assert may_be_asked(proto) == []


def test_a_size_may_be_asked_of_what_an_operator_of_a_computed_size_works_on() -> None:
    proto = parsed(
        """g (float[N,4] x, float[2] fixed) => (float[any] y, float[any] z) { s = Shape(x) k = Constant<value_ints=[4]>()
        r = Relu(x) y = Reshape(r, s) q = Neg(x) z = Reshape(q, k) }"""
    )
    assert may_be_asked(proto) == ["r"]
    assert may_be_asked(parsed("g (float[4] x, int64[1] s) => (float[any] y) { r = Relu(x) y = Reshape(r, s) }")) == []


def test_named_dims_are_those_of_the_inputs() -> None:
    asked = region("s = Shape(h)\ny = Identity(s)", "y2 = Shape(h)", exactness=Exactness.EXACT)
    for dim, status in ((Sym("N", 2), "verified"), (Sym("N", 2, 1), "refuted"), (Sym("other"), "verified")):
        types = typed(h=(FLOAT, [dim, 3]))
        (found,) = check(
            [asked], types, graph_of(), activations=Activations(ORIGINAL, None, lambda: [Sample(f) for f in FEEDS])
        )
        assert found.status == status, found


def test_names_in_a_function_are_its_own() -> None:
    """There, h is another tensor."""
    inside = replace(FOLDED, scope=Scope(FOLDED.scope.graph, "function pkg.F", opsets={"": 17}, is_function=True))
    types = typed(h=(FLOAT, [4, 3]))
    (found,) = check(
        [inside], types, graph_of(), activations=Activations(ORIGINAL, None, lambda: [Sample(f) for f in FEEDS])
    )
    assert found.status == "verified"


# --- shape functions that are wrong --------------------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, op: str, axis: int) -> None:
    """The shape function of the operator gives one more along ``axis``."""

    def spoiled(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda n: [_one_more(shape, axis) for shape in function(n)]

    entries = [replace(e, function=spoiled(e.function)) for e in registry._SHAPES[op]]
    monkeypatch.setitem(registry._SHAPES, op, entries)
    registry.shape_entry.cache_clear()


def _one_more(shape: Any, axis: int) -> Any:
    if shape is None or len(shape) <= axis or shape[axis] is None:
        return shape
    return (*shape[:axis], dims.add(shape[axis], 1), *shape[axis + 1 :])


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    registry.shape_entry.cache_clear()


def shape_of_result(number: int) -> tuple[onnx.ModelProto, str, int]:
    """The case's nodes with something that reads one dim of the result; the operator that is spoilt, and the axis."""
    nodes, constants, expected = CASES[number]
    ops = [op for op in re.findall(r"= (\w+)[<(]", nodes) if op not in ("Identity", "Cast", "Shape")]
    axis = number % len(expected.split())
    text = f"""(float[N,4,H,W] x) => (int64[1] o1, float[any] o2) {{
        {nodes} m1 = Shape(y) o1 = Slice(m1, k1, k2)
        m2 = Cast<to=1>(y) m3 = Neg(m2) m4 = Concat<axis=0>(o1, k3) o2 = Reshape(m3, m4) }}"""
    ends = {"k1": np.array([axis]), "k2": np.array([axis + 1]), "k3": np.array([-1])}
    proto = model(text, **constants, **ends)
    proto.graph.output[1].type.tensor_type.ClearField("shape")
    return proto, ops[-1], axis


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_a_wrong_shape_function_changes_nothing(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    proto, op, axis = shape_of_result(number)
    if op not in registry._SHAPES:
        pytest.fail(f"{op} has no shape function")
    spoil(monkeypatch, op, axis)
    try:
        result = sp.optimize(proto, verify=sp.Verify(end_check=False))
    except ModelError as error:
        assert "onnx infers" in str(error)
        return
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4, 9, 12)).astype(np.float32)}
    try:
        expected = Session(proto).run(feeds)
    except RuntimeFailure:
        return
    found = Session(result.proto).run(feeds)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
