"""Which match of one record is which of another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from surgeon_passes.record.pairing import aligned, pair

Match = dict[str, Any]


def match(key: str, above: str = "", below: str = "", depth: float = 0.0) -> Match:
    place = {"above": above, "below": below, "depth": depth} if above or below else None
    return {"key": key, "place": place}


def paired(old: list[Match], new: list[Match]) -> list[tuple[int, int]]:
    found = pair(old, new, lambda m: m["key"])
    assert len(found.pairs) + len(found.old) == len(old)
    assert len(found.pairs) + len(found.new) == len(new)
    at = {id(m): i for side in (old, new) for i, m in enumerate(side)}
    return sorted((at[id(a)], at[id(b)]) for a, b in found.pairs)


def test_equal_keys_in_another_order() -> None:
    assert paired([match("p"), match("q")], [match("q"), match("r"), match("p")]) == [(0, 2), (1, 0)]


def test_at_equal_places_first() -> None:
    old = [match("p", "1", "9"), match("p", "2", "8"), match("p", "3", "7")]
    new = [match("p", "3", "x"), match("p", "1", "9")]
    assert paired(old, new) == [(0, 1), (2, 0)]


def test_what_has_no_place_goes_by_order() -> None:
    assert paired([match("p"), match("p")], [match("p")]) == [(0, 0)]


def test_depths_as_close_as_can_be() -> None:
    old = [match("p", f"o{d}", f"o{d}", d) for d in (0.1, 0.5, 0.9)]
    new = [match("p", f"n{d}", f"n{d}", d) for d in (0.15, 0.85)]
    assert paired(old, new) == [(0, 0), (2, 1)]


@pytest.mark.parametrize(("few", "many"), [(0, 3), (1, 4), (2, 5), (3, 6), (4, 7)])
def test_the_alignment_is_the_best_of_all(few: int, many: int) -> None:
    depths = [((7 * k * k + 3 * k) % 11) / 11 for k in range(few + many)]
    old, new = ([match("p", "a", "b", d) for d in side] for side in (sorted(depths[:few]), sorted(depths[few:])))

    def cost(places: tuple[int, ...]) -> float:
        return sum(abs(a["place"]["depth"] - new[p]["place"]["depth"]) for a, p in zip(old, places, strict=True))

    best = min(map(cost, itertools.combinations(range(many), few)))
    found = aligned(old, new)
    assert [a for a, _ in found] == old
    assert sum(abs(a["place"]["depth"] - b["place"]["depth"]) for a, b in found) == pytest.approx(best)
    turned = aligned(new, old)
    assert sum(abs(a["place"]["depth"] - b["place"]["depth"]) for a, b in turned) == pytest.approx(best)
