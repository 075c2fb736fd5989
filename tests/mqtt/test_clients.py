"""The clients that people use, at a real host."""

from __future__ import annotations

import queue
from typing import Any

import paho.mqtt.client as paho
import pytest
from conftest import PATIENCE_S, Host, Mosquitto
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

VERSIONS = ["311", "5"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_a_message_is_a_record_and_runs_functions(host: Host, mosquitto: Mosquitto, version: str, qos: str) -> None:
    done = mosquitto.pub(host, "raw/kitchen", "21.5", "-V", version, "-q", qos)
    assert done.returncode == 0, done.stderr
    assert host.wait_record("raw/kitchen", 1) == "21.5"
    assert host.wait_record("out", 1) == "copied 21.5"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_subscribers_get_what_anybody_appends(host: Host, mosquitto: Mosquitto, version: str, qos: str) -> None:
    sub = mosquitto.sub(host, "-V", version, "-q", qos, "-t", "raw/+", "-t", "out").subscribed()
    host.run("log", "append", "raw/hall", "1")
    mosquitto.pub(host, "raw/kitchen", "2", "-V", version, "-q", qos)
    expected = [f"raw/hall {qos} 0 1", f"raw/kitchen {qos} 0 2", f"out {qos} 0 copied 2"]
    assert sorted(sub.messages(3)) == sorted(expected)
    sub.end()


def test_many_messages_come_once_each_and_in_order(host: Host, mosquitto: Mosquitto) -> None:
    count = 500
    sub = mosquitto.sub(host, "-q", "1", "-t", "#").subscribed()
    lines = "".join(f"{number}\n" for number in range(count))
    done = mosquitto.pub(host, "raw/hall", "", "-q", "1", "-l", stdin=lines)
    assert done.returncode == 0, done.stderr
    assert sub.messages(count) == [f"raw/hall 1 0 {number}" for number in range(count)]
    sub.end()


def test_the_listener_of_its_own_speaks_mqtt_only(host: Host, mosquitto: Mosquitto) -> None:
    done = mosquitto.pub(host, "raw/kitchen", "1", "-q", "1", port=host.only)
    assert done.returncode == 0, done.stderr
    assert host.wait_record("raw/kitchen", 1) == "1"


def test_a_message_of_quality_0_without_a_log_is_dropped_and_named(host: Host, mosquitto: Mosquitto) -> None:
    assert mosquitto.pub(host, "no/such", "1").returncode == 0
    host.wait_logged("to 'no/such' was not appended")


def test_a_refused_message_has_a_reason_in_5_and_ends_the_connection_in_311(host: Host, mosquitto: Mosquitto) -> None:
    done = mosquitto.pub(host, "no/such", "1", "-q", "1", "-V", "5", "-d")
    assert "RC:144" in done.stdout, done.stdout + done.stderr
    host.wait_logged("to 'no/such' was not appended")
    done = mosquitto.pub(host, "no/such", "1", "-q", "1", "-V", "311")
    assert done.returncode != 0 or "lost" in done.stderr, done.stdout + done.stderr


class Client:
    """A client of paho that keeps what comes."""

    def __init__(self, host: Host, name: str, v5: bool = True, clean: bool = True, expiry_s: int = 0) -> None:
        protocol = paho.MQTTv5 if v5 else paho.MQTTv311
        session = {} if v5 else {"clean_session": clean}
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=name, protocol=protocol, **session)
        self.connected: queue.Queue[Any] = queue.Queue()
        self.subscribed: queue.Queue[Any] = queue.Queue()
        self.came: queue.Queue[Any] = queue.Queue()
        self.gone: queue.Queue[Any] = queue.Queue()
        self.paho.on_connect = lambda _c, _u, flags, reason, _p: self.connected.put((flags.session_present, reason))
        self.paho.on_subscribe = lambda _c, _u, _m, reasons, _p: self.subscribed.put(reasons)
        self.paho.on_message = lambda _c, _u, message: self.came.put(message)
        self.paho.on_disconnect = lambda _c, _u, _f, reason, _p: self.gone.put(reason)
        self.paho.reconnect_delay_set(3600)
        options: dict[str, Any] = {}
        if v5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = expiry_s
            options = {"clean_start": clean, "properties": properties}
        self.options = options
        self.host = host

    def connect(self) -> bool:
        """Connects; whether the session was there."""
        self.paho.connect("127.0.0.1", self.host.port, **self.options)
        self.paho.loop_start()
        present, reason = self.connected.get(timeout=PATIENCE_S)
        assert not reason.is_failure, reason
        return present

    def subscribe(self, topic: str, qos: int) -> Any:
        self.paho.subscribe(topic, qos)
        return self.subscribed.get(timeout=PATIENCE_S)

    def publish(self, topic: str, message: str, qos: int = 1) -> None:
        self.paho.publish(topic, message, qos).wait_for_publish(PATIENCE_S)

    def next(self) -> Any:
        return self.came.get(timeout=PATIENCE_S)

    def disconnect(self) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()


@pytest.mark.parametrize("v5", [False, True])
def test_a_session_continues_behind_what_it_has(host: Host, v5: bool) -> None:
    client = Client(host, "lamp", v5, clean=False, expiry_s=600)
    assert not client.connect()
    client.subscribe("raw/+", 1)
    client.publish("raw/hall", "1")
    assert client.next().payload == b"1"
    client.disconnect()
    for number in ["2", "3"]:
        host.run("log", "append", "raw/hall", number)
    again = Client(host, "lamp", v5, clean=False, expiry_s=600)
    assert again.connect(), "the session is there"
    assert [again.next().payload for _ in range(2)] == [b"2", b"3"]
    again.disconnect()
    fresh = Client(host, "lamp", v5, clean=True)
    assert not fresh.connect(), "a clean one begins anew"
    fresh.disconnect()


def test_a_client_id_is_taken_over_by_the_newer_connection(host: Host) -> None:
    first, second = Client(host, "one"), Client(host, "one")
    first.connect()
    second.connect()
    assert "taken over" in str(first.gone.get(timeout=PATIENCE_S)).lower()
    second.publish("raw/kitchen", "7")
    assert host.wait_record("raw/kitchen", 1) == "7"
    second.disconnect()


def test_the_will_of_a_client_that_is_gone_is_appended_and_that_of_one_that_leaves_is_not(host: Host) -> None:
    for leaves in [True, False]:
        client = Client(host, "willing")
        client.paho.will_set("raw/hall", f"gone {leaves}", 1)
        client.connect()
        if leaves:
            client.disconnect()
        else:
            client.paho.socket().shutdown(2)
            client.paho.loop_stop()
    assert host.wait_record("raw/hall", 1) == "gone False"


def test_topics_that_cannot_be_subscribed_to_are_refused(host: Host) -> None:
    client = Client(host, "curious")
    client.connect()
    (reason,) = client.subscribe("$share//raw", 1)
    assert reason.value == 0x8F
    (reason,) = client.subscribe("$SYS/#", 1)
    assert reason.value == 1, "nothing ever comes"
    client.disconnect()
