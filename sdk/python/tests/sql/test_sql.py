"""SQL over logs: what a query reads, and what it says of records that are not there or cannot be decoded."""

from __future__ import annotations

import datetime
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
from conftest import Host

import millrace
from millrace import sql
from millrace.sql import _plan, _read


def answer(ns: millrace.Namespace, query: str, parameters: Any = None, **options: Any) -> list[tuple[Any, ...]]:
    return list(ns.sql(query, parameters, **options).fetchall())


def read_of(monkeypatch: pytest.MonkeyPatch, ns: millrace.Namespace, query: str) -> list[tuple[int, int]]:
    """The ranges that a query reads."""
    found: list[tuple[int, int]] = []
    real = _read.chunks

    def chunks(namespace: millrace.Namespace, log: _read.Snapshot, parts: list[tuple[int, int]], limit: Optional[int]) -> Any:
        for chunk in real(namespace, log, parts, limit):
            found.append((chunk[0].seqno, chunk[-1].seqno))
            yield chunk

    monkeypatch.setattr(_read, "chunks", chunks)
    answer(ns, query)
    monkeypatch.undo()
    return _read.joined(found)


def test_a_log_is_a_view_with_decoded_values(ns: millrace.Namespace) -> None:
    ns.create_log("raw/kitchen")
    ns.append("raw/kitchen", {"celsius": 21.5, "room": "kitchen"})
    ns.append("raw/kitchen", {"celsius": 23.5})
    record = ns.get("raw/kitchen", 1)
    (row,) = answer(ns, 'select * from "raw/kitchen" where seqno = 1')
    assert row == (1, record.time, record.id, None, record.data, record.data.decode())
    assert answer(ns, 'select avg(value.celsius::double) from "raw/kitchen"') == [(22.5,)]
    assert answer(ns, 'select value->>\'room\' from "RAW/Kitchen" where seqno = ?', [1]) == [("kitchen",)]
    assert list(ns.sql('select seqno from "raw/kitchen"').df()["seqno"]) == [1, 2]
    assert answer(ns, "select count(*) from raw") == [(0,)]


def test_two_logs_are_joined(ns: millrace.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    ns.create_log("other")
    ns.append_many([("raw", {"n": n}) for n in range(50)])
    ns.append_many([("other", {"n": n, "name": f"name {n}"}) for n in range(0, 50, 10)])
    query = "select o.value->>'name' from raw r join other o on (r.value.n::int) = (o.value.n::int) where r.seqno > 15 and o.seqno < 4"
    assert answer(ns, query) == [("name 20",)]
    asof = "select count(o.seqno) from raw r asof join other o on r.time <= o.time"
    assert answer(ns, asof) == [(50,)]
    with_itself = "select count(*) from raw a join raw b on b.seqno = a.seqno + 1 where a.seqno <= 3 and b.seqno <= 40"
    assert answer(ns, with_itself) == [(3,)]


def test_only_the_ranges_that_a_query_needs_are_read(ns: millrace.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    ns.set_history("raw", None)
    ns.append_many([("raw", b"%d" % n) for n in range(30_000)])

    def read(rest: str) -> list[tuple[int, int]]:
        return read_of(monkeypatch, ns, f"select value from raw {rest}")

    assert read("where seqno between 100 and 200 and value::int > 7") == [(100, 200)]
    assert read("where seqno in (5, 29000) or seqno < 3") == [(1, 2), (5, 5), (29000, 29000)]
    assert read("where seqno > 29990 and seqno < 29995 or seqno = 1") == [(1, 1), (29991, 29994)]
    assert read("where not (seqno > 5)") == [(1, 5)]
    assert read("where false") == [] and read("where seqno > 30000") == []
    assert read("limit 7") == [(1, 7)] and read("limit 7 offset 1") == [(1, 30_000)]
    assert read("where seqno % 2 = 0") == read("") == [(1, 30_000)]
    moment = ns.get("raw", 20_000).time
    ((first, last),) = read(f"where time = '{moment}'")
    assert first <= 20_000 <= last and last - first < 12_000


def test_times_that_go_back_are_found(ns: millrace.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that was wrong and was corrected: the records of that time are not where their times are."""
    ns.set_history("raw", None)
    ns.append_many([("raw", b"%d" % n) for n in range(40_000)])
    hour_us = 3_600_000_000

    def clock(_: millrace.Namespace, log: str, seqno: int, last: int) -> int:
        return seqno + hour_us if 10_000 <= seqno < 13_000 else seqno

    monkeypatch.setattr(_read, "_time", clock)
    log = _read.Snapshot("raw", 1, 40_000)

    def reads(since: int, until: int) -> set[int]:
        parts = _read.ranges(ns, log, [_plan.Box(since_us=since, until_us=until)])
        return {seqno for first, last in parts for seqno in range(first, last + 1)}

    for since, until in ((20_000, 20_010), (9_990, 9_999), (13_000, 13_005), (0, 5), (39_990, 40_000)):
        assert reads(since, until) >= {seqno for seqno in range(1, 40_001) if since <= clock(ns, "", seqno, 0) <= until}
    assert reads(hour_us, 2 * hour_us) >= set(range(10_000, 13_000))
    assert len(reads(20_000, 20_010)) < 12_000


def test_what_left_the_history_is_said(ns: millrace.Namespace) -> None:
    ns.create_log("short", history=100)
    ns.append_many([("short", b"%d" % n) for n in range(250)])
    earliest = ns.bounds("short")[1]
    assert earliest > 1
    with pytest.warns(sql.MissingRecords, match=f"records 1 to {earliest - 1} of log 'short'"):
        assert answer(ns, "select count(*) from short") == [(250 - earliest + 1,)]
    with pytest.warns(sql.MissingRecords, match="records 3 to 7 of log 'short'"):
        assert answer(ns, "select count(*) from short where seqno between 3 and 7") == [(0,)]
    # The suite takes every warning for an error.
    assert answer(ns, f"select count(*) from short where seqno >= {earliest}") == [(250 - earliest + 1,)]
    oldest = ns.get("short", earliest).time + datetime.timedelta(microseconds=1)
    answer(ns, "select count(*) from short where time >= ?", [oldest])


def test_what_leaves_the_history_meanwhile_is_said(ns: millrace.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    ns.create_log("short", history=300)
    ns.append_many([("short", b"%d" % n) for n in range(300)])
    real, grown = _read.ranges, []

    def ranges(*arguments: Any) -> list[tuple[int, int]]:
        found = real(*arguments)
        grown.append(ns.append_many([("short", b"later") for _ in range(200)]))
        return found

    monkeypatch.setattr(_read, "ranges", ranges)
    with pytest.warns(sql.MissingRecords, match="records 1 to 200 of log 'short'"):
        assert answer(ns, "select count(*), min(seqno), max(seqno) from short") == [(100, 201, 300)]


def test_logs_that_grow_are_read_as_of_one_moment(ns: millrace.Namespace) -> None:
    ns.create_log("other")
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            ns.append_many([("raw", b"1"), ("other", b"1")])
            time.sleep(0.001)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(10):
            ((raw, other),) = answer(ns, "select (select count(*) from raw), (select count(*) from other)")
            assert raw == other
    finally:
        stop.set()
        writer.join()


def test_a_record_that_cannot_be_decoded_is_an_error(ns: millrace.Namespace) -> None:
    ns.append_many([("raw", b'{"n":1}'), ("raw", b"oops"), ("raw", b"\xff"), ("raw", b'{"n":4}')])
    with pytest.raises(millrace.Invalid, match="record 2 of log 'raw' is not json, as its newest record is") as raised:
        ns.sql("select value.n from raw")
    assert raised.value.code == "MR6104"
    assert answer(ns, "select seqno, data from raw where seqno = 3") == [(3, b"\xff")]
    assert answer(ns, "select value.n::int from raw where seqno = 4") == [(4,)]
    lenient = [(1,), (None,), (None,), (4,)]
    assert answer(ns, "select value.n::int from raw order by seqno", decode={"raw": "json?"}) == lenient
    assert answer(ns, "select value from raw", decode={"raw": "text?"})[1:3] == [("oops",), (None,)]
    assert answer(ns, "select value from raw where seqno = 3", decode={"raw": "bytes"}) == [(b"\xff",)]
    with pytest.raises(millrace.Invalid, match="record 1 of log 'raw' is not number. Select"):
        ns.sql("select value from raw", decode={"raw": "number"})
    with pytest.raises(millrace.Invalid, match="must be one of json, text, number, bytes"):
        ns.sql("select value from raw", decode={"raw": "xml"})
    with pytest.raises(millrace.Invalid, match="decode names the log 'other'"):
        ns.sql("select value from raw", decode={"other": "json"})


def test_the_newest_record_chooses_the_decoder(ns: millrace.Namespace) -> None:
    def kind() -> str:
        return str(answer(ns, "select typeof(value) from raw order by seqno desc limit 1", decode=None)[0][0])

    for data, expected in ((b"21.5", "JSON"), (b'"x"', "JSON"), (b"", "VARCHAR"), (b"hello", "VARCHAR"), (b"\xff", "BLOB")):
        ns.create_log("one")
        ns.append("one", data)
        assert answer(ns, "select typeof(value), data from one") == [(expected, data)]
        ns.remove_log("one")


def test_codecs_decode(ns: millrace.Namespace) -> None:
    ns.create_log("packed")
    ns.log("packed", codec=millrace.codecs.MsgPack()).append({"n": 7})
    assert answer(ns, "select value.n::int from packed", decode={"packed": millrace.codecs.MsgPack()}) == [(7,)]
    ns.log("raw", codec=millrace.codecs.Arrow()).append([{"n": 1}, {"n": 2}])
    rows = "select unnest(value::struct(n int)[], recursive := true) from raw"
    assert answer(ns, rows, decode={"raw": millrace.codecs.Arrow()}) == [(1,), (2,)]
    ns.append("raw", b"no batch")
    with pytest.raises(millrace.Invalid, match="record 2 of log 'raw' with Arrow"):
        ns.sql("select value from raw", decode={"raw": millrace.codecs.Arrow()})


def test_hostile_records_are_returned_unchanged(tmp_path: Path) -> None:
    ns = millrace.create(tmp_path / "large", durability="memory", segment_bytes=64 << 20)
    ns.create_log("raw")
    records = [
        b"\x00",
        b"a\x00b",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"'; drop table raw; --",
        b'{"a":"\\u0000"}',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"n":123456789012345678901234567890123456789012345678901234567890}',
        b"NaN",
        b"1e999",
        b"",
        os.urandom(1000),
        b"x" * (16 << 20),
    ]
    ns.append_many([("raw", data) for data in records])
    assert [row[0] for row in answer(ns, "select data from raw order by seqno")] == records
    texts = answer(ns, "select value from raw order by seqno", decode={"raw": "text?"})
    for data, (text,) in zip(records, texts):
        assert text == (None if _broken(data) else data.decode())
    decoded = answer(ns, "select value from raw order by seqno", decode={"raw": "json?"})
    assert decoded[7] == (records[7].decode(),) and decoded[4] == (None,) and decoded[6] == (records[6].decode(),)
    numbers = answer(ns, "select value from raw where seqno in (9, 10) order by seqno", decode={"raw": "number?"})
    assert math.isnan(numbers[0][0])


def _broken(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_errors_name_the_logs_and_the_rule(ns: millrace.Namespace) -> None:
    ns.create_log("raw/kitchen")
    for query, expected in (
        ("select * from nope", 'Table with name nope does not exist!\nThe logs are: "raw", "raw/kitchen".'),
        ("select nope from raw", 'column "nope" not found'),
        ("selec", "syntax error"),
        ("select 1; select 2", "2 statements; it must be one"),
        ("", "0 statements"),
        ("drop table raw", "the query is DROP; it must be SELECT"),
        ("insert into raw(seqno) values (1)", "the query is INSERT"),
        ("copy raw from '/nope.csv'", "the query"),
        ("pivot raw on value", "a PIVOT must name its values"),
        ("select * from ns", "Table with name ns does not exist"),
    ):
        with pytest.raises(millrace.Invalid) as raised:
            ns.sql(query)
        assert raised.value.code == "MR1006" and expected in raised.value.detail, raised.value.detail
        assert "EXPLAIN" not in raised.value.detail and "store" not in raised.value.detail
    ns.create_log("RAW")
    with pytest.raises(millrace.Invalid, match="differ only in case"):
        ns.sql("select * from raw, RAW")
    assert answer(ns, "select count(*) from raw") == [(0,)]


def test_a_log_without_a_right_says_so(ns: millrace.Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    ns.create_log("time")
    ns.append("raw", 1)
    real = type(ns).bounds

    def bounds(self: millrace.Namespace, log: str) -> Any:
        if log == "time":
            raise millrace._records._native.error("MR6021", "the capability does not grant reading log 'time'")
        return real(self, log)

    monkeypatch.setattr(type(ns), "bounds", bounds)
    with pytest.raises(millrace.Denied, match="log 'time'"):
        ns.sql("select * from time")
    # The same word is a column, too.
    assert len(answer(ns, "select time from raw")) == 1


def test_a_log_may_be_called_runs(ns: millrace.Namespace) -> None:
    ns.create_log("runs")
    ns.append("runs", 5)
    assert answer(ns, "select value::int from runs") == [(5,)]


def test_parquet_and_files_of_others(ns: millrace.Namespace, tmp_path: Path) -> None:
    ns.append_many([("raw", {"n": n}) for n in range(5)])
    file = tmp_path / "n.parquet"
    assert answer(ns, f"copy (select seqno, value.n::int as n from raw where seqno > 2) to '{file}'") == [(3,)]
    assert answer(ns, f"select sum(f.n), count(*) from '{file}' f join raw using (seqno)") == [(9, 3)]


def test_memory_is_bounded(ns: millrace.Namespace) -> None:
    ns.set_history("raw", None)
    ns.append_many([("raw", os.urandom(2000)) for _ in range(60_000)])
    assert answer(ns, "select sum(octet_length(data)), count(*) from raw", memory="64MB") == [(120_000_000, 60_000)]
    # DuckDB looks at 2048 rows at once.
    ns.append_many([("raw", os.urandom(200_000)) for _ in range(500)])
    with pytest.raises(millrace.Invalid, match="give the query more memory"):
        answer(ns, "copy (select data from raw where seqno > 60000) to '/dev/null'", memory="16MB")
    with pytest.raises(millrace.Invalid, match="memory is 'much'"):
        ns.sql("select 1", memory="much")


@pytest.fixture
def place(ns: millrace.Namespace, binary: Path, host: Callable[..., Host]) -> Host:
    ns.set_history("raw", None)
    ns.append_many([("raw", {"n": n}) for n in range(30_000)])
    return host(ns)


def test_a_remote_namespace_answers_alike(ns: millrace.Namespace, place: Host) -> None:
    moment = ns.get("raw", 25_000).time
    for query in (
        "select count(*), sum(value.n::int) from raw where seqno > 29000",
        f"select count(*), min(seqno) from raw where time >= '{moment}'",
        "select count(*) from runs",
        "select count(*), count(distinct id) from events where kind = 'record'",
        "select * from raw limit 2",
    ):
        with millrace.open(place.address) as remote:
            assert answer(remote, query) == answer(ns, query)


def test_the_command_prints_tables_json_and_csv(ns: millrace.Namespace) -> None:
    ns.append_many([("raw", {"n": n, "text": "a\x1b[31m"}) for n in range(50)])
    ns.create_log("bytes")
    ns.append("bytes", b"\xff")

    def run(*words: str, code: int = 0) -> str:
        # The source tree may be imported, as the tests do.
        place = {"PYTHONPATH": str(Path(millrace.__file__).parents[1])}
        done = subprocess.run(
            [sys.executable, "-m", "millrace.sql", "-n", ns.address, *words],
            capture_output=True, text=True, timeout=600, check=False, env={**os.environ, **place},
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    table = run("select seqno, value->>'text' as text, null as nothing from raw order by seqno")
    assert "    1  a\\x1b[31m" in table and "\x1b" not in table and "... and 10 more rows" in table
    (line,) = run("--json", "select r.value, 'nan'::double as x, r.data from raw r, bytes limit 1").splitlines()
    assert json.loads(line)["value"]["text"] == "a\x1b[31m" and json.loads(line)["x"] == "nan"
    assert run("--csv", "select seqno, value.n as n, data from raw where seqno < 2").splitlines()[0] == "seqno,n,data"
    assert json.loads(run("--json", "select data from bytes"))["data"] == {"base64": "/w=="}
    assert 'The logs are: "bytes", "raw"' in run("select * from nope", code=2)
    assert json.loads(run("--json", "select * from nope", code=2))["error"]["code"] == "MR1006"
    assert "MR6104" in run("--decode", "raw=number", "select value from raw", code=2)


def test_a_query_can_be_interrupted(ns: millrace.Namespace) -> None:
    place = {"PYTHONPATH": str(Path(millrace.__file__).parents[1])}
    query = "select count(*) from range(100000000) a, range(100000000) b where a.range * b.range = 7"
    words = [sys.executable, "-c", "import millrace.sql.__main__ as m, sys; print('.', flush=True); sys.exit(m.main())"]
    # Soon, while DuckDB is loaded, and late, while it works.
    for pause in (0.01, 0.2):
        with subprocess.Popen([*words, "-n", ns.address, query], stdout=subprocess.PIPE, env={**os.environ, **place}) as asked:
            assert asked.stdout is not None and asked.stdout.read(1) == b"."
            while asked.poll() is None:
                # Again and again: it may not have begun.
                time.sleep(pause)
                asked.send_signal(signal.SIGINT)
        # The same for a shell: a signal that comes before or after Python's own handlers kills it.
        assert asked.returncode in (130, -signal.SIGINT)


def test_missing_records_are_a_warning_of_the_caller(ns: millrace.Namespace) -> None:
    ns.create_log("short", history=10)
    ns.append_many([("short", b"1") for _ in range(200)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ns.sql("select count(*) from short")
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
