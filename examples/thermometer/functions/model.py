"""The model: a linear map from the sensors' values, and the time of day, to the truth.

As a record of `model`: `until` is the last step it was fitted to, `at` when the newest truth it saw became known, and
`first` and `last` say with which records of each smoothed log these data begin and end. `choices` are formulas, each
with the weights of its terms: one of all sensors with enough data, and one of each sensor alone, the better ones first.
A step is estimated by the first one whose sensors it has, so a sensor that dies does not stop the estimates, and one
that returns counts at once.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from samples import Sample

if TYPE_CHECKING:
    from millrace import Context

SENSORS = os.environ["SENSORS"].split()
SILENT_S = int(os.environ["SILENT_S"])  # a sensor without a sample for so long does not delay the others
TRUTH = "smooth/truth"
DAY_S = 86_400


def log_of(sensor: str) -> str:
    return f"smooth/{sensor}"


def terms(t: int, step: dict[str, Sample]) -> dict[str, float]:
    """What the truth is estimated from: 1, each sensor, and where in the day it is (the sun warms places unequally)."""
    angle = 2 * math.pi * (t % DAY_S) / DAY_S
    sensors = {sensor: step[log_of(sensor)].v for sensor in SENSORS if log_of(sensor) in step}
    return {"one": 1.0, **sensors, "sin": math.sin(angle), "cos": math.cos(angle)}


def known_at(ctx: Context, t: int) -> dict | None:
    """The newest model that existed at time `t`, fitted only to earlier data; with its seqno."""
    for seqno in range(ctx.latest("model"), 0, -1):
        model = ctx.get("model", seqno).json()
        if model["at"] <= t and model["until"] < t:
            return model | {"seqno": seqno}
    return None
