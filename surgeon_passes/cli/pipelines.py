"""Which pipeline is run: the options that say it, and ``surgeon-passes pipeline show``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from surgeon_passes.cli.common import FILE, guarded, say
from surgeon_passes.cli.shapes import parse_shapes
from surgeon_passes.errors import UsageError

if TYPE_CHECKING:
    from surgeon_passes.pipeline import Pipeline
    from surgeon_passes.rules.rule import Rule

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "-i", "--input", "inputs", multiple=True, metavar="NAME=SIZES", help="images=1,3,640,640 or images=N:1,H:640"
    ),
    click.option(
        "-p",
        "--passes",
        metavar="PASSES",
        help="The passes to run: 'specialize,fold{max_bytes=1MiB},rewrite{sets=shape}'.",
    ),
    click.option("--pipeline", "file", type=FILE, help="A TOML file of passes, as pipeline show prints it."),
    click.option(
        "--onnxsim", is_flag=True, help="Simplify the model by onnxsim first; a result that differs is discarded."
    ),
    click.option("--set", "sets", multiple=True, metavar="NAME", help="A set of rules to add: ort, npu, or one's own."),
    click.option("--opset", type=int, metavar="N", help="Upgrade the model to this opset first."),
    click.option("--inline-functions", is_flag=True, help="Put model-local functions in the place of their calls."),
    click.option(
        "--inline", "inlined", multiple=True, metavar="PATTERN", help="Inline functions whose DOMAIN.NAME fits."
    ),
    click.option("--allow-lossy-casts", is_flag=True, help="Let rules drop Casts that lose values."),
    click.option("--max-bytes", help="Bound on a folded constant.  [default: 1MiB]"),
    click.option("--max-iterations", type=click.IntRange(1), help="Rounds after which it stops.  [default: 10]"),
)


def pipeline_options(command: Command) -> Command:
    """The options of :class:`Chosen`, by the names of its fields."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True)
class Chosen:
    """What the command line says of the pipeline."""

    inputs: tuple[str, ...]
    passes: str | None
    file: str | None
    onnxsim: bool
    sets: tuple[str, ...]
    opset: int | None
    inline_functions: bool
    inlined: tuple[str, ...]
    allow_lossy_casts: bool
    max_bytes: str | None
    max_iterations: int | None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Chosen:
        """Takes its own out of ``options``."""
        return cls(**{field.name: options.pop(field.name) for field in fields(cls)})

    def pipeline(self, rules: Sequence[Rule] = ()) -> Pipeline:
        """``rules`` are those of ``--rules``. Raises UsageError, also for options that contradict each other."""
        from surgeon_passes.pipeline import MAX_ITERATIONS, Pipeline, default_passes

        shapes = parse_shapes(self.inputs)
        if self.passes is None and self.file is None:
            passes = default_passes(
                shapes,
                rules=rules,
                max_bytes=self.max_bytes or "1MiB",
                allow_lossy_casts=self.allow_lossy_casts,
                sets=self.sets,
                opset=self.opset,
                inline_functions=self.inline_functions or self.inlined,
                onnxsim=self.onnxsim,
            )
            return Pipeline(*passes, max_iterations=self.max_iterations or MAX_ITERATIONS)
        found = self._given(shapes)
        _require_use(found, rules)
        found.max_iterations = self.max_iterations or found.max_iterations
        return found

    def _given(self, shapes: dict[str, Any]) -> Pipeline:
        from surgeon_passes.passes import Specialize
        from surgeon_passes.pipeline import Pipeline

        if self.passes is not None and self.file is not None:
            raise UsageError("-p and --pipeline both say which passes run; give one of them")
        self._refuse_options()
        if self.passes is not None:
            found = Pipeline.parse(self.passes, shapes)
        else:
            assert self.file is not None
            found = Pipeline.from_toml(self.file)
            if shapes and any(isinstance(step, Specialize) for step in found.passes):
                found = found.instead("specialize", Specialize(shapes))
        steps = [step for step in found.passes if isinstance(step, Specialize)]
        if shapes and not steps:
            raise UsageError("-i fixes shapes, but the pipeline has no pass specialize to do it; add it in front")
        if any(not step.shapes for step in steps):
            raise UsageError("the pass specialize is not told any shape; give -i NAME=SIZES")
        return found

    def _refuse_options(self) -> None:
        """Options of the default pipeline say nothing of another."""
        mends = {
            "onnxsim": ("--onnxsim", "onnxsim"),
            "sets": ("--set", "rewrite{sets=…}"),
            "opset": ("--opset", "opset{version=…}"),
            "inline_functions": ("--inline-functions", "inline"),
            "inlined": ("--inline", "inline{patterns=…}"),
            "allow_lossy_casts": ("--allow-lossy-casts", "rewrite{allow_lossy_casts=true}"),
            "max_bytes": ("--max-bytes", "fold{max_bytes=…}"),
        }
        for name, (option, mend) in mends.items():
            if getattr(self, name):
                raise UsageError(f"{option} is for the default pipeline; with -p or --pipeline write {mend} there")


def _require_use(pipeline: Pipeline, rules: Sequence[Rule]) -> None:
    """That each rule of ``--rules`` is run by some pass. Raises UsageError."""
    from surgeon_passes.passes import Rewrite

    named = {name for step in pipeline.passes if isinstance(step, Rewrite) for name in step.sets}
    idle = [rule for rule in rules if not named & {rule.name, *rule.sets}]
    if idle:
        sets = "+".join(idle[0].sets)
        raise UsageError(f"--rules: no pass of the pipeline runs {idle[0].name}; name it, as in rewrite{{sets={sets}}}")


@click.group(name="pipeline")
def pipelines() -> None:
    """Pipelines: passes in order, with their options."""


@pipelines.command(name="show")
@pipeline_options
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def show_pipeline(debug: bool, **options: Any) -> None:
    """Print the pipeline that optimize would run with these options as TOML, which --pipeline reads."""
    sys.exit(guarded(lambda: _show(**options), debug))


def _show(**options: Any) -> int:
    say(Chosen.taken_from(options).pipeline().to_toml(), nl=False)
    return 0
