"""What the tests of HTTP share: a real host with functions, on a port of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
import requests

ROOT = Path(__file__).resolve().parents[2]
# The longest that anything may take before a test fails; generous, because only liveness is meant.
PATIENCE_S = 120

APPLICATION = """
[namespace]
segment_size = "16MiB"
durability = "{durability}"
[logs."raw/kitchen"]
[logs.out]
[functions.copy]
runtime = "oneshot"
code = "copy.sh"
command = ["./copy.sh"]
on = ["raw/kitchen"]
retries = 0
"""
COPY = """#!/bin/sh
record=$(cat)
[ "$record" != poison ] || exit 1
printf 'out\\t%s\\n' "$record" >&"$MILLRACE_APPEND_FD"
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The operations of a description are tests of one name. Processes that share the work tell tests apart by their names
    alone, and would run one of them."""
    seen: Counter[str] = Counter()
    for item in items:
        seen[item.nodeid] += 1
        if (number := seen[item.nodeid]) > 1:
            item._id = dataclasses.replace(item._id, params=str(number))  # type: ignore[attr-defined]
    assert len({item.nodeid for item in items}) == len(items), "two tests have one name"


class Host:
    """A running host and its namespace `farm`."""

    def __init__(self, place: Path, durability: str = "memory", patience: str = "30s") -> None:
        # A namespace is served under the name of the directory that holds it.
        self.place = place = place / "farm"
        place.mkdir()
        self.binary = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
        assert self.binary.is_file(), f"{self.binary} is not there; build it with `cargo build -p millrace-cli`"
        (place / "millrace.toml").write_text(APPLICATION.format(durability=durability))
        (place / "copy.sh").write_text(COPY)
        (place / "copy.sh").chmod(0o755)
        self.run("up")
        self.run("cluster", "init")
        self.process: Optional[subprocess.Popen[str]] = None
        self.patience = patience
        self.start()

    def run(self, *args: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        done = subprocess.run(
            [self.binary, *args], cwd=self.place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *more: str) -> None:
        command = [str(self.binary), "serve", "--listen", "127.0.0.1:0", "--drain", "100s", "--patience", self.patience, *more]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}
        self.process = subprocess.Popen(
            command, cwd=self.place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if found := re.search(r"http://(127\.0\.0\.1):(\d+)", line):
                self.port = int(found[2])
                self.url = found[0]
                self.ns = f"{self.url}/v1/namespaces/farm"
                return
        raise AssertionError(f"the host did not say where it listens:\n{said}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def append(self, log: str, data: bytes, **headers: str) -> dict[str, Any]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = requests.post(f"{self.ns}/logs/{log}/records", data=data, headers=sent, timeout=PATIENCE_S)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def idle(self) -> None:
        self.run("run", "wait", "--idle", "--timeout", f"{PATIENCE_S}s")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = Host(tmp_path_factory.mktemp("farm"))
    yield running
    assert running.stop() == 0, "the host stops when it is told to, and without a complaint"


@pytest.fixture
def own_host(tmp_path: Path) -> Iterator[Host]:
    """A host that a test may stop."""
    running = Host(tmp_path)
    yield running
    running.stop(signal.SIGKILL)


@pytest.fixture
def impatient_host(tmp_path: Path) -> Iterator[Host]:
    """A host that waits a second for the head of a request."""
    running = Host(tmp_path, patience="3s")
    yield running
    running.stop(signal.SIGKILL)


@pytest.fixture
def patient_host(tmp_path: Path) -> Iterator[Host]:
    """A host that gives nobody up before the test does."""
    running = Host(tmp_path, patience="1000s")
    yield running
    running.stop(signal.SIGKILL)


def error_of(answer: requests.Response) -> dict[str, Any]:
    """The error that an answer is: the one body that every error has."""
    assert answer.headers["content-type"] == "application/json", answer.text
    body = json.loads(answer.text)
    assert set(body) == {"error"}, body
    error = body["error"]
    assert re.fullmatch(r"MR\d{4}", error["code"]) and error["detail"], error
    assert error["cause"].endswith(".") and error["remedy"].endswith("."), error
    return error
