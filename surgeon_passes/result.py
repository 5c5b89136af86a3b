"""What a run gives back: the model, the decisions, the report."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.decisions import REFUTED, UNDONE, VERIFIED, Decision
from surgeon_passes.engines import with_libraries
from surgeon_passes.errors import UsageError
from surgeon_passes.model.export import export_model
from surgeon_passes.model.extras import Model
from surgeon_passes.model.files import digest_of_file, digest_of_model, stamp_of, with_weights, write_proto
from surgeon_passes.model.nested import bodies
from surgeon_passes.model.weights import Weights
from surgeon_passes.ops.custom import find
from surgeon_passes.ops.schema import STANDARD, is_microsoft
from surgeon_passes.passes.state import Verify
from surgeon_passes.report.blocks import Block
from surgeon_passes.report.counts import Counts
from surgeon_passes.report.dynamic import Dynamic, is_static
from surgeon_passes.traces import Ran

if TYPE_CHECKING:
    from surgeon_passes.stages.stage import Stage
    from surgeon_passes.timing.latency import Latency


@dataclass(eq=False)
class Result:
    """``proto`` is the optimised ModelProto (external data still in ``folder``), ``model`` its graph.

    ``light`` is the same with references in the place of large weights, which ``weights`` finds.
    """

    model: Model
    light: onnx.ModelProto
    weights: Weights
    decided: list[Decision]
    """what was applied, undone, or declined by a rule's function"""
    notes: list[str]
    before: Counts
    after: Counts
    iterations: int
    converged: bool
    check: Any
    """the EndCheck; None where it was switched off"""
    verify: Verify
    seconds: float
    source: str
    original: onnx.ModelProto | None = None
    """what the model was; the large weights of a large file stay in it, as external data of itself"""
    external: bool = False
    shapes: Mapping[str, Any] = field(default_factory=dict)
    settings: Sequence[str] = ()
    """target sets that were asked for, and the rules that stood back because they do the opposite"""
    dynamic: Dynamic = field(default_factory=Dynamic)
    """what is not static, and why: operators whose size is data, and nodes that compute with sizes"""
    blocks: tuple[Block, ...] = ()
    """sums of parallel linear branches that are left, and why"""
    find_near_misses: Callable[[], list[Decision]] = list
    isolated: bool = False
    """whether ONNX Runtime was kept in a process of its own"""
    ran: Ran = field(default_factory=Ran)
    """how the run was told to go, and how it went: for the record"""
    checked_at: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """shapes of the inputs of the end check's first run, where there was one"""
    stamp: tuple[int, int, int] | None = None
    """tells whether the file that the model was read from is still the same"""
    latency: Latency | None = None
    """None until :meth:`measure_latency`"""
    trace_again: Callable[[], list[Decision]] | None = field(default=None, repr=False)
    """does the run again, with traces; None where there are traces"""
    stages: tuple[Stage, ...] = ()
    """the model after each pass, where that was asked for; then stages that were undone"""

    def __repr__(self) -> str:
        check = "off" if self.check is None else self.check.status
        return f"<Result of {self.source}: {self.before.nodes} -> {self.after.nodes} nodes, end check {check}>"

    @property
    def graph(self) -> gs.Graph:
        return self.model.graph

    @property
    def folder(self) -> str:
        """Where the model's external data lies."""
        return self.weights.folder

    @cached_property
    def proto(self) -> onnx.ModelProto:
        """The optimised model, made when it is first asked for, weights and all: :meth:`save` needs less memory."""
        return with_weights(self.light, self.weights, self.external)

    @cached_property
    def checker_error(self) -> str:
        """What the ONNX checker says against the result; "" where it says nothing."""
        try:
            onnx.checker.check_model(export_model(self.model, weights="none"))
        except onnx.checker.ValidationError as error:
            return " ".join(str(error).split())
        return ""

    @cached_property
    def decisions(self) -> list[Decision]:
        """Everything that was decided, and where rules come close in the result without matching, and why.

        The latter are looked for when they are first asked for: every rule is tried in full on the whole result.
        """
        return [*self.decided, *self.find_near_misses()]

    @property
    def undone(self) -> list[Decision]:
        """Rewrites that were refuted and undone."""
        return [d for d in self.decided if d.status == UNDONE and d.verdict == REFUTED]

    @property
    def applied(self) -> list[Decision]:
        return [d for d in self.decided if d.status == "applied"]

    @property
    def dynamic_inputs(self) -> list[str]:
        """Inputs with a dim that is not fixed."""
        return [
            str(t.name)
            for t in self.graph.inputs
            if t.type in (None, "tensor_type") and (t.shape is None or not all(isinstance(d, int) for d in t.shape))
        ]

    @cached_property
    def dynamic_items(self) -> list[str]:
        """Tensors whose shape is not known in full, Shape and Size nodes among them."""
        found = []
        todo = [self.light.graph]
        while todo:
            graph = todo.pop()
            info = {v.name: v for v in (*graph.value_info, *graph.output)}
            for node in graph.node:
                todo += bodies(node)
                is_size = node.op_type in ("Shape", "Size")
                found += [name for name in node.output if name and (is_size or not is_static(info.get(name)))]
        return found

    @property
    def is_static(self) -> bool:
        """Whether every tensor has a fixed shape and nothing computes with shapes when the model runs."""
        return not self.dynamic_inputs and not self.dynamic_items

    @property
    def exit_code(self) -> int:
        """The command line's: 4 checker, 5 not shown equal, 3 dynamic items left, 7 rewrites undone, 0 all well."""
        if self.checker_error:
            return 4
        if self.check is not None and self.check.status != "equal" and not self._regions_decide():
            return 5
        if self.shapes and not self.dynamic_inputs and self.dynamic_items:
            return 3
        return 7 if self.undone else 0

    @cached_property
    def custom_operators(self) -> dict[str, int]:
        """Operators that neither ONNX nor ONNX Runtime nor the model defines, and that nobody has told about, and how often
        they stand in it."""
        own = {f"{function.domain}.{function.name}" for function in self.graph.functions}
        return {
            name: number
            for name, number in self.after.operators.items()
            if "." in name and name not in own and not _is_known(name)
        }

    def _regions_decide(self) -> bool:
        """Whether the word is left to the regions, all of them verified.

        It is after an inconclusive end check, and where custom operators keep ONNX Runtime from running the model.
        """
        left = self.check.status == "inconclusive" or (self.check.status == "not run" and bool(self.custom_operators))
        return left and all(d.verdict == VERIFIED for d in self.applied)

    def measure_latency(self, batches: Sequence[int] = (), threads: int = 1) -> Latency:
        """Run original and result in ONNX Runtime, in turn; from then on the report shows the times.

        ``batches`` are sizes for the open first dims of the inputs, one measurement each; ``threads`` is how many ONNX
        Runtime may use. Raises UsageError for batches where no first dim is open.
        """
        from surgeon_passes.timing.latency import measure

        with with_libraries(self.verify.custom_ops):
            self.latency = measure(self, batches, threads)
        return self.latency

    def report(self) -> str:
        """The text report."""
        from surgeon_passes.report.text import render

        return render(self)

    @cached_property
    def source_digest(self) -> tuple[str | None, int | None]:
        """(SHA-256, bytes) of the model's file, or of what would be written of a model that came as an object. None where
        the file has been replaced since it was read. Raises ModelError where it cannot be read."""
        if self.stamp is not None:
            return digest_of_file(self.source) if stamp_of(self.source) == self.stamp else (None, None)
        return (None, None) if self.original is None else digest_of_model(self.original, self.weights)

    @cached_property
    def _record(self) -> dict[str, Any]:
        from surgeon_passes.record.build import record

        if self.trace_again is not None:
            self._trace(self.trace_again())
        return record(self)

    def _trace(self, again: Sequence[Decision]) -> None:
        """Take over the traces of a second run. Raises UsageError where it went otherwise than the first."""
        said = [(d.rule, d.graph, d.root, d.status) for d in self.decided[: len(again)]]
        if said != [(d.rule, d.graph, d.root, d.status) for d in again]:
            raise UsageError(f"{self.source}: done again the run went otherwise; give record=True from the start")
        for decision, traced in zip(self.decided, again, strict=False):
            decision.trace = traced.trace
        self.trace_again = None

    def record(self) -> dict[str, Any]:
        """The decision record: all that was decided, and how it can be done again, as data that JSON holds.

        Made once, by doing the run again where it was not told to keep a record (``record=True``).
        ``surgeon_passes/record/schema.json`` describes it. Raises ModelError where weights cannot be read, UsageError where
        the second run went otherwise.
        """
        return copy.deepcopy(self._record)

    def save_record(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`record` as JSON. Raises ModelError where the place cannot be written."""
        from surgeon_passes.record.files import write_record

        write_record(path, self._record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; weights go beside it where the input had them so, or where they exceed 2 GB.

        Raises ModelError where the place cannot be written; nothing is left half-written.
        """
        if self.stamp is not None and stamp_of(path) == self.stamp:
            _ = self.source_digest  # the last moment at which it can be told
        changed = vars(self).get("proto", self.light)  # who asked for it may have changed it
        write_proto(changed, path, self.weights, self.external)


def _is_known(name: str) -> bool:
    domain, _, op = name.rpartition(".")
    return domain in STANDARD or is_microsoft(domain) or find(domain, op) is not None


__all__: Sequence[str] = ["Result"]
