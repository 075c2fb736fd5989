"""Bridges: mosquitto as a client of a host, and a host as a client of mosquitto."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import PATIENCE_S, Host, Mosquitto, environment
from test_rules import add_rules

RULES = """
[mqtt]
topics = [{ filter = "sensors/#", log = "sensors/{#}" }, { filter = "site/#", log = "site/{#}" }]
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what: str, holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


class Broker:
    """A mosquitto that keeps its sessions in a file, and can be killed."""

    def __init__(self, mosquitto: Mosquitto, place: Path, more: str = "") -> None:
        self.mosquitto, self.place, self.port = mosquitto, place, free_port()
        place.mkdir()
        # Each change is saved, so that a broker that is killed loses nothing that it has acknowledged.
        (place / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\npersistence true\npersistence_location {place}/\nautosave_on_changes true\n"
            f"autosave_interval 1\nmax_queued_messages 0\nlog_dest stderr\n"
            # Where root runs it, it would become a user who may not read these files.
            + ("user root\n" if os.geteuid() == 0 else "") + (more or "allow_anonymous true\n")
        )
        self.start()

    def start(self) -> None:
        self.log = (self.place / "log").open("a")
        command = [self.mosquitto.broker(), "-v", "-c", self.place / "mosquitto.conf"]
        self.process = subprocess.Popen(command, env=self.mosquitto.env, stdout=self.log, stderr=self.log)
        until("the broker listens", self.listens)

    def listens(self) -> bool:
        assert self.process.poll() is None, (self.place / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(PATIENCE_S)
        self.log.close()

    def said(self) -> str:
        return (self.place / "log").read_text()


class Bridge:
    """A running `millrace mqtt bridge`."""

    def __init__(self, host: Host, broker: Broker, *args: str) -> None:
        self.command = [host.binary, "mqtt", "bridge", f"mqtt://127.0.0.1:{broker.port}", *args]
        self.host = host
        self.file = host.place.parent / f"bridge-{time.monotonic_ns()}.log"
        self.start()

    def start(self) -> Bridge:
        out = self.file.open("a")
        self.process = subprocess.Popen(self.command, cwd=self.host.place, env=environment(), stdout=out, stderr=out)
        return self

    def connected(self) -> Bridge:
        until("the bridge is connected", lambda: "connected to" in self.said())
        return self

    def said(self) -> str:
        return self.file.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def broker(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[Broker]:
    running = Broker(mosquitto, tmp_path / "broker")
    yield running
    running.stop()


def missing(host: Host, log: str, wanted: set[str]) -> set[str]:
    return wanted - set(host.values(log))


def test_mosquitto_is_bridged_to_a_host_both_ways(host: Host, mosquitto: Mosquitto, tmp_path: Path) -> None:
    add_rules(host, RULES)
    connection = (
        f"allow_anonymous true\nconnection farm\naddress 127.0.0.1:{host.port}\nremote_clientid from-mosquitto\n"
        "cleansession false\nbridge_protocol_version mqttv50\nnotifications false\ntry_private false\n"
        "topic sensors/# out 1\ntopic raw/# in 1\n"
    )
    broker = Broker(mosquitto, tmp_path / "broker", connection)
    try:
        until("the bridge is subscribed", lambda: "from-mosquitto" in host.run("mqtt", "ls") and "raw/#" in host.run("mqtt", "ls"))
        sub = mosquitto.sub(host, "-q", "1", "-t", "raw/#", port=broker.port).subscribed()
        assert mosquitto.pub(host, "sensors/hall", "21", "-q", "1", port=broker.port).returncode == 0
        assert host.wait_record("sensors/hall", 1) == "21"
        host.run("log", "append", "raw/kitchen", "down")
        assert sub.messages(1) == ["raw/kitchen 1 0 down"]
        sub.end()
        host.stop(signal.SIGKILL)
        assert mosquitto.pub(host, "sensors/hall", "22", "-q", "1", port=broker.port).returncode == 0
        host.start(again=True)
        assert host.wait_record("sensors/hall", 2) == "22", "mosquitto sends what it has queued"
    finally:
        broker.stop()


def test_a_bridge_hands_on_both_ways_and_with_prefixes(host: Host, broker: Broker, mosquitto: Mosquitto) -> None:
    add_rules(host, RULES)
    out = ["--in", "sensors/#", "--out", "raw/#", "--remote-prefix", "far/", "--local-prefix", ""]
    bridge = Bridge(host, broker, *out).connected()
    sub = mosquitto.sub(host, "-q", "1", "-V", "5", "-t", "far/raw/#", port=broker.port).subscribed()
    until("both are subscribed", lambda: "raw/#" in host.run("mqtt", "ls") and "far/sensors/#" in broker.said())
    done = mosquitto.pub(
        host, "far/sensors/hall", "21", "-q", "1", "-V", "5", "-D", "publish", "user-property", "unit", "C", port=broker.port
    )
    assert done.returncode == 0, done.stderr
    assert host.wait_record("sensors/hall", 1) == "21"
    assert json.loads(host.records("sensors/hall")[0])["headers"] == [["unit", "C"]]
    host.run("log", "append", "raw/kitchen", "down")
    assert sub.messages(1) == ["far/raw/kitchen 1 0 down"]
    sub.end()
    bridge.stop()
    old = Bridge(host, broker, *out, "--v3", "--client-id", "old").connected()
    assert mosquitto.pub(host, "far/sensors/hall", "22", "-q", "1", port=broker.port).returncode == 0
    assert host.wait_record("sensors/hall", 2) == "22"
    old.stop()


@pytest.mark.parametrize("victim", ["bridge", "host"])
def test_nothing_that_was_acknowledged_is_lost_by_a_kill(host: Host, broker: Broker, mosquitto: Mosquitto, victim: str) -> None:
    add_rules(host, RULES)
    bridge = Bridge(host, broker, "--in", "sensors/#", "--out", "raw/#").connected()
    until("it is subscribed", lambda: "raw/#" in host.run("mqtt", "ls") and "sensors/#" in broker.said())
    keeper = ["-q", "1", "-c", "-i", "keeper", "-t", "raw/#"]
    sub = mosquitto.sub(host, *keeper, port=broker.port).subscribed()
    sub.end()
    inward: set[str] = set()
    outward: set[str] = set()
    for round_ in range(4):
        lines = [f"{round_}-{number}" for number in range(100)]
        # mosquitto_pub ends once every message is acknowledged.
        sent = mosquitto.pub(host, "sensors/hall", "", "-q", "1", "-l", stdin="\n".join(lines) + "\n", port=broker.port)
        assert sent.returncode == 0, sent.stderr
        inward.update(lines)
        host.append("raw/hall", lines)
        outward.update(lines)
        if victim == "host":
            host.stop(signal.SIGKILL)
            host.start(again=True)
        else:
            bridge.stop(signal.SIGKILL)
            bridge.start()
    until("all that came in is there", lambda: not missing(host, "sensors/hall", inward))
    sub = mosquitto.sub(host, *keeper, port=broker.port)
    came: set[str] = set()
    while not outward <= came:
        (line,) = sub.messages(1)
        assert line.startswith("raw/hall 1 0 "), line
        came.add(line.split(" ", 3)[3])
    sub.end()
    assert bridge.process.poll() is None, bridge.said()
    bridge.stop()


def test_a_message_that_cannot_be_appended_ends_the_bridge_and_stays(host: Host, broker: Broker, mosquitto: Mosquitto) -> None:
    bridge = Bridge(host, broker, "--in", "lost/#").connected()
    until("it is subscribed", lambda: "lost/#" in broker.said())
    assert mosquitto.pub(host, "lost/one", "kept", "-q", "1", port=broker.port).returncode == 0
    assert bridge.process.wait(PATIENCE_S) != 0
    assert "MR6318" in bridge.said(), bridge.said()
    assert "lost/one" in host.run("why", "mqtt")
    host.run("log", "create", "lost/one")
    again = bridge.start()
    assert host.wait_record("lost/one", 1) == "kept"
    again.stop()


def test_a_broker_that_is_away_is_waited_for_and_one_that_refuses_is_not(host: Host, mosquitto: Mosquitto, tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.touch(0o600)
    subprocess.run([mosquitto.tool("mosquitto_passwd"), "-b", passwords, "site", "secret-of-site"], env=mosquitto.env, check=True)
    broker = Broker(mosquitto, tmp_path / "broker", f"allow_anonymous false\npassword_file {passwords}\n")
    try:
        for user in [[], ["--user", "site", "--password-file", "wrong"]]:
            (host.place / "wrong").write_text("wrong\n")
            bridge = Bridge(host, broker, "--out", "raw/#", *user)
            assert bridge.process.wait(PATIENCE_S) != 0
            assert "MR6319" in bridge.said(), bridge.said()
        (host.place / "right").write_text("secret-of-site")
        host.run("secret", "set", "broker", "--file", "right")
        broker.stop()
        bridge = Bridge(host, broker, "--out", "raw/#", "--user", "site", "--secret", "broker")
        until("it says why it waits", lambda: "MR6317" in bridge.said())
        broker.start()
        bridge.connected()
        bridge.stop()
        assert "secret-of-site" not in bridge.said()
    finally:
        broker.stop()


@pytest.mark.parametrize(
    ("args", "said", "status"),
    [
        (["mqtt://127.0.0.1"], "no topics", 2),
        (["mqtt://127.0.0.1", "--in", "a/#", "--out", "a/+/b"], "would come back", 1),
        (["mqtt://127.0.0.1", "--in", "a#"], "MR6307", 1),
        (["127.0.0.1", "--in", "a"], "mqtt://HOST", 2),
        (["mqtt://192.0.2.1", "--in", "a", "--user", "u", "--password-file", "wrong"], "--plain", 2),
    ],
)
def test_what_cannot_be_bridged_is_refused_at_once(host: Host, args: list[str], said: str, status: int) -> None:
    (host.place / "wrong").write_text("wrong")
    assert said in host.run("mqtt", "bridge", *args, status=status)
