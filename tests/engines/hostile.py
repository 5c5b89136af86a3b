"""Legal models with which ONNX Runtime does not come back: it crashes, it hangs, it asks for more than there is."""

from __future__ import annotations

import onnx
from onnx import ModelProto, helper, parser

CHANNELS = "float[2] s = {1,2}, float[2] b = {3,4}, float[2] m = {5,6}, float[2] v = {7,8}"


def crashing() -> ModelProto:
    """A BatchNormalization that trains, its statistics unnamed (ONNX Runtime dies of it), beside what is all well."""
    model = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,2,4,4] x) => (float[N,2,4,4] y, float[N,2,4,4] z) <{CHANNELS}> {{
            [trains] n = BatchNormalization <training_mode = 1> (x, s, b, m, v)
            p = Relu (n)
            y = Relu (p)
            q = Identity (x)
            z = Abs (q)
        }}
    """)
    model.graph.node[0].output.extend(["", ""])
    onnx.checker.check_model(model, full_check=True)
    return model


def endless() -> ModelProto:
    """A Loop that turns 2^62 times."""
    model = parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[4] x) => (float[4] y) {
            n = Constant <value = int64 {4611686018427387904}> ()
            c = Constant <value = bool {1}> ()
            q = Identity (x)
            y = Loop (n, c, q) <body = b (int64 i, bool go, float[4] a) => (bool on, float[4] r) {
                on = Identity (go)
                r = Neg (a)
            }>
        }
    """)
    onnx.checker.check_model(model, full_check=True)
    return model


def boundless(elements: int) -> ModelProto:
    """As many floats as one asks for, and their sum."""
    size = helper.make_tensor("size", onnx.TensorProto.INT64, [1], [elements])
    nodes = [
        helper.make_node("Add", ["size", "more"], ["n"]),
        helper.make_node("ConstantOfShape", ["n"], ["a"]),
        helper.make_node("ReduceSum", ["a"], ["y"], keepdims=0),
    ]
    more = helper.make_tensor_value_info("more", onnx.TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])
    graph = helper.make_graph(nodes, "g", [more], [y], [size])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
