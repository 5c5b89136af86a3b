"""``surgeon-passes rules list`` and ``surgeon-passes rules show``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from surgeon_passes.cli.common import FILE, guarded, say

if TYPE_CHECKING:
    from surgeon_passes.rules.registry import Registry


@click.group()
def rules() -> None:
    """The rules at hand: the built-in ones and those of installed packages."""


@rules.command(name="list")
@click.argument("names", nargs=-1)
@click.option("--rules", "paths", multiple=True, type=FILE, help="A Python file or folder of rules to add.")
@click.option("--markdown", "as_markdown", is_flag=True, help="As a document, with pattern and explanation of each.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def list_rules(names: tuple[str, ...], paths: tuple[str, ...], as_markdown: bool, debug: bool) -> None:
    """Name, family, exactness, opsets, sets and purpose of each rule, in the order in which they run.

    NAMES are rules, sets or families; without them all rules are listed.
    """
    sys.exit(guarded(lambda: _list(names, paths, as_markdown), debug))


def _list(names: tuple[str, ...], paths: tuple[str, ...], as_markdown: bool) -> int:
    from surgeon_passes.errors import UsageError, did_you_mean
    from surgeon_passes.report.catalogue import listing, markdown

    registry = _registry(paths)
    known = registry.known_sets() | {n for rule in registry for n in (rule.name, rule.family)}
    for name in names:
        if name not in known:
            raise UsageError(f"no rule, set or family is called '{name}'{did_you_mean(name, known)}")
    chosen = [r for r in registry if not names or {r.name, r.family, *r.sets} & set(names)]
    say(markdown(chosen) if as_markdown else listing(chosen), nl=not as_markdown)
    return 0


@rules.command(name="show")
@click.argument("name")
@click.option("--rules", "paths", multiple=True, type=FILE, help="A Python file or folder of rules to add.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def show_rule(name: str, paths: tuple[str, ...], debug: bool) -> None:
    """Pattern, rewrite, algebra, what it declines, and an example of the rule NAME."""
    sys.exit(guarded(lambda: _show(name, paths), debug))


def _show(name: str, paths: tuple[str, ...]) -> int:
    from surgeon_passes.errors import UsageError, did_you_mean
    from surgeon_passes.report.catalogue import show

    registry = _registry(paths)
    rule = registry.get(name)
    if rule is None:
        raise UsageError(f"no rule is called '{name}'{did_you_mean(name, {r.name for r in registry})}")
    say(show(rule))
    return 0


def _registry(paths: tuple[str, ...]) -> Registry:
    from surgeon_passes.rules.registry import Registry

    registry = Registry.installed()
    for path in paths:
        registry.add_path(path)
    return registry
