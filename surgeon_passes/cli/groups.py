"""``surgeon-passes groups``."""

from __future__ import annotations

import sys

import click

from surgeon_passes.cli.common import FILE, guarded, say

NAMED = 3


@click.command()
@click.argument("model", type=FILE)
@click.option("--kind", type=click.Choice(["module", "region"]), help="Only these.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def groups(model: str, kind: str | None, debug: bool) -> None:
    """List the groups of MODEL: modules, by the names of nodes, and regions between single tensors.

    NAME is for --only group:NAME and --keep group:NAME.
    """
    sys.exit(guarded(lambda: _groups(model, kind), debug))


def _groups(model: str, kind: str | None) -> int:
    from surgeon_passes.grouping import groups as find

    found = [group for group in find(model) if kind in (None, group.kind)]
    if not found:
        say("no groups: nodes have no names with '/' or '.', and no tensor is the only way through")
    for group in found:
        name = "  " * group.depth + group.name
        nodes = f"{group.nodes} nodes"
        say(f"{group.kind:6}  {name:40}  {nodes:>11}  {_some(group.inputs)} -> {_some(group.outputs)}")
    return 0


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more if names else "nothing"
