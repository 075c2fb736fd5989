#!/usr/bin/env python3
"""A chain of three copies, device to edge to cloud, through two outages: every reading arrives once, in order, everywhere.

Three hosts on this machine, joined by relays. While the device goes on measuring, the cloud is killed and comes back
later; then the edge. What was measured meanwhile catches up by itself. Says how long a reading takes to its third copy
while nothing is wrong, and draws how the copies catch up.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import mean, quantiles, stdev

import chain_chart

EXAMPLE = Path(__file__).resolve().parent
REPOSITORY = EXAMPLE.parents[1]
NAMES = ("device", "edge", "cloud")
LOG = "readings"
HISTORY = 1_000_000
PATIENCE_S = 300
OUTAGES = (("cloud", 0.2, 0.45), ("edge", 0.6, 0.8))  # which host is down, and from when to when, in shares


class Failed(Exception):
    """A check failed; the message says which."""


def find_millrace() -> str:
    """The command: $MILLRACE, one built here, or one in PATH."""
    built = [REPOSITORY / "target" / kind / "millrace" for kind in ("release", "debug")]
    found = os.environ.get("MILLRACE") or next((str(path) for path in built if path.exists()), shutil.which("millrace"))
    if not found:
        raise Failed("there is no `millrace` yet: run `make` at the root of the repository, or set MILLRACE to its path")
    return found


def reserved_port() -> socket.socket:
    """A port that the system gives to nobody else meanwhile: bound and not listening, so that a host, which asks for this very
    port and sets the same option, may bind it too."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


@dataclass
class Station:
    """A namespace and its host, which comes back under the port that it had."""

    name: str
    directory: Path
    millrace: str
    port: socket.socket = field(default_factory=reserved_port)
    process: subprocess.Popen | None = None
    log: list = field(default_factory=list)

    def command(self, *args: str) -> list[str]:
        return [self.millrace, "--namespace", str(self.directory), *args]

    def call(self, *args: str) -> str:
        done = subprocess.run(self.command(*args), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{self.name}: millrace {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def rows(self, *args: str) -> list[dict]:
        return [json.loads(line) for line in self.call("--json", *args).splitlines()]

    def create(self) -> None:
        self.call("init", "--bare")
        self.call("log", "create", LOG, "--history", str(HISTORY))

    def start(self) -> None:
        """Serves; returns when it listens."""
        listen = ("serve", "--listen", self.listen(), "--name", self.name)
        messages = self.directory.with_suffix(".txt")
        with messages.open("a") as said:
            command = self.command("--json", *listen)
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        announced = json.loads(self.process.stdout.readline() or "{}")
        if "listening" not in announced:
            raise Failed(f"{self.name}: the host did not start:\n{messages.read_text()}")

    def kill(self) -> None:
        """Kills the host, like a power failure."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.communicate()

    def address(self) -> str:
        return f"mr://{self.listen()}/{self.name}/{LOG}"

    def listen(self) -> str:
        host, port = self.port.getsockname()
        return f"{host}:{port}"

    def latest(self) -> int:
        return self.rows("log", "stat", LOG)[0]["latest"]


def main() -> int:
    options = parse_options()
    try:
        return demonstrate(options)
    except Failed as error:
        print(error, file=sys.stderr)
        return 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--seconds", type=float, default=30, help="how long the device measures [30]")
    add("--rate", type=float, default=200, help="readings a second [200]")
    add("--out", type=Path, default=REPOSITORY / "demo-out", metavar="DIR", help="where the picture goes [demo-out]")
    return parser.parse_args()


def demonstrate(options: argparse.Namespace) -> int:
    work = options.out / "relay-chain"
    shutil.rmtree(work, ignore_errors=True)  # what an earlier demonstration left
    work.mkdir(parents=True)
    millrace = find_millrace()
    stations = {name: Station(name, (work / name).resolve(), millrace) for name in NAMES}
    try:
        for station in stations.values():
            station.create()
            station.start()
        for here, there in zip(NAMES, NAMES[1:]):
            stations[here].call("relay", "add", LOG, stations[there].address())
        outages = measure(stations, options)
        copies = {name: stations[name].rows("log", "get", LOG, "--all") for name in NAMES}
    finally:
        for station in stations.values():
            station.stop()
    verify(copies)
    report(copies, outages, options)
    return 0


def measure(stations: dict[str, Station], options: argparse.Namespace) -> list[tuple[str, float, float]]:
    """The device measures while others come and go; returns when everything has arrived. Which was down, and when."""
    feeder = threading.Thread(target=feed, args=(stations["device"], options.seconds, options.rate))
    began = time.time()
    feeder.start()
    outages = []
    for name, begin, end in OUTAGES:
        sleep_until(began + begin * options.seconds)
        stations[name].kill()
        gone = time.time()
        sleep_until(began + end * options.seconds)
        stations[name].start()
        outages.append((name, gone, time.time()))
        print(f"killed {name}; it was down for {outages[-1][2] - gone:.1f} s", flush=True)
    feeder.join()
    wanted, deadline = stations["device"].latest(), time.monotonic() + PATIENCE_S
    while stations["cloud"].latest() < wanted:
        if time.monotonic() > deadline:
            raise Failed(f"the cloud has {stations['cloud'].latest()} of {wanted}:\n{stations['edge'].call('relay', 'ls')}")
        time.sleep(0.05)
    return outages


def feed(device: Station, seconds: float, rate: float) -> None:
    """Measures: a line at a time, as an instrument does."""
    command = device.command("log", "append", LOG, "--lines", "--quiet")
    feeder = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    began = time.time()
    for n in range(int(seconds * rate)):
        sleep_until(began + n / rate)
        feeder.stdin.write(json.dumps({"n": n + 1, "at": round(time.time(), 6)}) + "\n")
        feeder.stdin.flush()
    feeder.stdin.close()
    if feeder.wait():
        raise Failed("the device could not append")


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))


def verify(copies: dict[str, list[dict]]) -> None:
    """Every copy is the device's log, and each record is caused by the one before it in the chain."""
    for here, there in zip(NAMES, NAMES[1:]):
        if [row["data"] for row in copies[here]] != [row["data"] for row in copies[there]]:
            raise Failed(f"what the {there} has is not what the {here} has")
        if [row["id"] for row in copies[here]] != [row["cause"] for row in copies[there]]:
            raise Failed(f"what the {there} has was not caused by what the {here} has")


def moments(rows: list[dict]) -> list[float]:
    return [datetime.fromisoformat(row["time"].replace("Z", "+00:00")).timestamp() for row in rows]


def report(copies: dict[str, list[dict]], outages: list[tuple[str, float, float]], options: argparse.Namespace) -> None:
    times = {name: moments(copies[name]) for name in NAMES}
    delays = [last - first for first, last in zip(times["device"], times["cloud"])]
    # Until somebody goes away for the first time.
    calm = [1000 * delay for delay, at in zip(delays, times["device"]) if at < outages[0][1] - 1] or [0.0, 0.0]
    figures = {
        "readings": len(delays),
        "replicas": len(NAMES),
        "mean_ms": round(mean(calm), 3),
        "stdev_ms": round(stdev(calm), 3),
        "p95_ms": round(quantiles(calm, n=20)[-1], 3),
        "longest_s": round(max(delays), 3),
    }
    (options.out / "relay-chain.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(f"{figures['readings']} readings, {figures['replicas']} copies of each, none lost, none twice, all in order")
    print(
        f"from the device to its third copy: mean {figures['mean_ms']:.1f} ms, standard deviation "
        f"{figures['stdev_ms']:.1f} ms, 95 % within {figures['p95_ms']:.1f} ms"
    )
    print(f"the one that waited longest took {figures['longest_s']:.1f} s")
    picture = chain_chart.draw(times, outages, options.out / "relay-chain.png")
    print(f"picture: {picture}")


if __name__ == "__main__":
    sys.exit(main())
