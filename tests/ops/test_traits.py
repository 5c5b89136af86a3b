"""Traits against the operators' schemas."""

from __future__ import annotations

import pytest

from surgeon_passes.ops.schema import versions
from surgeon_passes.ops.traits import DATA_SIZED, SHAPE_READERS, SIZE_ARGUMENTS


@pytest.mark.parametrize("op", sorted(SIZE_ARGUMENTS.keys() - {"Upsample"}))
def test_size_arguments_are_called_as_in_the_newest_schema(op: str) -> None:
    newest = max(versions(op), key=lambda entry: entry.since_version)
    names = {place: newest.inputs[place].name for place in SIZE_ARGUMENTS[op]}
    assert names == dict(SIZE_ARGUMENTS[op])


@pytest.mark.parametrize("op", sorted({*DATA_SIZED, *SHAPE_READERS}))
def test_operators_exist(op: str) -> None:
    assert versions(op)
