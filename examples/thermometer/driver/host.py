"""A namespace with a host that runs its functions, both through the command `millrace`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Callable

REPOSITORY = Path(__file__).resolve().parents[3]
STOP_TIMEOUT_S = 20
CHUNK_RECORDS = 500


class Failed(Exception):
    """A `millrace` command failed; the message is its error output."""


def find_millrace() -> str:
    """The command: $MILLRACE, one built here, or one in PATH."""
    built = [REPOSITORY / "target" / kind / "millrace" for kind in ("release", "debug")]
    found = os.environ.get("MILLRACE") or next((str(path) for path in built if path.exists()), shutil.which("millrace"))
    if not found:
        raise Failed(
            "there is no `millrace` yet: run `make` at the root of the repository, or set MILLRACE to its path"
        )
    return found


class Host:
    """Applies an application file and serves its namespace for as long as the context lasts."""

    def __init__(self, namespace: Path, application: Path) -> None:
        self.millrace, self.namespace, self.application = find_millrace(), namespace, application

    def __enter__(self) -> Host:
        self.call("up", "--file", str(self.application))
        self.log = open(self.application.parent / "host.log", "wb")
        self.process = subprocess.Popen(
            self.command("serve", "--listen", "none"), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def command(self, *args: str) -> list[str]:
        return [self.millrace, "--namespace", str(self.namespace), *args]

    def call(self, *args: str) -> str:
        """Runs a command to its end; returns its output."""
        done = subprocess.run(self.command(*args), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"millrace {' '.join(args)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
        return done.stdout

    def rows(self, *args: str) -> list[dict]:
        """The output of a command, as an object for each line."""
        return [json.loads(line) for line in self.call("--json", *args).splitlines()]

    def append(self, records: Iterable[tuple[str, str]], progress: Callable[[int], None]) -> None:
        """Appends (log, text) records in order, in one stream."""
        feeder = subprocess.Popen(
            self.command("log", "append", "--ndjson", "--quiet"),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        count = 0
        try:
            for log, text in records:
                feeder.stdin.write(json.dumps({"log": log, "data": text}) + "\n")
                count += 1
                if count % CHUNK_RECORDS == 0:
                    progress(count)
        except BrokenPipeError:
            pass  # its exit code and what it said tell more
        _, said = feeder.communicate()
        if feeder.returncode:
            raise Failed(f"millrace log append: {said.strip() or f'exit code {feeder.returncode}'}")

    def wait_idle(self, timeout_s: float, progress: Callable[[dict[str, int]], None]) -> None:
        """Waits until no run is pending, and prints the pending runs from time to time."""
        deadline = time.monotonic() + timeout_s
        while not self.idle_within("500ms"):
            if self.process.poll() is not None:
                raise Failed(f"the host ended by itself; see {self.log.name}")
            if time.monotonic() > deadline:
                raise Failed(f"runs are still pending after {timeout_s:.0f} s:\n{self.call('why')}")
            progress(self.pending())

    def idle_within(self, timeout: str) -> bool:
        command = self.command("run", "wait", "--idle", "--timeout", timeout)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def pending(self) -> dict[str, int]:
        """How many runs of each function are pending."""
        return {row["name"]: row["pending"] for row in self.rows("function", "ls")}

    def records(self, log: str) -> list[dict]:
        """All records of a log, decoded from JSON."""
        return [json.loads(row["data"]) for row in self.rows("log", "get", log, "--all")]

    def check_none_dead(self) -> None:
        """Raises if a record has become a dead letter."""
        dead = [log["name"] for log in self.rows("log", "ls", "dead/") if log["latest"]]
        if dead:
            raise Failed(
                f"records ended in {', '.join(dead)}, the first of them: {self.call('log', 'get', dead[0], '1')}"
            )
