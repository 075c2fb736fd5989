"""`model` -> `prediction`: the mean temperature of the next day."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace import Context, Record


def predict(record: Record, ctx: Context) -> None:
    model = record.json()
    ctx.append("prediction", {"day": model["day"] + 1, "mean": round(model["mean"] + model["trend"], 3)})
