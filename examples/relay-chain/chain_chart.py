"""Plots how the copies catch up: the number of readings of each, and the age of its newest one."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

INK, QUIET, GRID, AWAY = "#1b2733", "#66727e", "#e3e7eb", "#f3e6d8"
COLOURS = {"device": "#a9b8c6", "edge": "#2e86ab", "cloud": "#c9304a"}
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
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
}


def draw(times: dict[str, list[float]], outages: list[tuple[str, float, float]], path: Path) -> Path:
    """`times` has, for each copy, the times of its 1st, 2nd, … reading."""
    origin = times["device"][0]
    with plt.rc_context(STYLE):
        figure, (count, delay) = plt.subplots(2, 1, figsize=(10, 7.5), sharex=True, layout="constrained")
        for axes in (count, delay):
            for name, begin, end in outages:
                axes.axvspan(begin - origin, end - origin, color=AWAY, linewidth=0)
        for name, begin, end in outages:
            middle = (begin + end) / 2 - origin
            count.text(middle, len(times["device"]) * 0.97, f"{name} is down", ha="center", va="top", color=QUIET)
        widths = {"device": 5.0, "edge": 2.4, "cloud": 1.2}
        for name, moments in times.items():
            xs = [moment - origin for moment in moments]
            style = {"color": COLOURS[name], "linewidth": widths[name], "solid_capstyle": "round"}
            count.step(xs, range(1, len(xs) + 1), where="post", label=name, **style)
            if name != "device":
                # Points, not a line: during an outage nothing arrives.
                waited = [there - here for here, there in zip(times["device"], moments)]
                size = 1.5 * widths[name]
                delay.plot(xs, waited, ".", markersize=size, markeredgewidth=0, color=COLOURS[name], label=name)
        count.set_title("Three copies through two outages", loc="left", fontsize=13, fontweight="bold")
        count.set_ylabel("readings")
        count.legend(frameon=False, loc="lower right")
        delay.set_ylabel("age of a reading when it arrives, s")
        delay.set_yscale("log")
        delay.set_xlabel("seconds since the first reading")
        figure.savefig(path, dpi=160)
        plt.close(figure)
    return path
