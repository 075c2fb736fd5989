"""`z` -> `verdict`: the Kolmogorov-Smirnov test of all statistics so far against the normal distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

LEVEL = 0.01


def ks(record: Record, ctx: Context) -> None:
    found = sorted(ctx.get("z", seqno).json()["z"] for seqno in range(1, record.seqno + 1))
    n = len(found)
    normal = [(1 + math.erf(z / math.sqrt(2))) / 2 for z in found]
    d = max(max((k + 1) / n - p, p - k / n) for k, p in enumerate(normal))
    # The distribution of d for large n (Kolmogorov), with the correction of Stephens for small n.
    x = d * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    p = min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))))
    verdict = "random" if p >= LEVEL else "not random"
    ctx.append("verdict", {"n": n, "d": round(d, 6), "p": round(p, 6), "verdict": verdict})
