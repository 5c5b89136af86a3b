"""Rules that are broken on purpose, amid sound ones: exactly they are undone, and the end check is not needed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import surgeon_passes as sp
from surgeon_passes import Decline, Match, Registry, Replacement, Rule, rule

Array = NDArray[np.float64]
CHANNELS = 8
GROUPS = 4
SOUND = 24
FOLD = """
    c = Conv(x, w: const, b?: const)
    y = BatchNormalization(c, gamma: const, beta: const, mean: const, var: const)
"""
FOLD_TRANSPOSED = FOLD.replace("Conv(", "ConvTranspose(")


# --- broken rules: each takes only the weights that are called after it ----------------------------------------------------


def only(m: Match, name: str) -> None:
    if not m.w.name.startswith(name):
        raise Decline("not meant")


def scale(m: Match, epsilon: float | None = None) -> Array:
    held = m.y.attr("epsilon") if epsilon is None else epsilon
    return np.asarray(m.gamma / np.sqrt(m.var + held))


def shifted(m: Match, s: Array) -> Array:
    return np.asarray(s * (np.asarray(m.b) - m.mean) + m.beta)


def rows(s: Array) -> Array:
    return s.reshape(-1, 1, 1, 1)


@rule(pattern=FOLD, rewrite="y = Conv(x, W, B)<@c>")
def wrong_epsilon(m: Match) -> Replacement:
    only(m, "wrong_epsilon")
    s = scale(m, epsilon=1e-3)
    return Replacement(W=m.w * rows(s), B=shifted(m, s))


@rule(pattern=FOLD, rewrite="y = Conv(x, W, B)<@c>")
def scale_on_the_wrong_axis(m: Match) -> Replacement:
    only(m, "scale_on_the_wrong_axis")
    s = scale(m)
    return Replacement(W=m.w * s.reshape(1, -1, 1, 1), B=shifted(m, s))


@rule(pattern=FOLD, rewrite="y = Conv(x, W, B)<@c>")
def dropped_bias(m: Match) -> Replacement:
    only(m, "dropped_bias")
    s = scale(m)
    return Replacement(W=m.w * rows(s), B=m.beta - s * m.mean)


@rule(pattern=FOLD, rewrite="y = Conv(x, W, B)<@c>")
def weak_channel_negated(m: Match) -> Replacement:
    only(m, "weak_channel_negated")
    s = scale(m)
    wrong = np.where(np.abs(s) == np.abs(s).min(), -s, s)
    return Replacement(W=m.w * rows(wrong), B=shifted(m, s))


@rule(pattern=FOLD_TRANSPOSED, rewrite="y = ConvTranspose(x, W, B)<@c>")
def transposed_groups(m: Match) -> Replacement:
    """The scale of output channel g·n + i belongs to column i of group g, not to column g of group i."""
    only(m, "transposed_groups")
    s = scale(m)
    laid = s.reshape(-1, GROUPS).T.reshape(GROUPS, 1, -1, 1, 1)
    w = np.asarray(m.w)
    grouped = w.reshape(GROUPS, w.shape[0] // GROUPS, *w.shape[1:])
    return Replacement(W=(grouped * laid).reshape(w.shape), B=shifted(m, s))


@rule(
    pattern="y = Add(Conv(x, w: const, b: const)<pads=[1, 1, 1, 1]>, Conv(x, point: const)<pads=[0, 0, 0, 0]>)",
    rewrite="y = Conv(x, W, b)<pads=[1, 1, 1, 1]>",
)
def kernel_off_centre(m: Match) -> Replacement:
    only(m, "kernel_off_centre")
    return Replacement(W=m.w + np.pad(m.point, [(0, 0), (0, 0), (1, 1), (0, 2)]))


BROKEN: dict[str, Rule] = {
    r.name: r
    for r in (
        wrong_epsilon,
        scale_on_the_wrong_axis,
        dropped_bias,
        kernel_off_centre,
        transposed_groups,
        weak_channel_negated,
    )
}


# --- models --------------------------------------------------------------------------------------------------------------


class Net:
    """Blocks of equal shape, [1, 8, 10, 10] in and out, in a row or side by side."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, array: Array) -> str:
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def kernel(self, name: str, *shape: int) -> str:
        return self.weight(name, self.random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:])))

    def node(self, op: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def norm(self, name: str, x: str, weak: bool = False) -> str:
        gamma = self.random.uniform(0.5, 1.5, CHANNELS)
        if weak:
            gamma[3] = 1e-3
        parts = (gamma, self.random.standard_normal(CHANNELS) * 0.1, self.random.standard_normal(CHANNELS) * 0.1)
        names = [self.weight(f"{name}.{n}", p) for n, p in zip(("gamma", "beta", "mean"), parts, strict=True)]
        names.append(self.weight(f"{name}.var", self.random.uniform(0.5, 1.5, CHANNELS)))
        return self.node("BatchNormalization", [x, *names], name, epsilon=1e-5)

    def block(self, name: str, x: str) -> str:
        """Conv and BatchNormalization, such that the broken rule ``name`` can be wrong about it."""
        bias = self.weight(f"{name}.bias", self.random.standard_normal(CHANNELS))
        if name.startswith("transposed_groups"):
            kernel = self.kernel(f"{name}.weight", CHANNELS, CHANNELS // GROUPS, 3, 3)
            c = self.node("ConvTranspose", [x, kernel, bias], f"{name}.conv", group=GROUPS, pads=[1] * 4)
            return self.norm(f"{name}.bn", c)
        c = self.node(
            "Conv", [x, self.kernel(f"{name}.weight", CHANNELS, CHANNELS, 3, 3), bias], f"{name}.conv", pads=[1] * 4
        )
        if name.startswith("kernel_off_centre"):
            point = self.node("Conv", [x, self.kernel(f"{name}.point", CHANNELS, CHANNELS, 1, 1)], f"{name}.conv1")
            return self.node("Add", [c, point], f"{name}.bn")
        return self.norm(f"{name}.bn", c, weak=name.startswith("weak"))

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        sides = [
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, CHANNELS, 10, 10]) for n in names]
            for names in (["x"], outputs)
        ]
        graph = helper.make_graph(self.nodes, "g", *sides, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def names_of(broken: list[str]) -> Iterator[str]:
    """The broken blocks, spread among the sound ones."""
    every = SOUND // len(broken)
    for number in range(SOUND):
        yield f"sound{number}"
        if number % every == every // 2 and number // every < len(broken):
            yield f"{broken[number // every]}"


def side_by_side(broken: list[str]) -> onnx.ModelProto:
    net = Net()
    return net.model([net.block(name, "x") for name in names_of(broken)])


def in_a_row(broken: list[str]) -> onnx.ModelProto:
    """Nothing stands between the blocks: all rewrites touch each other, and a region must be taken apart."""
    net = Net()
    x = "x"
    for name in names_of(broken):
        x = net.block(name, x)
    return net.model([x])


def with_relus(broken: list[str]) -> onnx.ModelProto:
    net = Net()
    x = "x"
    for name in names_of(broken):
        x = net.node("Relu", [net.block(name, x)], f"{name}.relu")
    return net.model([x])


LAYOUTS = [side_by_side, in_a_row, with_relus]
CHOICES = [*([name] for name in BROKEN), list(BROKEN)]


def run(model: onnx.ModelProto, broken: list[str]) -> sp.Result:
    """All installed rules behind the broken ones, which so come to their places first."""
    registry = Registry([*(BROKEN[name] for name in broken), *Registry.installed()])
    passes = [sp.Fold(), sp.Rewrite("user", "cleanup", "shape", "fusion", "reparam"), sp.Cleanup()]
    return sp.Pipeline(*passes).run(model, verify=sp.Verify(end_check=False), registry=registry)


@pytest.mark.parametrize("broken", CHOICES, ids=lambda names: names[0] if len(names) == 1 else "all")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_exactly_the_broken_rewrites_are_undone(
    layout: Callable[[list[str]], onnx.ModelProto], broken: list[str]
) -> None:
    model = layout(broken)
    result = run(model, broken)
    assert sorted(d.rule for d in result.undone) == sorted(broken), result.report()
    assert result.exit_code == 7
    sound = [d for d in result.applied if d.rule == "fold_batch_norm_into_conv"]
    assert len(sound) >= SOUND
    assert {d.verdict for d in result.applied} == {"verified"}
    assert not {d.rule for d in result.applied} & set(broken)

    plain = run(model, [])
    assert plain.exit_code == 0
    assert result.proto.SerializeToString(deterministic=True) == plain.proto.SerializeToString(deterministic=True)


@pytest.mark.parametrize("name", BROKEN)
def test_the_report_names_the_rule_the_error_and_its_tensor(name: str) -> None:
    result = run(side_by_side([name]), [name])
    (undone,) = result.undone
    assert undone.root.startswith(f"{name}.bn") or f"'{name}.bn" in undone.root
    assert undone.metrics["tensor"] == f"{name}.bn.out"
    assert undone.metrics["max_error"] > 1e-5
    line = next(line for line in result.report().splitlines() if line.startswith(name[:20]))
    assert f"{undone.metrics['max_error']:.3g}" in line


def test_the_blocks_are_sound_without_broken_rules() -> None:
    """The whole model, too: the end check of a run without them."""
    for layout in LAYOUTS:
        result = sp.optimize(layout(list(BROKEN)))
        assert result.exit_code == 0
        assert result.check.status == "equal"
