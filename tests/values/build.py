"""Small models in ONNX text, and what ONNX Runtime says of them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import onnxruntime
from onnx import helper, numpy_helper, parser

from surgeon_passes.model import import_model
from surgeon_passes.values import Evaluator, Partial, Poly, TypeMap


def model(text: str, opset: int = 18, ir: int = 8, **initializers: np.ndarray) -> onnx.ModelProto:
    """A model from ``(inputs) => (outputs) { nodes }``; keywords become initializers."""
    proto = parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]> agraph {text}')
    for name, array in initializers.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return proto


def evaluator(proto: onnx.ModelProto, strict: bool = True) -> Evaluator:
    imported = import_model(proto)
    return Evaluator(imported.graph, types=TypeMap(imported.graph, extras=imported.extras, strict=strict))


def run(proto: onnx.ModelProto, feeds: dict[str, np.ndarray] | None = None) -> list[np.ndarray]:
    """ONNX Runtime's outputs, its optimisations off."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds or {})


def node_model(op: str, inputs: list[np.ndarray | None], outputs: int = 1, opset: int = 18, **attrs) -> onnx.ModelProto:
    """One node on constants."""
    names = ["" if array is None else f"i{k}" for k, array in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{k}" for k in range(outputs)], **attrs)
    constants = [numpy_helper.from_array(np.asarray(a), n) for a, n in zip(inputs, names, strict=True) if a is not None]
    values = [onnx.ValueInfoProto(name=f"o{k}") for k in range(outputs)]
    graph = helper.make_graph([node], "g", [], values, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(proto)
    return inferred


def assert_same(found: object, expected: np.ndarray) -> None:
    """Bit-equal, with dtype and shape."""
    assert isinstance(found, np.ndarray), f"{found} is not known; expected {expected}"
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes() or np.array_equal(found, expected, equal_nan=found.dtype.kind == "f")


def number(dim: object, actual: int, sizes: dict[str, int]) -> int | None:
    """A dim or element at these sizes. A size without a declared name is what it is the first time: ``sizes`` learns it."""
    if not isinstance(dim, Poly):
        return dim
    atom = dim.single_atom()
    if isinstance(atom, str) and atom not in sizes:
        assert atom.startswith("~")
        assert actual >= 0
        sizes[atom] = int(actual)
    return dim.evaluate(sizes) if dim.symbols() <= set(sizes) else None


def assert_shape_holds(found: tuple | None, expected: tuple[int, ...], sizes: dict[str, int]) -> None:
    """What is known of a shape agrees with what it is at these sizes; anonymous sizes are learned."""
    if found is None:
        return
    assert len(found) == len(expected)
    for dim, actual in zip(found, expected, strict=True):
        ours = number(dim, actual, sizes)
        assert ours is None or ours == actual


def assert_holds(found: object, expected: np.ndarray, sizes: dict[str, int]) -> None:
    """What is known of a tensor agrees with what it is at these sizes; anonymous sizes are learned."""
    if found is None:
        return
    if isinstance(found, np.ndarray):
        assert_same(found, expected)
        return
    assert isinstance(found, Partial)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    for element, theirs in zip(found.elements.ravel(), expected.ravel(), strict=True):
        ours = number(element, theirs, sizes)
        assert ours is None or ours == theirs


def tensor(ev: Evaluator, name: str) -> gs.Tensor:
    return ev.tensor(name)


def text(ev: Evaluator, name: str) -> list[str] | str | None:
    """A value as text: one string an element."""
    value = ev.value(name)
    if value is None:
        return None
    flat = value.elements.ravel() if isinstance(value, Partial) else value.ravel()
    found = ["?" if e is None else str(e) for e in flat]
    return found if value.shape else found[0]


def dims(ev: Evaluator, name: str) -> list[str] | None:
    """A shape as text."""
    shape = ev.types.type_of(ev.tensor(name)).shape
    return None if shape is None else ["?" if d is None else str(d) for d in shape]
