"""PUBLISH: quality, retained messages, topics, properties, and how many messages are under way."""

from __future__ import annotations

import struct

from cases_connect import session
from conftest import Host
from packets import packet, text
from talk import PUBACK, PUBREC, PUBREL, Client, connect_bytes, denied, fails, fence, fresh, proves, publish_bytes

MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID, RECEIVE_MAXIMUM, ALIAS_INVALID = 0x81, 0x82, 0x90, 0x93, 0x94


def ids(client: Client, kind: int, count: int) -> list[int]:
    return [client.answer(kind)[0] for _ in range(count)]


def two(number: int) -> bytes:
    return struct.pack(">H", number)


@proves("3.3.1-1 4.4.0-1 4.6.0-1", "3.3.1-1 4.4.0-1 4.6.0-1")
def what_is_unacknowledged_is_sent_again_in_its_order(host: Host, level: int) -> None:
    one, other, name, writer = fresh(), fresh(), fresh("id"), Client(host, level)
    reader = session(host, level, name)
    assert reader.subscribe((one, 1), (other, 2)) == [1, 2]
    sent = []
    for number in range(6):
        writer.publish(other if number % 3 == 1 else one, b"%d" % number)
        sent.append(reader.message(answer=False))
    reader.send(packet(PUBACK, two(sent[2].id)), packet(PUBREC, two(sent[1].id)))
    assert reader.answer(PUBREL) == (sent[1].id, 0)
    reader.ping()
    reader.close()
    reader = session(host, level, name, present=True)
    assert reader.message(answer=False) == sent[0]._replace(dup=True)
    assert reader.answer(PUBREL) == (sent[1].id, 0)
    assert reader.messages(3, answer=False) == [sent[number]._replace(dup=True) for number in (3, 4, 5)]
    reader.ping()
    reader.leave()
    clean = session(host, level, name, clean=True)
    clean.ping()
    clean.leave()


@proves("3.3.1-3", "3.3.1-3")
def dup_is_not_handed_on(host: Host, level: int) -> None:
    topic, reader, writer = fresh(), Client(host, level), Client(host, level)
    reader.subscribe((topic, 2))
    for qos in [1, 2]:
        writer.publish(topic, b"again", qos, dup=True)
        assert not reader.message().dup


@proves("3.3.1-4", "3.3.1-4")
def there_is_no_quality_3(host: Host, level: int) -> None:
    for flags in [6, 7, 14]:
        fails(host, level, packet(0x30 | flags, text(fresh()) + b"\0\1\0x"), MALFORMED)


@proves("3.3.1-5 3.3.1-6 3.3.1-7 3.3.1-8 3.3.1-9", "3.3.1-5 3.3.1-9 3.3.1-12")
def the_newest_message_is_retained_where_a_rule_says_so(host: Host, level: int) -> None:
    topic, writer, before = fresh("kept"), Client(host, level), Client(host, level)
    before.subscribe((topic, 2))
    for number, qos in enumerate([1, 0, 2]):
        payload = b"%d" % number
        writer.publish(topic, payload, qos, retain=True)
        message = before.message()
        assert (message.payload, message.retain) == (payload, False)
        for filter in [topic, "kept/#"]:
            reader = Client(host, level)
            reader.subscribe((filter, 1))
            found = [message for message in [reader.message()] if message.topic == topic]
            while not found:
                found = [message for message in [reader.message()] if message.topic == topic]
            assert (found[0].payload, found[0].retain, found[0].dup) == (payload, True, False)
            reader.leave()


@proves("3.3.1-10 3.3.1-11", "3.3.1-6 3.3.1-7")
def an_empty_message_is_sent_and_not_retained(host: Host, level: int) -> None:
    topic, writer, before = fresh("kept"), Client(host, level), Client(host, level)
    before.subscribe((topic, 0))
    writer.publish(topic, b"there", retain=True)
    writer.publish(topic, b"", retain=True)
    assert [message[1:5] for message in before.messages(2)] == [(b"there", 0, False, False), (b"", 0, False, False)]
    reader = Client(host, level)
    reader.subscribe((topic, 1))
    fence(reader, writer, topic)
    later = Client(host, level)
    later.subscribe((topic, 1))
    assert later.message()[1:5] == (b"fence 2", 1, False, True)


@proves(v5="3.3.1-10 3.3.1-11")
def a_subscription_says_when_it_wants_what_is_retained(host: Host, level: int) -> None:
    topic, writer = fresh("kept"), Client(host, level)
    writer.publish(topic, b"kept", retain=True)
    reader = Client(host, level)
    reader.subscribe((topic, 0x21))
    reader.subscribe((topic, 0x11))
    reader.ping()
    reader.unsubscribe(topic)
    reader.subscribe((topic, 0x11))
    assert reader.message().payload == b"kept"
    reader.subscribe((topic, 0x11))
    reader.ping()


@proves("3.3.2-2 4.7.1-1", "3.3.2-2 4.7.0-1")
def topics_have_no_wildcards(host: Host, level: int) -> None:
    for topic in ["#", "+", "t/#", "t/+", "t/a+b", "t/a#"]:
        fails(host, level, publish_bytes(level, topic, b"x"), TOPIC_INVALID)


@proves("4.7.3-1", "4.7.3-1")
def topics_and_filters_have_a_character(host: Host, level: int) -> None:
    fails(host, level, publish_bytes(level, "", b"x"), TOPIC_INVALID, PROTOCOL_ERROR)
    assert Client(host, level).subscribe(("", 0)) == [0x80 if level == 4 else 0x8F]


@proves("3.3.2-3", "3.3.2-3")
def the_topic_of_a_message_matches_the_filter(host: Host, level: int) -> None:
    base, writer = fresh(), Client(host, level)
    for filter, topics in {
        f"{base}/+": [f"{base}/a", f"{base}/B-c.d_9"],
        f"{base}/#": [base, f"{base}/a/b"],
        f"+/{base[2:]}/a/+": [f"{base}/a/b"],
        "kept/+/x": [f"kept/{base[2:]}/x"],
        "$own/#": [f"$own/{base[2:]}"],
    }.items():
        reader = Client(host, level)
        reader.subscribe((filter, 0x20 if level == 5 else 0))
        for topic in topics:
            writer.publish(topic, topic.encode())
            assert reader.message()[:2] == (topic, topic.encode())
        reader.leave()


@proves("3.3.5-1", "3.3.4-2")
def a_message_has_the_highest_quality_that_was_granted(host: Host, level: int) -> None:
    topic, writer = fresh(), Client(host, level)
    for granted in range(3):
        reader = Client(host, level)
        assert reader.subscribe((topic, granted)) == [granted]
        for sent in range(granted, 3):
            writer.publish(topic, b"x", sent)
            assert reader.message().qos == granted
        reader.leave()
    reader = Client(host, level)
    assert reader.subscribe((topic, 0), (f"{topic}/#", 2), ("t/+", 1)) == [0, 2, 1]
    writer.publish(topic, b"once", 2)
    assert reader.message()[:3] == (topic, b"once", 2)
    reader.ping()


@proves(v5="3.3.2-7 3.3.2-9 3.3.2-12")
def the_numbers_of_topics_belong_to_a_connection(host: Host, level: int) -> None:
    one, other, reader = fresh(), fresh(), Client(host, level)
    reader.subscribe((one, 0), (other, 0))
    name = fresh("id")
    writer = session(host, level, name)
    (most,) = writer.welcome[34]
    assert isinstance(most, int) and most > 1
    for alias in range(1, most + 1):
        assert writer.publish(one, b"named", said=b"\x23" + two(alias)) == 0
        assert reader.message().topic == one
        assert writer.publish("", b"by number", said=b"\x23" + two(alias)) == 0
        assert reader.message()[:2] == (one, b"by number")
    writer.publish(other, b"changed", said=b"\x23\0\1")
    writer.publish("", b"by number", said=b"\x23\0\1")
    assert [message.topic for message in reader.messages(2)] == [other, other]
    writer.close()
    writer = session(host, level, name, present=True)
    writer.send(publish_bytes(level, "", b"x", 1, 1, said=b"\x23\0\1"))
    writer.ended(PROTOCOL_ERROR)
    fails(host, level, publish_bytes(level, one, b"x", 1, 1, said=b"\x23" + two(most + 1)), ALIAS_INVALID)


@proves(v5="3.3.2-13 3.3.2-19")
def texts_of_properties_are_utf_8(host: Host, level: int) -> None:
    for name in [3, 8]:
        for data in [b"\0\1\xff", b"\0\3\xed\xa0\x80", b"\0\1\0"]:
            fails(host, level, publish_bytes(level, fresh(), b"x", said=bytes([name]) + data), MALFORMED)


@proves(v5="3.3.2-17 3.3.2-18")
def user_properties_keep_their_order(host: Host, level: int) -> None:
    topic, reader, writer = fresh(), Client(host, level), Client(host, level)
    reader.subscribe((topic, 0))
    pairs = (("b", "1"), ("\ufeffa", "é"), ("b", ""), ("b", "1"))
    writer.publish(topic, b"x", said=b"".join(b"\x26" + text(name) + text(value) for name, value in pairs))
    assert reader.message().user == pairs


@proves(v5="3.3.4-3 3.3.4-4")
def a_message_has_the_numbers_of_its_subscriptions(host: Host, level: int) -> None:
    topic, reader, writer = fresh(), Client(host, level), Client(host, level)
    reader.subscribe((topic, 1), said=b"\x0b\x05")
    reader.subscribe((f"{topic}/#", 0), said=b"\x0b\xff\xff\xff\x7f")
    reader.subscribe((f"{topic}/+", 0), said=b"\x0b\x07")
    reader.subscribe((f"+/{topic[2:]}", 0))
    writer.publish(topic)
    assert sorted(reader.message().numbers) == [5, 268_435_455]
    writer.publish(f"{topic}/a")
    assert sorted(reader.message().numbers) == [7, 268_435_455]
    reader.subscribe((topic, 1), said=b"\x0b\x06")
    writer.publish(topic)
    assert sorted(reader.message().numbers) == [6, 268_435_455]
    for said in [b"\x0b\0", b"\x0b\1\x0b\1"]:
        fails(host, level, packet(0x82, b"\0\1" + bytes([len(said)]) + said + text("a") + b"\0"), PROTOCOL_ERROR)


@proves(v5="3.3.4-6")
def a_client_may_not_number_subscriptions_in_messages(host: Host, level: int) -> None:
    fails(host, level, publish_bytes(level, fresh(), b"x", said=b"\x0b\1"), MALFORMED, PROTOCOL_ERROR)


@proves(v5="3.3.4-7")
def more_messages_than_the_host_takes_end_the_connection(host: Host, level: int) -> None:
    topic, writer = fresh(), Client(host, level)
    (most,) = writer.welcome[33]
    assert isinstance(most, int)
    for number in range(1, most + 1):
        writer.send(publish_bytes(level, topic, b"x", 2, number))
    assert ids(writer, PUBREC, most) == list(range(1, most + 1))
    writer.send(publish_bytes(level, topic, b"x", 2, most + 1))
    writer.ended(RECEIVE_MAXIMUM)


@proves(v5="3.3.4-9 3.3.4-10 4.9.0-1 4.9.0-2 4.9.0-3")
def no_more_messages_are_under_way_than_the_client_takes(host: Host, level: int) -> None:
    topic, writer = fresh(), Client(host, level)
    for qos in [1, 2]:
        reader = Client(host, level, properties=b"\x21\0\2")
        reader.subscribe((topic, qos))
        for number in range(5):
            writer.publish(topic, b"%d" % number)
        first = reader.messages(2, answer=False)
        reader.ping()
        assert reader.subscribe(("other", 0)) == [0] and reader.publish(topic + "/own") == 0
        reader.ping()
        if qos == 1:
            reader.send(packet(PUBACK, two(first[1].id)))
        else:
            reader.send(packet(PUBREC, two(first[1].id)))
            assert reader.answer(PUBREL) == (first[1].id, 0)
            reader.ping()
            reader.send(packet(0x70, two(first[1].id)))
        third = reader.message(answer=False)
        assert third.payload == b"2" and third.id != first[0].id
        reader.ping()
        # A PUBREC that refuses the message is its end.
        reader.send(packet(PUBACK if qos == 1 else PUBREC, two(third.id) + b"\x80"))
        assert reader.message(answer=False).payload == b"3"
        reader.ping()
        reader.leave()
    denied(host, level, connect_bytes(text("x"), level, properties=b"\x21\0\0"), PROTOCOL_ERROR)


@proves("4.3.3-2", "4.3.3-9 4.3.3-10 4.3.3-12 3.6.2-1")
def a_message_of_quality_2_is_handed_on_once(host: Host, level: int) -> None:
    topic, reader, name = fresh(), Client(host, level), fresh("id")
    reader.subscribe((topic, 0))
    writer = session(host, level, name)
    if level == 5:
        assert writer.publish("nowhere/at/all", b"x", 2, 7) == TOPIC_INVALID, "the id is free again"
    for number in range(2):
        payload = b"%d" % number
        writer.send(publish_bytes(level, topic, payload, 2, 7))
        assert writer.answer(PUBREC) == (7, 0)
        writer.send(publish_bytes(level, topic, payload, 2, 7, dup=True))
        assert writer.answer(PUBREC) == (7, 0)
        writer.close()
        writer = session(host, level, name, present=True)
        writer.send(publish_bytes(level, topic, payload, 2, 7, dup=True))
        assert writer.answer(PUBREC) == (7, 0)
        writer.send(packet(PUBREL, two(7)))
        assert writer.answer(0x70) == (7, 0)
        writer.send(packet(PUBREL, two(7)))
        assert writer.answer(0x70)[0] == 7
        assert reader.message().payload == payload
    fence(reader, writer, topic)
    writer.leave()
    # PUBREL for what the host does not know, and PUBREC for what it has not sent.
    client = Client(host, level)
    client.send(packet(PUBREC, two(99)))
    assert client.answer(PUBREL) == (99, 0x92 if level == 5 else 0)


@proves(v5="4.3.2-5")
def behind_puback_the_id_is_of_another_message(host: Host, level: int) -> None:
    topic, reader, writer = fresh(), Client(host, level), Client(host, level)
    reader.subscribe((topic, 0))
    for payload in [b"same", b"same", b"other"]:
        for dup in [False, True]:
            assert writer.publish(topic, payload, 1, 3, dup=dup) == 0
    assert [message.payload for message in reader.messages(6)] == [b"same"] * 4 + [b"other"] * 2


@proves(v5="4.4.0-2")
def what_the_client_refused_is_not_sent_again(host: Host, level: int) -> None:
    for qos, kind in [(1, PUBACK), (2, PUBREC)]:
        topic, name, writer = fresh(), fresh("id"), Client(host, level)
        reader = session(host, level, name)
        reader.subscribe((topic, qos))
        writer.publish(topic, b"refused")
        writer.publish(topic, b"kept")
        refused, kept = reader.messages(2, answer=False)
        reader.send(packet(kind, two(refused.id) + b"\x97"))
        reader.ping()
        reader.close()
        reader = session(host, level, name, present=True)
        assert reader.message() == kept._replace(dup=True)
        reader.ping()
        reader.leave()


@proves("4.6.0-2 4.6.0-3 4.6.0-4 4.6.0-5 4.6.0-6", "4.6.0-2 4.6.0-3 4.6.0-4 4.6.0-5 4.6.0-6")
def messages_and_answers_have_their_order(host: Host, level: int) -> None:
    # The statements on answers are about clients; the host keeps to them as well.
    for qos, kind in [(1, PUBACK), (2, PUBREC)]:
        topic, reader, writer = fresh(), Client(host, level), Client(host, level)
        reader.subscribe((topic, qos))
        numbers = [*range(40, 0, -1)]
        writer.send(*[publish_bytes(level, topic, b"%d" % number, qos, number) for number in numbers])
        assert ids(writer, kind, 40) == numbers
        if qos == 2:
            writer.send(*[packet(PUBREL, two(number)) for number in numbers])
            assert ids(writer, 0x70, 40) == numbers
        came = reader.messages(40, answer=False)
        assert [message.payload for message in came] == [b"%d" % number for number in numbers]
        if qos == 2:
            reader.send(*[packet(PUBREC, two(message.id)) for message in reversed(came)])
            assert ids(reader, PUBREL, 40) == [message.id for message in reversed(came)]


@proves("4.7.2-1", "4.7.2-1")
def wildcards_do_not_match_topics_of_a_dollar_sign(host: Host, level: int) -> None:
    base, writer = fresh("kept"), Client(host, level)
    own = f"$own/{base[5:]}"
    reader = Client(host, level)
    said = 0x20 if level == 5 else 0
    reader.subscribe(("#", said), (f"+/{base[5:]}", said), ("+/#", said))
    writer.publish(own, b"hidden")
    for payload in [b"seen", b"seen too"]:
        writer.publish(base, payload)
        while (message := reader.message()).topic != base:
            assert not message.topic.startswith("$")
    other = Client(host, level)
    other.subscribe((own, said), ("$own/+/#", said))
    writer.publish(own, b"asked for")
    assert other.message()[:2] == (own, b"asked for")


@proves("3.3.5-2")
def what_may_not_be_published_ends_the_connection(host: Host, level: int) -> None:
    token = host.capability("--append", "t/allowed")
    for qos in [1, 2]:
        client = Client(host, level, flags=0xC2, more=text("user") + text(token))
        client.send(publish_bytes(level, fresh(), b"x", qos, 1))
        client.ended()
