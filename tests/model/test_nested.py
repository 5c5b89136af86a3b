"""Graphs inside nodes."""

from __future__ import annotations

import onnx
from onnx import helper

from surgeon_passes.model.nested import bodies, every_node, graphs_in


def graph(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [])


def test_bodies_at_any_depth() -> None:
    leaf = helper.make_node("Relu", ["x"], ["y"], name="leaf")
    inner = helper.make_node("If", ["c"], ["y"], name="inner", then_branch=graph("a", leaf), else_branch=graph("b"))
    outer = helper.make_node("Own", [], [], name="outer", domain="own", several=[graph("c", inner), graph("d")])
    assert [body.name for body in bodies(outer)] == ["c", "d"]
    assert sorted(body.name for body in bodies(inner)) == ["a", "b"]
    assert sorted(node.name for node in every_node([outer])) == ["inner", "leaf", "outer"]
    assert list(every_node([])) == []


def test_what_holds_no_graph() -> None:
    assert graphs_in(helper.make_attribute("axis", 1)) == []
    assert list(bodies(helper.make_node("Relu", ["x"], ["y"]))) == []
