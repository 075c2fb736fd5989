"""Sessions, wills, and what a client is told when it connects."""

from __future__ import annotations

import struct

from cases_connect import KEPT, session
from conftest import Host
from packets import ends, packet, read_packet, text
from talk import Client, connect_bytes, denied, fails, fence, fresh, proves, publish_bytes, refused, will

MALFORMED, PROTOCOL_ERROR, TAKEN_OVER = 0x81, 0x82, 0x8E


def expiry(seconds: int) -> bytes:
    return b"\x11" + struct.pack(">I", seconds)


@proves(
    "3.1.2-4 3.1.2-5 3.1.3-2 3.1.4-3 3.2.2-2 3.2.2-3 4.1.0-1 4.5.0-1",
    "3.1.2-5 3.1.2-6 3.1.2-23 3.1.3-2 3.1.4-4 3.2.2-3 4.1.0-1 4.5.0-1",
)
def a_session_continues(host: Host, level: int) -> None:
    topic, name, writer = fresh(), fresh("id"), Client(host, level)
    reader = session(host, level, name)
    assert reader.subscribe((topic, 2)) == [2]
    assert writer.publish(topic, b"0") == 0 and reader.message().payload == b"0"
    reader.close()
    for number, qos in [(1, 1), (2, 2), (3, 1)]:
        assert writer.publish(topic, b"%d" % number, qos) == 0
    stranger = session(host, level, fresh("id"))
    reader = session(host, level, name, present=True)
    assert [message.payload for message in reader.messages(3)] == [b"1", b"2", b"3"]
    assert writer.publish(topic, b"4") == 0 and reader.message().payload == b"4", "the subscription is there"
    stranger.ping()
    for client in [stranger, reader]:
        client.leave()
    reader = session(host, level, name, present=True)
    reader.ping()
    reader.leave()


@proves("3.1.2-6 3.2.2-1", "3.1.2-4 3.2.2-2")
def a_clean_session_begins_with_nothing(host: Host, level: int) -> None:
    topic, other, name, writer = fresh(), fresh(), fresh("id"), Client(host, level)
    reader = session(host, level, name)
    reader.subscribe((topic, 1))
    reader.close()
    writer.publish(topic, b"missed")
    for _ in range(2):
        reader = Client(host, level, name)
        reader.subscribe((other, 1))
        writer.publish(topic, b"not subscribed")
        fence(reader, writer, other)
        reader.close()
    session(host, level, name).leave()


@proves("3.1.2-7")
def what_is_retained_outlives_the_session(host: Host, level: int) -> None:
    topic = fresh("kept")
    writer = Client(host, level)
    writer.publish(topic, b"kept", retain=True)
    writer.leave()
    reader = Client(host, level)
    reader.subscribe((topic, 1))
    assert reader.message()[1:5] == (b"kept", 1, False, True)


@proves("3.1.2-8 3.1.2-10 3.1.2-12 3.14.4-3", "3.1.2-7 3.1.2-8 3.1.2-10 3.14.4-3")
def a_will_is_published_once_and_only_without_a_disconnect(host: Host, level: int) -> None:
    topic, reader = fresh(), Client(host, level)
    reader.subscribe((topic, 0))
    for payload in [b"", b"gone", bytes(range(256)) * 200]:
        Client(host, level, flags=6, more=will(level, topic, payload)).close()
        assert reader.message().payload == payload
    # One that is answered with an error, and not closed by its client.
    broken = Client(host, level, flags=6, more=will(level, topic, b"broken"))
    broken.send(b"\xc0\x01\0")
    broken.ended(MALFORMED)
    assert reader.message().payload == b"broken"
    Client(host, level, flags=6, more=will(level, topic, b"left")).leave()
    Client(host, level).close()
    fence(reader, Client(host, level), topic)
    name = fresh("id")
    Client(host, level, name, flags=6, more=will(level, topic, b"once")).close()
    assert reader.message().payload == b"once"
    Client(host, level, name).close()
    fence(reader, Client(host, level), topic)


@proves("3.1.2-16 3.1.2-17", "3.1.2-14 3.1.2-15")
def a_will_is_retained_where_a_rule_says_so(host: Host, level: int) -> None:
    plain, kept = fresh(), fresh("kept")
    reader = Client(host, level)
    reader.subscribe((plain, 0), (kept, 0))
    for flags, topic in [(0x06, plain), (0x26, kept)]:
        Client(host, level, flags=flags, more=will(level, topic, b"gone")).close()
        assert reader.message()[:5] == (topic, b"gone", 0, False, False)
    later = Client(host, level)
    later.subscribe((plain, 0), (kept, 0))
    assert later.message()[:5] == (kept, b"gone", 0, False, True)
    later.ping()


@proves(v5="3.1.3-10")
def the_user_properties_of_a_will_keep_their_order(host: Host, level: int) -> None:
    topic, reader = fresh(), Client(host, level)
    reader.subscribe((topic, 0))
    pairs = (("b", "1"), ("a", "2"), ("b", "3"))
    said = b"".join(b"\x26" + text(name) + text(value) for name, value in pairs)
    Client(host, level, flags=6, more=will(level, topic, b"gone", said)).close()
    assert reader.message().user == pairs


def delayed(topic: str, payload: bytes, delay_s: int) -> bytes:
    return will(5, topic, payload, b"\x18" + struct.pack(">I", delay_s))


@proves(v5="4.1.0-2")
def a_session_ends_when_it_expires_and_its_will_with_it(host: Host, level: int) -> None:
    topic, name, reader = fresh(), fresh("id"), Client(host, level)
    reader.subscribe((topic, 0))
    Client(host, level, name, flags=4, properties=expiry(1), more=delayed(topic, b"expired", 3600)).close()
    assert reader.message().payload == b"expired", "it is published when the session ends"
    Client(host, level, name, flags=0, properties=expiry(1), present=False).leave()


def a_will_is_due_when_another_session_begins(host: Host, level: int) -> None:
    """Clean Start ends the session, and its will is published though its delay is not over."""
    topic, name, reader = fresh(), fresh("id"), Client(host, level)
    reader.subscribe((topic, 0))
    Client(host, level, name, flags=4, properties=KEPT, more=delayed(topic, b"ended", 3600)).close()
    other = Client(host, level, name, flags=6, properties=KEPT, more=delayed(topic, b"taken over", 3600))
    assert reader.message().payload == b"ended"
    Client(host, level, name).leave()
    other.ended(TAKEN_OVER)
    assert reader.message().payload == b"taken over"


def disconnect_may_not_begin_to_keep_a_session(host: Host, level: int) -> None:
    client = Client(host, level)
    client.send(packet(0xE0, b"\0\5" + expiry(600)))
    client.ended(PROTOCOL_ERROR)
    name = fresh("id")
    Client(host, level, name, properties=expiry(600)).leave(0, expiry(0))
    session(host, level, name).leave(0, expiry(0))


@proves("3.1.4-2", "3.1.4-3")
def the_newer_connection_of_a_client_id_stays(host: Host, level: int) -> None:
    name = fresh("id")
    first = session(host, level, name)
    second = session(host, level, name, present=True)
    first.ended(TAKEN_OVER)
    third = Client(host, level, name)
    second.ended(TAKEN_OVER)
    third.ping()
    third.leave()


@proves("3.1.4-4 3.2.0-1", "3.1.4-5 3.2.0-1 3.2.0-2 3.2.2-1 3.2.2-8")
def connack_is_the_first_packet_and_comes_once(host: Host, level: int) -> None:
    topic, other, name = fresh(), fresh(), fresh("id")
    reader = session(host, level, name)
    reader.subscribe((topic, 1))
    reader.close()
    Client(host, level).publish(topic, b"waits")
    said = KEPT if level == 5 else b""
    stream = host.connect()
    stream.sendall(connect_bytes(text(name), level, 0, 0, said) + b"\xc0\0" + publish_bytes(level, other, b"at once", 1, 7))
    kinds: list[int] = []
    while not {3, 4, 13} <= set(kinds):
        kind, body = read_packet(stream)
        kinds.append(kind >> 4)
        assert len(kinds) > 1 or (kind, body[:2]) == (0x20, b"\1\0"), "the flags but Session Present are 0"
    stream.sendall(b"\xe0\0")
    assert ends(stream) == b"" and kinds[0] == 2 and kinds.count(2) == 1, kinds
    stream.close()
    session(host, level, name, clean=True).leave()


@proves("3.1.4-5 3.2.2-4 3.2.2-5", "3.1.4-2 3.1.4-6 3.2.2-6 3.2.2-7 3.14.0-1 4.13.2-1")
def nothing_behind_a_refused_connect_is_done(host: Host, level: int) -> None:
    topic, name = fresh("kept"), fresh("id")
    session(host, level, name).leave()
    wrong = text("user") + text("mr1_AAAA")
    sent = connect_bytes(text(name), level, 0xC0, 0, KEPT, wrong) + publish_bytes(level, topic, b"no", 1, 1) + b"\xc0\0"
    denied(host, level, sent, 4 if level == 4 else 0x86)
    reader = Client(host, level)
    reader.subscribe((topic, 0))
    reader.ping()
    session(host, level, name, present=True).leave()


@proves(v5="3.1.2-24 3.1.2-25")
def no_packet_is_longer_than_the_client_reads(host: Host, level: int) -> None:
    topic, name, writer = fresh(), fresh("id"), Client(host, level)
    most = 100
    reader = Client(host, level, name, flags=0, properties=KEPT + b"\x27" + struct.pack(">I", most))
    reader.subscribe((topic, 1))
    fits = most - 2 - len(text(topic)) - 2 - 1
    for length in [fits, fits + 1, 5000, 1]:
        assert writer.publish(topic, b"x" * length) == 0
    assert [len(message.payload) for message in reader.messages(2)] == [fits, 1]
    reader.close()
    reader = session(host, level, name, present=True)
    reader.ping()
    reader.leave()


@proves(v5="3.1.2-26 3.1.2-27 3.3.2-8 3.3.2-11 3.3.4-5")
def no_topic_has_a_number_for_the_client(host: Host, level: int) -> None:
    topic, writer = fresh(), Client(host, level)
    for properties in [b"", b"\x22\0\0", b"\x22\0\1"]:
        reader = Client(host, level, properties=properties)
        reader.subscribe((topic, 0))
        for number in range(3):
            writer.publish(topic, b"%d" % number)
            assert reader.message() == (topic, b"%d" % number, 0, False, False, 0, (), (), b"\0")
        reader.leave()
    fails(host, level, publish_bytes(level, fresh(), b"x", said=b"\x23\0\0"), PROTOCOL_ERROR)


@proves(v5="3.1.2-28 3.1.2-29 3.4.2-2 3.4.2-3 3.5.2-2 3.5.2-3 3.9.2-1 3.9.2-2 3.11.2-1 3.11.2-2 3.2.2-19")
def the_host_sends_no_words_that_the_client_may_not_want(host: Host, level: int) -> None:
    # The reader of the packets accepts no reason texts, no user properties but those of messages, and no response information.
    for properties in [b"\x17\0", b"\x17\1", b"\x19\1", b"\x19\0\x17\0"]:
        client = Client(host, level, properties=properties)
        assert client.publish("nowhere/at/all") == 0x90 and client.publish("nowhere/at/all", qos=2) == 0x90
        assert client.subscribe(("a#", 0), ("a", 1)) == [0x8F, 1]
        assert client.unsubscribe("a", "b") == [0, 0x11]
        client.leave()
    fails(host, level, publish_bytes(level, "a/+", b"x"), 0x90)


@proves(v5="4.12.0-1 4.12.0-4 4.12.0-6")
def an_authentication_method_is_refused(host: Host, level: int) -> None:
    denied(host, level, connect_bytes(text("x"), level, properties=b"\x15" + text("SCRAM-SHA-1")), 0x8C)
    fails(host, level, packet(0xF0, b"\x18\0"), PROTOCOL_ERROR)
    assert 21 not in Client(host, level).welcome


@proves("4.1.0-2", "3.2.2-22")
def without_keep_alive_a_session_lasts_as_long_as_its_connection(host: Host, level: int) -> None:
    # The limits on silence are tested in test_hostile.py; here, another client comes and goes meanwhile.
    quiet, topic = Client(host, level), fresh()
    quiet.subscribe((topic, 1))
    for number in range(3):
        Client(host, level, keep_alive_s=65535).leave()
        Client(host, level).publish(topic, b"%d" % number)
        assert quiet.message().payload == b"%d" % number


@proves("7.1.1-1", "4.2.0-1")
def bytes_come_in_order_over_tcp(host: Host, level: int) -> None:
    topic, reader, writer = fresh(), Client(host, level), Client(host, level)
    reader.subscribe((topic, 0))
    payload = bytes(number % 251 for number in range(1 << 20))
    whole = publish_bytes(level, topic, payload, 1, 9)
    for at in range(0, len(whole), 65_521):
        writer.send(whole[at : at + 65_521])
    assert writer.answer(0x40) == (9, 0) and reader.message().payload == payload


@proves(v5="3.14.2-1 3.14.2-2 3.14.4-1 3.14.4-2")
def a_disconnect_of_the_host_has_a_reason_and_is_the_last_packet(host: Host, level: int) -> None:
    for sent, reason in [(b"\xc0\x01\0", MALFORMED), (b"\0\0", PROTOCOL_ERROR), (publish_bytes(5, "+", b""), 0x90)]:
        client = Client(host, level)
        client.send(b"\xc0\0" + sent + b"\xc0\0" + client.subscribe_bytes(1, ("a", 0)))
        assert client.packet()[0] == 0xD0
        client.ended(reason)
    assert refused(host, connect_bytes(text("x"), 5, flags=3))[0] == 0x20
