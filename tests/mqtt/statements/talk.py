"""A client that sends the packets that a test says, checks the form of every packet that comes, and the cases of statements."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Optional

import pytest
from conftest import PATIENCE_S, Host
from packets import ends, packet, text

RULES = """
[mqtt]
topics = [
  { filter = "t/#", log = "t/{#}" },
  { filter = "kept/#", log = "kept/{#}", retain = "latest" },
  { filter = "$own/#", log = "own/{#}" },
]
"""
CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x20, 0x30, 0x40, 0x50, 0x62, 0x70
SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 0x90, 0xB0, 0xD0, 0xE0
# The reasons of 5.0 that each packet of a server may have.
REASONS = {
    CONNACK: {0, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    PUBACK: {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    PUBREC: {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    PUBREL: {0, 0x92},
    PUBCOMP: {0, 0x92},
    SUBACK: {0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    UNSUBACK: {0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    DISCONNECT: {0, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3)},
}
# The properties that a server may send with each packet; of those of an acknowledgement, this one sends none.
PROPERTIES = {CONNACK: {17, 18, 33, 34, 39, 42}, PUBLISH: {11, 38}}

Case = Callable[[Host, int], None]
CASES: dict[int, dict[str, Case]] = {4: {}, 5: {}}
NUMBERS = itertools.count(1)


def proves(v3: str = "", v5: str = "") -> Callable[[Case], Case]:
    """Says which statements of 3.1.1 and of 5.0 a case proves; it is called with the level of the version."""

    def note(case: Case) -> Case:
        for level, ids in [(4, v3), (5, v5)]:
            for name in ids.split():
                assert name not in CASES[level], f"{name} is proved twice"
                CASES[level][name] = case
        return case

    return note


@pytest.fixture(scope="module")
def shared_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host for all tests of a file, whose clients and topics have names of their own."""
    place: Path = tmp_path_factory.mktemp("statements")
    running = Host(place)
    file = running.place / "millrace.toml"
    file.write_text(file.read_text() + RULES)
    running.run("up")
    yield running
    assert running.stop() == 0, "the host stops when it is told to, and without a complaint"


def fresh(prefix: str = "t") -> str:
    """A topic that no other test uses, or a client id."""
    return f"{prefix}/{next(NUMBERS)}"


class Message(NamedTuple):
    topic: str
    payload: bytes
    qos: int = 0
    dup: bool = False
    retain: bool = False
    id: int = 0
    # The user properties, and the numbers of the subscriptions.
    user: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()
    properties: bytes = b""


class Reader:
    """Reads what a packet has; nothing may be cut off or left."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        assert len(self.data) >= count, "the packet is cut off"
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def text(self) -> str:
        return self.binary().decode()

    def variable(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                assert byte or not shift, "a length has more bytes than it needs"
                return value
            shift += 7

    def properties(self, kind: int) -> dict[int, list[object]]:
        inner, found = Reader(self.take(self.variable())), {}  # type: tuple[Reader, dict[int, list[object]]]
        while inner.data:
            name = inner.variable()
            assert name in PROPERTIES.get(kind, set()), f"property {name} of packet {kind:#x}"
            if name in (17, 39):
                value: object = inner.number(4)
            elif name in (33, 34):
                value = inner.number(2)
            elif name == 42:
                value = inner.number(1)
            elif name == 11:
                value = inner.variable()
            elif name == 38:
                value = (inner.text(), inner.text())
            else:
                value = inner.text()
            found.setdefault(name, []).append(value)
            assert name in (11, 38) or len(found[name]) == 1, f"property {name} twice"
        return found


def connect_bytes(
    client: bytes, level: int, flags: int = 2, keep_alive_s: int = 0, properties: bytes = b"", more: bytes = b"", name: str = "MQTT"
) -> bytes:
    """CONNECT; `more` follows the client id, which has its length already."""
    said = bytes([len(properties)]) + properties if level >= 5 else b""
    return packet(0x10, text(name) + bytes([level, flags]) + struct.pack(">H", keep_alive_s) + said + client + more)


def will(level: int, topic: str, payload: bytes, properties: bytes = b"") -> bytes:
    said = bytes([len(properties)]) + properties if level == 5 else b""
    return said + text(topic) + struct.pack(">H", len(payload)) + payload


def publish_bytes(
    level: int, topic: str, payload: bytes, qos: int = 0, number: int = 0, *, dup: bool = False, retain: bool = False, said: bytes = b""
) -> bytes:
    body = text(topic) + (struct.pack(">H", number) if qos else b"")
    body += bytes([len(said)]) + said if level == 5 else b""
    return packet(0x30 | dup << 3 | qos << 1 | retain, body + payload)


class Client:
    """A connection. It checks that every packet has the form that the version demands."""

    def __init__(
        self,
        host: Host,
        level: int,
        name: Optional[str] = None,
        *,
        flags: int = 2,
        properties: bytes = b"",
        more: bytes = b"",
        present: bool = False,
        keep_alive_s: int = 0,
    ) -> None:
        self.level, self.host, self.numbers = level, host, itertools.count(1)
        self.name = fresh("client") if name is None else name
        self.stream = host.connect()
        self.send(connect_bytes(text(self.name), level, flags, keep_alive_s, properties, more))
        kind, flags_seen, reader = self.packet()
        assert (kind, flags_seen) == (CONNACK, present), "CONNACK comes first, and says whether the session was there"
        assert reader.number(1) == 0
        self.welcome = reader.properties(CONNACK) if level == 5 else {}
        assert not reader.data

    def send(self, *parts: bytes) -> None:
        self.stream.sendall(b"".join(parts))

    def packet(self) -> tuple[int, int, Reader]:
        """The next packet: its kind, its flags or of CONNACK its first byte, and what follows."""
        first = self.byte()
        length = shift = 0
        while True:
            byte = self.byte()
            length |= (byte & 0x7F) << shift
            if not byte & 0x80:
                assert byte or not shift, "a length has more bytes than it needs"
                break
            shift += 7
        body = b""
        while len(body) < length:
            part = self.stream.recv(length - len(body))
            assert part, "the host closed the connection within a packet"
            body += part
        reader = Reader(body)
        if first >> 4 == 3:
            return PUBLISH, first & 15, reader
        assert first in REASONS or first == PINGRESP, f"flags of packet {first:#x}"
        return first, reader.number(1) if first == CONNACK else 0, reader

    def byte(self) -> int:
        part = self.stream.recv(1)
        assert part, "the host closed the connection"
        return part[0]

    def message(self, answer: bool = True) -> Message:
        """The next packet, which is a message; it is acknowledged up to the end."""
        kind, flags, reader = self.packet()
        assert kind == PUBLISH, f"packet {kind:#x} and not a message"
        message = self.parse(flags, reader)
        if answer:
            self.acknowledge(message)
        return message

    def parse(self, flags: int, reader: Reader) -> Message:
        topic, qos = reader.text(), flags >> 1 & 3
        number = reader.number(2) if qos else 0
        assert qos < 3 and (number or not qos)
        before = reader.data
        found = reader.properties(PUBLISH) if self.level == 5 else {}
        users, subscriptions = tuple(found.get(38, [])), tuple(found.get(11, []))
        raw = before[: len(before) - len(reader.data)]
        dup, retain = bool(flags & 8), bool(flags & 1)
        return Message(topic, reader.data, qos, dup, retain, number, users, subscriptions, raw)  # type: ignore[arg-type]

    def messages(self, count: int, answer: bool = True) -> list[Message]:
        found = [self.message(answer=False) for _ in range(count)]
        if answer:
            self.acknowledge(*found)
        return found

    def acknowledge(self, *messages: Message) -> None:
        """Up to the end: what follows a message of quality 2 are its acknowledgements only."""
        for message in messages:
            if message.qos:
                self.send(packet(PUBACK if message.qos == 1 else PUBREC, struct.pack(">H", message.id)))
        for message in messages:
            if message.qos == 2:
                assert self.answer(PUBREL) == (message.id, 0)
                self.send(packet(PUBCOMP, struct.pack(">H", message.id)))

    def answer(self, expected: int) -> tuple[int, int]:
        """The next packet is this acknowledgement: its id and reason."""
        kind, _, reader = self.packet()
        assert kind == expected, f"packet {kind:#x} and not {expected:#x}"
        number, reason = reader.number(2), 0
        if reader.data:
            assert self.level == 5, "3.1.1 has no reasons"
            reason = reader.number(1)
            assert not reader.data or reader.properties(kind) == {}
        assert reason in REASONS[kind] and not reader.data
        return number, reason

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 1, number: int = 0, **more: object) -> int:
        """Publishes, up to the last acknowledgement; the reason."""
        number = number or next(self.numbers)
        self.send(publish_bytes(self.level, topic, payload, qos, number, **more))  # type: ignore[arg-type]
        if qos == 0:
            self.ping()
            return 0
        came, reason = self.answer(PUBACK if qos == 1 else PUBREC)
        assert came == number
        if qos == 2 and reason < 0x80:
            self.send(packet(PUBREL, struct.pack(">H", number)))
            assert self.answer(PUBCOMP) == (number, 0)
        return reason

    def reasons(self, kind: int, number: int) -> list[int]:
        """The next packet is SUBACK or UNSUBACK with this id: its reasons."""
        found, _, reader = self.packet()
        assert found == kind and reader.number(2) == number
        if self.level == 5:
            assert reader.properties(kind) == {}
            assert set(reader.data) <= REASONS[kind]
        else:
            assert set(reader.data) <= {0, 1, 2, 0x80}
        return list(reader.data)

    def subscribe_bytes(self, number: int, *filters: tuple[str, int], said: bytes = b"") -> bytes:
        properties = bytes([len(said)]) + said if self.level == 5 else b""
        return packet(0x82, struct.pack(">H", number) + properties + b"".join(text(filter) + bytes([how]) for filter, how in filters))

    def subscribe(self, *filters: tuple[str, int], said: bytes = b"") -> list[int]:
        number = next(self.numbers)
        self.send(self.subscribe_bytes(number, *filters, said=said))
        return self.reasons(SUBACK, number)

    def unsubscribe(self, *filters: str) -> list[int]:
        number = next(self.numbers)
        properties = b"\0" if self.level == 5 else b""
        self.send(packet(0xA2, struct.pack(">H", number) + properties + b"".join(text(filter) for filter in filters)))
        return self.reasons(UNSUBACK, number)

    def ping(self) -> None:
        """Nothing came before the answer."""
        self.send(b"\xc0\0")
        assert self.packet()[0] == PINGRESP, "something came"

    def close(self) -> None:
        """The connection ends without a DISCONNECT, and the host has noticed."""
        self.stream.shutdown(socket.SHUT_WR)
        ends(self.stream)
        self.stream.close()

    def leave(self, reason: int = 0, said: bytes = b"") -> bytes:
        """DISCONNECT; what still came."""
        body = bytes([reason, len(said)]) + said if reason or said else b""
        self.send(packet(DISCONNECT, body))
        left = ends(self.stream)
        self.stream.close()
        return left

    def ended(self, *reasons: int) -> None:
        """The host ends the connection: in 5.0 with one of these reasons."""
        left = ends(self.stream)
        if self.level == 4:
            assert left == b"", f"3.1.1 has no word for it, but {left.hex()} came"
        else:
            assert left[:2] == b"\xe0\x01" and len(left) == 3 and left[2] in reasons and left[2] in REASONS[DISCONNECT], left.hex()
        self.stream.close()


def refused(host: Host, sent: bytes, port: int = 0) -> bytes:
    """What the host answers to these bytes, behind which it ends the connection."""
    with socket.create_connection(("127.0.0.1", port or host.port), PATIENCE_S) as stream:
        stream.sendall(sent)
        return ends(stream)


def fails(host: Host, level: int, sent: bytes, *reasons: int) -> None:
    """A packet behind CONNECT ends its connection."""
    client = Client(host, level)
    client.send(sent)
    client.ended(*reasons)


def denied(host: Host, level: int, sent: bytes, *codes: int) -> None:
    """A CONNECT is refused: with a CONNACK that has one of these codes, and no session; without codes, 3.1.1 has no CONNACK."""
    answer = refused(host, sent)
    if level == 4 and not codes:
        assert answer == b"", answer.hex()
    elif level == 4:
        assert answer[:3] == b"\x20\x02\0" and len(answer) == 4 and answer[3] in codes, answer.hex()
    else:
        assert answer[:3] == b"\x20\x03\0" and len(answer) == 5 and answer[4] == 0, answer.hex()
        assert answer[3] in codes and answer[3] in REASONS[CONNACK], answer.hex()


def fence(reader: Client, writer: Client, topic: str) -> None:
    """What was handed to the reader before this has come before this: it subscribes to the topic, which nobody else uses."""
    # Its logs take turns, so only the second one is behind everything.
    for payload in [b"fence 1", b"fence 2"]:
        writer.publish(topic, payload)
        message = reader.message()
        assert (message.topic, message.payload) == (topic, payload), message
