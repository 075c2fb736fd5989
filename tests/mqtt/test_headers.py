"""User properties of 5.0 are headers of a record."""

from __future__ import annotations

import json
import struct
import urllib.request
from typing import Any

import paho.mqtt.client as paho
import pytest
from conftest import Host
from packets import packet, read_packet, session, text
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from test_clients import Client

UNIT = [("unit", "°C"), ("site", "hall"), ("unit", "K")]


def properties(pairs: list[tuple[str, str]]) -> Properties:
    found = Properties(PacketTypes.PUBLISH)
    found.UserProperty = pairs
    return found


def publish(client: Client, message: str, pairs: list[tuple[str, str]], qos: int = 1) -> None:
    client.paho.publish("raw/hall", message, qos, properties=properties(pairs)).wait_for_publish(60)


def pairs_of(message: Any) -> list[tuple[str, str]]:
    return getattr(message.properties, "UserProperty", [])


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_user_properties_come_back_and_are_shown(host: Host, qos: int) -> None:
    client = Client(host, "meter")
    client.connect()
    client.subscribe("raw/+", qos)
    publish(client, "21.5", UNIT, qos)
    message = client.next()
    assert (message.payload, pairs_of(message)) == (b"21.5", UNIT), "in their order, also if a name occurs twice"
    host.run("log", "append", "raw/hall", "22")
    assert pairs_of(client.next()) == []
    client.disconnect()
    first, second = (json.loads(line) for line in host.records("raw/hall"))
    assert first["headers"] == [list(pair) for pair in UNIT] and "headers" not in second
    at_host = f"http://127.0.0.1:{host.port}/v1/namespaces/farm"
    with urllib.request.urlopen(f"{at_host}/logs/raw%2Fhall/records?from=1") as answer:
        assert json.load(answer)["records"][0]["headers"] == first["headers"]
    there = host.run("-n", f"mr://127.0.0.1:{host.port}/farm", "log", "get", "raw/hall", "1", "--json")
    assert json.loads(there)["headers"] == first["headers"], "over the wire protocol"


def test_headers_outlive_the_host_and_retention(host: Host) -> None:
    client = Client(host, "meter")
    client.connect()
    publish(client, "kept", UNIT)
    client.disconnect()
    copy = host.place.parent / "copy"
    host.run("namespace", "backup", str(copy))
    host.stop(9)
    host.start()
    assert json.loads(host.records("raw/hall")[0])["headers"] == [list(pair) for pair in UNIT]
    restored = host.place.parent / "restored"
    host.run("namespace", "restore", str(copy), str(restored))
    assert json.loads(host.run("-n", str(restored), "log", "get", "raw/hall", "--json"))["headers"][0] == list(UNIT[0])


def test_a_record_of_the_sdk_has_them(host: Host) -> None:
    millrace = pytest.importorskip("millrace")
    client = Client(host, "meter")
    client.connect()
    publish(client, "21.5", UNIT)
    client.disconnect()
    for address in [f"mr://127.0.0.1:{host.port}/farm", str(host.place)]:
        with millrace.open(address) as namespace:
            assert namespace.get("raw/hall").headers == tuple(UNIT)
            assert [record.headers for record in namespace.range("raw/hall", 1)] == [tuple(UNIT)]


def test_a_will_has_headers(host: Host) -> None:
    client = Client(host, "willing")
    said = Properties(PacketTypes.WILLMESSAGE)
    said.UserProperty = UNIT
    client.paho.will_set("raw/hall", "gone", 1, properties=said)
    client.connect()
    host.stop(9)
    host.start()
    client.paho.loop_stop()
    host.wait_record("raw/hall", 1)
    assert json.loads(host.records("raw/hall")[0])["headers"] == [list(pair) for pair in UNIT]


def test_an_idempotency_key_makes_one_record(host: Host) -> None:
    for client_id in ["one", "two"]:
        client = Client(host, client_id)
        client.connect()
        for qos in [1, 2]:
            publish(client, "once", [("millrace-key", "reading-7"), ("unit", "K")], qos)
        client.disconnect()
    (record,) = host.records("raw/hall")
    assert json.loads(record)["headers"] == [["unit", "K"]]


def test_a_cause_is_what_the_client_claims(host: Host) -> None:
    host.run("log", "append", "raw/hall", "first")
    cause = json.loads(host.records("raw/hall")[0])["id"]
    client = Client(host, "follower")
    client.connect()
    publish(client, "second", [("millrace-cause", cause)])
    client.disconnect()
    second = json.loads(host.records("raw/hall")[1])
    assert second["cause"] == cause and "headers" not in second


def test_what_cannot_be_stored_is_refused_with_a_reason(host: Host) -> None:
    def publish5(said: bytes, number: int) -> bytes:
        length, left = b"", len(said)
        while True:
            left, low = left >> 7, left & 0x7F
            length += bytes([low | (0x80 if left else 0)])
            if not left:
                break
        return packet(0x32, text("raw/hall") + struct.pack(">H", number) + length + said + b"x")

    with session(host, "long", level=5) as stream:
        for number, (name, value, reason) in enumerate(
            [("n", "v" * 4091, b""), ("n", "v" * 4092, b"\x97"), ("millrace-cause", "no id", b"\x80")], 1
        ):
            stream.sendall(publish5(b"\x26" + text(name) + text(value), number))
            assert read_packet(stream) == (0x40, struct.pack(">H", number) + reason), name
    assert len(host.records("raw/hall")) == 1
    host.wait_logged("the user properties are longer than 4096 bytes")
    # Who speaks 3.1.1 gets the message without them.
    old = Client(host, "old", v5=False)
    assert old.paho.protocol == paho.MQTTv311
    old.connect()
    old.subscribe("raw/hall", 1)
    new = Client(host, "new")
    new.connect()
    publish(new, "seen", UNIT)
    assert old.next().payload == b"seen"
    old.disconnect()
    new.disconnect()
