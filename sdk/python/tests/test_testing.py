"""The kit for tests of functions: what holds of a run in a host holds in it."""

from __future__ import annotations

from typing import Any

import pytest

import millrace
from millrace.testing import Logs


def total(record: millrace.Record, ctx: millrace.Context) -> None:
    newest = ctx.latest("totals")
    before = ctx.get("totals", newest).json() if newest else 0
    ctx.append("totals", before + record.json())


def test_a_function_has_the_secrets_that_its_test_gives_it() -> None:
    def key(record: millrace.Record, ctx: millrace.Context) -> str:
        return ctx.secret("api-key")

    logs = Logs(raw=[])
    assert logs.run(key, "raw", b"", secrets={"api-key": "told"}).returned == "told"
    with pytest.raises(millrace.Denied, match="api-key"):
        logs.run(key, "raw", b"")


def test_a_run_reads_what_is_there_and_appends_when_it_ends() -> None:
    logs = Logs(orders=[1, 2], totals=[3])
    run = logs.run(total, "orders", 4)
    assert (run.record.log, run.record.seqno, run.record.data) == ("orders", 3, b"4")
    assert [(record.log, record.seqno, record.json()) for record in run.appended] == [("totals", 2, 7)]
    assert [record.json() for record in logs.records("totals")] == [3, 7]

    def again(record: millrace.Record, ctx: millrace.Context) -> None:
        ctx.append("totals", "new")
        assert ctx.latest("totals") == 2

    logs.run(again, "orders", 5)
    assert logs.records("totals")[-1].text() == "new"


def test_a_run_that_fails_appends_nothing() -> None:
    logs = Logs({"raw/kitchen": []}, out=[])

    def fails(record: millrace.Record, ctx: Any) -> None:
        ctx.append("out", "never")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        logs.run(fails, "raw/kitchen", 21.5)

    def misses(record: millrace.Record, ctx: Any) -> None:
        ctx.append("out", "never")
        ctx.append("nowhere", "x")

    with pytest.raises(millrace.NotFound, match="MR2101"):
        logs.run(misses, "raw/kitchen", 21.5)
    assert len(logs.records("raw/kitchen")) == 2 and logs.records("out") == []


def test_a_coroutine_function_is_refused_as_by_a_host() -> None:
    async def late(record: millrace.Record, ctx: Any) -> None:
        ctx.append("out", record.data)

    with pytest.raises(millrace.FunctionFailed, match="MR3117.*coroutine function") as refused:
        Logs(a=[], out=[]).run(late, "a", "x")
    assert refused.value.remedy


def test_refusals_are_those_of_a_host() -> None:
    def asks(record: millrace.Record, ctx: Any) -> None:
        with pytest.raises(millrace.NotFound, match="MR2101"):
            ctx.latest("nowhere")
        with pytest.raises(millrace.NotFound, match="MR2105"):
            ctx.get("a", 9)
        with pytest.raises(millrace.Invalid, match="MR1003"):
            ctx.get("a", 0)

    Logs(a=[]).run(asks, "a", b"x")


def test_attempts_at_a_record_are_one_run_and_messages_are_kept() -> None:
    logs = Logs(a=[])
    seen: list[tuple[str, int, bytes, float]] = []

    def calls(record: millrace.Record, ctx: Any) -> str:
        seen.append((ctx.idempotency_key, ctx.attempt, ctx.random(4), ctx.now()))
        ctx.append("mr://127.0.0.1:7071/edge/raw", {"n": 1})
        return "done"

    run = logs.run(calls, "a", 1, now=5.0)
    assert (run.returned, run.sent, run.appended) == ("done", [("mr://127.0.0.1:7071/edge/raw", b'{"n":1}')], [])
    logs.run_for(calls, run.record, attempt=2)
    logs.run(calls, "a", 2)
    keys = [key for key, *_ in seen]
    assert keys[0] == keys[1] != keys[2] and [attempt for _, attempt, *_ in seen] == [1, 2, 1]
    assert len({numbers for _, _, numbers, _ in seen}) == 3 and seen[0][3] == 5.0
