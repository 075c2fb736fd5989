"""What the package costs beside a call that does nothing. Prints one JSON object; times are in nanoseconds.

    scripts/wheel.sh release && .venv/bin/python sdk/python/bench.py [--quick]

The namespace has durability `memory`, the record is 1 KiB. Appends come in bursts with pauses, in which the namespace's own
thread makes room ahead; gets read the same record again and again, as the bench of the Rust crates does.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Beside this file lies the package's source; the installed one is to be measured.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]

import millrace  # noqa: E402
from millrace import _native, executor  # noqa: E402

RECORD = bytes(range(256)) * 4
BURST = 10_000
PAUSE_S = 0.06


def measured(run: Callable[[int], None], calls: int, rounds: int, pause_s: float) -> dict[str, float]:
    """Nanoseconds per call: the median of the rounds, the least and the most."""
    rounds_ns = []
    for _ in range(rounds):
        time.sleep(pause_s)
        start = time.perf_counter_ns()
        run(calls)
        rounds_ns.append((time.perf_counter_ns() - start) / calls)
    median = statistics.median(rounds_ns)
    return {
        "ns": round(median, 1), "least_ns": round(min(rounds_ns), 1), "most_ns": round(max(rounds_ns), 1),
        "samples": calls * rounds,
    }


def empty_loop(count: int) -> None:
    for _ in range(count):
        pass


def empty_call(count: int) -> None:
    call = _native.empty_call
    for _ in range(count):
        call()


def nothing(number: int) -> int:
    return number


@millrace.shared(timeout=60)
class Number:
    """Multiplies ten thousand times, as the same loop in C and Lua does."""

    def __init__(self) -> None:
        self.calls = 0
        self.product = 0.0

    def multiply(self) -> int:
        x = 1.0
        for _ in range(10_000):
            x = x * 1.0000001
        self.product = x
        self.calls += 1
        return self.calls


def send_class(directory: str, address: str) -> None:
    """Has the workers of a host run `Number`, prints what its calls name, and waits until it is ended."""
    # The host has other namespaces, too, so it is reached by an address that names this one.
    here: Any = SimpleNamespace(directory=directory, _directories=[directory], address=address)
    pool = executor._pools.make_pool(here, executor._cloudpickle(), executor._pools.settings(workers=2))
    with millrace.connect(address) as farm:
        name, pool, version, body, code = farm.shared(Number, pool=pool)._about
        print(json.dumps([name, pool, version, body, code.hex()]), flush=True)
        signal.pause()


def mapped(rounds: int) -> dict[str, float]:
    """Milliseconds of a map of 1000 tasks: the first one, the median of the others, and the most."""
    rounds_ms = []
    with millrace.connect() as farm, farm.Executor(workers=2) as workers:
        for _ in range(rounds + 1):
            start = time.perf_counter_ns()
            assert list(workers.map(nothing, range(1000))) == list(range(1000))
            rounds_ms.append((time.perf_counter_ns() - start) / 1e6)
    first_ms, *warm_ms = rounds_ms
    return {
        "ms": round(statistics.median(warm_ms), 1), "first_ms": round(first_ms, 1), "most_ms": round(max(warm_ms), 1),
        "samples": rounds * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument("--executor", action="store_true", help="tasks of an executor instead of a namespace's own files")
    told = "send a shared class to the host of this namespace, and wait"
    parser.add_argument("--class", dest="place", nargs=2, metavar=("DIRECTORY", "ADDRESS"), help=told)
    arguments = parser.parse_args()
    if arguments.place:
        send_class(*arguments.place)
        return
    rounds = 3 if arguments.quick else 15
    if arguments.executor:
        print(json.dumps({"executor.map": mapped(rounds)}))
        return
    with tempfile.TemporaryDirectory() as directory:
        ns = millrace.create(Path(directory) / "ns", durability="memory")
        ns.create_log("raw", history=1_000_000)
        record = RECORD

        def append(count: int) -> None:
            for _ in range(count):
                ns.append("raw", record)

        def get(count: int) -> None:
            for _ in range(count):
                ns.get("raw", 1)

        append(BURST)
        assert ns.get("raw", 1).data == record
        results = {
            "python.append": measured(append, BURST, rounds, PAUSE_S),
            "python.get": measured(get, 10 * BURST, rounds, 0),
            "python.empty_call": measured(empty_call, 10 * BURST, rounds, 0),
            "python.empty_loop": measured(empty_loop, 10 * BURST, rounds, 0),
        }
        ns.close()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
