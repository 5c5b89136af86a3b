"""Size vectors from few nodes: what the planner writes, and that it says the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surgeon_passes.values import dims
from surgeon_passes.values.dims import Dim
from surgeon_passes.values.expressions import (
    Apply,
    Const,
    Expression,
    Join,
    Pick,
    Scalar,
    ShapeOf,
    Vector,
    nodes_of,
)
from surgeon_passes.values.planner import Planner, Source
from surgeon_passes.values.symbols import Poly

N, H, W = (Poly.symbol(name) for name in "NHW")
IMAGE = Source(0, (N, 3, H, W), 0, True)
HALF: tuple[Dim, ...] = (N, 8, dims.floor_div(H - 1, 2), dims.floor_div(W - 1, 2))
OPERATORS = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": lambda a, b: np.trunc(a / b).astype(np.int64),
    "Mod": np.mod,
    "Min": np.minimum,
    "Max": np.maximum,
}


def planner(*sources: Source, opset: int = 17) -> Planner:
    found = Planner(opset)
    for source in sources:
        found.add(source)
    return found


def evaluate(expression: Expression, shapes: dict[int, tuple[int, ...]]) -> np.ndarray:
    match expression:
        case Const(values=values, scalar=scalar):
            return np.array(values[0] if scalar else values, np.int64)
        case ShapeOf(source=source, start=start, end=end):
            return np.array(shapes[source][start:end], np.int64)
        case Pick(vector=vector, places=places, scalar=scalar):
            return evaluate(vector, shapes)[places[0] if scalar else list(places)]
        case Join(parts=parts):
            return np.concatenate([evaluate(p, shapes) for p in parts])
        case Apply(op=op, first=first, second=second):
            return OPERATORS[op](evaluate(first, shapes), evaluate(second, shapes))
        case Scalar(vector=vector):
            return evaluate(vector, shapes).reshape(())


@pytest.mark.parametrize(
    ("vector", "nodes"),
    [
        ((N, 3, H, W), 1),  # the Shape of the image
        ((H, W), 1),  # a slice of it
        ((N, 1), 2),  # a slice joined with a number
        ((N, 8, H, W), 2),  # the Shape and one Add
        ((N, H, W), 2),  # picked
        ((W, H), 2),
        ((H * 2, W * 2), 2),
        ((dims.floor_div(H, 4), dims.floor_div(W, 4)), 2),
        ((N * 3 * H * W,), None),
        ((H - 1, W - 1), 2),
    ],
)
def test_the_fewest_nodes(vector: Vector, nodes: int | None) -> None:
    found = planner(IMAGE).plan(vector)
    assert found is not None
    if nodes is not None:
        assert len(nodes_of(found)) == nodes, found
    for n, h, w in [(1, 5, 8), (2, 9, 7)]:
        sizes = {"N": n, "H": h, "W": w}
        wanted = [d.evaluate(sizes) if isinstance(d, Poly) else d for d in vector]
        assert evaluate(found, {0: (n, 3, h, w)}).tolist() == wanted


def test_a_tensor_that_has_the_shape_is_asked() -> None:
    found = planner(IMAGE, Source(1, HALF, 3)).plan(tuple(d for d in HALF if d is not None))
    assert found == ShapeOf(1, 0, 4, True)


def test_before_opset_15_runs_are_picked() -> None:
    found = planner(IMAGE, opset=13).plan((H, W))
    assert found == Pick(ShapeOf(0, 0, 4, True), (2, 3))


def test_what_is_made_already_costs_nothing() -> None:
    plans = planner(IMAGE, Source(1, (N, 16, H, W), 2))
    plans.have |= nodes_of(ShapeOf(1, 0, 4, True))
    assert plans.plan((N, 16, H, W)) == ShapeOf(1, 0, 4, True)
    assert plans.cost(ShapeOf(1, 0, 4, True)) == 0


def test_a_scalar() -> None:
    found = planner(IMAGE).plan((H,), scalar=True)
    assert found == Pick(ShapeOf(0, 0, 4, True), (2,), True)


def test_what_no_source_says_has_no_expression() -> None:
    assert planner(IMAGE).plan((Poly.symbol("T"),)) is None


def test_a_size_that_may_be_negative_is_not_divided() -> None:
    """ONNX truncates, floordiv rounds down: they differ below zero."""
    vector = (dims.floor_div(H - 5, 2),)
    assert isinstance(vector[0], Poly)
    found = planner(IMAGE).plan((vector[0],))
    assert found is None or evaluate(found, {0: (1, 3, 2, 2)}).tolist() == [-2]


ATOMS = st.sampled_from([N, H, W, H * 2, N * H, H + 1, W - 1, H * W, N * 3, H - W])
DIVIDED = st.builds(dims.floor_div, ATOMS, st.sampled_from([2, 3, 4]))
SUMS = st.builds(dims.add, DIVIDED, ATOMS)
ELEMENTS = st.one_of(st.integers(-1, 9), ATOMS, DIVIDED, SUMS)


@settings(max_examples=300, deadline=None)
@given(st.lists(ELEMENTS, min_size=1, max_size=5), st.sampled_from([11, 13, 17]), st.booleans())
def test_an_expression_says_what_was_asked(elements: list[int | Poly], opset: int, more: bool) -> None:
    vector = tuple(elements)
    sources = [IMAGE, Source(1, HALF, 3, True)] if more else [IMAGE]
    found = planner(*sources, opset=opset).plan(vector)
    if found is None:
        return
    for n, h, w in [(1, 1, 1), (2, 7, 4), (3, 16, 9)]:
        sizes = {"N": n, "H": h, "W": w}
        wanted = [d.evaluate(sizes) if isinstance(d, Poly) else d for d in vector]
        shapes = {0: (n, 3, h, w), 1: (n, 8, (h - 1) // 2, (w - 1) // 2)}
        assert evaluate(found, shapes).tolist() == wanted, (found, sizes)
