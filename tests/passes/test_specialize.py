"""Fixed sizes for inputs, and what is said where they cannot be."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from surgeon_passes import Pipeline, Specialize
from surgeon_passes.errors import UsageError
from surgeon_passes.rules.registry import Registry
from tests.models import model

TEXT = "g (float[N,3,H,W] x, float[N,K] z) => (float[N,3,H,W] y, float[N,K] v) { y = Relu(x) v = Neg(z) }"


def dims(value: onnx.ValueInfoProto) -> list[Any]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def specialize(shapes: Any, text: str = TEXT) -> dict[str, list[Any]]:
    result = Pipeline(Specialize(shapes)).run(model(text), registry=Registry())
    onnx.checker.check_model(result.proto, full_check=True)
    return {v.name: dims(v) for v in (*result.proto.graph.input, *result.proto.graph.output)}


def test_a_full_shape_fixes_the_names_in_it_everywhere() -> None:
    assert specialize({"x": [2, 3, 8, 9]}) == {"x": [2, 3, 8, 9], "z": [2, "K"], "y": [2, 3, 8, 9], "v": [2, "K"]}


def test_some_names() -> None:
    assert specialize({"x": {"H": 8}}) == {
        "x": ["N", 3, 8, "W"],
        "z": ["N", "K"],
        "y": ["N", 3, 8, "W"],
        "v": ["N", "K"],
    }


def test_several_inputs_that_agree() -> None:
    assert specialize({"x": {"N": 4, "H": 5, "W": 6}, "z": [4, 7]})["v"] == [4, 7]


def test_zero_is_a_size() -> None:
    assert specialize({"z": [0, 7]})["v"] == [0, 7]


def test_a_name_that_stands_twice_in_one_input() -> None:
    text = "g (float[S,S] x) => (float[S,S] y) { y = Relu(x) }"
    assert specialize({"x": {"S": 4}}, text) == {"x": [4, 4], "y": [4, 4]}


def test_unnamed_dims() -> None:
    text = "g (float[?,3] x) => (float[?,3] y) { y = Relu(x) }"
    assert specialize({"x": [5, 3]}, text) == {"x": [5, 3], "y": [5, 3]}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"w": [1]}, "the model has no input 'w' (its inputs: x, z)"),
        ({"x": [1, 3, 8]}, "input 'x' has rank 4 [N, 3, H, W] in the model; 3 sizes were given (1,3,8)"),
        ({"x": [1, 4, 8, 8]}, "input 'x': dim 1 is 3 in the model, 4 was asked for"),
        ({"x": {"Q": 2}}, "input 'x' has no dim 'Q' (its dims: [N, 3, H, W])"),
        ({"x": {"N": 2}, "z": {"N": 3}}, "dim 'N' is 2 by input 'x' and 3 by input 'z': they must agree"),
        ({"x": [1, 3, -1, 8]}, "input 'x': -1 is not a size; give whole numbers from 0 to 2147483647"),
        ({"x": {"N": True}}, "input 'x': True is not a size; give whole numbers from 0 to 2147483647"),
        ({"x": {"N": 1.5}}, "input 'x': 1.5 is not a size; give whole numbers from 0 to 2147483647"),
    ],
)
def test_messages(shapes: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        specialize(shapes)
    assert str(caught.value) == message


def test_a_name_for_two_sizes_in_one_full_shape() -> None:
    with pytest.raises(UsageError) as caught:
        specialize({"x": [4, 5]}, "g (float[S,S] x) => (float[S,S] y) { y = Relu(x) }")
    assert str(caught.value) == "dim 'S' is 4 by input 'x' and 5 by input 'x': they must agree"


def test_an_input_without_a_rank() -> None:
    proto = model("g (float[N] x) => (float[N] y) { y = Relu(x) }")
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UsageError, match="input 'x' has no rank in the model: give its whole shape, not dim names"):
        Pipeline(Specialize({"x": {"N": 1}})).run(proto, registry=Registry())


def test_sizes_that_the_graph_cannot_have() -> None:
    """MatMul of [N,4] needs K = 4."""
    text = "g (float[N,K] x, float[4,5] w) => (float[N,5] y) { y = MatMul(x, w) }"
    assert specialize({"x": [3, 4]}, text)["y"] == [3, 5]
