"""Topics `cpu_smooth` and `env_smooth` -> `model`: a straight line and an offset for each hour of the day, for each sample of `env_smooth`.

Records of two topics arrive in any order. So a sample of `env_smooth` waits until `cpu_smooth` has come as far: the models and their
order depend on the samples alone, and not on which host was faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept import HOUR_S, Kept, rounded

if TYPE_CHECKING:
    from millrace import Context, Record

KEEP = 1 - 1 / (14 * 24)  # how much of an hour's weight is left an hour later
LEARN = 1 / 14  # how much of an hour's error becomes part of its offset
LEAN = 200.0  # the slope leans to 1 as if the sensors had moved together by this much, squared


def train(record: Record, ctx: Context) -> None:
    cpu, env = Kept(ctx, "train/cpu"), Kept(ctx, "train/env")
    models = Kept(ctx, "model")
    (cpu if record.topic == "cpu_smooth" else env).append(record.json())
    reached = cpu[len(cpu)]["t"] if len(cpu) else -1
    while len(models) < len(env):
        truth = env[len(models) + 1]
        if truth["t"] > reached:
            return
        n = cpu.up_to(truth["t"])
        sensor = cpu[n] if n and cpu[n]["t"] == truth["t"] else None
        model = models[len(models)] if len(models) else {"sums": [0.0] * 5, "slope": 1.0, "offsets": [0.0] * 24}
        models.append(learnt(model, sensor, truth))


def learnt(model: dict, sensor: dict | None, truth: dict) -> dict:
    """The model with one more pair of samples; without a sensor's sample only the time changes."""
    sums, slope, offsets = model["sums"], model["slope"], list(model["offsets"])
    if sensor:
        x, y = sensor["v"], truth["v"]
        hour = truth["t"] // HOUR_S % 24
        sums = [rounded(KEEP * old + new) for old, new in zip(sums, (1.0, x, y, x * x, x * y))]
        count, sx, sy, sxx, sxy = sums
        moved = sxx - sx * sx / count
        slope = rounded(1 + (sxy - sx * sy / count - moved) / (moved + LEAN))
        error = y - slope * x - (sy - slope * sx) / count
        offsets[hour] = rounded(offsets[hour] + LEARN * (error - offsets[hour]))
    return {"t": truth["t"], "sums": sums, "slope": slope, "offsets": offsets}
