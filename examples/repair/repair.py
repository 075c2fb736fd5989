#!/usr/bin/env python3
"""Four histories with an error, each repaired and compared with a run without the error.

  stale     a thermometer repeats one reading for a day
  celsius   a thermometer reports three weeks in °C instead of °F
  late      interpolated readings are amended by those that arrive late
  runs      a random number generator writes zero for every fourth value; its code is replaced

Without arguments all four. Each prints what it found and draws it, in `demo-out/repair-NAME.png`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

EXAMPLE = Path(__file__).resolve().parent
REPOSITORY = EXAMPLE.parents[1]
THERMOMETER = EXAMPLE.parent / "thermometer"
sys.path[:0] = [str(THERMOMETER)]

import pictures  # noqa: E402
from driver import application  # noqa: E402
from driver.application import Settings  # noqa: E402
from driver.host import Host  # noqa: E402
from driver.readings import Readings, read  # noqa: E402

RUNS_TIMEOUT_S = 600
REPAIR_TIMEOUT_S = 600
HOUR_S, DAY_S = 3600, 86_400
SENSORS = ("jfk", "lga")
LAG_S = 6 * HOUR_S
SEEDS = 60
TITLES = {"stale": "A sensor repeats one reading for a day", "celsius": "A sensor reports in °C for three weeks"}
RECORDED = {"stale": "as recorded: one reading, repeated", "celsius": "as recorded: in °C, taken for °F"}


@dataclass(frozen=True)
class Repaired:
    """The result of a repair: how much was replayed, and whether every log equals that of a clean run."""

    name: str
    runs: int
    replayed: int
    replaced: int
    equal: bool
    figures: dict[str, object]

    def line(self) -> str:
        figures = ", ".join(f"{key} {value}" for key, value in self.figures.items())
        same = "equal to a clean run" if self.equal else "NOT equal to a clean run"
        counts = f"replayed {self.replayed} of {self.runs} runs, {self.replaced} records"
        return f"{self.name:<8} {counts}; {same}; {figures}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", choices=[[], *EXAMPLES], help="which [all]")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "demo-out", metavar="DIR", help="[demo-out]")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    equal = True
    for name in options.name or EXAMPLES:
        repaired = EXAMPLES[name](options.out)
        print(repaired.line(), flush=True)
        equal &= repaired.equal
    return 0 if equal else 1


@contextmanager
def served(directory: Path, write: Callable[[Path], Path], records: list[tuple[str, str]]) -> Iterator[Host]:
    """A new namespace whose functions have run for these records."""
    shutil.rmtree(directory, ignore_errors=True)
    with Host(directory / "namespace", write(directory)) as host:
        host.append(records, lambda _: None)
        host.wait_idle(RUNS_TIMEOUT_S, lambda _: None)
        host.check_none_dead()
        yield host


def repair(host: Host, *args: str) -> dict:
    """Runs a repair and applies it; returns its state."""
    ready = json.loads(host.call("--json", "repair", "run", *args))
    return json.loads(host.call("--json", "repair", "apply", str(ready["repair"])))


def amend(host: Host, log: str, values: list[str]) -> dict:
    """Amends the records of a log from the first on, and waits until the host has repaired it; returns the repair."""
    command = host.command("log", "append", log, "--amends", "1", "--lines")
    subprocess.run(command, input="".join(f"{value}\n" for value in values), text=True, check=True, stdout=subprocess.DEVNULL)
    until = time.monotonic() + REPAIR_TIMEOUT_S
    while time.monotonic() < until:
        applied = [row for row in host.rows("repair", "ls") if row["phase"] == "applied"]
        if applied:
            return applied[-1]
        time.sleep(0.1)
    raise TimeoutError(f"the amendments of {log} were not applied")


def payloads(host: Host, logs: list[str]) -> dict[str, list[str]]:
    return {log: [row["data"] for row in host.rows("log", "get", log, "--all")] for log in logs}


def report(name: str, host: Host, done: dict, equal: bool, **figures: object) -> Repaired:
    counts = done["counts"]
    runs = sum(row["done"] for row in host.rows("function", "ls"))
    return Repaired(name, runs, counts["replayed"], counts["replaced"] + counts["void"], equal, figures)


# The thermometer, with a sensor that is wrong for some time.


def thermometer(days: int, wrong: range, spoil: Callable[[list[float], int], float], name: str, out: Path) -> Repaired:
    """Estimates Newark from two other airports for `days`; `spoil` makes the readings of the first sensor wrong."""
    sensors = [cut(read(sensor, THERMOMETER / "data" / f"{sensor}.csv"), days) for sensor in SENSORS]
    truth = cut(read("truth", THERMOMETER / "data" / "ewr.csv"), days)
    right = sensors[0]
    begin = right.times[0]
    at = [k for k, t in enumerate(right.times) if (t - begin) // DAY_S in wrong]
    values = list(right.values)
    for k in at:
        values[k] = round(spoil(right.values, k), 4)
    spoiled = replace(right, values=values)
    logs = ["smooth/jfk", "model", "prediction"]
    settings = Settings(sensors=SENSORS, python=sys.executable, namespace="namespace", train_s=days * DAY_S)

    def write(directory: Path) -> Path:
        of = replace(settings, namespace=str(directory / "namespace"))
        return application.write(of, directory)

    with served(out / f"repair-{name}" / "clean", write, arriving([right, sensors[1]], truth)) as host:
        clean = payloads(host, logs)
    with served(out / f"repair-{name}" / "wrong", write, arriving([spoiled, sensors[1]], truth)) as host:
        before = payloads(host, logs)
        corrections = out / f"repair-{name}" / "right.json"
        rows = [{"seqno": k + 1, "value": sample(right.times[k], right.values[k])} for k in at]
        corrections.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        done = repair(host, "raw/jfk", "--values", str(corrections), "--reason", name)
        after = payloads(host, logs)
        actual = {row["t"]: row["v"] for row in host.records("smooth/truth")}
        raw = {row["t"]: row["v"] for row in host.records("raw/jfk")}
        mae = {key: error(of["prediction"], actual) for key, of in (("before", before), ("after", after))}
        pictures.thermometer(
            out / f"repair-{name}.png",
            title=TITLES[name],
            recorded=RECORDED[name],
            sensors=(dict(zip(right.times, values)), raw),
            predictions=(series(before["prediction"]), series(after["prediction"])),
            truth=actual,
            wrong=(right.times[at[0]], right.times[at[-1]]),
        )
        equal = after == clean and before != clean
        return report(name, host, done, equal, error_before=mae["before"], error_after=mae["after"])


def stale(out: Path) -> Repaired:
    return thermometer(4, range(2, 3), lambda values, _: values[2 * 24 - 1], "stale", out)


def celsius(out: Path) -> Repaired:
    return thermometer(35, range(7, 28), lambda values, k: (values[k] - 32) / 1.8, "celsius", out)


def cut(readings: Readings, days: int) -> Readings:
    end = readings.times[0] + days * DAY_S
    count = sum(t < end for t in readings.times)
    return replace(readings, times=readings.times[:count], values=readings.values[:count])


def sample(t: int, v: float, **more: int) -> str:
    return json.dumps({"t": t, "v": round(v, 4)} | more, separators=(",", ":"))


def arriving(sensors: list[Readings], truth: Readings) -> list[tuple[str, str]]:
    """The records in the order in which they are known, the truth late."""
    rows = []
    for order, readings in enumerate([truth, *sensors]):
        late = LAG_S if readings is truth else 0
        for t, v in zip(readings.times, readings.values):
            more = {"at": t + late} if late else {}
            rows.append((t + late, order, f"raw/{readings.name}", sample(t, v, **more)))
    rows.sort(key=lambda row: row[:2])
    return [row[2:] for row in rows]


def series(records: list[str]) -> dict[int, float]:
    return {row["t"]: row["v"] for row in map(json.loads, records)}


def error(predictions: list[str], actual: dict[int, float]) -> float:
    off = [abs(v - actual[t]) for t, v in series(predictions).items() if t in actual]
    return round(sum(off) / len(off), 2)


# Readings that arrive late.


def late(out: Path) -> Repaired:
    """Of six hourly readings one arrives in time; the others are interpolated until they arrive."""
    right = cut(read("reading", THERMOMETER / "data" / "ewr.csv"), 10)
    guessed = list(right.values)
    for k in range(len(guessed)):
        low, high = k - k % 6, min(k - k % 6 + 6, len(guessed) - 1)
        part = (k - low) / (high - low) if high > low else 0.0
        guessed[k] = right.values[low] + part * (right.values[high] - right.values[low])
    functions = {"heating": "reading"}
    logs = ["reading", "heating"]

    def records(values: list[float]) -> list[tuple[str, str]]:
        return [("reading", sample(t, v)) for t, v in zip(right.times, values)]

    with served(out / "repair-late" / "clean", own(functions), records(right.values)) as host:
        clean = payloads(host, logs)
    policy = f"amendable = true\namend_count = {len(guessed)}\n"
    with served(out / "repair-late" / "wrong", own(functions, reading=policy), records(guessed)) as host:
        before = payloads(host, logs)
        done = amend(host, "reading", [text for _, text in records(right.values)])
        after = payloads(host, logs)
        totals = [json.loads(of["heating"][-1])["total"] for of in (before, after)]
        pictures.late(
            out / "repair-late.png",
            readings=(series(before["reading"]), series(after["reading"])),
            in_time=dict(list(zip(right.times, right.values))[::6]),
            heating=tuple({row["t"]: row["total"] for row in map(json.loads, of["heating"])} for of in (before, after)),
        )
        equal = after == clean and before != clean
        return report("late", host, done, equal, degree_hours_before=totals[0], degree_hours_after=totals[1])


# The runs test.


def runs(out: Path) -> Repaired:
    """Tests a generator of random numbers; its code is replaced, and the verdict with it."""
    functions = {"generate": "seed", "wald": "sample", "ks": "z"}
    logs = ["sample", "z", "verdict"]
    records = [("seed", str(seed)) for seed in range(1, SEEDS + 1)]
    with served(out / "repair-runs" / "clean", own(functions, "fixed"), records) as host:
        clean = payloads(host, logs)
    with served(out / "repair-runs" / "wrong", own(functions), records) as host:
        before = payloads(host, logs)
        source = EXAMPLE / "fixed" / "generate.py"
        done = repair(host, "--function", f"generate={source}", "--reason", "every fourth value was zero")
        after = payloads(host, logs)
        verdicts = [json.loads(of["verdict"][-1])["verdict"] for of in (before, after)]
        pictures.runs(
            out / "repair-runs.png",
            z=tuple([json.loads(row)["z"] for row in of["z"]] for of in (before, after)),
            p=tuple([json.loads(row)["p"] for row in of["verdict"]] for of in (before, after)),
        )
        equal = after == clean and verdicts == ["not random", "random"]
        return report("runs", host, done, equal, before=repr(verdicts[0]), after=repr(verdicts[1]))


def own(functions: dict[str, str], generator: str = "functions", **settings: str) -> Callable[[Path], Path]:
    """Writes the application file of this example: its functions, each in a file of its own and bound to a log, and its logs."""

    def write(directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        logs = sorted({*functions.values(), "sample", "z", "verdict"} if "ks" in functions else {"reading", "heating"})
        text = [f'[namespace]\npath = "{directory / "namespace"}"', *(f"[logs.{log}]\n{settings.get(log, '')}" for log in logs)]
        for name, log in functions.items():
            code = EXAMPLE / (generator if name == "generate" else "functions") / f"{name}.py"
            text.append(
                f'[functions.{name}]\nruntime = "python"\npython = "{sys.executable}"\ncode = "{code}"\n'
                f'handler = "{name}:{name}"\non = ["{log}"]'
            )
        path = directory / "millrace.toml"
        path.write_text("\n".join(text) + "\n", encoding="utf-8")
        return path

    return write


EXAMPLES: dict[str, Callable[[Path], Repaired]] = {"stale": stale, "celsius": celsius, "late": late, "runs": runs}

if __name__ == "__main__":
    sys.exit(main())
