"""Sessions and wills that outlive the host: it is killed, and another one takes its place."""

from __future__ import annotations

import random
import signal
import socket
import struct
from typing import Any, Optional

from conftest import PATIENCE_S, Host
from packets import connect, ends, packet, publish, read_packet, session, subscribe, text

LENGTH = len(text("raw/hall"))
KEPT = b"\x11" + struct.pack(">I", 600)


def kill(host: Host) -> None:
    host.stop(signal.SIGKILL)


def start_again(host: Host) -> None:
    kill(host)
    host.start()


def test_a_session_outlives_a_killed_host(host: Host) -> None:
    stream = session(host, "lamp", flags=0)
    stream.sendall(subscribe("raw/+", qos=1))
    assert read_packet(stream) == (0x90, b"\0\1\1")
    kill(host)
    stream.close()
    for number in range(1, 4):
        host.run("log", "append", "raw/hall", str(number))
    host.start()
    host.run("log", "append", "raw/hall", "4")
    with session(host, "lamp", present=True, flags=0) as stream:
        came = [read_packet(stream) for _ in range(4)]
        assert [(kind, body[LENGTH + 2 :]) for kind, body in came] == [(0x32, b"%d" % number) for number in range(1, 5)]
    # What was sent and not acknowledged is sent again, by whichever host there is.
    start_again(host)
    with session(host, "lamp", present=True, flags=0) as stream:
        again = [read_packet(stream) for _ in range(4)]
        assert [body[LENGTH + 2 :] for _, body in again] == [b"%d" % number for number in range(1, 5)]
    session(host, "lamp").close()
    start_again(host)
    session(host, "lamp", flags=0).close()


def test_a_message_of_quality_2_is_one_record_however_often_the_host_is_killed(host: Host) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    count, stream, known = 12, None, False
    for number in range(1, count + 1):
        key = struct.pack(">H", number % 3 + 1)
        body = text("raw/hall") + key + b"%d" % number
        # The steps of a message; the host is killed at most once in each, and the step is repeated.
        for first, again, answer in [
            (packet(0x34, body), packet(0x3C, body), 0x50),
            (packet(0x62, key), packet(0x62, key), 0x70),
        ]:
            sent, kills = first, numbers.choice([0, 0, 1, 2])
            while True:
                if stream is None:
                    stream = host.connect()
                    stream.sendall(connect("exact", flags=0))
                    assert read_packet(stream) == (0x20, bytes([known, 0]))
                    known = True
                stream.sendall(sent)
                how = numbers.choice(["at once", "answered"]) if kills else "not"
                if how != "at once":
                    kind, told = read_packet(stream)
                    assert (kind, told[:2]) == (answer, key)
                if how == "not":
                    break
                kills, sent = kills - 1, again
                start_again(host)
                stream.close()
                stream = None
    assert host.values("raw/hall") == [str(number) for number in range(1, count + 1)]
    assert stream is not None
    stream.close()


def test_a_subscriber_of_quality_2_gets_each_message_once_however_often_the_host_is_killed(host: Host) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    stream: Optional[socket.socket] = session(host, "exact", flags=0)
    assert stream is not None
    stream.sendall(subscribe("raw/hall", qos=2))
    assert read_packet(stream) == (0x90, b"\0\1\2")
    count = 30
    for number in range(1, count + 1):
        host.run("log", "append", "raw/hall", str(number))
    # The client delivers a message when it comes, and knows its id until the host releases it.
    came: list[bytes] = []
    held: set[bytes] = set()
    kills = 6
    while len(came) < count or held:
        if stream is None:
            stream = session(host, "exact", present=True, flags=0)
        kind, body = read_packet(stream)
        if kind & 0xF0 == 0x30:
            key = body[LENGTH : LENGTH + 2]
            if key not in held:
                came.append(body[LENGTH + 2 :])
            held.add(key)
            stream.sendall(packet(0x50, key))
        else:
            assert kind == 0x62
            held.discard(body[:2])
            stream.sendall(packet(0x70, body[:2]))
        if kills and numbers.random() < 0.2:
            kills -= 1
            start_again(host)
            stream.close()
            stream = None
    assert came == [b"%d" % number for number in range(1, count + 1)]
    if stream is not None:
        stream.close()


def willing(host: Host, client: str, delay_s: int) -> socket.socket:
    will = b"\x05\x18" + struct.pack(">I", delay_s) + text("raw/hall") + text(client)
    return session(host, client, level=5, flags=0x06, keep_alive_s=1, more=will)


def test_the_will_of_a_client_whose_host_died_is_appended_once(host: Host) -> None:
    streams = [willing(host, "back", 0), willing(host, "gone", 3), willing(host, "left", 0)]
    streams[2].sendall(b"\xe0\0")
    assert ends(streams[2]) == b""
    with session(host, "other") as other:
        other.sendall(publish("raw/kitchen", b"later than that", 1))
        assert read_packet(other) == (0x40, b"\0\1")
    start_again(host)
    back = session(host, "back", level=5, keep_alive_s=0)
    assert host.wait_record("raw/hall", 1) == "gone", "those of the others would have come before"
    start_again(host)
    willing(host, "last", 0).close()
    assert host.wait_record("raw/hall", 2) == "last"
    for stream in [*streams, back]:
        stream.close()


def test_a_group_outlives_a_killed_host(host: Host) -> None:
    with session(host, "member", flags=0) as member:
        member.sendall(subscribe("$share/group/raw/+", qos=1))
        assert read_packet(member) == (0x90, b"\0\1\1")
        host.run("log", "append", "raw/hall", "1")
        assert read_packet(member)[1].endswith(b"1")
    host.run("log", "append", "raw/hall", "2")
    start_again(host)
    host.run("log", "append", "raw/hall", "3")
    with session(host, "member", present=True, flags=0) as member:
        came = {read_packet(member)[1][LENGTH + 2 :] for _ in range(3)}
        assert came == {b"1", b"2", b"3"}, "what it held, what nobody took, and what is new"


def test_a_client_is_told_how_many_messages_the_log_no_longer_had(host: Host) -> None:
    host.run("log", "create", "short", "--history", "10")
    who: dict[str, Any] = {"level": 5, "flags": 0, "properties": KEPT}
    with session(host, "slow", **who) as stream:
        stream.sendall(packet(0x82, b"\0\1\0" + text("short") + b"\1"))
        assert read_packet(stream) == (0x90, b"\0\1\0\1")
    for number in range(1, 51):
        host.run("log", "append", "short", str(number))
    start_again(host)
    with session(host, "slow", present=True, **who) as stream:
        stream.settimeout(PATIENCE_S)
        _, body = read_packet(stream)
        assert body.endswith(b"\x26" + text("millrace-lost") + text("40") + b"41"), body
        assert read_packet(stream)[1].endswith(b"\x0042"), "it is told once"
    host.wait_logged("which the log no longer has")
