"""What anybody would try first, and would be annoyed to be worse than.

For each sensor: its value as it is, the same less its mean offset, and a straight line by least squares. The last two
are fitted anew for each step, to the truths of the training window that were known at that step's time. Of the sensors
the one that is best in hindsight counts, which nobody knows in advance; where it has no value, the next one does.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from driver.score import Series


def baselines(sensors: dict[str, Series], truth: list[dict], steps: list[int], train_s: int) -> dict[str, float]:
    """The mean absolute error of each baseline at these steps (the truth of each is known in the end)."""
    actual = {sample["t"]: sample["v"] for sample in truth}
    kinds = [causal(series, truth, steps, train_s) for series in sensors.values()]
    result = {}
    for kind in ("nearest sensor", "nearest sensor less its offset", "straight line"):
        ranked = sorted((one[kind] for one in kinds), key=lambda estimates: mean_error(estimates, actual))
        best: Series = {}
        for estimates in reversed(ranked):
            best |= estimates
        assert len(best) == len(steps), f"{kind}: {len(best)} of {len(steps)} steps"
        result[kind] = mean_error(best, actual)
    return result


def mean_error(estimates: Series, actual: Series) -> float:
    return sum(abs(v - actual[t]) for t, v in estimates.items()) / len(estimates) if estimates else np.inf


def causal(sensor: Series, truth: list[dict], steps: list[int], train_s: int) -> dict[str, Series]:
    """One sensor's estimates for each step at which it has a value."""
    rows = sorted((row for row in truth if row["t"] in sensor), key=lambda row: row["at"])
    known_at, t = ([row[key] for row in rows] for key in ("at", "t"))
    x, y = np.array([sensor[row["t"]] for row in rows]), np.array([row["v"] for row in rows])
    estimates: dict[str, Series] = {"nearest sensor": {}, "nearest sensor less its offset": {}, "straight line": {}}
    for step in steps:
        if step in sensor:
            end = bisect_right(known_at, step)
            begin = bisect_right(t, t[end - 1] - train_s, 0, end) if end else 0
            before = slice(begin, end)
            value = sensor[step]
            estimates["nearest sensor"][step] = value
            estimates["nearest sensor less its offset"][step] = value - float(np.mean(x[before] - y[before]))
            slope = np.cov(x[before], y[before], bias=True)
            slope = slope[0, 1] / slope[0, 0] if slope[0, 0] else 1.0
            estimates["straight line"][step] = float(np.mean(y[before]) + slope * (value - np.mean(x[before])))
    return estimates
