#!/usr/bin/env python3
"""A reading on its way from a microcontroller to the cloud, and a wrong day that is corrected at the edge.

A board in QEMU measures, computes means, and sends everything on its serial line. `millrace device attach` takes it to the host at the
edge, which trains a model from the means; relays take readings and model to the cloud, which predicts. Then one trace goes from the
prediction to the reading, and a repair replays only what depended on the wrong day: runs of the board, of the edge and of the cloud.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent
REPOSITORY = EXAMPLE.parents[1]
FIRMWARE = REPOSITORY / "device" / "build" / "arm" / "board.elf"
TOOLS = {"make": "make", "arm-none-eabi-gcc": "gcc-arm-none-eabi", "qemu-system-arm": "qemu-system-arm", "clang": "clang", "wasm-ld": "lld"}
HOURS, DAYS, WRONG_DAY = 24, 4, 3
PATIENCE_S = 600


class Failed(Exception):
    """A step failed; the message says which."""


def find_millrace() -> str:
    """The command: $MILLRACE, one built here, or one in PATH."""
    built = [REPOSITORY / "target" / kind / "millrace" for kind in ("release", "debug")]
    found = os.environ.get("MILLRACE") or next((str(path) for path in built if path.exists()), shutil.which("millrace"))
    if not found:
        raise Failed("there is no `millrace` yet: run `make` at the root of the repository, or set MILLRACE to its path")
    return found


def check_tools() -> None:
    missing = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if missing:
        raise Failed(f"programs are missing; on Debian: apt-get install {' '.join(missing)}")


def build(work: Path) -> None:
    """The firmware, and the twin of its function."""
    run("make", "-s", "-C", str(REPOSITORY / "device"), "firmware")
    source, sdk = REPOSITORY / "device" / "examples" / "mean.c", REPOSITORY / "sdk" / "c"
    flags = ("--target=wasm32", "-O2", "-ffp-contract=off", "-nostdlib", "-Wl,--no-entry")
    run("clang", *flags, f"-I{sdk}", str(source), "-o", str(work / "mean.wasm"))


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


class Site:
    """A namespace and its host, with the address at which others reach it."""

    def __init__(self, name: str, work: Path, processes: ExitStack) -> None:
        self.name, self.millrace, self.directory = name, find_millrace(), work / name / ".millrace"
        (work / name).mkdir()
        for part in ("functions", "mean.wasm"):
            source = (work if part == "mean.wasm" else EXAMPLE) / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, work / name / part)
        shutil.copy(EXAMPLE / f"{name}.toml", work / name / "millrace.toml")
        self.call("up", "--file", str(work / name / "millrace.toml"))
        command = self.command("--json", "serve", "--listen", "127.0.0.1:0", "--name", name)
        process = start(command, work / f"{name}.txt", processes)
        listening = json.loads(process.stdout.readline() or "{}").get("listening")
        if not listening:
            raise Failed(f"the host of {name} did not start: see {work / name}.txt")
        self.address = f"mr://{address_of(listening)}/{name}"

    def command(self, *args: str) -> list[str]:
        return [self.millrace, "--namespace", str(self.directory), *args]

    def call(self, *args: str) -> str:
        return run(*self.command(*args))

    def rows(self, *args: str) -> list[dict]:
        return [json.loads(line) for line in self.call("--json", *args).splitlines()]

    def data(self, log: str) -> list[str]:
        return [row["data"] for row in self.rows("log", "get", log, "--all")]

    def latest(self, log: str) -> int:
        return next((row["latest"] for row in self.rows("log", "ls") if row["name"] == log), 0)


def address_of(listening: object) -> str:
    return str(listening if isinstance(listening, str) else listening[0])


def start(command: list[str], log: Path, processes: ExitStack) -> subprocess.Popen:
    with log.open("a") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True)
    processes.callback(stop, process)
    return process


def stop(process: subprocess.Popen) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def until(what: str, check, processes: list[subprocess.Popen]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        ended = [process.args[0] for process in processes if process.poll() is not None]
        if ended:
            raise Failed(f"{', '.join(ended)} ended before {what}")
        if time.monotonic() > deadline:
            raise Failed(f"not within {PATIENCE_S} s: {what}")
        time.sleep(0.1)


def board(work: Path, processes: ExitStack) -> tuple[subprocess.Popen, Path]:
    """Starts the board, which boots once somebody is at its serial port."""
    port = work / "board.sock"
    command = ["qemu-system-arm", "-M", "mps2-an385", "-display", "none", "-monitor", "none"]
    qemu = start([*command, "-serial", f"unix:{port},server=on", "-kernel", str(FIRMWARE)], work / "qemu.txt", processes)
    until("the board has a serial port", port.is_socket, [qemu])
    return qemu, port


def attach(edge: Site, port: Path, work: Path, processes: ExitStack) -> subprocess.Popen:
    return start(edge.command("device", "attach", str(port)), work / "attach.txt", processes)


def corrected(raw: list[str]) -> list[dict]:
    """The wrong day's readings: what the same hours of the days before and after suggest."""
    first = (WRONG_DAY - 1) * HOURS
    hours = range(first, first + HOURS)
    means = {hour: (float(raw[hour - HOURS]) + float(raw[hour + HOURS])) / 2 for hour in hours}
    return [{"seqno": hour + 1, "value": f"{means[hour]:.2f}"} for hour in hours]


def show(title: str, text: str) -> None:
    print(f"\n== {title}\n{text.strip()}", flush=True)


def demonstrate(work: Path, processes: ExitStack) -> None:
    build(work)
    edge, cloud = (Site(name, work, processes) for name in ("edge", "cloud"))
    for log in ("model", "kitchen/raw"):
        edge.call("relay", "add", log, f"{cloud.address}/{log}")
    qemu, port = board(work, processes)
    line = attach(edge, port, work, processes)
    # The line goes while the board measures; nothing is lost, since the board keeps its records.
    until("the edge has 20 readings", lambda: edge.latest("kitchen/raw") >= 20, [qemu, line])
    stop(line)
    line = attach(edge, port, work, processes)
    until("the cloud has a prediction for each day", lambda: cloud.latest("prediction") >= DAYS, [qemu, line])
    until("the cloud has the readings", lambda: cloud.latest("kitchen/raw") >= HOURS * DAYS, [qemu, line])
    raw = edge.data("kitchen/raw")
    if len(raw) != HOURS * DAYS or cloud.data("kitchen/raw") != raw:
        raise Failed("the edge and the cloud do not have the same readings")
    show("the device, at the edge", edge.call("device", "show", "kitchen"))
    show("the firmware and its twin", edge.call("device", "verify", "kitchen"))
    show("predictions", "\n".join(cloud.data("prediction")))
    show("trace: from a prediction to the readings", trace(cloud, edge))
    repair(edge, cloud, raw, work)
    show("predictions, after the repair", "\n".join(cloud.data("prediction")))


def trace(cloud: Site, edge: Site) -> str:
    """From the cloud's prediction down to the board's reading, over both namespaces."""
    text = cloud.call("trace", "prediction@1", "--up", "--with", edge.address)
    wanted = ("cloud:prediction@1", "cloud:model@1", "edge:model@1", "run of edge:train", "run of edge:thermometer.mean", "edge:kitchen/raw@")
    missing = [part for part in wanted if part not in text]
    if missing:
        raise Failed(f"the trace does not have {', '.join(missing)}:\n{text}")
    return text


def repair(edge: Site, cloud: Site, raw: list[str], work: Path) -> None:
    values = work / "right.json"
    values.write_text("".join(f"{json.dumps(value)}\n" for value in corrected(raw)))
    named = ("kitchen/raw", "--values", str(values), "--with", cloud.address)
    show("plan: what depended on the wrong day", edge.call("repair", "plan", *named))
    ready = edge.rows("repair", "run", *named, "--reason", "stuck sensor")[-1]
    number = str(ready["repair"])
    show("the repair's changes", edge.call("repair", "diff", number))
    edge.call("repair", "apply", number)
    show("the repair", edge.call("repair", "show", number))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "demo-out", metavar="DIR", help="[demo-out]")
    work = parser.parse_args().out.resolve() / "device"
    try:
        check_tools()
        shutil.rmtree(work, ignore_errors=True)  # what an earlier demonstration left
        work.mkdir(parents=True)
        with ExitStack() as processes:
            demonstrate(work, processes)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
