"""SUBSCRIBE, UNSUBSCRIBE, PINGREQ and shared subscriptions."""

from __future__ import annotations

import select
import struct

from cases_connect import session
from conftest import PATIENCE_S, Host
from packets import packet, text
from talk import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, SUBACK, Client, Message, fails, fence, fresh, proves, publish_bytes

MALFORMED, PROTOCOL_ERROR, FILTER_INVALID, NOT_AUTHORIZED = 0x81, 0x82, 0x8F, 0x87


def two(number: int) -> bytes:
    return struct.pack(">H", number)


@proves("3.8.3-3 3.10.3-2", "3.8.3-2 3.10.3-2")
def there_is_a_filter(host: Host, level: int) -> None:
    for first in [0x82, 0xA2]:
        fails(host, level, packet(first, b"\0\1" + (b"\0" if level == 5 else b"")), PROTOCOL_ERROR)


@proves("3.8.3-4", "3.8.3-5")
def reserved_options_are_refused(host: Host, level: int) -> None:
    wrong = [3, 0x40, 0x80, 0xC0] + ([4, 8, 0x10, 0x20] if level == 4 else [0x30])
    for options in wrong:
        fails(host, level, packet(0x82, b"\0\1" + (b"\0" if level == 5 else b"") + text("a") + bytes([options])), MALFORMED, PROTOCOL_ERROR)


@proves(v5="3.8.3-3")
def a_client_may_want_none_of_its_own_messages(host: Host, level: int) -> None:
    topic, name, other = fresh(), fresh("id"), Client(host, level)
    own = session(host, level, name)
    assert own.subscribe((topic, 0x05)) == [1]
    both = Client(host, level)
    both.subscribe((topic, 0x04), (f"{topic}/#", 1))
    for qos in range(3):
        own.publish(topic, b"own %d" % qos, qos)
        other.publish(topic, b"other %d" % qos)
        assert own.message().payload == b"other %d" % qos
        assert [message[1:3] for message in both.messages(2)] == [(b"own %d" % qos, 1), (b"other %d" % qos, 1)]
        both.ping()
    # Those that were published before the connection ended are its own, too.
    own.publish(topic, b"own", 1)
    own.close()
    other.publish(topic, b"meanwhile")
    own = session(host, level, name, present=True)
    assert own.message().payload == b"meanwhile"
    own.ping()
    own.subscribe((topic, 1))
    own.send(publish_bytes(level, topic, b"wanted"))
    assert own.message().payload == b"wanted"
    own.leave()


@proves(v5="3.8.3-4")
def no_group_without_own_messages(host: Host, level: int) -> None:
    fails(host, level, packet(0x82, b"\0\1\0" + text("$share/g/a") + b"\4"), PROTOCOL_ERROR)


@proves("3.8.4-3", "3.8.4-3 3.8.4-4")
def the_same_filter_again_replaces_the_subscription(host: Host, level: int) -> None:
    topic, writer = fresh("kept"), Client(host, level)
    name = fresh("id")
    reader = session(host, level, name)
    assert reader.subscribe((topic, 0)) == [0]
    writer.publish(topic, b"1", 2)
    assert reader.message()[1:3] == (b"1", 0)
    assert reader.subscribe((topic, 2)) == [2]
    assert reader.message()[1:5] == (b"1", 2, False, True), "what is retained comes again"
    writer.publish(topic, b"2", 2)
    assert reader.message()[1:5] == (b"2", 2, False, False)
    reader.ping()
    reader.close()
    writer.publish(topic, b"3", 1)
    reader = session(host, level, name, present=True)
    # What waited comes, and in 3.1.1 once more what is retained; SUBACK stands anywhere between them.
    reader.send(reader.subscribe_bytes(1, (topic, 0x21 if level == 5 else 1)))
    came: list[Message] = []
    answered = False
    while not answered or len(came) < (1 if level == 5 else 2):
        kind, flags, data = reader.packet()
        if kind == SUBACK:
            answered = True
        else:
            assert kind == PUBLISH
            came.append(reader.parse(flags, data))
    assert sorted((message.payload, message.retain) for message in came) == [(b"3", False), (b"3", True)][: len(came)]
    reader.leave()


@proves("3.8.4-4 3.8.4-5 3.9.3-1 3.9.3-2 4.7.1-2 4.7.1-3", "3.8.4-5 3.8.4-6 3.8.4-7 3.9.3-1 3.9.3-2 4.7.1-1 4.7.1-2")
def each_filter_has_its_answer(host: Host, level: int) -> None:
    wrong = 0x80 if level == 4 else FILTER_INVALID
    filters = {
        "a": 2, "a#": wrong, "#": 1, "+": 0, "#/a": wrong, "/": 1, "+/a/+/#": 2, "a+": wrong, "+a/b": wrong, "a/#/b": wrong, "a/+b": wrong,
        "//": 0, "a/b/#": 1, "##": wrong, "$SYS/#": 1, "é x/+": 1,
    }
    asked = [(filter, how if how < 3 else 1) for filter, how in filters.items()]
    client = Client(host, level)
    said = 0x20 if level == 5 else 0
    assert client.subscribe(*[(filter, how | said) for filter, how in asked if filter != "#"]) == [
        how for filter, how in filters.items() if filter != "#"
    ]
    token = host.capability("--read", "t/mine")
    other = Client(host, level, flags=0xC2, more=text("user") + text(token))
    denied = 0x80 if level == 4 else NOT_AUTHORIZED
    assert other.subscribe(("t/mine", 2), ("t/other", 1), ("t/+", 1)) == [2, denied, 1]
    twice = fresh()
    assert client.subscribe((twice, 2), (twice, 0)) == [2, 0]
    Client(host, level).publish(twice, b"x", 2)
    assert client.message()[:3] == (twice, b"x", 0), "the later one of the packet replaces the earlier one"


@proves("3.10.4-1 3.10.4-2", "3.10.4-1 3.10.4-2")
def a_filter_that_is_the_same_is_deleted(host: Host, level: int) -> None:
    topic, other, writer, reader = fresh(), fresh(), Client(host, level), Client(host, level)
    reader.subscribe((topic, 1), (other, 1))
    for filter in [f"{topic}/", f"{topic}/#", "t/+", topic.upper(), "#"]:
        assert reader.unsubscribe(filter) == ([] if level == 4 else [0x11])
    writer.publish(topic, b"still")
    assert reader.message().payload == b"still"
    assert reader.unsubscribe(topic) == ([] if level == 4 else [0])
    writer.publish(topic, b"no longer")
    fence(reader, writer, other)
    assert reader.unsubscribe(topic) == ([] if level == 4 else [0x11])


@proves("3.10.4-3", "3.10.4-3")
def what_is_under_way_is_delivered_behind_unsubscribe(host: Host, level: int) -> None:
    topic, name, writer = fresh(), fresh("id"), Client(host, level)
    reader = session(host, level, name)
    reader.subscribe((topic, 2))
    writer.publish(topic, b"1")
    writer.publish(topic, b"2")
    first, second = reader.messages(2, answer=False)
    reader.unsubscribe(topic)
    reader.send(packet(PUBREC, two(first.id)))
    assert reader.answer(PUBREL) == (first.id, 0)
    reader.close()
    reader = session(host, level, name, present=True)
    assert reader.answer(PUBREL) == (first.id, 0)
    reader.send(packet(PUBCOMP, two(first.id)))
    assert reader.message() == second._replace(dup=True)
    reader.ping()
    reader.leave()


@proves("3.10.4-5 3.10.4-6", "3.10.4-5 3.10.4-6 3.11.3-1 3.11.3-2")
def each_filter_of_unsubscribe_counts(host: Host, level: int) -> None:
    one, two_, three, writer, reader = fresh(), fresh(), fresh(), Client(host, level), Client(host, level)
    reader.subscribe((one, 0), (two_, 0), (three, 0))
    assert reader.unsubscribe(one, "not/there", two_, one) == ([] if level == 4 else [0, 0x11, 0, 0x11])
    writer.publish(one)
    writer.publish(two_)
    fence(reader, writer, three)


@proves("3.12.4-1", "3.12.4-1")
def ping_is_answered(host: Host, level: int) -> None:
    client = Client(host, level)
    client.send(b"\xc0\0" * 3)
    assert [client.packet()[0] for _ in range(3)] == [0xD0] * 3
    client.ping()


@proves(v5="4.8.2-1 4.8.2-2")
def groups_have_names(host: Host, level: int) -> None:
    wrong = ["$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/#/a", "$share/g+/a", "$share/g/a#"]
    client = Client(host, level)
    assert client.subscribe(*[(filter, 0) for filter in wrong], ("$share/g/a", 0)) == [FILTER_INVALID] * len(wrong) + [0]


@proves(v5="4.8.2-3")
def a_group_respects_the_quality_of_each_member(host: Host, level: int) -> None:
    topic, writer = fresh(), Client(host, level)
    members = [Client(host, level) for _ in range(3)]
    for qos, member in enumerate(members):
        member.subscribe((f"$share/g{topic[2:]}/{topic}", qos))
    came: set[int] = set()
    while len(came) < len(members):
        writer.publish(topic, b"x", 2)
        (ready, *others), _, _ = select.select([member.stream for member in members], [], [], PATIENCE_S)
        assert others == []
        qos = [member.stream for member in members].index(ready)
        assert members[qos].message().qos == qos
        came.add(qos)


def held_by_first(host: Host, level: int, qos: int) -> tuple[Client, Client, Client, str, str, bytes]:
    """A group of two, of which the first holds a message: both, a writer, the name of the first, the topic, and the message."""
    topic, name, writer = fresh(), fresh("id"), Client(host, level)
    filter = f"$share/g{topic[2:]}/{topic}"
    first = session(host, level, name)
    first.subscribe((filter, qos))
    second = Client(host, level)
    writer.publish(topic, b"held")
    message = first.message(answer=False)
    assert (message.payload, message.qos) == (b"held", qos)
    second.subscribe((filter, qos))
    return first, second, writer, name, topic, two(message.id)


def only_new(reader: Client, writer: Client, topic: str) -> None:
    writer.publish(topic, b"new")
    assert reader.message().payload == b"new"
    reader.ping()


@proves(v5="4.8.2-4")
def a_member_of_quality_2_completes_what_it_has(host: Host, level: int) -> None:
    first, second, writer, name, topic, number = held_by_first(host, level, 2)
    first.close()
    only_new(second, writer, topic)
    first = session(host, level, name, present=True)
    again = first.message()
    assert (again.payload, again.dup, two(again.id)) == (b"held", True, number)
    first.leave()


@proves(v5="4.8.2-5")
def what_a_member_of_quality_2_may_have_goes_to_nobody_else(host: Host, level: int) -> None:
    first, second, writer, name, topic, _ = held_by_first(host, level, 2)
    first.close()
    Client(host, level, name).leave()
    only_new(second, writer, topic)
    only_new(second, writer, topic)


@proves(v5="4.8.2-6")
def what_a_member_refuses_goes_to_nobody_else(host: Host, level: int) -> None:
    for qos, kind in [(1, PUBACK), (2, PUBREC)]:
        first, second, writer, name, topic, number = held_by_first(host, level, qos)
        first.send(packet(kind, number + b"\x83"))
        first.ping()
        first.close()
        only_new(second, writer, topic)
        first = session(host, level, name, present=True)
        first.ping()
        first.leave()
