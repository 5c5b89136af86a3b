"""Every handler against ONNX Runtime on drawn arguments, at every opset at which its meaning changed.

One drawn example is a model of several nodes on constants. Each handler must be reached: what is counted are nodes whose
value the evaluator knew, through the handler that is registered for that opset.
"""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort

from surgeon_passes.values import registry
from tests.values.build import assert_same, evaluator, run
from tests.values.examples import GENERATORS, Example

NODES, BATCHES = 10, 21
REFUSALS = (ort.Fail, ort.InvalidArgument, ort.RuntimeException, ort.NotImplemented, ort.InvalidGraph)
LEAST_KNOWN = {"Pow": 0.9}
"""Share of the examples that must be known where it is not 0.97."""
PAIRS = [(op, opset) for op, (_, opsets) in GENERATORS.items() for opset in opsets]
IR = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6}


def model_of(examples: list[Example], opset: int) -> onnx.ModelProto:
    nodes, constants, outputs = [], [], []
    for number, example in enumerate(examples):
        names = []
        for position, array in enumerate(example.inputs):
            names.append("" if array is None else f"e{number}i{position}")
            if array is not None:
                constants.append(numpy_helper.from_array(np.asarray(array), names[-1]))
        results = [f"e{number}o{k}" for k in range(example.outputs)]
        nodes.append(helper.make_node(example.op, names, results, **example.attrs))
        outputs += [onnx.ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph(nodes, "g", [], outputs, constants)
    ir = max(4, IR.get(opset, 8))
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    )


class Tally:
    def __init__(self, op: str, opset: int) -> None:
        self.entry = registry.value_entry(op, opset)
        self.op, self.opset = op, opset
        self.called = self.ran = self.known = 0
        self.refused: Counter[tuple[str, ...]] = Counter()

    def value_entry(self, op: str, opset: int) -> registry.Entry | None:
        assert (op, opset) == (self.op, self.opset)
        assert self.entry is not None

        def counting(n):
            self.called += 1
            return self.entry.function(n)

        return registry.Entry(counting, self.entry.since, self.entry.until, self.entry.large, self.entry.irregular)

    def check(self, examples: list[Example]) -> None:
        examples = [e for e in examples if e.signature not in self.refused]
        try:
            expected = run(model_of(examples, self.opset)) if examples else []
        except REFUSALS as refusal:
            if len(examples) > 1:
                for example in examples:
                    self.check([example])
            elif isinstance(refusal, (ort.NotImplemented, ort.InvalidGraph)):
                self.refused[examples[0].signature] += 1
            else:
                raise
            return
        with mock.patch.object(registry, "value_entry", self.value_entry):
            ev = evaluator(model_of(examples, self.opset))
            found = [[ev.value(f"e{k}o{j}") for j in range(e.outputs)] for k, e in enumerate(examples)]
        results = iter(expected)
        for example, values in zip(examples, found, strict=True):
            self.ran += 1
            self.known += all(v is not None for v in values)
            for value in values:
                wanted = next(results)
                if value is not None:
                    try:
                        assert_same(value, wanted)
                    except AssertionError as error:
                        raise AssertionError(f"{example}: {error}") from error


@pytest.mark.parametrize(("op", "opset"), PAIRS, ids=str)
def test_equals_onnx_runtime(op: str, opset: int) -> None:
    make = GENERATORS[op][0]
    tally = Tally(op, opset)

    @settings(
        max_examples=BATCHES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.randoms(use_true_random=False))
    def example(r):
        tally.check([make(r, opset) for _ in range(NODES)])

    example()
    assert tally.ran >= 200
    assert tally.called >= tally.ran
    assert tally.known >= LEAST_KNOWN.get(op, 0.97) * tally.ran


def test_a_backward_slice_to_the_largest_end_is_unknown() -> None:
    """Clamped to the axis it leaves nothing; ONNX Runtime takes it for the far end."""
    proto = model_of([Example("Slice", [np.array([7, 8, 9]), *(np.array([v]) for v in (1, 2**31 - 1, 0, -1))])], 13)
    assert run(proto)[0].tolist() == [8, 7]
    ev = evaluator(proto)
    assert ev.value("e0o0") is None


def test_every_handler_is_drawn() -> None:
    elsewhere = {"Constant", "If", "Loop"}
    assert registry.handled_operators() == set(GENERATORS) | elsewhere
