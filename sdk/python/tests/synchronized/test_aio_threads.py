"""Threads and loops on workers, for asyncio."""

from __future__ import annotations

import asyncio
import functools
import concurrent.futures
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millrace
import millrace.aio

pytest.importorskip("cloudpickle")
_PATIENCE_S = 120


@pytest.fixture(scope="module")
def near(binary: Path) -> Iterator[millrace.Connection]:
    """A private host."""
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(sys.modules[__name__])
    with millrace.connect() as connection:
        yield connection


def run(near: millrace.Connection, test: Callable[[millrace.aio.Connection, millrace.aio.Executor], Awaitable[None]]) -> None:
    """Runs a test with a connection and an executor."""

    async def main() -> None:
        async with millrace.aio.connect(near.address) as farm, farm.Executor(workers=3) as executor:
            await asyncio.wait_for(test(farm, executor), _PATIENCE_S)

    asyncio.run(main())


class Squared(millrace.aio.CloudThread):
    """A thread with code of its own."""

    def __init__(self, number: int, executor: Any) -> None:
        super().__init__(executor=executor)
        self.number = number

    def run(self) -> int:
        return self.number * self.number


def begin_and_sleep(begun: Any) -> None:
    begun.set()
    time.sleep(600)


def test_a_thread_is_started_and_awaited(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection, executor: millrace.aio.Executor) -> None:
        done = farm.Set("done")
        thread = millrace.aio.CloudThread(target=lambda x, y: done.add(x) and y, args=("thread",), kwargs={"y": 7}, executor=executor)
        assert not thread.is_alive() and not thread.daemon
        for early in (thread.join, thread.result, thread.stop):
            with pytest.raises(RuntimeError, match="started"):
                await early()
        thread.start()
        with pytest.raises(RuntimeError, match="once"):
            thread.start()
        await thread.join()
        assert not thread.is_alive() and await thread.result() == 7 == await thread and await done.contains("thread")
        assert not await thread.stop(), "it has ended"
        own = Squared(12, executor)
        own.start()
        assert await own == 144
        empty = millrace.aio.CloudThread(executor=executor)
        empty.start()
        assert await empty is None
        failed = millrace.aio.CloudThread(target=lambda: 1 // 0, executor=executor)
        failed.start()
        await failed.join()
        with pytest.raises(ZeroDivisionError):
            await failed
        with pytest.raises(TypeError, match="needs an executor"):
            millrace.aio.CloudThread(target=abs).start()

    run(near, test)


def test_a_thread_outlives_those_who_wait_and_is_stopped(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection, executor: millrace.aio.Executor) -> None:
        begun = farm.Event("begun")
        thread = millrace.aio.CloudThread(target=begin_and_sleep, args=(begun,), executor=executor)
        thread.start()
        await begun.wait()
        await thread.join(0.01)
        with pytest.raises(concurrent.futures.TimeoutError):
            await thread.result(0.01)
        waiting = asyncio.ensure_future(thread.result())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert thread.is_alive()
        assert await thread.stop()
        await thread.join()
        assert not await thread.stop()
        with pytest.raises(concurrent.futures.CancelledError):
            await thread
        # One that no worker has begun, and one that was not even sent.
        blocking = [millrace.aio.CloudThread(target=time.sleep, args=(600,), executor=executor) for _ in range(4)]
        for one in blocking:
            one.start()
        assert await blocking[-1].stop()
        with pytest.raises(concurrent.futures.CancelledError):
            await blocking[-1]
        await asyncio.sleep(0.2)
        for one in blocking[:-1]:
            await one.stop()
            with pytest.raises(concurrent.futures.CancelledError):
                await one

    run(near, test)


def test_a_loop_has_both_schedules_and_reports_its_progress(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection, executor: millrace.aio.Executor) -> None:
        told: list[tuple[int, int]] = []

        async def tell(done: int, n: int) -> None:
            await asyncio.sleep(0)
            told.append((done, n))

        for schedule in ("dynamic", "static"):
            squares = farm.Dict(f"squares-{schedule}")

            def body(index: int, squares: Any = squares) -> None:
                # On a worker, it is a `millrace.Dict`.
                squares[index] = index * index

            told.clear()
            await millrace.aio.parallel_for(executor, 23, body, workers=3, schedule=schedule, progress=tell)
            assert dict(await squares.items()) == {x: x * x for x in range(23)}
            assert told == [(done, 23) for done in range(1, 24)]
            await squares.clear()
            await millrace.aio.parallel_for(executor, 23, body, workers=3, schedule=schedule, chunk=10)
            assert await squares.length() == 23
            told.clear()
            with pytest.raises(ZeroDivisionError):
                await millrace.aio.parallel_for(
                    executor, 9, lambda x: 1 // (x - 4), workers=2, schedule=schedule, progress=lambda *at: told.append(at)
                )
            assert (9, 9) not in told
        await millrace.aio.parallel_for(executor, 0, abs, progress=tell)
        for odd in ({"schedule": "odd"}, {"workers": 0}, {"chunk": 0}):
            with pytest.raises(ValueError):
                await millrace.aio.parallel_for(executor, 1, abs, **odd)

        async def later(index: int) -> None: ...

        class Later:
            async def __call__(self, index: int) -> None: ...

        for odd_body in (later, functools.partial(later), Later()):
            with pytest.raises(TypeError, match="plain function"):
                await millrace.aio.parallel_for(executor, 1, odd_body)
        labelled = await executor.on([])
        told.clear()
        await millrace.aio.parallel_for(labelled, 5, abs, workers=2, chunk=2, progress=tell)
        assert told[-1] == (5, 5)

    run(near, test)


def test_a_loop_that_ends_early_begins_no_further_calls(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection, executor: millrace.aio.Executor) -> None:
        begun = farm.AtomicInt("calls-begun")

        def body(index: int) -> None:
            begun.add()
            time.sleep(0.02)
            if index == 20:
                raise ArithmeticError

        async def end(loop: Awaitable[Any]) -> int:
            with pytest.raises((asyncio.CancelledError, ArithmeticError)):
                await loop
            # One call of each worker may be under way.
            at_end = await begun.get()
            await asyncio.sleep(0.5)
            assert await begun.get() <= at_end + 2
            await begun.set(0)
            return int(at_end)

        loop = asyncio.ensure_future(millrace.aio.parallel_for(executor, 500, body, workers=2))
        while await begun.get() < 4:
            await asyncio.sleep(0.01)
        loop.cancel()
        assert await end(loop) < 200
        assert await end(millrace.aio.parallel_for(executor, 500, body, workers=2)) < 200
        with near.Executor(workers=2) as sync:
            assert await end(asyncio.to_thread(millrace.parallel_for, sync, 500, body, workers=2)) < 200

    run(near, test)
