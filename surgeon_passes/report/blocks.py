"""Blocks of parallel linear branches that are left: plain facts about a result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Block:
    """A sum with two or more linear branches on one tensor.

    ``node``: the sum's last node; ``tensor``: what the branches read; ``branches``: the operators of each, from there to the
    sum ("Conv, AveragePool"; "" is the tensor itself); ``reason``: why it was not merged.
    """

    node: str
    graph: str
    """path of the scope; "" is the main graph"""
    tensor: str
    branches: tuple[str, ...]
    reason: str
