"""What the tests share: namespaces in temporary directories, and the real program."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import pytest

import millrace

@dataclass
class Host:
    """A running host, and where its namespace can be reached."""

    process: subprocess.Popen[str]
    address: str
    socket: str


#: Longer than any host takes to start, or any group to elect, on a busy machine.
PATIENCE_S = 120.0
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def ns(tmp_path: Path) -> Iterator[millrace.Namespace]:
    """A namespace in memory's durability with one log, `raw`."""
    with millrace.create(tmp_path / "ns", durability="memory", segment_bytes=1 << 20) as namespace:
        namespace.create_log("raw")
        yield namespace


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[millrace.Namespace]:
    """A namespace whose appends wait for the disk, with one log, `raw`."""
    with millrace.create(tmp_path / "disk", segment_bytes=1 << 20) as namespace:
        namespace.create_log("raw")
        yield namespace


@pytest.fixture(scope="session")
def binary() -> Path:
    """The program `millrace`: as MILLRACE_BIN says, else as `cargo build` makes it."""
    path = Path(os.environ.get("MILLRACE_BIN") or ROOT / "target/debug/millrace")
    assert path.is_file(), f"{path} is not there; build it with `cargo build -p millrace-cli`, or set MILLRACE_BIN"
    return path


@pytest.fixture(scope="module")
def farm(binary: Path, request: pytest.FixtureRequest) -> Iterator[millrace.Connection]:
    """A private host, with an executor of two workers, which get the classes of the test's module by value."""
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(request.module)
    with millrace.connect() as connection, connection.Executor(workers=2):
        yield connection


@pytest.fixture
def host(binary: Path) -> Iterator[Callable[..., Host]]:
    """Starts hosts of local namespaces, and ends them with the test. They tell their address."""
    started: list[subprocess.Popen[str]] = []

    def start(namespace: millrace.Namespace, listen: str = "127.0.0.1:0") -> Host:
        command = [str(binary), "--json", "serve", "-n", namespace.address, "--name", "farm", "--listen", listen]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        return Host(process, "".join(told["addresses"]), f"unix:{told['socket']}")

    yield start
    for process in started:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.fixture
def port() -> Iterator[int]:
    """A port for hosts that follow each other; the system gives it to nobody else meanwhile."""
    with socket.socket() as reserved:
        # Bound and not listening: whoever sets the same option and asks for this very port, as a host does, may bind it too.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        number: int = reserved.getsockname()[1]
        yield number


def patiently(expected: object, read: Callable[[float], object]) -> None:
    """Reads with a timeout that grows, until the machine is fast enough for what comes before it."""
    found: object = None
    for timeout in (0.3, 3.0, 30.0, 90.0):
        found = read(timeout)
        if found == expected:
            return
    assert found == expected


def python(*arguments: str, cwd: Optional[Path] = None) -> subprocess.CompletedProcess[str]:
    """Runs this interpreter; outside the source tree, so that the installed package is what is imported."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd or "/", capture_output=True, text=True, timeout=600, check=False
    )


class Site:
    """A host of a cluster, in a directory of its own."""

    def __init__(self, binary: Path, folder: Path, number: int) -> None:
        self._binary, self.folder, self._number = binary, folder, number
        folder.mkdir()
        self.run("init", "--bare")
        self.directory = str(folder / ".millrace")
        self.label = ""
        self.process: Optional[subprocess.Popen[str]] = None

    def run(self, *words: str) -> str:
        done = subprocess.run([str(self._binary), *words], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def rows(self, *words: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run("--json", *words).splitlines() if line]

    def start(self, *more: str) -> str:
        """Serves; its address."""
        listen = f"127.0.0.1:{self._port()}"
        command = [str(self._binary), "--json", "serve", "--name", "site", "--listen", listen, "--election", "500ms", *more]
        command += ["--label", self.label] if self.label else []
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.address = str(told["addresses"][0])
        return self.address

    def _port(self) -> str:
        # It keeps the port over restarts, since the others know it there.
        return self.address.rpartition(":")[2].partition("/")[0] if hasattr(self, "address") else "0"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


def eventually(what: str, check: Any) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


@contextlib.contextmanager
def cluster(binary: Path, folder: Path, *labels: str) -> Iterator[list[Site]]:
    """Three hosts of one cluster, of which all vote, and which have one of these labels each."""
    all_sites = [Site(binary, folder / f"{number}", number) for number in range(3)]
    for site, label in zip(all_sites, labels):
        site.label = label
    first = all_sites[0]
    first.run("cluster", "init", "--site", "campus")
    first.run("cluster", "secret", "--out", "cluster.secret")
    secret = (first.folder / "cluster.secret").read_text()
    try:
        address = first.start()
        for site in all_sites[1:]:
            path = site.folder / "cluster.secret"
            path.write_text(secret)
            path.chmod(0o600)
            site.start("--join", address, "--cluster-secret", "cluster.secret", "--site", "lab")

        def all_vote() -> bool:
            roles = [host["role"] for host in json.loads(first.run("--json", "cluster", "ls"))["hosts"]]
            return len(roles) == 3 and "learner" not in roles

        eventually("all hosts vote", all_vote)
        yield all_sites
    finally:
        for site in all_sites:
            site.kill()
