"""The command line: arguments and exit codes only, one file a command."""

from __future__ import annotations

import click

from surgeon_passes.cli.optimize import optimize
from surgeon_passes.cli.shapes import parse_shape, parse_shapes


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="surgeon-passes")
def main() -> None:
    """Verified rewrites for ONNX models: the same function as a smaller, static, faster graph."""


main.add_command(optimize)

__all__ = ["main", "parse_shape", "parse_shapes"]
