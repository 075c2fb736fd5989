"""The example as it is run, shorter. Needs `millrace` to be built: `cargo build` at the root, or set MILLRACE."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Callable

import pytest

EXAMPLE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLE))

from grading_host import Host
from grading_servers import PATIENCE_S, Distance, Postgres

KEY = "alice/lru/1"
FILES = {path.name: path.read_text() for path in (EXAMPLE / "submission").iterdir()}
FUNCTIONS = ["go_grader", "grades", "generate_report", "post_process"]
OUTCOMES = {
    "TestAbsentKey": "pass",
    "TestSetAndGet": "pass",
    "TestReplace": "pass",
    "TestOldestMakesRoom": "pass",
    "TestGetCountsAsUse": "fail",
    "TestNoRoom": "pass",
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def school(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host whose database is a few milliseconds away, and empty."""
    postgres.query("DROP DATABASE IF EXISTS school WITH (FORCE)", "postgres")
    postgres.query("CREATE DATABASE school", "postgres")
    place = tmp_path_factory.mktemp("g")  # The path of a Unix socket has at most 107 bytes.
    with Distance(postgres, 0.005) as far, ExitStack() as stack:
        url = f"postgresql://postgres@127.0.0.1:{far.port}/school"
        yield stack.enter_context(Host(place / "school", "millrace.toml", url))


def eventually(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def hand_in(host: Host, key: str, revision: int, files: dict[str, str]) -> None:
    host.put("submissions", key, {"student": "alice", "assignment": "lru", "revision": revision})
    host.append("pushes", {"submission": key, "files": files})


def tables_are_equal(host: Host) -> None:
    host.call("table", "externalize")
    for table in ("submissions", "results", "grades", "reports"):
        host.call("table", "check", table)


def test_a_submission_is_graded_by_go_and_the_database_has_what_the_tables_have(school, postgres):
    hand_in(school, KEY, 1, FILES)
    comment = json.loads(school.newer("comments", 0))
    # Whoever sees the comment finds the rows, without any further wait.
    (result,) = postgres.query("SELECT value FROM results", "school")
    assert {name: test["outcome"] for name, test in json.loads(result)["tests"].items()} == OUTCOMES
    grade = {"passed": 5, "failed": 1, "points": 7, "of": 10}
    assert [json.loads(row) for row in postgres.query("SELECT value FROM grades", "school")] == [grade]
    assert postgres.query("SELECT value FROM reports", "school") == comment["comment"].split("\n")
    assert comment["submission"] == KEY and "# lru, revision 1 of alice: 7 of 10 points" in comment["comment"]
    assert "| TestGetCountsAsUse | fail | 0 of 3 |" in comment["comment"]
    assert '    lru_test.go:55: Get("a") = "", false; expected "1", true' in comment["comment"]
    tables_are_equal(school)
    # The way back from the comment, and from the report, to the submission.
    for record in ("comments@1", "reports@1"):
        trace = json.loads(school.call("--json", "trace", "--up", record))
        events, functions, origins = [trace["root"]], [], set()
        while events:
            event = events.pop(0)
            functions += [event["run"]["function"]] if "run" in event else []
            origins |= set() if event["below"] else {event["id"]}
            events += event["below"]
        assert functions == (FUNCTIONS[::-1] if record == "comments@1" else FUNCTIONS[2::-1])
        # The push, and what the functions took from the table of submissions. What is in the tree already ends there, too.
        (pushed,) = school.rows("log", "get", "pushes", "1")
        (submitted,) = school.rows("log", "get", "submissions", "1")
        assert origins >= {pushed["id"], submitted["id"]} and json.loads(pushed["data"]) == {"submission": KEY, "files": FILES}
    assert "no pending runs; 1 run ended" in school.call("why", "post_process")

    # A submission that does not compile gets no points, and the report says why.
    hand_in(school, "alice/lru/2", 2, {**FILES, "lru.go": "package lru\n\nfunc New(most int) *Cache {\n"})
    comment = json.loads(school.newer("comments", 1))["comment"]
    assert ": 0 of 10 points" in comment and "| TestReplace | not run | 0 of 1 |" in comment
    assert "syntax error" in comment
    # One without a mistake gets all points.
    right = FILES["lru.go"].replace("return e.value, true", "c.Set(key, e.value)\n\t\t\treturn e.value, true")
    hand_in(school, "alice/lru/3", 3, {**FILES, "lru.go": right})
    assert ": 10 of 10 points" in json.loads(school.newer("comments", 2))["comment"]
    assert [row["seqno"] for row in school.rows("log", "get", "comments", "--all")] == [1, 2, 3]


def test_nothing_is_lost_if_the_host_is_killed_while_the_database_is_down(school, postgres):
    def unwritten() -> int:
        return school.rows("table", "lag")[0]["unwritten"]

    def reasons(function: str) -> set[str]:
        (why,) = school.rows("why", function)
        return {reason["reason"] for reason in why["reasons"]}

    school.put("submissions", KEY, {"student": "alice", "assignment": "lru", "revision": 1})
    postgres.stop()
    try:
        school.append("pushes", {"submission": KEY, "files": FILES})
        eventually("the grader is at work", lambda: reasons("go_grader") & {"running", "idle"})
        school.kill()
        school.start()
        # The chain goes on to its end without the database. Three batches are to be written: one for each table.
        eventually("the three results are in the journal", lambda: unwritten() == 3)
        assert school.rows("table", "lag")[0]["trouble"] is not None
        school.kill()
        school.start()
        seen = []
        watcher = threading.Thread(target=lambda: seen.append(school.newer("comments", 0)))
        watcher.start()
        eventually("the comment's answer waits", lambda: school.rows("table", "lag")[0]["waiting"] > 0)
        # Others are answered meanwhile.
        port = school.connection.port
        other = replace(school, connection=http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S))
        other.asked("PUT", "logs/notes")
        other.append("notes", "anything")
        assert other.latest("notes") == 1
        other.connection.close()
        assert unwritten() == 3 and not seen
    finally:
        postgres.start()
    watcher.join(PATIENCE_S)
    assert json.loads(seen[0])["submission"] == KEY
    for table in ("submissions", "results", "grades", "reports"):
        assert postgres.query(f"SELECT key FROM {table}", "school") == [KEY]
    assert [json.loads(row["data"])["submission"] for row in school.rows("log", "get", "comments", "--all")] == [KEY]
    assert [json.loads(row)["points"] for row in postgres.query("SELECT value FROM grades", "school")] == [7]
    tables_are_equal(school)


def test_the_measurements_check_what_was_written_and_draw_it(tmp_path_factory):
    out = tmp_path_factory.mktemp("g")
    command = [sys.executable, EXAMPLE / "run.py", "--rounds", "1", "--round-trip", "5", "--out", out]
    command += ["--curves", "--writes", "1", "4", "--compute", "0", "5", "--repeat", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "" and "external synchrony saves" in done.stdout
    (figures,) = json.loads((out / "grading.json").read_text())
    assert figures["rounds"] == 1 and set(figures["modes"]) == {"external", "synchronous", "asynchronous"}
    for mode in figures["modes"].values():
        assert mode["ended"] == sorted(mode["ended"]) and mode["ended"][-1] < mode["following"][-1]
    curves = json.loads((out / "curves.json").read_text())
    assert {name: [(point["times"], point["compute"]) for point in one["points"]] for name, one in curves.items()} == {
        name: [(1, 0), (1, 5), (4, 0), (4, 5)] for name in ("PostgreSQL", "etcd")
    }
    for picture in ("grading.png", "curves.png"):
        assert (out / picture).stat().st_size > 20_000


def test_help_says_what_it_is():
    done = subprocess.run([sys.executable, EXAMPLE / "run.py", "--help"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "chain of four functions" in done.stdout
