"""What is wrong is refused with a code, and nobody else is harmed."""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time

import pytest
import requests
from conftest import PATIENCE_S, Host, error_of


def raw(host: Host, request: bytes, *, end: bool = False) -> bytes:
    """Sends bytes as they are and returns what comes back until the host closes."""
    with socket.create_connection(("127.0.0.1", host.port), PATIENCE_S) as client:
        client.sendall(request)
        if end:
            client.shutdown(socket.SHUT_WR)
        answer = b""
        while part := client.recv(65536):
            answer += part
        return answer


def refusal(answer: bytes) -> tuple[int, str]:
    """Status and code of a refusal that came as bytes."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower(), answer
    return int(head.split()[1]), json.loads(body)["error"]["code"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "MR6041"),
        ("GET", "/v1/namespaces/other/logs", 404, "MR6007"),
        ("GET", "/v1/namespaces/farm/logs/none", 404, "MR2101"),
        ("GET", "/v1/namespaces/farm/logs/..%2F..%2Fetc", 400, "MR1001"),
        ("GET", "/v1/namespaces/farm/logs/%ff", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/a%00b", 400, "MR1001"),
        ("GET", "/v1/namespaces/farm/logs/out/records/0", 400, "MR1003"),
        ("GET", "/v1/namespaces/farm/logs/out/records/-1", 400, "MR1003"),
        ("GET", "/v1/namespaces/farm/logs/out/records/1e3", 400, "MR1003"),
        ("GET", "/v1/namespaces/farm/logs/out/records/18446744073709551616", 400, "MR1003"),
        ("GET", "/v1/namespaces/farm/logs/out/records/18446744073709551615", 404, "MR2105"),
        ("GET", "/v1/namespaces/farm/logs/out/records?from=-1", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/out/records?from=18446744073709551616", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/out/records?count=0", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/out/records?count=10001", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/out/records?from=1&from=2", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/out/records?form=1", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/out/records/1?wait_ms=99999999", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/logs/out/records/1?durability=paper", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/runs?state=odd", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/runs/xyz", 400, "MR1005"),
        ("GET", "/v1/namespaces/farm/runs/000000000001-0-1", 404, "MR3007"),
        ("GET", "/v1/namespaces/farm/functions/none", 404, "MR3001"),
        ("GET", "/v1/namespaces/farm/why/none", 404, "MR3001"),
        ("GET", "/v1/namespaces/farm/journal?from=1&last=1", 400, "MR6047"),
        ("GET", "/v1/namespaces/farm/nothing", 404, "MR6041"),
        ("POST", "/v1/namespaces/farm/logs/none/records", 404, "MR2101"),
        ("POST", "/v1/namespaces/farm/logs/_keys/records", 403, "MR6022"),
        ("PUT", "/v1/namespaces/farm/logs/_mine", 403, "MR6022"),
        ("DELETE", "/v1/namespaces/farm/logs/raw%2Fkitchen", 409, "MR2103"),
        ("POST", "/v1/namespaces/farm/batch", 415, "MR6046"),
        ("POST", "/healthz", 405, "MR6042"),
        ("DELETE", "/v1/namespaces", 405, "MR6042"),
        ("OPTIONS", "/v1/namespaces", 405, "MR6042"),
        ("TRACE", "/", 405, "MR6042"),
        ("BREW", "/", 405, "MR6042"),
    ],
)
def test_wrong_requests_are_answered_with_their_code(
    host: Host, method: str, path: str, status: int, code: str
) -> None:
    # As it is typed: the library would tidy the path.
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    if path.endswith("/why/none") and method == "GET":
        answered = refusal(raw(host, request.encode()))
        assert answered[0] == 404, answered
        return
    assert refusal(raw(host, request.encode())) == (status, code)


def test_remedies_are_for_programs(host: Host) -> None:
    for path in ("logs/none", "logs/out/records/99", "logs/out/records/0", "runs/000000000001-0-1"):
        error = requests.get(f"{host.ns}/{path}", timeout=PATIENCE_S).json()["error"]
        assert "`GET /v1/" in error["remedy"] or "`wait_ms`" in error["remedy"], error


def test_wrong_types_and_bodies_are_refused(host: Host) -> None:
    log = f"{host.ns}/logs/typed"
    for headers, body, status, code in [
        ({"content-type": "text/plain"}, b"{}", 415, "MR6046"),
        ({}, b"{}", 415, "MR6046"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, b"{}", 415, "MR6046"),
        ({"content-type": "application/json"}, b"{", 400, "MR6045"),
        ({"content-type": "application/json"}, b"[" * 2000, 400, "MR6045"),
        ({"content-type": "application/json"}, b'{"history":-1}', 400, "MR6045"),
        ({"content-type": "application/json"}, b'{"history":1,"history":2}', 400, "MR6045"),
        ({"content-type": "application/json"}, b'{"histroy":1}', 400, "MR6045"),
        ({"content-type": "application/json"}, b'{"history":0}', 400, "MR2107"),
        ({"content-type": "application/json"}, b'{"history":4611686018427387904}', 400, "MR2107"),
        ({"content-type": "application/json"}, b'{"history":1}' + b" " * 5000, 413, "MR1004"),
    ]:
        answer = requests.put(log, data=body, headers=headers, timeout=PATIENCE_S)
        assert (answer.status_code, error_of(answer)["code"]) == (status, code), (headers, body[:40])
    for headers, code in [
        ({"millrace-durability": "paper"}, "MR6047"),
        ({"millrace-cause": "x"}, "MR1005"),
        ({"millrace-function": "none"}, "MR3001"),
        ({"idempotency-key": "k" * 129}, "MR6025"),
        ({"idempotency-key": ""}, "MR6025"),
        ({"content-encoding": "br"}, "MR6046"),
    ]:
        answer = requests.post(f"{host.ns}/logs/out/records", data=b"x", headers=headers, timeout=PATIENCE_S)
        assert error_of(answer)["code"] == code, headers


def test_what_is_not_http_is_told_so(host: Host) -> None:
    assert refusal(raw(host, b"NONSENSE\r\n\r\n")) == (400, "MR6051")
    assert refusal(raw(host, b"GET / HTTP/1.1\r\nHost: localhost\r\nX Y: 1\r\n\r\n")) == (400, "MR6051")
    assert refusal(raw(host, b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")) == (400, "MR6051")
    twice = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert refusal(raw(host, twice)) == (400, "MR6051")
    lengths = b"POST /v1/namespaces/farm/logs/out/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n"
    for length in [b"-1", b"1, 2", b"x", b"99999999999999999999999"]:
        assert refusal(raw(host, lengths % length)) == (400, "MR6051"), length
    chunked = b"POST /v1/namespaces/farm/logs/out/records HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert refusal(raw(host, chunked + b"zz\r\nabc\r\n0\r\n\r\n")) == (400, "MR6051")
    long = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a" * 70_000)
    assert refusal(raw(host, long))[1] == "MR6052"
    header = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n" % (b"a" * 70_000)
    assert refusal(raw(host, header)) == (431, "MR6052")
    many = b"GET / HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % b"".join(b"X%d: 1\r\n" % n for n in range(200))
    assert refusal(raw(host, many)) == (431, "MR6052")


def test_a_body_that_ends_too_early_is_not_appended(host: Host) -> None:
    before = requests.get(f"{host.ns}/logs/out", timeout=PATIENCE_S).json()["latest"]
    request = b"POST /v1/namespaces/farm/logs/out/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf"
    raw(host, request, end=True)
    assert requests.get(f"{host.ns}/logs/out", timeout=PATIENCE_S).json()["latest"] == before


def test_a_record_that_looks_like_a_refusal_is_sent_as_it_is(host: Host) -> None:
    record = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"
    seqno = host.append("out", record)["seqno"]
    answer = requests.get(f"{host.ns}/logs/out/records/{seqno}", timeout=PATIENCE_S)
    assert (answer.status_code, answer.content) == (200, record)


def test_web_pages_of_others_are_kept_out(host: Host) -> None:
    url = f"{host.ns}/logs/out/records"
    answer = requests.post(url, data=b"x", headers={"origin": "http://evil.example"}, timeout=PATIENCE_S)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "MR6044")
    answer = requests.get(f"{host.ns}/logs", headers={"host": f"evil.example:{host.port}"}, timeout=PATIENCE_S)
    assert (answer.status_code, error_of(answer)["code"]) == (403, "MR6043")
    own = requests.get(f"{host.ns}/logs", headers={"origin": host.url}, timeout=PATIENCE_S)
    assert own.status_code == 200 and "access-control-allow-origin" not in own.headers


def test_pipelined_requests_are_answered_in_order(host: Host) -> None:
    paths = [b"/healthz", b"/nowhere", b"/v1/namespaces", b"/openapi.json"]
    request = b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths)
    last = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = raw(host, request + last)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"404", b"200", b"200", b"200"]


def test_many_who_never_finish_harm_nobody(host: Host) -> None:
    half = b"POST /v1/namespaces/farm/logs/out/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx"
    clients = []
    try:
        for n in range(300):
            client = socket.create_connection(("127.0.0.1", host.port), PATIENCE_S)
            client.sendall(half[: len(half) - n % 7 * 10])
            clients.append(client)
        workers = [threading.Thread(target=lambda: [host.append("out", b"y") for _ in range(20)]) for _ in range(4)]
        before = requests.get(f"{host.ns}/logs/out", timeout=PATIENCE_S).json()["latest"]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(PATIENCE_S)
        assert requests.get(f"{host.ns}/logs/out", timeout=PATIENCE_S).json()["latest"] == before + 80
    finally:
        for client in clients:
            client.close()


def test_a_head_that_does_not_come_is_told_so(impatient_host: Host) -> None:
    assert refusal(raw(impatient_host, b"GET / HTTP/1.1\r\nHost: loc")) == (408, "MR6049")


def test_large_bodies_share_a_bounded_memory(patient_host: Host) -> None:
    """Those that come when it is used up are told to come again, and those before them are not harmed."""
    length = (4 << 20) - 4096
    head = b"POST /v1/namespaces/farm/logs/out/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % length
    waiting: list[socket.socket] = []
    told: list[socket.socket] = []
    try:
        while not told:
            # A refusal comes at once, as soon as the host comes to it; an accepted body waits for its last byte.
            is_all = len(waiting) * length >= 512 << 20
            if not is_all:
                client = socket.create_connection(("127.0.0.1", patient_host.port), PATIENCE_S)
                waiting.append(client)
                client.sendall(head + bytes(length - 1))
            told, _, _ = select.select(waiting, [], [], PATIENCE_S if is_all else 0.01)
            assert told or not is_all, "all of them were taken"
        refused = told[0].recv(65536)
        assert refusal(refused) == (503, "MR6050") and b"\r\nretry-after: 1\r\n" in refused
        waiting.remove(told[0])
        told[0].close()
        for client in waiting[:3]:
            client.sendall(b"\0")
            assert client.recv(65536).startswith(b"HTTP/1.1 201 ")
    finally:
        for client in waiting:
            client.close()
    patient_host.append("out", bytes(length))


def test_a_connection_that_was_idle_goes_on(host: Host) -> None:
    """Also in the middle of a request, and with more than one at once."""
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with requests.Session() as session, socket.create_connection(("127.0.0.1", host.port), PATIENCE_S) as client:
        assert session.get(f"{host.url}/healthz", timeout=PATIENCE_S).status_code == 200
        # The second request has begun before the first was answered, and goes on after a pause.
        client.sendall(request + request[:9])
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        time.sleep(5)
        client.sendall(request[9:] + request)
        answer = session.post(f"{host.ns}/logs/out/records", data=b"after a pause", timeout=PATIENCE_S)
        assert answer.status_code == 201
        answers = b""
        while answers.count(b"HTTP/1.1 200 ") < 2:
            part = client.recv(65536)
            assert part, answers
            answers += part
