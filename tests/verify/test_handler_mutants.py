"""What the evaluator computes, with a mistake in it, is refuted by its region, the end check off.

Operands are known, and depend on an input's size all the same: else ONNX Runtime would compute the node, not its handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import surgeon_passes as sp
from surgeon_passes.runtime import Session
from surgeon_passes.values import registry
from tests.values.build import node_model
from tests.values.test_handlers import CASES

Array = np.ndarray
KNOWN = np.zeros((1, 1), np.float32)


def first_element(value: Array) -> Array:
    made = value.copy()
    made.reshape(-1)[:1] = ~made.reshape(-1)[:1] if value.dtype.kind == "b" else made.reshape(-1)[:1] + 1
    return made


def last_element(value: Array) -> Array:
    made = value.copy()
    made.reshape(-1)[-1:] = ~made.reshape(-1)[-1:] if value.dtype.kind == "b" else made.reshape(-1)[-1:] - 1
    return made


def backwards(value: Array) -> Array:
    return np.ascontiguousarray(value[::-1]) if value.ndim else value


def other_type(value: Array) -> Array:
    return value.astype(np.int32 if value.dtype == np.int64 else np.int64)


def one_more(value: Array) -> Array:
    return np.concatenate([value, value[:1]]) if value.ndim else value


def higher_rank(value: Array) -> Array:
    return value[None]


def other_sign(value: Array) -> Array:
    return np.asarray(-value) if value.dtype.kind in "if" else value


MISTAKES: tuple[Callable[[Array], Array], ...] = (
    first_element,
    last_element,
    backwards,
    other_type,
    one_more,
    higher_rank,
    other_sign,
)
IN_THE_BUILD = 2
"""mistakes of each case; ``--all-mutants`` makes all"""


def with_known_operands(model: onnx.ModelProto) -> onnx.ModelProto:
    """Each constant times 1, which is the size of an input."""
    graph = model.graph
    graph.input.append(helper.make_tensor_value_info("known", TensorProto.FLOAT, KNOWN.shape))
    nodes = [helper.make_node("Size", ["known"], ["one"])]
    for tensor in (t for t in graph.initializer if t.data_type != TensorProto.STRING):
        name, tensor.name = tensor.name, f"{tensor.name}_held"
        nodes.append(helper.make_node("Cast", ["one"], [f"{name}_one"], to=tensor.data_type))
        op = "And" if tensor.data_type == TensorProto.BOOL else "Mul"
        nodes.append(helper.make_node(op, [tensor.name, f"{name}_one"], [name]))
    nodes += graph.node
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    return model


def spoil(monkeypatch: pytest.MonkeyPatch, op: str, mistake: Callable[[Array], Array]) -> None:
    """The handler of the operator makes the mistake, for the node that makes ``o0``."""

    def spoiled(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(n: Any) -> Any:
            found = function(n)
            if n.view.node.outputs[0].name != "o0":
                return found
            several = found if isinstance(found, tuple) else (found,)
            made = tuple(mistake(v) if isinstance(v, np.ndarray) and v.dtype.kind in "biuf" else v for v in several)
            return made if isinstance(found, tuple) else made[0]

        return run

    entries = [replace(e, function=spoiled(e.function)) for e in registry._VALUES[op]]
    monkeypatch.setitem(registry._VALUES, op, entries)
    registry.value_entry.cache_clear()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    registry.value_entry.cache_clear()


def _differ(a: Array, b: Array) -> bool:
    nan = a.dtype.kind == "f"
    return a.dtype != b.dtype or a.shape != b.shape or not np.array_equal(a, b, equal_nan=nan)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{op}{k}" for k, (op, *_) in enumerate(CASES)])
def test_a_wrong_value_is_refuted(number: int, request: pytest.FixtureRequest) -> None:
    op, inputs, attrs = CASES[number]
    if op not in registry._VALUES:
        pytest.fail(f"{op} has no handler")
    model = with_known_operands(node_model(op, inputs, **attrs))
    (want,) = Session(model).run({"known": KNOWN}, ["o0"]).values()
    turn = len(MISTAKES) if request.config.getoption("--all-mutants") else IN_THE_BUILD
    for mistake in (MISTAKES[(number + k) % len(MISTAKES)] for k in range(turn)):
        with pytest.MonkeyPatch.context() as patch:
            spoil(patch, op, mistake)
            _assert_refuted(model, want, f"{op} {attrs}, {mistake.__name__}")
        registry.value_entry.cache_clear()


def _assert_refuted(model: onnx.ModelProto, want: Array, what: str) -> None:
    loose = sp.optimize(model, verify="off")
    (wrong,) = Session(loose.proto).run({"known": KNOWN}, ["o0"]).values()
    if not _differ(want, wrong):
        return  # the mistake is none there
    result = sp.optimize(model, verify=sp.Verify(end_check=False))
    folded = [d for d in result.decisions if d.rule == "fold_shape_arithmetic" and d.status in ("applied", "undone")]
    assert "refuted" in {d.verdict for d in folded}, what
    (right,) = Session(result.proto).run({"known": KNOWN}, ["o0"]).values()
    assert not _differ(want, right), what
