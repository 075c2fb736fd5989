"""Plots the predictions and their errors: one page, as PNG and SVG."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as dates
import matplotlib.pyplot as plt
import numpy as np

from .score import Errors, Series, decimals
from .units import in_words, utc

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
TICKS = ["%Y", "%b", "%-d", "%H:%M", "%H:%M", "%S.%f"]  # years, months, days, hours, minutes, seconds
ZEROS = ["", "%Y", "%b", "%-d %b", "%H:%M", "%H:%M"]  # the same where the smaller unit is at its first value
SPANS_S = [60, 120, 300, 600, 1200, 1800, *(3600 * n for n in (1, 2, 3, 6, 12)), *(DAY_S * n for n in (1, 2, 3, 7, 14))]


@dataclass(frozen=True)
class Picture:
    """The data of the plot; the errors are the prediction's, the nearest sensor's and the last known truth's."""

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
            thin = 0.5 if len(self.prediction) > 2000 else 1.0
            self.temperature(whole, begin, end, truth=(self.truth, 3 * thin), prediction=(self.prediction, thin))
            every = in_words(self.step_s).removeprefix("1 ")
            caption(whole, f"{span(begin, end)}: means of {in_words(self.window_s)}, one every {every}")
            length_s = close_up(begin, end)
            begin = typical(self.errors[0], length_s, self.step_s)
            end = min(begin + length_s, end)
            self.temperature(
                close,
                begin,
                end,
                truth=(self.truth, 4),
                **({"nearest_sensor": (self.errors[1].estimate, 0.9)} if self.is_comparable(self.errors[1]) else {}),
                prediction=(self.prediction, 1.6),
            )
            caption(close, f"{span(begin, end)}: {in_words(length_s)} with an error close to the mean")
            self.error_over_time(error)
            return save(figure, path)

    def is_comparable(self, one: Errors) -> bool:
        """Whether an estimate fits on the truth's scale; that of a sensor of another unit does not."""
        return one.mae <= 2 * (max(self.truth.values()) - min(self.truth.values())) or one is self.errors[0]

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
        axes.set_ylabel(f"temperature in {self.unit}" if self.unit else "value, in the unit of the readings")
        time_axis(axes, begin, end)
        legend(axes)

    def error_over_time(self, axes: plt.Axes) -> None:
        """The mean absolute error of the last days, for each estimator."""
        times = self.errors[0].times
        span_s = max((s for s in SPANS_S if s <= min((times[-1] - times[0]) / 10, 7 * DAY_S)), default=SPANS_S[0])
        span_s = max(span_s, self.step_s)
        places = decimals(self.errors)
        for one, colour, width in zip(self.errors, (PREDICTION, NEAREST, LAST), (1.9, 1.3, 1.3)):
            ends, means = rolling(one, span_s)
            shown = self.is_comparable(one)
            axes.plot(
                [utc(t) for t in ends] if shown else [],
                means if shown else [],
                color=colour,
                linewidth=width,
                label=f"{one.name}: {one.mae:.{places}f} {self.unit}".strip() + ("" if shown else ", not shown"),
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"mean error in {self.unit}" if self.unit else "mean error, in that unit")
        time_axis(axes, times[0], times[-1])
        legend(axes)
        caption(axes, f"Mean absolute error over the last {in_words(span_s)}")


def rolling(one: Errors, span_s: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean absolute error over the `span_s` before each step, from the first full span on."""
    begins = np.searchsorted(one.times, one.times - span_s, side="right")
    sums = np.concatenate([[0.0], np.cumsum(np.abs(one.errors))])
    ends = np.arange(1, len(one.times) + 1)
    full = one.times >= one.times[0] + span_s
    return one.times[full], ((sums[ends] - sums[begins]) / (ends - begins))[full]


def close_up(begin: int, end: int) -> int:
    """How long the stretch is that is drawn large: a third of the whole or less, two weeks at most."""
    return max((s for s in SPANS_S if s <= (end - begin) / 3), default=max(end - begin, 1))


def typical(one: Errors, length_s: int, step_s: int) -> int:
    """Where the stretch begins whose mean error is nearest to that of the whole; so nobody chose it."""
    last = max(one.times[-1] - length_s, one.times[0])
    begins = np.arange(one.times[0], last + 1, max(length_s // 14 // step_s * step_s, step_s))
    sums = np.concatenate([[0.0], np.cumsum(np.abs(one.errors))])
    low, high = np.searchsorted(one.times, begins), np.searchsorted(one.times, begins + length_s)
    means = (sums[high] - sums[low]) / np.maximum(high - low, 1)
    filled = high - low >= 0.5 * np.max(high - low)
    return int(begins[np.argmin(np.where(filled, np.abs(means - one.mae), np.inf))])


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
    """`4 January to 30 December 2013`; of days with their hours, for then the axis shows hours."""
    first, last = utc(int(begin)), utc(int(end))
    if first.date() == last.date():
        return f"{first:%-d %B %Y, %H:%M} to {last:%H:%M} UTC"
    hours = ", %H:%M" if end - begin < 7 * DAY_S else ""
    year = " %Y" if first.year != last.year else ""
    text = f"{first.strftime('%-d %B' + year + hours)} to {last.strftime('%-d %B %Y' + hours)}"
    return text + (" UTC" if hours else "")


def legend(axes: plt.Axes) -> None:
    box = axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        frameon=False,
        borderaxespad=0.1,
        columnspacing=1.2,
        handlelength=1.4,
    )
    for line in box.get_lines():
        line.set_linewidth(2.2)


def time_axis(axes: plt.Axes, begin: int, end: int) -> None:
    axes.set_xlim(utc(int(begin)), utc(int(end)))
    axes.xaxis.set_major_locator(locator := dates.AutoDateLocator(minticks=6, maxticks=14))
    axes.xaxis.set_major_formatter(
        dates.ConciseDateFormatter(locator, formats=TICKS, zero_formats=ZEROS, show_offset=False)
    )


def caption(axes: plt.Axes, text: str) -> None:
    axes.annotate(text, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", color=QUIET, va="bottom")


def save(figure: plt.Figure, path: Path) -> list[Path]:
    paths = [path.with_suffix(suffix) for suffix in (".png", ".svg")]
    figure.savefig(paths[0], dpi=160)
    figure.savefig(paths[1], metadata={"Date": None})
    plt.close(figure)
    return paths
