"""``surgeon-passes optimize``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from surgeon_passes.cli.baseline import DRIFT, DRIFTED, drifted, find_baseline
from surgeon_passes.cli.common import CUSTOM_OPS, FILE, guarded, isolation, progress_line, runtime_options, show
from surgeon_passes.cli.pipelines import Chosen, pipeline_options
from surgeon_passes.errors import UsageError

if TYPE_CHECKING:
    from surgeon_passes.stages import Stages

EXIT_CODES = """\b
Exit codes, the first that holds:
  6  a file cannot be read or written, or is not a valid model
  2  usage: an option, an input name or rank, a rules file
  8  the model drifted from its baseline           (nothing is written)
  4  the ONNX checker fails on the result          (nothing is written)
  5  the result was not shown equal                (nothing is written)
  3  every input was given a fixed shape and dynamic items remain
  7  rewrites were refuted and undone; the result is good
  0  all well
  1  a bug; 128 + n: ended by signal n
With --force the file is written with 8, 4 and 5 too."""


@click.command(epilog=EXIT_CODES)
@click.argument("model", required=False, type=FILE)
@click.option("-o", "--output", type=FILE, help="Where to write; without it the model is only reported on.")
@pipeline_options
@click.option("--rules", "rule_files", multiple=True, type=FILE, help="A Python file or folder of rules to add.")
@click.option("--skip", multiple=True, metavar="NAME", help="A pass, a rule or a set of rules to leave out.")
@click.option("--keep", multiple=True, metavar="PATTERN", help="Nodes and tensors that stay as they are, by name.")
@click.option(
    "--only", metavar="PART", help="What may change: 'from:A,B to:C', 'group:NAME', or a pattern of node names."
)
@click.option(
    "--verify", "mode", type=click.Choice(["strict", "available", "off"]), default="strict", show_default=True
)
@click.option("--end-check/--no-end-check", default=True, show_default=True, help="Run original and result at the end.")
@click.option("--data", type=FILE, help="Real inputs: an npz, or a folder of npy.")
@CUSTOM_OPS
@click.option(
    "--report",
    "report_files",
    multiple=True,
    type=FILE,
    help="Write a report: .txt, .json, .html or .pdf, as the file's name ends. May be given several times.",
)
@click.option("--decisions", "record_file", type=FILE, metavar="FILE", help="Write the decision record as JSON.")
@click.option(
    "--baseline", type=FILE, metavar="FILE", help="The model's baseline.  [default: MODEL's .baseline.json, if any]"
)
@DRIFT
@click.option(
    "--latency/--no-latency",
    default=None,
    help="Measure original and result in ONNX Runtime.  [default: only without MODEL]",
)
@click.option(
    "--batch", "batches", multiple=True, type=click.IntRange(1), help="A size for open first dims, with --latency."
)
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads on which latency is measured."
)
@click.option("--keep-if-faster", "faster", is_flag=True, help="Undo rules without which the result is faster.")
@click.option("--stages", "in_stages", is_flag=True, help="Measure the model after each pass.")
@click.option(
    "--evaluate", metavar="MODULE:FUNCTION", help="A metric of a model, higher is better, taken after each pass."
)
@click.option(
    "--max-drop", type=click.FloatRange(0), help="Undo what lowers the metric of --evaluate by more than this."
)
@click.option("--dry-run", is_flag=True, help="Report only; write nothing.")
@runtime_options
@click.option("--force", is_flag=True, help="Write the result even where it was not shown equal, or drifted.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def optimize(model: str | None, debug: bool, **options: Any) -> None:
    """Optimise MODEL and report every step. Without MODEL, a small embedded network is optimised."""
    chosen = Chosen.taken_from(options)
    sys.exit(guarded(lambda: _optimize(model, chosen, **options), debug))


def _optimize(
    model: str | None,
    chosen: Chosen,
    output: str | None,
    rule_files: tuple[str, ...],
    skip: tuple[str, ...],
    keep: tuple[str, ...],
    only: str | None,
    mode: str,
    end_check: bool,
    data: str | None,
    custom_ops: tuple[str, ...],
    report_files: tuple[str, ...],
    record_file: str | None,
    baseline: str | None,
    drift: float,
    latency: bool | None,
    batches: tuple[int, ...],
    threads: int,
    faster: bool,
    in_stages: bool,
    evaluate: str | None,
    max_drop: float | None,
    dry_run: bool,
    force: bool,
    isolate: bool,
    timeout: float,
    memory: str | None,
) -> int:
    from surgeon_passes.passes import Verify
    from surgeon_passes.pipeline import load
    from surgeon_passes.report.files import needs_record
    from surgeon_passes.rules.registry import Registry

    apart = isolation(isolate, timeout, memory)
    source = _embedded() if model is None else load(model)
    registry = Registry.installed()
    own = []
    for path in rule_files:
        own += registry.add_path(path)
    _check_places(model, output, report_files, record_file, dry_run)
    held = find_baseline(model, baseline)
    pipeline = chosen.pipeline(own)
    stages = _stages(in_stages, evaluate, max_drop, threads)
    with progress_line() as progress:
        result = pipeline.run(
            source,
            verify=Verify(mode=mode, data=data, end_check=end_check, custom_ops=custom_ops),
            registry=registry,
            progress=progress,
            skip=skip,
            keep=keep,
            only=only,
            isolate=apart,
            record=record_file is not None or any(map(needs_record, report_files)),
            stages=stages,
            keep_if_faster=faster,
        )
        if (model is None or bool(batches)) if latency is None else latency:
            result.measure_latency(batches, threads)
    show(result)
    code = DRIFTED if drifted(result, held, drift) else result.exit_code
    if dry_run:
        return code
    for report in report_files:
        result.save_report(report)
    if record_file is not None:
        result.save_record(record_file)
    if output is None:
        return code
    if code in (4, 5, DRIFTED) and not force:
        click.echo(f"not written: {output} (--force writes it all the same)", err=True)
        return code
    result.save(output)
    return code


def _check_places(
    model: str | None, output: str | None, reports: tuple[str, ...], record: str | None, dry_run: bool
) -> None:
    """That each file can be written and is no other's place. Raises UsageError, ModelError."""
    from surgeon_passes.model.files import check_writable
    from surgeon_passes.report.files import writer_of

    told = [*(("--report", report) for report in reports), *([("--decisions", record)] if record is not None else [])]
    for option, place in told:
        _require_apart(model, output, place, option)
    for written in (output, *(place for _, place in told)):
        if written is not None and not dry_run:
            check_writable(written)
    for report in reports:
        writer_of(report)


def _stages(wanted: bool, evaluate: str | None, max_drop: float | None, threads: int) -> Stages | bool:
    """Raises UsageError for a metric that cannot be found, and for a drop of none."""
    from surgeon_passes.cli.named import function_of
    from surgeon_passes.stages import Stages

    if not wanted and evaluate is None and max_drop is None:
        return False
    return Stages(None if evaluate is None else function_of(evaluate), max_drop, threads=threads)


def _require_apart(model: str | None, output: str | None, file: str, option: str) -> None:
    """That what is told of a run does not overwrite a model. Raises UsageError."""
    for other in (model, output):
        if other is not None and os.path.realpath(file) == os.path.realpath(other):
            raise UsageError(f"{option} {file}: that is the model; give it a file of its own")


def _embedded() -> Any:
    from surgeon_passes import demo
    from surgeon_passes.model import import_model

    return import_model(demo.build(), demo.NAME)
