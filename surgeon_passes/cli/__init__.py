"""The command line: arguments and exit codes only, one file a command."""

from __future__ import annotations

import click

from surgeon_passes.cli.bench import bench
from surgeon_passes.cli.explain import explain
from surgeon_passes.cli.groups import groups
from surgeon_passes.cli.optimize import optimize
from surgeon_passes.cli.passes import passes
from surgeon_passes.cli.pipelines import pipelines
from surgeon_passes.cli.rules import rules
from surgeon_passes.cli.shapes import parse_shape, parse_shapes
from surgeon_passes.cli.value import value


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="surgeon-passes")
def main() -> None:
    """Verified rewrites for ONNX models: the same function as a smaller, static, faster graph."""


for _command in (optimize, passes, pipelines, explain, rules, groups, value, bench):
    main.add_command(_command)

__all__ = ["main", "parse_shape", "parse_shapes"]
