"""Forked children: each has a session, connections and threads of its own, or is told that it needs them."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import pickle
import select
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
import millrace.futures
import millrace.queue
import millrace.threading
from conftest import PATIENCE_S, Host, Site
from millrace.testing import Logs

pytest.importorskip("cloudpickle")
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.fixture(scope="module")
def farm(binary: Path) -> Iterator[millrace.Connection]:
    """A private host."""
    os.environ["MILLRACE_BIN"] = str(binary)
    with millrace.connect() as connection:
        yield connection


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returns in a forked child, or the class and the code of what it raises. A child that hangs fails the test."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            found: Any = work()
        except BaseException as error:
            found = type(error).__name__, getattr(error, "code", str(error))
        os.write(write, pickle.dumps(found))
        os._exit(0)
    os.close(write)
    said = b""
    while True:
        if not select.select([read], [], [], PATIENCE_S)[0]:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("the child hangs")
        part = os.read(read, 1 << 16)
        if not part:
            break
        said += part
    os.close(read)
    os.waitpid(pid, 0)
    return pickle.loads(said)


INHERITED = ("Invalid", "MR2015")


def test_calls_of_parent_and_child_take_effect_once_each(farm: millrace.Connection) -> None:
    hits, jobs = farm.AtomicInt("hits"), farm.Queue("jobs")
    assert hits.add(1) == 1 and hits.add(1) == 2
    for job in range(4):
        jobs.put(job)
    assert in_child(lambda: [hits.add(100), hits.add(100), jobs.get(), jobs.get()]) == [102, 202, 0, 1]
    # The parent's next calls have the numbers that the child's had in its own session.
    assert [hits.add(1), hits.add(1), jobs.get(), jobs.get()] == [203, 204, 2, 3]


def test_children_of_a_program_that_calls_meanwhile_get_their_own_answers(farm: millrace.Connection) -> None:
    hits, over = farm.AtomicInt("busy"), threading.Event()

    def call() -> None:
        while not over.is_set():
            hits.add(1)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for child in range(5):
            names = farm.List(f"names-{child}")

            def work(names: Any = names) -> list[Any]:
                for at in range(20):
                    names.append(at)
                return list(names)

            assert in_child(work) == list(range(20))
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_child_does_not_hold_or_release_the_locks_of_its_parent(farm: millrace.Connection) -> None:
    lock, ported, again = farm.Lock("door"), millrace.threading.Lock(), millrace.threading.RLock()
    token = lock.acquire()
    assert ported.acquire() and again.acquire()

    def work() -> list[Any]:
        found: list[Any] = [lock.acquire(blocking=False), ported.acquire(False), again.acquire(False), ported.token]
        for one in (lock, ported, again):
            with pytest.raises(RuntimeError):
                one.release()
        return found

    assert in_child(work) == [False, False, False, 0]
    for one in (lock, ported, again):
        one.release()
    # Each owner has a token of its own.
    child = in_child(lambda: [lock.acquire(), lock.release()][0])
    assert token < child < lock.acquire()
    lock.release()


def test_a_child_that_closes_the_connection_ends_only_its_own_session(farm: millrace.Connection) -> None:
    with millrace.connect(farm.address) as other:
        lock, hits = other.Lock("kept"), other.AtomicInt("kept-hits")
        lock.acquire()
        hits.add(7)
        executor = other.Executor(workers=1)
        waits = executor.submit(pow, 2, 5)

        def work() -> int:
            found = int(hits.add(1))
            other.close()
            return found

        assert in_child(work) == 8
        # One that has not used it before.
        assert in_child(other.close) is None
        assert hits.get() == 8 and waits.result(PATIENCE_S) == 32
        assert not farm.Lock("kept").acquire(blocking=False)
        lock.release()


def test_executors_of_the_parent_work_in_a_child(farm: millrace.Connection) -> None:
    go, begun = farm.Event("go"), farm.Event("begun")
    with farm.Executor(workers=2) as executor, millrace.futures.ProcessPoolExecutor(1) as ported:
        assert ported.submit(pow, 2, 2).result(PATIENCE_S) == 4
        waits = executor.submit(lambda: begun.set() or go.wait(100))
        assert begun.wait(PATIENCE_S)

        def work() -> list[Any]:
            found: list[Any] = [executor.submit(pow, 2, 3).result(100), list(executor.map(abs, [-1, -2])), ported.submit(pow, 2, 4).result(100)]
            with pytest.raises(millrace.Error, match="MR2015"):
                waits.result(100)
            executor.shutdown()
            return found

        assert in_child(work) == [8, [1, 2], 16]
        # The future of the parent's task is told at once, also in a child that submits nothing.
        assert in_child(lambda: waits.result(100)) == INHERITED
        assert in_child(executor.shutdown) is None
        go.set()
        assert waits.result(PATIENCE_S) is True
        assert executor.submit(pow, 2, 6).result(PATIENCE_S) == 64


def test_processes_of_multiprocessing_share_objects_that_were_made_before(farm: millrace.Connection) -> None:
    jobs, done = millrace.queue.Queue(), farm.Counter("done")

    def work() -> None:
        while (job := jobs.get()) is not None:
            done.add(job)

    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for job in [*range(40), *[None] * 4]:
        jobs.put(job)
    for worker in workers:
        worker.join(PATIENCE_S)
        assert worker.exitcode == 0
    assert done.total() == 40 and max(done.values()) == 1


_PRELOADED = """
import os, sys
import millrace

farm = millrace.connect(sys.argv[1], app="web")
hits, lock = farm.AtomicInt("served"), farm.Lock("one")
executor = farm.Executor(workers=2)
hits.add(1)

def serve():
    for _ in range(25):
        with lock:
            hits.set(hits.get() + 1)
    assert executor.submit(pow, 2, 10).result(100) == 1024

children = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        serve()
        # As the interpreter of a server that is told to end: with everything that runs at the end.
        sys.exit(0)
    children.append(pid)
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
print(hits.get())
farm.close()
"""


def test_a_server_that_connects_before_it_forks_its_workers(farm: millrace.Connection) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRELOADED, farm.address], cwd="/", capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("101\n", "", 0)


def test_asyncio_in_a_child_needs_a_connection_of_its_own(farm: millrace.Connection, host: Callable[..., Host], ns: millrace.Namespace) -> None:
    served = host(ns)

    async def parent() -> None:
        async with millrace.aio.connect(served.socket) as near, millrace.aio.connect(served.address) as far:
            async with near.Executor(workers=1) as executor, millrace.aopen(served.address) as opened:
                assert await executor.submit(pow, 2, 3) == 8 and await opened.append("raw", b"1") == 1
                uses: list[Callable[[], Any]] = [
                    lambda: near.AtomicInt("hits").add(1),
                    lambda: far.AtomicInt("hits").add(1),
                    lambda: executor.submit(pow, 2, 3),
                    lambda: opened.append("raw", b"2"),
                    lambda: opened.logs(),
                    lambda: opened.range("raw").__anext__(),
                ]
                for use in uses:
                    # The loop of the parent runs here, and a child has none.
                    assert await asyncio.to_thread(in_child, functools.partial(_run, use)) == INHERITED
                assert await asyncio.to_thread(in_child, lambda: asyncio.run(child())) == [1, 2]
                assert await near.AtomicInt("hits").add(1) == 1 and await far.AtomicInt("hits").get() == 1
                assert await opened.latest("raw") == 2

    async def child() -> list[Any]:
        async with millrace.aio.connect(served.address) as own, millrace.aopen(served.address) as opened:
            return [await own.AtomicInt("own").add(1), await opened.append("raw", b"3")]

    asyncio.run(parent())


def _run(use: Callable[[], Any]) -> Any:
    async def work() -> Any:
        return await use()

    return asyncio.run(work())


def test_a_namespace_on_a_host_and_its_iterations(host: Callable[..., Host], ns: millrace.Namespace) -> None:
    with millrace.open(host(ns).address) as remote:
        assert remote.append("raw", b"1") == 1
        tail = remote.tail("raw", 1)
        assert next(tail).data == b"1"

        def work() -> list[Any]:
            with pytest.raises(millrace.Error, match="MR2015"):
                next(tail)
            found = [remote.append("raw", b"2", key="once"), remote.append("raw", b"2", key="once"), remote.latest("raw")]
            return [*found, [record.data for record in remote.range("raw")], next(remote.tail("raw", 2)).data]

        assert in_child(work) == [2, 2, 2, [b"1", b"2"], b"2"]
        assert remote.append("raw", b"3") == 3 and [next(tail).data, next(tail).data] == [b"2", b"3"]
        assert in_child(lambda: [repair.number for repair in remote.repairs()]) == []


def test_files_are_opened_again_in_a_child(ns: millrace.Namespace) -> None:
    ns.append("raw", b"1", key="once")
    tail = ns.tail("raw", 1, timeout=0)

    def refused() -> list[Any]:
        found: list[Any] = []
        uses: list[Callable[[], Any]] = [
            lambda: ns.append("raw", b"2"),
            lambda: ns.append_many([("raw", b"2")]),
            lambda: ns.get("raw"),
            lambda: ns.latest("raw"),
            lambda: next(tail),
            lambda: ns.logs(),
            lambda: ns.wait_idle(1),
        ]
        for use in uses:
            try:
                found.append(use())
            except millrace.Error as error:
                found.append(error.code)
        # It does not wait for threads that the child does not have.
        ns.close()
        return found

    assert in_child(refused) == ["MR2015"] * 7

    def own() -> list[Any]:
        with millrace.open(ns.address) as opened:
            return [opened.append("raw", b"1", key="once"), opened.append("raw", b"2"), next(opened.tail("raw", 2)).data]

    assert in_child(own) == [1, 2, b"2"]
    assert ns.append("raw", b"3") == 3 and [record.data for record in tail] == [b"1", b"2", b"3"]


def test_topics_of_parent_and_child(binary: Path, tmp_path: Path) -> None:
    site = Site(binary, tmp_path / "site", 0)
    site.run("cluster", "init", "--site", "campus")
    try:
        with millrace.open(site.start()) as remote:
            remote.create_topic("env")
            topic = remote.topic("env")
            assert topic.publish(b"1", patience=PATIENCE_S) == 1
            assert in_child(lambda: [topic.publish(b"2", key="two"), topic.publish(b"2", key="two"), topic[:]]) == [2, 2, [b"1", b"2"]]
            assert topic.publish(b"3") == 3 and topic[-1] == b"3"
    finally:
        site.kill()


def test_logs_of_a_test_are_copied() -> None:
    logs = Logs(raw=[b"1"], out=[])

    def copy(record: Any, ctx: Any) -> None:
        ctx.append("out", record.data)

    def run() -> list[bytes]:
        return [record.data for record in logs.run(copy, "raw", b"2").appended]

    assert in_child(run) == [b"2"] and logs.records("out") == [] and run() == [b"2"]
