"""Topics `cpu_smooth` and `model` -> `prediction`: the temperature outside, from the sensor on the board.

The truth is known six hours late: a sample at `t` is predicted with the newest model of `t` less six hours, or an earlier time. It waits
until it is certain which one that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kept import HOUR_S, Kept, rounded

if TYPE_CHECKING:
    from millrace import Context, Record

LATE_S = 6 * HOUR_S


def predict(record: Record, ctx: Context) -> None:
    cpu, models = Kept(ctx, "predict/cpu"), Kept(ctx, "predict/model")
    predictions = Kept(ctx, "prediction")
    (cpu if record.topic == "cpu_smooth" else models).append(record.json())
    reached = models[len(models)]["t"] if len(models) else -1
    done = predictions[len(predictions)]["cpu"] if len(predictions) else 0
    for n in range(done + 1, len(cpu) + 1):
        sensor = cpu[n]
        if sensor["t"] - LATE_S > reached:
            return
        number = models.up_to(sensor["t"] - LATE_S)
        if number:
            predictions.append(predicted(sensor, n, models[number], number))


def predicted(sensor: dict, n: int, model: dict, number: int) -> dict:
    count, sx, sy = model["sums"][:3]
    base = (sy - model["slope"] * sx) / count if count else 0.0
    value = base + model["slope"] * sensor["v"] + model["offsets"][sensor["t"] // HOUR_S % 24]
    return {"t": sensor["t"], "v": rounded(value), "cpu": n, "model": number}
