"""What clients send that break the rules, or mean harm: at a real host, which goes on serving others."""

from __future__ import annotations

import os
import random
import resource
import socket
import struct
from pathlib import Path
from typing import Optional

import pytest
from conftest import PATIENCE_S, Host, Mosquitto
from packets import connect, ends, packet, password, publish, read, read_packet, session, subscribe, text


def works(host: Host) -> None:
    """Somebody else is served."""
    with session(host, "other") as stream:
        stream.sendall(publish("raw/hall", b"still", 1))
        assert read_packet(stream) == (0x40, b"\0\1")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (packet(0x10, text("MQTT") + b"\4\3\0\0" + text("c")), None),
        (packet(0x10, text("MQTT") + b"\3\2\0\0" + text("c")), 1),
        (packet(0x10, text("MQTT") + b"\6\2\0\0" + text("c")), 1),
        (packet(0x10, text("XQTT") + b"\4\2\0\0" + text("c")), 1),
        (packet(0x10, b"\xff\xff"), None),
        (b"\x10\xff\xff\xff\x7f", None),
        (b"\x10\xff\xff\xff\xff\xff", None),
        (connect("", flags=0), 2),
        (connect("x" * 300), 2),
        (connect("c", flags=0xC2, more=text("user") + text("no capability")), 4),
        (connect("c", flags=0xC2, more=text("user") + text("mr1_AAAA")), 4),
    ],
    ids=lambda value: value[:20].hex() if isinstance(value, bytes) else str(value),
)
def test_a_first_packet_that_is_wrong_is_refused(host: Host, sent: bytes, code: Optional[int]) -> None:
    with host.connect() as stream:
        stream.sendall(sent)
        assert ends(stream) == (b"" if code is None else bytes([0x20, 2, 0, code])), "3.1.1 has no code for a packet that is wrong"
    works(host)


@pytest.mark.parametrize(
    "sent",
    [
        connect("again"),
        b"\x00\x00",
        b"\xf0\x00",
        b"\x36\x05\0\1a\0\1",
        b"\x32\x05\0\1a\0\0",
        publish("raw/+", b"x"),
        publish("", b"x"),
        b"\x30\x03\0\1\0",
        b"\x30\xff\xff\xff\x7f",
        b"\x82\x02\0\1",
        packet(0x82, b"\0\1" + 1001 * (text("a") + b"\0")),
        b"\xc0\x80\x00",
    ],
    ids=lambda sent: sent[:12].hex(),
)
def test_a_packet_that_is_wrong_ends_its_connection_only(host: Host, sent: bytes) -> None:
    with session(host, "wrong") as stream:
        stream.sendall(sent)
        assert ends(stream) == b"", "3.1.1 has no word for it"
    works(host)


def test_random_bytes_behind_a_connect_end_no_host(host: Host) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    kinds = [0x30, 0x32, 0x34, 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0]
    for _ in range(200):
        with session(host, "noise", level=numbers.choice([4, 5])) as stream:
            body = bytes(numbers.randrange(256) for _ in range(numbers.randrange(40)))
            stream.sendall(packet(numbers.choice(kinds), body) + b"\xe0\0")
            ends(stream)
    works(host)


def test_a_packet_in_pieces_is_one_packet(host: Host) -> None:
    whole = connect("slow") + publish("raw/hall", b"in pieces", 7)
    with host.connect() as stream:
        for byte in whole:
            stream.sendall(bytes([byte]))
        assert read_packet(stream)[0] == 0x20
        assert read_packet(stream) == (0x40, b"\0\7")
    assert host.wait_record("raw/hall", 1) == "in pieces"


def test_a_client_that_is_silent_for_too_long_is_gone_and_its_will_is_appended(host: Host) -> None:
    will = text("raw/hall") + text("silent")
    with host.connect() as stream:
        stream.sendall(connect("silent", flags=0x0E, keep_alive_s=1, more=will))
        assert read_packet(stream)[0] == 0x20
        assert ends(stream) == b""
    assert host.wait_record("raw/hall", 1) == "silent"
    host.wait_logged("MR6312")


def resident_bytes(host: Host) -> int:
    assert host.process is not None
    (line,) = [line for line in Path(f"/proc/{host.process.pid}/status").read_text().splitlines() if "VmRSS" in line]
    return int(line.split()[1]) << 10


def test_a_subscriber_that_never_reads_takes_no_memory_that_grows(host: Host) -> None:
    stream = host.connect()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.sendall(connect("deaf") + subscribe("raw/#"))
    assert read_packet(stream)[0] == 0x20 and read_packet(stream)[0] == 0x90
    with session(host, "loud") as loud:
        message = b"x" * 100_000
        before = 0
        for number in range(1, 401):
            loud.sendall(publish("raw/hall", message, number))
            assert read_packet(loud) == (0x40, struct.pack(">H", number))
            if number == 100:
                before = resident_bytes(host)
        # 30 MB came meanwhile; the files of the journal, which are mapped, have most of them.
        shared = Path(f"/proc/{host.process.pid}/smaps_rollup").read_text()  # type: ignore[union-attr]
        (anonymous,) = [int(line.split()[1]) << 10 for line in shared.splitlines() if line.startswith("Anonymous")]
        assert anonymous < 200 << 20, (before, anonymous)
    # It reads at last, and gets everything that the log still has.
    for number in range(3):
        kind, body = read_packet(stream)
        assert kind == 0x30 and body == text("raw/hall") + message, number
    stream.close()
    works(host)


def test_a_client_that_does_not_acknowledge_gets_64_messages(host: Host) -> None:
    with session(host, "mute") as stream, session(host, "loud") as loud:
        stream.sendall(subscribe("raw/hall", qos=1))
        assert read_packet(stream) == (0x90, b"\0\1\1")
        for number in range(1, 101):
            loud.sendall(publish("raw/hall", b"%d" % number, number))
            assert read_packet(loud)[0] == 0x40
        came = [read_packet(stream)[1][len(text("raw/hall")) :] for _ in range(64)]
        assert [body[2:] for body in came] == [b"%d" % number for number in range(1, 65)]
        stream.sendall(b"\xc0\0")
        assert read_packet(stream) == (0xD0, b""), "nothing more comes before an acknowledgement"
        stream.sendall(packet(0x40, came[0][:2]))
        assert read_packet(stream)[1].endswith(b"65")


def test_many_clients_are_served(host: Host) -> None:
    count = int(os.environ.get("MILLRACE_MQTT_CLIENTS", "300"))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    streams = [session(host, f"many-{number}") for number in range(count)]
    for stream in streams:
        stream.sendall(subscribe("raw/kitchen"))
    for stream in streams:
        assert read_packet(stream)[0] == 0x90
    streams[0].sendall(publish("raw/kitchen", b"all", 1))
    for stream in streams:
        packets = [read_packet(stream) for _ in range(2 if stream is streams[0] else 1)]
        assert (0x30, text("raw/kitchen") + b"all") in packets
        stream.close()


def test_a_message_comes_once_however_many_filters_match(host: Host) -> None:
    with session(host, "greedy") as stream:
        every = ["#", "+/#", "raw/#", "raw/+", "+/hall", "raw/hall"] + [f"raw/hall/{level}/#" for level in range(900)]
        filters = b"".join(text(filter) + bytes([index % 3]) for index, filter in enumerate(every))
        stream.sendall(packet(0x82, b"\0\1" + filters))
        kind, granted = read_packet(stream)
        assert kind == 0x90 and granted[2:] == bytes(index % 3 for index in range(len(every)))
        deep = "/".join(["+"] * 500) + "/#"
        stream.sendall(packet(0x82, b"\0\2" + text(deep) + b"\1"))
        assert read_packet(stream) == (0x90, b"\0\2\1")
        host.run("log", "append", "raw/hall", "once")
        host.run("log", "append", "raw/kitchen", "next")
        (kind, first), (_, second) = read_packet(stream), read_packet(stream)
        assert (kind, first[:10], first[12:]) == (0x34, text("raw/hall"), b"once"), "at the highest quality"
        assert second.endswith(b"next")


def test_topics_of_the_broker_are_not_there(host: Host) -> None:
    with session(host, "probe", level=5) as stream:
        for number, topic in enumerate(["$SYS/broker/uptime", "$SYS", "$share/g/raw/hall", "_audit", "_mqtt/sessions"], 1):
            stream.sendall(packet(0x32, text(topic) + struct.pack(">H", number) + b"\0" + b"x"))
            kind, body = read_packet(stream)
            assert kind == 0x40 and body[2] == 0x90, (topic, body)
        for number, topic in enumerate(["$SYS/#", "_mqtt/sessions", "_audit"], 10):
            stream.sendall(packet(0x82, struct.pack(">H", number) + b"\0" + text(topic) + b"\1"))
            assert read_packet(stream)[0] == 0x90
        stream.sendall(packet(0x32, text("raw/hall") + b"\0\x20\0x"))
        assert read_packet(stream)[0] == 0x40, "nothing else came"


def test_a_wrong_password_a_thousand_times_harms_nobody(host: Host) -> None:
    with session(host, "steady") as steady:
        for number in range(1000):
            with host.connect() as stream:
                wrong = "mr1_AAAA" if number % 2 else f"guess-{number}"
                stream.sendall(connect(f"guest-{number % 7}", flags=0xC2, more=text("lamp") + text(wrong)))
                assert ends(stream) == b"\x20\x02\0\4"
        steady.sendall(publish("raw/hall", b"still", 1))
        assert read_packet(steady) == (0x40, b"\0\1")
    assert host.run("--json", "cap", "audit").count("denied") == 0, "the audit log cannot be filled so"


def test_many_clients_of_one_id_take_over_from_each_other(host: Host) -> None:
    streams = []
    for _ in range(100):
        stream = host.connect()
        stream.sendall(connect("same", flags=0))
        streams.append(stream)
    served = 0
    for stream in streams:
        stream.settimeout(PATIENCE_S)
        assert stream.recv(2) in (b"\x20\x02", b"")
    # The last one to be served is still there.
    for stream in streams:
        stream.recv(2)
        try:
            stream.sendall(publish("raw/hall", b"mine", 1))
            served += read(stream, 4) == b"\x40\x02\0\1"
        except (BrokenPipeError, ConnectionResetError):
            pass
        stream.close()
    assert served >= 1
    works(host)


def test_the_session_of_another_user_is_not_taken_over(host: Host) -> None:
    own = session(host, "lamp", flags=0)
    own.sendall(subscribe("raw/hall", qos=1))
    assert read_packet(own) == (0x90, b"\0\1\1")
    token = host.capability("--read", "raw/hall")
    other = session(host, "lamp", **{**password(token), "flags": 0xC0})
    host.run("log", "append", "raw/hall", "mine")
    assert read_packet(own)[1].endswith(b"mine")
    other.sendall(b"\xc0\0")
    assert read_packet(other) == (0xD0, b""), "it has none of its filters"
    for stream in [own, other]:
        stream.close()


def test_repeated_messages_of_quality_2_are_one_record(host: Host) -> None:
    stream = session(host, "exact", flags=0)
    message = packet(0x34, text("raw/hall") + b"\0\7once")
    again = packet(0x3C, text("raw/hall") + b"\0\7once")
    stream.sendall(message)
    assert read_packet(stream) == (0x50, b"\0\7")
    stream.close()
    # It did not get the answer, and repeats the message over a new connection.
    stream = host.connect()
    stream.sendall(connect("exact", flags=0) + again)
    assert read_packet(stream) == (0x20, b"\1\0")
    assert read_packet(stream) == (0x50, b"\0\7")
    stream.sendall(packet(0x62, b"\0\7"))
    assert read_packet(stream) == (0x70, b"\0\7")
    stream.sendall(message)
    assert read_packet(stream) == (0x50, b"\0\7")
    stream.close()
    assert host.wait_record("raw/hall", 2) == "once"
    assert len(host.records("raw/hall")) == 2


def test_a_message_in_flight_is_sent_again(host: Host, mosquitto: Mosquitto) -> None:
    stream = session(host, "lost", flags=0)
    stream.sendall(subscribe("raw/hall", qos=1))
    assert read_packet(stream) == (0x90, b"\0\1\1")
    mosquitto.pub(host, "raw/hall", "1", "-q", "1")
    first = read_packet(stream)
    assert first[0] == 0x32
    stream.close()
    stream = host.connect()
    stream.sendall(connect("lost", flags=0))
    assert read_packet(stream) == (0x20, b"\1\0")
    assert read_packet(stream) == (0x3A, first[1]), "the same, with DUP"
    stream.close()
