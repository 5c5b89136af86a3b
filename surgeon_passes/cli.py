"""The command line: arguments and exit codes only."""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from surgeon_passes.errors import RuleError, SurgeonError, UsageError

EXIT_CODES = """\b
Exit codes, the first that holds:
  6  a file cannot be read or written, or is not a valid model
  2  usage: an option, an input name or rank, a rules file
  4  the ONNX checker fails on the result          (nothing is written)
  5  the result was not shown equal                (nothing is written)
  3  every input was given a fixed shape and dynamic items remain
  7  rewrites were refuted and undone; the result is good
  0  all well
With --force the file is written with 4 and 5 too."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="surgeon-passes")
def main() -> None:
    """Verified rewrites for ONNX models: the same function as a smaller, static, faster graph."""


def parse_shape(text: str) -> tuple[str, list[int] | dict[str, int]]:
    """``images=1,3,640,640`` or ``images=N:1,H:640``; the last ``=`` separates, names may hold ``:`` and ``=``."""
    name, equals, sizes = text.rpartition("=")
    if not equals or not name or not sizes:
        raise UsageError(f"-i {text}: write NAME=1,3,640,640 or NAME=N:1,H:640")
    parts = [part.strip() for part in sizes.split(",")]
    try:
        if any(":" in part for part in parts):
            pairs = [part.rpartition(":") for part in parts]
            if not all(dim for dim, _, _ in pairs):
                raise UsageError(f"-i {text}: mixes dim names and plain sizes; give a name to each, or to none")
            twice = [dim for dim, number in Counter(dim for dim, _, _ in pairs).items() if number > 1]
            if twice:
                raise UsageError(f"-i {text}: dim '{twice[0]}' is given twice")
            return name, {dim: int(size) for dim, _, size in pairs}
        return name, [int(part) for part in parts]
    except ValueError:
        raise UsageError(f"-i {text}: sizes are whole numbers, as in NAME=1,3,640,640 or NAME=N:1,H:640") from None


def parse_shapes(texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, sizes = parse_shape(text)
        if name in found:
            raise UsageError(f"-i {text}: input '{name}' is given twice")
        found[name] = sizes
    return found


@main.command(epilog=EXIT_CODES)
@click.argument("model", required=False, type=click.Path())
@click.option("-o", "--output", type=click.Path(), help="Where to write; without it the model is only reported on.")
@click.option(
    "-i", "--input", "inputs", multiple=True, metavar="NAME=SIZES", help="images=1,3,640,640 or images=N:1,H:640"
)
@click.option(
    "--rules", "rule_files", multiple=True, type=click.Path(), help="A Python file or folder of rules to add."
)
@click.option("--skip", multiple=True, metavar="NAME", help="A rule, or a set of rules, to leave out.")
@click.option(
    "--verify", "mode", type=click.Choice(["strict", "available", "off"]), default="strict", show_default=True
)
@click.option("--end-check/--no-end-check", default=True, show_default=True, help="Run original and result at the end.")
@click.option("--data", type=click.Path(), help="Real inputs: an npz, or a folder of npy.")
@click.option("--max-bytes", default="1MiB", show_default=True, help="Bound on a folded constant.")
@click.option("--max-iterations", default=10, show_default=True, type=click.IntRange(1))
@click.option("--report", "report_file", type=click.Path(), help="Write the text report here too.")
@click.option(
    "--latency/--no-latency",
    default=None,
    help="Measure original and result in ONNX Runtime.  [default: only without MODEL]",
)
@click.option("--dry-run", is_flag=True, help="Report only; write nothing.")
@click.option("--force", is_flag=True, help="Write the result even where it was not shown equal.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def optimize(model: str | None, debug: bool, **options: Any) -> None:
    """Optimise MODEL and report every step. Without MODEL, a small embedded network is optimised."""
    sys.exit(_guarded(lambda: _optimize(model, **options), debug))


def _guarded(action: Callable[[], int], debug: bool) -> int:
    try:
        return action()
    except SurgeonError as error:
        click.echo(f"error: {error}", err=True)
        if isinstance(error, RuleError) and error.details:
            click.echo(error.details, err=True)
        if debug:
            traceback.print_exc()
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted; nothing was written", err=True)
        return 130


def _optimize(
    model: str | None,
    output: str | None,
    inputs: tuple[str, ...],
    rule_files: tuple[str, ...],
    skip: tuple[str, ...],
    mode: str,
    end_check: bool,
    data: str | None,
    max_bytes: str,
    max_iterations: int,
    report_file: str | None,
    latency: bool | None,
    dry_run: bool,
    force: bool,
) -> int:
    from surgeon_passes.model.files import check_writable
    from surgeon_passes.passes import Verify
    from surgeon_passes.pipeline import Pipeline, default_passes, load
    from surgeon_passes.rules.registry import Registry

    source = _embedded() if model is None else load(model)
    shapes = parse_shapes(inputs)
    registry = Registry.installed()
    own = []
    for path in rule_files:
        own += registry.add_path(path)
    for place in (output, report_file):
        if place is not None and not dry_run:
            check_writable(place)
    passes = default_passes(shapes, rules=own, skip=skip, max_bytes=max_bytes)
    pipeline = Pipeline(*passes, max_iterations=max_iterations)
    with _progress() as progress:
        result = pipeline.run(
            source, verify=Verify(mode=mode, data=data, end_check=end_check), registry=registry, progress=progress
        )
        if model is None if latency is None else latency:
            result.measure_latency()
    text = result.report()
    click.echo(text, nl=False)
    code = result.exit_code
    if dry_run:
        return code
    if report_file is not None:
        _write_text(report_file, text)
    if output is None:
        return code
    if code in (4, 5) and not force:
        click.echo(f"not written: {output} (--force writes it all the same)", err=True)
        return code
    result.save(output)
    return code


def _embedded() -> Any:
    from surgeon_passes import demo
    from surgeon_passes.model import import_model

    return import_model(demo.build(), demo.NAME)


def _write_text(path: str, text: str) -> None:
    from surgeon_passes.model.files import write_bytes

    write_bytes(path, text.encode())


@contextmanager
def _progress() -> Iterator[Any]:
    """A progress line on a terminal; nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("load", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


if __name__ == "__main__":
    main()
