"""Tables from Python: by files, through a host, in asyncio, and in functions."""

from __future__ import annotations

import asyncio
import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from conftest import PATIENCE_S, Host

import millrace

Start = Callable[..., Host]


@pytest.fixture(params=["files", "host"])
def place(request: pytest.FixtureRequest, ns: millrace.Namespace, host: Start) -> Iterator[millrace.Namespace]:
    """A namespace by its files, and through its host."""
    if request.param == "files":
        yield ns
        return
    with millrace.open(host(ns).address) as remote:
        yield remote


def test_a_table_is_a_mapping(place: millrace.Namespace) -> None:
    grades = place.create_table("grades")
    assert grades.get("alice") is None and "alice" not in grades and list(grades) == []
    with pytest.raises(KeyError):
        grades["alice"]
    grades["alice"] = {"score": 7}
    grades["bob"] = None
    assert grades["alice"] == {"score": 7} and "alice" in grades and "bob" in grades and grades["bob"] is None
    assert list(grades) == ["alice", "bob"] and dict(grades.items()) == {"alice": {"score": 7}, "bob": None}
    del grades["bob"]
    with pytest.raises(KeyError):
        del grades["bob"]
    assert grades.pop("alice") == {"score": 7} and grades.pop("alice", 3) == 3
    assert grades.setdefault("a", 1) == 1 and grades.setdefault("a", 2) == 1
    grades.update({"b": 2}, c=3)
    assert list(grades.values()) == [1, 2, 3]
    assert [(stat.name, stat.codec, stat.keys) for stat in place.tables()] == [("grades", "json", "text")]
    with pytest.raises(TypeError):
        len(grades)
    with pytest.raises(millrace.NotFound, match="MR2101"):
        place.table("none")
    with pytest.raises(millrace.Invalid, match="MR7302"):
        place.table("raw")
    with pytest.raises(millrace.Invalid, match="MR7301"):
        place.append("grades", "x")


def test_changes_depend_on_versions(place: millrace.Namespace) -> None:
    table = place.create_table("t", "text", history=5)
    first = table.put("k", "one", if_absent=True)
    with pytest.raises(millrace.Conflict, match="MR7300"):
        table.put("k", "two", if_absent=True)
    second = table.put("k", "two", if_version=first)
    with pytest.raises(millrace.Conflict, match="has version 2"):
        table.put("k", "three", if_version=first)
    entry = table.entry("k")
    assert entry is not None and (entry.value, entry.version) == ("two", second)
    assert not table.delete("other") and table.delete("k", if_version=second)
    assert [(version.value, version.deleted) for version in table.versions("k")] == [(None, True), ("two", False), ("one", False)]
    with pytest.raises(TypeError, match="are str, not int"):
        table["k"] = 3


def test_counters_and_ranges(place: millrace.Namespace) -> None:
    table = place.create_table("t")
    assert (table.increment("n"), table.increment("n", 41), table.increment("n", -2)) == (1, 42, 40)
    table["text"] = "x"
    with pytest.raises(millrace.Conflict, match="MR7307"):
        table.increment("text")
    for number in range(1500):
        table[f"k/{number:04}"] = number
    assert [value for _, value in table.scan("k/")] == list(range(1500))
    assert list(table.scan("k/", start="k/0003", stop="k/0006")) == [("k/0003", 3), ("k/0004", 4), ("k/0005", 5)]
    assert list(table.scan("k/", limit=2)) == [("k/0000", 0), ("k/0001", 1)]
    binary = place.create_table("b", "bytes", keys="bytes")
    binary[b"\xff\x00"] = b"\x80"
    assert list(binary.scan(b"\xff")) == [(b"\xff\x00", b"\x80")]


def test_values_expire(place: millrace.Namespace) -> None:
    table = place.create_table("t", ttl=3600)
    table.put("soon", 1, ttl=0.001)
    table["later"] = 2
    while "soon" in table:
        pass
    assert list(table) == ["later"]
    entry = table.entry("later")
    assert entry is not None and entry.expires is not None and 3500 < entry.expires - entry.time < 3700


def test_a_table_in_asyncio(ns: millrace.Namespace, host: Start) -> None:
    address = host(ns).address

    async def work() -> None:
        async with millrace.aopen(address) as remote:
            table = await remote.create_table("t")
            await asyncio.gather(*(table.increment("n") for _ in range(50)))
            assert await table.get("n") == 50
            version = await table.put("k", [1], if_absent=True)
            entry = await table.entry("k")
            assert entry is not None and entry.version == version
            assert [key async for key, _ in table.scan()] == ["k", "n"]
            assert await table.delete("k") and len(await table.versions("k")) == 2

    asyncio.run(work())


FUNCTIONS = """
    import time

    @millrace.function(on="raw", retries=0, timeout=120)
    def total(record: millrace.Record, ctx: millrace.Context) -> None:
        totals = ctx.table("totals")
        sensor, value = record.json()
        before = totals.get(sensor, 0)
        totals[sensor] = before + value
        assert totals[sensor] == before + value and sensor in totals
        assert totals.entry(sensor).version == 0
        totals.increment("count")
        last = ctx.table("last")
        last.put(sensor, {"value": value})
        if value < 0:
            raise ValueError("negative")
        ctx.append("clean", record.data)

    @millrace.function(on="totals", retries=0)
    def watch(record: millrace.Record, ctx: millrace.Context) -> None:
        change = ctx.table(record.log).change(record)
        ctx.append("seen", [change.key, change.value, change.version])

    @millrace.function(on="audits", retries=0)
    def audit(record: millrace.Record, ctx: millrace.Context) -> None:
        totals = ctx.table("totals")
        found = [totals.get("nobody"), totals.get("gone"), *totals.scan(start="a", stop="c")]
        ctx.append("seen", found)

    @millrace.function(on="jobs", retries=0, concurrency=4)
    def busy(record: millrace.Record, ctx: millrace.Context) -> None:
        table = ctx.table("totals")
        before = table.get("shared", 0)
        time.sleep(0.05)
        table["shared"] = before + 1

    @millrace.function(on="odd", retries=0)
    def odd(record: millrace.Record, ctx: millrace.Context) -> None:
        ctx.append("totals", b"x")
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "of_tables.py").write_text("from __future__ import annotations\nimport millrace\n" + textwrap.dedent(FUNCTIONS))
    importlib.invalidate_caches()
    yield importlib.import_module("of_tables")
    sys.modules.pop("of_tables", None)


def test_functions_use_tables(ns: millrace.Namespace, host: Start, functions: ModuleType) -> None:
    for log in ("clean", "seen", "jobs", "odd"):
        ns.create_log(log)
    ns.create_table("totals")
    ns.create_table("last")
    for function in (functions.total, functions.watch, functions.busy, functions.odd):
        ns.deploy(function)
    remote = millrace.open(host(ns).address)
    for sensor, value in [("a", 1), ("b", 10), ("a", 2), ("b", -1), ("a", 4)]:
        remote.append("raw", [sensor, value])
    remote.wait_idle(PATIENCE_S)
    totals, last = remote.table("totals"), remote.table("last")
    # The run that failed has changed nothing.
    assert dict(totals.items()) == {"a": 7, "b": 10, "count": 4}
    assert dict(last.items()) == {"a": {"value": 4}, "b": {"value": 10}}
    assert remote.latest("clean") == 4 and remote.latest("seen") == 8
    assert remote.get("seen", 1).json() == ["a", 1, 1] and remote.get("seen", 2).json() == ["count", 1, 2]
    # Runs at once that read and change one key: each takes effect on what the one before left.
    for number in range(20):
        remote.append("jobs", number)
    remote.wait_idle(PATIENCE_S)
    assert totals["shared"] == 20
    remote.append("odd", "x")
    remote.wait_idle(PATIENCE_S)
    failed = remote.runs(function="odd")[0]
    assert failed.error is not None and failed.error[0] == "MR7301"


def test_other_processes_see_the_same_table(ns: millrace.Namespace) -> None:
    mine = ns.create_table("t")
    with millrace.open(ns.address) as other:
        theirs = other.table("t")
        for number in range(100):
            (mine if number % 2 else theirs)[f"k{number % 7}"] = number
            assert dict(mine.items()) == dict(theirs.items())


def test_the_value_that_a_run_got_is_in_its_history(ns: millrace.Namespace, host: Start, functions: ModuleType) -> None:
    ns.create_log("clean")
    ns.create_table("totals")
    ns.create_table("last")
    ns.deploy(functions.total)
    with millrace.open(host(ns).address) as remote:
        for value in (1, 2):
            remote.append("raw", ["a", value])
            remote.wait_idle(PATIENCE_S)
        second, first = remote.runs(function="total")
        # The keys "a" and "count" are the records 1 and 2, then 3 and 4. An increment reads nothing.
        assert [(read.log, read.seqno) for read in first.reads] == []
        assert [(read.log, read.seqno) for read in second.reads] == [("totals", 1)]
        # So what one run has written leads to the run that got it, and back.
        [effect] = [branch for branch in remote.trace("totals@1").branches if branch.function]
        assert (effect.id, effect.link) == (second.id, "read")
        causes = remote.trace("totals@3", up=True).branches
        assert {branch.id for branch in causes if branch.function} == {first.id, second.id}


def test_missing_keys_and_ranges_are_in_the_history_of_a_run(
    ns: millrace.Namespace, host: Start, functions: ModuleType
) -> None:
    for log in ("audits", "seen"):
        ns.create_log(log)
    totals = ns.create_table("totals")
    for key in ("gone", "a", "b", "c"):
        totals[key] = 1
    del totals["gone"]
    ns.deploy(functions.audit)
    with millrace.open(host(ns).address) as remote:
        remote.append("audits", "now")
        remote.wait_idle(PATIENCE_S)
        assert remote.get("seen", 1).json() == [None, None, ["a", 1], ["b", 1]]
        totals["a"] = 2
        [run] = remote.runs(function="audit")
        assert not run.reads and [(read.table, read.absent) for read in run.keys[:2]] == [("totals", "nobody"), ("totals", "gone")]
        assert (run.keys[2].start, run.keys[2].stop) == ("a", "c")
        # What the run found: the first "a", "b", and the deletion of "gone". "c" was behind the range, and the second "a" came later.
        for place in (ns, remote):
            for number, is_seen in [(2, True), (3, True), (4, False), (5, True), (6, False)]:
                effects = [branch.id for branch in place.trace(f"totals@{number}").branches if branch.function]
                assert effects == ([run.id] if is_seen else []), number
            records = [branch.record for branch in place.trace("seen@1", up=True).branches if branch.record]
            assert {record.seqno for record in records if record.log == "totals"} == {2, 3, 5}
            assert str(place.trace("totals@5").branches[0]) == "totals@5  gone = (deleted)"
            assert place.trace("totals@2").branches[0].key == "a"


def test_a_read_shows_at_least_what_its_token_names(place: millrace.Namespace) -> None:
    grades = place.create_table("grades")
    grades["alice"] = 7
    token = grades.token
    assert token is not None
    assert grades.get("alice", after=token) == 7 and grades.token == token
    assert grades.entry("none", after=token) is None
    assert list(grades.scan(after=token)) == [("alice", 7)]
    assert [entry.version for entry in grades.versions("alice", after=token)] == [1]
    assert place.tables()[0].replica is None
    with pytest.raises(millrace.Invalid, match="MR7335"):
        grades.get("alice", after="00000000000b-1-23")
    with pytest.raises(millrace.Invalid, match="MR1005"):
        grades.get("alice", after="yesterday")
