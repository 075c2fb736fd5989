"""`kitchen/mean` -> `model`: at the end of each day its mean temperature, and the difference from the day before."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

HOURS = 24


def train(record: Record, ctx: Context) -> None:
    day, hour = divmod(record.seqno, HOURS)
    if hour:
        return
    hours = range(record.seqno - HOURS + 1, record.seqno + 1)
    mean = round(sum(float(ctx.get("kitchen/mean", seqno).data) for seqno in hours) / HOURS, 3)
    before = ctx.get("model", day - 1).json()["mean"] if day > 1 else mean
    ctx.append("model", {"day": day, "mean": mean, "trend": round(mean - before, 3)})
