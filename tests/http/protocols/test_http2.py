"""HTTP/2: the same requests and answers as over HTTP/1.1, several at once over one connection."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import h2.exceptions
import httpx
import pytest
from conftest import PATIENCE_S, Host


@pytest.fixture
def web(host: Host) -> Iterator[httpx.Client]:
    """A client that speaks HTTP/2 only."""
    with httpx.Client(base_url=host.url, http1=False, http2=True, timeout=PATIENCE_S) as client:
        yield client


PATHS = [
    "/",
    "/ui/",
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/v1/namespaces",
    "/v1/namespaces/farm/logs",
    "/v1/namespaces/farm/logs/both",
    "/v1/namespaces/farm/logs/both/records?from=1",
    "/v1/namespaces/farm/logs/both/records/1",
    "/v1/namespaces/farm/logs/both/records/9",
    "/v1/namespaces/farm/runs",
    "/v1/namespaces/farm/functions/copy",
    "/v1/namespaces/farm/logs/none/records/1",
    "/v1/namespaces/other/logs",
    "/v1/unknown",
    "/v1/namespaces/farm/logs?unknown=1",
]


def create(host: Host, log: str) -> str:
    """A new log; the URL of its records."""
    host.run("log", "create", log, "--history", "1000")
    return f"{host.ns}/logs/{log}/records"


def test_answers_are_those_of_http_1(host: Host, web: httpx.Client) -> None:
    create(host, "both")
    host.append("both", b"one")
    with httpx.Client(base_url=host.url, timeout=PATIENCE_S) as old:
        for path in PATHS:
            for method in ("GET", "HEAD", "DELETE"):
                if method == "DELETE" and "/logs/" in path:
                    continue
                ours, theirs = (client.request(method, path) for client in (web, old))
                assert (ours.http_version, theirs.http_version) == ("HTTP/2", "HTTP/1.1")
                assert ours.status_code == theirs.status_code, path
                of_connection = {"date", "connection", "transfer-encoding"}
                heads = [{name: value for name, value in answer.headers.items() if name not in of_connection} for answer in (ours, theirs)]
                if "healthz" in path or "readyz" in path or path.endswith("namespaces"):
                    # They have ages and counters.
                    assert heads[0].keys() == heads[1].keys(), (method, path)
                else:
                    assert heads[0] == heads[1] and ours.content == theirs.content, (method, path)
    assert web.get("/metrics").text.startswith("# HELP")


def test_requests_that_change_something(host: Host, web: httpx.Client) -> None:
    assert web.put("/v1/namespaces/farm/logs/h2", json={"history": 100}).status_code == 201
    assert web.post("/v1/namespaces/farm/logs/h2/records", content=b"one").json()["seqno"] == 1
    batch = [{"log": "h2", "data": "two"}, {"log": "h2", "data": "three"}]
    assert web.post("/v1/namespaces/farm/batch", json=batch).status_code in (200, 201)
    answer = web.get("/v1/namespaces/farm/logs/h2/records/3", headers={"accept": "application/octet-stream"})
    assert (answer.status_code, answer.content) == (200, b"three")
    assert web.delete("/v1/namespaces/farm/logs/h2").status_code in (200, 204)
    assert web.get("/v1/namespaces/farm/logs/h2").status_code == 404


def test_a_long_record_comes_and_goes_in_parts(host: Host, web: httpx.Client) -> None:
    data = bytes(range(256)) * (14 << 10)
    records = create(host, "long")
    parts = (data[at : at + 70_001] for at in range(0, len(data), 70_001))
    answer = web.post(records, content=parts)
    assert answer.status_code == 201, answer.text
    assert web.get(f"{records}/{answer.json()['seqno']}", headers={"accept": "*/*"}).content == data


def test_many_requests_share_a_connection(host: Host) -> None:
    records = create(host, "many")

    async def all_at_once() -> list[int]:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(http1=False, http2=True, timeout=PATIENCE_S, limits=limits) as client:
            answers = await asyncio.gather(*(client.post(records, content=b"%d" % n) for n in range(200)))
            return [answer.json()["seqno"] for answer in answers]

    assert sorted(asyncio.run(all_at_once())) == list(range(1, 201))


def test_a_tail_and_appends_share_a_connection(host: Host, web: httpx.Client) -> None:
    web.put("/v1/namespaces/farm/logs/tailed", json={"history": 1000})
    with web.stream("GET", "/v1/namespaces/farm/logs/tailed/tail?from=1") as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = answer.iter_lines()
        for n in range(20):
            assert web.post("/v1/namespaces/farm/logs/tailed/records", content=b"value-%d" % n).status_code == 201
            assert any(f"value-{n}" in line for line in lines)


def test_a_wait_ends_when_what_it_waits_for_is_there(host: Host, web: httpx.Client) -> None:
    create(host, "waited")
    seqno = host.append("waited", b"first")["seqno"]
    later = threading.Timer(0.2, lambda: host.append("waited", b"second"))
    later.start()
    answer = web.get("/v1/namespaces/farm/logs/waited/records", params={"from": seqno + 1, "wait_ms": 100_000})
    later.join()
    assert answer.status_code == 200 and "second" in answer.text, answer.text


def test_other_names_of_the_host_and_pages_of_others_are_kept_out(host: Host, web: httpx.Client) -> None:
    for headers, code in [
        ({"host": "evil.example"}, "MR6043"),
        ({"origin": "http://evil.example"}, "MR6044"),
        ({"sec-fetch-site": "cross-site"}, "MR6044"),
    ]:
        answer = web.get("/v1/namespaces", headers=headers)
        assert answer.status_code == 403 and answer.json()["error"]["code"] == code, answer.text
    assert web.get("/v1/namespaces", headers={"origin": host.url}).status_code == 200


def test_open_requests_end_when_the_host_stops(own_host: Host) -> None:
    create(own_host, "left")
    stopped = threading.Thread(target=own_host.stop)
    # The frames that say so are errors for this client, if they come with the end of the answer.
    ends = contextlib.suppress(httpx.ProtocolError, h2.exceptions.ProtocolError)
    with ends, httpx.Client(base_url=own_host.ns, http1=False, http2=True, timeout=PATIENCE_S) as web:
        with web.stream("GET", "/logs/left/tail") as answer:
            lines = answer.iter_lines()
            assert next(lines)
            stopped.start()
            list(lines)
    stopped.join(PATIENCE_S)
    assert own_host.process is not None and own_host.process.returncode == 0


@pytest.mark.skipif(not shutil.which("curl"), reason="there is no curl")
def test_curl_speaks_it_with_and_without_an_upgrade(host: Host, tmp_path: Path) -> None:
    def curl(*arguments: str) -> str:
        command = ["curl", "-sS", "--max-time", str(PATIENCE_S), "-o", str(tmp_path / "body"), "-w", "%{http_version} %{http_code}"]
        return subprocess.run([*command, *arguments], check=True, capture_output=True, text=True).stdout

    (tmp_path / "record").write_bytes(b"r" * 3_000_000)
    records = create(host, "curled")
    assert curl("--http2-prior-knowledge", f"{host.url}/healthz") == "2 200"
    assert curl("--http2-prior-knowledge", "--data-binary", f"@{tmp_path / 'record'}", records) == "2 201"
    assert curl("--http2-prior-knowledge", "-H", "accept: */*", f"{records}/1") == "2 200"
    assert (tmp_path / "body").read_bytes() == (tmp_path / "record").read_bytes()
    # Without TLS the host stays with HTTP/1.1.
    assert curl("--http2", f"{host.url}/healthz") == "1.1 200"
