"""The model: a linear map from the sensors' values, and the time of day, to the truth.

As a record of `model`: `until` is the last step it was trained on, `at` when the newest truth it saw became known, and
`first` and `last` say which records of each smoothed log its training window began and ended with.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from samples import Sample

if TYPE_CHECKING:
    from millrace import Context

SENSORS = os.environ["SENSORS"].split()
TRUTH = "smooth/truth"
DAY_S = 86_400


def log_of(sensor: str) -> str:
    return f"smooth/{sensor}"


def features(t: int, step: dict[str, Sample]) -> list[float]:
    """What the truth is estimated from: 1, each sensor, and where in the day it is (the sun warms places unequally)."""
    angle = 2 * math.pi * (t % DAY_S) / DAY_S
    return [1.0, *(step[log_of(sensor)].v for sensor in SENSORS), math.sin(angle), math.cos(angle)]


def known_at(ctx: Context, t: int) -> dict | None:
    """The newest model that was there at time `t`, trained on nothing as late as that; with its seqno."""
    for seqno in range(ctx.latest("model"), 0, -1):
        model = ctx.get("model", seqno).json()
        if model["at"] <= t and model["until"] < t:
            return model | {"seqno": seqno}
    return None
