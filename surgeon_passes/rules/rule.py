"""Rules, and what a rule's function gives back."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from surgeon_passes.errors import RuleError
from surgeon_passes.region import Exactness
from surgeon_passes.rules.check import check_rule
from surgeon_passes.rules.pattern import OpId, Pattern, Rewrite, emitted_operators
from surgeon_passes.rules.syntax import parse_pattern, parse_rewrite

if TYPE_CHECKING:
    from surgeon_passes.rules.match import Leaf, Match, Operand

Function = Callable[["Match"], "Replacement | None"]
Guard = Callable[["Operand"], bool]


class Decline(Exception):
    """Raised by a rule's function: this match is not rewritten, for this reason.

    Without a reason nothing is reported: the node is plainly not what the rule is about. ``final``: nor is any other way
    in which the pattern fits there; none is tried.
    """

    def __init__(self, reason: str = "", *, final: bool = False) -> None:
        super().__init__(" ".join(reason.split()))
        self.is_final = final


class Replacement:
    """Values for the names that the rewrite text uses and the pattern does not bind.

    Arrays become constants (floating ones are cast once, to the dtype that the operator asks for); ints, floats, strings
    and lists serve as attributes; None leaves an optional operand or attribute out; a tuple of operands of the match stands
    for ``name...``. ``outcome`` picks one of several
    rewrites. ``leave`` are leaves of a sum or product that the rewrite does not take: they are joined to the result again.
    """

    __slots__ = ("leave", "outcome", "values")

    def __init__(self, outcome: str | None = None, *, leave: Sequence[Leaf] = (), **values: Any) -> None:
        self.outcome = outcome
        self.leave = tuple(leave)
        self.values = values


@dataclass(frozen=True, eq=False)
class Rule:
    """A rewrite rule. Make one with :func:`rule` or :meth:`from_text`."""

    name: str
    pattern: Pattern
    rewrites: Mapping[str, Rewrite]
    function: Function | None = None
    exactness: Exactness = Exactness.ROUNDING
    sets: tuple[str, ...] = ("user",)
    """sets that a pipeline can name: "fusion", "shape", "reparam", "cleanup" …"""
    opset: tuple[int, int | None] = (1, None)
    """first and last opset of ai.onnx at which the rule holds"""
    may_grow: bool = False
    """whether MACs or weights of the region may rise"""
    recursive: bool = False
    """whether the rule may match its own output"""
    opposes: tuple[str, ...] = ()
    """names of rules that do the opposite: they stand back in a run that this rule is part of"""
    late: bool = False
    """whether the rule waits until the others have come to rest: what it makes hides matches from them"""
    guard: Guard | None = None
    """what must hold at a root, given the operand that it makes: asked before the pattern is tried. It must be cheap, and let
    everything through that the function would rewrite"""
    tag: str = ""
    """what new constants are called after: ``conv1.weight.<tag>``"""
    reference: str | None = None
    """ONNX function text for an emitted custom operator, so that ONNX Runtime can check it"""
    doc: str = field(default="", compare=False)
    source: str = field(default="", compare=False)
    file: str = field(default="", compare=False)
    """the rules file that it was read from, if any"""

    @property
    def label(self) -> str:
        """Its name, behind the rules file that it was read from."""
        return f"{self.file}: {self.name}" if self.file else self.name

    @property
    def family(self) -> str:
        """The file that it comes from."""
        return self.source.rpartition(".")[2]

    @classmethod
    def from_text(
        cls,
        name: str,
        pattern: str,
        rewrite: str | Mapping[str, str],
        function: Function | None = None,
        **options: Any,
    ) -> Rule:
        """Parse and check. Raises RuleError, with a caret in its ``details``, for anything wrong with the text."""
        texts = {"": rewrite} if isinstance(rewrite, str) else dict(rewrite)
        if not texts:
            raise RuleError(f"{name}: no rewrite is given")
        parsed = parse_pattern(pattern, name)
        rewrites = {outcome: parse_rewrite(text, name) for outcome, text in texts.items()}
        check_rule(name, parsed, rewrites, function is not None)
        if function is not None:
            _check_names(name, parsed)
        made = cls(name, parsed, MappingProxyType(rewrites), function, **_checked(name, options))
        made.reference_function()
        return made

    def is_for(self, opset: int) -> bool:
        """Whether the rule holds at that opset of ai.onnx."""
        first, last = self.opset
        return opset >= first and (last is None or opset <= last)

    def reference_function(self) -> Any:
        """``reference`` as a FunctionProto, None where there is none. Raises RuleError where it is no ONNX function."""
        if self.reference is None:
            return None
        from surgeon_passes.ops.custom import function_of

        try:
            found = function_of(self.reference)
        except ValueError as error:
            raise RuleError(f"{self.name}: {error}") from None
        emitted = {op for rewrite in self.rewrites.values() for op in emitted_operators(rewrite)}
        if OpId(found.domain, found.name) not in emitted:
            named = f"{found.domain}.{found.name}" if found.domain else f"{found.name} of no domain"
            custom = ", ".join(sorted(str(op) for op in emitted if op.domain)) or "no custom operator"
            raise RuleError(
                f"{self.name}: reference defines {named}, the rewrite emits {custom}; "
                'begin it with <domain: "…", opset_import: ["" : 17]>'
            )
        return found


def rule(
    *,
    pattern: str,
    rewrite: str | Mapping[str, str],
    exactness: str | Exactness = "rounding",
    name: str | None = None,
    **options: Any,
) -> Callable[[Function], Rule]:
    """Make a :class:`Rule` of a function that computes what its rewrite needs.

    ``exactness``: "exact" (bit-equal), "rounding" (equal in real arithmetic) or "approximate" (off unless asked for).
    Further options are the fields of :class:`Rule`. Raises RuleError where the definition is wrong.
    """

    def decorate(function: Function) -> Rule:
        return Rule.from_text(
            name or function.__name__,
            pattern,
            rewrite,
            function,
            exactness=exactness,
            doc=inspect.getdoc(function) or "",
            source=function.__module__,
            **options,
        )

    return decorate


def _check_names(name: str, pattern: Pattern) -> None:
    """A name that Match has a member of could not be read as ``m.name``."""
    from surgeon_passes.rules.match import Match

    members = {member for member in dir(Match) if not member.startswith("_")} | {"root", "matched", "leftovers", "join"}
    for taken in sorted(pattern.facts.unbound.keys() & members):
        raise RuleError(f"{name}: a pattern cannot call a tensor '{taken}': m.{taken} is something else; rename it")


def _checked(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    known = {
        "exactness",
        "sets",
        "opset",
        "may_grow",
        "recursive",
        "opposes",
        "late",
        "guard",
        "tag",
        "reference",
        "doc",
        "source",
    }
    unknown = sorted(set(options) - known)
    if unknown:
        raise RuleError(f"{name}: a rule has no option '{unknown[0]}' (options: {', '.join(sorted(known))})")
    found = dict(options)
    exactness = found.get("exactness", Exactness.ROUNDING)
    if not isinstance(exactness, Exactness):
        choices = [e.value for e in Exactness]
        if exactness not in choices:
            raise RuleError(f"{name}: exactness is '{exactness}', not one of {', '.join(choices)}")
        found["exactness"] = Exactness(exactness)
    for several in ("sets", "opposes"):
        if several in found:
            found[several] = (found[several],) if isinstance(found[several], str) else tuple(found[several])
    return found
