"""``surgeon-passes pass list`` and ``surgeon-passes pass run``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from surgeon_passes.cli.common import FILE, guarded, isolation, runtime_options, say
from surgeon_passes.cli.shapes import parse_shapes
from surgeon_passes.errors import UsageError

if TYPE_CHECKING:
    import onnx

    from surgeon_passes.result import Result


@click.group(name="pass")
def passes() -> None:
    """The passes of the pipeline: which there are, and one of them on a model."""


@passes.command(name="list")
def list_passes() -> None:
    """Name, purpose, options with their defaults, and what each pass needs before it."""
    sys.exit(guarded(_list, False))


def _list() -> int:
    from surgeon_passes.passes.describe import options, summary
    from surgeon_passes.passes.registry import pass_kinds

    for kind in pass_kinds().values():
        say(f"{kind.name:12}{summary(kind)}")
        for name, default in options(kind).items():
            say(f"{'':12}  {name} = {default}")
        if kind.requires:
            say(f"{'':12}  after {', '.join(kind.requires)}")
    return 0


@passes.command(name="run")
@click.argument("name")
@click.argument("model", type=FILE)
@click.option("-o", "--output", type=FILE, help="Where to write the result.")
@click.option("-i", "--input", "inputs", multiple=True, metavar="NAME=SIZES", help="Fix the shape of an input first.")
@click.option("--opset", type=int, metavar="N", help="What the pass opset upgrades to.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Run it so many times.")
@click.option("--diff", "show_diff", is_flag=True, help="Print the nodes that went, came and changed.")
@click.option("--alone", is_flag=True, help="Without the passes that it needs before it.")
@click.option(
    "--verify", "mode", type=click.Choice(["strict", "available", "off"]), default="strict", show_default=True
)
@runtime_options
@click.option("--force", is_flag=True, help="Write the result even where it was not shown equal.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def run_pass(name: str, model: str, debug: bool, **options: Any) -> None:
    """Run the pass NAME on MODEL, after the passes that it needs.

    NAME may hold options: 'fold{max_bytes=4KiB}'.
    """
    sys.exit(guarded(lambda: _run(name, model, **options), debug))


def _run(
    name: str,
    model: str,
    output: str | None,
    inputs: tuple[str, ...],
    opset: int | None,
    repeat: int,
    show_diff: bool,
    alone: bool,
    mode: str,
    force: bool,
    isolate: bool,
    timeout: float,
    memory: str | None,
) -> int:
    from surgeon_passes.model.files import check_writable, with_weights
    from surgeon_passes.passes.describe import with_requirements
    from surgeon_passes.passes.text import parse_passes
    from surgeon_passes.pipeline import Pipeline, load

    apart = isolation(isolate, timeout, memory)
    shapes = parse_shapes(inputs)
    steps = parse_passes(name if opset is None else f"{name}{{version={opset}}}", shapes)
    if len(steps) != 1:
        raise UsageError(f"pass run takes one pass, not {len(steps)}: optimize -p runs several")
    wanted = steps[0]
    before = with_requirements(wanted, shapes)
    source = load(model)
    if output is not None:
        check_writable(output)
    first = [p for p in before if p.once] if alone else before
    result = Pipeline(*first).run(source, verify=mode, isolate=apart) if first else None
    told = [f"before it: {', '.join(p.name for p in first)}"] if first else []
    assert source.proto is not None
    held = result.proto if result is not None else with_weights(source.proto, source.weights)
    code = result.exit_code if result is not None else 0
    for number in range(1, repeat + 1):
        result = Pipeline(wanted, max_iterations=1).run(_again(result) or source, verify=mode, isolate=apart)
        code = code if code in (4, 5) else result.exit_code
        told += _told(f"{wanted.name}, run {number}" if repeat > 1 else wanted.name, result, held, show_diff)
        held = result.proto
    say("\n".join(told))  # at once: after a crash it all begins again
    if output is not None and result is not None:
        if code in (4, 5) and not force:
            click.echo(f"not written: {output} (--force writes it all the same)", err=True)
        else:
            result.save(output)
    return code


def _again(result: Result | None) -> Any:
    """The result as a source that finds its external data."""
    from surgeon_passes.model import import_model

    return None if result is None else import_model(result.light, result.source, result.weights)


def _told(title: str, result: Result, before: onnx.ModelProto, show_diff: bool) -> list[str]:
    from surgeon_passes.report.diff import diff

    lines = diff(before, result.proto)
    if not lines:
        return [f"{title}: nothing changed"]
    counted = {sign: sum(line.startswith(sign) for line in lines) for sign in "-+~"}
    check = "" if result.check is None else f", end check {result.check.status}"
    nodes = f"nodes {result.before.nodes} -> {result.after.nodes}"
    head = f"{title}: {nodes}; {counted['-']} removed, {counted['+']} added, {counted['~']} changed{check}"
    return [head, *(lines if show_diff else ())]
