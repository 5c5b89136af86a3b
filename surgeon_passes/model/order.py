"""Topological order of NodeProtos, keeping the file's order where it is legal."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator

import onnx

from surgeon_passes.errors import ModelError
from surgeon_passes.model.nested import bodies


def sorted_nodes(nodes: list[onnx.NodeProto], known: Container[str], source: str) -> list[onnx.NodeProto]:
    """``nodes`` so that each follows what it reads, also from inside its bodies. Raises ModelError for a cycle."""
    maker = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    waiting = [0] * len(nodes)
    users: list[list[int]] = [[] for _ in nodes]
    in_order = True
    for number, node in enumerate(nodes):
        for name in set(reads(node)):
            before = maker.get(name)
            if before is None or name in known:
                continue
            waiting[number] += 1
            users[before].append(number)
            in_order = in_order and before < number
    if in_order:
        return nodes
    ready = [number for number, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order: list[onnx.NodeProto] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(nodes[number])
        for user in users[number]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        stuck = nodes[next(number for number, count in enumerate(waiting) if count)]
        name = stuck.name or (stuck.output[0] if stuck.output else stuck.op_type)
        raise ModelError(f"{source}: the graph has a cycle through node '{name}' ({stuck.op_type})")
    return order


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, and that its bodies capture (names a body defines itself are left out)."""
    yield from (name for name in node.input if name)
    for body in bodies(node):
        yield from captures(body)


def captures(graph: onnx.GraphProto) -> Iterator[str]:
    """Names that a body reads from outside."""
    own = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer}
    own |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in reads(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)
