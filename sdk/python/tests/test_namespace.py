"""A namespace on this machine."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Optional

import pytest

import millrace
from millrace import _views


def test_a_record_comes_back_with_what_is_known_of_it(ns: millrace.Namespace) -> None:
    before = datetime.datetime.now(datetime.timezone.utc)
    assert ns.append("raw", b"\x00\xff") == 1
    record = ns.get("raw", 1)
    assert (record.log, record.seqno, record.data, record.cause) == ("raw", 1, b"\x00\xff", None)
    assert before - datetime.timedelta(seconds=1) <= record.time <= datetime.datetime.now(datetime.timezone.utc)
    assert record.id.startswith(ns.id)
    assert isinstance(record, millrace.Record)
    assert repr(record) == "Record('raw', 1, b'\\x00\\xff')"
    assert pickle.loads(pickle.dumps(record)) == record
    assert ns.append("raw", "2") == 2 and ns.get("raw").text() == "2"
    assert ns.get("raw") != record and ns.get("raw").clock > record.clock


@pytest.mark.parametrize(
    ("data", "stored"),
    [
        (b"\x01", b"\x01"),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abc")[1:], b"bc"),
        ("grün", "grün".encode()),
        ({"a": [1, None, "x"]}, b'{"a":[1,null,"x"]}'),
        (21.5, b"21.5"),
        (None, b"null"),
        (b"", b""),
    ],
)
def test_what_is_appended_is_bytes_text_or_json(ns: millrace.Namespace, data: object, stored: bytes) -> None:
    assert ns.get("raw", ns.append("raw", data)).data == stored


@pytest.mark.parametrize(
    ("setting", "rule"),
    [
        ("segment_bytes", "a power of two from 1 MiB to 1 GiB"),
        ("retain_bytes", "0 to 4032 segments"),
    ],
)
def test_sizes_out_of_range_are_refused_with_the_rule(tmp_path: Path, setting: str, rule: str) -> None:
    for number in (-1, 1 << 64):
        with pytest.raises(millrace.Invalid) as refused:
            millrace.create(tmp_path / "new", **{setting: number})  # type: ignore[arg-type]
        assert str(refused.value) == f"MR1006: {setting} is {number}; it must be {rule}"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("data", [object(), {1, 2}, float("nan"), {"a": b"bytes"}, "\ud800"])
def test_what_cannot_be_written_is_refused_and_nothing_is_appended(ns: millrace.Namespace, data: object) -> None:
    with pytest.raises(millrace.Invalid, match="MR6102") as refused:
        ns.append("raw", data)
    assert refused.value.__cause__ is not None
    assert ns.latest("raw") == 0


def test_ranges_are_half_open_and_stop_at_the_newest(ns: millrace.Namespace) -> None:
    assert ns.append_many(("raw", i) for i in range(1, 3001)) == list(range(1, 3001))

    def seqnos(start: Optional[int] = None, stop: Optional[int] = None) -> list[int]:
        return [record.seqno for record in ns.range("raw", start, stop)]

    assert seqnos(10, 13) == [10, 11, 12]
    assert seqnos(2999) == [2999, 3000] == seqnos(2999, 10**9)
    assert seqnos() == list(range(1, 3001))
    assert seqnos(5, 5) == [] == seqnos(5, 1) == seqnos(4000) == seqnos(1, -5)
    with pytest.raises(millrace.Invalid):
        ns.range("raw", 0)


def test_records_that_left_the_history_are_gone(ns: millrace.Namespace) -> None:
    ns.create_log("short", history=10)
    ns.append_many(("short", i) for i in range(100))
    assert [record.seqno for record in ns.range("short")] == list(range(91, 101))
    with pytest.raises(millrace.Gone, match="MR2104"):
        list(ns.range("short", 5))
    with pytest.raises(millrace.Gone):
        ns.get("short", 90)


@pytest.mark.parametrize("seqno", [0, -1, 1 << 64])
def test_numbers_that_are_none_are_refused(ns: millrace.Namespace, seqno: int) -> None:
    with pytest.raises(millrace.Invalid, match="MR1003"):
        ns.get("raw", seqno)


def test_a_batch_that_fails_reports_what_was_appended(ns: millrace.Namespace) -> None:
    pairs = [("raw", b"1"), ("raw", b"2"), ("missing", b"3")]
    with pytest.raises(millrace.NotFound) as refused:
        ns.append_many([*[("raw", b"x")] * 1024, *pairs])
    assert getattr(refused.value, "appended") == list(range(1, 1025))
    assert ns.latest("raw") == 1024


def test_a_tail_gets_what_comes_and_ends_at_its_timeout(ns: millrace.Namespace) -> None:
    ns.append("raw", b"before")
    tail = ns.tail("raw", timeout=120)

    def write() -> None:
        for i in range(3):
            time.sleep(0.05)
            ns.append("raw", i)

    writer = threading.Thread(target=write)
    writer.start()
    assert [record.json() for record in islice(tail, 3)] == [0, 1, 2]
    writer.join()
    assert tail.next == 5
    assert list(ns.tail("raw", timeout=0.1)) == []
    assert [record.seqno for record in ns.tail("raw", 1, timeout=0)] == [1, 2, 3, 4]


def test_a_closed_tail_ends_and_a_second_reader_is_refused(ns: millrace.Namespace) -> None:
    tail = ns.tail("raw")
    got: list[millrace.StoredRecord] = []
    reader = threading.Thread(target=lambda: got.extend(tail), daemon=True)
    reader.start()
    ns.append("raw", b"1")
    while not got:
        time.sleep(0.001)
    with pytest.raises(ValueError, match="another thread"):
        next(tail)
    tail.close()
    reader.join(120)
    assert not reader.is_alive() and len(got) == 1


def test_a_log_removed_under_a_tail_ends_it(ns: millrace.Namespace) -> None:
    tail = ns.tail("raw")
    ns.remove_log("raw")
    ns.create_log("raw")
    with pytest.raises(millrace.NotFound, match="MR2101"):
        next(tail)


def test_waiting_lets_other_threads_run(ns: millrace.Namespace) -> None:
    begin = threading.Event()

    def count() -> None:
        begin.wait()
        for _ in range(1000):
            time.sleep(0)
        ns.append("raw", b"1000 turns")

    counter = threading.Thread(target=count)
    counter.start()
    begin.set()
    # Had it kept the others waiting, this would never come.
    assert ns.get("raw", 1, wait=120).data == b"1000 turns"
    counter.join()


WAITS = {
    "tail": "next(ns.tail('raw'))",
    "get": "ns.get('raw', 1, wait=60)",
    "wait_idle": "ns.append('raw', b'', function='stuck'); ns.wait_idle(60)",
    "append": "ns.append('raw', b'', function='full'); ns.append('raw', b'', function='full', patience=60)",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_every_wait(ns: millrace.Namespace, tmp_path: Path, wait: str) -> None:
    (tmp_path / "stuck.py").write_text("def stuck(record, ctx):\n    pass\n\ndef full(record, ctx):\n    pass\n")
    program = f"""
import millrace, signal, stuck
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background inherits that it is ignored
ns = millrace.open({ns.address!r})
ns.deploy(stuck.stuck)
ns.deploy(stuck.full, pending_max=1)
print("ready", flush=True)
{WAITS[wait]}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    assert process.poll() is None, "it must wait"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors and process.returncode != 0, errors


def _appender(address: str, count: int) -> None:
    with millrace.open(address) as namespace:
        for i in range(count):
            namespace.append("raw", os.getpid())


def test_processes_share_a_namespace_and_pickle_it(ns: millrace.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_appender, args=(ns.address, 200)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
        assert worker.exitcode == 0
    pids = [record.json() for record in ns.range("raw")]
    assert len(pids) == 600 and sorted(map(pids.count, set(pids))) == [200, 200, 200]
    with pickle.loads(pickle.dumps(ns)) as other:
        assert other.latest("raw") == 600 and other.id == ns.id


def test_a_forked_child_is_refused_rather_than_corrupting(ns: millrace.Namespace) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            ns.append("raw", b"child")
        except millrace.Error:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_durable_appends_from_many_threads(disk: millrace.Namespace) -> None:
    assert disk.durability == "disk"
    appended: list[int] = []

    def append() -> None:
        appended.extend(disk.append("raw", i) for i in range(25))

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(appended) == list(range(1, 201))
    assert disk.append("raw", b"", durability="memory") == 201
    assert disk.get("raw").seqno == 201


def test_a_closed_namespace_says_so(ns: millrace.Namespace) -> None:
    assert not ns.closed
    ns.close()
    ns.close()
    assert ns.closed and "closed" in repr(ns) and "closed" in ns._repr_html_()
    for use in (lambda: ns.append("raw", b""), lambda: ns.get("raw"), lambda: ns.logs(), lambda: ns.tail("raw")):
        with pytest.raises(millrace.Invalid, match="MR6106"):
            use()


def test_opening_finds_the_namespace_of_an_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    farm = tmp_path / "farm"
    farm.mkdir()
    (farm / "millrace.toml").write_text('[namespace]\npath = "state"\n')
    millrace.create(farm / "state").close()
    other = millrace.create(tmp_path / "other/.millrace")
    with millrace.open(farm) as named, millrace.open(str(farm / "state")) as itself:
        assert named.id == itself.id
    with millrace.open(tmp_path / "other") as inner:
        assert inner.id == other.id
    monkeypatch.chdir(farm)
    with millrace.open() as here:
        assert here.id == named.id if not named.closed else here.address.endswith("state")
    monkeypatch.setenv("MILLRACE_NAMESPACE", str(tmp_path / "other"))
    with millrace.open() as chosen:
        assert chosen.id == other.id
    other.close()


def test_a_log_keeps_all_until_it_is_trimmed(ns: millrace.Namespace) -> None:
    ns.create_log("all", history=None)
    ns.create_log("all", history=None)
    assert {log.name: log for log in ns.logs()}["all"].history is None
    assert ns.log("all").history is None
    with pytest.raises(millrace.Conflict, match="MR2102"):
        ns.create_log("all", history=10)


def test_the_history_of_a_log_changes(ns: millrace.Namespace) -> None:
    ns.append_many(("raw", i) for i in range(5))
    ns.set_history("raw", 2)
    assert ns.bounds("raw") == (2, 4, 5)
    ns.set_history("raw", None)
    assert ns.log("raw").history is None and ns.bounds("raw") == (None, 4, 5)
    with pytest.raises(millrace.NotFound, match="MR2101"):
        ns.set_history("none", 5)


def test_logs_are_made_listed_and_removed(ns: millrace.Namespace) -> None:
    ns.create_log("a/b", history=5)
    ns.create_log("a/b", history=5)
    ns.append_many(("a/b", i) for i in range(7))
    stat = {log.name: log for log in ns.logs()}["a/b"]
    assert (stat.history, stat.earliest, stat.latest, stat.records) == (5, 3, 7, 5)
    with pytest.raises(millrace.Conflict, match="MR2102"):
        ns.create_log("a/b", history=6)
    with pytest.raises(millrace.Invalid, match="MR1001"):
        ns.create_log("../escape")
    ns.remove_log("a/b")
    with pytest.raises(millrace.NotFound):
        ns.latest("a/b")
    with pytest.raises(millrace.Conflict, match="MR2006"):
        millrace.create(ns.address)
    with pytest.raises(millrace.Invalid, match="MR1006"):
        ns.append("raw", b"", durability="wishful")
    with pytest.raises(millrace.Invalid, match="MR1006"):
        ns.append("raw", b"", patience=-1)


def test_an_append_with_a_key_happens_once(ns: millrace.Namespace) -> None:
    assert ns.append("raw", b"paid", key="order-7") == 1 == ns.append("raw", b"paid", key="order-7")
    assert ns.latest("raw") == 1
    with pytest.raises(millrace.Conflict, match="MR6023"):
        ns.append("raw", b"something else", key="order-7")


def test_a_namespace_that_nobody_named_is_not_taken_from_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILLRACE_NAMESPACE", raising=False)
    monkeypatch.delenv("MILLRACE_TRUSTED", raising=False)
    millrace.create(tmp_path / ".millrace", durability="memory", segment_bytes=1 << 20).close()
    monkeypatch.chdir(tmp_path)
    millrace.open().close()
    for path in [tmp_path / ".millrace", tmp_path]:
        mode = path.stat().st_mode
        path.chmod(0o777)
        if path == tmp_path:
            (tmp_path / "millrace.toml").write_text("")
        with pytest.raises(millrace.Error) as refused:
            millrace.open()
        assert refused.value.code == "MR4032"
        # Both remedies.
        millrace.open(tmp_path / ".millrace").close()
        with monkeypatch.context() as trusting:
            trusting.setenv("MILLRACE_TRUSTED", f"/nowhere:{tmp_path}")
            millrace.open().close()
        path.chmod(mode)
    millrace.open().close()


def test_a_device_says_why_it_is_refused_and_how_it_is_known() -> None:
    refused = {
        "device": "kitchen",
        "known_by": "claim",
        "identity": "77aa77aa0001",
        "code": "MR6132",
        "detail": "the capability does not grant append",
        "remedy": "Issue one.",
        "first": "2026-11-29T21:00:00Z",
        "last": "2026-11-29T22:00:00Z",
        "times": 3,
        "address": "10.0.0.5",
        "capability": "f7b4fdbda1b53e77",
    }
    counts = dict.fromkeys(("records", "runs", "dead", "starts", "lost_records", "commands_waiting"), 0)
    document = {"name": "kitchen", "logs": [["kitchen/raw", 7]], **counts}
    (known,) = _views.device({**document, "refused": [refused]}).refused
    assert (known.known_by, known.code, known.times, known.identity) == ("claim", "MR6132", 3, "77aa77aa0001")
    assert (known.address, known.capability, known.remedy) == ("10.0.0.5", "f7b4fdbda1b53e77", "Issue one.")
    # A device that is accepted, and one that has shown nothing.
    assert _views.device(document).refused == ()
    del refused["capability"], refused["address"]
    assert _views.refused_device(refused).address is None


def test_a_namespace_without_devices_refuses_none(ns: millrace.Namespace) -> None:
    assert ns.devices() == []
    assert ns.refused_devices() == []
