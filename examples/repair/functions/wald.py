"""`sample` -> `z`: the Wald-Wolfowitz runs test. For independent values the statistic is normally distributed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record


def wald(record: Record, ctx: Context) -> None:
    above = [value > 0.5 for value in record.json()]
    runs = 1 + sum(one != other for one, other in zip(above, above[1:]))
    n, n1 = len(above), sum(above)
    n2 = n - n1
    mean = 2 * n1 * n2 / n + 1
    variance = (mean - 1) * (mean - 2) / (n - 1)
    ctx.append("z", {"z": round((runs - mean) / math.sqrt(variance), 6)})
