"""Draws what was predicted, and how far off it was: one page, as PNG and SVG."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as dates
import matplotlib.pyplot as plt
import numpy as np

from .score import Errors, Series
from .units import duration, utc

INK, QUIET, GRID = "#1b2733", "#66727e", "#e3e7eb"
TRUTH, PREDICTION, NEAREST, LAST = "#a9b8c6", "#c9304a", "#2e86ab", "#b8963e"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "axes.axisbelow": True,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "svg.fonttype": "none",
    "svg.hashsalt": "millrace",
}
DAY_S = 86_400
FORTNIGHT_S = 14 * DAY_S


@dataclass(frozen=True)
class Picture:
    """What is to be drawn; the errors are the prediction's, the nearest sensor's and the last known truth's."""

    title: str
    unit: str
    step_s: int
    window_s: int
    prediction: Series
    truth: Series
    errors: list[Errors]

    def draw(self, path: Path) -> list[Path]:
        """Writes `path` with the suffixes .png and .svg."""
        with plt.rc_context(STYLE):
            figure, (whole, close, error) = plt.subplots(3, 1, figsize=(11, 9.4), layout="constrained")
            figure.get_layout_engine().set(h_pad=0.14, w_pad=0.12)
            begin, end = (int(t) for t in self.errors[0].times[[0, -1]])
            whole.set_title(self.title, loc="left", fontsize=13, fontweight="bold", pad=26)
            self.temperature(whole, begin, end, truth=(self.truth, 1.6), prediction=(self.prediction, 0.5))
            caption(whole, f"{span(begin, end)}: means of {duration(self.window_s)}, every {duration(self.step_s)}")
            begin = typical_fortnight(self.errors[0])
            end = min(begin + FORTNIGHT_S, end)
            self.temperature(
                close,
                begin,
                end,
                truth=(self.truth, 4),
                nearest_sensor=(self.errors[1].estimate, 0.9),
                prediction=(self.prediction, 1.6),
            )
            caption(close, f"{span(begin, end)}: two weeks in which the mean error was that of the whole")
            self.error_over_time(error)
            return save(figure, path)

    def temperature(self, axes: plt.Axes, begin: int, end: int, **lines: tuple[Series, float]) -> None:
        """Draws each series with its line's width; the later on top."""
        colours = {"truth": TRUTH, "prediction": PREDICTION, "nearest_sensor": NEAREST}
        for name, (series, width) in lines.items():
            times, values = broken(series, begin, end, self.step_s)
            axes.plot(
                times,
                values,
                color=colours[name],
                linewidth=width,
                label=name.replace("_", " "),
                solid_capstyle="round",
            )
        axes.set_ylabel(self.unit, rotation=0, labelpad=14)
        time_axis(axes, begin, end)
        legend(axes)

    def error_over_time(self, axes: plt.Axes) -> None:
        """The mean absolute error of the last days, for each estimator."""
        times = self.errors[0].times
        span_s = min(7 * DAY_S, max(DAY_S, int(times[-1] - times[0]) // 10))
        for one, colour, width in zip(self.errors, (PREDICTION, NEAREST, LAST), (1.9, 1.3, 1.3)):
            ends, means = rolling(one, span_s)
            axes.plot(
                [utc(t) for t in ends],
                means,
                color=colour,
                linewidth=width,
                label=f"{one.name}: {one.mae:.2f} {self.unit}",
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel(self.unit, rotation=0, labelpad=14)
        time_axis(axes, times[0], times[-1])
        legend(axes)
        caption(axes, f"Mean absolute error of the last {duration(span_s)}")


def rolling(one: Errors, span_s: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean absolute error over the `span_s` before each step, from the first full span on."""
    begins = np.searchsorted(one.times, one.times - span_s, side="right")
    sums = np.concatenate([[0.0], np.cumsum(np.abs(one.errors))])
    ends = np.arange(1, len(one.times) + 1)
    full = one.times >= one.times[0] + span_s
    return one.times[full], ((sums[ends] - sums[begins]) / (ends - begins))[full]


def typical_fortnight(one: Errors) -> int:
    """Where the fortnight begins whose mean error is nearest to that of the whole; so nobody chose it."""
    begins = np.arange(one.times[0], max(one.times[-1] - FORTNIGHT_S, one.times[0]) + 1, DAY_S)
    sums = np.concatenate([[0.0], np.cumsum(np.abs(one.errors))])
    low, high = np.searchsorted(one.times, begins), np.searchsorted(one.times, begins + FORTNIGHT_S)
    means = (sums[high] - sums[low]) / np.maximum(high - low, 1)
    return int(begins[np.argmin(np.abs(means - one.mae))])


def broken(series: Series, begin: int, end: int, step_s: int) -> tuple[list, list]:
    """The series between two times as a line that breaks where steps are missing."""
    times = [t for t in sorted(series) if begin <= t <= end]
    xs, ys = [], []
    for n, t in enumerate(times):
        if n and t - times[n - 1] > 6 * step_s:
            xs.append(utc(t))
            ys.append(np.nan)
        xs.append(utc(t))
        ys.append(series[t])
    return xs, ys


def span(begin: int, end: int) -> str:
    return f"{utc(begin):%-d %B} to {utc(end):%-d %B %Y}"


def legend(axes: plt.Axes) -> None:
    box = axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, borderaxespad=0.1)
    for line in box.get_lines():
        line.set_linewidth(2.2)


def time_axis(axes: plt.Axes, begin: int, end: int) -> None:
    axes.set_xlim(utc(int(begin)), utc(int(end)))
    axes.xaxis.set_major_locator(locator := dates.AutoDateLocator(minticks=6, maxticks=14))
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, show_offset=False))


def caption(axes: plt.Axes, text: str) -> None:
    axes.annotate(text, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", color=QUIET, va="bottom")


def save(figure: plt.Figure, path: Path) -> list[Path]:
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    figure.savefig(paths[0], dpi=160)
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths
