"""Single regions: what is verified, what is refuted, at which sizes and on which inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

from surgeon_passes.index import Scope
from surgeon_passes.region import Exactness, NodeImage, Region, TensorType
from surgeon_passes.verify import batches
from surgeon_passes.verify import trial as trial_module
from surgeon_passes.verify.batches import check

from .regions import (
    BROKEN,
    FLOAT,
    IMAGE,
    Constants,
    Known,
    Sym,
    conv_bn,
    flip_weak_channel,
    graph_of,
    region,
    typed,
    verdict,
)


@pytest.mark.parametrize("group", [1, 2, 8])
def test_correct_fold_stays_below_the_bound(group: int) -> None:
    for found in check([conv_bn(seed=s, group=group) for s in range(30)], IMAGE, graph_of()):
        assert found.status == "verified", found
        assert found.error is not None and 0 < found.error < 3e-6


@pytest.mark.parametrize("break_it", BROKEN)
def test_broken_fold_is_refuted(break_it: Callable[[Constants], None]) -> None:
    found = verdict(conv_bn(break_it))
    assert found.status == "refuted", found
    assert found.tensor == "y"
    assert "bound is 3.0e-06" in found.reason


def test_groups_in_the_wrong_order_are_refuted() -> None:
    def swap(c: Constants) -> None:
        c["W"] = c["W"].reshape(2, 4, 4, 3, 3)[::-1].reshape(8, 4, 3, 3)

    assert verdict(conv_bn(swap, group=2)).status == "refuted"


def test_wrong_epsilon_with_small_variances_is_refuted() -> None:
    good = conv_bn(epsilon=1e-5, var=1e-3)
    wrong = conv_bn(epsilon=2e-5, var=1e-3)
    assert [v.status for v in check([good, wrong], IMAGE, graph_of())] == ["verified", "refuted"]


def test_a_sum_that_cancels_is_no_false_refutation() -> None:
    """mean ~ bias ~ 1e3: what is left of the sum carries its rounding."""

    def move(c: Constants) -> None:
        c["b"] += 1000
        c["mean"] += 1000
        s = c["gamma"].astype(np.float64) / np.sqrt(c["var"].astype(np.float64) + 1e-5)
        c["B"] = (s * (c["b"].astype(np.float64) - c["mean"]) + c["beta"]).astype(np.float32)

    assert verdict(conv_bn(move)).status == "verified"

    def move_and_spoil(c: Constants) -> None:
        move(c)
        c["W"][4] *= 1.01

    assert verdict(conv_bn(move_and_spoil)).status == "refuted"


def test_what_nearly_cancels_on_zeros_alone_takes_no_run_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel is measured by what it is on ordinary inputs; only what that does not excuse asks for noise."""

    def cancel(c: Constants) -> None:
        s = c["gamma"].astype(np.float64) / np.sqrt(c["var"].astype(np.float64) + 1e-5)
        c["beta"][:] = (1e-3 - s * (c["b"].astype(np.float64) - c["mean"])).astype(np.float32)
        c["B"] = (s * (c["b"].astype(np.float64) - c["mean"]) + c["beta"]).astype(np.float32)

    def cancel_and_spoil(c: Constants) -> None:
        cancel(c)
        c["B"][2] += 1e-3

    loaded: list[int] = []
    real = trial_module.Session
    monkeypatch.setattr(trial_module, "Session", lambda *a, **k: (loaded.append(1), real(*a, **k))[1])
    assert verdict(conv_bn(cancel)).status == "verified" and not loaded
    assert verdict(conv_bn(cancel_and_spoil)).status == "refuted" and loaded


def test_a_huge_bias_hides_no_error_in_a_tiny_signal() -> None:
    weight = np.full((4, 4, 1, 1), 0.1, np.float32)
    bias = np.full(4, 1e4, np.float32)
    text = "y{} = Conv(x, {}, b)"
    for factor, status in ((1.0, "verified"), (1.1, "refuted"), (0.0, "refuted")):
        one = region(
            text.format("", "w"), text.format("2", "W"), constants={"w": weight, "W": weight * factor, "b": bias}
        )
        assert verdict(one, typed(x=(FLOAT, [1, 4, 16, 16]))).status == status


def test_a_second_batch_size_takes_one_kind_where_rows_are_computed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[tuple[int, ...]] = []
    real = batches.Session.run

    def counted(self: object, feeds: dict[str, np.ndarray], outputs: object = None) -> object:
        fed.extend(x.shape for x in feeds.values())
        return real(self, feeds, outputs)  # type: ignore[arg-type]

    monkeypatch.setattr(batches.Session, "run", counted)
    batch = typed(x=(FLOAT, [Sym("N"), 8, 56, 56]))
    assert verdict(conv_bn(), batch).status == "verified"
    assert fed == [(2, 8, 7, 7)] * 4 + [(3, 8, 7, 7)]
    fed.clear()
    shaped = region("a = Relu(x)\ny = Flatten(a)", "b = Flatten(x)\ny2 = Relu(b)")
    assert verdict(shaped, batch).status == "verified"
    assert len(fed) == 8 and len(set(fed)) == 2


def test_a_batch_that_is_written_into_a_constant_is_refuted() -> None:
    scale = np.full((1, 8, 1, 1), 2, np.float32)
    held = {"s": scale, "S": np.repeat(scale, 3, axis=0)}
    one = region("y = Mul(x, s)", "y2 = Mul(x, S)", constants=held, exactness=Exactness.EXACT)
    assert verdict(one, typed(x=(FLOAT, [3, 8, 5, 5]))).status == "verified"
    assert verdict(one, typed(x=(FLOAT, [Sym("N"), 8, 56, 56]))).status == "refuted"


def test_spatial_size_is_reduced_but_padding_mistakes_show() -> None:
    one = conv_bn()
    plan = batches._Checker(IMAGE, graph_of(), batches.Tolerances(), None, 50).trial(
        batches.sides_of(one, IMAGE), {1}, False, ("normal",), one.exactness
    )
    assert plan.candidates.shapes[0][0][2:] < (12, 12)
    text = "y{} = Conv<pads: ints = [{}]>(x, w)"
    weight = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    wrong = region(text.format("", "1, 1, 1, 1"), text.format("2", "0, 1, 2, 1"), constants={"w": weight})
    assert verdict(wrong).status == "refuted"


def test_of_no_elements_made_up_sizes_tell_nothing() -> None:
    """Any target fits an empty tensor, also one that the model never computes: neither right nor wrong."""
    dropped = region("y = Reshape(x, s)", "y2 = Identity(x)")
    empty = typed(x=(FLOAT, [Sym("N"), 7, 0]), s=(TensorProto.INT64, [3]))
    (found,) = check([dropped], empty, graph_of())
    assert (found.status, found.tensor) == ("unverified", "y")
    assert "made up; give --data" in found.reason
    twice = region("y = Relu(x)", "y2 = Expand(x, s)", constants={"s": np.array([4, 3, 7, 0], np.int64)})
    (found,) = check([twice], typed(x=(FLOAT, [3, 7, 0])), graph_of())
    assert found.status == "refuted"  # no size was fed
    flat = region("y = Reshape(x, s)", "y2 = Reshape(x, t)", constants={"t": np.array([0], np.int64)})
    (found,) = check([flat], empty, graph_of())
    assert found.status == "refuted"  # a size, whatever it is, changes no rank


def test_the_mean_error_is_that_of_the_tensor_where_the_largest_is() -> None:
    good, bad = check([conv_bn(), conv_bn(flip_weak_channel)], IMAGE, graph_of())
    assert good.mean is not None and good.error is not None and 0 < good.mean < good.error < 3e-6
    assert bad.mean is not None and bad.error is not None and 1e-6 < bad.mean < bad.error


def test_folding_to_a_constant_and_back_to_an_input() -> None:
    good = region(
        "y = Add(k, k)", "", [("y", "k2")], {"k": np.float32([1, 2]), "k2": np.float32([2, 4])}, Exactness.EXACT
    )
    bad = region(
        "y = Add(k, k)", "", [("y", "k2")], {"k": np.float32([1, 2]), "k2": np.float32([2, 5])}, Exactness.EXACT
    )
    assert [v.status for v in check([good, bad], Known({}), graph_of())] == ["verified", "refuted"]


def test_a_constant_result_keeps_the_size_of_its_inputs() -> None:
    """A row more would be one more in what was computed, and none in what is written down."""
    k = {"zero": np.array(0, np.int64), "Y": np.zeros((1, 2), np.int64)}
    folded = region("y = Mul(x, zero)", "", outputs=(("y", "Y"),), constants=k, exactness=Exactness.EXACT)
    assert verdict(folded, typed(x=(TensorProto.INT64, [1, 2]))).status == "verified"


def test_minus_zero_is_not_zero_where_exact() -> None:
    one = region("y = Neg(k)", "", [("y", "k2")], {"k": np.float32([0]), "k2": np.float32([0])}, Exactness.EXACT)
    assert verdict(one, Known({})).status == "refuted"


def test_a_result_of_another_dtype_or_shape_is_refuted() -> None:
    dtype = region("y = Relu(x)", "a = Relu(x)\ny2 = Cast<to: int = 11>(a)")
    shape = region("y = Relu(x)", "a = Relu(x)\ny2 = Flatten(a)")
    found = check([dtype, shape], typed(x=(FLOAT, [2, 3, 4])), graph_of())
    assert [v.status for v in found] == ["refuted", "refuted"]
    assert "dtype float64 instead of float32" in found[0].reason
    assert "shape [2, 12] instead of [2, 3, 4]" in found[1].reason


def test_several_outputs_are_all_compared() -> None:
    one = region("y = Relu(x)\nz = Neg(y)", "y2 = Relu(x)\nz2 = Identity(y2)", [("y", "y2"), ("z", "z2")])
    found = verdict(one)
    assert (found.status, found.tensor) == ("refuted", "z")


def test_large_inputs_are_scaled_until_the_original_is_finite() -> None:
    """softmax without its shift overflows at 1e3 and must be refuted there; exp itself is not."""
    plain = region("y = Exp(x)", "y2 = Exp(x)")
    naive = region(
        "y = Softmax<axis: int = 1>(x)",
        "e = Exp(x)\ns = ReduceSum(e, ax)\ny2 = Div(e, s)",
        constants={"ax": np.array([1])},
    )
    found = check([plain, naive], typed(x=(FLOAT, [4, 6])), graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]
    assert found[1].reason.startswith("large inputs: NaN")


# --- boundary types ------------------------------------------------------------------------------------------------------


def test_symbolic_dims_take_two_sizes() -> None:
    """Right at one size only: a Reshape that has the size baked in."""
    types = typed(x=(FLOAT, [Sym("N"), 4, Sym("T")]))
    good = region("y = Flatten(x)", "y2 = Reshape(x, s)", constants={"s": np.array([0, -1])})
    baked = region("y = Flatten(x)", "y2 = Reshape(x, s)", constants={"s": np.array([3, 20])})
    found = check([good, baked], types, graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]


def test_derived_dims_agree_with_each_other() -> None:
    types = typed(x=(FLOAT, [1, Sym("T", 2)]), z=(FLOAT, [1, Sym("T", 2, -5)]))
    one = region("y = Concat<axis: int = 1>(x, z)", "y2 = Concat<axis: int = 1>(x, z)")
    assert verdict(one, types).status == "verified"


def test_unknown_dims_are_guessed_from_the_constants_that_meet_them() -> None:
    types = Known({"x": TensorType(FLOAT, (None, None, None, None))})
    assert verdict(conv_bn(), types).status == "verified"
    assert verdict(conv_bn(), Known({"x": TensorType(FLOAT)})).status == "verified"


def test_integer_arithmetic_meets_values_that_are_not_small() -> None:
    types = typed(x=(TensorProto.INT64, [64]))
    k = {"two": np.array(2), "four": np.array(4)}
    wrong = region("a = Mul(x, four)\ny = Div(a, two)", "y2 = Div(x, two)", constants=k, exactness=Exactness.EXACT)
    right = region("a = Mul(x, four)\ny = Div(a, two)", "y2 = Mul(x, two)", constants=k, exactness=Exactness.EXACT)
    assert [v.status for v in check([wrong, right], types, graph_of())] == ["refuted", "verified"]


def test_indices_are_legal() -> None:
    types = typed(x=(FLOAT, [5, 3]), i=(TensorProto.INT64, [4]))
    one = region("y = Gather(x, i)", "y2 = Gather<axis: int = 0>(x, i)", exactness=Exactness.EXACT)
    assert verdict(one, types).status == "verified"


# --- cones, bodies, functions, random numbers ----------------------------------------------------------------------------


def test_the_cone_stands_on_both_sides() -> None:
    types = typed(x=(FLOAT, [Sym("N"), 6]))
    cone = "s = Shape(x)\nn = Slice(s, zero, one)\nt = Concat<axis: int = 0>(n, rest)"
    k = {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([2, 3])}
    good = region(
        "y = Reshape(x, t)",
        "y2 = Reshape(x, u)",
        constants={**k, "u": np.array([-1, 2, 3])},
        cone=cone,
        exactness=Exactness.EXACT,
    )
    wrong = region(
        "y = Reshape(x, t)",
        "y2 = Reshape(x, u)",
        constants={**k, "u": np.array([3, 2, -1])},
        cone=cone,
        exactness=Exactness.EXACT,
    )
    assert [v.status for v in check([good, wrong], types, graph_of())] == ["verified", "refuted"]


def test_the_cone_is_cut_where_a_type_is_known() -> None:
    """Shape reads only the type of ``z``: an operator that ONNX Runtime lacks above it does not matter."""
    types = typed(x=(FLOAT, [2, 6]), z=(FLOAT, [2, 3]))
    one = region(
        "s = Shape(z)\ny = Expand(x, s)", "y2 = Expand(x, k)", constants={"k": np.array([2, 3])}, cone="z = Unknown(q)"
    )
    one.before[1].inputs[0].name = "x"
    found = check([one], typed(x=(FLOAT, [2, 1]), z=(FLOAT, [2, 3])), graph_of())[0]
    assert found.status == "verified", found
    del types


def if_region(good: bool) -> Region:
    x, cond, y, y2 = gs.Variable("x"), gs.Variable("cond"), gs.Variable("y"), gs.Variable("y2")

    def branch(op: str) -> gs.Graph:
        out = gs.Variable("out")
        inner = gs.Node(op, "inner", inputs=[x], outputs=[out])
        return gs.Graph([inner], outputs=[out], name=op, opset=17)

    def node(then: str, otherwise: str, out: gs.Variable) -> NodeImage:
        attrs = {"then_branch": branch(then), "else_branch": branch(otherwise)}
        made = gs.Node("If", out.name, attrs, [cond], [out])
        return NodeImage(made, (cond,), (out,))

    first, second = node("Relu", "Neg", y), node("Relu", "Neg" if good else "Abs", y2)
    return Region(Scope(graph_of(), "", opsets={"": 17}), (first,), (second,), ((y, y2),), Exactness.EXACT)


@pytest.mark.parametrize("good", [True, False])
def test_bodies_read_boundary_tensors(good: bool) -> None:
    found = verdict(if_region(good), typed(x=(FLOAT, [3]), cond=(TensorProto.BOOL, [])))
    assert found.status == ("verified" if good else "refuted"), found


def test_calls_of_local_functions() -> None:
    x, y = gs.Variable("fx"), gs.Variable("fy")
    function = gs.Function("Twice", "my.ops", [gs.Node("Add", "add", inputs=[x, x], outputs=[y])], [x], [y], opset=17)
    graph = graph_of(functions=[function])
    for factor, status in ((2, "verified"), (3, "refuted")):
        one = region(
            "y = my.ops.Twice(x)", "y2 = Mul(x, k)", constants={"k": np.float32(factor)}, domains={"my.ops": 1}
        )
        assert check([one, conv_bn()], IMAGE, graph)[0].status == status


def test_random_numbers_are_not_compared() -> None:
    found = verdict(region("r = RandomNormalLike(x)\ny = Add(x, r)", "y2 = Add(x, x)"))
    assert (found.status, "random" in found.reason) == ("unverified", True)
    tensors: dict[str, gs.Tensor] = {}
    shared = region("r = RandomNormalLike(x)\ny = Add(x, r)", "y2 = Add(r, x)", tensors=tensors)
    shared = Region(shared.scope, shared.before, (shared.before[0], *shared.after), shared.outputs, Exactness.EXACT)
    assert verdict(shared, typed(x=(FLOAT, [4]), r=(FLOAT, [4]))).status == "verified"


# --- sizes ---------------------------------------------------------------------------------------------------------------


def test_open_sizes_are_odd_once_and_even_once() -> None:
    """With kernel 3 and stride 2, SAME_UPPER pads (1, 1) at odd sizes and (0, 1) at even ones."""
    weight = {"w": np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)}
    same = 'y = Conv<auto_pad: string = "SAME_UPPER", strides: ints = [2, 2]>(x, w)'
    for pads in ("1, 1, 1, 1", "0, 0, 1, 1"):
        one = region(same, f"y2 = Conv<pads: ints = [{pads}], strides: ints = [2, 2]>(x, w)", constants=weight)
        assert verdict(one, typed(x=(FLOAT, [Sym("N"), 8, Sym("H"), Sym("W")]))).status == "refuted"
        assert verdict(one, typed(x=(FLOAT, [1, 8, Sym("H"), Sym("W")]))).status == "refuted"


def test_few_rows_hide_no_slice_of_them() -> None:
    held = {"s": np.int64([0]), "e": np.int64([4]), "E": np.int64([5]), "a": np.int64([0])}
    one = region("y = Slice(x, s, e, a)", "y2 = Slice(x, s, E, a)", constants=held)
    assert verdict(one, typed(x=(FLOAT, [Sym("N"), 3, 224, 224]))).status == "refuted"


def test_a_scale_at_the_end_of_the_range_is_not_within_any_bound() -> None:
    """An attention mask: what is left out is the lowest number there is."""

    def mask(lowest: float) -> Region:
        held = {"one": np.float32(1), "nil": np.float32(0), "c": np.float32(-3.4028235e38), "d": np.float32(lowest)}
        before = "n = Sub(one, x)\nz = Clip(n, nil, one)\ny = Mul(z, c)"
        return region(before, "n2 = Sub(one, x)\nz2 = Clip(n2, nil, one)\ny2 = Mul(z2, d)", constants=held)

    found = check([mask(-3.4028235e38), mask(-1e38)], typed(x=(FLOAT, [2, 8])), graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]
