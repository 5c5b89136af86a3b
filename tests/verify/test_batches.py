from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto

from surgeon_passes.index import Scope
from surgeon_passes.region import Exactness, NodeImage, Region, TensorType, Verdict
from surgeon_passes.values.symbols import Poly
from surgeon_passes.verify import batches
from surgeon_passes.verify import trial as trial_module
from surgeon_passes.verify.batches import check

from .regions import FLOAT, Known, Sym, graph_of, region, typed

Constants = dict[str, np.ndarray]


def conv_bn(
    break_it: Callable[[Constants], None] | None = None,
    seed: int = 0,
    dtype: type = np.float32,
    group: int = 1,
    epsilon: float = 1e-5,
    var: float = 1.0,
) -> Region:
    """Conv + BatchNormalization folded by the formula; ``break_it`` spoils W or B."""
    rng = np.random.default_rng(seed)
    c = {n: rng.standard_normal(8).astype(dtype) for n in ("b", "gamma", "beta", "mean")}
    c["var"] = (var * (rng.random(8) + 0.5)).astype(dtype)
    c["w"] = rng.standard_normal((8, 8 // group, 3, 3)).astype(dtype)
    s = c["gamma"].astype(np.float64) / np.sqrt(c["var"].astype(np.float64) + epsilon)
    c["W"] = (s[:, None, None, None] * c["w"]).astype(dtype)
    c["B"] = (s * (c["b"].astype(np.float64) - c["mean"]) + c["beta"]).astype(dtype)
    if break_it is not None:
        break_it(c)
    conv = f"Conv<pads: ints = [1, 1, 1, 1], group: int = {group}>"
    return region(
        f"c = {conv}(x, w, b)\ny = BatchNormalization(c, gamma, beta, mean, var)", f"y2 = {conv}(x, W, B)", constants=c
    )


IMAGE = typed(x=(FLOAT, [1, 8, 56, 56]))


def verdict(one: Region, types: Known = IMAGE, **options: object) -> Verdict:
    return check([one], types, graph_of(), **options)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [1, 2, 8])
def test_correct_fold_stays_below_the_bound(group: int) -> None:
    for found in check([conv_bn(seed=s, group=group) for s in range(30)], IMAGE, graph_of()):
        assert found.status == "verified", found
        assert found.error is not None and 0 < found.error < 3e-6


def _scale_input_axis(c: Constants) -> None:
    s = c["gamma"] / np.sqrt(c["var"] + 1e-5)
    c["W"] = s[None, :, None, None] * c["w"]


def _drop_bias(c: Constants) -> None:
    c["B"] = np.zeros_like(c["B"])


def _drop_mean_of_one(c: Constants) -> None:
    c["B"][5] += 1e-4


def _shift_kernel(c: Constants) -> None:
    c["W"] = np.roll(c["W"], 1, axis=3)


def _flip_weak_channel(c: Constants) -> None:
    c["w"][3] *= 1e-3
    c["W"][3] *= -1e-3


def _flip_border_tap(c: Constants) -> None:
    c["W"][2, 1, 0, 0] *= 1.001


BROKEN = [_scale_input_axis, _drop_bias, _drop_mean_of_one, _shift_kernel, _flip_weak_channel, _flip_border_tap]


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


# --- verdicts of their own -----------------------------------------------------------------------------------------------


def test_one_bad_region_costs_no_other_its_verdict() -> None:
    unknown = region("y = Foo(x)", "y2 = Identity(x)", domains={"my.ops": 1})
    unloadable = region("y = Relu(x)", "y2 = Bar(x)")
    regions = [conv_bn(seed=s) for s in range(5)]
    regions[2:2] = [unknown, unloadable, region("y = Relu(x)", "y2 = Abs(x)")]
    found = check(regions, IMAGE, graph_of())
    expected = ["verified"] * 2 + ["unverified", "refuted", "refuted"] + ["verified"] * 3
    assert [v.status for v in found] == expected
    assert "Foo" in found[2].reason
    assert "does not load" in found[3].reason and "Bar" in found[3].reason


def test_a_run_that_fails_is_charged_to_its_region() -> None:
    shape = np.array([3, 5], np.int64)
    bad = region("y = Relu(x)", "y2 = Reshape(x, s)", constants={"s": shape})
    good = region("y = Relu(x)", "y2 = Max(x, z)", constants={"z": np.zeros(1, np.float32)}, exactness=Exactness.EXACT)
    both_fail = region("y = Reshape(x, s)", "y2 = Reshape(x, s)", constants={"s": shape})
    found = check([good, bad, both_fail, good], typed(x=(FLOAT, [2, 4])), graph_of())
    assert [v.status for v in found] == ["verified", "refuted", "unverified", "verified"]
    assert "give --data" in found[2].reason
    assert "'x'" in found[2].reason or "Reshape" in found[2].reason
    assert "r1~" not in found[2].reason


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


def test_equal_regions_share_one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    real = batches._Checker.trials

    def count(self: batches._Checker, sides: batches.Sides, structure: Hashable) -> list[batches.Trial]:
        counted.append(1)
        return real(self, sides, structure)

    monkeypatch.setattr(batches._Checker, "trials", count)
    same = [region("y = Identity(x)", "", [("y", "x")], exactness=Exactness.EXACT) for _ in range(100)]
    other = region("y = Neg(x)", "", [("y", "x")], exactness=Exactness.EXACT)
    found = check([*same, other, conv_bn(), conv_bn(), conv_bn(_flip_border_tap)], IMAGE, graph_of())
    assert [v.status for v in found] == ["verified"] * 100 + ["refuted", "verified", "verified", "refuted"]
    assert len(counted) == 4


def test_equal_regions_share_a_verdict_and_not_the_names_of_its_tensors() -> None:
    found = check([region(f"{y} = Abs(x)", "", [(y, "x")], exactness=Exactness.EXACT) for y in "pq"], IMAGE, graph_of())
    assert [(v.status, v.tensor) for v in found] == [("refuted", "p"), ("refuted", "q")]


def test_the_mean_error_is_that_of_the_tensor_where_the_largest_is() -> None:
    good, bad = check([conv_bn(), conv_bn(_flip_weak_channel)], IMAGE, graph_of())
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


def test_an_unknown_element_type_is_unverified() -> None:
    found = verdict(region("y = Relu(x)", "y2 = Relu(x)"), Known({}))
    assert (found.status, found.reason) == ("unverified", "the element type of 'x' is unknown")


@pytest.mark.parametrize("dtype", [TensorProto.STRING, TensorProto.BOOL, TensorProto.UINT8, TensorProto.BFLOAT16])
def test_other_element_types(dtype: int) -> None:
    one = region("a = Identity(x)\ny = Identity(a)", "", [("y", "x")], exactness=Exactness.EXACT)
    assert verdict(one, typed(x=(dtype, [4, 3]), y=(dtype, [4, 3]))).status == "verified"
    wrong = region("y = Concat<axis: int = 0>(x, z)", "y2 = Concat<axis: int = 0>(z, x)", exactness=Exactness.EXACT)
    if dtype != TensorProto.BFLOAT16:
        assert verdict(wrong, typed(x=(dtype, [4, 3]), z=(dtype, [4, 3]))).status == "refuted"


# --- precision -----------------------------------------------------------------------------------------------------------


def test_half_precision_folds() -> None:
    types = typed(x=(TensorProto.FLOAT16, [1, 8, 20, 20]))
    assert verdict(conv_bn(dtype=np.float16), types).status == "verified"
    assert verdict(conv_bn(_flip_weak_channel, dtype=np.float16), types).status == "refuted"
    assert verdict(conv_bn(_shift_kernel, dtype=np.float16), types).status == "refuted"


def test_half_precision_without_new_constants_is_held_to_the_float_bound() -> None:
    types = typed(x=(TensorProto.FLOAT16, [1, 8, 20, 20]))
    k = {"k": np.float16([1.0005])}
    assert verdict(region("y = Mul(x, k)", "y2 = Mul(k, x)", constants=k), types).status == "verified"
    assert verdict(region("y = Identity(x)", "y2 = Mul(k, x)", constants=k), types).status == "verified"
    near = region("a = Mul(x, k)\ny = Div(a, k)", "y2 = Mul(x, k)", constants={"k": np.float16([1.001])})
    assert verdict(near, types).status == "refuted"


@pytest.mark.parametrize("cast", ["Cast<to: int = 10>(f)", "CastLike(f, x)"])
def test_a_cast_to_half_precision_rounds(cast: str) -> None:
    """ONNX Runtime computes the product in float32, and by itself would go on with f as it was before the Cast."""
    types = typed(x=(TensorProto.FLOAT16, [64]), f=(1, []), h=(10, []), y=(10, [64]), y2=(10, [64]))
    f = np.float32(0.59460354)
    before = f"h = {cast}\ny = Mul(x, h)"

    def of(value: np.ndarray) -> Region:
        constants = {"f": f, "k": value}
        return region(before, "y2 = Mul(x, k)", constants=constants, exactness=Exactness.EXACT)

    found = verdict(of(np.float16(f)), types)
    assert found.status == "verified", found
    assert verdict(of(np.nextafter(np.float16(f), np.float16(1))), types).status == "refuted"


@pytest.mark.parametrize(("root", "status"), [(2**0.5, "verified"), (1.5, "refuted")])
def test_a_half_constant_that_goes_was_rounded(root: float, status: str) -> None:
    """float16 has the root of 2 to 1e-4; what is written out with it differs from Gelu by as much."""
    k = {"root": np.float16(root), "one": np.float16(1), "half": np.float16(0.5)}
    text = "d = Div(x, root)\ne = Erf(d)\ns = Add(e, one)\nh = Mul(s, half)\ny = Mul(x, h)"
    types = typed(x=(TensorProto.FLOAT16, [2, 4, 6, 6]))
    assert verdict(region(text, "y2 = Gelu(x)", constants=k, opset=20), types).status == status
    bits = {name: int(value.view(np.uint16)) for name, value in k.items()}  # in a function constants stay nodes
    nodes = "\n".join(f"{name} = Constant<value: tensor = float16 {{{held}}}>()" for name, held in bits.items())
    assert verdict(region(f"{nodes}\n{text}", "y2 = Gelu(x)", opset=20), types).status == status


def test_double_convolutions_are_computed_by_the_reference() -> None:
    types = typed(x=(TensorProto.DOUBLE, [1, 8, 6, 6]))
    found = verdict(conv_bn(dtype=np.float64), types)
    assert found.status == "verified" and found.error is not None and found.error < 1e-12
    assert "onnx.reference" in found.reason
    assert verdict(conv_bn(_flip_border_tap, dtype=np.float64), types).status == "refuted"


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


def test_opsets_do_not_mix() -> None:
    old = region("y = Clip<min: float = 0.0>(x)", "y2 = Relu(x)", opset=10)
    new = region("y = Clip(x, z)", "y2 = Relu(x)", constants={"z": np.float32(0)}, opset=17)
    assert [v.status for v in check([old, new, old], IMAGE, graph_of())] == ["verified"] * 3


def test_verdicts_are_deterministic_and_do_not_depend_on_the_batch() -> None:
    regions = [conv_bn(seed=s) for s in range(12)] + [conv_bn(_drop_mean_of_one, seed=s) for s in range(3)]
    whole = check(regions, IMAGE, graph_of())
    assert check(regions, IMAGE, graph_of(), batch=1) == whole
    assert check(list(reversed(regions)), IMAGE, graph_of(), batch=4) == whole[::-1]


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


def test_of_many_equal_regions_the_one_that_is_wrong_is_refuted() -> None:
    regions = [conv_bn(_flip_weak_channel if seed == 17 else None, seed=seed) for seed in range(40)]
    found = check(regions, IMAGE, graph_of())
    assert [n for n, v in enumerate(found) if v.status != "verified"] == [17]
    alone = [check([one], IMAGE, graph_of())[0] for one in (regions[3], regions[17])]
    assert [found[3], found[17]] == alone


def test_regions_of_one_structure_share_their_sizes_whatever_their_weights_are(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = batches.candidates
    monkeypatch.setattr(batches, "candidates", lambda *given: [made.append(1), real(*given)][1])
    regions = [conv_bn(seed=0), conv_bn(seed=1), conv_bn(seed=2, group=2)]
    assert [v.status for v in check(regions, IMAGE, graph_of())] == ["verified"] * 3
    assert len(made) == 2


def test_a_scale_at_the_end_of_the_range_is_not_within_any_bound() -> None:
    """An attention mask: what is left out is the lowest number there is."""

    def mask(lowest: float) -> Region:
        held = {"one": np.float32(1), "nil": np.float32(0), "c": np.float32(-3.4028235e38), "d": np.float32(lowest)}
        before = "n = Sub(one, x)\nz = Clip(n, nil, one)\ny = Mul(z, c)"
        return region(before, "n2 = Sub(one, x)\nz2 = Clip(n2, nil, one)\ny2 = Mul(z2, d)", constants=held)

    found = check([mask(-3.4028235e38), mask(-1e38)], typed(x=(FLOAT, [2, 8])), graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]


def test_a_dim_whose_name_reads_like_a_size_is_no_size() -> None:
    def reshaped(name: str, before: list[int]) -> Region:
        sizes = {"b": np.array(before, np.int64), "t": np.array([2, 4], np.int64)}
        texts = (f"y = Reshape({name}, b)", f"y2 = Reshape({name}, t)")
        return region(*texts, constants=sizes, exactness=Exactness.EXACT)

    types = typed(x=(FLOAT, [2, 4]), z=(FLOAT, [Poly.symbol("2"), 4]))
    found = check([reshaped("x", [2, -1]), reshaped("z", [-1, 4])], types, graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]
    found = check([reshaped("x", [-1, 4]), reshaped("z", [-1, 4])], types, graph_of())
    assert [v.status for v in found] == ["verified", "refuted"]


def test_a_tensor_with_two_in_its_place_is_held_against_both() -> None:
    def twice(number: int) -> Region:
        factors = {"c": np.float32(2 + number), "d": np.float32(3 + number)}
        return region("y = Mul(x, c)", "a = Mul(x, d)\nb = Mul(x, c)", [("y", "a"), ("y", "b")], constants=factors)

    found = check([twice(n) for n in range(8)], typed(x=(FLOAT, [32, 8])), graph_of())
    assert [v.status for v in found] == ["refuted"] * 8
