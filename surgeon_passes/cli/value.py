"""``surgeon-passes value``."""

from __future__ import annotations

import sys

import click

from surgeon_passes.cli.common import FILE, guarded, say
from surgeon_passes.cli.shapes import parse_shapes

NAMED = 12


@click.command()
@click.argument("model", type=FILE)
@click.argument("tensor")
@click.option(
    "-i", "--input", "inputs", multiple=True, metavar="NAME=SIZES", help="images=1,3,640,640 or images=N:1,H:640"
)
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def value(model: str, tensor: str, inputs: tuple[str, ...], debug: bool) -> None:
    """Print what is known of TENSOR before MODEL runs: type, shape, value, and the nodes that it comes from."""
    sys.exit(guarded(lambda: _value(model, tensor, inputs), debug))


def _value(model: str, tensor: str, inputs: tuple[str, ...]) -> int:
    from surgeon_passes.dynamics import knowledge
    from surgeon_passes.passes import Specialize, State, Verify
    from surgeon_passes.pipeline import load
    from surgeon_passes.rules.registry import Registry

    state = State(load(model), Registry(), Verify(mode="off"))
    Specialize(parse_shapes(inputs)).run(state)
    found = knowledge(state.index, state.types, state.evaluator, tensor)
    rows = [("tensor", found.tensor), ("made by", found.made_by), ("dtype", found.dtype), ("shape", found.shape)]
    rows.append(("value", " ".join(filter(None, (found.known, found.value)))))
    if found.why:
        rows.append(("because", found.why))
    if found.cone:
        more = f" and {len(found.cone) - NAMED} more" if len(found.cone) > NAMED else ""
        rows.append(("from", ", ".join(found.cone[:NAMED]) + more))
    for name, text in rows:
        say(f"{name:9}{text}")
    return 0
