"""How good the predictions are, beside two baselines that cost nothing.

Each is compared with the truth twice: with the smoothed truth, which is what the model estimates, and with the bare
reading of that step. The baselines are smoothed for the first comparison and bare for the second: each at its best.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

Series = dict[int, float]


@dataclass(frozen=True)
class Errors:
    """One estimator's errors over time."""

    name: str
    estimate: Series
    times: np.ndarray
    errors: np.ndarray

    @property
    def mae(self) -> float:
        return float(np.mean(np.abs(self.errors)))

    @property
    def rmse(self) -> float:
        return float(np.sqrt(np.mean(self.errors**2)))

    @property
    def p95(self) -> float:
        """95 % of the errors are no larger."""
        return float(np.percentile(np.abs(self.errors), 95))

    def figures(self) -> dict[str, float]:
        return {"mae": self.mae, "rmse": self.rmse, "p95": self.p95, "steps": len(self.times)}


def compare(prediction: Series, sensors: dict[str, Series], truth: list[dict], lag: str) -> list[Errors]:
    """The prediction's errors, the nearest sensor's and the last known truth's, on the same steps for all three."""
    actual = {sample["t"]: sample["v"] for sample in truth}
    known = last_known(truth, prediction)
    steps = [
        t for t in sorted(prediction.keys() & actual.keys() & known.keys()) if any(t in s for s in sensors.values())
    ]
    if not steps:
        return []
    nearest, name = nearest_sensor(steps, sensors, actual)
    return [
        errors_of("prediction", steps, prediction, actual),
        errors_of(f"nearest sensor ({name})", steps, nearest, actual),
        errors_of(f"last truth known ({lag} late)", steps, known, actual),
    ]


def nearest_sensor(steps: list[int], sensors: dict[str, Series], actual: Series) -> tuple[Series, str]:
    """The sensor that is best in hindsight, which nobody has who must rely on it: the strongest form of this baseline.
    Where it has no value the next best stands in for it."""

    def error(name: str) -> float:
        own = [t for t in steps if t in sensors[name]]
        return errors_of(name, own, sensors[name], actual).mae if own else float("inf")

    ranked = sorted(sensors, key=error)
    nearest: Series = {}
    for name in reversed(ranked):
        nearest |= {t: sensors[name][t] for t in steps if t in sensors[name]}
    stood_in = sum(t not in sensors[ranked[0]] for t in steps) > len(steps) / 100
    return nearest, f"{ranked[0]}, then {ranked[1]}" if stood_in else ranked[0]


def errors_of(name: str, steps: list[int], estimate: Series, actual: Series) -> Errors:
    return Errors(name, estimate, np.array(steps), np.array([estimate[t] - actual[t] for t in steps]))


def last_known(truth: list[dict], steps: Iterable[int]) -> Series:
    """For each step the newest truth that was known by then, and measured before it."""
    arrivals = sorted((sample.get("at", sample["t"]), sample["t"], sample["v"]) for sample in truth)
    arrived: list[tuple[int, float]] = []
    known, n = {}, 0
    for step in sorted(steps):
        while n < len(arrivals) and arrivals[n][0] <= step:
            insort(arrived, arrivals[n][1:])
            n += 1
        before = bisect_left(arrived, (step,))
        if before:
            known[step] = arrived[before - 1][1]
    return known


def assert_unseen(predictions: list[dict]) -> None:
    """No prediction may come from a model that knew its time, or that was not there yet."""
    for p in predictions:
        model = p["model"]
        assert model["until"] < p["t"] and model["at"] <= p["t"], (
            f"prediction for {p['t']} has seen its own truth: {model}"
        )


def decimals(errors: Iterable[Errors]) -> int:
    """How many decimals show two digits of the smallest mean error: 2 to 4, as records have no more than 4."""
    least = min((one.mae for one in errors if one.mae > 0), default=1.0)
    return min(max(1 - math.floor(math.log10(least)), 2), 4)


def table(groups: dict[str, list[Errors]], unit: str) -> str:
    """The figures as text."""
    places = decimals(one for group in groups.values() for one in group)
    width = max(28, *(len(row.name) for group in groups.values() for row in group))
    head = f"{'':<{width}}" + "".join(f"{title:^28}" for title in groups)
    error = f"error in {unit}" if unit else "error"
    units = f"{error:<{width}}" + f"{'mean':>9}{'RMSE':>8}{'95 %':>8}   " * len(groups)
    rows = zip(*groups.values())
    lines = [
        f"{row[0].name:<{width}}"
        + "".join(f"{e.mae:>9.{places}f}{e.rmse:>8.{places}f}{e.p95:>8.{places}f}   " for e in row)
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in [head, units, *lines])
