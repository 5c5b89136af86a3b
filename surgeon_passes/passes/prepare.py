"""What is done to a file before it is imported: checked as a whole, original against result, since no rule takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx

from surgeon_passes.decisions import APPLIED, DECLINED, REFUTED, UNDONE, UNVERIFIED, VERIFIED, Decision
from surgeon_passes.errors import SurgeonError
from surgeon_passes.model.files import with_weights
from surgeon_passes.model.weights import Weights
from surgeon_passes.passes.base import Pass
from surgeon_passes.passes.state import State, Verify

Check = Callable[[onnx.ModelProto], Any]
"""the end check of a proposed model against what the file holds"""


@dataclass(eq=False)
class Draft:
    """The model on its way to the import. ``check`` is None where verification is off."""

    proto: onnx.ModelProto
    verify: Verify
    check: Check | None
    confined: bool = False
    """whether ``keep`` or ``only`` say what may change"""
    weights: Weights = field(default_factory=Weights)
    """finds what ``proto`` refers to"""
    decisions: list[Decision] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def whole(self) -> onnx.ModelProto:
        """A copy of the model with all its weights inside. Raises ModelError for one that cannot be found."""
        found = onnx.ModelProto()
        found.CopyFrom(self.proto)
        return with_weights(found, self.weights, in_place=True)

    def decline(self, rule: str, root: str, reason: str) -> None:
        self.decisions.append(Decision(rule, "", root, DECLINED, reason=reason))

    def propose(self, rule: str, root: str, proto: onnx.ModelProto, nodes: tuple[str, ...] = ()) -> bool:
        """Take ``proto`` where it is shown equal to the original, as strictly as rewrites are; the decision says so."""
        decision = Decision(rule, "", root, APPLIED, UNVERIFIED, nodes=nodes)
        self.decisions.append(decision)
        if self.check is None:
            decision.reason = "verification is off"
        else:
            self._judge(decision, self.check(proto))
        if decision.status == APPLIED:
            self.proto = proto
        return decision.status == APPLIED

    def _judge(self, decision: Decision, check: Any) -> None:
        decision.metrics = {"max_error": check.error, "tensor": check.output}
        decision.reason = check.reason
        if check.status == "equal":
            decision.verdict = VERIFIED
        elif check.status == "different":
            decision.status, decision.verdict = UNDONE, REFUTED
        elif self.verify.mode != "available":
            decision.status = UNDONE
            decision.reason = f"{check.status}: {check.reason}"


@dataclass(frozen=True)
class Preparation(Pass):
    """A pass over the file itself: it runs once, before the model is imported, in the order of the pipeline."""

    once: ClassVar[bool] = True

    def run(self, state: State) -> bool:
        """Nothing: the work was done by :meth:`prepare`."""
        return False

    def prepare(self, draft: Draft) -> None:
        """Propose another model. Raises UsageError for options that do not fit the model."""
        raise NotImplementedError(type(self).__name__)


def reason_of(error: Exception) -> str:
    """Why something failed, in one line."""
    from surgeon_passes.model.light import one_line

    return str(error) if isinstance(error, SurgeonError) else one_line(error)
