"""Draws what a repair changed: before and after, one picture for each example."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as dates
import matplotlib.pyplot as plt
import numpy as np
from driver.chart import GRID, INK, LAST, NEAREST, PREDICTION, QUIET, STYLE, TRUTH

Series = dict[int, float]


def moments(series: Series) -> list[datetime.datetime]:
    return [datetime.datetime.fromtimestamp(t, datetime.timezone.utc) for t in series]


def line(axes: plt.Axes, series: Series, color: str, width: float, label: str) -> None:
    series = dict(sorted(series.items()))
    axes.plot(moments(series), list(series.values()), color=color, lw=width, label=label)


def days(axes: plt.Axes) -> None:
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def legend(axes: plt.Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False, borderaxespad=0.2)


def head(figure: plt.Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")


def save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def thermometer(
    path: Path,
    title: str,
    sensors: tuple[Series, Series],
    predictions: tuple[Series, Series],
    truth: Series,
    wrong: tuple[int, int],
) -> None:
    """The sensor, the estimates and their errors; wrong, and repaired."""
    with plt.rc_context(STYLE):
        figure, (sensor, estimate, error) = plt.subplots(3, 1, figsize=(10, 8.4), layout="constrained", sharex=True)
        figure.get_layout_engine().set(h_pad=0.1)
        head(figure, title)
        recorded = {t: v for t, v in sensors[0].items() if wrong[0] <= t <= wrong[1]}
        line(sensor, sensors[1], NEAREST, 1.4, "repaired")
        line(sensor, recorded, LAST, 1.4, "as it was recorded")
        sensor.set_ylabel("sensor")
        line(estimate, truth, TRUTH, 3, "truth")
        line(estimate, predictions[0], LAST, 1.0, "estimate before the repair")
        line(estimate, predictions[1], PREDICTION, 1.4, "estimate after it")
        estimate.set_ylabel("Newark, °F")
        for series, color, label in ((predictions[0], LAST, "before"), (predictions[1], PREDICTION, "after")):
            off = {t: abs(v - truth[t]) for t, v in series.items() if t in truth}
            mean = np.mean(list(off.values()))
            line(error, off, color, 1.2, f"{label}: {mean:.2f} °F in the mean")
        error.set_ylabel("error, °F")
        span = moments(dict.fromkeys(wrong, 0.0))
        for axes in (sensor, estimate, error):
            axes.axvspan(*span, color=GRID, alpha=0.6, lw=0)
            legend(axes)
        days(error)
        save(figure, path)


def late(path: Path, readings: tuple[Series, Series], heating: tuple[Series, Series]) -> None:
    """Readings and what was computed from them; interpolated, and with the readings that arrived."""
    with plt.rc_context(STYLE):
        figure, (reading, total) = plt.subplots(2, 1, figsize=(10, 6.2), layout="constrained", sharex=True)
        figure.get_layout_engine().set(h_pad=0.1)
        head(figure, "Interpolated readings, replaced when the real ones arrive")
        line(reading, readings[1], NEAREST, 1.4, "arrived late")
        line(reading, readings[0], LAST, 1.0, "interpolated")
        reading.set_ylabel("reading, °F")
        difference = {t: heating[1][t] - heating[0][t] for t in heating[1]}
        line(total, difference, PREDICTION, 1.4, "heating degree hours: change by the repair, summed up")
        total.axhline(0, color=QUIET, lw=0.6)
        total.set_ylabel("°F · h")
        for axes in (reading, total):
            legend(axes)
        days(total)
        save(figure, path)


def runs(path: Path, z: tuple[list[float], list[float]], p: tuple[list[float], list[float]]) -> None:
    """The runs test's statistics beside the normal distribution, and how the verdict came about."""
    with plt.rc_context(STYLE):
        figure, (cumulative, verdict) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1)
        head(figure, "A generator that lost every fourth value, and its repaired code")
        grid = np.linspace(-4, 6, 400)
        erf = np.vectorize(math.erf)
        cumulative.plot(grid, (1 + erf(grid / np.sqrt(2))) / 2, color=TRUTH, lw=4, label="normal")
        for values, color, label in ((z[0], LAST, "before"), (z[1], PREDICTION, "after")):
            parts = np.arange(1, len(values) + 1) / len(values)
            cumulative.step(sorted(values), parts, color=color, lw=1.4, where="post", label=label)
        cumulative.set_xlabel("Wald–Wolfowitz statistic")
        cumulative.set_ylabel("part of the samples below")
        for values, color, label in ((p[0], LAST, "before"), (p[1], PREDICTION, "after")):
            verdict.plot(range(1, len(values) + 1), np.maximum(values, 1e-6), color=color, lw=1.4, label=label)
        verdict.axhline(0.01, color=INK, lw=0.8, ls=":")
        verdict.text(len(p[0]), 0.0115, "below: not random", ha="right", va="bottom", color=QUIET)
        verdict.set_yscale("log")
        verdict.set_ylim(5e-7, 2)
        verdict.set_xlabel("samples")
        verdict.set_ylabel("p of the Kolmogorov–Smirnov test")
        for axes in (cumulative, verdict):
            legend(axes)
        save(figure, path)
