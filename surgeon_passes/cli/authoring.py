"""``surgeon-passes rules check`` and ``surgeon-passes rules new``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from surgeon_passes.cli.common import CUSTOM_OPS, FILE, guarded, say

if TYPE_CHECKING:
    from surgeon_passes.rules.rule import Rule


@click.command(name="check")
@click.argument("what", nargs=-1, metavar="[FILE|FOLDER|NAME]...")
@click.option("--graphs", default=40, show_default=True, type=click.IntRange(1), help="Valid graphs for each rule.")
@click.option(
    "--seconds", default=60.0, show_default=True, type=click.FloatRange(0.1), help="For each rule, at the most."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Another seed makes other graphs.")
@click.option("--all", "everything", is_flag=True, help="All reasons and everything that never matched.")
@CUSTOM_OPS
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def check_rules(
    what: tuple[str, ...],
    graphs: int,
    seconds: float,
    seed: int,
    everything: bool,
    custom_ops: tuple[str, ...],
    debug: bool,
) -> None:
    """Try rules on graphs that are made from their own patterns.

    Rules of files and folders, or installed ones by name, set or family; without any, all that are installed. Each rule is
    applied alone, and original and result are compared in ONNX Runtime; one of them is verified as well. A rule fails
    that never fires or that changes what a graph gives.

    Exit codes: 0 all rules passed; 2 a definition is wrong (a caret shows where), there is no such rule, or a rule failed.
    """
    sys.exit(guarded(lambda: _check(what, graphs, seconds, seed, everything, custom_ops), debug))


def _check(
    what: tuple[str, ...], graphs: int, seconds: float, seed: int, everything: bool, custom_ops: tuple[str, ...]
) -> int:
    from surgeon_passes.authoring.exercising import exercise
    from surgeon_passes.engines import isolated, with_libraries
    from surgeon_passes.report.exercises import render

    with isolated(True), with_libraries(custom_ops):  # a graph that nobody has ever run may be the end of ONNX Runtime
        found = [exercise(rule, graphs, seconds, seed) for rule in _rules(what)]
    say(render(found, everything), nl=False)
    return 0 if all(e.passed for e in found) else 2


def _rules(what: tuple[str, ...]) -> list[Rule]:
    """The rules that are meant, each once. Raises UsageError and RuleError."""
    from surgeon_passes.errors import UsageError, did_you_mean
    from surgeon_passes.rules.registry import Registry

    installed = Registry.installed()
    known = installed.known_sets() | {n for rule in installed for n in (rule.name, rule.family)}
    files, found = Registry(), {} if what else {rule.name: rule for rule in installed}
    for name in what:
        if _is_path(name):
            found.update((f"{name}:{rule.name}", rule) for rule in files.add_path(name))
        elif name in known:
            found.update((r.name, r) for r in installed if name in (r.name, r.family, *r.sets))
        else:
            raise UsageError(f"no rule, set, family or file is called '{name}'{did_you_mean(name, known)}")
    return list(found.values())


def _is_path(name: str) -> bool:
    return name.endswith(".py") or "/" in name or Path(name).is_dir()


@click.command(name="new")
@click.argument("model", type=FILE)
@click.option("--from", "sources", multiple=True, required=True, metavar="TENSOR", help="A tensor that the part reads.")
@click.option("--to", "target", required=True, metavar="TENSOR", help="The tensor that the part makes.")
@click.option("--name", default=None, help="What the rule is called; new_rule unless told otherwise.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def new_rule(model: str, sources: tuple[str, ...], target: str, name: str | None, debug: bool) -> None:
    """Print the part of MODEL between tensors as a rule: a Python file that is ready to edit.

    Its pattern matches where it came from; its rewrite puts the same operators there again until it is replaced.
    """
    sys.exit(guarded(lambda: _new(model, sources, target, name), debug))


def _new(model: str, sources: tuple[str, ...], target: str, name: str | None) -> int:
    from surgeon_passes.authoring.cutting import cut, write_rule

    say(write_rule(cut(model, sources, target), name or "new_rule"), nl=False)
    return 0
