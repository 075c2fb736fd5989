"""What a connection does when something is refused for now, when it ends, and when its client comes back."""

from __future__ import annotations

import json
import socket
import struct
import time
from pathlib import Path

from conftest import PATIENCE_S, Host
from packets import connect, ends, packet, password, publish, read_packet, session, subscribe, text
from test_rules import RULES, add_rules


def publish5(topic: str, message: bytes, number: int) -> bytes:
    return packet(0x32, text(topic) + struct.pack(">H", number) + b"\0" + message)


def test_messages_keep_their_order_when_one_is_tried_again(host: Host) -> None:
    token = host.capability("--append", "raw/hall", "--rate", "20000/5")
    count = 60
    with session(host, "busy", **password(token)) as stream:
        stream.sendall(b"".join(publish("raw/hall", b"%d" % number, number) for number in range(1, count + 1)))
        for number in range(1, count + 1):
            assert read_packet(stream) == (0x40, struct.pack(">H", number))
    assert host.values("raw/hall") == [str(number) for number in range(1, count + 1)]


def test_reads_that_are_refused_for_now_lose_no_message(host: Host) -> None:
    token = host.capability("--read", "raw/hall", "--rate", "20/2")
    who = {**password(token), "flags": 0xC0}
    count = 12
    with session(host, "reader", **who) as stream, session(host, "loud") as loud:
        stream.sendall(subscribe("raw/hall", qos=1))
        assert read_packet(stream) == (0x90, b"\0\1\1")
        came = []
        for number in range(1, count + 1):
            loud.sendall(publish("raw/hall", b"%d" % number, number))
            assert read_packet(loud)[0] == 0x40
            came.append(read_packet(stream))
        bodies = [body[len(text("raw/hall")) + 2 :] for _, body in came]
        assert bodies == [b"%d" % number for number in range(1, count + 1)]
    with session(host, "reader", present=True, **who) as stream:
        again = [read_packet(stream) for _ in range(count)]
        assert again == [(0x3A, body) for _, body in came], "the same, with DUP"


def test_packets_at_the_end_of_a_stream_are_handled(host: Host) -> None:
    count = 300
    with host.connect() as stream:
        messages = b"".join(publish("raw/hall", b"%d" % number, number) for number in range(1, count + 1))
        stream.sendall(connect("hasty") + messages)
        stream.shutdown(socket.SHUT_WR)
        host.wait_record("raw/hall", count)
        ends(stream)
    assert host.values("raw/hall") == [str(number) for number in range(1, count + 1)]


def test_nothing_follows_a_disconnect(host: Host) -> None:
    with session(host, "wrong", level=5) as stream:
        messages = b"".join(publish5("raw/hall", b"%d" % number, number) for number in range(1, 50))
        stream.sendall(messages + b"\x00\x00")
        left = ends(stream)
    kinds = []
    while left:
        assert left[1] < 0x80 and len(left) >= 2 + left[1], left
        kinds.append(left[0])
        left = left[2 + left[1] :]
    assert kinds[-1] == 0xE0 and kinds.count(0xE0) == 1, kinds


def test_half_a_packet_is_not_waited_for_forever(tmp_path: Path) -> None:
    host = Host(tmp_path, options=["--patience", "100ms"])
    with session(host, "half", level=5) as stream:
        stream.sendall(b"\x30\x20\0\x08raw")
        assert ends(stream)[:1] == b"\xe0"
    host.wait_logged("the rest of a packet did not come")
    with session(host, "idle", level=5) as stream, session(host, "half", level=5) as half:
        half.sendall(b"\x30")
        ends(half)
        stream.sendall(publish5("raw/hall", b"a whole one", 1))
        assert read_packet(stream)[0] == 0x40, "a client that is silent between packets stays"
    assert host.stop() == 0


def test_the_will_of_a_client_that_is_back_is_not_appended(host: Host) -> None:
    expiry, delay = b"\x11" + struct.pack(">I", 600), b"\x05\x18" + struct.pack(">I", 1)
    for client in ["back", "gone"]:
        will = delay + text("raw/hall") + text(client)
        with session(host, client, level=5, flags=0x0C, properties=expiry, more=will):
            pass
        if client == "back":
            session(host, client, present=True, level=5, flags=0, properties=expiry).close()
    assert host.wait_record("raw/hall", 1) == "gone", "its will was due after that of the other one"


def denials(host: Host, least: int) -> list[str]:
    """What was refused according to the audit log, which is written a moment later."""
    until = time.monotonic() + PATIENCE_S
    while True:
        lines = [json.loads(line) for line in host.run("--json", "cap", "audit").splitlines()]
        found = [line for line in lines if line["act"] == "denied"]
        if len(found) >= least:
            return [line["about"] for line in found]
        assert time.monotonic() < until, lines
        time.sleep(0.05)


def test_a_denied_client_makes_one_line_of_the_audit_log(host: Host) -> None:
    add_rules(host, RULES)
    host.run("log", "create", "tele/lamp")
    reader = session(host, "reader", **password(host.capability("--read", "raw/hall")))
    reader.sendall(subscribe("#"))
    assert read_packet(reader) == (0x90, b"\0\1\0")
    token = host.capability("--append", "tele/")
    with session(host, "lamp", level=5, **password(token)) as lamp:
        for number in range(1, 31):
            lamp.sendall(publish5("tele/lamp", b"%d" % number, number))
            assert read_packet(lamp) == (0x40, struct.pack(">H", number))
        for number in range(1, 31):
            lamp.sendall(publish5("tele/other", b"%d" % number, number))
            assert read_packet(lamp) == (0x40, struct.pack(">H", number) + b"\x87")
    host.run("log", "append", "raw/hall", "public")
    assert read_packet(reader) == (0x30, text("raw/hall") + b"public")
    reader.close()
    host.wait_record("tele/lamp", 30)
    assert set(denials(host, 1)) == {"create log 'tele/other'"}
    assert len(denials(host, 1)) <= 2, "one line, and one that counts the others if a minute is over"
