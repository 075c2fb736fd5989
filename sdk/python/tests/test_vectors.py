"""The wire protocol as spec/protocol/wire.md tells it, written anew in Python: golden frames, and a conversation."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from conftest import ROOT, Host

import millrace

GOLDEN = json.loads((ROOT / "spec/vectors/wire.json").read_text())
#: The smallest and the fullest frame of each message, too.
FRAMES = GOLDEN["frames"] + json.loads((ROOT / "spec/vectors/messages.json").read_text())["frames"]
FRAME_MAX_BYTES = 16_842_752


class Refused(Exception):
    """It is not a frame."""


def unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """A map whose keys come once."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Refused("keys")
    return made


def read(frame: bytes) -> list[Any]:
    """The elements of a frame, five or with a slot six, or `Refused`."""
    if len(frame) < 4 or struct.unpack("<I", frame[:4])[0] != len(frame) - 4 or len(frame) > FRAME_MAX_BYTES + 4:
        raise Refused("length")
    try:
        elements = msgpack.unpackb(frame[4:], object_pairs_hook=unique, strict_map_key=False)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise Refused(str(error)) from error
    if not isinstance(elements, list) or len(elements) not in (5, 6):
        raise Refused("elements")
    numbers, cause, message = elements[:3], elements[3], elements[4]
    if not all(type(number) is int and number >= 0 for number in numbers) or numbers[0] > 255:
        raise Refused("numbers")
    if cause is not None and not (isinstance(cause, bytes) and len(cause) == 16):
        raise Refused("cause")
    if elements[5:] and not (type(elements[5]) is int and 1 <= elements[5] <= 15):
        raise Refused("slot")
    if not isinstance(message, dict) or not all(isinstance(key, str) for key in message):
        raise Refused("message")
    return elements


def write(elements: list[Any]) -> bytes:
    body: bytes = msgpack.packb(elements)
    return struct.pack("<I", len(body)) + body


def meant(value: Any) -> Any:
    """What the file's JSON stands for: {"hex": ...} is bytes."""
    if isinstance(value, dict):
        if value.keys() == {"hex"}:
            return bytes.fromhex(value["hex"])
        return {key: meant(inner) for key, inner in value.items()}
    return [meant(inner) for inner in value] if isinstance(value, list) else value


def elements_of(golden: dict[str, Any]) -> list[Any]:
    return [golden["type"], golden["request"], golden["hlc"], meant(golden["cause"]), meant(golden["message"])] + (
        [golden["slot"]] if "slot" in golden else []
    )


@pytest.mark.parametrize("golden", FRAMES, ids=lambda golden: str(golden["name"]))
def test_a_golden_frame_is_read_and_written_exactly(golden: dict[str, Any]) -> None:
    frame = bytes.fromhex(golden["hex"])
    assert read(frame) == elements_of(golden)
    assert write(elements_of(golden)) == frame


@pytest.mark.parametrize("golden", GOLDEN["readable"], ids=lambda golden: str(golden["name"]))
def test_a_frame_of_another_writer_is_read(golden: dict[str, Any]) -> None:
    elements = read(bytes.fromhex(golden["hex"]))
    wanted = elements_of(golden)
    assert elements[:4] == wanted[:4]
    # Keys that this version does not know are passed over; optional ones have a value that means the same as none.
    known = {key: value for key, value in elements[4].items() if key in wanted[4]}
    assert all(known.get(key, value or None) == (value if key in known else None) for key, value in wanted[4].items())


def ask(connection: socket.socket, *elements: Any) -> list[Any]:
    connection.sendall(write(list(elements)))
    return answer(connection)


def answer(connection: socket.socket) -> list[Any]:
    head = connection.recv(4, socket.MSG_WAITALL)
    return read(head + connection.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))


def test_a_client_written_from_the_page_alone(ns: millrace.Namespace, host: Callable[..., Host]) -> None:
    found = re.fullmatch(r"mr://([^:]+):(\d+)/(.+)", host(ns).address)
    assert found is not None
    address, port, name = found.groups()
    with socket.create_connection((address, int(port)), timeout=120) as connection:
        connection.sendall(b"MR/2")
        hello = {"oldest": 2, "newest": 2, "namespace": name, "client": "a page reader"}
        kind, request, clock, _, welcome = ask(connection, 1, 1, 0, None, hello)
        assert (kind, request, welcome["version"], welcome["name"]) == (2, 1, 2, name)
        assert f"{welcome['namespace']:012x}" == ns.id and clock > 0
        kind, request, clock, _, appended = ask(connection, 16, 2, clock, None, {"log": "raw", "data": b"hi"})
        assert (kind, request, appended["seqno"]) == (17, 2, 1)
        kind, _, _, _, record = ask(connection, 20, 3, clock, None, {"log": "raw", "seqno": 0})
        assert (kind, record["data"], record["id"]) == (21, b"hi", appended["id"])
        assert record["hlc"] == ns.get("raw").clock
        kind, _, _, _, failure = ask(connection, 20, 4, clock, None, {"log": "missing", "seqno": 0})
        assert (kind, failure["code"]) == (3, "MR2101")
        kind, _, _, _, records = ask(connection, 26, 5, clock, None, {"log": "raw", "from": 1, "credit": 10})
        assert (kind, records["records"], records["next"]) == (23, [], 1), "where the tail begins"
        kind, _, _, _, records = answer(connection)
        assert (kind, [one["seqno"] for one in records["records"]], records["next"]) == (23, [1], 2)
        ns.append("raw", b"more")
        kind, request, _, _, records = answer(connection)
        assert (kind, request, records["records"][0]["data"]) == (23, 5, b"more")
        assert ask(connection, 28, 5, clock, None, {})[:2] == [29, 5]


def test_a_host_refuses_what_must_be_refused(ns: millrace.Namespace, host: Callable[..., Host]) -> None:
    found = re.fullmatch(r"mr://([^:]+):(\d+)/(.+)", host(ns).address)
    assert found is not None
    address, port, name = found.groups()
    assert len(GOLDEN["refused"]) > 40
    for golden in GOLDEN["refused"]:
        with socket.create_connection((address, int(port)), timeout=120) as connection:
            hello = {"oldest": 2, "newest": 2, "namespace": name, "client": "a page reader"}
            connection.sendall(b"MR/2")
            assert ask(connection, 1, 1, 0, None, hello)[0] == 2
            connection.sendall(bytes.fromhex(golden["hex"]))
            kind, _, _, _, failure = answer(connection)
            # What only hosts say, by odd numbers, no host knows as a request, well formed or not.
            answers = bytes.fromhex(golden["hex"])[5:6] in (b"\x11", b"\x17", b"\x33")
            assert kind == 3 and failure["code"] == ("MR6004" if answers else golden["code"]), (golden, failure)
    ns.append("raw", b"unharmed")
    assert millrace.open(f"mr://{address}:{port}/{name}").get("raw").data == b"unharmed"
