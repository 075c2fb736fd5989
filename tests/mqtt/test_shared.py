"""Shared subscriptions: each record goes to one member of a group."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from conftest import PATIENCE_S, Host
from packets import publish, read_packet, session, subscribe, text
from test_clients import Client


def test_each_record_goes_to_one_member_of_a_group(host: Host) -> None:
    members = [Client(host, f"member-{number}") for number in range(3)]
    other = Client(host, "other")
    for client in [*members, other]:
        client.connect()
        (reason,) = client.subscribe("raw/+" if client is other else "$share/group/raw/+", 1)
        assert reason.value == 1
    for number in range(60):
        other.publish("raw/hall", str(number))
    assert [int(other.next().payload) for _ in range(60)] == list(range(60)), "who shares nothing gets everything"
    came: list[int] = []
    until = time.monotonic() + PATIENCE_S
    while len(came) < 60:
        assert time.monotonic() < until, came
        came += [int(member.next().payload) for member in members if not member.came.empty()]
    assert sorted(came) == list(range(60))
    assert all(member.came.empty() for member in members)
    members[0].disconnect()
    other.publish("raw/hall", "later")
    other.publish("raw/hall", "latest")
    later = {member.next().payload for member in members[1:]}
    assert later == {b"later", b"latest"}, "the others take turns"
    for client in [*members[1:], other]:
        client.disconnect()


def member(host: Host, name: str, qos: int, **more: Any) -> socket.socket:
    stream = session(host, name, **more)
    stream.sendall(subscribe("$share/group/raw/+", qos=qos))
    assert read_packet(stream) == (0x90, bytes([0, 1, qos]))
    return stream


def test_what_a_lost_member_held_goes_to_others(host: Host) -> None:
    count = 20
    mute, other = member(host, "mute", 1, flags=0), member(host, "other", 1)
    with session(host, "loud") as loud:
        for number in range(1, count + 1):
            loud.sendall(publish("raw/hall", b"%d" % number, number))
            assert read_packet(loud)[0] == 0x40
    length = len(text("raw/hall"))
    held = {read_packet(mute)[1][length + 2 :] for _ in range(count // 2)}
    mute.close()
    came: dict[bytes, bytes] = {}
    while len(came) < count:
        _, body = read_packet(other)
        came[body[length + 2 :]] = body[length : length + 2]
        other.sendall(b"\x40\x02" + body[length : length + 2])
    assert set(came) == {b"%d" % number for number in range(1, count + 1)} and held < set(came)
    other.close()
    mute = session(host, "mute", present=True, flags=0)
    mute.sendall(b"\xc0\0")
    assert read_packet(mute) == (0xD0, b""), "it holds nothing any more"
    mute.close()


def test_a_member_that_reads_nothing_does_not_stop_the_others(host: Host) -> None:
    deaf = host.connect()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.close()
    deaf, other = member(host, "deaf", 0), member(host, "other", 0)
    big = b"x" * 200_000
    got = 0
    with session(host, "loud") as loud:
        for number in range(1, 201):
            loud.sendall(publish("raw/hall", big, number))
            assert read_packet(loud) == (0x40, struct.pack(">H", number))
            other.setblocking(False)
            try:
                while data := other.recv(1 << 20):
                    got += len(data)
            except BlockingIOError:
                pass
        other.settimeout(PATIENCE_S)
        loud.sendall(publish("raw/hall", b"end", 1))
        left = b""
        # 20 MB are for the deaf one, more than the kernel keeps for it; the rest, and the end, come here.
        while not left.endswith(text("raw/hall") + b"end"):
            left = (left + other.recv(1 << 20))[-64:]
        for number in range(6):
            loud.sendall(publish("raw/hall", b"%d" % number, 2))
            while not left.endswith(text("raw/hall") + b"%d" % number):
                left = (left + other.recv(1 << 20))[-64:]
    deaf.close()
    other.close()
