"""What a rule's text compiles to.

These frozen dataclasses are public: the escape hatch for what the grammar does not say, and what tests compare.
``syntax.py`` makes them from text, ``matcher.py`` matches a :class:`Pattern`, ``rewriter.py`` emits a :class:`Rewrite`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from typing import Literal as OneOf

if TYPE_CHECKING:
    from surgeon_passes.rules.facts import PatternFacts


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a rule's text: 1-based line, 0-based columns, end exclusive."""

    line: int
    start: int
    end: int


NOWHERE = Span(0, 0, 0)

Scalar: TypeAlias = int | float | bool | str
Kind: TypeAlias = OneOf["any", "const", "partial", "unshared"]


class OpId(NamedTuple):
    """An operator: domain ("" is ai.onnx) and type."""

    domain: str
    name: str

    def __str__(self) -> str:
        return f"{self.domain}.{self.name}" if self.domain else self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, string or (nested) list; as an argument, a constant tensor with that value."""

    value: Scalar | tuple[object, ...]
    span: Span = field(default=NOWHERE, compare=False)

    def __eq__(self, other: object) -> bool:
        """NaN is itself: since Python 3.13 fields are compared one by one, no longer as tuples."""
        if not isinstance(other, Literal):
            return NotImplemented
        return (self.value,) == (other.value,)

    def __hash__(self) -> int:
        return hash(self.value)


@dataclass(frozen=True, slots=True)
class Capture:
    """``@name``: an attribute's value, bound in a pattern, used in a rewrite."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class NameRef:
    """A tensor by name, with what is asked of it.

    ``optional``: may be missing (binds None). ``variadic``: stands for all remaining operands (binds a tuple).
    ``kind``: "const" fully known, "partial" integers known in part, "unshared" used by nobody else.
    """

    name: str
    kind: Kind = "any"
    optional: bool = False
    variadic: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class AttrPattern:
    """``<name=value>`` in a pattern."""

    name: str
    value: Literal | Capture
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, or alternatives of one, with arguments: ``A|B(x, w)<axis=1>``."""

    ops: tuple[OpId, ...]
    args: tuple[Value, ...]
    attrs: tuple[AttrPattern, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Alternatives:
    """``… | … | x``: tried in order."""

    options: tuple[Value, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """``branch(x)...`` inside sum/prod: every leaf that the template fits."""

    template: str
    params: tuple[str, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Flat:
    """``sum(…)`` / ``prod(…)``: a flattened tree of Add and Sum, or of Mul, with operands in any order."""

    kind: OneOf["sum", "prod"]
    args: tuple[Value | TemplateUse, ...]
    span: Span = field(default=NOWHERE, compare=False)


Value: TypeAlias = NameRef | Literal | Call | Alternatives | Flat


@dataclass(frozen=True, slots=True)
class OutputName:
    """A result on the left of ``=``; one that is not named must be unused."""

    name: str
    optional: bool = False
    variadic: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Definition:
    """``y, mask? = Dropout(x)``. Several outputs only with a Call."""

    outputs: tuple[OutputName, ...]
    value: Value
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Template:
    """``branch(x) = … | … | x``: params are shared by all leaves, other names belong to one leaf."""

    name: str
    params: tuple[str, ...]
    options: tuple[Value, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Pattern:
    """Definitions in text order; the last one is the root, where matching is anchored."""

    definitions: tuple[Definition, ...]
    templates: Mapping[str, Template] = field(default_factory=dict)
    text: str = field(default="", compare=False)

    @property
    def root(self) -> Definition:
        return self.definitions[-1]

    @cached_property
    def facts(self) -> PatternFacts:
        """What follows from the pattern alone."""
        from surgeon_passes.rules.facts import PatternFacts

        return PatternFacts(self)


# --- the rewrite side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SameOp:
    """``@c(…)``: the operator that matched where ``c`` was defined."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Attrs:
    """``<@c, pads=@P>``: all attributes of ``c`` (or of none), some replaced. A None value leaves one out."""

    base: str | None = None
    items: tuple[tuple[str, Literal | Capture], ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Emit:
    """One node of a rewrite."""

    op: OpId | SameOp
    args: tuple[RewriteValue, ...]
    attrs: Attrs = Attrs()
    span: Span = field(default=NOWHERE, compare=False)


RewriteValue: TypeAlias = NameRef | Literal | Emit


@dataclass(frozen=True, slots=True)
class RewriteLine:
    """``y = Conv(x, W, B)<@c>`` or ``y = x``."""

    outputs: tuple[str, ...]
    value: RewriteValue
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One outcome: its lines in order."""

    lines: tuple[RewriteLine, ...]
    text: str = field(default="", compare=False)


def emitted_operators(rewrite: Rewrite) -> set[OpId]:
    """The operators that a rewrite names."""
    found: set[OpId] = set()
    todo: list[RewriteValue] = [line.value for line in rewrite.lines]
    while todo:
        value = todo.pop()
        if isinstance(value, Emit):
            todo.extend(value.args)
            if isinstance(value.op, OpId):
                found.add(value.op)
    return found
