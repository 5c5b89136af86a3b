"""Which tools there are."""

from __future__ import annotations

import importlib.metadata

import pytest

import surgeon_passes as sp
from surgeon_passes.bench.tools import OFF, OURS, TOOLS, chosen, installed, missing
from surgeon_passes.errors import UsageError


def none_installed(_: str) -> str:
    raise importlib.metadata.PackageNotFoundError


def test_ours_are_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", none_installed)
    assert [(tool.name, tool.version) for tool in installed()] == [(OURS, sp.__version__), (OFF, sp.__version__)]
    assert missing() == [tool.distribution for tool in TOOLS[2:]]
    with pytest.raises(UsageError, match="onnxslim is not installed: pip install onnxslim"):
        chosen(["onnxslim"])


def test_tools_are_chosen_by_name_in_the_order_of_the_table() -> None:
    assert [tool.name for tool in chosen(["onnxruntime (basic)", "surgeon_passes"])] == [
        OURS,
        OFF,
        "onnxruntime (basic)",
    ]
    assert [tool.name for tool in chosen(["onnxruntime", OFF])] == [OFF, "onnxruntime (basic)"]
    assert chosen() == installed()
    with pytest.raises(UsageError, match=r"no tool is called 'onnxslm' \(did you mean 'onnxslim'\?\); tools: surgeon"):
        chosen(["onnxslm"])
