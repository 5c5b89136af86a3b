"""``surgeon-passes baseline save`` and ``check``, and what ``optimize`` does with a baseline."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surgeon_passes.cli.common import CUSTOM_OPS, FILE, guarded, isolation, progress_line, runtime_options, say
from surgeon_passes.cli.pipelines import Chosen, pipeline_options
from surgeon_passes.errors import UsageError

if TYPE_CHECKING:
    from surgeon_passes.result import Result

DRIFTED = 8
DRIFT = click.option(
    "--drift",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    metavar="N",
    help="How far the model may have drifted from its baseline: 0 not at all, 1 altogether.",
)


def _running(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of both commands: how rules are run, for the number of their matches."""
    for option in (
        click.option("--debug", is_flag=True, help="Add the traceback to an error."),
        runtime_options,
        CUSTOM_OPS,
        click.option("--data", type=FILE, help="Real inputs: an npz, or a folder of npy."),
        click.option(
            "--verify", "mode", type=click.Choice(["strict", "available", "off"]), default="strict", show_default=True
        ),
        click.option("--only", metavar="PART", help="What may change."),
        click.option("--keep", multiple=True, metavar="PATTERN", help="Nodes and tensors that stay as they are."),
        click.option("--skip", multiple=True, metavar="NAME", help="A pass, a rule or a set of rules to leave out."),
        click.option(
            "--rules", "rule_files", multiple=True, type=FILE, help="A Python file or folder of rules to add."
        ),
        pipeline_options,
    ):
        command = option(command)
    return command


@click.group()
def baseline() -> None:
    """What a model was like, so that a new export that is not like it is noticed."""


@baseline.command(name="save")
@click.argument("model", type=FILE)
@click.option("-o", "--output", type=FILE, help="Where to write.  [default: MODEL's name with .baseline.json]")
@_running
def save_baseline(model: str, debug: bool, **options: Any) -> None:
    """Record what MODEL is made of and how often each rule matches, in model.baseline.json beside it.

    Give the options that optimize will be given: they decide what matches.
    """
    chosen = Chosen.taken_from(options)
    sys.exit(guarded(lambda: _save(model, chosen, **options), debug))


def _save(model: str, chosen: Chosen, output: str | None, **options: Any) -> int:
    from surgeon_passes.drift import baseline_of, path_beside, write_baseline
    from surgeon_passes.model.files import check_writable

    place = Path(output) if output is not None else path_beside(model)
    if place == Path(model):
        raise UsageError(f"-o {output}: that is the model; give the baseline a file of its own")
    check_writable(place)
    found = baseline_of(_run(model, chosen, **options))
    write_baseline(place, found)
    matches = sum(found["matches"].values())
    say(f"{place}: {found['nodes']} nodes, {len(found['operators'])} operators, {matches} matches of rules")
    return 0


@baseline.command(name="check")
@click.argument("model", type=FILE)
@click.option("--baseline", "held", type=FILE, help="The baseline.  [default: MODEL's name with .baseline.json]")
@DRIFT
@_running
def check_baseline(model: str, debug: bool, **options: Any) -> None:
    """How far MODEL has drifted from its baseline. Exit code 8 where that is beyond --drift."""
    chosen = Chosen.taken_from(options)
    sys.exit(guarded(lambda: _check(model, chosen, **options), debug))


def _check(model: str, chosen: Chosen, held: str | None, drift: float, **options: Any) -> int:
    from surgeon_passes.drift import check, path_beside, read_baseline

    then = read_baseline(held if held is not None else path_beside(model))
    found = check(then, _run(model, chosen, **options))
    say(found.report(drift), nl=False)
    return DRIFTED if found.value > drift else 0


def _run(
    model: str,
    chosen: Chosen,
    rule_files: tuple[str, ...],
    skip: tuple[str, ...],
    keep: tuple[str, ...],
    only: str | None,
    mode: str,
    data: str | None,
    custom_ops: tuple[str, ...],
    isolate: bool,
    timeout: float,
    memory: str | None,
) -> Result:
    from surgeon_passes.passes import Verify
    from surgeon_passes.rules.registry import Registry

    apart = isolation(isolate, timeout, memory)
    registry = Registry.installed()
    own = [rule for path in rule_files for rule in registry.add_path(path)]
    with progress_line() as progress:
        return chosen.pipeline(own).run(
            model,
            verify=Verify(mode=mode, data=data, custom_ops=custom_ops),
            registry=registry,
            progress=progress,
            skip=skip,
            keep=keep,
            only=only,
            isolate=apart,
        )


def find_baseline(model: str | None, given: str | None) -> dict[str, Any] | None:
    """The baseline that is named, or that lies beside the model; None where there is none. Raises ModelError."""
    from surgeon_passes.drift import path_beside, read_baseline

    if given is not None:
        return read_baseline(given)
    beside = None if model is None else path_beside(model)
    return read_baseline(beside) if beside is not None and beside.exists() else None


def drifted(result: Result, baseline: dict[str, Any] | None, allowed: float) -> bool:
    """Whether the model differs from its baseline beyond what is allowed; differences are told."""
    from surgeon_passes.drift import check

    if baseline is None:
        return False
    found = check(baseline, result)
    if found.value > 0 or found.lines:
        say(f"\n{found.report(allowed)}", nl=False)
    return found.value > allowed
