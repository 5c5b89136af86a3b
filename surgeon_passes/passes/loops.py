"""Loop: what no turn changes is read from around the loop instead of being handed from turn to turn."""

from __future__ import annotations

import onnx_graphsurgeon as gs

from surgeon_passes.index import subgraphs
from surgeon_passes.model.extras import Extras
from surgeon_passes.ops.schema import domain_of
from surgeon_passes.passes.edits import make_edit
from surgeon_passes.passes.settle import settle
from surgeon_passes.passes.state import State

RULE = "read_loop_invariant"


def read_loop_invariants(state: State) -> bool:
    """Let each Loop body read a carried value that it gives back unchanged from where the loop got it.

    Exporters carry every weight so; read from outside, a constant is one. The loop's interface stays as it is.
    """
    state.index.sync_bodies()
    edits = []
    for node in state.index.nodes():
        if node.op == "Loop" and not domain_of(node.domain) and state.index.is_live(node):
            body = dict(subgraphs(node)).get("body")
            swap = {} if body is None else _unchanged(state, node, body)
            if swap:
                edit = make_edit(state, RULE, node, _pairs(node), removed=[node], added=[_copy(state, node, swap)])
                edits += [] if edit is None else [edit]
    return bool(edits and settle(state, edits))


def _unchanged(state: State, node: gs.Node, body: gs.Graph) -> dict[int, gs.Tensor]:
    """By id(input of the body) that a node reads: the tensor around the loop that it always is."""
    found: dict[int, gs.Tensor] = {}
    for inner, result, outer in zip(body.inputs[2:], body.outputs[1:], node.inputs[2:], strict=False):
        is_read = any(user.op != "Identity" for user in state.index.consumers(inner))
        if outer.name and is_read and _source(state, result) is inner:
            found[id(inner)] = outer
    return found


def _source(state: State, tensor: gs.Tensor) -> gs.Tensor:
    """What ``tensor`` is, through Identities."""
    node = state.index.producer(tensor)
    while node is not None and node.op == "Identity" and not domain_of(node.domain):
        tensor = node.inputs[0]
        node = state.index.producer(tensor)
    return tensor


def _pairs(node: gs.Node) -> list[tuple[gs.Tensor, gs.Tensor]]:
    return [(t, t) for t in node.outputs if t.name]


def _copy(state: State, node: gs.Node, swap: dict[int, gs.Tensor]) -> gs.Node:
    """The node anew with bodies whose nodes, Identities apart, read what ``swap`` names; tensors are shared."""
    extras = state.model.extras
    attrs = {
        name: _copy_body(state, value, swap, extras) if isinstance(value, gs.Graph) else value
        for name, value in node.attrs.items()
    }
    made = gs.Node(node.op, node.name, attrs, domain=node.domain)
    gives_back = node.op == "Identity"
    list.extend(made.inputs, node.inputs if gives_back else [swap.get(id(t), t) for t in node.inputs])
    list.extend(made.outputs, node.outputs)
    if id(node) in extras.nodes:
        extras.nodes[id(made)] = extras.nodes[id(node)]
    return made


def _copy_body(state: State, body: gs.Graph, swap: dict[int, gs.Tensor], extras: Extras) -> gs.Graph:
    copy = gs.Graph(
        nodes=[],
        inputs=list(body.inputs),
        outputs=list(body.outputs),
        name=body.name,
        doc_string=body.doc_string,
        opset=body.opset,
        import_domains=body.import_domains,
    )
    inner = state.index.scope_nodes(state.index.scope_of_graph(body))
    copy.nodes[:] = [_copy(state, n, swap) for n in inner]
    if id(body) in extras.graphs:
        extras.graphs[id(copy)] = extras.graphs[id(body)]
    return copy
