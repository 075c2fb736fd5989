"""Topics of a cluster of one host: created, published to, read, waited for and removed."""

from __future__ import annotations

import threading
import time

import millrace
import pytest
import requests
from conftest import PATIENCE_S, Host, error_of


@pytest.fixture
def news(host: Host) -> str:
    """The path of a new topic."""
    path = f"{host.ns}/topics/news%2Ftoday"
    made = requests.put(path, json={"history": 3}, timeout=PATIENCE_S)
    assert made.status_code == 201 and made.json() == {"topic": "news/today", "change": "created"}, made.text
    return path


@pytest.fixture(autouse=True)
def removed(host: Host) -> object:
    yield
    requests.delete(f"{host.ns}/topics/news%2Ftoday", timeout=PATIENCE_S)


def publish(path: str, data: bytes, **headers: str) -> requests.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.post(path + "/records", data=data, headers=sent, timeout=PATIENCE_S)


def test_a_record_is_published_and_read(news: str) -> None:
    published = publish(news, b"\xffraw")
    assert published.status_code == 201 and published.json() == {"topic": "news/today", "index": 1}
    assert published.headers["location"].endswith("/topics/news%2Ftoday/records/1")
    by_leader = publish(news, b"text", Millrace_Durability="leader")
    assert by_leader.status_code == 202 and by_leader.json() == {"topic": "news/today", "index": None}
    assert requests.get(f"{news}/records/2?wait_ms={PATIENCE_S * 1000}", timeout=PATIENCE_S).content == b"text"
    read = requests.get(news + "/records/1", timeout=PATIENCE_S)
    assert read.content == b"\xffraw" and read.headers["millrace-index"] == "1"
    assert read.headers["content-type"] == "application/octet-stream"
    newest = requests.get(news + "/records/latest", headers={"accept": "application/json"}, timeout=PATIENCE_S).json()
    assert (newest["topic"], newest["index"], newest["data"]) == ("news/today", 2, "text")
    # Slashes need not be escaped.
    plain = news.replace("%2F", "/")
    assert requests.get(plain + "/records/2", timeout=PATIENCE_S).content == b"text"


def test_a_range_continues_where_the_last_one_ended(news: str) -> None:
    for n in range(1, 6):
        publish(news, b"%d" % n)
    page = requests.get(news + "/records?count=2", timeout=PATIENCE_S).json()
    assert [(record["index"], record["data"]) for record in page["records"]] == [(3, "3"), (4, "4")]
    page = requests.get(f"{news}/records?from={page['next']}", timeout=PATIENCE_S).json()
    assert [record["data"] for record in page["records"]] == ["5"] and page["next"] == 6
    page = requests.get(f"{news}/records?from=6&wait_ms=1", timeout=PATIENCE_S).json()
    assert page["records"] == [] and page["next"] == 6
    # The history keeps three.
    gone = requests.get(news + "/records/2", timeout=PATIENCE_S)
    assert gone.status_code == 410 and error_of(gone)["code"] == "MR2104"


def test_a_record_is_waited_for(news: str) -> None:
    assert requests.get(news + "/records/latest?wait_ms=1", timeout=PATIENCE_S).status_code == 204
    missing = requests.get(news + "/records/latest", timeout=PATIENCE_S)
    assert missing.status_code == 404, missing.text
    publish(news, b"first")
    assert requests.get(news + "/records/latest?above=1", timeout=PATIENCE_S).status_code == 204
    later = threading.Timer(0.3, publish, (news, b"second"))
    later.start()
    began = time.monotonic()
    read = requests.get(f"{news}/records/2?wait_ms={PATIENCE_S * 1000}", timeout=PATIENCE_S)
    assert (read.status_code, read.content) == (200, b"second") and time.monotonic() - began < PATIENCE_S / 2
    later.join()


def test_a_repeated_publish_with_a_key_is_one_record(news: str) -> None:
    indices = [publish(news, b"x", Idempotency_Key="one").json()["index"] for _ in range(3)]
    assert indices == [1, 1, 1]
    other = publish(news, b"y", Idempotency_Key="one")
    assert other.status_code in (201, 409), other.text
    assert requests.get(news + "/records/latest", timeout=PATIENCE_S).content == b"x"


def test_a_local_publish_is_acknowledged_by_this_host_and_published_later(news: str) -> None:
    kept = requests.post(news + "/records?durability=local", data=b"later", timeout=PATIENCE_S)
    assert kept.status_code == 202 and kept.json() == {"topic": "news/today", "index": None}
    read = requests.get(f"{news}/records/1?wait_ms={PATIENCE_S * 1000}", timeout=PATIENCE_S)
    assert read.content == b"later"


def test_what_cannot_be_done_says_why(host: Host, news: str) -> None:
    again = requests.put(news, json={"history": 3}, timeout=PATIENCE_S)
    assert again.status_code == 200 and again.json()["change"] == "unchanged"
    differs = requests.put(news, json={"history": 4}, timeout=PATIENCE_S)
    assert differs.status_code == 409, differs.text
    error_of(differs)
    for path, status in [("topics/nothing/records/1", 404), ("topics/news%2Ftoday/records/0", 400)]:
        refused = requests.get(f"{host.ns}/{path}", timeout=PATIENCE_S)
        assert refused.status_code == status, refused.text
        error_of(refused)
    for asked in ({"durability": "disk"}, {"engine": "kafka"}, {"size": 3}, {"history": 0}):
        refused = requests.put(f"{host.ns}/topics/other", json=asked, timeout=PATIENCE_S)
        assert refused.status_code == 400, refused.text
        error_of(refused)
    refused = publish(news, b"x", Millrace_Durability="disk")
    assert refused.status_code == 400 and "quorum or leader" in error_of(refused)["detail"]
    assert requests.delete(news, timeout=PATIENCE_S).json() == {"topic": "news/today", "change": "removed"}
    assert requests.get(news, timeout=PATIENCE_S).status_code == 404
    assert publish(news, b"x").status_code == 404


def test_a_topic_is_listed_with_its_bounds(host: Host, news: str) -> None:
    publish(news, b"x")
    shown = requests.get(news, timeout=PATIENCE_S).json()
    assert (shown["topic"], shown["group"], shown["latest"], shown["history"]) == ("news/today", "main", 1, 3)
    listed = requests.get(f"{host.ns}/topics", timeout=PATIENCE_S).json()["topics"]
    assert shown in listed


def test_a_misspelt_topic_or_object_is_answered_with_a_hint_for_those_who_may_know(own_host: Host) -> None:
    host = own_host
    requests.put(f"{host.ns}/topics/news%2Ftoday", timeout=PATIENCE_S).raise_for_status()

    def detail(path: str, bearer: str = "", method: str = "GET") -> str:
        headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
        answer = requests.request(method, f"{host.ns}/{path}", headers=headers, data=b"x", timeout=PATIENCE_S)
        assert answer.status_code in (403, 404), answer.text
        return str(error_of(answer)["detail"])

    hint = "no topic 'news/todya'; did you mean 'news/today'?"
    for path in ["topics/news%2Ftodya", "topics/news%2Ftodya/records", "topics/news%2Ftodya/records/1", "topics/news%2Ftodya/tail"]:
        assert detail(path) == hint, path
    assert detail("topics/news%2Ftodya/records", method="POST") == hint
    assert detail("topics/news%2Ftodya", method="DELETE") == hint
    assert "did you mean" not in detail("topics/other")
    # Whoever may not list topics learns no name.
    capability = host.place / "reader.cap"
    host.run("cap", "issue", "--allow", "read=topics/news/todya", "--out", str(capability))
    assert "did you mean" not in detail("topics/news%2Ftodya/records", capability.read_text().strip())
    with millrace.connect(str(host.place / ".millrace")) as farm:
        farm.AtomicInt("visits").set(7)
        assert detail("objects/vists") == "no object 'vists'; did you mean 'visits'?"
        assert "did you mean" not in detail("objects/quite-another-one")
        assert "visits" not in detail("objects/vists", capability.read_text().strip())
