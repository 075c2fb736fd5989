"""Which topic is which log, and who may use it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Host, Mosquitto

RULES = """
[mqtt]
topics = [
  { filter = "home/+/temperature", log = "temperatures/{1}", retain = "latest" },
  { filter = "tele/#", log = "tele/{#}" },
]
"""


def add_rules(host: Host, rules: str, status: int = 0) -> str:
    file = host.place / "millrace.toml"
    file.write_text(file.read_text().split("[mqtt]")[0] + rules)
    return host.run("up", status=status)


def test_rules_choose_the_log_which_is_created(host: Host, mosquitto: Mosquitto) -> None:
    sub = mosquitto.sub(host, "-q", "1", "-t", "home/#", "-t", "tele/#").subscribed()
    said = add_rules(host, RULES)
    assert "mqtt topics = 2 rules" in said, said
    assert "mqtt" not in add_rules(host, RULES), "nothing changes the second time"
    mosquitto.pub(host, "home/hall/temperature", "19", "-q", "1")
    mosquitto.pub(host, "tele/a/b", "x", "-q", "1")
    assert host.wait_record("temperatures/hall", 1) == "19"
    assert host.wait_record("tele/a/b", 1) == "x"
    host.run("log", "append", "temperatures/hall", "20")
    expected = ["home/hall/temperature 1 0 19", "tele/a/b 1 0 x", "home/hall/temperature 1 0 20"]
    assert sorted(sub.messages(3)) == sorted(expected)
    sub.end()
    # They are in the namespace, not in the host.
    assert host.stop() == 0
    host.start()
    mosquitto.pub(host, "home/attic/temperature", "9", "-q", "1")
    assert host.wait_record("temperatures/attic", 1) == "9"
    host.run("down")
    host.wait_logged("client")
    assert mosquitto.pub(host, "home/attic/temperature", "9").returncode == 0
    host.wait_logged("to 'home/attic/temperature' was not appended")


def test_new_subscribers_get_the_newest_record_if_a_rule_says_so(host: Host, mosquitto: Mosquitto) -> None:
    add_rules(host, RULES)
    for number in ["18", "19"]:
        mosquitto.pub(host, "home/hall/temperature", number, "-q", "1")
    mosquitto.pub(host, "home/attic/temperature", "8", "-q", "1")
    mosquitto.pub(host, "tele/a", "not retained", "-q", "1", "-r")
    sub = mosquitto.sub(host, "-q", "1", "-t", "#").subscribed()
    assert sorted(sub.messages(2)) == ["home/attic/temperature 1 1 8", "home/hall/temperature 1 1 19"]
    mosquitto.pub(host, "tele/a", "now", "-q", "1")
    assert sub.messages(1) == ["tele/a 1 0 now"]
    sub.end()


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ('{ filter = "#", log = "mqtt" }', "must contain '{#}' once"),
        ('{ filter = "a/#/b", log = "x" }', "has '#' before its last level"),
        ('{ filter = "a/+", log = "x/{2}" }', "stands for no wildcard"),
        ('{ filter = "a" }', "has no 'log'"),
        ('{ filter = "a", log = "b", retains = "latest" }', "unknown key 'retains'"),
        ('{ filter = "a", log = "b", retain = "all" }', "is not one of 'latest'"),
        ('"raw/+"', "expected a list of tables"),
    ],
)
def test_rules_that_are_wrong_are_named_with_their_place(host: Host, rule: str, fault: str) -> None:
    said = add_rules(host, f"[mqtt]\ntopics = [\n  {rule},\n]\n", status=1)
    assert fault in said and "millrace.toml:" in said, said


def test_a_capability_is_the_password(host: Host, mosquitto: Mosquitto, tmp_path: Path) -> None:
    token = tmp_path / "lamp.cap"
    host.run("cap", "issue", "--append", "raw/kitchen", "--out", str(token))
    who = ["-u", "lamp", "-P", token.read_text().strip(), "-q", "1"]
    for version in ["311", "5"]:
        done = mosquitto.pub(host, "raw/kitchen", "22", "-V", version, *who)
        assert done.returncode == 0, done.stderr
    assert host.wait_record("raw/kitchen", 2) == "22"
    done = mosquitto.pub(host, "raw/hall", "22", "-V", "5", "-d", *who)
    assert "RC:135" in done.stdout, done.stdout + done.stderr
    host.wait_logged("to 'raw/hall' was not appended")
    sub = mosquitto.sub(host, "-V", "5", "-t", "raw/kitchen", *who)
    assert "135" in sub.subscribed().said[-1], sub.said
    sub.end()
    # A wildcard is granted, and what the client may not read does not come.
    reader = tmp_path / "reader.cap"
    host.run("cap", "issue", "--read", "raw/hall", "--out", str(reader))
    sub = mosquitto.sub(host, "-t", "#", "-u", "reader", "-P", reader.read_text().strip()).subscribed()
    host.run("log", "append", "raw/kitchen", "secret")
    host.run("log", "append", "raw/hall", "public")
    assert sub.messages(1) == ["raw/hall 0 0 public"]
    sub.end()


def test_wrong_passwords_are_refused_however_many_come(host: Host, mosquitto: Mosquitto) -> None:
    for _ in range(20):
        done = mosquitto.pub(host, "raw/kitchen", "1", "-u", "lamp", "-P", "wrong", "-q", "1")
        assert done.returncode != 0
    assert mosquitto.pub(host, "raw/kitchen", "1", "-q", "1").returncode == 0
