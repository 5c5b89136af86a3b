"""Apply single rules to a model, and compare models in ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import surgeon_passes as sp
from surgeon_passes import Rule

TOLERANCE = 3e-6
"""Largest difference of a channel from the original, over that channel's scale."""
Arrays = Mapping[str, Any]
SEEN: set[tuple[str, str]] = set()
"""("applied" or "declined", rule) of what :func:`apply` did since it was last cleared."""


@dataclass
class Result:
    model: onnx.ModelProto
    applied: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """of what was declined"""

    @property
    def ops(self) -> Counter[str]:
        return operators(self.model)


def operators(model: onnx.ModelProto) -> Counter[str]:
    """Nodes by operator, Constant nodes left out."""
    return Counter(n.op_type for n in model.graph.node if n.op_type != "Constant")


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def graph_model(text: str, opset: int = 20, **domains: int) -> onnx.ModelProto:
    """``g (float[N] x) => (float[N] y) { … }`` as a checked model."""
    imports = [f'"" : {opset}', *(f'"{d}" : {v}' for d, v in domains.items())]
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{', '.join(imports)}]> {text}")
    onnx.checker.check_model(model)
    return model


def apply(rules: Rule | Iterable[Rule], proto: onnx.ModelProto, **options: bool) -> Result:
    """Rules to a fixpoint, and what nobody uses any more removed. Nothing is folded, nothing verified.

    ``options`` are those of Rewrite.
    """
    chosen = [rules] if isinstance(rules, Rule) else list(rules)
    names = {rule.name for rule in chosen}
    run = sp.Pipeline(sp.Rewrite(*chosen, **options), sp.Cleanup()).run(proto, verify="off", registry=sp.Registry())
    assert run.converged
    onnx.checker.check_model(run.proto)
    result = Result(run.proto)
    for decision in run.decisions:
        assert decision.rule in names
        if decision.status == "applied":
            result.applied.append(decision.rule)
            SEEN.add(("applied", decision.rule))
        else:
            result.reasons.append(decision.reason)
            SEEN.add(("declined", decision.rule))
    return result


# --- running -------------------------------------------------------------------------------------------------------------


def run(model: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def reference(model: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    """By onnx's own evaluator, where ONNX Runtime has no kernel (double convolutions)."""
    evaluator = ReferenceEvaluator(model)
    return dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))


def feeds_for(model: onnx.ModelProto, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs; named dims have the given sizes (5 where none is given)."""
    rng = np.random.default_rng(seed)
    held = {i.name for i in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in held:
            continue
        kind = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, 5) for d in kind.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if kind.elem_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE):
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[value.name] = rng.integers(-5, 6, shape).astype(dtype)
    return feeds


def assert_stays(rules: Rule | Iterable[Rule], model: onnx.ModelProto, *reasons: str) -> None:
    """Nothing is rewritten, and some decision gives each of the reasons."""
    result = apply(rules, model)
    assert result.ops == operators(model)
    for reason in reasons:
        assert any(reason in r for r in result.reasons), result.reasons


def assert_equal(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    sizes: Iterable[Mapping[str, int]] = ({}, {"N": 3, "H": 7, "W": 9, "T": 2}),
    tolerance: float | None = None,
    feeds: Arrays | None = None,
    runner: Callable[[onnx.ModelProto, Arrays], dict[str, np.ndarray]] = run,
) -> None:
    """Both models give the same at every choice of sizes; ``tolerance`` 0 means bit-equal."""
    for number, choice in enumerate(sizes):
        given = feeds if feeds is not None else feeds_for(before, choice, seed=number)
        expected, found = runner(before, given), runner(after, given)
        assert list(expected) == list(found)
        for name, value in expected.items():
            assert value.dtype == found[name].dtype and value.shape == found[name].shape
            _assert_close(value, found[name], tolerance, name)


def assert_equal_to_rounding(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    sizes: Iterable[Mapping[str, int]],
    runner: Callable[[onnx.ModelProto, Arrays], dict[str, np.ndarray]] = run,
    roundings: int = 16,
) -> None:
    """Both models give the same, to some roundings of what they add up.

    What a model of several steps rounds on the way may be more than its result, where terms cancel: a bound relative to the
    result would measure the original.
    """
    for number, choice in enumerate(sizes):
        given = feeds_for(before, choice, seed=number)
        expected, found = runner(before, given), runner(after, given)
        terms = runner(_all_positive(before), _absolute(given))
        assert list(expected) == list(found)
        for name, value in expected.items():
            assert value.dtype == found[name].dtype and value.shape == found[name].shape
            a, b, most = (side[name].astype(np.float64) for side in (expected, found, terms))
            error = (np.abs(a - b) / np.maximum(most, 1e-3)).max(initial=0)
            assert error <= roundings * np.finfo(value.dtype).eps, f"{name} differs by {error:.3g} of its terms"


def _absolute(arrays: Arrays) -> dict[str, np.ndarray]:
    return {name: np.abs(value) for name, value in arrays.items()}


def _all_positive(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every term of its sums positive: weights without signs, Sub as Add."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    means = {node.input[3] for node in made.graph.node if node.op_type == "BatchNormalization"}
    for held in made.graph.initializer:
        value = numpy_helper.to_array(held)
        if value.dtype.kind == "f":
            positive = (
                -np.abs(value) if held.name in means else np.abs(value)
            )  # what is normalised has its mean taken away
            held.CopyFrom(numpy_helper.from_array(positive, held.name))
    for node in made.graph.node:
        if node.op_type == "Sub":
            node.op_type = "Add"
    return made


def _assert_close(a: np.ndarray, b: np.ndarray, tolerance: float | None, name: str) -> None:
    if tolerance == 0 or a.dtype.kind != "f":
        assert a.tobytes() == b.tobytes(), name
        return
    bound = tolerance or (2e-3 if a.dtype == np.float16 else TOLERANCE)
    a, b = a.astype(np.float64), b.astype(np.float64)
    axis = 1 if a.ndim > 1 else 0
    others = tuple(i for i in range(a.ndim) if i != axis) if a.ndim > 1 else ()
    scale = np.maximum(np.abs(a).max(axis=others or None, keepdims=True, initial=0), 1e-6)
    error = (np.abs(a - b) / scale).max(initial=0)
    assert error <= bound, f"{name} differs by {error:.3g} of its channel's scale"


# --- building ------------------------------------------------------------------------------------------------------------


class Builder:
    """A model in a few lines: ``b.conv("x", …)`` gives the name of the result."""

    def __init__(self, dtype: Any = np.float32, opset: int = 17, seed: int = 0) -> None:
        self.dtype = np.dtype(dtype)
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Any, dtype: Any = None) -> str:
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        self.inputs.append(helper.make_tensor_value_info(name, elem, shape))
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"k{len(self.held)}"
        array = np.asarray(value, dtype or (self.dtype if np.asarray(value).dtype.kind == "f" else np.int64))
        self.held.append(numpy_helper.from_array(array, name))
        return name

    def random(self, *shape: int, low: float | None = None) -> str:
        value = self.rng.standard_normal(shape) if low is None else self.rng.uniform(low, low + 1, shape)
        return self.constant(value.astype(self.dtype))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        names = [f"{op.lower()}{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"node{len(self.nodes)}", **attrs))
        return names[0] if outputs == 1 else names

    def conv(
        self, x: str, cin: int, cout: int, kernel: Any, *, bias: bool = False, group: int = 1, **attrs: Any
    ) -> str:
        names = [x, self.random(cout, cin // group, *kernel)]
        if bias:
            names.append(self.random(cout))
        return str(self.node("Conv", *names, group=group, **attrs))

    def batch_norm(self, x: str, channels: int, **attrs: Any) -> str:
        c = channels
        held = [self.random(c, low=0.5), self.random(c), self.random(c), self.random(c, low=0.4)]
        return str(self.node("BatchNormalization", x, *held, **attrs))

    def model(self, *outputs: str, rank: int | None = None, dtype: Any = None) -> onnx.ModelProto:
        """The checked model; outputs are of the given rank (else of the first input's), with dims of no name in common."""
        ranks = rank if rank is not None else len(self.inputs[0].type.tensor_type.shape.dim)
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        values = [helper.make_tensor_value_info(o, elem, [f"{o}_{i}" for i in range(ranks)]) for o in outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, values, self.held)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.checker.check_model(model)
        return model
