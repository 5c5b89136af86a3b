"""``surgeon-passes explain``."""

from __future__ import annotations

import sys
from typing import Any

import click

from surgeon_passes.cli.common import CUSTOM_OPS, FILE, guarded, say
from surgeon_passes.cli.pipelines import Chosen, pipeline_options


@click.command()
@click.argument("model", type=FILE)
@click.option("--node", metavar="NAME", help="What rules make of this node, and of what it stands in.")
@click.option("--rule", metavar="NAME", help="What this rule makes of each place where its root could sit.")
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1), help="Attempts that are shown.")
@pipeline_options
@click.option("--rules", "rule_files", multiple=True, type=FILE, help="A Python file or folder of rules to add.")
@click.option(
    "--verify", "mode", type=click.Choice(["strict", "available", "off"]), default="strict", show_default=True
)
@CUSTOM_OPS
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def explain(model: str, debug: bool, **options: Any) -> None:
    """Why a node of MODEL was not fused, or a rule not applied.

    The pipeline runs, nothing is written. Shown are what it decided there, then each attempt on its result, best first: how
    far the pattern went, the line at which it stopped, and why.
    """
    chosen = Chosen.taken_from(options)
    sys.exit(guarded(lambda: _explain(model, chosen, **options), debug))


def _explain(
    model: str,
    chosen: Chosen,
    node: str | None,
    rule: str | None,
    limit: int,
    rule_files: tuple[str, ...],
    mode: str,
    custom_ops: tuple[str, ...],
) -> int:
    from surgeon_passes.explain import explain as find
    from surgeon_passes.passes import Verify
    from surgeon_passes.report.explanation import render
    from surgeon_passes.rules.registry import Registry

    registry = Registry.installed()
    own = [found for path in rule_files for found in registry.add_path(path)]
    verify = Verify(mode=mode, custom_ops=custom_ops)
    found = find(model, node=node, rule=rule, pipeline=chosen.pipeline(own), registry=registry, verify=verify)
    say(render(found, limit), nl=False)
    return 0
