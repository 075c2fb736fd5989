"""Plots what the cluster did: the predictions beside the truth, and how the topics grew while leaders were killed."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.dates as dates
import matplotlib.pyplot as plt

INK, QUIET, GRID, AWAY = "#1b2733", "#66727e", "#e3e7eb", "#f3e6d8"
COLOURS = {
    "cpu_raw": "#a9b8c6",
    "env_raw": "#cdbb8f",
    "cpu_smooth": "#2e86ab",
    "env_smooth": "#b8963e",
    "model": "#5b8a3c",
    "prediction": "#c9304a",
}
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


def days(locator: dates.DateLocator) -> dates.ConciseDateFormatter:
    """Each day with its month, and the year at the end of the axis."""
    formats = ["%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%S.%f"]
    zeros = ["", "%Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M"]
    offsets = ["", "%Y", "%Y", "%Y", "%Y-%m-%d", "%Y-%m-%d"]
    return dates.ConciseDateFormatter(locator, formats=formats, zero_formats=zeros, offset_formats=offsets)


def draw(
    found: dict[str, list[bytes]], times: dict[str, list[float]], kills: list[tuple[str, float, float]], path: Path
) -> Path:
    """`times` says for each topic when a host had its 1st, 2nd, … record; `kills` who was away, and from when to when."""
    with plt.rc_context(STYLE):
        figure, (weather, growth) = plt.subplots(2, 1, figsize=(10, 8), layout="constrained")
        for topic, label, width in (
            ("cpu_smooth", "sensor on the board", 1.0),
            ("env_smooth", "truth", 2.6),
            ("prediction", "prediction", 1.2),
        ):
            samples = [json.loads(record) for record in found[topic]]
            moments = [datetime.fromtimestamp(sample["t"], timezone.utc) for sample in samples]
            line = [sample["v"] for sample in samples]
            weather.plot(moments, line, color=COLOURS[topic], linewidth=width, label=label)
        weather.set_title("Three hosts predict, while their leaders are killed", loc="left", fontsize=13, fontweight="bold")
        weather.set_ylabel("temperature, °F")
        weather.xaxis.set_major_formatter(days(weather.xaxis.get_major_locator()))
        weather.legend(frameon=False, loc="upper left", ncols=3)
        origin = min(moments[0] for moments in times.values())
        # Above the curves: the name of each leader that was killed.
        top = max(map(len, times.values()))
        growth.set_ylim(-0.04 * top, 1.3 * top)
        for nth, (host, begin, end) in enumerate(kills):
            label = "the leader is killed and away" if nth == 0 else None
            growth.axvspan(begin - origin, end - origin, color=AWAY, linewidth=0, label=label)
            growth.text(begin - origin, 1.28 * top, f"{host} ", rotation=90, ha="left", va="top", color=QUIET)
        for topic, moments in times.items():
            xs = sorted(moment - origin for moment in moments)
            # The two raw topics grow together: the first is drawn broader, so that both are seen.
            width = 4.0 if topic == "cpu_raw" else 1.6
            growth.step(xs, range(1, len(xs) + 1), where="post", color=COLOURS[topic], linewidth=width, label=topic)
        growth.set_ylabel("records in the topic")
        growth.set_xlabel("seconds since the first record")
        growth.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4)
        figure.savefig(path, dpi=160)
        plt.close(figure)
    return path
