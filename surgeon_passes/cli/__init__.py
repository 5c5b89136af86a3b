"""The command line: arguments and exit codes only, one file a command."""

from __future__ import annotations

import sys

import click

from surgeon_passes.cli.baseline import baseline
from surgeon_passes.cli.bench import bench
from surgeon_passes.cli.compare import compare
from surgeon_passes.cli.decisions import decisions, replay
from surgeon_passes.cli.explain import explain
from surgeon_passes.cli.groups import groups
from surgeon_passes.cli.logs import with_logs
from surgeon_passes.cli.optimize import optimize
from surgeon_passes.cli.passes import passes
from surgeon_passes.cli.pipelines import pipelines
from surgeon_passes.cli.rules import rules
from surgeon_passes.cli.shapes import parse_shape, parse_shapes
from surgeon_passes.cli.supervise import Attempt, supervise
from surgeon_passes.cli.value import value


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="surgeon-passes")
def main() -> None:
    """Verified rewrites for ONNX models: the same function as a smaller, static, faster graph."""


for _command in (
    optimize,
    passes,
    pipelines,
    explain,
    rules,
    groups,
    value,
    compare,
    bench,
    replay,
    decisions,
    baseline,
):
    main.add_command(_command)
with_logs(main)


def entry() -> None:
    """The command, its work done in a process that may crash."""

    def work(attempt: Attempt) -> None:
        main(prog_name="surgeon-passes", obj=attempt)

    sys.exit(supervise(work))


__all__ = ["entry", "main", "parse_shape", "parse_shapes"]
