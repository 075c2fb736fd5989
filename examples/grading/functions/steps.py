"""`steps` -> `steps`, and at last `finished`: computes and writes a key, again and again, as the second measurement needs it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record


def step(record: Record, ctx: Context) -> None:
    """One computation and one write; the next ones are runs of their own."""
    work = record.json()
    compute_and_write(work, work["left"], ctx)
    if work["left"] > 1:
        ctx.append("steps", {**work, "left": work["left"] - 1})
    else:
        ctx.append("finished", work["name"])


def together(record: Record, ctx: Context) -> None:
    """All computations and writes in one run."""
    work = record.json()
    for left in range(work["left"], 0, -1):
        compute_and_write(work, left, ctx)
    ctx.append("finished", work["name"])


def compute_and_write(work: dict, left: int, ctx: Context) -> None:
    time.sleep(work["compute_s"])
    ctx.table(work["table"])[f"{work['name']}/{left}"] = left
