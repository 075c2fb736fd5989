"""Hosts of a cluster on this machine, each a process with a namespace of its own, through the command `millrace`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Callable, TypeVar

EXAMPLE = Path(__file__).resolve().parent
REPOSITORY = EXAMPLE.parents[1]
PATIENCE_S = 300
STOP_TIMEOUT_S = 20
ELECTION = "300ms"
T = TypeVar("T")


class Failed(Exception):
    """A check failed; the message says which."""


def find_millrace() -> str:
    """The command: $MILLRACE, one built here, or one in PATH."""
    built = [REPOSITORY / "target" / kind / "millrace" for kind in ("release", "debug")]
    found = os.environ.get("MILLRACE") or next((str(path) for path in built if path.exists()), shutil.which("millrace"))
    if not found:
        raise Failed("there is no `millrace` yet: run `make` at the root of the repository, or set MILLRACE to its path")
    return found


def eventually(what: str, attempt: Callable[[], T | None]) -> T:
    """What an attempt returns once it returns something; until then it is repeated."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = attempt()
        if found:
            return found
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.05)


class Host:
    """A host, which comes back at the address that it had."""

    def __init__(self, name: str, directory: Path, nats: str | None = None) -> None:
        self.name, self.directory, self.nats, self.millrace = name, directory, nats, find_millrace()
        # Bound and not listening: the system gives the port to nobody else, and a host, which sets the same option, may bind it too.
        self.port = socket.socket()
        self.port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port.bind(("127.0.0.1", 0))
        self.process: subprocess.Popen | None = None
        directory.parent.mkdir(parents=True, exist_ok=True)
        self.call("init", "--bare")

    def command(self, *words: str) -> list[str]:
        return [self.millrace, "--namespace", str(self.directory), *words]

    def attempt(self, *words: str) -> str | None:
        """A command's output, or None if it failed."""
        done = subprocess.run(self.command("--json", *words), capture_output=True, text=True, check=False)
        return None if done.returncode else done.stdout

    def call(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"{self.name}: millrace {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def address(self) -> str:
        return f"mr://127.0.0.1:{self.port.getsockname()[1]}/{self.name}"

    def start(self, first: Host | None = None) -> None:
        """Serves, and joins the cluster of another host the first time; returns when it listens."""
        listen = f"127.0.0.1:{self.port.getsockname()[1]}"
        words = ["--json", "serve", "--name", self.name, "--listen", listen, "--election", ELECTION]
        if self.nats:
            words += ["--nats", self.nats]
        if first:
            secret = str(first.directory.parent / "cluster.secret")
            words += ["--join", first.address(), "--cluster-secret", secret, "--site", self.name]
        with open(self.directory.parent / f"{self.name}.log", "ab") as log:
            self.process = subprocess.Popen(self.command(*words), stdout=subprocess.PIPE, stderr=log, text=True)
        if "listening" not in json.loads(self.process.stdout.readline() or "{}"):
            raise Failed(f"{self.name}: the host did not start; see {self.directory.parent / self.name}.log")

    def kill(self) -> None:
        """Ends the host like a power failure."""
        self.process.kill()
        self.process.communicate()
        self.process = None

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.communicate(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()

    def leads(self) -> bool:
        shown = self.attempt("cluster", "ls")
        return shown is not None and json.loads(shown)["role"] == "leader"

    def voters(self) -> int:
        shown = self.attempt("cluster", "ls")
        return sum(host["role"] != "learner" for host in json.loads(shown)["hosts"]) if shown else 0


class Cluster:
    """Hosts of these names. All of them vote when the context is entered, and the applications are applied.

    `nats` has the addresses of NATS servers, if the hosts are to know any.
    """

    def __init__(
        self, directory: Path, names: list[str], applications: dict[str, list[Path]], nats: str | None = None
    ) -> None:
        self.directory, self.names, self.applications, self.nats = directory, names, applications, nats
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> Cluster:
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self) -> None:
        self.hosts = {name: Host(name, self.directory / name, self.nats) for name in self.names}
        first, *others = self.hosts.values()
        first.call("cluster", "init", "--site", first.name)
        first.call("cluster", "secret", "--out", str(self.directory / "cluster.secret"))
        first.start()
        for host in others:
            host.start(first)
        eventually("all hosts vote", lambda: first.voters() == len(self.hosts))
        eventually("a host leads", self.leader)
        for name, files in self.applications.items():
            for file in files:
                self.hosts[name].call("up", "--file", str(file))

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.stop()
            host.port.close()

    def leader(self) -> Host | None:
        """The host that leads the group main, if one of those that run says so."""
        return next((host for host in self.hosts.values() if host.process and host.leads()), None)
