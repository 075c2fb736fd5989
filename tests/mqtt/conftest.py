"""What the tests of MQTT share: a real host, and the clients that people use."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Optional

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The longest that anything may take before a test fails; generous, because only liveness is meant.
PATIENCE_S = 120
# Where the programs of mosquitto are unpacked, if they are not installed.
TOOLS = ROOT / "target" / "mosquitto"
PACKAGES = ["mosquitto-clients", "libmosquitto1", "libcjson1"]
# The broker, and what it needs besides.
BROKER_PACKAGES = ["mosquitto", "libmosquitto1", "libcjson1", "libdlt2", "libwrap0"]
BROKER_PACKAGES += ["libwebsockets17", "libev4", "libuv1", "libwebsockets19t64", "libev4t64", "libuv1t64"]

APPLICATION = """
[namespace]
segment_size = "16MiB"
durability = "{durability}"
[logs."raw/kitchen"]
[logs."raw/hall"]
[logs.out]
[functions.copy]
runtime = "oneshot"
code = "copy.sh"
command = ["./copy.sh"]
on = ["raw/kitchen"]
retries = 0
"""
COPY = """#!/bin/sh
printf 'out\\tcopied %s\\n' "$(cat)" >&"$MILLRACE_APPEND_FD"
"""


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE")}


class Mosquitto:
    """mosquitto_pub and mosquitto_sub: those that are installed, or those of Debian's packages, unpacked without root."""

    def __init__(self) -> None:
        self.env = environment()
        if found := shutil.which("mosquitto_pub"):
            self.bin = Path(found).parent
            return
        self.bin = TOOLS / "usr/bin"
        self.unpack(PACKAGES)

    def unpack(self, packages: list[str]) -> None:
        """Unpacks packages of Debian; of several processes that want them, one does."""
        TOOLS.mkdir(parents=True, exist_ok=True)
        with (TOOLS / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for package in packages:
                done = TOOLS / f"{package}.unpacked"
                if done.exists():
                    continue
                # Names of libraries differ between releases; one that is missing shows itself when the program starts.
                found = subprocess.run(["apt-get", "download", package], cwd=TOOLS, capture_output=True)
                if found.returncode == 0:
                    for file in TOOLS.glob(f"{package}_*.deb"):
                        subprocess.run(["dpkg", "-x", file, TOOLS], check=True)
                    done.touch()
        libraries = [str(path) for path in [*TOOLS.glob("usr/lib/*"), *TOOLS.glob("lib/*")] if path.is_dir()]
        self.env["LD_LIBRARY_PATH"] = ":".join(libraries)

    def pub(
        self, host: Host, topic: str, message: str, *more: str, stdin: str = "", port: int = 0
    ) -> subprocess.CompletedProcess[str]:
        what = [] if "-l" in more else ["-m", message]
        command = [self.bin / "mosquitto_pub", "-h", "127.0.0.1", "-p", str(port or host.port), "-t", topic, *what, *more]
        return subprocess.run(command, env=self.env, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S)

    def broker(self) -> Path:
        """The broker mosquitto: what is installed, or else Debian's package, unpacked without root."""
        installed = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if installed:
            return Path(installed)
        self.unpack(BROKER_PACKAGES)
        return TOOLS / "usr/sbin/mosquitto"

    def tool(self, name: str) -> Path:
        """A program of the broker's package."""
        self.broker()
        found = shutil.which(name)
        return Path(found) if found else TOOLS / "usr/bin" / name

    def sub(self, host: Host, *more: str, port: int = 0) -> Sub:
        # It buffers what it prints into a pipe, and a test waits for its lines.
        lines = ["stdbuf", "-oL"]
        command = [*lines, self.bin / "mosquitto_sub", "-h", "127.0.0.1", "-p", str(port or host.port), "-F", "%t %q %r %p", "-d", *more]
        return Sub(subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))


class Sub:
    """A mosquitto_sub that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"mosquitto_sub ended: {self.said}"
        self.said.append(line)
        return line.rstrip("\n")

    def subscribed(self) -> Sub:
        while not self.line().startswith("Subscribed"):
            pass
        return self

    def messages(self, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            line = self.line()
            if not re.match(r"(Client|Subscribed)\b", line):
                found.append(line)
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


class Host:
    """A running host and its namespace `farm`."""

    def __init__(self, place: Path, durability: str = "disk", options: Sequence[str] = ()) -> None:
        self.options = options
        self.listen = "127.0.0.1:0,mqtt=127.0.0.1:0"
        self.place = place = place / "farm"
        place.mkdir()
        self.binary = Path(os.environ.get("MILLRACE") or ROOT / "target/debug/millrace")
        assert self.binary.is_file(), f"{self.binary} is not there; build it with `cargo build -p millrace-cli`"
        (place / "millrace.toml").write_text(APPLICATION.format(durability=durability))
        (place / "copy.sh").write_text(COPY)
        (place / "copy.sh").chmod(0o755)
        self.run("up")
        self.process: Optional[subprocess.Popen[str]] = None
        self.start()

    def run(self, *args: str, status: int = 0) -> str:
        done = subprocess.run(
            [self.binary, *args], cwd=self.place, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def start(self, again: bool = False) -> None:
        """Starts; `again` where it listened before."""
        listen = f"127.0.0.1:{self.port},mqtt=127.0.0.1:{self.only}" if again else self.listen
        self.log = (self.place.parent / "host.log").open("a")
        command = [self.binary, "serve", "--listen", listen, "--log-level", "debug", *self.options]
        self.process = subprocess.Popen(
            command, cwd=self.place, env=environment(), stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:
            said += line
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
            if found := re.search(r"mqtt\S* only: \S+:(\d+)", line):
                self.only = int(found[1])
                return
        raise AssertionError(f"the host did not say where it listens:\n{said}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def logged(self) -> str:
        return (self.place.parent / "host.log").read_text()

    def wait_logged(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while text not in self.logged():
            assert time.monotonic() < until, f"the host did not log {text!r}:\n{self.logged()[-2000:]}"
            time.sleep(0.02)

    def append(self, log: str, lines: Iterable[str]) -> None:
        """Appends a record for each line."""
        text = "".join(f"{line}\n" for line in lines)
        command = [self.binary, "log", "append", log, "--lines"]
        subprocess.run(command, cwd=self.place, env=environment(), input=text, text=True, capture_output=True, check=True, timeout=PATIENCE_S)

    def records(self, log: str) -> list[str]:
        return self.run("log", "get", log, "--from", "1", "--json").splitlines()

    def values(self, log: str) -> list[str]:
        """The records of a log, as text."""
        return [json.loads(line)["data"] for line in self.records(log)]

    def wait_record(self, log: str, seqno: int) -> str:
        def newest() -> int:
            # The log itself may come into being with its first record.
            logs = map(json.loads, self.run("log", "ls", "--json").splitlines())
            return max((int(it["latest"]) for it in logs if it["name"] == log), default=0)

        until = time.monotonic() + PATIENCE_S
        while newest() < seqno:
            assert time.monotonic() < until, f"log {log} has no record {seqno}"
            time.sleep(0.02)
        return self.run("log", "get", log, str(seqno)).rstrip("\n")

    def wait_queued(self, client: str, count: int) -> None:
        """Waits until so many records wait for a client."""
        until = time.monotonic() + PATIENCE_S
        while True:
            lines = [json.loads(line) for line in self.run("--json", "mqtt", "ls", client).splitlines()]
            if any(line.get("client") == client and line["queued"] == count for line in lines):
                return
            assert time.monotonic() < until, lines
            time.sleep(0.02)

    def capability(self, *grants: str) -> str:
        file = self.place.parent / f"{uuid.uuid4()}.cap"
        self.run("cap", "issue", *grants, "--out", str(file))
        return file.read_text().strip()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)


@pytest.fixture(scope="session")
def mosquitto() -> Mosquitto:
    return Mosquitto()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    running = Host(tmp_path)
    yield running
    assert running.stop() == 0, "the host stops when it is told to, and without a complaint"
