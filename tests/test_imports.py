"""Importing the package is cheap, and leaves ONNX Runtime alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

import surgeon_passes as sp


def loaded(code: str) -> set[str]:
    """Modules loaded after running ``code`` in a fresh interpreter."""
    script = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_the_package_alone_loads_nothing_heavy() -> None:
    assert not {"onnxruntime", "onnx", "onnx.reference", "onnx_graphsurgeon", "numpy"} & loaded("import surgeon_passes")


@pytest.mark.parametrize("name", [*sp.__all__, "patterns"])
def test_no_public_name_loads_the_runtime(name: str) -> None:
    modules = loaded(f"from surgeon_passes import {name}")
    assert not {"onnxruntime", "onnx.reference"} & modules


def test_every_public_name_is_there_and_listed() -> None:
    assert sorted(sp.__all__) == list(sp.__all__)
    for name in sp.__all__:
        assert getattr(sp, name) is getattr(sp, name)
        assert name in dir(sp)
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = sp.optimise


def test_functions_are_not_hidden_by_the_modules_that_are_called_so() -> None:
    modules = "surgeon_passes.explain, surgeon_passes.compare.pairs, surgeon_passes as sp"
    script = f"import {modules}; print(sp.explain, sp.compare)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("<function explain at") and "<function compare at" in done.stdout
