"""Topics `cpu_raw` and `env_raw` -> `cpu_smooth` and `env_smooth`: the mean of the samples of three hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept import HOUR_S, Kept, rounded

if TYPE_CHECKING:
    from millrace import Context, Record

HOURS = 3


def smooth(record: Record, ctx: Context) -> None:
    name = record.topic.removesuffix("_raw")
    seen = Kept(ctx, f"smooth/{name}")
    now = record.json()
    seen.append(now)
    newest = [seen[n] for n in range(max(1, len(seen) - HOURS + 1), len(seen) + 1)]
    window = [sample["v"] for sample in newest if sample["t"] > now["t"] - HOURS * HOUR_S]
    if len(window) == HOURS:
        ctx.append(f"{name}_smooth", {"t": now["t"], "v": rounded(sum(window) / HOURS)})
