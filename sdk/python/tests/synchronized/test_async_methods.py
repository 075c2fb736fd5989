"""`async` methods of shared classes: what they await waits at the host, and nothing of them is visible before they end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S

import millrace
import millrace.aio

pytest.importorskip("cloudpickle")
_MIB = 1 << 20


@millrace.shared(timeout=60.0)
class Desk:
    """Its methods await other objects, which are arguments or fields."""

    def __init__(self, queue: Any = None) -> None:
        self.queue, self.seen = queue, 0
        self.log: list[Any] = []

    async def both(self, queue: Any) -> Any:
        """Waits for an item that it puts itself while it waits."""
        got, _ = await asyncio.gather(queue.get(), queue.put("x"))
        return got

    async def field(self) -> int:
        await self.queue.put(1)
        return int(await self.queue.qsize())

    def plain(self) -> int:
        self.queue.put(2)
        return int(self.queue.qsize())

    @millrace.readonly
    async def reads(self) -> int:
        return int(await self.queue.qsize())

    @millrace.readonly
    async def only_reads(self) -> None:
        await asyncio.sleep(0)
        self.seen = 99

    async def hold(self, begun: Any, go: Any) -> int:
        self.seen += 1
        self.log.append("begun")
        await begun.set()
        await go.wait()
        self.seen += 1
        return self.seen

    def look(self) -> tuple[int, list[Any]]:
        return self.seen, list(self.log)

    async def fails(self) -> None:
        self.seen = 7
        await asyncio.sleep(0)
        raise LookupError("as in any method")

    async def soon(self, queue: Any) -> str:
        try:
            return str(await asyncio.wait_for(queue.get(), 0.1))
        except asyncio.TimeoutError:
            return "nothing"

    @millrace.method(timeout=0.5)
    async def sleeps(self) -> None:
        self.seen = 50
        await asyncio.sleep(600)

    @millrace.method(timeout=0.5)
    async def spins(self) -> None:
        self.seen = 60
        while True:
            pass

    async def leaves(self, queue: Any, lock: Any) -> None:
        """Leaves calls that wait behind, and one that is cancelled."""
        left = [asyncio.ensure_future(queue.get()) for _ in range(3)]
        async with lock:
            await asyncio.sleep(0)
        self.seen = len(left)

    async def drops(self, queue: Any, turns: int) -> None:
        """Cancels a call that may have its item already, and ends."""
        task = asyncio.ensure_future(queue.get())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()

    @millrace.method(timeout=0.5)
    async def waits_for_end(self, other: Any) -> None:
        """Cancels a call that has begun, and takes longer."""
        await asyncio.wait_for(other.rests(3.0), 0.1)

    def rests(self, seconds: float) -> None:
        time.sleep(seconds)

    async def cancelled(self) -> None:
        task = asyncio.ensure_future(asyncio.sleep(600))
        await asyncio.sleep(0)
        task.cancel()
        await task

    async def large(self, blobs: list[Any]) -> int:
        """Long calls and long answers, all at the same time."""
        await asyncio.gather(*(blob.replace(bytes([at]) * _MIB) for at, blob in enumerate(blobs)))
        read = await asyncio.gather(*(blob.read() for blob in blobs), *(blob.replace(b"y" * _MIB) for blob in blobs))
        return sum(len(part) for part in read if part is not None)

    async def many(self, hits: Any) -> int:
        await asyncio.gather(*(hits.add() for _ in range(300)))
        return int(await millrace.aio.awaited(hits.sync).get())

    @millrace.when(lambda self, queue: self.seen)
    async def guarded(self, queue: Any) -> int:
        return int(await queue.qsize())

    async def mixed(self, queue: Any) -> list[Any]:
        """Calls of references that are no objects of `millrace.aio` block, while others wait."""
        waiting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.sync.put("sync")
        return [await waiting, queue]


@millrace.shared(rollback=True)
class Careful:
    def __init__(self) -> None:
        self.seen = 0

    async def fails(self) -> None:
        self.seen = 7
        await asyncio.sleep(0)
        raise LookupError

    @millrace.readonly
    def look(self) -> int:
        return self.seen


@millrace.shared
class Ring:
    """Each calls the next one, and others at the same time."""

    def __init__(self) -> None:
        self.count = 0

    async def around(self, others: list[Any], hits: Any) -> int:
        results = await asyncio.gather(*(other.around(others[1:], hits) for other in others[:1]), hits.add(), return_exceptions=True)
        for result in results:
            if isinstance(result, millrace.Conflict):
                raise result
        self.count += 1
        return self.count


def waits(farm: Any, key: str) -> bool:
    return any(shown["waiting"] for shown in json.loads(farm.remote.show("objects"))["objects"] if shown["key"] == key)


def test_calls_wait_at_the_same_time(farm: millrace.Connection) -> None:
    Desks = farm.shared(Desk)
    assert Desks("both").both(farm.Queue("both-items")) == "x"
    assert Desks("many").many(farm.AtomicInt("many-hits")) == 300


def test_references_are_awaited_in_async_methods_only(farm: millrace.Connection) -> None:
    queue = farm.Queue("field-items")
    desk = farm.shared(Desk)("field", queue)
    assert [desk.field(), desk.plain(), desk.field(), desk.reads(), desk.plain()] == [1, 2, 3, 3, 4]
    item, returned = desk.mixed(farm.Queue("mixed"))
    assert item == "sync" and isinstance(returned, millrace.objects.Queue) and returned.key == "mixed"

    async def main() -> None:
        async with millrace.aio.connect(farm.address, app=farm.application) as other:
            awaited = (await other.shared(Desk))("field")
            assert await awaited.field() == 5 and await awaited.plain() == 6

    asyncio.run(main())
    with pytest.raises(RuntimeError, match="async methods"):
        millrace.aio.awaited(queue)


def test_nothing_is_visible_until_the_method_ends(farm: millrace.Connection) -> None:
    desk, begun, go = farm.shared(Desk)("hold"), farm.Event("hold-begun"), farm.Event("hold-go")
    assert desk.look() == (0, [])
    with ThreadPoolExecutor(2) as threads:
        holding = threads.submit(desk.hold, begun, go)
        assert begun.wait(PATIENCE_S)
        looking = threads.submit(desk.look)
        with pytest.raises(TimeoutError):
            desk.with_options(timeout=0.3).look()
        assert not looking.done(), "it waits for the end of the method"
        go.set()
        assert holding.result(PATIENCE_S) == 2 and looking.result(PATIENCE_S) == (2, ["begun"])


def test_exceptions_and_time_limits_are_as_of_other_methods(farm: millrace.Connection) -> None:
    desk = farm.shared(Desk)("fails")
    with pytest.raises(LookupError, match="as in any method"):
        desk.fails()
    assert desk.look()[0] == 7
    careful = farm.shared(Careful)("careful")
    with pytest.raises(LookupError):
        careful.fails()
    assert careful.look() == 0
    for slow in (desk.sleeps, desk.spins):
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match="0.5 seconds"):
            slow()
        assert time.monotonic() - begun < 60 and desk.look()[0] == 7
    with pytest.raises(TypeError, match="read-only and has changed 'seen'"):
        desk.only_reads()
    with pytest.raises(concurrent.futures.CancelledError):
        desk.cancelled()
    assert desk.look()[0] == 7
    assert desk.guarded(farm.Queue("guarded")) == 0


def test_a_cancelled_call_takes_nothing(farm: millrace.Connection) -> None:
    desk, queue, lock = farm.shared(Desk)("soon"), farm.Queue("soon-items"), farm.Lock("soon-lock")
    assert desk.soon(queue) == "nothing"
    desk.leaves(queue, lock)
    assert not waits(farm, "soon-items") and not lock.locked()
    queue.put("later")
    assert queue.qsize() == 1 and desk.soon(queue) == "later"


def test_a_method_ends_after_a_cancelled_call_has_given_back_its_item(farm: millrace.Connection) -> None:
    desk, queue = farm.shared(Desk)("drops"), farm.Queue("drops-items")
    queue.put("item")
    for at in range(30):
        desk.drops(queue, 1 + at % 3)
        assert queue.qsize() == 1, f"the item is there again when call {at} has returned"


def test_after_a_time_limit_nothing_of_the_method_is_waited_for(farm: millrace.Connection) -> None:
    Desks, queue = farm.shared(Desk), farm.Queue("rests-items")
    desk = Desks("waits-for-end")
    for at in range(2):
        other = Desks(f"rests-{at}")
        other.look()
        with pytest.raises(TimeoutError, match="0.5 seconds"):
            desk.waits_for_end(other)
        assert desk.soon(queue) == "nothing"


def test_long_calls_and_answers_do_not_block_each_other(farm: millrace.Connection) -> None:
    blobs = [farm.Blob(f"large-{at}") for at in range(12)]
    assert farm.shared(Desk)("large").large(blobs) == 12 * _MIB


def test_a_circle_is_refused_and_the_other_calls_go_on(farm: millrace.Connection) -> None:
    Rings, hits = farm.shared(Ring), farm.AtomicInt("ring-hits")
    a, b, c = Rings("ring-a"), Rings("ring-b"), Rings("ring-c")
    assert a.around([b, c], hits) == 1 and hits.get() == 3
    with pytest.raises(millrace.Conflict, match="MR7118.*'ring-a' and 'ring-b' and 'ring-c' would wait for each other"):
        a.around([b, c, a], hits)
    assert hits.get() == 6
    with pytest.raises(millrace.Conflict, match="MR7118.*'ring-b' would wait for itself"):
        b.around([b], hits)


def test_a_persistent_object_repeats_the_method_after_a_restart(
    ns: millrace.Namespace, host: Callable[..., Any], binary: Path
) -> None:
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(sys.modules[__name__])
    served = host(ns)
    with millrace.connect(served.socket) as farm:
        Desks = farm.shared(Desk, persistent=True)
        desk, hits = Desks("kept"), farm.AtomicInt("kept-hits", persistent=True)
        begun, go = farm.Event("kept-begun", persistent=True), farm.Event("kept-go", persistent=True)
        assert desk.many(hits) == 300
        waiting: list[Any] = []
        thread = threading.Thread(target=lambda: waiting.append(desk.hold(begun, go)))
        thread.start()
        assert begun.wait(PATIENCE_S)
        served.process.kill()
        served.process.wait(60)
        host(ns)
        go.set()
        thread.join(PATIENCE_S)
        assert waiting == [2] and desk.look() == (2, ["begun"]) and hits.get() == 300
