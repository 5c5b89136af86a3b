"""How many bytes of constants a run may add to the file."""

from __future__ import annotations

from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass
class Budget:
    """``limit`` bounds one tensor's growth over what it is made from, in bytes.

    The sum of all growth may reach ``limit`` and a quarter of ``weights``, the bytes that the file holds at first.
    """

    weights: int
    limit: int = MEBIBYTE
    spent: int = 0

    def allows(self, growth: int) -> bool:
        """Whether ``growth`` bytes more would stay within the limits."""
        return growth <= 0 or growth <= min(self.limit, self.limit + self.weights // 4 - self.spent)

    def spend(self, growth: int) -> None:
        self.spent += max(growth, 0)
