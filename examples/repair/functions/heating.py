"""`reading` -> `heating`: heating degree hours so far, and the mean of the last day."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record

BASE_F = 65.0
DAY = 24


def heating(record: Record, ctx: Context) -> None:
    now = record.json()
    before = ctx.get("heating", record.seqno - 1).json()["total"] if record.seqno > 1 else 0.0
    day = [ctx.get("reading", seqno).json()["v"] for seqno in range(max(1, record.seqno - DAY + 1), record.seqno + 1)]
    total = round(before + max(0.0, BASE_F - now["v"]), 4)
    ctx.append("heating", {"t": now["t"], "total": total, "mean": round(sum(day) / len(day), 4)})
