"""Executors over several hosts: tasks go where the fewest wait and the labels are, and once more elsewhere if their host is lost."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, Host, Site, cluster, eventually

import millrace
import millrace.aio
from millrace.executor._hosts import SpreadExecutor

pytest.importorskip("cloudpickle")


@pytest.fixture(scope="module")
def sites(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    """Three hosts of a cluster, two of which have a label `gpu`."""
    with cluster(binary, tmp_path_factory.mktemp("spread"), "", "gpu=a100", "gpu=h100") as started:
        yield started


@pytest.fixture
def served(tmp_path: Path, host: Callable[..., Host]) -> Iterator[list[Host]]:
    """Three hosts, each with a namespace of its own."""
    namespaces = [millrace.create(tmp_path / name, durability="memory") for name in "abc"]
    yield [host(namespace) for namespace in namespaces]
    for namespace in namespaces:
        namespace.close()


def squares(executor: Any, count: int) -> tuple[list[Any], collections.Counter[str]]:
    """The futures of tasks that were submitted together, and how many each host has."""
    futures = executor._begin((pow, (number, 2), {}) for number in range(count))
    return futures, collections.Counter(future._place[0].address for future in futures)


def test_a_busy_host_gets_fewer_tasks(served: list[Host]) -> None:
    sockets = [one.socket for one in served]
    with millrace.connect(sockets) as farm, farm.Executor(workers=2) as executor:
        assert isinstance(executor, SpreadExecutor) and isinstance(executor, millrace.Executor)
        futures, idle = squares(executor, 60)
        assert [future.result(PATIENCE_S) for future in futures] == [number**2 for number in range(60)]
        assert sorted(idle.values()) == [20, 20, 20]
        with millrace.connect(sockets[1]) as one, one.Executor(pool=executor._pool) as others:
            go = one.Event("go")
            blocked = [others.submit(go.wait, PATIENCE_S) for _ in range(30)]
            for host in executor._hosts:
                host.look()
            assert executor._hosts[1].waiting == 30
            futures, busy = squares(executor, 60)
            assert busy[sockets[1]] <= 1 and busy[sockets[0]] >= 29 and busy[sockets[2]] >= 29
            # Those of the busy host wait behind the others.
            go.set()
            assert [future.result(PATIENCE_S) for future in futures] == [number**2 for number in range(60)]
            assert all(future.result(PATIENCE_S) for future in blocked)
        assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
        with pytest.raises(ZeroDivisionError):
            executor.submit(lambda: 1 / 0).result(PATIENCE_S)
        with farm.Executor(workers=2, hosts=sockets[:1]) as alone:
            assert not isinstance(alone, SpreadExecutor) and alone.submit(pow, 2, 3).result(PATIENCE_S) == 8


def test_tasks_of_a_host_that_dies_are_repeated_elsewhere_once(
    served: list[Host], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "millrace")
    sockets = [one.socket for one in served]

    def kill(address: str) -> None:
        process = served[sockets.index(address)].process
        process.kill()
        process.wait()

    def slowly(number: int) -> int:
        time.sleep(1)
        return number

    with millrace.connect(sockets[::-1]) as farm, farm.Executor(workers=4, lost_after=1) as executor:
        running: Any = executor._begin((slowly, (number,), {}) for number in range(12))
        theirs = [future for future in running if future._place[0].address == sockets[0]]
        assert len(theirs) == 4
        kill(sockets[0])
        assert [future.result(PATIENCE_S) for future in running] == list(range(12))
        assert all(future._host.address != sockets[0] for future in running if future._moved)
        assert f"{sockets[0]} is lost" in caplog.text

        left: Any = executor._begin((time.sleep, (3600,), {}) for _ in range(4))
        assert {future._place[0].address for future in left} == set(sockets[1:])
        once = [future for future in left if future._place[0].address == sockets[1]]
        kill(sockets[1])
        deadline = time.monotonic() + PATIENCE_S
        while not all(future._moved and future._host.address == sockets[2] for future in once):
            assert time.monotonic() < deadline, "the tasks were not sent elsewhere"
            time.sleep(0.05)
        kill(sockets[2])
        for future in left:
            with pytest.raises(BrokenExecutor):
                future.result(PATIENCE_S)
        with pytest.raises(BrokenExecutor):
            executor.submit(abs, 1)


def test_a_host_without_the_pool_is_left_out(served: list[Host], caplog: pytest.LogCaptureFixture) -> None:
    sockets = [one.socket for one in served]
    with millrace.connect(sockets[0]) as one, one.Executor(workers=1) as there:
        with millrace.connect(sockets) as farm:
            with farm.Executor(pool=there._pool) as executor:
                futures, where = squares(executor, 9)
                assert sum(future.result(PATIENCE_S) for future in futures) == 204 and where == {sockets[0]: 9}
            assert "no tasks are sent to" in caplog.text
            with pytest.raises(millrace.Error, match="no pool 'none' at") as refused:
                farm.Executor(pool="none")
            assert refused.value.code == "MR7114"


def ran(site: Site, executor: Any) -> int:
    """How many tasks of an executor its host has run, as the command line says."""
    return len(site.rows("run", "ls", "--function", f"pool-{executor._pool}", "-l", "1000"))


def test_tasks_go_to_hosts_with_their_label(sites: list[Site]) -> None:
    addresses = [f"unix:{site.directory}/socket" for site in sites]
    with millrace.connect([site.directory for site in sites]) as farm:
        with farm.Executor(workers=2, label="gpu=a100") as executor:
            assert list(executor.map(abs, range(-20, 0))) == list(range(20, 0, -1))
            assert executor.submit(pow, 2, 3).result(PATIENCE_S) == 8
            assert [ran(site, executor) for site in sites] == [0, 21, 0]
        # Any host, unless a call says otherwise.
        with farm.Executor(workers=2, timeout=600) as executor:
            h100 = executor.on("gpu=h100")
            assert isinstance(h100, millrace.Executor)
            with h100:
                squared: list[Any] = [h100.submit(pow, number, 2) for number in range(9)]
                assert [future.result(PATIENCE_S) for future in squared] == [number**2 for number in range(9)]
            assert {future._place[0].address for future in squared} == {addresses[2]}
            assert [ran(site, executor) for site in sites] == [0, 0, 9]
            done: list[tuple[int, int]] = []
            millrace.parallel_for(executor.on(["gpu=a100"]), 10, abs, workers=3, chunk=2, progress=lambda *now: done.append((now[0], now[1])))
            assert [ran(site, executor) for site in sites] == [0, 5, 9] and done[-1] == (10, 10)
            millrace.parallel_for(executor, 12, abs, workers=12)
            assert all(ran(site, executor) > before for site, before in zip(sites, [0, 5, 9]))
            futures, where = squares(executor, 60)
            assert [future.result(PATIENCE_S) for future in futures] == [number**2 for number in range(60)]
            assert set(where) == set(addresses)
            for label in ("gpu=t4", ["gpu=a100", "zone=barn"]):
                with pytest.raises(millrace.NotFound, match="gpu=h100") as refused:
                    executor.on(label)
                assert refused.value.code == "MR7126"
            with pytest.raises(millrace.Invalid, match="one label 'gpu'"):
                h100.on("gpu=a100")
        with pytest.raises(millrace.NotFound, match="gpu=t4; .*: no labels; .*: gpu=a100") as none:
            farm.Executor(workers=2, label="gpu=t4")
        assert none.value.code == "MR7126"
        for wrong in ("gpu", "=a100", ["gpu=", "x=y"], [b"x=y"]):
            with pytest.raises(millrace.Invalid) as invalid:
                farm.Executor(workers=2, label=wrong)
            assert invalid.value.code == "MR7130"
    # One host has the label or not.
    with millrace.connect(sites[1].directory) as one:
        with one.Executor(workers=2, label="gpu=a100") as executor:
            assert executor.submit(pow, 2, 4).result(PATIENCE_S) == 16
        with one.Executor(workers=2) as executor:
            assert executor.on("gpu=a100").submit(pow, 2, 5).result(PATIENCE_S) == 32
            with pytest.raises(millrace.NotFound):
                executor.on("gpu=h100")


async def until(holds: Callable[[], bool]) -> None:
    """Waits until something is so; the timeout of the test bounds it."""
    while not await asyncio.to_thread(holds):
        await asyncio.sleep(0.05)


def test_asyncio_spreads_tasks_and_knows_labels(sites: list[Site]) -> None:
    async def work() -> None:
        async with millrace.aio.connect([site.directory for site in sites]) as farm:
            async with farm.Executor(workers=2, timeout=500) as executor:
                sync: Any = executor._sync
                found = await asyncio.gather(*(executor.submit(pow, number, 2) for number in range(60)))
                assert found == [number**2 for number in range(60)]
                had = [ran(site, sync) for site in sites]
                assert sum(had) == 60 and min(had) > 0
                h100 = await executor.on("gpu=h100")
                assert [number async for number in h100.map(abs, range(-5, 0))] == [5, 4, 3, 2, 1]
                assert [ran(site, sync) for site in sites] == [*had[:2], had[2] + 5]
                with pytest.raises(millrace.NotFound):
                    await executor.on("gpu=t4")
                with pytest.raises(ZeroDivisionError):
                    await executor.submit(lambda: 1 // 0)
                with pytest.raises(TypeError):
                    await executor.submit(lambda lock: lock, __import__("threading").Lock())
                # A call that has not begun is revoked when its task is cancelled.
                with contextlib.ExitStack() as stack:
                    blocked, gates = [], []
                    for site in sites:
                        one = stack.enter_context(millrace.connect(site.directory))
                        others = stack.enter_context(one.Executor(pool=sync._pool))
                        gates.append(one.Event("go"))
                        blocked += [others.submit(gates[-1].wait, PATIENCE_S) for _ in range(2)]
                    await until(lambda: all(one.running() for one in blocked))
                    behind = [executor.submit(time.sleep, 60) for _ in range(3)]
                    await until(lambda: sum(future._place is not None for future in list(sync._futures.values())) == 3)
                    for task in behind:
                        task.cancel()
                    ended = await asyncio.gather(*behind, return_exceptions=True)
                    assert all(isinstance(one, asyncio.CancelledError) for one in ended)
                    for gate in gates:
                        gate.set()
                    assert all(one.result(PATIENCE_S) for one in blocked)
            async with farm.Executor(workers=2, label="gpu=a100") as executor:
                assert await executor.submit(pow, 2, 6) == 64

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_a_cancellation_is_the_first_to_notice_that_a_host_is_lost(served: list[Host], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "millrace")
    sockets = [one.socket for one in served[:2]]
    heard, waiting, test = threading.Event(), threading.Semaphore(0), threading.current_thread()

    def hold(_: object) -> None:
        waiting.release()
        if threading.current_thread() is not test:
            heard.wait()

    executor: Any
    slow: list[Any] = []
    with millrace.connect(sockets) as farm, farm.Executor(workers=2, lost_after=1, timeout=300) as executor:
        try:
            # Callbacks run in the thread that receives the results of a host, which waits from now on.
            for quick in executor._begin((time.sleep, (2,), {}) for _ in range(2)):
                quick.add_done_callback(hold)
            slow = list(executor._begin((time.sleep, (250,), {}) for _ in range(4)))
            assert collections.Counter(future._place[0].address for future in slow) == dict.fromkeys(sockets, 2)
            assert waiting.acquire(timeout=PATIENCE_S) and waiting.acquire(timeout=PATIENCE_S)
            eventually("they run", lambda: all(future.running() for future in slow))
            lost = [future for future in slow if future._place[0].address == sockets[1]]
            served[1].process.kill()
            served[1].process.wait()
            # One is ended with its host, and the other one is sent to the first host, where it can be revoked before it begins.
            assert lost[0].stop() and lost[0].cancelled()
            assert f"{sockets[1]} is lost, and 1 tasks" in caplog.text
            assert lost[1].cancel() and lost[1].cancelled()
        finally:
            heard.set()
            for future in slow:
                future.stop()


def test_a_host_that_starts_with_another_label_is_known_by_that(sites: list[Site]) -> None:
    one = sites[1]
    executor: Any
    with millrace.connect([site.directory for site in sites]) as farm, farm.Executor(workers=2, timeout=300) as executor:
        a100 = executor.on("gpu=a100")
        assert a100.submit(pow, 2, 2).result(PATIENCE_S) == 4
        one.kill()
        one.label = "gpu=t4"
        one.start()
        assert executor.on("gpu=t4").submit(pow, 2, 3).result(PATIENCE_S) == 8
        with pytest.raises(millrace.NotFound, match="gpu=t4"):
            a100.submit(pow, 2, 4)
        # While tasks are submitted, it is asked again.
        one.kill()
        one.label = "gpu=a100"
        one.start()

        def is_known() -> bool:
            executor.submit(pow, 2, 5).result(PATIENCE_S)
            return any(host.has({"gpu": "a100"}) for host in executor._hosts)

        eventually("the label is known", is_known)
        assert a100.submit(pow, 2, 6).result(PATIENCE_S) == 64


def test_a_host_that_is_back_gets_tasks_again(sites: list[Site], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "millrace")
    lost, address = sites[2], f"unix:{sites[2].directory}/socket"
    executor: Any
    with millrace.connect([site.directory for site in sites]) as farm, farm.Executor(workers=2, lost_after=1, timeout=400) as executor:
        h100 = executor.on("gpu=h100")
        assert h100.submit(pow, 2, 2).result(PATIENCE_S) == 4
        lost.kill()
        assert list(executor.map(abs, range(30), timeout=PATIENCE_S)) == list(range(30))
        eventually("the host is lost", lambda: f"{address} is lost" in caplog.text)
        # No other host has the label; the others have the rest.
        with pytest.raises(BrokenExecutor, match="every host with gpu=h100 is lost"):
            h100.submit(pow, 2, 2)
        assert address not in squares(executor, 30)[1]
        lost.start()
        eventually("the host is back", lambda: f"{address} is back" in caplog.text)
        assert h100.submit(pow, 2, 3).result(PATIENCE_S) == 8
        futures, where = squares(executor, 60)
        assert [future.result(PATIENCE_S) for future in futures] == [number**2 for number in range(60)]
        assert where[address] >= 10
        # It may be lost again, and its tasks go elsewhere again.
        for host in executor._living():
            host.look()
        running: Any = executor._begin((time.sleep, (1,), {}) for _ in range(6))
        assert address in {future._place[0].address for future in running}
        lost.kill()
        assert [future.result(PATIENCE_S) for future in running] == [None] * 6
        # One that is away at the start is not used until it is there.
        with farm.Executor(pool=executor._pool, lost_after=1) as other:
            assert address not in squares(other, 30)[1]
            lost.start()
            eventually("the host is used", lambda: address in squares(other, 3)[1])


def test_a_callback_cancels_another_task_of_the_lost_host(served: list[Host]) -> None:
    sockets = [one.socket for one in served[:2]]
    executor: Any
    with millrace.connect(sockets) as farm, farm.Executor(workers=3, lost_after=1, timeout=300) as executor:
        slow = list(executor._begin((time.sleep, (250,), {}) for _ in range(6)))
        lost = [future for future in slow if future._place[0].address == sockets[1]]
        assert len(lost) == 3
        eventually("they run", lambda: all(future.running() for future in slow))
        took: list[float] = []

        def cancel_others(_: object) -> None:
            begun = time.monotonic()
            assert lost[1].stop()
            took.append(time.monotonic() - begun)

        lost[0].add_done_callback(cancel_others)
        served[1].process.kill()
        served[1].process.wait()
        assert lost[0].stop() and lost[1].cancelled() and len(took) == 1
        # It is at the other host by then, and no wait for a place was in vain.
        assert took[0] < 9
        for future in slow:
            future.stop()
