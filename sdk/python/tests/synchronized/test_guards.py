"""Guarded methods of shared classes: calls wait, as data in the host, until a condition on the fields holds."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, cluster

import millrace
import millrace.aio

pytest.importorskip("cloudpickle")


@millrace.shared
class Buffer:
    """Keeps as many items as fit."""

    def __init__(self, size: int) -> None:
        self.size, self.most = size, 0
        self.items: list[Any] = []

    @millrace.when(lambda self, item: len(self.items) < self.size)
    def put(self, item: Any) -> None:
        self.items.append(item)
        self.most = max(self.most, len(self.items))

    @millrace.when(lambda self: self.items)
    def get(self) -> Any:
        return self.items.pop(0)

    @millrace.when(lambda self: self.items, timeout=0.2)
    def get_soon(self) -> Any:
        return self.items.pop(0)

    @millrace.readonly
    @millrace.when(lambda self, count: len(self.items) >= count)
    def has(self, count: int) -> int:
        return len(self.items)

    @millrace.readonly
    def fullest(self) -> int:
        return self.most


@millrace.shared
class Table:
    """Forks of philosophers. One that eats has both beside it."""

    def __init__(self, seats: int) -> None:
        self.taken = [False] * seats

    def _both(self, seat: int) -> tuple[int, int]:
        return seat, (seat + 1) % len(self.taken)

    @millrace.when(lambda self, seat: not any(self.taken[fork] for fork in self._both(seat)))
    def pick(self, seat: int) -> None:
        for fork in self._both(seat):
            self.taken[fork] = True

    def drop(self, seat: int) -> None:
        for fork in self._both(seat):
            assert self.taken[fork]
            self.taken[fork] = False


@millrace.shared
class Careless:
    """Has guards that do what they must not."""

    def __init__(self) -> None:
        self.tries = 0
        self.other: Any = None

    def _count(self) -> bool:
        self.tries += 1
        return False

    @millrace.when(_count)
    def counts(self) -> None: ...

    @millrace.when(lambda self: self.missing)
    def fails(self) -> None: ...

    @millrace.when(lambda self: self.other.get())
    def calls(self) -> None: ...

    def know(self, other: Any) -> None:
        self.other = other

    def tried(self) -> int:
        return self.tries


def waiting(farm: millrace.Connection, key: str) -> int:
    """How many calls wait for an object."""
    shown = json.loads(farm.remote.show("objects"))["objects"]
    return sum(one["waiting"] for one in shown if one["key"] == key)


def until(farm: millrace.Connection, key: str, calls: int) -> None:
    patience = time.monotonic() + PATIENCE_S
    while waiting(farm, key) != calls:
        assert time.monotonic() < patience, f"{waiting(farm, key)} calls wait for {key}"
        time.sleep(0.01)


def together(*work: Callable[[], None]) -> None:
    """Runs functions in threads of their own."""
    failures: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures and not any(thread.is_alive() for thread in threads), failures


def test_a_bounded_buffer(farm: millrace.Connection) -> None:
    buffer = farm.shared(Buffer)("buffer", 3)
    found: list[list[int]] = [[], []]

    def produce(first: int) -> Callable[[], None]:
        def put_all() -> None:
            for item in range(first, first + 20):
                buffer.put(item)

        return put_all

    def consume(into: list[int]) -> Callable[[], None]:
        return lambda: into.extend(buffer.get() for _ in range(20))

    together(produce(0), produce(100), *map(consume, found))
    assert sorted(found[0] + found[1]) == [*range(20), *range(100, 120)]
    for own in found:
        assert own == sorted(item for item in own if item < 100) + [item for item in own if item >= 100] or len(own) == 20
    assert 1 <= buffer.fullest() <= 3


def test_dining_philosophers(farm: millrace.Connection) -> None:
    table = farm.shared(Table)("table", 5)
    meals = [0] * 5

    def dine(seat: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(8):
                table.pick(seat)
                meals[seat] += 1
                table.drop(seat)

        return run

    together(*map(dine, range(5)))
    assert meals == [8] * 5


def test_waiting_calls_are_tried_in_their_order_and_overtaken_by_those_that_may(farm: millrace.Connection) -> None:
    buffer = farm.shared(Buffer)("order", 9)
    found: list[tuple[str, Any]] = []

    def get(name: str) -> threading.Thread:
        thread = threading.Thread(target=lambda: found.append((name, buffer.get())))
        thread.start()
        return thread

    threads = [threading.Thread(target=lambda: found.append(("two", buffer.has(2))))]
    threads[0].start()
    until(farm, "order", 1)
    for number, name in enumerate(("first", "second")):
        threads.append(get(name))
        until(farm, "order", number + 2)
    buffer.put(1)
    threads[1].join(PATIENCE_S)
    assert found == [("first", 1)] and waiting(farm, "order") == 2
    buffer.put(2)
    threads[2].join(PATIENCE_S)
    buffer.put(3)
    buffer.put(4)
    threads[0].join(PATIENCE_S)
    assert found == [("first", 1), ("second", 2), ("two", 2)]


def test_a_call_that_waits_too_long_raises_and_leaves(farm: millrace.Connection) -> None:
    buffer = farm.shared(Buffer)("timeout", 1)
    with pytest.raises(TimeoutError, match="the guard of the method did not hold"):
        buffer.get_soon()
    with pytest.raises(TimeoutError, match="the guard of the method did not hold"):
        buffer.with_options(timeout=0.1).get()
    assert waiting(farm, "timeout") == 0
    buffer.put("x")
    assert buffer.with_options(timeout=PATIENCE_S).get() == "x"
    with pytest.raises(ValueError):
        millrace.when(lambda self: True, timeout=0)
    with pytest.raises(TypeError, match="a guard must be a function"):
        millrace.when(True)  # type: ignore[arg-type]


#: Waits for an item that never comes.
DOOMED = """
import sys
import millrace

sys.path.insert(0, sys.argv[2])
import doomed
millrace.register_module(doomed)
farm = millrace.connect(sys.argv[1], app="doomed", lease=0.5)
farm.shared(doomed.Buffer, pool=sys.argv[3])("doomed").get()
"""

CLASS = """
import millrace

@millrace.shared
class Buffer:
    def __init__(self):
        self.items = []

    def put(self, item):
        self.items.append(item)

    @millrace.when(lambda self: self.items)
    def get(self):
        return self.items.pop(0)
"""


def test_a_waiter_whose_program_is_killed_takes_nothing(
    ns: millrace.Namespace, host: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = host(ns)
    (tmp_path / "doomed.py").write_text(CLASS)
    (tmp_path / "program.py").write_text(DOOMED)
    monkeypatch.syspath_prepend(str(tmp_path))
    import doomed  # type: ignore[import-not-found]

    millrace.register_module(doomed)
    with millrace.connect(served.socket, app="doomed") as farm:
        shared = farm.shared(doomed.Buffer)
        buffer = shared("doomed")
        command = [sys.executable, str(tmp_path / "program.py"), served.socket, str(tmp_path), shared._about[1]]
        with subprocess.Popen(command, cwd="/") as process:
            try:
                until(farm, "doomed", 1)
            finally:
                process.kill()
        until(farm, "doomed", 0)
        buffer.put("x")
        assert buffer.get() == "x", "the killed program's call did not take it"


def test_waiting_calls_survive_a_restart(ns: millrace.Namespace, host: Callable[..., Any]) -> None:
    served = host(ns)
    millrace.register_module(sys.modules[__name__])
    farm = millrace.connect(served.socket)
    buffer = farm.shared(Buffer, persistent=True)("kept", 2)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(buffer.get()))
    thread.start()
    until(farm, "kept", 1)
    served.process.kill()
    served.process.wait(60)
    host(ns)
    buffer.put("x")
    thread.join(PATIENCE_S)
    assert found == ["x"]
    farm.close()


def test_guards_only_read(farm: millrace.Connection) -> None:
    careless = farm.shared(Careless)("careless")
    with pytest.raises(TypeError, match="the guard of Careless.counts has changed 'tries'"):
        careless.counts()
    assert careless.tried() == 0
    with pytest.raises(AttributeError, match="missing"):
        careless.fails()
    careless.know(farm.AtomicBool("open"))
    with pytest.raises(RuntimeError, match="a guard reads the fields of its own object"):
        careless.calls()
    assert Buffer(1).put("x") is None, "the class itself is an ordinary one"


def test_guards_for_asyncio(farm: millrace.Connection) -> None:
    async def main() -> None:
        async with millrace.aio.connect(farm.address, app=farm.application) as other:
            buffer = (await other.shared(Buffer))("async", 1)
            getting = asyncio.ensure_future(buffer.get())
            await asyncio.to_thread(until, farm, "async", 1)
            await buffer.put("x")
            assert await asyncio.wait_for(getting, PATIENCE_S) == "x"
            cancelled = asyncio.ensure_future(buffer.get())
            await asyncio.to_thread(until, farm, "async", 1)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
            await asyncio.to_thread(until, farm, "async", 0)
            with pytest.raises(TimeoutError):
                await buffer.with_options(timeout=0.1).get()

    asyncio.run(main())


def test_waiting_calls_survive_the_loss_of_their_host(binary: Path, tmp_path: Path) -> None:
    millrace.register_module(sys.modules[__name__])
    with cluster(binary, tmp_path) as sites, millrace.connect([site.directory for site in sites], lease=60) as farm:
        buffer = farm.shared(Buffer, persistent=True, rf=2)("copied", 2)
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(buffer.get()))
        thread.start()

        def waits() -> bool:
            rows = sites[2].rows("entity", "ls")
            return any(row["key"] == "copied" and row["waiting"] for row in rows)

        patience = time.monotonic() + PATIENCE_S
        while not waits():
            assert time.monotonic() < patience
            time.sleep(0.05)
        sites[0].kill()
        buffer.put("x")
        thread.join(PATIENCE_S)
        assert found == ["x"]
