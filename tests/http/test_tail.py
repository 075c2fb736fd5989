"""Tails as server-sent events: followed, left, taken up again, and ended when the host stops."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Optional

import pytest
import requests
import sseclient
from conftest import PATIENCE_S, Host, error_of


class Event:
    """One event as a browser's EventSource would see it."""

    def __init__(self) -> None:
        self.id: Optional[str] = None
        self.kind = "message"
        self.data: list[str] = []

    def record(self) -> dict[str, object]:
        record: dict[str, object] = json.loads("\n".join(self.data))
        return record


def open_tail(url: str, cursor: Optional[str] = None) -> requests.Response:
    headers = {"accept": "text/event-stream"} | ({"last-event-id": cursor} if cursor else {})
    return requests.get(url, headers=headers, stream=True, timeout=PATIENCE_S)


def events(answer: requests.Response) -> Iterator[Event]:
    """Reads events by the rules of the HTML standard; those without data are not dispatched."""
    assert answer.headers["content-type"] == "text/event-stream", answer.text
    event = Event()
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line == "":
            if event.data:
                yield event
            event = Event()
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            event.id = value
        elif field == "data":
            event.data.append(value)
        elif field == "event":
            event.kind = value
        else:
            assert field in ("", "retry"), line


def test_a_tail_resumes_where_it_stopped(host: Host) -> None:
    url = f"{host.ns}/logs/followed/tail"
    requests.put(f"{host.ns}/logs/followed", json={"history": 1000}, timeout=PATIENCE_S)
    for n in range(5):
        host.append("followed", b"%d" % n)
    seen: list[object] = []
    cursor = None
    with open_tail(url + "?from=1") as answer:
        for event in events(answer):
            seen.append(event.record()["data"])
            cursor = event.id
            if len(seen) == 3:
                break
    appender = threading.Thread(target=lambda: [host.append("followed", b"%d" % n) for n in range(5, 300)])
    appender.start()
    with open_tail(url, cursor) as answer:
        for event in events(answer):
            seen.append(event.record()["data"])
            if len(seen) == 300:
                break
    appender.join(PATIENCE_S)
    assert seen == [str(n) for n in range(300)]


def test_a_tail_from_now_on_says_at_once_that_it_follows(host: Host) -> None:
    requests.put(f"{host.ns}/logs/now", json={"history": 10}, timeout=PATIENCE_S)
    host.append("now", b"before")
    with open_tail(f"{host.ns}/logs/now/tail") as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        assert next(lines).startswith("retry: ")
        host.append("now", b"after")
        data = next(line for line in lines if line.startswith("data: "))
        assert json.loads(data[6:])["data"] == "after"


def test_cursors_that_lead_nowhere_are_refused(host: Host) -> None:
    log = f"{host.ns}/logs/short"
    requests.put(log, json={"history": 3}, timeout=PATIENCE_S)
    for n in range(10):
        host.append("short", b"%d" % n)
    incarnation = requests.get(log, timeout=PATIENCE_S).json()["incarnation"]
    for cursor, status, code in [
        (f"{incarnation}:2", 410, "MR2104"),
        (f"{incarnation + 1000}:9", 410, "MR6024"),
        ("x", 400, "MR6047"),
        (f"{incarnation}:-1", 400, "MR6047"),
        (f"{incarnation}:0", 400, "MR6047"),
        ("99999999999999999999999:1", 400, "MR6047"),
    ]:
        answer = open_tail(log + "/tail", cursor)
        assert (answer.status_code, error_of(answer)["code"]) == (status, code), cursor
    answer = open_tail(log + "/tail?from=2")
    assert (answer.status_code, error_of(answer)["code"]) == (410, "MR2104")
    with open_tail(log + "/tail?from=1") as answer:
        assert next(events(answer)).record()["seqno"] == 8
    requests.delete(log, timeout=PATIENCE_S)
    requests.put(log, json={"history": 3}, timeout=PATIENCE_S)
    answer = open_tail(log + "/tail", f"{incarnation}:11")
    assert error_of(answer)["code"] == "MR6024"


def test_a_tail_of_a_log_that_is_removed_says_so(host: Host) -> None:
    log = f"{host.ns}/logs/doomed"
    requests.put(log, json={"history": 3}, timeout=PATIENCE_S)
    with open_tail(log + "/tail") as answer:
        removed = threading.Timer(0.1, lambda: requests.delete(log, timeout=PATIENCE_S))
        removed.start()
        event = next(events(answer))
        assert event.kind == "failure" and event.record()["error"]["code"] == "MR2101"  # type: ignore[index]
        removed.join()


@pytest.fixture
def topic(host: Host) -> Iterator[str]:
    """The path of a new topic that keeps three records."""
    path = f"{host.ns}/topics/followed"
    assert requests.put(path, json={"history": 3}, timeout=PATIENCE_S).status_code == 201
    yield path
    requests.delete(path, timeout=PATIENCE_S)


def publish(topic: str, *texts: str) -> None:
    for text in texts:
        assert requests.post(topic + "/records", data=text, timeout=PATIENCE_S).status_code == 201


def cursor_of(topic: str, index: int) -> str:
    """The cursor before the record with this index."""
    with open_tail(topic + "/tail") as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        line = next(line for line in lines if line.startswith("id: "))
    return f"{line[4:].split(':')[0]}:{index}"


def test_a_tail_of_a_topic_resumes_where_it_stopped(topic: str) -> None:
    publish(topic, "1", "2", "3", "4")
    with open_tail(topic + "/tail?from=1") as answer:
        event = next(events(answer))
        assert (event.record()["index"], event.record()["data"], event.id) == (2, "2", cursor_of(topic, 3))
    publisher = threading.Timer(0.3, publish, (topic, "5", "6"))
    with open_tail(topic + "/tail", cursor_of(topic, 4)) as answer:
        publisher.start()
        follower = events(answer)
        assert [next(follower).record()["data"] for _ in range(3)] == ["4", "5", "6"]
    publisher.join()
    with open_tail(topic + "/tail") as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        assert [next(lines), next(lines)] == ["retry: 1000", f"id: {cursor_of(topic, 7)}"]
        publish(topic, "7")
        assert json.loads(next(line for line in lines if line.startswith("data: "))[6:])["data"] == "7"


def test_cursors_of_a_topic_that_lead_nowhere_are_refused(topic: str) -> None:
    publish(topic, "1", "2", "3", "4", "5")
    born = int(cursor_of(topic, 1).split(":")[0])
    for cursor, status, code in [
        (f"{born}:2", 410, "MR2104"),
        (f"{born}:7", 409, "MR7223"),
        (f"{born + 1}:4", 409, "MR7223"),
        (f"{born}:0", 400, "MR6047"),
        ("4", 400, "MR6047"),
        ("x:4", 400, "MR6047"),
        (f"{born}:99999999999999999999999", 400, "MR6047"),
    ]:
        answer = open_tail(topic + "/tail", cursor)
        assert (answer.status_code, error_of(answer)["code"]) == (status, code), cursor
    answer = open_tail(topic + "/tail?from=7")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "MR2105")
    answer = open_tail(topic + "less/tail")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "MR7202")


def test_a_tail_of_a_topic_does_not_continue_in_another_one_of_the_name(topic: str) -> None:
    publish(topic, "old 1", "old 2")
    cursor = cursor_of(topic, 3)
    with open_tail(topic + "/tail") as answer:
        lines = answer.iter_lines(chunk_size=1, decode_unicode=True)
        assert next(line for line in lines if line.startswith("id: ")) == f"id: {cursor}"
        requests.delete(topic, timeout=PATIENCE_S)
        assert requests.put(topic, json={"history": 3}, timeout=PATIENCE_S).status_code == 201
        publish(topic, "new 1", "new 2", "new 3")
        assert next(line for line in lines if line.startswith(("event: ", "data: "))) == "event: failure"
    answer = open_tail(topic + "/tail", cursor)
    assert (answer.status_code, error_of(answer)["code"]) == (409, "MR7223")
    with open_tail(topic + "/tail?from=1") as answer:
        assert next(events(answer)).record()["data"] == "new 1"


def test_a_tail_of_all_records_begins_with_the_oldest_while_others_leave(host: Host) -> None:
    topic = f"{host.ns}/topics/busy"
    assert requests.put(topic, json={"history": 1}, timeout=PATIENCE_S).status_code == 201
    publish(topic, "first")
    ended = threading.Event()

    def publishing() -> None:
        with requests.Session() as session:
            while not ended.is_set():
                session.post(topic + "/records", data="x", timeout=PATIENCE_S)

    publisher = threading.Thread(target=publishing)
    publisher.start()
    try:
        for _ in range(10):
            with open_tail(topic + "/tail?from=1") as answer:
                assert next(events(answer)).kind == "message"
    finally:
        ended.set()
        publisher.join()
        requests.delete(topic, timeout=PATIENCE_S)


def test_a_tail_of_a_topic_that_is_removed_says_so(topic: str) -> None:
    with open_tail(topic + "/tail") as answer:
        removed = threading.Timer(0.1, lambda: requests.delete(topic, timeout=PATIENCE_S))
        removed.start()
        event = next(events(answer))
        assert event.kind == "failure" and "code" in event.record()["error"]  # type: ignore[operator]
        removed.join()


def test_a_client_that_does_not_read_holds_nobody_up(host: Host) -> None:
    requests.put(f"{host.ns}/logs/flood", json={"history": 100000}, timeout=PATIENCE_S)
    with open_tail(f"{host.ns}/logs/flood/tail?from=1"):
        body = b"x" * 100_000
        for _ in range(200):
            host.append("flood", body)
    assert requests.get(f"{host.ns}/logs/flood", timeout=PATIENCE_S).json()["latest"] == 200


def test_tails_end_when_the_host_stops(own_host: Host) -> None:
    with open_tail(f"{own_host.ns}/logs/out/tail") as answer:
        own_host.append("out", b"last")
        follower = events(answer)
        assert next(follower).record()["data"] == "last"
        started = time.monotonic()
        assert own_host.stop() == 0
        assert list(follower) == [], "the stream ends as streams do"
        assert time.monotonic() - started < PATIENCE_S


def test_a_client_by_others_reads_it(host: Host) -> None:
    requests.put(f"{host.ns}/logs/others", json={"history": 10}, timeout=PATIENCE_S)
    texts = ["plain", "two\nlines", "id: 7", "\u2028é"]
    for text in texts:
        host.append("others", text.encode())
    with open_tail(f"{host.ns}/logs/others/tail?from=1") as answer:
        client = sseclient.SSEClient(answer.iter_content(chunk_size=1))  # type: ignore[arg-type]
        seen = []
        for event in client.events():
            if event.data:
                seen.append(event)
            if len(seen) == len(texts):
                break
    assert [json.loads(event.data)["data"] for event in seen] == texts
    assert [event.id.split(":")[1] for event in seen] == ["2", "3", "4", "5"]
