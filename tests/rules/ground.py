"""A model with everything that matching and rewriting ask for, and rules as short texts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.index import Scope
from surgeon_passes.model import export_model, import_model
from surgeon_passes.passes import Verify
from surgeon_passes.passes.state import State, remove_dead
from surgeon_passes.rules.journal import Edit
from surgeon_passes.rules.match import Match
from surgeon_passes.rules.matcher import Matcher, Miss
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.roots import operand_kinds
from surgeon_passes.rules.rule import Function, Rule
from surgeon_passes.rules.syntax import parse_pattern
from tests.models import model


class Ground:
    """One model under test: matched by patterns, changed by rules, exported again."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.state = State(import_model(proto), Registry(), Verify(mode="off"), proto)
        self.index = self.state.index

    @property
    def rewriter(self) -> Any:
        return self.state.rewriter

    def node(self, output: str, path: str = "") -> gs.Node:
        """The node that makes ``output`` in the graph at ``path``."""
        scope = self.scope(path)
        return next(n for n in self.index.scope_nodes(scope) if any(t.name == output for t in n.outputs))

    def scope(self, path: str) -> Scope:
        return next(s for s in self.index.scopes if s.path == path)

    def tensor(self, name: str) -> gs.Tensor:
        return next(t for t in self.index.tensors() if t.name == name)

    def matches(self, pattern: str, output: str = "y", path: str = "") -> list[dict[str, Any]]:
        """Every match with its root at the node that makes ``output``, as names bound to names."""
        matcher, root = self.matcher(pattern), self.node(output, path)
        found = [self.names(m) for m in matcher.matches(root)]
        assert not found or self.may_match(matcher, root)
        return found

    def match(self, pattern: str, output: str = "y", path: str = "") -> Match | None:
        return next(self.matcher(pattern).matches(self.node(output, path)), None)

    def may_match(self, matcher: Matcher, root: gs.Node) -> bool:
        """Whether both steps that rule roots out let this one through."""
        view = self.index.view(root)
        looks_right = matcher.facts.root_operands.fit(view, operand_kinds(view, self.index))
        return looks_right and matcher.may_match(root)

    def miss(self, pattern: str, output: str = "y", path: str = "") -> Miss:
        matcher = self.matcher(pattern)
        assert not list(matcher.matches(self.node(output, path)))
        return matcher.miss

    def matcher(self, pattern: str) -> Matcher:
        return Matcher(parse_pattern(textwrap.dedent(pattern), "rule"), self.state.context)

    @staticmethod
    def names(match: Match) -> dict[str, Any]:
        return {key: _name(value) for key, value in match._names.items()}

    def apply(self, rule: Rule, output: str = "y", path: str = "") -> Edit:
        """The rule's first match at the node that makes ``output``. Raises Decline as the rewriter does."""
        match = next(Matcher(rule.pattern, self.state.context).matches(self.node(output, path)))
        edit: Edit = self.rewriter.rewrite(rule, match)
        return edit

    def export(self, clean: bool = True) -> onnx.ModelProto:
        """The model as it stands, checked."""
        if clean:
            remove_dead(self.state)
        self.index.sync()
        proto = export_model(self.state.model)
        onnx.checker.check_model(proto)
        return proto

    def bytes(self) -> bytes:
        """The model as it stands, dead nodes included."""
        self.index.sync()
        return export_model(self.state.model).SerializeToString(deterministic=True)


def ground(text: str, opset: int = 17, **constants: Any) -> Ground:
    return Ground(model(text, opset, **constants))


def unary(*lines: str, opset: int = 17, **constants: Any) -> Ground:
    """x [2,3] to y [2,3]."""
    return ground(f"g (float[2,3] x, float[2,3] z) => (float[2,3] y) {{ {' '.join(lines)} }}", opset, **constants)


def _name(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(t.name for t in value)
    return value.name if isinstance(value, gs.Tensor) else value


def make(
    pattern: str,
    rewrite: str | Mapping[str, str],
    function: Function | None = None,
    name: str = "rule_under_test",
    **options: Any,
) -> Rule:
    return Rule.from_text(name, textwrap.dedent(pattern), rewrite, function, **options)
