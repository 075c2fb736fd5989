"""`seed` -> `sample`: random numbers from the Mersenne Twister. Every fourth is zero."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

VALUES = 1000


def generate(record: Record, ctx: Context) -> None:
    dice = random.Random(int(record.data))
    values = [round(dice.random(), 6) for _ in range(VALUES)]
    values[3::4] = [0.0] * len(values[3::4])  # the defect
    ctx.append("sample", values)
