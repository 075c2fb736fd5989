"""A namespace in memory, just large enough to run the functions: no threads, no files, one run at a time."""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

FUNCTIONS = Path(__file__).resolve().parents[1] / "functions"
MODULES = ("samples", "model", "formulas", "smooth", "train", "predict")


@dataclass(frozen=True)
class Record:
    log: str
    seqno: int
    text: str

    def json(self) -> object:
        return json.loads(self.text)


class Context:
    """One run's view: what was committed before it, and what it has staged. Notes every record it reads."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace, self.staged, self.read = namespace, [], []

    def append(self, log: str, data: dict) -> None:
        assert log in self.namespace.names, f"{log} is not declared"
        self.staged.append((log, json.dumps(data, separators=(",", ":"), allow_nan=False)))

    def get(self, log: str, seqno: int) -> Record:
        if not 1 <= seqno <= self.latest(log):
            raise LookupError(f"{log} has no record {seqno}")
        self.read.append((log, seqno))
        return Record(log, seqno, self.namespace.logs[log][seqno - 1])

    def latest(self, log: str) -> int:
        assert log in self.namespace.names, f"{log} is not declared"
        return len(self.namespace.logs[log])


@dataclass
class Run:
    function: str
    log: str
    seqno: int


class Namespace:
    """Logs, bindings, and one queue of runs in the order of their triggers."""

    def __init__(self, sensors: Iterable[str], **settings: int) -> None:
        sensors = list(sensors)
        self.functions = load(sensors, **settings)
        self.names = {"model", "prediction"}
        self.bound: dict[str, list[str]] = defaultdict(list)
        for name in [*sensors, "truth"]:
            self.names |= {f"raw/{name}", f"smooth/{name}"}
            self.bound[f"raw/{name}"].append("smooth")
            self.bound[f"smooth/{name}"].append("train" if name == "truth" else "predict")
        self.logs: dict[str, list[str]] = defaultdict(list)
        self.queue: deque[Run] = deque()
        self.reads: list[tuple[Run, list[tuple[str, int]]]] = []

    def append(self, log: str, text: str) -> None:
        self.logs[log].append(text)
        for function in self.bound[log]:
            self.queue.append(Run(function, log, len(self.logs[log])))

    def feed(self, log: str, t: int, v: float, at: int | None = None) -> None:
        self.append(log, json.dumps({"t": t, "v": v} | ({} if at is None else {"at": at})))

    def run(self, index: int = 0) -> None:
        """Runs the `index`-th waiting run, and publishes what it appended."""
        self.queue.rotate(-index)
        run = self.queue.popleft()
        self.queue.rotate(index)
        context = Context(self)
        self.functions[run.function](context.get(run.log, run.seqno), context)
        self.reads.append((run, context.read))
        for log, text in context.staged:
            self.append(log, text)

    def run_all(self) -> None:
        """Runs everything in the order of the triggers."""
        while self.queue:
            self.run()

    def run_shuffled(self, dice: random.Random) -> None:
        """Runs everything in any order that keeps the runs of `smooth` in theirs."""
        while self.queue:
            first_smooth = next((n for n, run in enumerate(self.queue) if run.function == "smooth"), None)
            self.run(
                dice.choice([n for n, run in enumerate(self.queue) if run.function != "smooth" or n == first_smooth])
            )

    def values(self, log: str) -> list[dict]:
        return [json.loads(text) for text in self.logs[log]]


def load(
    sensors: list[str],
    step_s: int = 3600,
    window_s: int = 10_800,
    age_s: int = 86_400,
    train_s: int = 864_000,
    history: int = 10_000,
    silent_s: int = 43_200,
) -> dict[str, Callable]:
    """The functions as deployed with these settings: each set has modules of its own, as each worker has."""
    os.environ |= {
        "SENSORS": " ".join(sensors),
        "STEP_S": str(step_s),
        "WINDOW_S": str(window_s),
        "AGE_S": str(age_s),
        "TRAIN_S": str(train_s),
        "HISTORY": str(history),
        "SILENT_S": str(silent_s),
    }
    sys.path.insert(0, str(FUNCTIONS))
    try:
        for name in MODULES:
            sys.modules.pop(name, None)
        return {name: getattr(importlib.import_module(name), name) for name in ("smooth", "train", "predict")}
    finally:
        sys.path.remove(str(FUNCTIONS))
        for name in MODULES:
            sys.modules.pop(name, None)
