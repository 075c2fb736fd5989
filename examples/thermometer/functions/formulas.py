"""Fits formulas to the past, from simple to rich, and weighs them by how well they do on data that they have not seen.

A formula maps the names of its terms (see `terms` in model.py) to weights:

* sensor: a sensor as it is,
* offset: a sensor less its mean offset,
* line: a straight line through one sensor,
* sensors: a regression on all sensors,
* time of day: the same with the time of day, once the data span days.

The model is the mean of them all, which is one such formula again. One that does worse than the best counts for little:
its share falls by a factor of e for each eighth that its error is larger. While there are few data the simple ones are
better, and no choice has to be made from a few of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

Table = dict[str, np.ndarray]  # each term's values, a row for each step
Weights = dict[str, float]

DAY_S = 86_400
DAYS_MIN = 3  # of a shorter time nobody can tell what the time of day does
ROWS_PER_TERM_MIN = 3
PARTS = 8
SHARPNESS = 8
SHARE_MIN = 1e-3
EVIDENCE_MIN = 40


class Formula(NamedTuple):
    kind: str
    terms: list[str]  # those with a weight, of a single sensor's formula the sensor last

    def fit(self, x: Table, y: np.ndarray) -> Weights:
        if self.kind == "sensor":
            return {self.terms[0]: 1.0}
        if self.kind == "offset":
            return {"one": float(np.mean(y - x[self.terms[1]])), self.terms[1]: 1.0}
        if self.kind == "line":
            return line(self.terms[1], x[self.terms[1]], y)
        weights, *_ = np.linalg.lstsq(np.column_stack([x[term] for term in self.terms]), y, rcond=None)
        return dict(zip(self.terms, weights.tolist()))

    def rows_min(self) -> int:
        return {"sensor": 0, "offset": 1}.get(self.kind, ROWS_PER_TERM_MIN * len(self.terms))


def line(sensor: str, x: np.ndarray, y: np.ndarray) -> Weights:
    """A straight line whose slope is 1 until the data show another one.

    A few hours of nearly the same temperature say little about the slope, and a wrong slope does harm when the
    temperature changes. The evidence is the sum of squares that another slope explains, in units of the line's own mean
    squared error. At `EVIDENCE_MIN` the slope is half-way between 1 and that of least squares; with three times as much
    evidence it is nearly that of least squares.
    """
    dx, dy = x - x.mean(), y - y.mean()
    moved = float(dx @ dx)
    steeper = float(dx @ (dy - dx)) / moved if moved else 0.0
    explained = (steeper**2 * moved) ** 3
    needed = (EVIDENCE_MIN * float(np.mean((dy - (1 + steeper) * dx) ** 2))) ** 3
    slope = 1 + steeper * explained / (explained + needed) if explained else 1.0
    return {"one": float(y.mean() - slope * x.mean()), sensor: slope}


def formulas(sensors: list[str], span_s: int) -> list[Formula]:
    """The formulas to try with these sensors on data that span so long."""
    tried = [Formula("sensor", [sensor]) for sensor in sensors]
    tried += [Formula(kind, ["one", sensor]) for kind in ("offset", "line") for sensor in sensors]
    if len(sensors) > 1:
        tried.append(Formula("sensors", ["one", *sensors]))
    if span_s >= DAYS_MIN * DAY_S:
        tried.append(Formula("time of day", ["one", *sensors, "sin", "cos"]))
    return tried


def unseen_error(formula: Formula, x: Table, y: np.ndarray) -> float | None:
    """The mean absolute error when each eighth of the steps is estimated from the others; None if those are too few."""
    cuts = [len(y) * n // PARTS for n in range(PARTS + 1)]
    total = 0.0
    for begin, end in zip(cuts, cuts[1:]):
        seen = np.r_[0:begin, end : len(y)]
        if len(seen) < formula.rows_min():
            return None
        weights = formula.fit({term: x[term][seen] for term in formula.terms}, y[seen])
        estimates = sum(weight * x[term][begin:end] for term, weight in weights.items())
        total += float(np.sum(np.abs(estimates - y[begin:end])))
    return total / len(y)


def mixed(tried: list[Formula], x: Table, y: np.ndarray) -> dict:
    """The mean of the formulas, as one: its weights, and the share of each."""
    errors = [unseen_error(formula, x, y) for formula in tried]
    rated = [(formula, error) for formula, error in zip(tried, errors) if error is not None]
    least = max(min(error for _, error in rated), 1e-6)
    shares = [math.exp(-SHARPNESS * (error / least - 1)) for _, error in rated]
    total = sum(share for share in shares if share >= SHARE_MIN)
    mean: Weights = {}
    kinds: dict[str, float] = {}
    for (formula, _), share in zip(rated, shares):
        if share >= SHARE_MIN:
            kinds[formula.kind] = kinds.get(formula.kind, 0.0) + share / total
            for term, weight in formula.fit(x, y).items():
                mean[term] = mean.get(term, 0.0) + weight * share / total
    return {"error": least, "shares": kinds, "weights": mean}


def choices(
    sensors: list[str], span_s: int, x: Table, y: np.ndarray, alone: dict[str, tuple[Table, np.ndarray]]
) -> list[dict]:
    """What to estimate with, the better ones first: all `sensors` together, or each sensor of `alone` by itself.

    A sensor alone is fitted to all its own steps. So it serves when others are missing, and it may be the best while it
    has too few steps to be one of `sensors`, for instance after a long absence.
    """
    found = [mixed(formulas(sensors, span_s), x, y)]
    found += [mixed(formulas([sensor], 0), own_x, own_y) for sensor, (own_x, own_y) in alone.items()]
    return sorted(found, key=lambda one: one["error"])
