"""`seed` -> `sample`: random numbers from the Mersenne Twister."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

VALUES = 1000


def generate(record: Record, ctx: Context) -> None:
    dice = random.Random(int(record.data))
    ctx.append("sample", [round(dice.random(), 6) for _ in range(VALUES)])
