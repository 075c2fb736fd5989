"""Plots when each function had ended, when the next one began, and when the caller had the answer."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

INK, QUIET, GRID = "#1b2733", "#66727e", "#e3e7eb"
COLOURS = {"external": "#2e86ab", "synchronous": "#c9304a", "asynchronous": "#a9b8c6"}
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "xtick.color": QUIET,
    "ytick.color": INK,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
}
BAR = 0.36


def draw(figures: list[dict], functions: tuple[str, ...], path: Path) -> Path:
    """One diagram for each round trip: a pair of bars for each function, and lines for the bounds."""
    with plt.rc_context(STYLE):
        height = 1.2 + 2.7 * len(figures)
        figure, all_axes = plt.subplots(len(figures), 1, figsize=(10, height), layout="constrained", squeeze=False)
        for axes, one in zip(all_axes[:, 0], figures):
            draw_one(axes, one, functions)
        handles, labels = all_axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        all_axes[-1, 0].set_xlabel("ms since the submission was pushed")
        figure.savefig(path, dpi=160)
        plt.close(figure)
    return path


def draw_one(axes: plt.Axes, one: dict, functions: tuple[str, ...]) -> None:
    places = range(len(functions))
    for mode, side in (("synchronous", -0.5), ("external", 0.5)):
        ended, following = one["modes"][mode]["ended"], one["modes"][mode]["following"]
        at = [place + side * BAR for place in places]
        axes.barh(at, ended, height=BAR, color=COLOURS[mode], label=f"{mode}: the function has ended")
        waits = [max(0.0, after - end) for end, after in zip(ended, following)]
        label = f"{mode}: until the next one begins, or the caller has the answer"
        axes.barh(at, waits, left=ended, height=BAR, color=COLOURS[mode], alpha=0.35, label=label)
        for place, after in zip(at, following):
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
            offset = {"xytext": (5, 0), "textcoords": "offset points", "zorder": 4, "bbox": box}
            axes.annotate(f"{after:.0f}", (after, place), va="center", color=QUIET, fontsize=8, **offset)
    for key, text in (("bound", "max(E, W) + one write"), ("both", "E + W")):
        axes.axvline(one[key], color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(one[key], -0.72, f"{text} ", ha="right", va="bottom", fontsize=8)
    axes.set_yticks(list(places), functions)
    axes.set_ylim(len(functions) - 0.4, -0.75)
    axes.set_xlim(0, 1.08 * max(one["both"], *one["modes"]["synchronous"]["following"]))
    axes.grid(visible=False, axis="y")
    title = f"Grading, {one['round_trip']:.0f} ms to the database and back: {100 * one['saved']:.0f} % saved"
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=14)
