"""What no edit may touch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_graphsurgeon as gs

from surgeon_passes.index import GraphIndex, node_label
from surgeon_passes.rules.journal import Edit
from surgeon_passes.rules.rule import Decline


@dataclass(eq=False)
class Guard:
    """Checked for each edit, before it is applied.

    A node of ``nodes`` stays, with its operator, attributes and the names of its operands and results. A node of ``holders``
    stays, and its results keep their names: it makes a tensor that is kept, or reads a constant that is. Keys are ids, so
    that what edits bring in is never held by its name; values say why.
    """

    nodes: Mapping[int, str] = field(default_factory=dict)
    holders: Mapping[int, str] = field(default_factory=dict)
    constants: Mapping[int, str] = field(default_factory=dict)
    """by id(tensor): constants whose readers go on reading them"""
    rules: frozenset[str] = frozenset()
    """names of edits that are left out"""

    def check(self, edit: Edit, index: GraphIndex) -> None:
        """Raises Decline, naming what stays and why."""
        if edit.rule in self.rules:
            raise Decline(f"{edit.rule} is left out (skip)")
        if not (self.nodes or self.holders):
            return
        for image in edit.removed:
            self.check_removed(image.node, index)
        for node, _, old, now in edit.inputs:
            reason = self.constants.get(id(old))
            if old.name != now.name:
                reason = reason or self.nodes.get(id(node))
            if reason:
                raise Decline(f"an operand of {node_label(node)} would change, and {reason}")
        for node, _, old, _ in edit.outputs:
            reason = self.nodes.get(id(node)) or self.holders.get(id(node))
            if reason:
                raise Decline(f"'{old.name}' would get another name, and {reason}")

    def check_removed(self, node: gs.Node, index: GraphIndex) -> None:
        """Raises Decline where ``node``, or something in its bodies, has to stay."""
        reason = self.reason(node, index)
        if reason:
            raise Decline(f"{node_label(node)} stays: {reason}")

    def reason(self, node: gs.Node, index: GraphIndex) -> str:
        """Why ``node`` has to stay in the graph; "" where it may go."""
        if not (self.nodes or self.holders):
            return ""
        held = (self.nodes.get(id(m)) or self.holders.get(id(m)) for m in index.with_bodies(node))
        return next((reason for reason in held if reason), "")
