"""Users of MQTT: a name, a password, and topics."""

from __future__ import annotations

import json
import signal
import socket
import struct
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from conftest import Host, Mosquitto
from packets import connect, ends, packet, publish, read_packet, session, subscribe, text
from test_connections import publish5
from test_rules import RULES, add_rules


def user(name: str, password: str, flags: int = 0xC2, will: bytes = b"") -> dict[str, Any]:
    return {"flags": flags, "more": will + text(name) + text(password)}


def test_a_user_may_use_its_own_topics_only(host: Host) -> None:
    add_rules(host, RULES)
    wanted = ["--publish", "tele/lamp/#", "--publish", "raw/kitchen", "--subscribe", "raw/hall"]
    password = host.run("mqtt", "user", "add", "lamp", *wanted).strip()
    assert len(password) == 22
    assert "lamp  publishes tele/lamp/#, raw/kitchen; receives raw/hall" in host.run("mqtt", "user", "ls")
    assert "MR6313" in host.run("mqtt", "user", "add", "lamp", *wanted, status=1)
    for wrong in [user("lamp", password[:-1]), user("lamb", password), user("", password), user("lamp", "")]:
        with host.connect() as stream:
            stream.sendall(connect("guess", **wrong))
            assert ends(stream) == b"\x20\x02\0\4"
    with session(host, "lamp", level=5, **user("lamp", password)) as stream:
        stream.sendall(packet(0x82, b"\0\1\0" + text("#") + b"\0"))
        assert read_packet(stream) == (0x90, b"\0\1\0\0"), "what it may not receive does not come"
        stream.sendall(packet(0x82, b"\0\2\0" + text("raw/kitchen") + b"\0" + text("raw/hall") + b"\0"))
        assert read_packet(stream) == (0x90, b"\0\2\0\x87\0")
        for number, (topic, answer) in enumerate(
            [("tele/lamp/state", b""), ("raw/kitchen", b""), ("raw/hall", b"\x87"), ("tele/door", b"\x87"), ("out", b"\x87")], 1
        ):
            stream.sendall(publish5(topic, b"on", number))
            assert read_packet(stream) == (0x40, struct.pack(">H", number) + answer), topic
        host.run("log", "append", "raw/hall", "public")
        assert read_packet(stream) == (0x30, text("raw/hall") + b"\0public"), "nothing of raw/kitchen came"
    assert host.wait_record("tele/lamp/state", 1) == "on"
    assert (host.values("raw/kitchen"), host.values("raw/hall")) == (["on"], ["public"])


def test_a_will_of_a_user_is_for_its_own_topics(host: Host) -> None:
    password = host.run("mqtt", "user", "add", "lamp", "--publish", "raw/kitchen").strip()
    for topic in ["raw/hall", "raw/kitchen"]:
        session(host, "lamp", **user("lamp", password, 0xC6, text(topic) + text("gone"))).close()
    assert host.wait_record("raw/kitchen", 1) == "gone"
    assert json.loads(host.run("log", "stat", "raw/hall", "--json"))["latest"] == 0


def test_a_user_that_is_removed_may_do_nothing_more(host: Host) -> None:
    password = host.run("mqtt", "user", "add", "lamp", "--publish", "raw/kitchen").strip()
    with session(host, "lamp", level=5, **user("lamp", password)) as stream:
        stream.sendall(publish5("raw/kitchen", b"1", 1))
        assert read_packet(stream) == (0x40, b"\0\1")
        host.run("mqtt", "user", "rm", "lamp")
        stream.sendall(publish5("raw/kitchen", b"2", 2))
        kind, body = read_packet(stream)
        assert (kind, body[:2]) == (0x40, b"\0\2") and body[2] >= 0x80, "refused"
    with host.connect() as stream:
        stream.sendall(connect("lamp", **user("lamp", password)))
        assert ends(stream) == b"\x20\x02\0\4"
    assert "MR6314" in host.run("mqtt", "user", "rm", "lamp", status=1)
    assert "no users" in host.run("mqtt", "user", "ls")
    again = host.run("mqtt", "user", "add", "lamp", "--publish", "raw/kitchen").strip()
    with session(host, "lamp", **user("lamp", again)) as stream:
        stream.sendall(publish("raw/kitchen", b"3", 1))
        assert read_packet(stream) == (0x40, b"\0\1")
    assert host.values("raw/kitchen") == ["1", "3"]


def test_a_session_of_a_user_outlives_the_host(host: Host) -> None:
    password = host.run("mqtt", "user", "add", "wall", "--subscribe", "raw/#").strip()
    with session(host, "wall", **user("wall", password, 0xC0)) as stream:
        stream.sendall(subscribe("#", qos=1))
        assert read_packet(stream) == (0x90, b"\0\1\1")
    host.stop(signal.SIGKILL)
    host.start()
    host.run("log", "append", "raw/hall", "news")
    with session(host, "wall", present=True, **user("wall", password, 0xC0)) as stream:
        assert read_packet(stream)[1].endswith(b"news")


def test_the_password_is_nowhere_in_the_namespace(host: Host) -> None:
    password = host.run("mqtt", "user", "add", "lamp", "--publish", "raw/kitchen").strip()
    host.stop()
    files = [file for file in host.place.rglob("*") if file.is_file()]
    assert files and not [file for file in files if password.encode() in file.read_bytes()]
    host.start()
    assert json.loads(host.run("--json", "mqtt", "user", "ls"))["user"] == "lamp"


def test_an_address_without_encryption_is_for_users_only(tmp_path: Path, mosquitto: Mosquitto) -> None:
    host = Host(tmp_path)
    host.stop()
    refused = host.run("serve", "--listen", "mqtt-plain=0.0.0.0:0", status=2)
    assert "MR6316" in refused, refused
    password = host.run("mqtt", "user", "add", "lamp", "--publish", "raw/kitchen").strip()
    token = host.capability("--append", "raw/kitchen")
    host.listen = "127.0.0.1:0,mqtt-plain=0.0.0.0:0"
    host.start()
    for user, word in [("", ""), ("lamp", "wrong"), ("farm", token)]:
        who = ["-u", user, "-P", word] if user else []
        done = mosquitto.pub(host, "raw/kitchen", "1", "-q", "1", *who, port=host.only)
        assert done.returncode != 0, user
    host.wait_logged("MR6315")
    done = mosquitto.pub(host, "raw/kitchen", "2", "-q", "1", "-u", "lamp", "-P", password, port=host.only)
    assert done.returncode == 0, done.stderr
    assert host.values("raw/kitchen") == ["2"]
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{host.only}/readyz")
    assert host.stop() == 0


def test_other_machines_may_use_it(tmp_path: Path, mosquitto: Mosquitto) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address besides loopback ones")
        address = probe.getsockname()[0]
    host = Host(tmp_path)
    password = host.run("mqtt", "user", "add", "lamp", "--publish", "raw/kitchen").strip()
    host.stop()
    host.listen = "127.0.0.1:0,mqtt-plain=0.0.0.0:0"
    host.start()
    for word, code in [(password, b"\0"), ("wrong", b"\4")]:
        with socket.create_connection((address, host.only), 60) as stream:
            stream.sendall(connect("lamp", **user("lamp", word)))
            assert read_packet(stream) == (0x20, b"\0" + code)
    assert host.stop() == 0
