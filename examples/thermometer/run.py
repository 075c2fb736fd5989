#!/usr/bin/env python3
"""Estimates the temperature where there is no thermometer, from thermometers elsewhere, and says how well.

Without arguments: a year of hourly readings at New York's airports; Newark is estimated from Kennedy and LaGuardia.
With your own: one --sensor for each instrument, and --truth, a file that tells for some time what should be estimated.
A file has rows 'epoch,value', 'epoch value' or 'timestamp, epoch, value', with or without a header.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

from driver import application, score
from driver.application import Settings
from driver.host import Failed, Host
from driver.progress import Progress
from driver.readings import Readings, Refused, read
from driver.units import day, duration, seconds

EXAMPLE = Path(__file__).resolve().parent
REPOSITORY = EXAMPLE.parents[1]
DATA = EXAMPLE / "data"
RUNS_TIMEOUT_S = 600


def main() -> int:
    options = parse_options()
    progress = Progress()
    began = time.monotonic()
    try:
        sensors, truth = read_all(options)
        settings = settings_for(options, sensors, truth)
        print("\n".join(readings.summary(settings.step_s) for readings in (*sensors, truth)), flush=True)
        results = run(settings, options, sensors, truth, progress)
    except (Refused, Failed) as error:
        progress.clear()
        print(error, file=sys.stderr)
        return 2 if isinstance(error, Refused) else 1
    finished = report(options, settings, results)
    print(f"took        {time.monotonic() - began:.1f} s; the namespace is {settings.namespace}")
    return finished


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sensor", action="append", default=[], metavar="NAME=FILE", help="an instrument elsewhere; may be repeated")
    parser.add_argument("--truth", type=Path, metavar="FILE", help="what is to be estimated, as far as it was measured")
    parser.add_argument("--step", type=positive_argument, metavar="DURATION", help="estimate at each of these [the readings' usual spacing]")
    parser.add_argument("--window", type=positive_argument, metavar="DURATION", help="average over this [3 steps]")
    parser.add_argument("--lag", type=duration_argument, default="6h", metavar="DURATION", help="how late the truth becomes known [6h]")
    parser.add_argument("--refit", type=positive_argument, default="3d", metavar="DURATION", help="the age at which a model is refitted [3d]")
    parser.add_argument("--train", type=positive_argument, default="28d", metavar="DURATION", help="how far back it is fitted [28d]")
    parser.add_argument("--smooth", choices=application.SMOOTH, default="python", help="which form of the function smooth runs [python]")
    parser.add_argument("--unit", default=None, help="what the values are, for the picture [°F for the data here]")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "demo-out", metavar="DIR", help="where the picture goes [demo-out]")
    parser.add_argument("--namespace", type=Path, metavar="DIR", help="a new directory for the logs [OUT/namespace, made anew]")
    options = parser.parse_args()
    if bool(options.sensor) != bool(options.truth):
        parser.error("--sensor and --truth belong together: give at least one of each, or neither")
    return options


def duration_argument(text: str) -> int:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_argument(text: str) -> int:
    if (s := duration_argument(text)) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no time at all")
    return s


def read_all(options: argparse.Namespace) -> tuple[list[Readings], Readings]:
    """Reads and checks every file before anything is made or appended."""
    if not options.sensor:
        options.title, options.unit = "Newark, estimated from Kennedy and LaGuardia", options.unit or "°F"
        return [read("jfk", DATA / "jfk.csv"), read("lga", DATA / "lga.csv")], read("truth", DATA / "ewr.csv")
    files: dict[str, Path] = {}
    for sensor in options.sensor:
        name, _, path = sensor.partition("=")
        if not re.fullmatch(r"(?!\.)[A-Za-z0-9_.-]{1,64}", name) or not path or name == "truth" or name in files:
            raise Refused(f"--sensor {sensor}: write NAME=FILE, each NAME once; letters, digits, _ . - but not 'truth'")
        files[name] = Path(path)
    options.title, options.unit = f"{options.truth.stem}, estimated from {', '.join(files)}", options.unit or "°"
    problems, readings = [], []
    for name, path in [*files.items(), ("truth", options.truth)]:
        try:
            readings.append(read(name, path))
        except Refused as refused:
            problems.append(str(refused))
    if problems:
        raise Refused("\n".join([*problems, "nothing was appended"]))
    return readings[:-1], readings[-1]


def settings_for(options: argparse.Namespace, sensors: list[Readings], truth: Readings) -> Settings:
    step_s = options.step or max(readings.spacing_s() for readings in (*sensors, truth))
    window_s = options.window or 3 * step_s
    if window_s < step_s:
        raise Refused(f"the window of {duration(window_s)} is shorter than the step of {duration(step_s)}")
    begin, end = (f(g(one.times) for one in (*sensors, truth)) for f, g in ((max, min), (min, max)))
    if begin >= end:
        raise Refused(f"no time is common to all files: one begins on {day(begin)}, another ends on {day(end)}")
    longest, total = (f(len(one.times) for one in (*sensors, truth)) for f in (max, sum))
    return Settings(
        sensors=tuple(readings.name for readings in sensors),
        step_s=step_s,
        window_s=window_s,
        age_s=options.refit,
        train_s=options.train,
        history=max(10_000, longest),
        pending_max=max(100_000, total),
        smooth=options.smooth,
        python=sys.executable,
        namespace=str((options.namespace or options.out / "namespace").resolve()),
    )


def run(settings: Settings, options: argparse.Namespace, sensors: list[Readings], truth: Readings, progress: Progress) -> dict:
    """Feeds the readings to a new namespace, lets its functions run, and reads what they appended."""
    namespace = Path(settings.namespace)
    if options.namespace and namespace.exists():
        raise Refused(f"{namespace} exists; name a new directory, which will hold this run's logs")
    shutil.rmtree(namespace, ignore_errors=True)  # the one that an earlier demonstration left in the output directory
    application_file = application.write(settings, options.out / "application")
    records = in_order_of_arrival(sensors, truth, options.lag)
    with Host(namespace, application_file) as host:
        with progress.step("append", len(records)) as shown:
            host.append(records, shown.count)
        with progress.step("run functions") as shown:
            host.wait_idle(RUNS_TIMEOUT_S, shown.pending)
        with progress.step("read the logs"):
            logs = {log: host.records(log) for log in ("prediction", "model", "raw/truth", "smooth/truth")}
            for readings in sensors:
                logs |= {log: host.records(log) for log in (f"raw/{readings.name}", f"smooth/{readings.name}")}
        dead = [row for function in ("smooth", "train", "predict") for row in host.records(f"dead/{function}")]
        if dead:
            raise Failed(f"{len(dead)} runs failed for good; the first: {json.dumps(dead[0])[:500]}")
    return logs


def in_order_of_arrival(sensors: list[Readings], truth: Readings, lag_s: int) -> list[tuple[str, str]]:
    """The records as they would come live: each when it is known, the truth `lag_s` after it was measured."""
    rows = []
    for order, readings in enumerate([truth, *sensors]):
        late = lag_s if readings is truth else 0
        for t, v in zip(readings.times, readings.values):
            sample = {"t": t, "v": v} | ({"at": t + late} if late else {})
            rows.append((t + late, order, f"raw/{readings.name}", json.dumps(sample, separators=(",", ":"))))
    rows.sort(key=lambda row: row[:2])
    return [row[2:] for row in rows]


def report(options: argparse.Namespace, settings: Settings, logs: dict[str, list[dict]]) -> int:
    """Prints how good the predictions were, and draws them."""
    smooth = {name: series(logs[f"smooth/{name}"]) for name in settings.sensors}
    raw = {name: series(logs[f"raw/{name}"]) for name in settings.sensors}
    prediction = series(logs["prediction"])
    score.assert_unseen(logs["prediction"])
    complete = set.intersection(*(set(one) for one in smooth.values()))
    some = set.union(*(set(one) for one in smooth.values()))
    print(f"steps       {len(some)} of {duration(settings.step_s)}: {len(some - complete)} without some sensor, "
          f"{len(complete) - len(prediction)} before the first model, {len(prediction)} predicted by {len(logs['model'])} models")
    lag = duration(options.lag)
    groups = {
        "against the smoothed truth": score.compare(prediction, smooth, logs["smooth/truth"], lag),
        "against the bare reading": score.compare(prediction, raw, logs["raw/truth"], lag),
    }
    if not all(groups.values()):
        print("nothing to compare: no step has a prediction and a truth; is there enough data, at the same times?", file=sys.stderr)
        return 1
    print(f"\n{score.table(groups, options.unit)}\n")
    from driver import chart  # here, because matplotlib takes long to import and mistakes should be told at once

    smoothed = groups["against the smoothed truth"]
    picture = chart.Picture(options.title, options.unit, settings.step_s, settings.window_s, prediction,
                            series(logs["smooth/truth"]), smoothed)
    pictures = picture.draw(options.out / "thermometer")
    figures = {title: {e.name: {"mae": e.mae, "rmse": e.rmse, "p95": e.p95, "steps": len(e.times)} for e in group}
               for title, group in groups.items()}
    (options.out / "thermometer.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(f"picture     {', '.join(os.path.relpath(path) for path in pictures)}")
    return 0


def series(samples: list[dict]) -> score.Series:
    return {sample["t"]: sample["v"] for sample in samples}


if __name__ == "__main__":
    sys.exit(main())
