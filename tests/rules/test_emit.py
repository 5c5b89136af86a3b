"""Names, dtypes, attributes, and forms that are legal at the model's opset."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from surgeon_passes.errors import RuleError
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.rule import Decline, Replacement, Rule
from tests.models import floats, model, operators, run
from tests.rules.ground import Ground, make


def emit(rule: Rule, text: str, opset: int = 17, output: str = "y", ir: int = 8, **constants: Any) -> onnx.ModelProto:
    ground = Ground(model(text, opset, ir, **constants))
    ground.apply(rule, output)
    return ground.export()


def initializers(proto: onnx.ModelProto) -> dict[str, Any]:
    return {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}


def scale_weight(match: Match) -> Replacement:
    return Replacement(W=match.w * match.s)


SCALE = make("c = Conv(x, w: const)\ny = Mul(c, s: const)", "y = Conv(x, W)<@c>", scale_weight, tag="scaled")
CONV = "g ({t}[1,1,4] x) => ({t}[1,1,2] y) {{ [conv] c = Conv(x, w) [mul] y = Mul(c, s) }}"


def test_new_constants_are_called_after_what_they_replace() -> None:
    weight = floats(1, 1, 3)
    found = emit(SCALE, CONV.format(t="float"), w=weight, s=np.float32(2))
    assert list(initializers(found)) == ["w.scaled"]
    np.testing.assert_array_equal(initializers(found)["w.scaled"], weight * 2)
    assert [n.name for n in found.graph.node] == ["conv"]


def test_names_stay_unique_where_one_constant_is_used_twice() -> None:
    text = """g (float[1,1,4] x) => (float[1,1,2] y, float[1,1,2] z) {
        c = Conv(x, w) y = Mul(c, s) d = Conv(x, w) z = Mul(d, r)
    }"""
    weight = floats(1, 1, 3)
    ground = Ground(model(text, w=weight, s=np.float32(2), r=np.float32(3)))
    ground.apply(SCALE, "y")
    ground.apply(SCALE, "z")
    found = initializers(ground.export())
    assert sorted(found) == ["w.scaled", "w.scaled_1"]
    np.testing.assert_array_equal(found["w.scaled_1"], weight * 3)


def test_a_shared_constant_is_not_changed() -> None:
    text = "g (float[1,1,4] x) => (float[1,1,2] y, float[1,1,2] z) { c = Conv(x, w) y = Mul(c, s) z = Conv(x, w) }"
    weight = floats(1, 1, 3)
    found = initializers(emit(SCALE, text, w=weight, s=np.float32(2)))
    np.testing.assert_array_equal(found["w"], weight)


def test_a_tag_is_not_repeated() -> None:
    text = "g (float[1,1,4] x) => (float[1,1,2] y) { c = Conv(x, k) y = Mul(c, s) }"
    proto = model(text, s=np.float32(2), k=floats(1, 1, 3))
    proto.graph.initializer[1].name = proto.graph.node[0].input[1] = "w.scaled"
    ground = Ground(proto)
    ground.apply(SCALE)
    assert list(initializers(ground.export())) == ["w.scaled_1"]


@pytest.mark.parametrize(("name", "dtype"), [("float16", np.float16), ("float", np.float32), ("double", np.float64)])
def test_new_constants_have_the_dtype_of_their_operands(name: str, dtype: Any) -> None:
    weight = floats(1, 1, 3).astype(dtype)
    found = emit(SCALE, CONV.format(t=name), w=weight, s=np.asarray(3, dtype))
    value = initializers(found)["w.scaled"]
    assert value.dtype == dtype
    np.testing.assert_array_equal(value, (weight.astype(np.float64) * 3).astype(dtype))


def test_what_overflows_the_dtype_is_declined() -> None:
    with pytest.raises(Decline, match="'W' overflows float16"):
        emit(
            SCALE,
            CONV.format(t="float16"),
            w=np.full((1, 1, 3), 4e4, np.float16),
            s=np.float16(2),
        )


def test_half_precision_weights_with_single_precision_parameters_stay_half() -> None:
    """BatchNormalization-15 lets scale, bias, mean and var be wider than the data."""
    rule = make(
        "c = Conv(x, w: const)\ny = BatchNormalization(c, g: const, b: const, m: const, v: const)",
        "y = Conv(x, W, B)<@c>",
        lambda m: Replacement(
            W=m.w * (m.g / np.sqrt(m.v + m.y.attr("epsilon")))[:, None, None],
            B=m.b - m.m * m.g / np.sqrt(m.v + m.y.attr("epsilon")),
        ),
    )
    text = "g (float16[1,2,4] x) => (float16[1,2,2] y) { c = Conv(x, w) y = BatchNormalization(c, a, b, m, v) }"
    ones = np.ones(2, np.float32)
    found = emit(rule, text, w=floats(2, 2, 3).astype(np.float16), a=ones, b=ones, m=ones, v=ones)
    assert {v.dtype for v in initializers(found).values()} == {np.dtype(np.float16)}


def test_attributes_that_are_none_are_left_out() -> None:
    rule = make(
        "y = Conv(x, w)",
        "y = Conv(x, w)<@y, auto_pad=@mode, pads=@pads>",
        lambda m: Replacement(mode=None, pads=[1, 1]),
    )
    text = 'g (float[1,1,4] x) => (float[1,1,4] y) { y = Conv<auto_pad = "SAME_UPPER", strides = [1]>(x, w) }'
    found = emit(rule, text, w=floats(1, 1, 3)).graph.node[0]
    assert {a.name: onnx.helper.get_attribute_value(a) for a in found.attribute} == {"pads": [1, 1], "strides": [1]}


def test_operands_that_are_none_are_left_out() -> None:
    rule = make("y = Clip(x, low?, high?)", "y = Clip(x, L, H)", lambda m: Replacement(L=None, H=m.high))
    assert list(
        emit(rule, "g (float[2] x) => (float[2] y) { y = Clip(x, k, k) }", k=np.float32(1)).graph.node[0].input
    ) == [
        "x",
        "",
        "k",
    ]
    rule = make("y = Clip(x, low?, high?)", "y = Clip(x, L, H)", lambda m: Replacement(L=m.low, H=None))
    assert list(
        emit(rule, "g (float[2] x) => (float[2] y) { y = Clip(x, k, k) }", k=np.float32(1)).graph.node[0].input
    ) == [
        "x",
        "k",
    ]


def test_the_same_operator_again() -> None:
    rule = make("c = Conv|ConvTranspose(x, w)\ny = Relu(c)", "y = @c(Relu(x), w)<@c>")
    for op in ("Conv", "ConvTranspose"):
        found = emit(
            rule,
            f"g (float[1,1,4] x) => (float[1,1,N] y) {{ c = {op}<strides = [1]>(x, w) y = Relu(c) }}",
            w=floats(1, 1, 3),
        )
        assert operators(found) == ["Relu", op]


def test_literals_take_the_dtype_of_their_place() -> None:
    rule = make("y = Neg(x)", "y = Mul(x, -1)")
    for name, dtype in (("float16", np.float16), ("int64", np.int64), ("double", np.float64)):
        found = emit(rule, f"g ({name}[2] x) => ({name}[2] y) {{ y = Neg(x) }}")
        (value,) = initializers(found).values()
        assert value.dtype == dtype and value == -1


# --- old opsets ----------------------------------------------------------------------------------------------------------

X = "g (float[2,1,3] x) => (float[A,B,C] y) { y = Identity(x) }"
SHAPED = {
    "squeeze": ("y = Unsqueeze(Squeeze(x, [1]), [1])", lambda x: x),
    "unsqueeze": ("y = Squeeze(Unsqueeze(x, [0]), [0])", lambda x: x),
    "sum": ("y = ReduceSum(x, [2])<keepdims=1>", lambda x: x.sum(2, keepdims=True)),
    "mean": ("y = ReduceMean(x, [0, 2])<keepdims=1>", lambda x: x.mean((0, 2), keepdims=True)),
    "clip": ("y = Clip(x, -0.5, 0.5)", lambda x: x.clip(-0.5, 0.5)),
    "clip_low": ("y = Clip(x, -0.5)", lambda x: x.clip(-0.5, None)),
    "pad": ("y = Pad(x, [0, 1, 0, 0, 0, 2], 0.5)", lambda x: np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=0.5)),
    "slice": ("y = Slice(x, [1], [3], [2])", lambda x: x[:, :, 1:3]),
    "split": ("a, b = Split(x, [1, 2])<axis=2>\ny = Concat(b, a)<axis=2>", lambda x: x[:, :, [1, 2, 0]]),
    "reshape": ("y = Reshape(x, [3, 1, 2])", lambda x: x.reshape(3, 1, 2)),
}


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 17, 18, 20, 21])
@pytest.mark.parametrize("case", sorted(SHAPED))
def test_old_forms_are_written_where_the_opset_has_them(case: str, opset: int) -> None:
    rewrite, expected = SHAPED[case]
    rule = make("y = Identity(x)", rewrite, may_grow=True)
    found = emit(rule, X, opset)
    x = floats(2, 1, 3)
    np.testing.assert_allclose(run(found, x=x)["y"], expected(x), rtol=1e-6)


def test_what_an_old_opset_cannot_say_is_declined() -> None:
    cases = {
        "y = Pad(x, [1, 1], 0.5, [1])": (13, "Pad has no axes below opset 18"),
        "y = LayerNormalization(x, x)": (13, "opset 13 has no LayerNormalization"),
        "y = Clip(x, ReduceMin(x)<keepdims=0>)": (10, "Clip bounds must be constant below opset 11"),
        "y = Squeeze(x, Shape(x))": (12, "must be constant below this opset"),
    }
    for rewrite, (opset, reason) in cases.items():
        with pytest.raises(Decline, match=reason):
            emit(make("y = Identity(x)", rewrite), X, opset)


def test_a_function_gives_the_operands_of_a_variadic_name() -> None:
    def reverse(match: Match) -> Replacement:
        return Replacement(All=(*reversed(match.rest), match.x))

    rule = make("y = Concat(x, rest...)", "y = Concat(All...)<@y>", reverse)
    text = "g (float[1] a, float[1] b, float[1] c) => (float[3] y) { y = Concat<axis = 0>(a, b, c) }"
    assert list(emit(rule, text).graph.node[0].input) == ["c", "b", "a"]


def test_a_variadic_name_that_nobody_gives() -> None:
    rule = make("y = Concat(x, rest...)", "y = Concat(All...)<@y>", lambda match: Replacement())
    text = "g (float[1] a, float[1] b) => (float[2] y) { y = Concat<axis = 0>(a, b) }"
    with pytest.raises(RuleError, match=r"needs 'All...', which the function did not return"):
        emit(rule, text)


def test_an_operand_that_the_opset_requires_is_not_left_out() -> None:
    """Before opset 13 a Resize has scales, whatever sizes say."""
    rule = make("y = Resize(x, roi?, scales: const)", "y = Resize(x, roi, scales, Sizes)<@y>", _sizes_alone)
    text = "g (float[1,1,2,2] x, float[N] roi) => (float[1,1,4,4] y) { y = Resize(x, roi, scales) }"
    scales = np.array([1, 1, 2, 2], np.float32)
    with pytest.raises(Decline, match="at opset 11 Resize has to have its operand scales"):
        emit(rule, text, 11, scales=scales)
    found = emit(rule, text, 13, scales=scales)
    onnx.checker.check_model(found)
    assert found.graph.node[0].input[2] == "" and found.graph.node[0].input[3]


def _sizes_alone(_: Match) -> Replacement:
    return Replacement(Sizes=np.array([1, 1, 4, 4], np.int64), scales=None)
