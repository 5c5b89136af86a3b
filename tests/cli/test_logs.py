"""What the package logs is seen on request, on stderr, one line each."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import click
import pytest

from surgeon_passes.cli import main

from .conftest import Call, write


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    logger = logging.getLogger("surgeon_passes")
    handlers, level = list(logger.handlers), logger.level
    yield
    logger.handlers = handlers
    logger.setLevel(level)


def levels(text: str) -> set[str]:
    return {line.split(":")[0] for line in text.splitlines()}


def test_nothing_is_logged_unasked(call: Call, model: str) -> None:
    outcome = call("optimize", model)
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("arguments", [["optimize", "-v"], ["-v", "optimize"], ["optimize", "--log-level", "info"]])
def test_steps_are_logged(arguments: list[str], call: Call, model: str) -> None:
    quiet, outcome = call("optimize", model), call(*arguments, model)
    assert outcome.code == 0 and levels(outcome.err) == {"info"}
    lines = outcome.err.splitlines()
    assert any(line.startswith(f"info: run: {model}, pass rewrite: 2 -> 1 nodes, ") for line in lines)
    assert lines[-1].startswith(f"info: run: {model}, end check: equal")
    assert outcome.out.splitlines()[:3] == quiet.out.splitlines()[:3]


@pytest.mark.parametrize("arguments", [["-vv", "optimize"], ["-v", "optimize", "-v", "--log-level", "debug"]])
def test_details_are_logged(arguments: list[str], call: Call, model: str) -> None:
    outcome = call(*arguments, model)
    assert levels(outcome.err) == {"info", "debug"}
    assert "debug: passes.state: fold_batch_norm_into_conv at BatchNormalization -> 'y': applied" in outcome.err


def test_a_record_is_one_line_without_what_a_terminal_obeys(call: Call, tmp_path: object) -> None:
    from pathlib import Path

    name = write(
        Path(str(tmp_path)), '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    )
    Path(name).rename("a\x1b[2J\nb.onnx")
    outcome = call("optimize", "-v", "a\x1b[2J\nb.onnx")
    assert outcome.code == 0 and "\x1b" not in outcome.err
    assert all(line.startswith("info: ") for line in outcome.err.splitlines())


def test_every_command_takes_the_options() -> None:
    def leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
        yield path, command
        if isinstance(command, click.Group):
            for name, part in command.commands.items():
                yield from leaves(part, f"{path} {name}")

    found = dict(leaves(main, "surgeon-passes"))
    assert len(found) > 12
    for path, command in found.items():
        flags = [o for parameter in command.params for o in parameter.opts]
        assert flags.count("-v") == flags.count("--log-level") == 1, path


def test_a_wrong_level_is_refused(call: Call, model: str) -> None:
    outcome = call("optimize", "--log-level", "loud", model)
    assert outcome.code == 2 and "'loud' is not one of 'debug', 'info', 'warning', 'error'" in outcome.err
