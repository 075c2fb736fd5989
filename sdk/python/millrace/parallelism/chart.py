"""Draws who ran when: for up to some hundred invocations a row for each, for more a curve of the busy instances and a histogram."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from millrace.parallelism.clocks import corrected
from millrace.parallelism.metrics import Metrics, busy, machines, measure
from millrace.parallelism.record import TASKS, Invocation, Run, RunError

#: From this number of invocations on, rows are too thin to read.
ROWS_MAX = 500
RUNS_MAX = 6
#: Of the palette of Okabe and Ito, which people with any kind of colour blindness can tell apart. Neighbours differ in lightness, too.
BARS = ("#0072B2", "#56B4E9", "#009E73", "#CC79A7")
FIRST, SENT, ANSWERED, REFUSED, CURVE, WAIT, COLD = "#D00000", "#E69F00", "#000000", "#A8A8A8", "#000000", "#BBBBBB", "#F0E442"
BLOCKS = ("#D9D9D9", "#8C8C8C")
FORMATS = (".svg", ".png")
#: Inches.
WIDTH, ROW, ROWS_LEAST, ROWS_MOST = 11.0, 0.055, 3.2, 16.0


def _matplotlib() -> Any:
    try:
        import matplotlib
        import matplotlib.figure
    except ImportError:
        raise RunError("charts need matplotlib: pip install 'millrace[parallelism]'") from None
    # Text stays text, and the same run gives the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "millrace", "hatch.linewidth": 0.6, "font.size": 9})
    return matplotlib


@dataclass(frozen=True)
class _Row:
    """A row of the chart."""

    invocation: Invocation
    color: str
    machine: int


def rows_of(invocations: Sequence[Invocation]) -> list[_Row]:
    """From top to bottom: machines and their instances in the order of their first starts, an instance's rows together, then those that did
    not run. Instances that are neighbours have different colours."""
    ran = [one for one in invocations if one.ran]
    machine, _ = machines(ran)
    first: dict[str, float] = {}
    for one in ran:
        first[one.instance or ""] = min(first.get(one.instance or "", math.inf), one.start_ms or 0)
    ran.sort(key=lambda one: (machine.get(one.instance or "", 0), first[one.instance or ""], one.instance, one.start_ms))
    rows: list[_Row] = []
    number = -1
    for index, one in enumerate(ran):
        number += index == 0 or one.instance != ran[index - 1].instance
        rows.append(_Row(one, BARS[number % len(BARS)], machine.get(one.instance or "", -1)))
    rest = sorted((one for one in invocations if not one.ran), key=lambda one: (one.sent_ms, one.id))
    return rows + [_Row(one, REFUSED, -1) for one in rest]


def draw(runs: Sequence[Run], large: Union[bool, None] = None) -> Any:
    """A figure of these runs, side by side with one time axis. It is matplotlib's."""
    matplotlib = _matplotlib()
    if not 1 <= len(runs) <= RUNS_MAX:
        raise RunError(f"{len(runs)} runs in one chart; the limit is {RUNS_MAX}: choose fewer")
    sound = [corrected(run)[0] for run in runs]
    figures = [measure(run) for run in runs]
    is_large = max(len(run.invocations) for run in runs) > ROWS_MAX if large is None else large
    most = max(len(run.invocations) for run in runs)
    height = 7.0 if is_large else min(max(ROWS_LEAST, most * ROW), ROWS_MOST) + 1.9
    figure = matplotlib.figure.Figure(figsize=(WIDTH if len(runs) == 1 else 7.5 * len(runs), height), layout="constrained")
    shape = {"height_ratios": [3, 1]} if is_large else None
    axes = figure.subplots(2 if is_large else 1, len(runs), squeeze=False, sharex="row", gridspec_kw=shape)
    for column, (run, numbers) in enumerate(zip(sound, figures)):
        (_large if is_large else _detailed)(axes[:, column], run, numbers)
        axes[0, column].set_title(_title(run, numbers), loc="left", fontsize=10)
    end = max((numbers.completion_ms or 0 for numbers in figures), default=0) / 1000
    axes[0, 0].set_xlim(-0.045 * end, 1.02 * end if end else 1)
    names = ", ".join(dict.fromkeys(TASKS.get(run.experiment.task or "", "") for run in runs)).strip(", ")
    title = "Parallelism of functions" + (f" (task: {names})" if names else "")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.legend(handles=_legend(matplotlib, sound, is_large), loc="outside lower center", ncols=5, frameon=False, fontsize=8.5)
    return figure


def save(figure: Any, path: Union[str, os.PathLike[str]]) -> None:
    """Writes FILE.svg or FILE.png."""
    file = Path(path)
    if file.suffix.lower() not in FORMATS:
        raise RunError(f"{file}: a chart is written as {' or '.join(FORMATS)}; name a file that ends so")
    try:
        figure.savefig(file, dpi=110, metadata={"Date": None} if file.suffix.lower() == ".svg" else {"Software": None})
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror}") from None


def _title(run: Run, numbers: Metrics) -> str:
    completed = "nothing was answered" if numbers.completion_ms is None else f"completed in {numbers.completion_ms / 1000:.2f} s"
    title = f"{run.title}\n{numbers.degree} of {numbers.instances} instances at once ({100 * numbers.degree_part:.3g} %), {completed}"
    failed = sum(numbers.failures.values())
    if failed:
        title += f", {failed} failed"
    if numbers.shifted or numbers.impossible:
        title += f"; {numbers.shifted + numbers.impossible} clocks corrected"
    return title


def _origin(run: Run) -> float:
    return min(one.sent_ms for one in run.invocations)


def _seconds(moment: float, origin: float) -> float:
    return (moment - origin) / 1000


def _detailed(axes: Any, run: Run, numbers: Metrics) -> None:
    (at,) = axes
    origin, rows = _origin(run), rows_of(run.invocations)
    end = max((one.done_ms or one.end_ms or one.sent_ms for one in run.invocations), default=origin)
    size = max(1.2, min(5.0, 420 / max(len(rows), 1)))
    marks: dict[str, list[tuple[float, int]]] = {"sends": [], "first": [], "answers": [], "received": [], "cold": []}
    first = min(run.invocations, key=lambda one: one.sent_ms).id
    for y, row in enumerate(rows):
        one = row.invocation
        sent = _seconds(one.sent_ms, origin)
        marks["first" if one.id == first else "sends"].append((sent, y))
        if one.start_ms is not None and one.end_ms is not None:
            start = _seconds(one.start_ms, origin)
            at.plot([sent, start], [y, y], color=WAIT, linewidth=0.7, zorder=1, gid=f"wait-{y}")
            width = max((one.end_ms - one.start_ms) / 1000, 0)
            edge = {"hatch": "////", "edgecolor": "white", "linewidth": 0} if one.status != "ok" else {"linewidth": 0}
            at.barh(y, width, left=start, height=0.84, color=row.color, zorder=2, **edge).patches[0].set_gid(f"bar-{y}")
            if one.cold:
                marks["cold"].append((start, y))
        else:
            until = _seconds(one.done_ms if one.done_ms is not None else end, origin)
            bar = at.barh(y, until - sent, left=sent, height=0.84, facecolor="white", edgecolor=REFUSED, hatch="//////", linewidth=0.3, zorder=2)
            bar.patches[0].set_gid(f"refused-{y}")
        if one.answered_ms is not None:
            marks["answers"].append((_seconds(one.answered_ms, origin), y))
        if one.received_ms is not None:
            marks["received"].append((_seconds(one.received_ms, origin), y))
    styles: dict[str, dict[str, Any]] = {
        "sends": {"marker": "x", "color": SENT, "markersize": size, "markeredgewidth": size / 4.5},
        "answers": {"marker": "x", "color": ANSWERED, "markersize": size, "markeredgewidth": size / 4.5},
        "received": {"marker": "D", "color": ANSWERED, "markersize": size * 0.8, "markeredgewidth": 0},
        "cold": {"marker": ">", "color": COLD, "markeredgecolor": "black", "markersize": size * 1.7, "markeredgewidth": size / 5},
        "first": {"marker": "x", "color": FIRST, "markersize": max(6.0, size * 1.5), "markeredgewidth": 2.0},
    }
    for name, style in styles.items():
        if marks[name]:
            xs, ys = zip(*marks[name])
            at.plot(xs, ys, linestyle="none", zorder=4 if name == "first" else 3, gid=name, **style)
    _blocks(at, rows)
    at.set_ylim(len(rows) - 0.4, -0.6)
    at.set_ylabel("invocations, an instance's together")
    _time(at)


def _blocks(at: Any, rows: Sequence[_Row]) -> None:
    """At the left side, a block for each machine that is known, and how many instances it has."""
    if not _shared([row.invocation for row in rows]):
        return
    begin = 0
    for y in range(1, len(rows) + 1):
        if y < len(rows) and rows[y].machine == rows[begin].machine:
            continue
        if rows[begin].machine >= 0:
            across, color = at.get_yaxis_transform(), BLOCKS[rows[begin].machine % 2]
            patch = at.barh(begin - 0.5, 0.014, height=y - begin, left=0.0, align="edge", color=color, linewidth=0, transform=across, zorder=1)
            patch.patches[0].set_gid(f"machine-{rows[begin].machine}")
            held = len({row.invocation.instance for row in rows[begin:y]})
            if y - begin >= 0.03 * len(rows):
                style = {"ha": "center", "va": "center", "fontsize": 6.5, "rotation": 90}
                at.text(0.007, (begin + y - 1) / 2, str(held), transform=across, zorder=2, **style)
        begin = y


def _shared(invocations: Sequence[Invocation]) -> bool:
    """Whether machines have several instances. If most instances have machines of their own, blocks would show nothing."""
    found, _ = machines(invocations)
    return bool(found) and (len(set(found.values())) <= len(found) / 2 or len(found) == 1)


def _large(axes: Any, run: Run, numbers: Metrics) -> None:
    above, below = axes
    origin = _origin(run)
    ran = sorted((one for one in run.invocations if one.ran), key=lambda one: (one.start_ms, one.id))
    for y, one in enumerate(ran):
        bar = above.barh(
            y, ((one.end_ms or 0) - (one.start_ms or 0)) / 1000, left=_seconds(one.start_ms or 0, origin), height=1.0,
            color=BARS[1], linewidth=0, zorder=2,
        )  # fmt: skip
        bar.patches[0].set_gid(f"bar-{y}")
    failed = [one for one in run.invocations if not one.ran]
    for y, one in enumerate(failed, len(ran)):
        until = _seconds(one.done_ms if one.done_ms is not None else one.sent_ms, origin)
        sent = _seconds(one.sent_ms, origin)
        bar = above.barh(y, until - sent, left=sent, height=1.0, color="#C8C8C8", linewidth=0, zorder=2)
        bar.patches[0].set_gid(f"refused-{y}")
    steps = busy(ran)
    if steps:
        xs = [_seconds(moment, origin) for moment, _ in steps]
        above.step([xs[0], *xs], [0, *(count for _, count in steps)], where="post", color="white", linewidth=4, zorder=3)
        above.step([xs[0], *xs], [0, *(count for _, count in steps)], where="post", color=CURVE, linewidth=1.8, zorder=4, gid="alive")
    above.set_ylim(0, max(len(run.invocations), 1) * 1.02)
    above.set_ylabel("invocations by start; instances busy")
    _time(above)
    durations = [((one.end_ms or 0) - (one.start_ms or 0)) / 1000 for one in ran]
    if durations:
        _, _, patches = below.hist(durations, bins=40, color=BARS[0], edgecolor="white", linewidth=0.4)
        for number, patch in enumerate(patches):
            patch.set_gid(f"bin-{number}")
        if numbers.median_ms is not None:
            below.axvline(numbers.median_ms / 1000, color=FIRST, linewidth=1.2, linestyle="--", gid="median")
    below.set_xlabel("duration of an invocation (s)")
    below.set_ylabel("invocations")
    below.spines[["top", "right"]].set_visible(False)


def _time(at: Any) -> None:
    at.set_xlabel("seconds since the first send")
    at.grid(axis="x", color="#E5E5E5", linewidth=0.6, zorder=0)
    at.set_axisbelow(True)
    at.spines[["top", "right"]].set_visible(False)


def _legend(matplotlib: Any, runs: Sequence[Run], is_large: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def mark(label: str, **style: Any) -> Any:
        return Line2D([], [], linestyle="none", label=label, **style)

    rows = [one for run in runs for one in run.invocations]
    ran = "ran" if is_large else "ran (neighbouring instances differ in colour)"
    handles: list[Any] = [Patch(color=BARS[is_large], label=ran)]
    failed = any(not one.ran for one in rows)
    if is_large:
        handles.append(Line2D([], [], color=CURVE, linewidth=1.8, label="instances busy"))
        if failed:
            handles.append(Patch(color="#C8C8C8", label="refused or lost"))
        handles.append(Line2D([], [], color=FIRST, linestyle="--", label="median duration"))
        return handles
    handles += [
        mark("first send", marker="x", color=FIRST, markersize=7, markeredgewidth=2),
        mark("sent", marker="x", color=SENT, markersize=6, markeredgewidth=1.5),
        Line2D([], [], color=WAIT, linewidth=1, label="waits"),
    ]
    if any(one.answered_ms is not None for one in rows):
        handles.append(mark("answered", marker="x", color=ANSWERED, markersize=6, markeredgewidth=1.5))
    if any(one.received_ms is not None for one in rows):
        handles.append(mark("result received", marker="D", color=ANSWERED, markersize=5))
    if any(one.cold for one in rows):
        handles.append(mark("cold start", marker=">", color=COLD, markeredgecolor="black", markersize=7))
    if failed:
        handles.append(Patch(facecolor="white", edgecolor=REFUSED, hatch="//////", label="refused or lost"))
    if any(_shared(run.invocations) for run in runs):
        handles.append(Patch(color=BLOCKS[1], label="at the left: one machine, and its number of instances"))
    return handles
