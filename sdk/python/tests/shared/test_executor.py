"""Tasks on the workers of a host."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import millrace
import millrace.aio
from conftest import eventually
from millrace import objects
from millrace._worker import error_of
from millrace.executor import RemoteTraceback, _task

pytest.importorskip("cloudpickle")


@pytest.fixture(scope="module")
def farm(binary: Path) -> Iterator[millrace.Connection]:
    """A private host."""
    os.environ["MILLRACE_BIN"] = str(binary)
    with millrace.connect() as connection:
        yield connection


@pytest.fixture(scope="module")
def executor(farm: millrace.Connection) -> Iterator[millrace.Executor]:
    """An executor with four workers."""
    with farm.Executor(workers=4) as executor:
        yield executor


def test_calls_run_elsewhere_and_their_results_come_back(executor: millrace.Executor) -> None:
    base = 10

    def add(number: int, *, more: int = 0) -> tuple[int, int]:
        return base + number + more, os.getpid()

    value, pid = executor.submit(add, 3, more=4).result(120)
    assert value == 17 and pid != os.getpid()
    assert list(executor.map(lambda x, y: x * y, range(5), range(5))) == [0, 1, 4, 9, 16]
    assert list(executor.map(pow, range(10), [2] * 10, chunksize=3)) == [x * x for x in range(10)]
    futures = [executor.submit(pow, x, 2) for x in range(20)]
    done = {future.result() for future in concurrent.futures.as_completed(futures, 120)}
    assert done == {x * x for x in range(20)}


def test_an_exception_is_a_result_with_its_traceback(executor: millrace.Executor) -> None:
    def fail() -> None:
        raise ZeroDivisionError("no way")

    with pytest.raises(ZeroDivisionError, match="no way") as raised:
        executor.submit(fail).result(120)
    cause = raised.value.__cause__
    assert isinstance(cause, RemoteTraceback) and "in fail" in str(cause)

    class Own(Exception):
        def __init__(self) -> None:
            super().__init__("own")
            self.lock = threading.Lock()

    def odd() -> None:
        raise Own

    with pytest.raises(millrace.executor.TaskError, match="own"):
        executor.submit(odd).result(120)


def test_a_thousand_calls_that_do_nothing(executor: millrace.Executor) -> None:
    assert list(executor.map(abs, range(1000))) == list(range(1000))


def test_tasks_share_objects(farm: millrace.Connection, executor: millrace.Executor) -> None:
    total, seen = farm.AtomicLong("total"), farm.Set("seen")

    def work(number: int) -> int:
        seen.add(number)
        return int(total.add(number))

    list(executor.map(work, range(50)))
    assert total.get() == sum(range(50)) and len(seen) == 50


def test_tasks_wait_for_each_other(farm: millrace.Connection, executor: millrace.Executor) -> None:
    barrier = farm.Barrier("all", 4)
    places = executor.map(lambda _: barrier.wait(timeout=100), range(4))
    assert sorted(places) == [0, 1, 2, 3]


def test_a_worker_that_is_lost_is_replaced_and_its_calls_count_once(
    farm: millrace.Connection, executor: millrace.Executor
) -> None:
    hits, attempts = farm.AtomicInt("once"), farm.Queue("attempts")

    def die() -> int:
        first = int(hits.add())
        if attempts.qsize() == 0:
            os._exit(3)
        return first

    future = executor.submit(die)
    # The second attempt gets the answer of the first: 0 items. So it dies as well, until no attempt is left.
    with pytest.raises(millrace.Error):
        future.result(120)
    assert hits.get() == 1


def test_a_task_that_has_not_begun_can_be_cancelled(farm: millrace.Connection) -> None:
    with farm.Executor(workers=1) as one:
        go = farm.Event("go")
        first = one.submit(go.wait)
        waiting = [one.submit(abs, -1) for _ in range(3)]
        cancelled = waiting[-1].cancel()
        go.set()
        assert first.result(120) is True
        if cancelled:
            with pytest.raises(concurrent.futures.CancelledError):
                waiting[-1].result(120)
        assert waiting[0].result(120) == 1


def test_a_task_that_runs_can_be_stopped(farm: millrace.Connection) -> None:
    def begin_and_sleep() -> None:
        begun.set()
        time.sleep(3600)

    begun = farm.Event("begun to be stopped")
    with farm.Executor(workers=1) as one:
        runs: Any = one.submit(begin_and_sleep)
        assert begun.wait(120)
        waits: list[Any] = [one.submit(abs, -number) for number in range(2)]
        assert runs.running() and not runs.cancel() and not any(future.running() for future in waits)
        assert runs.stop()
        with pytest.raises(concurrent.futures.CancelledError):
            runs.result(120)
        assert runs.cancelled() and not runs.running() and runs.stop()
        # Its worker is replaced.
        assert [future.result(120) for future in waits] == [0, 1]
        assert not waits[0].stop() and waits[0].result(0) == 0
        begun.clear()
        thread = millrace.CloudThread(target=begin_and_sleep, executor=one)
        thread.start()
        assert begun.wait(120) and thread.stop()
        thread.join(120)
        assert not thread.is_alive()

    from millrace import multiprocessing

    begun.clear()
    process = multiprocessing.Process(target=begin_and_sleep)
    process.start()
    assert begun.wait(120)
    process.terminate()
    process.join(120)
    assert process.exitcode == -15
    begun.clear()
    with multiprocessing.Pool(1) as pool:
        result = pool.apply_async(begin_and_sleep)
        assert begun.wait(120)
    with pytest.raises(concurrent.futures.CancelledError):
        result.get(120)


def test_a_cancelled_task_is_cancelled_even_if_its_result_comes_first(farm: millrace.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    with farm.Executor(workers=1) as one:
        begun, go = farm.Event("begun first"), farm.Event("go first")
        one.submit(lambda: begun.set() or go.wait())
        assert begun.wait(120)
        waits = one.submit(abs, -1)
        revoke = one._cancel_of

        def slow(future: Any) -> bool:
            revoked = revoke(future)
            concurrent.futures.wait([future], 120)
            return revoked

        monkeypatch.setattr(one, "_cancel_of", slow)
        assert waits.cancel() and waits.cancelled()
        go.set()
        with pytest.raises(concurrent.futures.CancelledError):
            waits.result(120)


def test_asyncio_cancels_what_has_not_begun_at_the_end(farm: millrace.Connection) -> None:
    async def main() -> list[Any]:
        async with millrace.aio.connect(str(farm.directory)) as near:
            async with near.Executor(workers=1) as executor:
                begun, go = farm.Event("begun at the end"), farm.Event("go at the end")
                first = executor.submit(lambda: begun.set() or go.wait())
                assert await asyncio.to_thread(begun.wait, 120)
                rest = [executor.submit(abs, number) for number in range(3)]
                while len(executor._sync._futures) < 4 or not all(one._number for one in executor._sync._futures.values()):  # type: ignore[union-attr]
                    await asyncio.sleep(0.01)
                ending = asyncio.create_task(executor.shutdown(cancel_futures=True))
                await asyncio.wait(rest)
                go.set()
                await ending
                return [await first, *(type(one.exception()) for one in rest)]

    found = asyncio.run(main())
    assert found == [True, *[concurrent.futures.CancelledError] * 3]


def test_executors_and_connections_do_not_travel(farm: millrace.Connection, executor: millrace.Executor) -> None:
    with pytest.raises(TypeError, match="pass references to its objects"):
        executor.submit(lambda: farm.AtomicInt("hits").add())
    with pytest.raises(TypeError, match="a task cannot start other tasks"):
        executor.submit(lambda: executor.submit(abs, 1))


def test_what_cannot_travel_is_refused_before_it_is_sent(executor: millrace.Executor) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError) as unpicklable:
        executor.submit(lambda: lock)
    if sys.version_info >= (3, 11):
        assert "the function" in unpicklable.value.__notes__[0] and "<lambda>" in unpicklable.value.__notes__[0]
    with pytest.raises(TypeError):
        executor.submit(len, lock)


def test_what_is_longer_than_a_record_travels_in_blobs(
    farm: millrace.Connection, executor: millrace.Executor, binary: Path
) -> None:
    def blobs() -> int:
        listed = subprocess.run([str(binary), "-n", str(farm.directory), "entity", "ls"], capture_output=True, text=True, check=True)
        return listed.stdout.count("large-")

    # These bytes do not repeat, so parts in another order would be noticed.
    long = b"".join(hashlib.sha256(at.to_bytes(4, "little")).digest() for at in range(1 << 19)) + bytes(5 << 20)
    assert len(long) > 20 << 20
    digest = hashlib.sha256(long).hexdigest()
    assert executor.submit(lambda data: hashlib.sha256(data).hexdigest(), long).result(120) == digest
    assert executor.submit(lambda data: data[::-1], long).result(120) == long[::-1]
    assert list(executor.map(lambda data, by: len(data[::by]), [long, long], [1, 2])) == [len(long), -(-len(long) // 2)]
    assert asyncio.run(_awaited(str(farm.directory), long)) == (digest, long[::-1], len(long))
    eventually("arguments and results are freed", lambda: blobs() == 0)

    with farm.Executor(workers=1) as own:
        # The function refers to them.
        assert [own.submit(lambda at: long[at], at).result(120) for at in (0, 1, len(long) - 1)] == [long[0], long[1], 0]
        assert len(own._bodies) == 1 and blobs() > 4
    assert blobs() == 0

    class Unpicklable:
        def __reduce__(self) -> tuple[Any, ...]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        executor.submit(len, [long, Unpicklable()])
    assert blobs() == 0


async def _awaited(place: str, long: bytes) -> tuple[str, bytes, int]:
    async with millrace.aio.connect(place) as farm, farm.Executor(workers=1) as executor:
        digest = await executor.submit(lambda data: hashlib.sha256(data).hexdigest(), long)
        back = await executor.submit(lambda data: data[::-1], long)
        return digest, back, await executor.submit(lambda: len(long))


def test_what_is_too_long_for_the_host_is_refused_while_it_is_pickled(farm: millrace.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(blob: objects.Blob, data: bytes) -> int:
        if blob.key.endswith("-3"):
            raise error_of("MR7108", "all objects would take too many bytes")
        return append(blob, data)

    append = objects.Blob.append
    monkeypatch.setattr(objects.Blob, "append", full)

    class Endless:
        def __reduce__(self) -> tuple[Any, ...]:
            raise AssertionError("it was pickled although what is in front of it is too long")

    with farm.Executor(workers=1) as executor:
        with pytest.raises(millrace.Error, match="MR7108"):
            executor.submit(len, [bytes(17 << 20), Endless()])
        assert executor.submit(len, b"abc").result(120) == 3
        with pytest.raises(millrace.Error, match="MR7108"):
            executor.submit(bytes(17 << 20).__len__)


def test_another_version_of_python_is_refused_before_anything_is_opened(
    farm: millrace.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A body that is not a pickle: unpickling it would raise another error.
    monkeypatch.setattr(_task, "body", lambda version, pickled: bytes((3, 1)) + b"no pickle")
    with farm.Executor(workers=1) as old:
        with pytest.raises(millrace.FunctionFailed, match="MR7137: the program runs Python 3.1, and the workers") as skew:
            old.submit(abs, 1).result(120)
        assert "`python`" in skew.value.remedy


def test_results_that_cannot_travel_are_named_and_not_tried_again(farm: millrace.Connection, executor: millrace.Executor) -> None:
    begun = farm.AtomicInt("begun")
    with pytest.raises(TypeError) as unpicklable:
        executor.submit(lambda: begun.add() and threading.Lock()).result(120)
    if sys.version_info >= (3, 11):
        assert "The task's result, a lock, cannot be pickled" in unpicklable.value.__notes__[0]

    def too_long() -> None:
        begun.add()
        error = ValueError("long")
        error.data = bytes(17 << 20)  # type: ignore[attr-defined]
        raise error

    with pytest.raises(millrace.Invalid, match="MR7115: a raised exception of "):
        executor.submit(too_long).result(120)
    assert begun.get() == 2


def test_each_task_has_a_key_of_its_own(farm: millrace.Connection, executor: millrace.Executor) -> None:
    keys = farm.Log("keys")

    def work() -> str:
        keys.append(millrace.idempotency_key())
        return millrace.idempotency_key()

    first, second = executor.submit(work).result(120), executor.submit(work).result(120)
    assert first != second and list(keys[:]) == [first, second]
    with pytest.raises(RuntimeError):
        millrace.idempotency_key()


def test_initializers_run_once_in_each_worker(farm: millrace.Connection) -> None:
    def prepare(value: int) -> None:
        os.environ["PREPARED"] = str(value)

    with farm.Executor(workers=1, initializer=prepare, initargs=(7,)) as prepared:
        assert prepared.submit(lambda: os.environ.get("PREPARED")).result(120) == "7"

    def refuse() -> None:
        raise RuntimeError("cannot")

    with farm.Executor(workers=1, initializer=refuse) as broken:
        with pytest.raises(concurrent.futures.BrokenExecutor, match="cannot"):
            broken.submit(abs, 1).result(120)


def test_threads_and_loops(farm: millrace.Connection, executor: millrace.Executor) -> None:
    done = farm.Set("done")
    thread = millrace.CloudThread(target=lambda x: done.add(x), args=("thread",), executor=executor)
    thread.start()
    thread.join(120)
    assert not thread.is_alive() and "thread" in done
    told: list[tuple[int, int]] = []
    for schedule in ("dynamic", "static"):
        squares = farm.Dict(f"squares-{schedule}")

        def body(index: int, squares: Any = squares) -> None:
            squares[index] = index * index

        told.clear()
        millrace.parallel_for(
            executor, 23, body, workers=3, schedule=schedule, progress=lambda done, of: told.append((done, of))
        )
        assert dict(squares.items()) == {x: x * x for x in range(23)}
        assert told == [(done, 23) for done in range(1, 24)]
        millrace.parallel_for(executor, 23, body, workers=3, schedule=schedule, chunk=10)
        told.clear()
        with pytest.raises(ZeroDivisionError):
            millrace.parallel_for(executor, 9, lambda x: 1 // (x - 4), workers=2, schedule=schedule, progress=lambda *at: told.append(at))
        assert (9, 9) not in told
    millrace.parallel_for(executor, 0, abs, progress=lambda *at: told.append(at))

    async def later(index: int) -> None: ...

    with pytest.raises(TypeError, match="plain function"):
        millrace.parallel_for(executor, 1, later)


def test_no_task_is_taken_after_the_end(farm: millrace.Connection) -> None:
    executor = farm.Executor(workers=1)
    last = executor.submit(abs, -2)
    executor.shutdown()
    assert last.result(0) == 2
    with pytest.raises(RuntimeError):
        executor.submit(abs, 1)


def test_a_pool_that_is_not_there_is_said_to_be_missing(farm: millrace.Connection) -> None:
    with pytest.raises(millrace.NotFound) as missing:
        farm.Executor(pool="none")
    assert missing.value.code == "MR7114"


def test_why_an_object_waits_names_the_run_that_owns_it(binary: Path, farm: millrace.Connection, executor: millrace.Executor) -> None:
    door, go = farm.Lock("held-door"), farm.Event("held-go")

    def hold(door: Any, go: Any) -> None:
        with door:
            go.wait()

    task = executor.submit(hold, door, go)
    eventually("the task has the lock", door.locked)
    told = subprocess.run([binary, "-n", farm.address, "entity", "why", "held-door"], capture_output=True, text=True, check=True).stdout
    go.set()
    task.result(60)
    assert f"of function 'pool-{executor._pool}') owns Lock 'held-door'" in told
