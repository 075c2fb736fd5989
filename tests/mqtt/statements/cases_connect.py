"""Texts, flags, packet ids, CONNECT and CONNACK."""

from __future__ import annotations

import string
import struct

from conftest import Host
from packets import packet, text
from talk import (
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    SUBACK,
    Client,
    connect_bytes,
    denied,
    fails,
    fence,
    fresh,
    proves,
    publish_bytes,
    refused,
    will,
)

KEPT = b"\x11" + struct.pack(">I", 600)
MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
SURROGATE, NO_UTF8, ZERO = b"\0\3\xed\xa0\x80", b"\0\1\xff", b"\0\1\0"


def session(host: Host, level: int, name: str, present: bool = False, clean: bool = False) -> Client:
    """A connection whose session outlives it."""
    return Client(host, level, name, flags=2 if clean else 0, properties=KEPT if level == 5 else b"", present=present)


def with_text(level: int, data: bytes) -> list[bytes]:
    """Packets that have this text, with its length."""
    said = b"\0" if level == 5 else b""
    return [
        packet(0x30, data + said + b"x"),
        packet(0x82, b"\0\1" + said + data + b"\0"),
        packet(0xA2, b"\0\1" + said + data),
    ]


@proves("1.5.3-1 3.3.2-1 3.8.3-1 3.10.3-1", "1.5.4-1 3.3.2-1 3.8.3-1 3.10.3-1")
def texts_are_utf_8(host: Host, level: int) -> None:
    for data in [SURROGATE, NO_UTF8]:
        for sent in with_text(level, data):
            fails(host, level, sent, MALFORMED)


@proves("1.5.3-2 4.7.3-2", "1.5.4-2 4.7.3-2")
def texts_have_no_zero(host: Host, level: int) -> None:
    for sent in with_text(level, ZERO):
        fails(host, level, sent, MALFORMED)


@proves("1.5.3-3 4.7.3-4", "1.5.4-3 4.7.3-4")
def texts_are_taken_as_they_are(host: Host, level: int) -> None:
    name = fresh("id")
    clients = [session(host, level, found) for found in [name, f"\ufeff{name}", f"{name}\u0301"]]
    topic, other = fresh(), fresh()
    for client in clients:
        client.ping()
    reader, writer = clients[:2]
    assert reader.subscribe((f"{topic}/a", 0), (f"\ufeff{topic}/A", 0), (other, 0)) == [0, 0, 0]
    for sent in ["A", "a/", "a"]:
        if sent != "a/":
            assert writer.publish(f"{topic}/{sent}", sent.encode()) == 0
    assert reader.message()[:2] == (f"{topic}/a", b"a"), "not those of a filter that only looks like the topic"
    fence(reader, writer, other)
    for client in clients:
        client.leave()


@proves(v5="1.5.5-1")
def lengths_have_no_byte_too_many(host: Host, level: int) -> None:
    fails(host, level, b"\xc0\x80\x00", MALFORMED)
    fails(host, level, packet(0x30, text(fresh()) + b"\x80\x00x"), MALFORMED)
    topic, reader, writer = fresh(), Client(host, level), Client(host, level)
    reader.subscribe((topic, 0))
    for bytes_long in [1, 100, 200, 16_300, 16_400]:
        writer.publish(topic, b"x" * bytes_long)
        assert len(reader.message().payload) == bytes_long, "the reader checks the lengths"


@proves(v5="1.5.7-1")
def both_texts_of_a_pair_are_checked(host: Host, level: int) -> None:
    for pair in [SURROGATE + text("b"), text("a") + SURROGATE, ZERO + text("b"), text("a") + ZERO]:
        fails(host, level, packet(0x30, text(fresh()) + bytes([len(pair) + 1]) + b"\x26" + pair + b"x"), MALFORMED)


@proves("2.2.2-1 2.2.2-2 3.6.1-1 3.8.1-1 3.10.1-1 3.14.1-1", "2.1.3-1 3.6.1-1 3.8.1-1 3.10.1-1 3.14.1-1 3.15.1-1")
def reserved_flags_are_checked(host: Host, level: int) -> None:
    said = b"\0" if level == 5 else b""
    packets = {kind: b"\0\1" for kind in range(4, 8)} | {12: b"", 14: b""}
    packets |= {8: b"\0\1" + said + text("a") + b"\0", 10: b"\0\1" + said + text("a")}
    if level == 5:
        packets[15] = b""
    for kind, body in packets.items():
        for flags in range(16):
            if flags != (2 if kind in (6, 8, 10) else 0) and flags in (0, 1, 2, 4, 8, 15):
                fails(host, level, packet(kind << 4 | flags, body), MALFORMED)


@proves("2.3.1-1", "2.2.1-3")
def no_packet_id_is_0(host: Host, level: int) -> None:
    said = b"\0" if level == 5 else b""
    bodies = [(0x82, text("a") + b"\0"), (0xA2, text("a"))]
    for sent in [packet(first, b"\0\0" + said + body) for first, body in bodies]:
        fails(host, level, sent, PROTOCOL_ERROR)
    for qos in [1, 2]:
        fails(host, level, publish_bytes(level, fresh(), b"x", qos, 0), PROTOCOL_ERROR)


@proves("2.3.1-4 4.3.2-1 4.3.3-1", "2.2.1-4 4.3.2-1 4.3.2-2 4.3.2-3 4.3.3-1 4.3.3-2 4.3.3-3 4.3.3-4 4.3.3-5 4.3.3-6")
def a_message_has_an_id_that_is_free_until_it_is_acknowledged(host: Host, level: int) -> None:
    for qos in [1, 2]:
        topic, name, writer = fresh(), fresh("id"), Client(host, level)
        reader = session(host, level, name)
        assert reader.subscribe((topic, qos)) == [qos]
        for number in range(5):
            assert writer.publish(topic, b"%d" % number, qos) == 0
        sent = reader.messages(5, answer=False)
        assert [(message.qos, message.dup, message.payload) for message in sent] == [(qos, False, b"%d" % n) for n in range(5)]
        assert len({message.id for message in sent}) == 5
        reader.close()
        reader = session(host, level, name, present=True)
        again = reader.messages(5, answer=False)
        assert again == [message._replace(dup=True) for message in sent], "they are unacknowledged"
        if qos == 1:
            for message in again:
                reader.send(packet(PUBACK, struct.pack(">H", message.id)))
        else:
            for message in again:
                reader.send(packet(PUBREC, struct.pack(">H", message.id)))
                assert reader.answer(0x62) == (message.id, 0)
            reader.close()
            reader = session(host, level, name, present=True)
            for message in again:
                assert reader.answer(0x62) == (message.id, 0), "PUBREL is unacknowledged, and the message is not sent again"
                reader.send(packet(PUBCOMP, struct.pack(">H", message.id)))
        reader.ping()
        reader.close()
        reader = session(host, level, name, present=True)
        reader.ping()
        reader.leave()


@proves("2.3.1-5 3.3.1-2 4.3.1-1", "2.2.1-2 3.3.1-2 4.3.1-1 2.2.2-1")
def quality_0_has_no_id_and_no_dup(host: Host, level: int) -> None:
    fails(host, level, packet(0x38, text(fresh()) + (b"\0" if level == 5 else b"") + b"x"), MALFORMED)
    topic, reader, writer = fresh(), Client(host, level), Client(host, level)
    assert reader.subscribe((topic, 0)) == [0]
    assert writer.publish(topic, b"payload", 1) == 0
    kind, flags, left = reader.packet()
    assert (kind, flags) == (PUBLISH, 0)
    assert left.data == text(topic) + (b"\0" if level == 5 else b"") + b"payload"


@proves(
    "2.3.1-6 2.3.1-7 3.3.4-1 3.8.4-1 3.8.4-2 3.10.4-4 4.3.2-2",
    "2.2.1-5 2.2.1-6 3.3.4-1 3.4.2-1 3.5.2-1 3.7.2-1 3.8.4-1 3.8.4-2 3.10.4-4 4.3.2-4 4.3.3-8 4.3.3-11",
)
def answers_have_the_id_of_what_they_answer(host: Host, level: int) -> None:
    client, topic = Client(host, level), fresh()
    for number in [1, 0xFF, 0x100, 0xFFFF]:
        assert client.publish(topic, b"x", 1, number) == 0 and client.publish(topic, b"x", 2, number) == 0
        client.send(client.subscribe_bytes(number, ("other", 1)))
        assert client.reasons(SUBACK, number) == [1]
        client.send(packet(0xA2, struct.pack(">H", number) + (b"\0" if level == 5 else b"") + text("other")))
        client.reasons(0xB0, number)
    assert client.publish(topic, b"x", 0) == 0, "quality 0 has no answer"


@proves("3.1.0-1", "3.1.0-1")
def the_first_packet_is_connect(host: Host, level: int) -> None:
    topic = fresh("kept")
    for sent in [b"\xc0\0", publish_bytes(level, topic, b"too early", 1, 1), b"\xe0\0"]:
        answer = refused(host, sent + connect_bytes(text("x"), level), host.only)
        assert answer[:1] not in (bytes([PUBACK]), bytes([PINGRESP])) and b"\x20\x02\0\0" not in answer, answer.hex()
    reader = Client(host, level)
    reader.subscribe((topic, 0))
    reader.ping()


@proves("3.1.0-2 4.8.0-1", "3.1.0-2 4.13.1-1")
def a_second_connect_ends_the_connection(host: Host, level: int) -> None:
    fails(host, level, connect_bytes(text(fresh("id")), level), PROTOCOL_ERROR)


@proves("3.1.2-1 3.1.2-2", "3.1.2-1 3.1.2-2")
def other_protocols_and_versions_are_refused(host: Host, level: int) -> None:
    for name, spoken in [("MQTT", 3), ("MQTT", 6), ("mqtt", level), ("MQTTX", level)]:
        answer = refused(host, connect_bytes(text("x"), spoken, name=name) + b"\xc0\0")
        assert answer in (b"\x20\x02\0\1", b"\x20\x03\0\x84\0"), answer.hex()


@proves("3.1.2-3 3.1.4-1 3.2.2-6", "3.1.2-3 3.1.4-1")
def a_connect_with_its_reserved_flag_is_refused(host: Host, level: int) -> None:
    denied(host, level, connect_bytes(text("x"), level, flags=3), *([MALFORMED] if level == 5 else []))


@proves("3.1.2-9", "3.1.2-9")
def a_will_that_is_announced_is_there(host: Host, level: int) -> None:
    whole = will(level, fresh(), b"gone")
    for cut in [b"", whole[:-5], whole[:-6], whole[: 4 if level == 5 else 3]]:
        denied(host, level, connect_bytes(text("x"), level, flags=6, more=cut), *([MALFORMED] if level == 5 else []))


@proves("3.1.2-11 3.1.2-13 3.1.2-15", "3.1.2-11 3.1.2-13")
def without_a_will_its_flags_are_0(host: Host, level: int) -> None:
    for flags in [0x0A, 0x12, 0x22, 0x2A]:
        denied(host, level, connect_bytes(text("x"), level, flags=flags), *([MALFORMED] if level == 5 else []))
    denied(host, level, connect_bytes(text("x"), level, more=will(level, "t", b"x")), *([MALFORMED] if level == 5 else []))


@proves("3.1.2-14", "3.1.2-12")
def a_will_has_quality_0_to_2(host: Host, level: int) -> None:
    topic, reader = fresh(), Client(host, level)
    reader.subscribe((topic, 2))
    denied(host, level, connect_bytes(text("x"), level, flags=0x1E, more=will(level, topic, b"x")), *([MALFORMED] if level == 5 else []))
    for qos in range(3):
        Client(host, level, flags=6 | qos << 3, more=will(level, topic, b"%d" % qos)).close()
        assert reader.message().payload == b"%d" % qos


def refused_fields(host: Host, level: int, flags: int, more: bytes) -> None:
    denied(host, level, connect_bytes(text("x"), level, flags=flags, more=more), *([MALFORMED] if level == 5 else []))


@proves("3.1.2-18 3.1.2-20", "3.1.2-16 3.1.2-18")
def a_name_or_password_that_is_not_announced_is_refused(host: Host, level: int) -> None:
    refused_fields(host, level, 2, text("user"))
    refused_fields(host, level, 0x82, text("user") + text("password"))


@proves("3.1.2-19 3.1.2-21", "3.1.2-17 3.1.2-19")
def a_name_or_password_that_is_announced_is_there(host: Host, level: int) -> None:
    refused_fields(host, level, 0x82, b"")
    refused_fields(host, level, 0xC2, text("user"))
    refused_fields(host, level, 0xC2, text("user") + b"\0\x09short")


@proves("3.1.2-22")
def no_password_without_a_name(host: Host, level: int) -> None:
    refused_fields(host, level, 0x42, text("password"))


@proves("3.1.3-1", "3.1.3-1")
def the_fields_of_connect_have_their_order(host: Host, level: int) -> None:
    topic = fresh()
    host.run("log", "create", topic)
    token = host.capability("--append", topic)
    client = Client(host, level, flags=0xC6, more=will(level, topic, b"gone") + text("name") + text(token))
    assert client.publish(topic, b"mine") == 0, "the password is the last one"
    client.close()
    host.wait_record(topic, 2)
    assert host.values(topic) == ["mine", "gone"]


@proves("3.1.3-3", "3.1.3-3")
def there_is_a_client_id(host: Host, level: int) -> None:
    denied(host, level, connect_bytes(b"", level), *([MALFORMED] if level == 5 else []))


@proves("3.1.3-4", "3.1.3-4")
def a_client_id_is_utf_8(host: Host, level: int) -> None:
    for data in [SURROGATE, NO_UTF8, ZERO]:
        denied(host, level, connect_bytes(data, level), *([MALFORMED] if level == 5 else []))


@proves("3.1.3-10", "3.1.3-11")
def the_topic_of_a_will_is_utf_8(host: Host, level: int) -> None:
    said = b"\0" if level == 5 else b""
    for data in [SURROGATE, NO_UTF8, ZERO]:
        sent = connect_bytes(text("x"), level, flags=6, more=said + data + text("x"))
        denied(host, level, sent, *([MALFORMED] if level == 5 else []))


@proves("3.1.3-11", "3.1.3-12")
def a_name_is_utf_8(host: Host, level: int) -> None:
    for data in [SURROGATE, NO_UTF8, ZERO]:
        refused_fields(host, level, 0x82, data)


@proves("3.1.3-5", "3.1.3-5")
def client_ids_of_the_alphabet_are_accepted(host: Host, level: int) -> None:
    letters = string.digits + string.ascii_letters
    for at in range(0, len(letters), 23):
        Client(host, level, letters[at : at + 23]).leave()
    Client(host, level, "a").leave()


@proves("3.1.3-6", "3.1.3-6 3.1.3-7 3.2.2-16")
def a_client_without_an_id_gets_one_of_its_own(host: Host, level: int) -> None:
    clients = [Client(host, level, "") for _ in range(3)]
    for client in clients:
        client.ping()
    if level == 5:
        ids = [str(client.welcome[18][0]) for client in clients]
        assert len(set(ids)) == 3 and "" not in ids
        for name, client in zip(ids, clients):
            taker = Client(host, level, name)
            client.ended(0x8E)
            taker.leave()


@proves("3.1.3-8")
def without_an_id_there_is_no_session(host: Host, level: int) -> None:
    denied(host, level, connect_bytes(text(""), level, flags=0), 2)


@proves("3.1.3-9", "3.1.3-8")
def a_client_id_that_is_too_long_is_refused(host: Host, level: int) -> None:
    denied(host, level, connect_bytes(text("x" * 300), level), 2 if level == 4 else 0x85)
