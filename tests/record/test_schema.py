"""Our own look at a file against the full validator: they agree on what is whole and on what is damaged."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import surgeon_passes as sp
from surgeon_passes import demo, drift
from surgeon_passes.record.files import read_record
from surgeon_passes.record.schema import problem, schema_of

VALUES = (None, "", "verified", -1, 0, 1.5, "1" * 16, "1" * 64, True, [], {}, [[]], float("inf"))


@pytest.fixture(scope="module")
def held() -> dict[str, dict[str, Any]]:
    """By package: a short record, a baseline."""
    result = sp.optimize(demo.build(), record=True)
    record = result.record()
    record.update(matches=record["matches"][:2], rules=record["rules"][:1], near_misses=[])
    for side in ("before", "after"):
        record[side]["costs"] = record[side]["costs"][:1]
    return {"surgeon_passes.record": record, "surgeon_passes.drift": drift.baseline_of(result)}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all that lies inside."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("package", ["surgeon_passes.record", "surgeon_passes.drift"])
def test_as_the_full_validator_has_it(package: str, held: dict[str, dict[str, Any]]) -> None:
    schema = schema_of(package)
    full = jsonschema.Draft202012Validator(schema)
    whole = json.loads(json.dumps(held[package]))
    assert problem(whole, schema) == "" and full.is_valid(whole)
    draw = random.Random(3)
    found = {True: 0, False: 0}
    paths = list(places(whole))
    for path in draw.choices(paths, k=60):
        changed = copy.deepcopy(whole)
        parent = changed
        for key in path[:-1]:
            parent = parent[key]
        if isinstance(parent, dict) and draw.random() < 0.3:
            del parent[path[-1]]
        elif isinstance(parent, dict) and draw.random() < 0.2:
            parent["more"] = 1
        else:
            parent[path[-1]] = draw.choice(VALUES)
        assert (problem(changed, schema) == "") == full.is_valid(changed), (path, problem(changed, schema))
        found[full.is_valid(changed)] += 1
    assert min(found.values()) > 2


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("matches", 0, "status"), "done", r"matches\[0\]\.status is \"done\", not one of 'applied', 'declined'"),
        (("run", "seconds"), "1", r"run\.seconds is \"1\", not number"),
        (
            ("matches", 0, "region", "structure"),
            "x",
            r"matches\[0\]\.region holds structure, which is \"x\", which does",
        ),
        (("tools",), [], "tools is a list, not object"),
    ],
)
def test_a_damaged_record_is_one_line(
    path: tuple[Any, ...], value: Any, says: str, held: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    changed = copy.deepcopy(held["surgeon_passes.record"])
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    (tmp_path / "d.json").write_text(json.dumps(changed))
    with pytest.raises(sp.ModelError, match=rf"d\.json: a decision record that is damaged: {says}"):
        read_record(tmp_path / "d.json")
