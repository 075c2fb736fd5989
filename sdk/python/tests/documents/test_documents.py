"""A host over HTTP, the command line and this package describe a namespace with the same documents: those of spec/documents.

MILLRACE_BLESS=1 writes them anew, as the host answers them. Ids are replaced by the order in which they appear, and times by a word.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, ROOT, Host

import millrace

DOCUMENTS = ROOT / "spec/documents"
APPLICATION = """
[logs]
raw = {}
clean = {}

[functions.copy]
runtime = "oneshot"
code = "copy.sh"
command = ["./copy.sh"]
on = ["raw"]
reads = ["raw"]
appends = []
retries = 2

[functions.fail]
runtime = "oneshot"
code = "fail.sh"
command = ["./fail.sh"]
on = ["raw"]
retries = 0
ordered = true
"""
ID, TIME = re.compile(r"[0-9a-f]{12}-[0-9]+-[0-9a-f]+"), re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+[.][0-9]{6}Z")


class Described:
    """A namespace with a run that ended well and one that failed, while its host runs."""

    def __init__(self, binary: Path, folder: Path, namespace: millrace.Namespace, host: Host) -> None:
        self._binary, self._folder, self.namespace, self.host = binary, folder, namespace, host
        found = namespace.runs()
        self.paths = {
            "logs": "logs?newest=true",
            "functions": "functions",
            "runs": "runs",
            "run": f"runs/{next(run.id for run in found if run.function == 'fail')}",
            "why": "why/fail",
        }

    def over_http(self, name: str) -> Any:
        return self.get(self.paths[name])

    def get(self, path: str) -> Any:
        with contextlib.closing(http.client.HTTPConnection("localhost")) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(self.host.socket.removeprefix("unix:"))
            connection.request("GET", f"/v1/namespaces/farm/{path}")
            answer = connection.getresponse()
            text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)

    def of_program(self, place: str, name: str) -> Any:
        words = {"logs": "log ls", "functions": "function ls", "runs": "run ls", "why": "why fail"}
        command = words.get(name) or f"run show {self.paths[name].removeprefix('runs/')}"
        items = self.lines(place, command)
        return items[0] if name in ("run", "why") else {name: items}

    def lines(self, place: str, command: str) -> list[Any]:
        arguments = [str(self._binary), "--json", "-n", place, *command.split()]
        done = subprocess.run(arguments, cwd=self._folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    (folder / "millrace.toml").write_text(APPLICATION)
    for name, text in (("copy.sh", "cat >/dev/null; echo copied"), ("fail.sh", "echo broken >&2; exit 3")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def described(binary: Path, folder: Path, host: Callable[..., Host]) -> Iterator[Described]:
    if not (folder / ".millrace").exists():
        for words in ("init --bare", "up", "log append raw hello"):
            subprocess.run([str(binary), *words.split()], cwd=folder, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)
    with millrace.open(folder / ".millrace") as namespace:
        started = host(namespace)
        namespace.wait_idle(PATIENCE_S)
        yield Described(binary, folder, namespace, started)


def fixed(document: Any) -> str:
    """The document without what differs from one machine, or one moment, to the next."""
    if "reasons" in document:
        document["reasons"] = [reason for reason in document["reasons"] if reason["reason"] != "sandbox"]
    if "logs" in document:
        # Those of the runtime are in no list of the command line.
        document["logs"] = [log for log in document["logs"] if not log["name"].startswith("_")]
    document.pop("next", None)
    found: dict[str, str] = {}
    text = TIME.sub("TIME", json.dumps(document, indent=2))
    return ID.sub(lambda match: found.setdefault(match[0], f"ID {len(found) + 1}"), text) + "\n"


@pytest.mark.parametrize("name", ["logs", "functions", "runs", "run", "why"])
def test_all_describe_a_namespace_alike(described: Described, name: str) -> None:
    file, answered = DOCUMENTS / f"{name}.json", fixed(described.over_http(name))
    if os.environ.get("MILLRACE_BLESS"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(answered)
    expected = file.read_text()
    assert answered == expected
    assert fixed(described.of_program(described.namespace.address, name)) == expected
    assert fixed(described.of_program(described.host.address, name)) == expected
    options = {"target": "fail"} if name == "why" else {}
    what = "why" if name == "why" else described.paths[name].partition("?")[0]
    with millrace.open(described.host.socket) as remote:
        for of_package in (described.namespace, remote):
            document = json.loads(of_package.show(what, **options))
            if name == "logs":
                document["logs"] = [log | {"last_append": None} for log in document["logs"]]
                of_logs = json.loads(expected)
                of_logs["logs"] = [log | {"last_append": None} for log in of_logs["logs"]]
                assert fixed(document) == fixed(of_logs)
            else:
                assert fixed(document) == expected


@pytest.mark.parametrize(
    ("path", "within", "command"),
    [
        ("logs/raw/records?from=1", "records", "log get raw --all"),
        ("journal?last=40", "entries", "journal show --last 40"),
    ],
)
def test_records_and_entries_are_shown_alike(described: Described, path: str, within: str, command: str) -> None:
    answered = described.get(path)[within]
    assert len(answered) > 0
    assert described.lines(described.namespace.address, command) == answered
    assert described.lines(described.host.address, command) == answered
