"""Which rules a test is about: said in a decorator, and checked while the test runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .harness import SEEN


def declines(*rules: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test shows what these rules decline. It fails where one of them did not decline anything, with a reason."""
    return _checked("declined", rules)


def property_of(*rules: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property of these rules on drawn models. The test fails where one of them never applied."""
    return _checked("applied", rules)


def _checked(kind: str, rules: tuple[str, ...]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            SEEN.clear()
            test(*args, **kwargs)
            missing = [rule for rule in rules if (kind, rule) not in SEEN]
            assert not missing, f"{test.__name__} names rules that it never saw {kind}: {missing}"

        return run

    return decorate
