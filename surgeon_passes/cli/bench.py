"""``surgeon-passes bench``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from surgeon_passes.cli.common import FILE, guarded, progress_line, say
from surgeon_passes.errors import UsageError

if TYPE_CHECKING:
    from surgeon_passes.bench.measure import Options
    from surgeon_passes.bench.records import Measured
    from surgeon_passes.bench.tools import Tool

EXIT_CODES = """\b
Exit codes, the first that holds:
  6  a file cannot be read or written, or is not a valid model
  2  usage: an option, a tool, the data
  5  on some model a result of ours was not shown equal
  0  all well"""


@click.command(epilog=EXIT_CODES)
@click.argument("models", metavar="[MODEL]...", nargs=-1, type=FILE)
@click.option(
    "--tool", "tools", multiple=True, metavar="NAME", help="Only these tools; all that are installed by default."
)
@click.option("-k", "--calls", default=3, show_default=True, type=click.IntRange(1), help="Calls of each tool.")
@click.option("--timeout", default=300.0, show_default=True, type=click.FloatRange(1), help="Seconds a call may take.")
@click.option("--data", type=FILE, help="Real inputs: an npz, or a folder of npy.")
@click.option(
    "--also",
    multiple=True,
    metavar="FILE",
    type=FILE,
    help="Another form of MODEL, such as its authors' deploy form, to hold beside the results.",
)
@click.option(
    "--span",
    type=click.Choice(["call", "file"]),
    default="call",
    show_default=True,
    help="What is measured: the call alone, or from file to file.",
)
@click.option(
    "--latency/--no-latency", default=True, show_default=True, help="Run all results in ONNX Runtime, in turn."
)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1), help="Threads of those runs.")
@click.option("--shares", is_flag=True, help="Also print what of our time is ONNX Runtime's, and verification's.")
@click.option("--json", "json_file", metavar="FILE", type=FILE, help="Write all measurements here.")
@click.option("--plot", "plot_folder", metavar="FOLDER", type=FILE, help="Write bench.png into this folder.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def bench(models: tuple[str, ...], debug: bool, **options: Any) -> None:
    """Measure every optimiser that is installed on MODELs: seconds, memory, nodes, bytes, equal outputs, latency.

    Each runs in a process of its own, with its default options. Without MODEL, on a small embedded network.
    """
    sys.exit(guarded(lambda: _bench(models, **options), debug))


def _bench(
    models: tuple[str, ...],
    tools: tuple[str, ...],
    calls: int,
    timeout: float,
    data: str | None,
    also: tuple[str, ...],
    span: str,
    latency: bool,
    threads: int,
    shares: bool,
    json_file: str | None,
    plot_folder: str | None,
) -> int:
    from surgeon_passes.bench import outputs
    from surgeon_passes.bench import tools as known
    from surgeon_passes.bench.measure import Options, about
    from surgeon_passes.bench.table import render, share_table

    chosen = known.chosen(tools)
    if also and len(models) != 1:
        raise UsageError("--also goes with one MODEL: it is another form of it")
    options = Options(
        calls, timeout, data, also=also, span=span, latency=1.0 if latency else 0.0, threads=threads, runtime=shares
    )
    outputs.check(json_file, plot_folder)
    if not tools and known.missing():
        click.echo(f"not installed: {', '.join(known.missing())} (pip install 'surgeon-passes[bench]')", err=True)
    with _paths(models) as paths:
        found = _measure_all(paths, chosen, options)
    say(render(found), nl=False)
    if shares:
        parts = [text for cpu in (False, True) if (text := share_table(found, cpu))]
        say("\n" + ("\n".join(parts) or "no shares: they need onnxsim and both of ours\n"), nl=False)
    outputs.write(found, about(options), json_file, plot_folder)
    return _exit_code(found)


def _measure_all(paths: Sequence[tuple[str, Path]], tools: Sequence[Tool], options: Options) -> list[Measured]:
    """Every file is looked at before the first is measured."""
    from surgeon_passes.bench.measure import measure

    for model in (*(str(path) for _, path in paths), *options.also):
        _check_model(model)
    with progress_line() as progress:
        return [measure(path, name, tools, options, progress) for name, path in paths]


def _check_model(path: str) -> None:
    """Raise ModelError where a file is no model that could be optimised, or weights beside it are missing or short."""
    from surgeon_passes.model.files import all_tensors
    from surgeon_passes.pipeline import load

    model = load(path)
    for tensor in all_tensors(model.proto) if model.proto is not None else ():
        if model.weights.is_external(tensor):
            model.weights.raw(tensor)


def _exit_code(found: Sequence[Measured]) -> int:
    from surgeon_passes.bench.tools import OFF, OURS

    ours = [row for measured in found for row in measured.rows if row.tool in (OURS, OFF)]
    return 5 if any(row.status != "ok" or row.check != "equal" for row in ours) else 0


@contextmanager
def _paths(models: Sequence[str]) -> Iterator[list[tuple[str, Path]]]:
    """Names and files; the embedded network in a file of its own where none is given.

    A name is the file's without its ending; where several files have the same, the path as it was given.
    """
    if models:
        stems = [Path(model).stem for model in models]
        yield [(s if stems.count(s) == 1 else m, Path(m)) for s, m in zip(stems, models, strict=True)]
        return
    import onnx

    from surgeon_passes import demo

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.onnx"
        onnx.save(demo.build(), path)
        yield [(demo.NAME, path)]
