"""A region that is a Loop: how often it turns when it is compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from surgeon_passes.index import Scope
from surgeon_passes.region import Exactness, NodeImage, Region
from surgeon_passes.verify import batches
from surgeon_passes.verify.batches import check

from .regions import FLOAT, graph_of, typed

STEP = "{ c2 = Identity(c) g = Add(s, s) t = Tanh(g) s2 = Identity(t) }"
COUNTS = "{ c2 = Identity(c) one = Constant<value = float {1}>() s2 = Add(s, one) }"
TYPES = typed(x=(FLOAT, [2, 3]))


def loop(body: str, x: gs.Tensor, turns: gs.Constant, result: str) -> NodeImage:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,3] x, int64 m) => (float[2,3] y) {{
            true = Constant<value = bool {{1}}>()
            y = Loop(m, true, x) <body = b (int64 i, bool c, float[2,3] s) => (bool c2, float[2,3] s2) {body}>
        }}""")
    graph = gs.import_onnx(model)
    (node,) = (n for n in graph.nodes if n.op == "Loop")
    for inner in node.attrs["body"].nodes:
        for place in (k for k, t in enumerate(inner.inputs) if t.name == "m"):
            inner.inputs[place] = turns
    go = gs.Constant("go", np.array(True))
    return NodeImage(node, (turns, go, x), (gs.Variable(result),))


def pair(before: str, after: str, turns: Any = 500, after_turns: Any = None) -> Region:
    x, count = gs.Variable("x"), gs.Constant("m", np.array(turns))
    other = count if after_turns is None else gs.Constant("m2", np.array(after_turns))
    one, two = loop(before, x, count, "y"), loop(after, x, other, "y2")
    outputs = ((one.outputs[0], two.outputs[0]),)
    return Region(Scope(graph_of(), "", opsets={"": 17}), (one,), (two,), outputs, Exactness.EXACT)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    found: list[int | None] = []
    real = batches.Session.run

    def run(self: Any, feeds: dict[str, Any], outputs: Any = None) -> Any:
        found.append(next((int(x) for x in feeds.values() if x.dtype == np.int64), None))
        return real(self, feeds, outputs)

    monkeypatch.setattr(batches.Session, "run", run)
    return found


def test_a_long_loop_makes_all_its_turns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = counted(monkeypatch)
    other = STEP.replace("Add(s, s)", "Mul(two, s)").replace("{ c2", "{ two = Constant<value = float {2}>() c2")
    assert check([pair(STEP, other)], TYPES, graph_of())[0].status == "verified"
    assert turns == [500, 4, 4, 4]


def test_a_short_loop_turns_as_often_as_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = counted(monkeypatch)
    assert check([pair(STEP, STEP, 3)], TYPES, graph_of())[0].status == "verified"
    assert turns == [3] * 4


@pytest.mark.parametrize("turn", [0, 1, 3, 40, 100, 499])
def test_a_turn_that_differs_is_refuted(turn: int) -> None:
    wrong = f"""{{ c2 = Identity(c) k = Constant<value = int64 {{{turn}}}>() e = Equal(i, k) n = Neg(s)
        p = Where(e, n, s) g = Add(p, p) t = Tanh(g) s2 = Identity(t) }}"""
    assert check([pair(STEP, wrong)], TYPES, graph_of())[0].status == "refuted"


@pytest.mark.parametrize(("turns", "status"), [(500, "verified"), (400, "refuted"), (501, "refuted")])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_count_that_differs_is_refuted(shape: tuple[int, ...], turns: int, status: str) -> None:
    """Cut to a few, both would turn equally often."""
    one = pair(COUNTS, COUNTS, np.full(shape, 500), np.full(shape, turns))
    assert check([one], TYPES, graph_of())[0].status == status


def test_a_count_that_is_read_in_the_body_too_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = counted(monkeypatch)
    reads = "{ c2 = Identity(c) f = Cast<to = 1>(m) g = Add(s, f) s2 = Tanh(g) }"
    assert check([pair(reads, reads)], TYPES, graph_of())[0].status == "verified"
    assert turns == [None] * 4
