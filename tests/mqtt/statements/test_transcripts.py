"""What Home Assistant, Zigbee2MQTT and Tasmota send, packet by packet, to a host with rules for their topics."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from conftest import Host
from packets import text
from talk import Client, will

# Commands are not retained, whatever their flag says. What describes a device or its state is: a later subscriber gets the newest record.
RULES = """
[mqtt]
topics = [
  { filter = "homeassistant/status", log = "homeassistant/status" },
  { filter = "homeassistant/#", log = "homeassistant/{#}", retain = "latest" },
  { filter = "home/+/+/set", log = "commands/{1}/{2}" },
  { filter = "home/#", log = "home/{#}", retain = "latest" },
  { filter = "zigbee2mqtt/bridge/request/#", log = "zigbee2mqtt/bridge/request/{#}" },
  { filter = "zigbee2mqtt/bridge/response/#", log = "zigbee2mqtt/bridge/response/{#}" },
  { filter = "zigbee2mqtt/+/set", log = "zigbee2mqtt/{1}/set" },
  { filter = "zigbee2mqtt/+/get", log = "zigbee2mqtt/{1}/get" },
  { filter = "zigbee2mqtt/+/+/+/+/+/+/+/set", log = "set/{1}/{2}/{3}/{4}/{5}/{6}/{7}" },
  { filter = "zigbee2mqtt/#", log = "zigbee2mqtt/{#}", retain = "latest" },
  { filter = "cmnd/#", log = "cmnd/{#}" },
  { filter = "stat/#", log = "stat/{#}" },
  { filter = "tele/#", log = "tele/{#}", retain = "latest" },
  { filter = "tasmota/discovery/#", log = "tasmota/discovery/{#}", retain = "latest" },
]
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = Host(tmp_path_factory.mktemp("house"))
    file = running.place / "millrace.toml"
    file.write_text(file.read_text() + RULES)
    running.run("up")
    yield running
    assert running.stop() == 0, "the host stops when it is told to, and without a complaint"


def shown(client: Client, *filters: str, count: int = 1, qos: int = 0) -> dict[str, bytes]:
    """Subscribes: the messages that it gets because of it, all of them retained; so many, and no more."""
    client.subscribe(*[(filter, qos) for filter in filters])
    found = {}
    for message in client.messages(count):
        assert message.retain and message.topic not in found, message
        found[message.topic] = message.payload
    client.ping()
    return found


def settled(client: Client) -> None:
    """What a client has sent with QoS 0 is appended: its messages are appended in order, and this one is acknowledged."""
    client.publish("tele/settled", b"x", 1)


class Assistant(Client):
    """Home Assistant: a clean session of 3.1.1 with birth and will."""

    def __init__(self, host: Host, level: int = 4) -> None:
        super().__init__(host, level, flags=0x06, keep_alive_s=60, more=will(level, "homeassistant/status", b"offline"))

    def begin(self) -> None:
        self.publish("homeassistant/status", b"online", 0)
        settled(self)


@pytest.mark.parametrize("level", [4, 5])
def test_home_assistant_finds_a_device_and_commands_it(house: Host, level: int) -> None:
    name = f"boiler{level}"
    config = json.dumps(
        {
            "name": "Boiler",
            "unique_id": name,
            "command_topic": f"home/{name}/heater/set",
            "state_topic": f"home/{name}/heater",
            "availability_topic": f"home/{name}/availability",
        }
    ).encode()
    discovery, state, available = f"homeassistant/switch/{name}/config", f"home/{name}/heater", f"home/{name}/availability"
    device = Client(house, 4, name, flags=0x2E, keep_alive_s=60, more=will(4, available, b"offline"))
    device.publish(available, b"online", 1, retain=True)
    device.publish(discovery, config, 1, retain=True)
    device.publish(state, b"OFF", 0, retain=True)
    settled(device)
    # Home Assistant starts later, and finds all of it.
    assistant = Assistant(house, level)
    assistant.begin()
    found = shown(assistant, f"homeassistant/+/{name}/config", f"homeassistant/+/+/{name}/config")
    assert found[discovery] == config
    topics = json.loads(found[discovery])
    assert shown(assistant, topics["state_topic"], topics["availability_topic"], count=2) == {state: b"OFF", available: b"online"}
    # A command, and the new state; the device sees the birth and the will of Home Assistant.
    device.subscribe((topics["command_topic"], 1), ("homeassistant/status", 0))
    assistant.publish(topics["command_topic"], b"ON", 0)
    assert device.message()[:5] == (topics["command_topic"], b"ON", 1, False, False)
    device.publish(state, b"ON", 0, retain=True)
    assert assistant.message()[:5] == (state, b"ON", 0, False, False)
    assistant.close()
    assert device.message()[:2] == ("homeassistant/status", b"offline")
    # A device that connects again does not get the command once more.
    device.close()
    again = Client(house, 4, name, flags=0x2E, more=will(4, available, b"offline"))
    assert shown(again, topics["command_topic"], "homeassistant/status", count=0, qos=1) == {}
    again.close()
    assistant = Assistant(house, level)
    assistant.begin()
    assert shown(assistant, available) == {available: b"offline"}, "the will of the device is what is retained"
    # An empty configuration removes the device: now, and for those who come later.
    assistant.subscribe((discovery, 0x20 if level == 5 else 0))
    if level == 4:
        assert assistant.message().payload == config
    Client(house, 4).publish(discovery, b"", 1, retain=True)
    assert assistant.message()[1] == b""
    assistant.leave()
    assert shown(Assistant(house, level), f"homeassistant/+/{name}/#", count=0) == {}


NAMES = ["0x00158d0001a2b3c4", "Living room", "Küche/Lampe é", "a/b/c/d/e/f/Größe 7"]


def test_zigbee2mqtt_has_names_with_spaces_and_nine_levels(house: Host) -> None:
    devices = json.dumps([{"friendly_name": NAMES[number % 4], "definition": "x" * 2000} for number in range(400)]).encode()
    assert len(devices) > 800_000

    def start() -> Client:
        gone = will(4, "zigbee2mqtt/bridge/state", b'{"state":"offline"}')
        client = Client(house, 4, "mqttjs_0a1b2c3d", flags=0x2E, keep_alive_s=60, more=gone)
        client.publish("zigbee2mqtt/bridge/state", b'{"state":"online"}', 1, retain=True)
        client.publish("zigbee2mqtt/bridge/info", b'{"version":"2"}', 0, retain=True)
        client.publish("zigbee2mqtt/bridge/devices", devices, 0, retain=True)
        settled(client)
        return client

    gateway = start()
    states = {}
    for number, name in enumerate(NAMES):
        states[f"zigbee2mqtt/{name}/availability"] = b'{"state":"online"}'
        states[f"zigbee2mqtt/{name}"] = b'{"linkquality":%d}' % number
        gateway.publish(f"zigbee2mqtt/{name}/availability", states[f"zigbee2mqtt/{name}/availability"], 1, retain=True)
        gateway.publish(f"zigbee2mqtt/{name}", states[f"zigbee2mqtt/{name}"], 0)
    settled(gateway)
    assert max(topic.count("/") for topic in states) == 8, "nine levels"
    # It follows everything below its own topic, of which commands are for it.
    found = shown(gateway, "zigbee2mqtt/#", count=11)
    assert found == {
        **states,
        "zigbee2mqtt/bridge/state": b'{"state":"online"}',
        "zigbee2mqtt/bridge/info": b'{"version":"2"}',
        "zigbee2mqtt/bridge/devices": devices,
    }
    assistant = Assistant(house)
    commands = ["Living room/set", "Living room/get", f"{NAMES[3]}/set", "bridge/request/permit_join"]
    commands = [f"zigbee2mqtt/{command}" for command in commands]
    for topic in commands:
        assistant.publish(topic, b'{"state":"ON"}', 0)
        assert gateway.message()[:5] == (topic, b'{"state":"ON"}', 0, False, False)
    # A later subscriber gets states and descriptions, and no commands.
    assert shown(assistant, "zigbee2mqtt/+/+/#", "zigbee2mqtt/+", count=11) == found
    assert shown(Assistant(house), f"zigbee2mqtt/{NAMES[2]}") == {f"zigbee2mqtt/{NAMES[2]}": b'{"linkquality":2}'}
    gateway.close()
    assert assistant.message()[:2] == ("zigbee2mqtt/bridge/state", b'{"state":"offline"}')
    assert shown(Assistant(house), "zigbee2mqtt/bridge/state") == {"zigbee2mqtt/bridge/state": b'{"state":"offline"}'}
    gateway = start()
    assert shown(gateway, "zigbee2mqtt/#", count=11) == found, "no command is repeated"
    gateway.leave()


def test_tasmota_says_whether_it_is_there_and_does_what_it_is_told(house: Host) -> None:
    allowed = ["--publish", "tele/#", "--publish", "stat/#", "--publish", "tasmota/discovery/#", "--publish", "cmnd/tasmota_A1B2C3/POWER"]
    password = house.run("mqtt", "user", "add", "DVES_USER", *allowed, "--subscribe", "cmnd/#").split()[0]

    def start() -> Client:
        """As the firmware begins: a clean session with a retained will, the state, and the description of the device."""
        who = text("DVES_USER") + text(password)
        plug = Client(house, 4, "DVES_A1B2C3", flags=0xEE, keep_alive_s=30, more=will(4, "tele/tasmota_A1B2C3/LWT", b"Offline") + who)
        plug.publish("tele/tasmota_A1B2C3/LWT", b"Online", 0, retain=True)
        plug.publish("cmnd/tasmota_A1B2C3/POWER", b"", 0)
        settled(plug)
        for filter in ["cmnd/tasmota_A1B2C3/#", "cmnd/tasmotas/#", "cmnd/DVES_A1B2C3_fb/#"]:
            assert plug.subscribe((filter, 0)) == [0]
        plug.publish("tasmota/discovery/DC4F22A1B2C3/config", b'{"t":"tasmota_A1B2C3","ofln":"Offline","onln":"Online"}', 0, retain=True)
        plug.publish("tasmota/discovery/DC4F22A1B2C3/sensors", b'{"sn":{},"ver":1}', 0, retain=True)
        plug.publish("tele/tasmota_A1B2C3/STATE", b'{"POWER":"OFF"}', 0)
        settled(plug)
        return plug

    plug = start()
    assistant = Assistant(house)
    found = shown(assistant, "tasmota/discovery/#", count=2)
    assert sorted(found) == ["tasmota/discovery/DC4F22A1B2C3/config", "tasmota/discovery/DC4F22A1B2C3/sensors"]
    assert shown(assistant, "tele/+/LWT", "tele/+/STATE", count=2) == {
        "tele/tasmota_A1B2C3/LWT": b"Online",
        "tele/tasmota_A1B2C3/STATE": b'{"POWER":"OFF"}',
    }
    assistant.subscribe(("stat/+/RESULT", 0), ("stat/+/POWER", 0))
    assistant.publish("cmnd/tasmota_A1B2C3/POWER", b"ON", 0, retain=True)
    assert plug.message()[:5] == ("cmnd/tasmota_A1B2C3/POWER", b"ON", 0, False, False)
    plug.publish("stat/tasmota_A1B2C3/RESULT", b'{"POWER":"ON"}', 0)
    plug.publish("stat/tasmota_A1B2C3/POWER", b"ON", 0)
    assert {assistant.message()[:2] for _ in range(2)} == {
        ("stat/tasmota_A1B2C3/RESULT", b'{"POWER":"ON"}'),
        ("stat/tasmota_A1B2C3/POWER", b"ON"),
    }
    plug.close()
    assert assistant.message()[:5] == ("tele/tasmota_A1B2C3/LWT", b"Offline", 0, False, False)
    assert shown(Assistant(house), "tele/+/LWT") == {"tele/tasmota_A1B2C3/LWT": b"Offline"}
    # It is back: the command, which was marked as retained by mistake, does not come again.
    plug = start()
    assert ("tele/tasmota_A1B2C3/LWT", b"Online") in [message[:2] for message in assistant.messages(4)]
    assistant.publish("cmnd/tasmotas/STATUS", b"0", 0)
    assert plug.message()[:2] == ("cmnd/tasmotas/STATUS", b"0")
    plug.ping()
    plug.leave()
    assistant.leave()
