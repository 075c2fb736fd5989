#!/usr/bin/env python3
"""Estimates the temperature where there is no thermometer, from thermometers elsewhere, and reports the errors.

Without arguments: a year of hourly readings at New York's airports; Newark is estimated from Kennedy and LaGuardia.
With your own: one --sensor for each instrument, and --truth, a file with true values for a part of the time.
A file has rows 'epoch,value', 'epoch value' or 'timestamp, epoch, value', with or without a header.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import time
from pathlib import Path

from driver import application, report
from driver.application import Settings
from driver.host import Failed, Host
from driver.progress import Progress
from driver.readings import Readings, Refused, read
from driver.units import day, duration, seconds

EXAMPLE = Path(__file__).resolve().parent
REPOSITORY = EXAMPLE.parents[1]
DATA = EXAMPLE / "data"
RUNS_TIMEOUT_S = 600
LAG_S = 6 * 3600
SILENT_STEPS = 12  # a sensor without a value for so many steps is waited for no longer
DECIMALS = 4  # no thermometer has more; so 39.019999999999996 is 39.02, and short enough for smooth.c


def duration_argument(text: str) -> int:
    try:
        return seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def positive_argument(text: str) -> int:
    if (s := duration_argument(text)) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no time at all")
    return s


DURATIONS = [
    ("step", positive_argument, None, "estimate at each of these [the readings' usual spacing]"),
    ("window", positive_argument, None, "average over this [3 steps]"),
    ("lag", duration_argument, None, "how late the truth becomes known [6h; of short data a tenth of their time]"),
    ("refit", positive_argument, "1d", "the age at which a model is refitted in any case [1d]"),
    ("train", positive_argument, "28d", "how far back it is fitted [28d]"),
]


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
    except KeyboardInterrupt:
        progress.clear()
        print("stopped", file=sys.stderr)
        return 130
    code = report.report(settings, results, options.lag, options.title, options.unit, options.out)
    print(f"took        {time.monotonic() - began:.1f} s; the namespace is {settings.namespace}")
    return code


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sensor", action="append", default=[], metavar="NAME=FILE", help="an instrument elsewhere; may be repeated")
    add("--truth", type=Path, metavar="FILE", help="what is to be estimated, as far as it was measured")
    for name, kind, default, meaning in DURATIONS:
        add(f"--{name}", type=kind, default=default, metavar="DURATION", help=meaning)
    add("--smooth", choices=application.SMOOTH, default="python", help="which form of smooth runs [python]")
    add("--unit", help="what the values are, for the table and the picture, such as °C [°F for the data here]")
    add("--out", type=Path, default=REPOSITORY / "demo-out", metavar="DIR", help="where the picture goes [demo-out]")
    add("--namespace", type=Path, metavar="DIR", help="a new directory for the logs [OUT/namespace, recreated]")
    options = parser.parse_args()
    if bool(options.sensor) != bool(options.truth):
        parser.error("--sensor and --truth belong together: give at least one of each, or neither")
    return options


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
    options.title, options.unit = f"{options.truth.stem}, estimated from {', '.join(files)}", options.unit or ""
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
    if options.lag is None:
        options.lag = min(LAG_S, (end - begin) // 10 // step_s * step_s)
    longest, total = (f(len(one.times) for one in (*sensors, truth)) for f in (max, sum))
    return Settings(
        sensors=tuple(readings.name for readings in sensors),
        step_s=step_s,
        window_s=window_s,
        age_s=options.refit,
        train_s=options.train,
        silent_s=SILENT_STEPS * step_s,
        history=max(10_000, longest),
        pending_max=max(100_000, total),
        smooth=options.smooth,
        python=sys.executable,
        namespace=str((options.namespace or options.out / "namespace").resolve()),
    )


def run(
    settings: Settings, options: argparse.Namespace, sensors: list[Readings], truth: Readings, progress: Progress
) -> dict:
    """Feeds the readings to a new namespace, lets its functions run, and reads what they appended."""
    namespace = Path(settings.namespace)
    if namespace.exists():
        if options.namespace or not (namespace / "manifest").exists():
            raise Refused(f"{namespace} exists; name a new directory, which will hold this run's logs")
        shutil.rmtree(namespace)  # what an earlier demonstration left in the output directory
    application_file = application.write(settings, options.out / "application")
    records = in_order_of_arrival(sensors, truth, options.lag)
    with Host(namespace, application_file) as host:
        with progress.step("append", len(records)) as shown:
            host.append(records, shown.count)
        with progress.step("run functions") as shown:
            host.wait_idle(RUNS_TIMEOUT_S, shown.pending)
        host.check_none_dead()
        with progress.step("read the logs"):
            names = [*settings.sensors, "truth"]
            return {log: host.records(log) for log in logs_of(names)}


def logs_of(names: list[str]) -> list[str]:
    return ["model", "prediction", *(f"{stage}/{name}" for stage in ("raw", "smooth") for name in names)]


def in_order_of_arrival(sensors: list[Readings], truth: Readings, lag_s: int) -> list[tuple[str, str]]:
    """The records as they would come live: each when it is known, the truth `lag_s` after it was measured."""
    rows = []
    # A late truth is there before the prediction of that second; one that comes at once waits for its sensors.
    for order, readings in enumerate([truth, *sensors] if lag_s else [*sensors, truth]):
        late = lag_s if readings is truth else 0
        for t, v in zip(readings.times, readings.values):
            sample = {"t": t, "v": round(v, DECIMALS)} | ({"at": t + late} if late else {})
            rows.append((t + late, order, f"raw/{readings.name}", json.dumps(sample, separators=(",", ":"))))
    rows.sort(key=lambda row: row[:2])
    return [row[2:] for row in rows]


if __name__ == "__main__":
    sys.exit(main())
