"""Passes in order, on whatever a model comes as."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx_graphsurgeon as gs

from surgeon_passes.attempt import Attempts
from surgeon_passes.engines import Isolate, isolated, with_libraries
from surgeon_passes.errors import ModelError, RuleError, SurgeonError, UsageError, did_you_mean
from surgeon_passes.model import Model, export_light, import_model
from surgeon_passes.model.files import read_model, stamp_of
from surgeon_passes.model.graphs import check_depth, model_of_graph
from surgeon_passes.model.light import one_line
from surgeon_passes.model.put_back import put_back
from surgeon_passes.passes import (
    Cleanup,
    Constants,
    ConvertOpset,
    Duplicates,
    Fold,
    InlineFunctions,
    Onnxsim,
    Pass,
    Rewrite,
    Sizes,
    Specialize,
    toml,
)
from surgeon_passes.passes.registry import pass_kinds
from surgeon_passes.passes.rewrite import DEFAULT_SETS
from surgeon_passes.passes.specialize import Shape
from surgeon_passes.passes.state import Observer, Permit, Progress, Verify
from surgeon_passes.passes.text import parse_passes
from surgeon_passes.report.counts import Counts
from surgeon_passes.result import Result
from surgeon_passes.rules.registry import Registry
from surgeon_passes.rules.rule import Rule
from surgeon_passes.run import Run, Switches
from surgeon_passes.selection import Only
from surgeon_passes.stages.stage import Stages

MAX_ITERATIONS = 10
"""Rounds after which a pipeline stops where it has not converged."""
Source: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | gs.Graph | Model"


class Pipeline:
    """Passes in order. Those that run once come first; the others repeat until nothing changes."""

    def __init__(self, *passes: Pass, max_iterations: int = MAX_ITERATIONS) -> None:
        self.passes = _checked(passes) or default_passes()
        self.max_iterations = max_iterations

    def __eq__(self, other: object) -> bool:
        """Whether both do the same: equal passes with equal options, in the same order."""
        if not isinstance(other, Pipeline):
            return NotImplemented
        return (self.passes, self.max_iterations) == (other.passes, other.max_iterations)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        steps = ", ".join(map(repr, self.passes))
        return f"Pipeline({steps}, max_iterations={self.max_iterations})"

    # --- as text -----------------------------------------------------------------------------------------------------

    @classmethod
    def parse(cls, text: str, shapes: Mapping[str, Shape] | None = None) -> Pipeline:
        """``"specialize,fold{max_bytes=1MiB},rewrite{sets=shape+fusion}"``; ``shapes`` are for a bare specialize.

        Raises UsageError.
        """
        return cls(*parse_passes(text, shapes))

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Pipeline:
        """The pipeline of a TOML file, as :meth:`to_toml` writes it. Raises UsageError, and ModelError for no such file."""
        name = os.fspath(path)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{name}: cannot be read: {one_line(error)}") from error
        passes, iterations = toml.loads(text, name)
        return cls(*passes, max_iterations=MAX_ITERATIONS if iterations is None else iterations)

    def to_toml(self) -> str:
        """Text of a file that :meth:`from_toml` reads back to an equal pipeline. Raises UsageError for rules that are
        objects: a file can only name them."""
        return toml.dumps(self.passes, self.max_iterations)

    # --- passes more or less -----------------------------------------------------------------------------------------

    def before(self, name: str, *passes: Pass) -> Pipeline:
        """This pipeline with ``passes`` before the one called ``name``. Raises UsageError where not one has the name."""
        place = self._place(name)
        return self._with(place, place, passes)

    def after(self, name: str, *passes: Pass) -> Pipeline:
        """This pipeline with ``passes`` behind the one called ``name``. Raises UsageError where not one has the name."""
        place = self._place(name)
        return self._with(place + 1, place + 1, passes)

    def instead(self, name: str, *passes: Pass) -> Pipeline:
        """This pipeline with ``passes`` in the place of the one called ``name``; with none, without it. Raises UsageError
        where not one has the name."""
        place = self._place(name)
        return self._with(place, place + 1, passes)

    def _place(self, name: str) -> int:
        places = [i for i, step in enumerate(self.passes) if step.name == name]
        if len(places) != 1:
            names = [step.name for step in self.passes]
            found = f"{len(places)} passes are" if places else f"no pass of it is{did_you_mean(name, names)}"
            raise UsageError(f"pipeline ({', '.join(names)}): {found} called '{name}'")
        return places[0]

    def _with(self, begin: int, end: int, passes: tuple[Pass, ...]) -> Pipeline:
        found = copy.copy(self)
        found.passes = (*self.passes[:begin], *_checked(passes), *self.passes[end:])
        return found

    # --- running -----------------------------------------------------------------------------------------------------

    def run(
        self,
        source: Source,
        *,
        verify: Verify | str | None = None,
        registry: Registry | None = None,
        observers: Iterable[Observer] = (),
        progress: Progress | None = None,
        skip: Iterable[str] = (),
        keep: Iterable[str] = (),
        only: Only | str | None = None,
        isolate: bool | Isolate = False,
        permit: Permit | None = None,
        record: bool = False,
        stages: bool | Stages = False,
        keep_if_faster: bool = False,
    ) -> Result:
        """Optimise a path, a ModelProto or a gs.Graph; a ModelProto is left as it was, a gs.Graph gets the result
        where it is valid and was shown equal (``result.exit_code`` is neither 4 nor 5).

        ``skip`` names passes, rules, sets of rules and kinds of edits to leave out. ``keep`` are patterns of the names of
        nodes and tensors that stay as they are; ``only`` is the part that may change. ``permit`` is asked of each rewrite of
        a rule, with its name and a trace of what goes and comes, and may refuse it. ``isolate`` runs ONNX Runtime in a
        process of its own: where that crashes, hangs or lacks memory, what it was asked is unverified, and the run goes on.
        ``record`` keeps what :meth:`Result.record` needs; without it that does the run again, if it is asked for.
        ``stages`` measures the model after each pass (``result.stages``) and, with a :class:`Stages`, undoes what costs more
        of a metric than it may. ``keep_if_faster`` undoes rules without which the result is faster. For both the pipeline may
        run several times; observers hear of the first run.

        Raises SurgeonError (ModelError, UsageError, RuleError) with one line for whatever bad input causes.
        """
        options = _verify(verify)
        around = partial(_around, source, isolate, options)
        with around():
            registry = registry or Registry.installed()
            given = tuple(_names(skip))

            def make(model: Model, more: Sequence[str], first: bool, traces: bool) -> Run:
                names = (*given, *more)
                switches = Switches(frozenset(names), tuple(_names(keep)), only, permit, traces)
                heard = tuple(observers) if first else ()
                return Run(self.without(names, registry), model, options, registry, heard, progress, switches)

            attempt = Attempts(load(source), make, isolate is not False, record)
            left_out: tuple[str, ...] = ()
            if stages:
                from surgeon_passes.stages.drop import run_in_stages

                result, left_out = run_in_stages(attempt, stages if isinstance(stages, Stages) else Stages())
            else:
                result = attempt()
            if keep_if_faster:
                from surgeon_passes.timing.faster import keep_if_faster as faster

                result = faster(attempt, result, self._rules(registry), left_out)
            if isinstance(source, gs.Graph) and result.exit_code not in (4, 5):
                put_back(result.graph, source)
                result.model = model_of_graph(source)  # what it was made of holds no edges any more
        if result.trace_again is not None:
            result.trace_again = around()(result.trace_again)
        return result

    def _rules(self, registry: Registry) -> list[str]:
        """Names of all rules that its passes may apply."""
        own = [rule.name for step in self.passes if isinstance(step, Rewrite) for rule in step.rules]
        return [*own, *(rule.name for rule in registry)]

    def without(self, skip: Sequence[str], registry: Registry) -> Pipeline:
        """This pipeline less the passes that ``skip`` names. Raises UsageError for a name, here or in a Rewrite, that
        nothing has."""
        kinds = pass_kinds()
        known = {*kinds, *(e for p in kinds.values() for e in p.makes), *(p.name for p in self.passes)}
        for step in self.passes:
            if isinstance(step, Rewrite):
                step.check_names(registry)
            known |= set(step.makes) | (step.known_names(registry) if isinstance(step, Rewrite) else set())
        known |= Rewrite().known_names(registry)
        for name in skip:
            if name not in known:
                raise UsageError(f"no rule or set of rules is called '{name}', nor a pass{did_you_mean(name, known)}")
        found = copy.copy(self)
        found.passes = tuple(p for p in self.passes if p.name not in skip)
        return found


def _checked(passes: tuple[Pass, ...]) -> tuple[Pass, ...]:
    """Raises UsageError for what is no pass."""
    for step in passes:
        if not isinstance(step, Pass):
            kind = step.__name__ if isinstance(step, type) else repr(step)
            raise UsageError(f"{kind} is no pass; give passes, as in Fold() or Rewrite('shape')")
    return passes


def _names(names: bool | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else [] if isinstance(names, bool) else list(names)


@contextmanager
def _blaming(source: Source) -> Iterator[None]:
    """Turn what an invalid model causes anywhere into one line; anything else is a bug and goes through."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ModelError(f"{_name(source)}: not a valid model: it holds a text that is not UTF-8 ({error})") from error
    except MemoryError as error:
        raise ModelError(f"{_name(source)}: there is not enough memory ({error})") from error
    except Exception as error:
        if isinstance(error, SurgeonError) and not (isinstance(error, RuleError) and error.__cause__):
            raise  # the function of a rule may fail over what is wrong with the model
        reason = _invalid(source)
        if reason:
            raise ModelError(f"{_name(source)}: not a valid model: {reason}") from error
        raise


def _name(source: Source) -> str:
    if isinstance(source, Model):
        return source.source
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "the model"


def _invalid(source: Source) -> str:
    """What the ONNX checker says against the input; "" where it says nothing."""
    proto = source.proto if isinstance(source, Model) else source
    try:
        if isinstance(proto, onnx.ModelProto):
            onnx.checker.check_model(proto, full_check=True)
        elif isinstance(source, (str, os.PathLike)):
            onnx.checker.check_model(os.fspath(source), full_check=True)
    except Exception as error:
        return " ".join(str(error).split())[:300]
    return ""


@contextmanager
def _around(source: Source, isolate: bool | Isolate, verify: Verify) -> Iterator[None]:
    """What holds while a pipeline runs."""
    with _no_collection(), _blaming(source), isolated(isolate), with_libraries(verify.custom_ops):
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the cyclic garbage collector, which would walk a large graph again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def load(source: Source) -> Model:
    """A model from a path, ModelProto or gs.Graph. Raises ModelError."""
    if isinstance(source, Model):
        return source
    with _blaming(source):
        return _load(source)


def _load(source: str | os.PathLike[str] | onnx.ModelProto | gs.Graph) -> Model:
    if isinstance(source, gs.Graph):
        check_depth(source, source.name or "the graph")
        proto, weights = export_light(model_of_graph(source))
        return import_model(proto, source.name or "the graph", weights)
    if isinstance(source, onnx.ModelProto):
        from surgeon_passes.model.files import check_proto

        check_proto(source, "the model")
        return import_model(source)
    path = os.fspath(source)
    stamp = stamp_of(path)
    proto, weights = read_model(path)
    model = import_model(proto, path, weights)
    model.is_ours, model.stamp = True, stamp
    return model


def default_passes(
    shapes: Mapping[str, Shape] | None = None,
    *,
    rules: Iterable[Rule] = (),
    max_bytes: int | str = "1MiB",
    allow_lossy_casts: bool = False,
    sets: Iterable[str] = (),
    opset: int | None = None,
    inline_functions: bool | Iterable[str] = False,
    onnxsim: bool = False,
) -> tuple[Pass, ...]:
    """The passes of the default pipeline; options as :func:`optimize` has them."""
    first: list[Pass] = [Onnxsim()] if onnxsim else []
    if inline_functions:
        first.append(InlineFunctions(*(() if inline_functions is True else _names(inline_functions))))
    if opset is not None:
        first.append(ConvertOpset(opset))
    if shapes:
        first.append(Specialize(shapes))
    rewrite = Rewrite(*DEFAULT_SETS, *_names(sets), rules=rules, allow_lossy_casts=allow_lossy_casts)
    return (*first, Fold(max_bytes=max_bytes), rewrite, Sizes(), Duplicates(), Cleanup(), Constants())


def optimize(
    source: Source,
    shapes: Mapping[str, Shape] | None = None,
    *,
    rules: Iterable[Rule] = (),
    skip: Iterable[str] = (),
    keep: Iterable[str] = (),
    only: Only | str | None = None,
    allow_lossy_casts: bool = False,
    sets: Iterable[str] = (),
    opset: int | None = None,
    inline_functions: bool | Iterable[str] = False,
    onnxsim: bool = False,
    verify: Verify | str | None = None,
    max_iterations: int = MAX_ITERATIONS,
    registry: Registry | None = None,
    progress: Progress | None = None,
    observers: Iterable[Observer] = (),
    isolate: bool | Isolate = False,
    record: bool = False,
    stages: bool | Stages = False,
    keep_if_faster: bool = False,
) -> Result:
    """The default pipeline on a path, ModelProto or gs.Graph.

    ``shapes`` fixes input dims: ``{"images": [1, 3, 640, 640]}`` or ``{"images": {"N": 1}}``. ``rules`` are rules of one's
    own, applied besides the installed ones; ``skip`` names passes, rules or sets of rules to leave out; ``keep`` are patterns
    of the names of nodes and tensors that stay as they are; ``only`` is the part that may change (an :class:`Only`, or its
    text); ``allow_lossy_casts`` lets rules drop Casts that lose values.

    ``sets`` are sets of rules besides the default ones, such as "ort" and "npu"; ``opset`` upgrades the model first;
    ``inline_functions`` puts model-local functions in the place of their calls: all (True), or those whose ``domain.name``
    fits a pattern. ``onnxsim`` simplifies the model by onnxsim first. ``isolate`` (or an :class:`Isolate`) runs ONNX Runtime
    in a process of its own, which it may crash. ``record``, ``stages`` and ``keep_if_faster``: see :meth:`Pipeline.run`.
    Raises SurgeonError.
    """
    passes = default_passes(
        shapes,
        rules=rules,
        allow_lossy_casts=allow_lossy_casts,
        sets=sets,
        opset=opset,
        inline_functions=inline_functions,
        onnxsim=onnxsim,
    )
    return Pipeline(*passes, max_iterations=max_iterations).run(
        source,
        verify=verify,
        registry=registry,
        progress=progress,
        observers=observers,
        skip=skip,
        keep=keep,
        only=only,
        isolate=isolate,
        record=record,
        stages=stages,
        keep_if_faster=keep_if_faster,
    )


def _verify(verify: Verify | str | None) -> Verify:
    options = Verify() if verify is None else Verify(mode=verify) if isinstance(verify, str) else verify
    if options.mode not in ("strict", "available", "off"):
        raise UsageError(f"verify is '{options.mode}', not one of strict, available, off")
    return options


__all__ = ["Counts", "Pipeline", "load", "optimize"]
