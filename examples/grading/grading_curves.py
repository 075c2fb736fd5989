"""One function that computes and writes a key, again and again: how long that takes for each kind of table."""

from __future__ import annotations

import argparse
import json
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt

from grading_chart import COLOURS, INK, STYLE
from grading_host import Host
from grading_servers import Distance, Etcd, Postgres

ROUND_TRIP_MS = 23
PUTS = 30
#: A name, the log that starts it, and the table. `together` is one run with all writes, which are published at its end.
KINDS = (
    ("synchronous", "steps", "synchronous"),
    ("external", "steps", "external"),
    ("asynchronous", "steps", "asynchronous"),
    ("together", "at-once", "external"),
)
LABELS = {
    "synchronous": "synchronous, a run for each write",
    "external": "external, a run for each write",
    "asynchronous": "asynchronous, a run for each write",
    "together": "external, one run with all writes",
}


def run(work: Path, options: argparse.Namespace) -> Path:
    figures = {}
    for name, server_of in (("PostgreSQL", Postgres), ("etcd", Etcd)):
        with ExitStack() as stack:
            server = stack.enter_context(server_of())
            far = stack.enter_context(Distance(server, ROUND_TRIP_MS / 1000))
            account = "postgres@" if name == "PostgreSQL" else ""
            path = "/postgres" if name == "PostgreSQL" else ""
            url = f"{name.lower()}://{account}127.0.0.1:{far.port}{path}"
            host = stack.enter_context(Host(work / f"steps-{name.lower()}", "steps.toml", url))
            figures[name] = measure(host, options)
            host.call("table", "externalize")
            for table in ("synchronous", "external", "asynchronous"):
                host.call("table", "check", table)
        print(f"{name}: one write takes {figures[name]['write']:.1f} ms", flush=True)
    (options.out / "curves.json").write_text(json.dumps(figures, indent=2) + "\n")
    report(figures)
    return draw(figures, options.out / "curves.png")


def measure(host: Host, options: argparse.Namespace) -> dict:
    puts = []
    for number in range(PUTS):
        begun = time.monotonic()
        host.put("external", "put", number)
        puts.append(1000 * (time.monotonic() - begun))
    for kind, log, table in KINDS:
        once(host, log, table, f"first/{kind}", 1, 0)  # starts the workers
    points = []
    for times in options.writes:
        for compute in options.compute:
            taken = {kind: [] for kind, _, _ in KINDS}
            for number in range(options.repeat):
                for kind, log, table in KINDS:
                    taken[kind].append(once(host, log, table, f"{kind}/{times}/{compute}/{number}", times, compute))
            points.append({"times": times, "compute": compute, **{kind: median(each) for kind, each in taken.items()}})
    return {"write": median(puts[1:]), "repeat": options.repeat, "points": points}


def once(host: Host, log: str, table: str, name: str, times: int, compute_ms: float) -> float:
    """How long it takes until the caller knows that all is done, in ms. What an asynchronous table has yet to write does not count."""
    host.call("table", "externalize")
    finished = host.latest("finished")
    begun = time.monotonic()
    host.append(log, {"name": name, "table": table, "left": times, "compute_s": compute_ms / 1000})
    host.newer("finished", finished)
    return 1000 * (time.monotonic() - begun)


def report(figures: dict) -> None:
    for name, one in figures.items():
        print(f"\n{name}: medians of {one['repeat']}, in ms")
        print(f"{'writes':>8}{'compute':>9}" + "".join(f"{kind:>14}" for kind, _, _ in KINDS) + f"{'saved':>9}")
        for point in one["points"]:
            cells = "".join(f"{point[kind]:14.1f}" for kind, _, _ in KINDS)
            saved = 100 * (1 - point["external"] / point["synchronous"])
            print(f"{point['times']:8}{point['compute']:9.0f}{cells}{saved:7.0f} %")


def draw(figures: dict, path: Path) -> Path:
    colours = {**COLOURS, "together": "#2c7a51"}
    counts = sorted({point["times"] for one in figures.values() for point in one["points"]})
    with plt.rc_context(STYLE):
        size = {"figsize": (13, 3.4 * len(figures)), "layout": "constrained", "squeeze": False}
        figure, grid = plt.subplots(len(figures), len(counts), sharex=True, sharey=True, **size)
        for row, (name, one) in zip(grid, figures.items()):
            for axes, times in zip(row, counts):
                points = [point for point in one["points"] if point["times"] == times]
                xs = [point["compute"] for point in points]
                write = one["write"]

                def added(ms: float, compute: float, times: int = times) -> float:
                    return (ms - times * compute) / times

                for kind, _, _ in KINDS:
                    style = {"color": colours[kind], "linewidth": 1.6, "marker": "o", "markersize": 3}
                    ys = [added(point[kind], point["compute"]) for point in points]
                    axes.plot(xs, ys, label=LABELS[kind], **style)
                both = [times * (x + write) for x in xs]
                bound = [min(sum_, max(times * x, times * write) + write) for x, sum_ in zip(xs, both)]
                style = {"color": INK, "linewidth": 0.9}
                axes.plot(xs, list(map(added, both, xs)), linestyle=(0, (4, 3)), label="E + W", **style)
                axes.plot(xs, list(map(added, bound, xs)), linestyle=(0, (1, 2)), label="max(E, W) + one write", **style)
                axes.set_title(f"{name}: {times} write{'s' if times > 1 else ''}", loc="left", fontsize=10, fontweight="bold")
                axes.set_ylim(bottom=0)
        for axes in grid[-1]:
            axes.set_xlabel("computation before each write, ms")
        for row in grid:
            row[0].set_ylabel("ms for each write,\nbeside the computation")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, dpi=140)
        plt.close(figure)
    return path
