"""What `mqtt ls` and `why` say of clients."""

from __future__ import annotations

import json
from typing import Any

from conftest import Host, Mosquitto
from packets import packet, publish, read_packet, session, subscribe, text


def clients(host: Host, *of: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in host.run("--json", "mqtt", "ls", *of).splitlines()]
    return [line for line in lines if "client" in line]


def test_a_client_that_is_away_has_a_queue_and_a_position(host: Host) -> None:
    assert "no client" in host.run("mqtt", "ls") and "no client" in host.run("why", "mqtt")
    with session(host, "lamp", flags=0) as stream:
        stream.sendall(subscribe("raw/+", qos=1))
        assert read_packet(stream) == (0x90, b"\0\1\1")
        stream.sendall(b"\xe0\0")
        stream.recv(1)
    for number in range(3):
        host.run("log", "append", "raw/hall", str(number))
    host.wait_queued("lamp", 3)
    (lamp,) = clients(host)
    queue = {"log": "raw/hall", "topic": "raw/hall", "next": 1, "queued": 3}
    assert (lamp["client"], lamp["connected"], lamp["filters"], lamp["logs"]) == ("lamp", False, ["raw/+"], [queue])
    said = host.run("why", "mqtt:lamp")
    assert "client 'lamp' of owner is away" in said and "3 records" in said, said
    assert "from record 1 of log 'raw/hall' on" in said and "when it is back" in said, said


def test_a_client_that_does_not_acknowledge_is_named(host: Host) -> None:
    with session(host, "slow", flags=0) as stream:
        stream.sendall(subscribe("raw/hall", qos=1))
        assert read_packet(stream) == (0x90, b"\0\1\1")
        host.append("raw/hall", map(str, range(70)))
        host.wait_queued("slow", 6)
        (slow,) = clients(host, "slow")
        assert (slow["in_flight"], slow["in_flight_max"], slow["logs"][0]["next"]) == (64, 64, 65)
        assert "has to acknowledge some" in host.run("why", "mqtt:slow")


def test_clients_are_found_by_their_filters(host: Host) -> None:
    with session(host, "kitchen") as one, session(host, "all") as two, session(host, "other") as three:
        for stream, topic in [(one, "raw/kitchen"), (two, "raw/#"), (three, "$share/g/out")]:
            stream.sendall(subscribe(topic))
            read_packet(stream)
        assert [found["client"] for found in clients(host, "raw/kitchen")] == ["all", "kitchen"]
        assert [found["client"] for found in clients(host, "out")] == ["other"]
        assert [found["client"] for found in clients(host)] == ["all", "kitchen", "other"]
        assert "nothing waits for it" in host.run("why", "mqtt:kitchen")


def test_refused_messages_are_named_with_client_and_topic(host: Host, mosquitto: Mosquitto) -> None:
    mosquitto.pub(host, "no/such", "1", "-q", "1", "-V", "311", "-i", "lost")
    for said in [host.run("why", "mqtt"), host.run("mqtt", "ls", "lost")]:
        assert "a message of client 'lost' to 'no/such' was refused: MR2101" in said, said
    with session(host, "many", level=5) as stream:
        for number in range(1, 100):
            stream.sendall(packet(0x32, text("no/%d" % number) + number.to_bytes(2, "big") + b"\0x"))
            read_packet(stream)
    lines = [json.loads(line) for line in host.run("--json", "mqtt", "ls").splitlines()]
    refused = [line["refused"]["topic"] for line in lines if "refused" in line]
    assert len(refused) == 64 and refused[-1] == "no/99", "the last ones"


def test_a_log_of_the_name_mqtt_is_still_a_log(host: Host) -> None:
    host.run("log", "create", "mqtt")
    assert "log 'mqtt'" in host.run("why", "mqtt")
    with session(host, "lamp") as stream:
        stream.sendall(publish("mqtt", b"1", 1))
        assert read_packet(stream) == (0x40, b"\0\1")
        assert "client 'lamp'" in host.run("why", "mqtt:")


def test_only_a_host_knows_clients(host: Host) -> None:
    host.stop()
    for command in [["mqtt", "ls"], ["why", "mqtt:lamp"]]:
        assert "no host serves" in host.run(*command, status=1)
    host.start()
