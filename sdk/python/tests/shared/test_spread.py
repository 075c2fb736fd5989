"""Executors over several hosts: tasks go where the fewest wait, and once more elsewhere if their host is lost."""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Host

import millrace
from millrace.executor._hosts import SpreadExecutor

pytest.importorskip("cloudpickle")
_PATIENCE_S = 120


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
        assert [future.result(_PATIENCE_S) for future in futures] == [number**2 for number in range(60)]
        assert sorted(idle.values()) == [20, 20, 20]
        with millrace.connect(sockets[1]) as one, one.Executor(pool=executor._pool) as others:
            go = one.Event("go")
            blocked = [others.submit(go.wait, _PATIENCE_S) for _ in range(30)]
            for host in executor._hosts:
                host.look()
            assert executor._hosts[1].waiting == 30
            futures, busy = squares(executor, 60)
            assert busy[sockets[1]] <= 1 and busy[sockets[0]] >= 29 and busy[sockets[2]] >= 29
            # Those of the busy host wait behind the others.
            go.set()
            assert [future.result(_PATIENCE_S) for future in futures] == [number**2 for number in range(60)]
            assert all(future.result(_PATIENCE_S) for future in blocked)
        assert list(executor.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
        with pytest.raises(ZeroDivisionError):
            executor.submit(lambda: 1 / 0).result(_PATIENCE_S)
        with farm.Executor(workers=2, hosts=sockets[:1]) as alone:
            assert not isinstance(alone, SpreadExecutor) and alone.submit(pow, 2, 3).result(_PATIENCE_S) == 8


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
        assert [future.result(_PATIENCE_S) for future in running] == list(range(12))
        assert all(future._place[0].address != sockets[0] for future in running if future._moved)
        assert f"{sockets[0]} is lost" in caplog.text

        left: Any = executor._begin((time.sleep, (3600,), {}) for _ in range(4))
        assert {future._place[0].address for future in left} == set(sockets[1:])
        once = [future for future in left if future._place[0].address == sockets[1]]
        kill(sockets[1])
        deadline = time.monotonic() + _PATIENCE_S
        while not all(future._moved and future._place[0].address == sockets[2] for future in once):
            assert time.monotonic() < deadline, "the tasks were not sent elsewhere"
            time.sleep(0.05)
        kill(sockets[2])
        for future in left:
            with pytest.raises(BrokenExecutor):
                future.result(_PATIENCE_S)
        with pytest.raises(BrokenExecutor):
            executor.submit(abs, 1)


def test_a_host_without_the_pool_is_left_out(served: list[Host], caplog: pytest.LogCaptureFixture) -> None:
    sockets = [one.socket for one in served]
    with millrace.connect(sockets[0]) as one, one.Executor(workers=1) as there:
        with millrace.connect(sockets) as farm:
            with farm.Executor(pool=there._pool) as executor:
                futures, where = squares(executor, 9)
                assert sum(future.result(_PATIENCE_S) for future in futures) == 204 and where == {sockets[0]: 9}
            assert "no tasks are sent to" in caplog.text
            with pytest.raises(millrace.Error, match="no pool 'none' at") as refused:
                farm.Executor(pool="none")
            assert refused.value.code == "MR7114"
