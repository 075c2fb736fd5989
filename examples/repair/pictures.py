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
# Verdicts have six digits of p; smaller ones are drawn here.
P_LEAST = 1e-6


def moments(series: Series) -> list[datetime.datetime]:
    return [datetime.datetime.fromtimestamp(t, datetime.timezone.utc) for t in series]


def line(axes: plt.Axes, series: Series, color: str, width: float, label: str) -> None:
    series = dict(sorted(series.items()))
    axes.plot(moments(series), list(series.values()), color=color, lw=width, label=label)


def days(axes: plt.Axes) -> None:
    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    # Each day with its month, and the year at the end of the axis.
    formats = ["%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%S.%f"]
    zeros = ["", "%Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M"]
    offsets = ["", "%Y", "%Y", "%Y", "%Y-%m-%d", "%Y-%m-%d"]
    formatter = dates.ConciseDateFormatter(locator, formats=formats, zero_formats=zeros, offset_formats=offsets)
    axes.xaxis.set_major_formatter(formatter)


def legend(axes: plt.Axes) -> None:
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, frameon=False, borderaxespad=0.2)


def head(figure: plt.Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")


def save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def mark(axes: plt.Axes, span: tuple[int, int], text: str) -> None:
    """Shades a stretch of time, and says what it is."""
    begin, end = moments(dict.fromkeys(span, 0.0))
    axes.axvspan(begin, end, color=GRID, alpha=0.6, lw=0)
    if text:
        middle = begin + (end - begin) / 2
        axes.text(middle, 0.98, text, transform=axes.get_xaxis_transform(), ha="center", va="top", color=QUIET)
        axes.margins(y=0.14)


def thermometer(
    path: Path,
    title: str,
    recorded: str,
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
        spoiled = {t: v for t, v in sensors[0].items() if wrong[0] <= t <= wrong[1]}
        line(sensor, sensors[1], NEAREST, 1.4, "right readings")
        line(sensor, spoiled, LAST, 1.4, recorded)
        sensor.set_ylabel("sensor at Kennedy, °F")
        line(estimate, truth, TRUTH, 3, "measured at Newark")
        line(estimate, predictions[0], LAST, 1.0, "estimate before the repair")
        line(estimate, predictions[1], PREDICTION, 1.4, "estimate after the repair")
        estimate.set_ylabel("Newark, °F")
        for series, color, label in ((predictions[0], LAST, "before"), (predictions[1], PREDICTION, "after")):
            off = {t: abs(v - truth[t]) for t, v in series.items() if t in truth}
            mean = np.mean(list(off.values()))
            line(error, off, color, 1.2, f"{label} the repair: mean error {mean:.2f} °F")
        error.set_ylabel("error of the estimate, °F")
        for axes in (sensor, estimate, error):
            mark(axes, wrong, "wrong readings" if axes is sensor else "")
            legend(axes)
        days(error)
        save(figure, path)


def late(path: Path, readings: tuple[Series, Series], in_time: Series, heating: tuple[Series, Series]) -> None:
    """Readings and what was computed from them; interpolated, and with the readings that arrived."""
    with plt.rc_context(STYLE):
        figure, (reading, total) = plt.subplots(2, 1, figsize=(10, 6.2), layout="constrained", sharex=True)
        figure.get_layout_engine().set(h_pad=0.1)
        head(figure, "Interpolated readings, replaced when the real ones arrive")
        line(reading, readings[1], NEAREST, 1.4, "after the repair: all readings have arrived")
        line(reading, readings[0], LAST, 1.0, "before: interpolated between readings in time")
        reading.plot(moments(in_time), list(in_time.values()), "o", color=LAST, ms=3, label="readings in time")
        reading.set_ylabel("reading, °F")
        difference = {t: heating[1][t] - heating[0][t] for t in heating[1]}
        line(total, difference, PREDICTION, 1.4, "sum of heating degree hours so far: after the repair minus before")
        total.axhline(0, color=QUIET, lw=0.6)
        total.set_ylabel("difference, °F · h")
        for axes in (reading, total):
            legend(axes)
        days(total)
        save(figure, path)


def runs(path: Path, z: tuple[list[float], list[float]], p: tuple[list[float], list[float]]) -> None:
    """The runs test's statistics beside the normal distribution, and how the verdict came about."""
    with plt.rc_context(STYLE):
        figure, (cumulative, verdict) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.1)
        head(figure, "A generator that wrote zero for every fourth value, and its repaired code")
        grid = np.linspace(-4, 6, 400)
        erf = np.vectorize(math.erf)
        cumulative.plot(grid, (1 + erf(grid / np.sqrt(2))) / 2, color=TRUTH, lw=4, label="expected (normal)")
        for values, color, label in ((z[0], LAST, "before the repair"), (z[1], PREDICTION, "after")):
            parts = np.arange(1, len(values) + 1) / len(values)
            cumulative.step(sorted(values), parts, color=color, lw=1.4, where="post", label=label)
        cumulative.set_xlabel("Wald–Wolfowitz statistic")
        cumulative.set_ylabel("fraction of the samples below")
        for values, color, label in ((p[0], LAST, "before the repair"), (p[1], PREDICTION, "after")):
            verdict.plot(range(1, len(values) + 1), np.maximum(values, P_LEAST), color=color, lw=1.4, label=label)
        verdict.axhline(0.01, color=INK, lw=0.8, ls=":")
        verdict.text(len(p[0]), 0.009, "verdict below this line: not random", ha="right", va="top", color=QUIET)
        verdict.text(len(p[0]), 1.2 * P_LEAST, "one in a million or less", ha="right", va="bottom", color=QUIET)
        verdict.set_yscale("log")
        verdict.set_ylim(P_LEAST / 2, 2)
        verdict.set_xlabel("samples tested so far")
        verdict.set_ylabel("p of the Kolmogorov–Smirnov test")
        for axes in (cumulative, verdict):
            legend(axes)
        save(figure, path)
