"""What changes in a namespace, as it changes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from conftest import PATIENCE_S, Host, error_of


# Events of 250 ms: far longer than anything may take.
EVENTS_MAX = 1000


class Live:
    """A connection that is read event by event."""

    def __init__(self, host: Host, query: str = "rates=250ms", **headers: str) -> None:
        self.answer = requests.get(f"{host.ns}/live?{query}", headers=headers, stream=True, timeout=PATIENCE_S)
        assert self.answer.status_code == 200, self.answer.text
        assert self.answer.headers["content-type"] == "text/event-stream"
        self.lines = self.answer.iter_lines(chunk_size=1)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        kind = ""
        for line in self.lines:
            if line.startswith(b"event: "):
                kind = line[7:].decode()
            elif line.startswith(b"data: "):
                yield kind, json.loads(line[6:])

    def next(self, wanted: str, fits: Any = lambda _: True) -> Any:
        for number, (kind, data) in enumerate(self):
            if kind == wanted and fits(data):
                return data
            assert number < EVENTS_MAX, f"no event of type {wanted}"
        raise AssertionError("the host ended the connection")

    def both(self, *wanted: str) -> dict[str, Any]:
        """The first event of each of these types, in whichever order they come."""
        found: dict[str, Any] = {}
        for number, (kind, data) in enumerate(self):
            if kind in wanted:
                found.setdefault(kind, data)
            if len(found) == len(wanted):
                break
            assert number < EVENTS_MAX, found
        return found

    def close(self) -> None:
        self.answer.close()


def test_counters_come_whole_and_then_as_they_change(own_host: Host) -> None:
    live = Live(own_host)
    first = live.next("rates")
    assert first["logs"]["raw/kitchen"] == 0 and first["functions"]["copy"] == [0, 0, 0]
    own_host.append("raw/kitchen", b"1")
    logs: dict[str, int] = {}
    edges: dict[str, int] = {}
    functions: dict[str, list[int]] = {}
    while logs.get("out") != 1 or functions.get("copy") != [1, 0, 0] or len(edges) < 2:
        changed = live.next("rates")
        logs |= changed.get("logs", {})
        functions |= changed.get("functions", {})
        edges |= changed.get("edges", {})
    assert "_keys" not in changed.get("logs", {}) and "mean" not in functions
    known = {edge["id"]: edge for edge in requests.get(f"{own_host.ns}/flows", timeout=PATIENCE_S).json()["edges"]}
    assert {(known[edge]["kind"], known[edge]["function"], known[edge]["log"]) for edge in edges} == {
        ("runs", "copy", "raw/kitchen"),
        ("appends", "copy", "out"),
    }
    assert set(edges.values()) == {1}
    live.close()


def test_records_and_runs_that_are_asked_for(own_host: Host) -> None:
    own_host.append("out", b"before")
    live = Live(own_host, "rates=250ms&records=out,raw/kitchen&runs=dead")
    live.next("rates")
    own_host.append("raw/kitchen", b"poison")
    heard = live.both("record", "run")
    assert heard["record"] | {"id": "", "time": ""} == {
        "log": "raw/kitchen", "seqno": 1, "id": "", "time": "", "cause": None, "data": "poison",
    }
    run = heard["run"]
    assert (run["function"], run["state"], run["seqno"]) == ("copy", "dead", 1)
    own_host.run("log", "create", "new")
    assert "logs" in live.next("state", lambda data: "logs" in data["changed"])["changed"]
    live.close()


def test_of_many_records_the_newest_are_sent(own_host: Host) -> None:
    live = Live(own_host, "rates=250ms&records=out")
    live.next("rates")
    batch = [{"log": "out", "data": number} for number in range(1000)]
    requests.post(f"{own_host.ns}/batch", json=batch, timeout=PATIENCE_S).raise_for_status()
    seen = []
    for kind, data in live:
        if kind == "record":
            seen.append(data)
            if data["seqno"] == 1000:
                break
    assert seen[0]["skipped"] >= 900 and len(seen) + sum(record.get("skipped", 0) for record in seen) == 1000
    live.close()


def test_who_does_not_read_costs_one_frame_and_gets_the_newest(own_host: Host) -> None:
    with socket.create_connection(("127.0.0.1", own_host.port), timeout=PATIENCE_S) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /v1/namespaces/farm/live?rates=250ms&records=out HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        # Far more than the sockets hold; nothing is read meanwhile.
        big = [{"log": "out", "text": "x" * 60_000} for _ in range(16)]
        for _ in range(40):
            requests.post(f"{own_host.ns}/batch", json=big, timeout=PATIENCE_S).raise_for_status()
        latest = requests.get(f"{own_host.ns}/logs/out", timeout=PATIENCE_S).json()["latest"]
        text = b""
        while b'"out":%d' % latest not in text:
            part = slow.recv(1 << 16)
            assert part
            text = (text + part)[-(8 << 20):]
    assert requests.get(own_host.url + "/healthz", timeout=PATIENCE_S).status_code == 200


def test_it_shows_what_the_caller_may_see(own_host: Host, tmp_path: Any) -> None:
    own_host.append("out", b"1")
    own_host.run("cap", "issue", "--read", "out", "--out", str(tmp_path / "cap"))
    token = (tmp_path / "cap").read_text().strip()
    live = Live(own_host, "rates=250ms&records=out", authorization=f"Bearer {token}")
    rates = live.next("rates")
    assert (rates["logs"], "functions" in rates, "edges" in rates) == ({"out": 1}, False, False)
    for query in ["runs=dead", "records=raw/kitchen"]:
        headers = {"authorization": f"Bearer {token}"}
        answer = requests.get(f"{own_host.ns}/live?{query}", headers=headers, timeout=PATIENCE_S)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "MR6132"), query
    # What it may do is asked again for each frame.
    own_host.run("cap", "revoke", "--file", str(tmp_path / "cap"))
    assert live.next("failure")["error"]["code"].startswith("MR61")
    assert list(live) == []


@pytest.mark.parametrize("query", ["rates=1", "rates=0s", "rates=61s", "runs=some", "x=1", "records=" + ",".join("abcdefghijklmnopq")])
def test_what_is_asked_wrongly_is_refused(host: Host, query: str) -> None:
    answer = requests.get(f"{host.ns}/live?{query}", timeout=PATIENCE_S)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "MR6047")
    assert requests.get(f"{host.ns}/live?records=nothing", timeout=PATIENCE_S).status_code == 404


def test_flows_count_from_the_start_of_the_host(own_host: Host) -> None:
    flows = requests.get(f"{own_host.ns}/flows", timeout=PATIENCE_S).json()
    assert (flows["edges"], flows["more"]) == ([], False)
    for number in range(5):
        own_host.append("raw/kitchen", b"%d" % number)
    own_host.append("raw/kitchen", b"poison")
    own_host.idle()
    edges = requests.get(f"{own_host.ns}/flows", timeout=PATIENCE_S).json()["edges"]
    assert [(edge["kind"], edge["function"], edge["log"], edge["to"], edge["records"]) for edge in sorted(edges, key=lambda it: it["kind"])] == [
        ("appends", "copy", "out", None, 5),
        ("runs", "copy", "raw/kitchen", None, 6),
    ]
    own_host.run("relay", "add", "out", "mr://127.0.0.1:1/elsewhere/out")
    edges = requests.get(f"{own_host.ns}/flows", timeout=PATIENCE_S).json()["edges"]
    relay = next(edge for edge in edges if edge["kind"] == "relays")
    assert (relay["log"], relay["to"], relay["records"]) == ("out", "mr://127.0.0.1:1/elsewhere/out", 0)
