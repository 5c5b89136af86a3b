"""graphsurgeon's objects, made without what their constructors do for lists that are empty anyway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.util.misc import SynchronizedList


def _fields(made: Any) -> frozenset[str]:
    return frozenset(vars(made))


# Another version of graphsurgeon may hold more: then its own constructors are used.
_VARIABLE = _fields(gs.Variable("t")) == {"name", "inputs", "outputs", "dtype", "shape", "type"}
_CONSTANT = _fields(gs.Constant("t", np.zeros(1))) == {
    "name", "inputs", "outputs", "_values", "data_location", "_export_dtype",
}  # fmt: skip
_NODE = _fields(gs.Node("Relu")) == {"op", "name", "attrs", "inputs", "outputs", "domain"}
_LIST = _fields(gs.Variable("t").inputs) == {"parent_obj", "field_name"}


def _linked(owner: Any, field: str, elements: Iterable[Any] = ()) -> Any:
    """A list of ``owner`` as graphsurgeon has it; the elements are not told."""
    made = SynchronizedList.__new__(SynchronizedList, ())
    made.parent_obj, made.field_name = owner, field
    list.extend(made, elements)
    return made


def _tensor(made: Any, **fields: Any) -> Any:
    """``made``, a tensor that is nothing yet, with lists that are empty."""
    vars(made).update(inputs=_linked(made, "outputs"), outputs=_linked(made, "inputs"), **fields)
    return made


def make_variable(name: str) -> gs.Variable:
    """As ``gs.Variable(name)``."""
    if not (_VARIABLE and _LIST):
        return gs.Variable(name)
    return _tensor(gs.Variable.__new__(gs.Variable), name=name, dtype=None, shape=None, type="tensor_type")


def make_constant(name: str, values: LazyValues) -> gs.Constant:
    """As ``gs.Constant(name, values)``."""
    if not (_CONSTANT and _LIST):
        return gs.Constant(name, values)
    return _tensor(gs.Constant.__new__(gs.Constant), name=name, _values=values, data_location=None, _export_dtype=None)


def make_node(
    op: str, name: str, attrs: dict[str, Any], domain: str | None, inputs: list[gs.Tensor], outputs: list[gs.Tensor]
) -> gs.Node:
    """As ``gs.Node(op, name, attrs, inputs, outputs, domain)``."""
    if not (_NODE and _LIST):
        return gs.Node(op, name, attrs, inputs, outputs, domain)
    made = gs.Node.__new__(gs.Node)
    vars(made).update(
        op=op,
        name=name,
        attrs=attrs,
        inputs=_linked(made, "outputs", inputs),
        outputs=_linked(made, "inputs", outputs),
        domain=domain,
    )
    for tensor in inputs:
        list.append(tensor.outputs, made)
    for tensor in outputs:
        list.append(tensor.inputs, made)
    return made
