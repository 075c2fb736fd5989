"""`smooth/x`, for every sensor x -> `prediction`: estimates the truth of each step that all sensors have.

Whichever sensor comes last completes the step. Each run brings `prediction` up to the time of its own record, so it
does not matter in which order, or how much later, the sensors' records come: every complete step is predicted once. For
this to hold runs must not overlap: in millrace.toml they share a monitor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from model import SENSORS, features, known_at, log_of
from samples import joined, newest, rounded, sample

if TYPE_CHECKING:
    from millrace import Context, Record
    from samples import Sample


def predict(record: Record, ctx: Context) -> None:
    now = sample(record)
    newest_made = newest(ctx, "prediction")
    made = newest_made.json() if newest_made else None
    if made and made["t"] >= now.t:
        return
    model_now = known_at(ctx, now.t)
    if model_now is None:
        return
    # Nothing up to the newest prediction is left to do; before the first one, nothing that the model was fitted to.
    seqnos = made["from"] if made else model_now["last"]
    for step in joined(ctx, {log: seqnos[log] for log in map(log_of, SENSORS)}, now.t):
        t = next(iter(step.values())).t
        model = model_now if t == now.t else known_at(ctx, t)
        if model:
            ctx.append("prediction", estimate(t, step, model))


def estimate(t: int, step: dict[str, Sample], model: dict) -> dict:
    """The prediction for time `t`, and what it was made from."""
    v = sum(weight * x for weight, x in zip(model["weights"], features(t, step)))
    return {
        "t": t,
        "v": rounded(v),
        "model": {key: model[key] for key in ("seqno", "until", "at")},
        "from": {log: found.seqno for log, found in step.items()},
    }
