"""Sessions whose leases end while their programs go on: the program gets another one, and is told of the locks that it has lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millrace
import millrace.aio
import millrace.threading
from conftest import PATIENCE_S, Host, eventually

pytest.importorskip("cloudpickle")


@pytest.fixture(scope="module")
def farm(binary: Path) -> Iterator[millrace.Connection]:
    """A private host."""
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(sys.modules[__name__])
    with millrace.connect() as connection:
        yield connection


def expire(farm: millrace.Connection) -> None:
    """Has the lease of the session end, as if the program had been suspended."""

    def count() -> int:
        return int(json.loads(farm.remote.show("objects"))["sessions"])

    session: Any = farm.space
    before = count()
    farm.remote.object_session(session._session.id, farm.application, 1, True)
    eventually("the lease ends", lambda: count() < before)


_SUSPENDED = """
import sys
import millrace

farm = millrace.connect(sys.argv[1], app="laptop", lease=0.5)
lock, hits = farm.Lock("door"), farm.AtomicInt("hits")
lock.acquire()
hits.add(1)
print("has it", flush=True)
sys.stdin.readline()
print(hits.add(1))
try:
    lock.release()
except millrace.Gone as error:
    print(error.code, error.detail)
with lock:
    print("has it again")
print(hits.get(), flush=True)
sys.stdin.readline()
"""


def test_a_program_that_was_suspended_for_longer_than_its_lease_goes_on_without_its_locks(farm: millrace.Connection) -> None:
    with millrace.connect(farm.address, app="laptop", lease=60) as other:
        command = [sys.executable, "-c", _SUSPENDED, farm.address]
        with subprocess.Popen(command, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as suspended:
            assert suspended.stdin is not None and suspended.stdout is not None
            assert suspended.stdout.readline() == "has it\n"
            suspended.send_signal(signal.SIGSTOP)
            # When its lease is over.
            assert other.Lock("door").acquire(timeout=PATIENCE_S)
            other.Lock("door").release()
            suspended.send_signal(signal.SIGCONT)
            suspended.stdin.write("go\n")
            suspended.stdin.flush()
            said = [suspended.stdout.readline().strip() for _ in range(4)]
            suspended.stdin.write("end\n")
            suspended.stdin.flush()
        assert said[0] == "2" and said[2:] == ["has it again", "2"]
        assert said[1].startswith("MR7110 the lease of this program has ended") and "Lock 'door'" in said[1]


def test_locks_and_permits_of_a_session_that_has_ended_are_lost_and_say_so(farm: millrace.Connection) -> None:
    with millrace.connect(farm.address, app="lost", lease=60) as one, millrace.connect(farm.address, app="lost", lease=60) as other:
        lock, permits = one.Lock("lost/door"), one.Semaphore("lost/permits", 3)
        changed = one.Condition("lost/changed")
        lock.acquire()
        permits.acquire(n=2)
        changed.acquire()
        # A session of the application stays, and with it the objects. Their keys are of this test: the program of the test before may still
        # be leaving, and with it what its application has created.
        assert not other.Lock("lost/door").acquire(blocking=False)
        expire(one)
        assert permits.value == 3
        for use in (lock.release, permits.release, changed.wait, changed.notify, changed.release):
            with pytest.raises(millrace.Gone) as lost:
                use()
            assert lost.value.code == "MR7110" and "lease" in str(lost.value), use
        # What it was told once is over; the second permit was lost as well.
        with pytest.raises(millrace.Gone):
            permits.release()
        with pytest.raises(RuntimeError, match="unlocked"):
            lock.release()
        with lock, changed:
            assert not other.Lock("lost/door").acquire(blocking=False)
        permits.acquire()
        permits.release()
        assert permits.value == 3 and other.Lock("lost/door").acquire(blocking=False)


def test_a_call_that_waits_in_a_session_that_ends_is_made_again_if_nothing_can_be_lost(farm: millrace.Connection) -> None:
    with millrace.connect(farm.address, app="waits", lease=60) as one, millrace.connect(farm.address, app="waits", lease=60) as other:
        door, go = other.Lock("waits/door"), other.Event("waits/go")
        door.acquire()
        found: list[Any] = []
        waits: list[Callable[[], Any]] = [
            lambda: one.Lock("waits/door").acquire(timeout=PATIENCE_S),
            lambda: one.Event("waits/go").wait(PATIENCE_S),
        ]
        threads = [threading.Thread(target=lambda wait=wait: found.append(bool(wait()))) for wait in waits]
        for thread in threads:
            thread.start()
        space: Any = one.space
        session = space._session

        def both_wait() -> bool:
            return [row["waiting"] for row in _objects(one) if row["key"] in ("waits/door", "waits/go")] == [1, 1]

        eventually("both wait", both_wait)
        one.remote.object_session(session.id, one.application, 0, True)
        eventually("both wait again", lambda: space._session is not session and both_wait())
        door.release()
        go.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert found == [True, True]
        one.Lock("waits/door").release()


def _objects(farm: millrace.Connection) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(farm.remote.show("objects"))["objects"]
    return found


@pytest.mark.parametrize("transport", ["socket", "address"])
def test_the_same_for_asyncio(host: Callable[..., Host], ns: millrace.Namespace, transport: str) -> None:
    address = getattr(host(ns), transport)

    async def work() -> None:
        async with millrace.aio.connect(address, lease=60, app="lost") as one, millrace.aio.connect(address, app="lost", lease=60) as other:
            lock, permits, hits = one.Lock("door"), one.Semaphore("permits", 3), one.AtomicInt("hits")
            await lock.acquire()
            await permits.acquire(n=2)
            assert await hits.add(1) == 1
            # Of a task of this host, which is not the caller's.
            await one._space._lease(1, True)
            assert await other.Lock("door").acquire(timeout=PATIENCE_S)
            assert await hits.add(1) == 2 and await permits.value() == 3
            for release in (lock.release, permits.release, permits.release):
                with pytest.raises(millrace.Gone) as lost:
                    await release()
                assert lost.value.code == "MR7110"
            await other.Lock("door").release()
            async with lock:
                assert not await other.Lock("door").acquire(blocking=False)

    asyncio.run(work())


def test_permits_come_back_only_from_owners_that_are_lost(farm: millrace.Connection) -> None:
    items = farm.Semaphore("items", 0)
    items.release(6)
    with farm.Executor(workers=2) as executor:
        # Consumers, which release nothing: a task, a method and a program that end well.
        assert list(executor.map(lambda _: items.acquire(), range(2))) == [True, True]
        with millrace.connect(farm.address, app=farm.application) as other:
            assert other.Semaphore("items", 0).acquire()

        @millrace.shared
        class Consumer:
            def take(self) -> bool:
                return bool(items.acquire())

        assert farm.shared(Consumer, executor=executor)("consumer").take()
        assert items.value == 2
        # Their sessions end at once or two seconds later: when that of a lock is over, so are all.
        executor.submit(farm.Lock("left").acquire).result(PATIENCE_S)
        assert farm.Lock("left").acquire(timeout=PATIENCE_S)
        assert items.value == 2
        # One that an exception ends.
        with pytest.raises(ZeroDivisionError), millrace.connect(farm.address, app=farm.application) as other:
            assert other.Semaphore("items", 0).acquire()
            raise ZeroDivisionError
        eventually("its permit is back", lambda: items.value == 2)


def test_more_threads_than_can_run_that_wait_for_each_other_are_refused(farm: millrace.Connection) -> None:
    from millrace.threading import _runtime

    count = _runtime.THREADS_MAX + 1
    barrier = millrace.threading.Barrier(count)
    threads = [millrace.threading.Thread(target=_meet, args=(barrier,)) for _ in range(count)]
    for thread in threads[:-1]:
        thread.start()
    with pytest.raises(millrace.Conflict) as refused:
        threads[-1].start()
    assert refused.value.code == "MR7138"
    barrier.abort()
    for thread in threads[:-1]:
        assert thread.result(PATIENCE_S) == "broken"
    # Any number of threads that do not wait for each other.
    total = farm.AtomicInt("total")
    threads = [millrace.threading.Thread(target=total.add, args=(1,)) for _ in range(count + 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert total.get() == count + 5


def _meet(barrier: Any) -> str:
    import threading

    try:
        barrier.wait()
    except threading.BrokenBarrierError:
        return "broken"
    return "met"
