"""``surgeon-passes compare``."""

from __future__ import annotations

import sys
from typing import Any

import click

from surgeon_passes.cli.common import CUSTOM_OPS, FILE, guarded, isolation, runtime_options, say
from surgeon_passes.cli.shapes import parse_shapes
from surgeon_passes.errors import UsageError, did_you_mean

EXIT_CODES = """\b
Exit codes, the first that holds:
  6  a file cannot be read or written, or is not a valid model
  2  usage: an option, inputs or outputs that do not fit
  5  a tensor drifts beyond the tolerance, or a model does not run
  0  all well"""

_RUNTIME = "ort:off, ort:basic, ort:extended, ort:all, reference, or a plugin's name."


@click.command(epilog=EXIT_CODES)
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@click.option("--data", type=FILE, help="Real inputs: an npz, or a folder of npy.")
@click.option(
    "-i", "--input", "inputs", multiple=True, metavar="NAME=SIZES", help="images=1,3,640,640 or images=N:1,H:640"
)
@click.option("--map", "map_file", type=FILE, help="The decision record of the run that made B from A.")
@click.option("--tolerance", type=float, default=1e-4, show_default=True, help="Of the scale of an output channel.")
@click.option("--a-runtime", default="ort:off", show_default=True, help=_RUNTIME)
@click.option("--b-runtime", default="ort:off", show_default=True, help=_RUNTIME)
@click.option("--max-bytes", default="256MiB", show_default=True, help="Activations that are held at one time.")
@click.option("--tensor", metavar="NAME", help="Print all that is known of this tensor of A or B.")
@click.option("--all", "everything", is_flag=True, help="List every tensor.")
@click.option("--json", "json_file", type=FILE, help="Write everything here.")
@CUSTOM_OPS
@runtime_options
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def compare(a: str, b: str, debug: bool, **options: Any) -> None:
    """Hold B against A, layer by layer: the first tensor that drifts, and the operator that drifts most.

    Tensors are paired by name, by what they hold, and by where they stand in the graph. Each layer of B is also run by itself
    on A's activations, so that what drifts is told from what only hands drift on.
    """
    sys.exit(guarded(lambda: _compare(a, b, **options), debug))


def _compare(
    a: str,
    b: str,
    data: str | None,
    inputs: tuple[str, ...],
    map_file: str | None,
    tolerance: float,
    a_runtime: str,
    b_runtime: str,
    max_bytes: str,
    tensor: str | None,
    everything: bool,
    json_file: str | None,
    custom_ops: tuple[str, ...],
    isolate: bool,
    timeout: float,
    memory: str | None,
) -> int:
    from surgeon_passes.compare import compare
    from surgeon_passes.engines import isolated, with_libraries
    from surgeon_passes.model.files import check_writable

    if json_file is not None:
        check_writable(json_file)
    with isolated(isolation(isolate, timeout, memory)), with_libraries(custom_ops):
        found = compare(
            a,
            b,
            data=data,
            shapes=parse_shapes(inputs),
            record=map_file,
            tolerance=tolerance,
            a_runtime=a_runtime,
            b_runtime=b_runtime,
            max_bytes=max_bytes,
        )
    if json_file is not None:
        _write(json_file, found.as_dict())
    say(found.report(None if everything else 20) if tensor is None else _about(found, tensor), nl=False)
    return found.exit_code


def _about(found: Any, name: str) -> str:
    from surgeon_passes.report.comparison import statistics

    pair = next((p for p in found.pairs if name in (p.a, p.b)), None)
    if pair is None:
        known = [n for p in found.pairs for n in (p.a, p.b)]
        raise UsageError(f"--tensor {name}: no pair of tensors has this name{did_you_mean(name, known)}")
    return "\n".join(statistics(pair)) + "\n"


def _write(path: str, found: dict[str, Any]) -> None:
    import json

    from surgeon_passes.model.files import write_bytes

    write_bytes(path, (json.dumps(found, indent=1, allow_nan=False) + "\n").encode())
