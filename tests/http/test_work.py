"""What is going on: tasks of pools, failures by function and error, and what runs print. And the reference is typed as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import requests
from conftest import PATIENCE_S, ROOT, Host, error_of

# `slow` prints a line, waits for a file beside it, and prints another one.
SLOW = """#!/bin/sh
cat >/dev/null
echo "before é"
until [ -e "$GO" ]; do sleep 0.05; done
echo "after" >&2
"""


def get(host: Host, path: str, **query: Any) -> Any:
    answer = requests.get(f"{host.ns}/{path}", params=query, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(answer: requests.Response) -> Any:
    """Events of an answer as they come: the type and the data of each."""
    kind, answer.encoding = "", "utf-8"
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith("event: "):
            kind = line[7:]
        elif line.startswith("data: "):
            yield kind, json.loads(line[6:])


@pytest.fixture
def slow(own_host: Host, tmp_path: Path) -> tuple[Host, Path]:
    """A host with a function whose runs wait for a file."""
    go = tmp_path / "go"
    # Functions in a sandbox do not see the file.
    own_host.stop()
    own_host.start("--sandbox", "none")
    (own_host.place / "slow.sh").write_text(SLOW.replace("$GO", str(go)))
    (own_host.place / "slow.sh").chmod(0o755)
    own_host.run("log", "create", "slow")
    own_host.run("function", "deploy", "slow", "--runtime", "oneshot", "--code", "slow.sh", "--on", "slow", "--", "./slow.sh")
    return own_host, go


def started(host: Host, function: str) -> str:
    waits = threading.Event()
    while not (runs := get(host, "runs", function=function, state="started")["runs"]):
        waits.wait(0.02)
    return str(runs[0]["id"])


def test_output_comes_as_it_is_printed_and_ends_with_its_run(slow: tuple[Host, Path]) -> None:
    host, go = slow
    host.append("slow", b"x")
    run = started(host, "slow")
    with requests.get(f"{host.ns}/runs/{run}/output", params={"follow": "1"}, stream=True, timeout=PATIENCE_S) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        told = events(answer)
        first = next(told)
        assert first == ("output", {"from": 0, "text": "before é\n", "next": 10})
        # Meanwhile it is a document as well, from any byte on.
        part = get(host, f"runs/{run}/output")
        assert part == {"run": run, "state": "started", "from": 0, "text": "before é\n", "next": 10, "ended": False}
        assert get(host, f"runs/{run}/output", **{"from": 7})["text"] == "é\n"
        assert get(host, f"runs/{run}/output", **{"from": 10}) == {**part, "from": 10, "text": "", "next": 10}
        go.touch()
        assert list(told) == [("output", {"from": 10, "text": "after\n", "next": 16}), ("end", {"run": run, "state": "done"})]
    whole = {"run": run, "state": "done", "from": 0, "text": "before é\nafter\n", "next": 16}
    ended = get(host, f"runs/{run}/output")
    assert {**ended, "ended": True} == {**whole, "ended": True}
    # Another host knows it from the journal.
    host.stop()
    host.start("--sandbox", "none")
    assert get(host, f"runs/{run}/output") == {**whole, "ended": True}
    assert get(host, f"runs/{run}/output", **{"from": 999})["text"] == ""
    assert host.run("run", "output", run) == "before é\nafter\n"


def test_the_command_follows_what_a_run_prints(slow: tuple[Host, Path]) -> None:
    host, go = slow
    host.append("slow", b"x")
    run = started(host, "slow")
    waits = threading.Event()
    while "before" not in host.run("run", "output", run):
        waits.wait(0.02)
    threading.Timer(0.3, go.touch).start()
    assert host.run("run", "output", run, "--follow") == "before é\nafter\n"


def test_what_is_no_run_or_no_number_is_refused(host: Host) -> None:
    for path, status, code in [
        ("runs/0000000000a1-0-1/output", 404, "MR3007"),
        ("runs/0000000000a1-0-1/output?follow=true", 404, "MR3007"),
        ("runs/latest/output?follow=yes", 400, "MR6047"),
        ("runs/latest/output?from=-1", 400, "MR6047"),
        ("failures?since=yesterday", 400, "MR6047"),
        ("failures?function=nothing", 404, "MR3001"),
        ("tasks?x=1", 400, "MR6047"),
    ]:
        answer = requests.get(f"{host.ns}/{path}", timeout=PATIENCE_S)
        assert (answer.status_code, error_of(answer)["code"]) == (status, code), path


def test_failures_are_grouped_by_function_and_error_and_retried_by_group(own_host: Host) -> None:
    host = own_host
    assert get(host, "failures") == {"failures": [], "letters": 0, "more": False}
    (host.place / "kill.sh").write_text("#!/bin/sh\nkill -9 $$\n")
    (host.place / "kill.sh").chmod(0o755)
    host.run("function", "deploy", "kill", "--runtime", "oneshot", "--code", "kill.sh", "--on", "raw/kitchen", "--retries", "0", "--", "./kill.sh")
    for value in [b"poison", b"poison", b"fine"]:
        host.append("raw/kitchen", value)
    host.idle()
    found = get(host, "failures")
    assert [(it["function"], it["letters"], it["waiting"]) for it in found["failures"]] == [("kill", 3, 3), ("copy", 2, 2)]
    of_copy = found["failures"][1]
    newest = get(host, "runs", function="copy", state="dead")["runs"][0]
    assert (of_copy["run"], of_copy["log"], of_copy["seqno"], of_copy["last"]) == (newest["id"], "raw/kitchen", 2, of_copy["last"])
    assert (of_copy["code"], of_copy["error"]) == (newest["error"]["code"], newest["error"]["detail"])
    assert of_copy["first"] <= of_copy["last"] and of_copy["dead_letter"] == "dead/copy"
    assert get(host, "failures", function="copy")["failures"] == [of_copy]
    assert get(host, "failures", since="2099-01-01T00:00:00Z")["failures"] == []
    assert get(host, "failures", since=of_copy["last"], function="copy")["failures"][0]["letters"] == 1
    # One group is retried, and no other error of the function.
    order = {"do": "retry-function", "function": "copy", "code": "MR9999"}
    assert requests.post(f"{host.ns}/manage", json=order, timeout=PATIENCE_S).json()["retried"] == 0
    (host.place / "copy.sh").write_text("#!/bin/sh\ncat >/dev/null\n")
    host.run("up")
    assert "retrying 2 runs" in host.run("run", "retry", "--function", "copy", "--code", of_copy["code"])
    host.idle()
    left = {it["function"]: it["waiting"] for it in get(host, "failures")["failures"]}
    assert left == {"kill": 3, "copy": 0}
    text = host.run("run", "failures", "--since", "1h")
    assert "kill" in text and of_copy["code"] in text
    assert json.loads(host.run("run", "failures", "--json")) == get(host, "failures")


def test_a_namespace_without_executors_has_no_pool(host: Host) -> None:
    assert get(host, "tasks") == {"pools": []}
    assert host.run("function", "pools") == "no pools\n"


PAGE = ROOT / "docs/reference/http.md"


def test_every_command_of_the_page_works(own_host: Host) -> None:
    # The page makes and removes the log itself; here a function is bound to it.
    own_host.run("function", "rm", "copy")
    own_host.run("log", "rm", "raw/kitchen")
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 9
    # A failure of any command fails the script, and so does an answer that is an error.
    script = "set -euo pipefail\ncurl() { command curl -sS --fail-with-body -w '\\n' \"$@\"; }\nexport -f curl\n"
    script += "timeout() { local s=$1; shift 2; command timeout \"$s\" curl -sS \"$@\"; }\n" + "".join(blocks)
    script = script.replace("127.0.0.1:7070", f"127.0.0.1:{own_host.port}")
    done = subprocess.run(
        ["bash", "-c", script], cwd=own_host.place, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"seqno":1,' in done.stdout and 'id: ' in done.stdout and '"change":"removed"' in done.stdout
    assert '{"t": 21.5}' in done.stdout.replace('\\"', '"')
