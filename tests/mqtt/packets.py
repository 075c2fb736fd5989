"""Packets of MQTT, as bytes."""

from __future__ import annotations

import socket
import struct
from typing import Any

from conftest import PATIENCE_S, Host


def text(value: str) -> bytes:
    return struct.pack(">H", len(value.encode())) + value.encode()


def packet(first: int, body: bytes) -> bytes:
    length, left = b"", len(body)
    while True:
        left, low = left >> 7, left & 0x7F
        length += bytes([low | (0x80 if left else 0)])
        if not left:
            return bytes([first]) + length + body


def connect(
    client: str, level: int = 4, flags: int = 2, keep_alive_s: int = 0, more: bytes = b"", properties: bytes = b""
) -> bytes:
    properties = bytes([len(properties)]) + properties if level == 5 else b""
    variable = text("MQTT") + bytes([level, flags]) + struct.pack(">H", keep_alive_s) + properties
    return packet(0x10, variable + text(client) + more)


def publish(topic: str, message: bytes, number: int = 0) -> bytes:
    return packet(0x32 if number else 0x30, text(topic) + (struct.pack(">H", number) if number else b"") + message)


def subscribe(topic: str, number: int = 1, qos: int = 0) -> bytes:
    return packet(0x82, struct.pack(">H", number) + text(topic) + bytes([qos]))


def read(stream: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = stream.recv(count - len(got))
        if not part:
            break
        got += part
    return got


def read_packet(stream: socket.socket) -> tuple[int, bytes]:
    first = read(stream, 1)
    assert first, "the host closed the connection"
    length = shift = 0
    while True:
        (byte,) = read(stream, 1)
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return first[0], read(stream, length)


def ends(stream: socket.socket) -> bytes:
    """What the host still sends before it closes the connection."""
    stream.settimeout(PATIENCE_S)
    got = b""
    try:
        while part := stream.recv(65536):
            got += part
    except ConnectionResetError:
        pass
    return got


def session(host: Host, client: str, present: bool = False, **more: Any) -> socket.socket:
    stream = host.connect()
    stream.sendall(connect(client, **more))
    kind, body = read_packet(stream)
    assert (kind, body[:2]) == (0x20, bytes([present, 0]))
    return stream


def password(token: str) -> dict[str, Any]:
    """What a CONNECT has that shows this capability."""
    return {"flags": 0xC2, "more": text("user") + text(token)}
