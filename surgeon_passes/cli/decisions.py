"""``surgeon-passes replay`` and ``surgeon-passes decisions``."""

from __future__ import annotations

import sys
from typing import Any

import click

from surgeon_passes.cli.common import FILE, guarded, isolation, progress_line, runtime_options, say

DRIFTED = 8


@click.command()
@click.argument("decisions", type=FILE)
@click.argument("model", type=FILE)
@click.option("-o", "--output", type=FILE, help="Where to write the result.")
@click.option("--rules", "rule_files", multiple=True, type=FILE, help="The Python files of rules that were given then.")
@click.option("--data", type=FILE, help="Inputs in the place of the recorded ones: an npz, or a folder of npy.")
@click.option("--decisions", "record_file", type=FILE, metavar="FILE", help="Write the record of this run as JSON.")
@runtime_options
@click.option("--force", is_flag=True, help="Write the result even where something differs.")
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def replay(decisions: str, model: str, debug: bool, **options: Any) -> None:
    """Do again on MODEL what the record DECISIONS holds, and list what differs.

    On the recorded file the result is the same, byte for byte. On another, rules make only rewrites of a structure that the
    record holds, whatever nodes and tensors are called. Exit code 8 where something differs, and nothing is written.
    """
    sys.exit(guarded(lambda: _replay(decisions, model, **options), debug))


def _replay(
    decisions: str,
    model: str,
    output: str | None,
    rule_files: tuple[str, ...],
    data: str | None,
    record_file: str | None,
    isolate: bool,
    timeout: float,
    memory: str | None,
    force: bool,
) -> int:
    from surgeon_passes.model.files import check_writable
    from surgeon_passes.record.files import read_record
    from surgeon_passes.record.replay import replay as again
    from surgeon_passes.record.show import show_replay
    from surgeon_passes.rules.registry import Registry

    apart = isolation(isolate, timeout, memory)
    record = read_record(decisions)
    registry = Registry.installed()
    own = [rule for path in rule_files for rule in registry.add_path(path)]
    for place in (output, record_file):
        if place is not None:
            check_writable(place)
    with progress_line() as progress:
        found = again(record, model, rules=own, data=data, registry=registry, progress=progress, isolate=apart)
    say(show_replay(found), nl=False)
    code = found.result.exit_code
    if code not in (4, 5) and found.differs:
        code = DRIFTED
    if record_file is not None:
        found.result.save_record(record_file)
    if output is None:
        return code
    if code in (4, 5, DRIFTED) and not force:
        click.echo(f"not written: {output} (--force writes it all the same)", err=True)
        return code
    found.result.save(output)
    return code


@click.group()
def decisions() -> None:
    """Decision records, as optimize --decisions writes them."""


@decisions.command(name="diff")
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@click.option("--debug", is_flag=True, help="Add the traceback to an error.")
def diff_decisions(old: str, new: str, debug: bool) -> None:
    """What was done by the record OLD and not by NEW, and the other way round, by structure: names may all be others.

    Exit code 8 where something differs.
    """
    sys.exit(guarded(lambda: _diff(old, new), debug))


def _diff(old: str, new: str) -> int:
    from surgeon_passes.record.diff import diff
    from surgeon_passes.record.files import read_record
    from surgeon_passes.record.show import show

    found = diff(read_record(old), read_record(new))
    say(show(found), nl=False)
    return 0 if found.is_empty else DRIFTED
