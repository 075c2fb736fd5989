"""What the tests share: namespaces in temporary directories, and the real program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import pytest

import millrace

@dataclass
class Host:
    """A running host, and where its namespace can be reached."""

    process: subprocess.Popen[str]
    address: str
    socket: str


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
