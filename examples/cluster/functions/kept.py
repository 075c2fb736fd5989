"""Samples, and the logs in which a function keeps what it was given.

A sample is a record such as `{"t":1357020000,"v":39.02}`: at second `t` (since 1970) the temperature was `v`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace import Context

HOUR_S = 3600


def rounded(v: float) -> float:
    """To four decimals, the precision of everything that is published."""
    return math.floor(v * 10_000 + 0.5) / 10_000


class Kept:
    """A log that only this function appends to. What this run appends is in it, too."""

    def __init__(self, ctx: Context, log: str) -> None:
        self.ctx, self.log = ctx, log
        self.before = ctx.latest(log)
        self.new: list[Any] = []

    def append(self, value: Any) -> None:
        self.ctx.append(self.log, value)
        self.new.append(value)

    def __len__(self) -> int:
        return self.before + len(self.new)

    def __getitem__(self, n: int) -> Any:
        """The `n`-th value, from 1 on."""
        return self.new[n - self.before - 1] if n > self.before else self.ctx.get(self.log, n).json()

    def up_to(self, t: int) -> int:
        """The number of the newest value that is no later than `t`, 0 if there is none; the values are in order of time."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high + 1) // 2
            if self[middle]["t"] <= t:
                low = middle
            else:
                high = middle - 1
        return low
