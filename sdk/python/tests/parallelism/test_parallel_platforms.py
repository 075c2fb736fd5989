"""Real runs: processes, workers of a host, a function of a log; and over HTTP a small server that answers as OpenWhisk does."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Optional

import pytest
from conftest import Host

import millrace
from millrace.parallelism import Experiment, Run, RunError, measure, read, task
from millrace.parallelism import run as running
from millrace.parallelism.__main__ import main
from millrace.parallelism.platforms import Options, platform
from millrace.parallelism.record import parse_experiment

pytest.importorskip("httpx")
pytest.importorskip("cloudpickle")


def small(text: str, asynchronous: bool = False) -> Experiment:
    return parse_experiment(text, asynchronous, 1000)


def sound(run: Run, count: int) -> None:
    """What is true of every run in which all was well."""
    assert [one.error for one in run.invocations if one.status != "ok"] == []
    assert len(run.invocations) == count == len({one.id for one in run.invocations})
    by_instance: dict[str, list[int]] = {}
    for one in run.invocations:
        by_instance.setdefault(one.instance or "", []).append(one.nth or 0)
    for counted in by_instance.values():
        assert len(set(counted)) == len(counted), "an instance counts each invocation once"
    assert measure(run).impossible == 0


def test_processes_are_kept_for_later_invocations() -> None:
    run = running.run("local", small("6/2/C/s"), Options(), warm=True)
    sound(run, 6)
    numbers = measure(run)
    assert numbers.warm_made == 2 and numbers.instances <= 6 and run.warmed is not None
    warm = {one.instance for one in run.invocations if (one.nth or 0) > 1}
    assert numbers.cold == len({one.instance for one in run.invocations} - set(run.warmed)) and warm <= {one.instance for one in run.invocations}
    assert run.client.cpus == os.cpu_count() and all(one.boot and one.uptime_s and one.hostname and one.cpu for one in run.invocations)


def test_a_calibrated_run_knows_how_long_the_task_takes_alone() -> None:
    run = running.run("local", small("1/0/C/s"), Options(), calibrated=True, seconds=0.01)
    assert run.experiment.iterations and run.experiment.alone_ms is not None and measure(run).alone_is == "measured"


def test_products_of_matrices_run() -> None:
    sound(running.run("local", parse_experiment("2/0/M/64", iterations=1), Options()), 2)


def test_an_invocation_without_an_answer_is_lost() -> None:
    run = running.run("local", small("2/0/S/s"), Options(timeout_s=0.05), seconds=600)
    assert [one.status for one in run.invocations] == ["lost", "lost"]
    assert [one.error for one in run.invocations] == ["no answer within 0.05 s"] * 2


def test_workers_of_a_private_host(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_BIN", str(binary))
    monkeypatch.delenv("MILLRACE_NAMESPACE", raising=False)
    run = running.run("millrace", small("9/1/C/s"), Options(workers=2), warm=True)
    sound(run, 9)
    numbers = measure(run)
    assert numbers.instances <= 2 and numbers.degree <= 2 and numbers.warm_made == 1
    for one in run.invocations:
        assert one.extra["done_ms"] >= one.extra["fired_ms"][0] >= one.extra["trigger_ms"]


def test_asynchronous_tasks_of_a_host_are_accepted_and_then_received(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_BIN", str(binary))
    monkeypatch.delenv("MILLRACE_NAMESPACE", raising=False)
    run = running.run("millrace", small("3/0/C/s", True), Options(workers=1))
    sound(run, 3)
    for one in run.invocations:
        assert one.received_ms is not None and one.answered_ms is not None and one.sent_ms <= one.answered_ms <= one.received_ms


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_function_of_a_log(disk: millrace.Namespace, host: Callable[..., Host], asynchronous: bool) -> None:
    address = host(disk).address
    run = running.run("log", small("7/0/C/s", asynchronous), Options(url=str(disk.address), workers=2))
    sound(run, 7)
    assert measure(run).instances <= 2 and all((one.received_ms is not None) == asynchronous for one in run.invocations)
    assert len({one.extra["run"] for one in run.invocations}) == 7
    # Another program reaches the same function over the network, and meets its workers again.
    again = running.run("log", small("5/0/C/s"), Options(url=address))
    sound(again, 5)
    assert {one.instance for one in again.invocations} & {one.instance for one in run.invocations}
    with pytest.raises(RunError, match="has no function 'other'.*function deploy other"):
        running.run("log", small("5/0/C/s"), Options(url=address, function="other"))


def test_several_processes_send_together(disk: millrace.Namespace, host: Callable[..., Host]) -> None:
    host(disk)
    run = running.run("log", small("5/0/C/s"), Options(url=str(disk.address), workers=2), processes=2)
    sound(run, 5)
    with pytest.raises(millrace.Error, match="MR2001"):
        running.run("log", small("4/0/C/s"), Options(url=str(Path(str(disk.address)) / "nosuch")), processes=2)


class Server:
    """An HTTP server that answers each POST as `answer` says: status, headers, body; or None to close the connection."""

    def __init__(self, answer: Callable[[str, dict[str, str], Any], Any]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                found = answer(f"{self.command} {self.path}", {name.lower(): value for name, value in self.headers.items()}, body)
                if found is None:
                    self.close_connection = True
                    return
                status, content = found
                sent = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_POST = do_GET = _answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_functions_behind_http_answer_or_refuse() -> None:
    calls = iter(range(1000))
    lock = threading.Lock()

    def answer(what: str, headers: dict[str, str], body: Any) -> Any:
        assert what == "POST /run" and headers["x-functions-key"] == "secret"
        with lock:
            number = next(calls)
        others = {0: (429, "Too many"), 1: (500, {"error": "broken"}), 2: (200, "<html>hello</html>"), 3: None, 4: (200, {"start_ms": 5})}
        return others[number] if number in others else (200, task.run(body))

    with Server(answer) as server:
        run = running.run("http", small("12/0/C/s"), Options(url=f"{server.url}/run", headers={"x-functions-key": "secret"}))
    states = sorted((one.status, (one.error or "")[:30]) for one in run.invocations if one.status != "ok")
    assert [state for state, _ in states] == ["failed", "failed", "failed", "lost", "refused"]
    assert measure(run).ran == 7 and measure(run).failures["refused 429"] == 1
    assert any("the function answered" in error for _, error in states) and any("html" in error for _, error in states)


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        run = running.run("http", small("3/0/C/s"), Options(url=f"http://127.0.0.1:{held.getsockname()[1]}/"))
    assert [one.status for one in run.invocations] == ["refused"] * 3 and "no connection" in (run.invocations[0].error or "")


def test_the_task_serves_http_in_a_container() -> None:
    process = subprocess.Popen([sys.executable, task.__file__, "serve", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().split()[-1]
        run = running.run("http", small("4/0/C/s"), Options(url=f"http://127.0.0.1:{port}"))
        sound(run, 4)
        assert measure(run).instances == 1 and sorted(one.nth or 0 for one in run.invocations) == [1, 2, 3, 4]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def whisk() -> Iterator[Server]:
    """Answers as OpenWhisk does. Requests have numbers in the order in which they come."""
    lock, calls = threading.Lock(), iter(range(1000))
    records: dict[str, Any] = {}
    asked: dict[str, int] = {}

    def answer(what: str, headers: dict[str, str], body: Any) -> Any:
        if headers.get("authorization") != "Basic " + base64.b64encode(b"user:key").decode():
            return 401, {"error": "The supplied authentication is invalid."}
        if what.startswith("GET /api/v1/namespaces/_/activations/"):
            id = what.rpartition("/")[2]
            with lock:
                asked[id] = asked.get(id, 0) + 1
            return (200, records[id]) if asked[id] > 1 else (404, {"error": "The requested resource does not exist."})
        assert what.startswith("POST /api/v1/namespaces/_/actions/parallelism?"), what
        with lock:
            number = next(calls)
        if number == 0 and "blocking=true" in what:
            return 429, {"code": "x", "error": "Too many requests in the last minute (count: 61, allowed: 60)."}
        result = task.main(body)
        notes = [{"key": "waitTime", "value": 61}, {"key": "limits", "value": {"memory": 256}}]
        notes += [{"key": "initTime", "value": 788}] if number % 2 else []
        response = {"status": "success", "success": True, "result": result}
        if number == 1:
            response = {"status": "application error", "success": False, "result": {"error": "boom"}}
        id = f"activation{number}"
        records[id] = {"activationId": id, "start": 5, "end": 9, "annotations": notes, "response": response}
        if "blocking=false" in what or number == 2:
            return 202, {"activationId": id}
        return (502 if number == 1 else 200), records[id]

    with Server(answer) as server:
        yield server


def test_openwhisk_tells_waits_and_starts(whisk: Server) -> None:
    run = running.run("openwhisk", small("8/0/C/s"), Options(url=whisk.url, auth="user:key"))
    numbers = measure(run)
    assert numbers.ran == 6 and numbers.failures.pop("refused 429") == 1 and numbers.failures == {"failed 502": 1}
    (failed,) = (one for one in run.invocations if one.status == "failed")
    assert failed.error == "application error: boom" and failed.extra["activation"] == "activation1"
    ran = [one for one in run.invocations if one.status == "ok"]
    assert {one.extra["wait_ms"] for one in ran} == {61} and {one.extra["init_ms"] for one in ran} == {0, 788}
    assert {one.extra["memory_limit_mib"] for one in ran} == {256}
    # One took longer than a connection is kept: its record was asked for, twice.
    assert sum(one.received_ms is not None for one in ran) == 1


def test_openwhisk_without_waiting(whisk: Server) -> None:
    run = running.run("openwhisk", small("4/0/C/s", True), Options(url=whisk.url, auth="user:key"))
    assert all(one.received_ms is not None for one in run.invocations) and measure(run).ran == 3


def test_openwhisk_with_a_wrong_key_fails_and_says_so(whisk: Server) -> None:
    run = running.run("openwhisk", small("2/0/C/s"), Options(url=whisk.url, auth="user:wrong"))
    assert {one.error for one in run.invocations} == {"401 Unauthorized: The supplied authentication is invalid."}


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("nosuch", {}, "there is no such platform; it is one of millrace, log, lambda, openwhisk, http, local"),
        ("http", {}, "--on http needs --url"),
        ("openwhisk", {}, "--on openwhisk needs --url"),
        ("openwhisk", {"url": "http://127.0.0.1:1"}, "OPENWHISK_AUTH"),
        ("log", {}, "--on log needs --url"),
        ("millrace", {"workers": 65}, "a pool has 1 to 64 workers"),
        ("http", {"url": "ftp://x"}, "give an address such as https"),
    ],
)
def test_what_a_platform_needs(name: str, options: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("MILLRACE_NAMESPACE", "OPENWHISK_AUTH"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(RunError) as raised:
        running.run(name, small("1/0/C/s"), Options(**options))
    assert told in str(raised.value)


def test_local_and_http_have_no_asynchronous_invocations() -> None:
    for name in ("local", "http"):
        with pytest.raises(RunError, match="leave out --async"):
            platform(name, Options(url="http://127.0.0.1:1"), small("1/0/C/s", True))


def test_the_command_measures_draws_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["3/1/C/s", "--on", "local", "--warm", "--iterations", "1000", "-o", "run.json"]) == 0
    printed = capsys.readouterr()
    assert "parallel degree" in printed.out and "Q3" in printed.out and "chart run.json -o run.svg" in printed.out
    assert "warming 1 instances" in printed.err
    assert main(["chart", "run.json", "-o", "run.svg"]) == 0 and main(["compare", "run.json", "run.json", "-o", "both.png"]) == 0
    assert main(["table", "run.json", "--alone", "0.001"]) == 0
    assert "strongly disturb" in capsys.readouterr().out
    assert Path("run.svg").is_file() and Path("both.png").is_file() and len(read("run.json").invocations) == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["2/2/X/s", "--on", "local", "-o", "run.json"], "write I/W/T/M"),
        (["2/0/C/s", "--on", "local", "--warm", "-o", "run.json"], "expects no warm instances"),
        (["2/0/C/s", "--on", "local", "-o", "none/run.json"], "create it first"),
        (["2/0/C/s", "--on", "local", "--iterations", "0", "-o", "run.json"], "--iterations 0"),
        (["2/0/C/s", "--on", "local", "--processes", "2", "-o", "run.json"], "leave it out"),
        (["2/0/C/s", "--on", "local", "--processes", "0", "-o", "run.json"], "it is 1 to 64"),
        (["2/0/S/s", "--on", "local", "--seconds", "nan", "-o", "run.json"], "--seconds nan"),
        (["2/0/S/s", "--on", "local", "--timeout", "0", "-o", "run.json"], "--timeout 0"),
        (["table", "none.json"], "none.json cannot be read"),
        (["function", "--for", "mars", "-o", "f.zip"], "it is one of lambda, openwhisk, gcp, azure, knative"),
        (["function", "--for", "azure", "-o", "none/f.zip"], "cannot be written"),
    ],
)
def test_a_wrong_command_says_what_to_do(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: ") and told in printed and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["lambda", "openwhisk", "gcp", "azure", "knative"])
def test_packages_have_the_task_and_run(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["function", "--for", name, "-o", str(tmp_path / "f.zip")]) == 0
    assert str(tmp_path / "f.zip") in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "f.zip") as archive:
        archive.extractall(tmp_path / "function")
    (file,) = (path for path in (tmp_path / "function").rglob("*.py"))
    if name == "openwhisk":
        # Its launcher gives the file this name, and imports it.
        file = file.rename(file.with_name("main__.py"))
    # As each platform calls it: a module of its own, in a process of its own.
    calls = {"lambda": "handler({'task': 'C', 'iterations': 5}, None)", "openwhisk": "main({'task': 'C', 'iterations': 5})"}
    script = "class Request:\n  def get_json(self): return {'task': 'C', 'iterations': 5}\n"
    script += f"import importlib, json\nmodule = importlib.import_module({file.stem!r})\nfound = module.{calls.get(name, 'main(Request())')}\n"
    script += "print(found if isinstance(found, str) else json.dumps(found))"
    ran = subprocess.run([sys.executable, "-c", script], cwd=file.parent, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["nth"] == 1 and 0 <= answer["value"] <= 4 and answer["end_ms"] >= answer["start_ms"]


def test_the_task_needs_only_the_standard_library_and_counts_in_forks() -> None:
    script = (
        "import os, sys, json\nimport task\nfirst = task.run({'task': 'C', 'iterations': 1})\npid = os.fork()\n"
        "again = task.run({'task': 'C', 'iterations': 1})\nprint(json.dumps([first, again]), flush=True)\n"
        "if pid: os.waitpid(pid, 0)\n"
    )
    folder = Path(task.__file__).parent
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(folder)!r})\n{script}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (first, one), (_, other) = (json.loads(line) for line in ran.stdout.splitlines())
    assert {one["nth"], other["nth"]} == {1, 2} and one["instance"] != other["instance"]
    assert first["instance"] in (one["instance"], other["instance"])


def test_threads_of_an_instance_are_counted_once_each() -> None:
    answers: list[Any] = []
    together = threading.Barrier(16)

    def work() -> None:
        together.wait(120)
        answers.extend(task.run({"task": "C", "iterations": 1}) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = sorted(answer["nth"] for answer in answers)
    assert counted == list(range(counted[0], counted[0] + 800)) and len({answer["instance"] for answer in answers}) == 1


def test_a_function_that_fails_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def invoke() -> Optional[str]:
        on = platform("local", Options(), small("1/0/C/s"))
        await on.start()
        try:
            return (await on.invoke({"id": "x", "task": "Z"})).error
        finally:
            await on.close()

    assert asyncio.run(invoke()) == "KeyError: 'Z'"
