"""A function answers a request: with what it returns, with its error, or later."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import requests
from conftest import APPLICATION, PATIENCE_S, Host, error_of

FUNCTIONS = """
[functions.answer]
runtime = "python"
code = "answers.py"
handler = "answers:answer"
retries = 0
concurrency = 4
ordered = false
[functions.sleep]
runtime = "python"
code = "answers.py"
handler = "answers:sleep"
timeout = "1h"
concurrency = 4
ordered = false
[functions.bound]
runtime = "python"
code = "answers.py"
handler = "answers:bound"
on = ["out"]
"""
ANSWERS = """
import json, time

def answer(record, ctx):
    text = record.text()
    if text == "fail":
        raise ValueError("cannot\\n/secret/path")
    return {
        "text": "é", "bytes": b"\\xff\\x00", "none": None, "object": {"b": [1, 2.5, None], "a": "x"}, "number": 7,
        "odd": object(), "large": "x" * (1 << 20) + "x", "largest": "x" * (1 << 20),
    }.get(text, ctx.idempotency_key if text == "run" else [text])

def sleep(record, ctx):
    time.sleep(3600)

def bound(record, ctx):
    return len(record.data)
"""


@pytest.fixture
def answering(own_host: Host) -> Host:
    place: Path = own_host.place
    (place / "millrace.toml").write_text(APPLICATION.format(durability="memory") + FUNCTIONS)
    (place / "answers.py").write_text(ANSWERS)
    own_host.run("up")
    return own_host


def call(host: Host, function: str, body: bytes | str, query: str = "", **headers: str) -> requests.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return requests.post(f"{host.ns}/functions/{function}{query}", data=body, headers=sent, timeout=PATIENCE_S)


def run_of(host: Host, answer: requests.Response) -> dict[str, Any]:
    assert answer.headers["location"].endswith(f"/runs/{answer.headers['millrace-run']}")
    return requests.get(host.url + answer.headers["location"], timeout=PATIENCE_S).json()


def test_what_a_function_returns_is_the_answer(answering: Host) -> None:
    expected = {
        "text": ("text/plain; charset=utf-8", "é".encode(), "text"),
        "bytes": ("application/octet-stream", b"\xff\x00", "bytes"),
        "object": ("application/json", b'{"b":[1,2.5,null],"a":"x"}', "json"),
        "number": ("application/json", b"7", "json"),
        "else": ("application/json", b'["else"]', "json"),
        "largest": ("text/plain; charset=utf-8", b"x" * (1 << 20), "text"),
    }
    for body, (kind, content, type_) in expected.items():
        answer = call(answering, "answer", body)
        assert (answer.status_code, answer.headers["content-type"], answer.content) == (200, kind, content), body
        assert answer.headers["x-content-type-options"] == "nosniff"
        run = run_of(answering, answer)
        assert (run["state"], run["function"], run["result"]["type"]) == ("done", "answer", type_)
    nothing = call(answering, "answer", "none")
    assert (nothing.status_code, nothing.content) == (204, b"")
    assert "result" not in run_of(answering, nothing)
    # The record is kept, in a log of the function's own.
    first = requests.get(f"{answering.ns}/logs/invoke/answer/records/1", timeout=PATIENCE_S)
    assert first.content == b"text"


def test_a_failure_is_the_answer_without_what_only_its_author_may_see(answering: Host) -> None:
    failed = call(answering, "answer", "fail")
    error = error_of(failed)
    assert (failed.status_code, error["code"], error["detail"]) == (500, "MR3110", "ValueError: cannot")
    assert "/secret/path" in run_of(answering, failed)["error"]["detail"]
    for body, reason in (("odd", "not JSON serializable"), ("large", "1048577 bytes")):
        dropped = call(answering, "answer", body)
        error = error_of(dropped)
        assert (dropped.status_code, error["code"]) == (500, "MR3150") and reason in error["detail"], error
        run = run_of(answering, dropped)
        assert (run["state"], run["result"]["type"]) == ("done", "dropped") and reason in run["result"]["reason"]


def test_a_function_that_is_bound_runs_for_its_log(answering: Host) -> None:
    answer = call(answering, "bound", b"12345")
    assert (answer.status_code, answer.content) == (200, b"5")
    run = run_of(answering, answer)
    assert (run["log"], run["seqno"]) == ("out", 1)
    # A run that nobody waits for has its result, too.
    answering.append("out", b"123")
    answering.idle()
    runs = requests.get(f"{answering.ns}/runs?function=bound&limit=1", timeout=PATIENCE_S).json()["runs"]
    run = requests.get(f"{answering.ns}/runs/{runs[0]['id']}", timeout=PATIENCE_S).json()
    assert run["result"] == {"type": "json", "data": "3"}
    elsewhere = call(answering, "answer", "text", "?log=out")
    assert run_of(answering, elsewhere)["log"] == "out"


def test_a_repeated_key_gets_the_answer_of_the_same_run_even_after_a_crash(answering: Host) -> None:
    first = call(answering, "answer", "run", Idempotency_Key="k1")
    again = call(answering, "answer", "run", Idempotency_Key="k1")
    assert first.status_code == 200 and first.text == first.headers["millrace-run"]
    assert (again.text, again.headers["millrace-run"]) == (first.text, first.headers["millrace-run"])
    for function, body in (("answer", "text"), ("bound", "run")):
        other = call(answering, function, body, Idempotency_Key="k1")
        assert (other.status_code, error_of(other)["code"]) == (409, "MR6023")
    # A result that was sent is durable.
    disk = call(answering, "answer", "run", Idempotency_Key="k2", Millrace_Durability="disk")
    answering.stop(signal.SIGKILL)
    answering.start()
    assert call(answering, "answer", "run", Idempotency_Key="k2", Millrace_Durability="disk").text == disk.text


def test_who_does_not_wait_asks_later(answering: Host) -> None:
    for wait in ("0", "0.05"):
        underway = call(answering, "sleep", b"", Millrace_Wait=wait)
        assert underway.status_code == 202, underway.text
        answer = underway.json()
        assert answer["function"] == "sleep" and answer["run"] == underway.headers["millrace-run"]
        assert answer["state"] in ("pending", "started") and answer["log"] == "invoke/sleep"
        assert run_of(answering, underway)["ended"] is None
    asked = call(answering, "answer", "number", Millrace_Wait="0")
    assert asked.status_code in (200, 202)
    deadline = time.monotonic() + PATIENCE_S
    while run_of(answering, asked)["ended"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert run_of(answering, asked)["result"] == {"type": "json", "data": "7"}


def test_a_host_that_stops_answers_those_who_wait(answering: Host) -> None:
    answers: list[requests.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(call(answering, "sleep", b"", Millrace_Wait="300")))
    waiting.start()
    deadline = time.monotonic() + PATIENCE_S
    while not requests.get(f"{answering.ns}/runs?state=started", timeout=PATIENCE_S).json()["runs"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert answering.process is not None
    answering.process.send_signal(signal.SIGTERM)
    waiting.join(PATIENCE_S)
    assert [answer.status_code for answer in answers] == [202]


@pytest.mark.parametrize("wait", ["x", "-1", "301", "nan", "inf", "1e400", ""])
def test_a_wait_that_is_none_is_refused(host: Host, wait: str) -> None:
    assert error_of(call(host, "copy", b"x", Millrace_Wait=wait))["code"] == "MR6047"


def test_what_cannot_run_is_refused(host: Host) -> None:
    misspelt = call(host, "coppy", b"x")
    assert misspelt.status_code == 404
    assert error_of(misspelt)["detail"] == "no function 'coppy'; did you mean 'copy'?"
    assert error_of(call(host, "copy", b"x", "?log=nowhere"))["code"] == "MR2101"
    assert error_of(call(host, "copy", b"x", "?loog=out"))["code"] == "MR6047"
    assert error_of(call(host, "copy", b"x", Content_Encoding="gzip"))["code"] == "MR6046"
    long = call(host, "copy", bytes((4 << 20) + 1))
    assert (long.status_code, error_of(long)["code"]) == (413, "MR1004")
    assert requests.put(f"{host.ns}/functions/copy", timeout=PATIENCE_S).headers["allow"] == "GET, HEAD, POST"


def test_names_are_suggested_that_the_caller_may_see(host: Host) -> None:
    def detail(url: str, capability: str) -> str:
        headers = {"Authorization": f"Bearer {capability}"}
        return error_of(requests.get(f"{host.ns}/{url}", headers=headers, timeout=PATIENCE_S))["detail"]

    reader = host.run("cap", "issue", "--read", "raw/").strip()
    reader = re.findall(r"\S+", reader)[-1]
    assert detail("logs/raw%2Fkitchem/records", reader) == "no log 'raw/kitchem'; did you mean 'raw/kitchen'?"
    # The same error, for a caller that may use that name alone.
    exact = re.findall(r"\S+", host.run("cap", "issue", "--read", "raw/kitchem").strip())[-1]
    assert detail("logs/raw%2Fkitchem/records", exact) == "no log 'raw/kitchem'"
    assert json.loads(host.run("--json", "log", "stat", "raw/kitchen"))["name"] == "raw/kitchen"
