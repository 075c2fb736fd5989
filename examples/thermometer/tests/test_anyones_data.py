"""With the defaults, estimates are about as good as the simplest methods, on data of many kinds.

The functions run in memory, as run.py would set them up for these files. They compete with three baselines.
For each sensor: its value as it is, the same less its mean offset, and a straight line by least squares. The last two
are fitted again at each step, to the truths of the training window that were known at that step's time. Of the sensors
the one that is best in hindsight counts, although it is not known in advance; where it has no value, the next one does.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from bisect import bisect_right
from pathlib import Path
from typing import Callable

import numpy as np
import pytest

import datasets
import run
from datasets import DATASETS
from driver.score import Series
from fake import Namespace

EXAMPLE = Path(run.__file__).resolve().parent
SEED = 4
SHORT = [*DATASETS[:4], datasets.two_hours_of_a_resistance_that_falls]


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


def options(monkeypatch, *args: str):
    monkeypatch.setattr(sys, "argv", ["run.py", *args])
    return run.parse_options()


def ratio(dataset: Callable, seed: int, monkeypatch) -> float:
    """The mean error beside that of the best baseline, over all estimates whose truth is known in the end."""
    sensors, truth = datasets.readings_of(dataset, seed)
    chosen = options(monkeypatch)
    settings = run.settings_for(chosen, sensors, truth)
    names = {"step_s", "window_s", "age_s", "train_s", "silent_s", "history"}
    namespace = Namespace(settings.sensors, **{name: getattr(settings, name) for name in names})
    for log, text in run.in_order_of_arrival(sensors, truth, chosen.lag):
        namespace.append(log, text)
    namespace.run_all()
    smooth = {name: series(namespace.values(f"smooth/{name}")) for name in settings.sensors}
    prediction, known = series(namespace.values("prediction")), namespace.values("smooth/truth")
    actual = series(known)
    judged = [t for t in prediction if t in actual]
    assert len(judged) > 0.55 * len(actual), "too few steps were estimated to compare anything"
    error = statistics.mean(abs(prediction[t] - actual[t]) for t in judged)
    best = baselines(smooth, known, judged, settings.train_s)
    print(f"{dataset.__name__} {seed}: {error:.3f} over {len(judged)} steps, {best}")
    return error / min(best.values())


def series(samples: list[dict]) -> dict[int, float]:
    return {sample["t"]: sample["v"] for sample in samples}


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda dataset: dataset.__name__)
def test_estimates_are_never_much_worse_than_the_best_baseline(dataset, monkeypatch):
    assert ratio(dataset, SEED, monkeypatch) <= 1.1


@pytest.mark.parametrize("dataset", SHORT, ids=lambda dataset: dataset.__name__)
def test_of_many_short_stretches_the_usual_one_is_estimated_as_well(dataset, monkeypatch):
    """A few hours may deceive any model, and one of six baselines wins by luck; so these are judged together."""
    assert statistics.mean(ratio(dataset, seed, monkeypatch) for seed in range(1, 13)) <= 1.1


@pytest.mark.parametrize(
    "dataset", [datasets.four_days_of_a_scaled_sensor, datasets.five_hours_by_the_minute], ids=lambda d: d.__name__
)
def test_on_a_host_the_defaults_beat_the_nearest_sensor(dataset, tmp_path):
    rows = dataset(random.Random(SEED))
    files = {name: tmp_path / f"{name}.csv" for name in rows}
    for name, path in files.items():
        path.write_text("".join(f"{t},{v}\n" for t, v in rows[name]))
    sensors = [arg for name, path in files.items() if name != "truth" for arg in ("--sensor", f"{name}={path}")]
    done = subprocess.run(
        [sys.executable, EXAMPLE / "run.py", *sensors, "--truth", files["truth"], "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "out" / "thermometer.json").read_text())["against the smoothed truth"]
    assert all(figures["prediction"]["mae"] < other["mae"] for name, other in figures.items() if name != "prediction")
    words = (tmp_path / "out" / "thermometer.svg").read_text()
    assert "two weeks" not in words and "14 days" not in words
