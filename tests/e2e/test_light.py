"""onnx's bundled models, whose weights are ConstantOfShape nodes: folding them would blow the files up.

Their outputs do not depend on the inputs, so that equal outputs prove nothing here; sizes do.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import surgeon_passes as sp

from .holds import assert_holds

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
BUDGET = 1 << 20
"""the default of Fold(max_bytes=...)"""


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda p: p.stem)
def test_does_not_blow_up(path: Path, tmp_path: Path) -> None:
    result = assert_holds(path, tmp_path, None)
    size = (tmp_path / "first" / "model.onnx").stat().st_size
    assert size <= path.stat().st_size + BUDGET
    assert result.after.nodes <= result.before.nodes


def test_says_what_was_left_for_its_size() -> None:
    result = sp.optimize(LIGHT / "light_resnet50.onnx")
    assert "max_bytes" in result.report() or "budget" in result.report()
