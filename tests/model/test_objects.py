"""Objects made by hand are what graphsurgeon makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from surgeon_passes.model import Weights, objects
from surgeon_passes.model.constants import TensorValues
from surgeon_passes.model.objects import make_constant, make_node, make_variable
from tests.models import model


def held(made: Any) -> dict[str, Any]:
    """Fields by name; of lists their kind, their owner and the names in them."""
    found = dict(vars(made))
    for side in ("inputs", "outputs"):
        of = found[side]
        found[side] = (type(of), of.parent_obj is made, of.field_name, [t.name for t in of])
    return found


@pytest.mark.parametrize("by_hand", [True, False])
def test_they_are_the_same(by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_LIST", by_hand)
    tensor = model("g (float[2] x) => (float[2] y) { y = Add(x, k) }", k=np.float32([1, 2])).graph.initializer[0]
    values = TensorValues(tensor, Weights())
    assert held(make_variable("t")) == held(gs.Variable("t"))
    assert held(make_constant("k", values)) == held(gs.Constant("k", values))
    x, k, y = make_variable("x"), make_constant("k", values), make_variable("y")
    node = make_node("Add", "n", {"a": 1}, "d", [x, k, x], [y])
    a, b, c = gs.Variable("x"), gs.Constant("k", values), gs.Variable("y")
    other = gs.Node("Add", "n", {"a": 1}, [a, b, a], [c], "d")
    assert held(node) == held(other)
    for ours, theirs in ((x, a), (k, b), (y, c)):
        assert held(ours) == held(theirs)
    assert [n is node for n in x.outputs] == [True, True]


def test_all_fields_are_known() -> None:
    """With this version of graphsurgeon nothing falls back to its constructors."""
    assert objects._VARIABLE and objects._CONSTANT and objects._NODE and objects._LIST


def test_lists_stay_in_step() -> None:
    x, y = make_variable("x"), make_variable("y")
    node = make_node("Relu", "n", {}, None, [x], [y])
    node.inputs[0] = z = make_variable("z")
    assert not x.outputs and z.outputs[0] is node
    node.outputs.clear()
    assert not y.inputs
