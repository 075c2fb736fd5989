"""Threads that a method or a task starts: each of them calls objects, and none waits for the calls of another one."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import PATIENCE_S

import millrace
from millrace._work import _channel

pytest.importorskip("cloudpickle")


def _beside(*works: Callable[[], Any]) -> list[Any]:
    """Each in a thread of its own; what they returned."""
    with ThreadPoolExecutor(len(works)) as threads:
        return [future.result() for future in [threads.submit(work) for work in works]]


@millrace.shared(timeout=30.0)
class Room:
    """Its methods start threads."""

    def __init__(self, queue: Any, count: Any) -> None:
        self.queue, self.count, self.n = queue, count, 0
        self.seen: list[str] = []

    def plain(self) -> str:
        """A thread waits for what another one puts after it."""
        return str(_beside(self.queue.get, lambda: time.sleep(0.3), lambda: self.queue.put("put"))[0])

    async def later(self) -> str:
        """The same with threads that an event loop awaits, while it awaits a call itself."""
        waits = asyncio.to_thread(self.queue.sync.get)
        got, n, _ = await asyncio.gather(waits, self.count.add_and_get(), self._put())
        return f"{got} {n}"

    async def _put(self) -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(self.queue.sync.put, "put")

    def many(self, threads: int, times: int) -> int:
        def work() -> None:
            for _ in range(times):
                self.count.add()

        _beside(*[work] * threads)
        return int(self.count.get())

    async def comes_back(self, relay: Any, me: Any, names: list[str]) -> list[str]:
        """Threads call a relay, which calls this object. Another one waits meanwhile."""
        waits = asyncio.create_task(asyncio.to_thread(self.queue.sync.get))
        self.thread = threading.get_ident()
        # One after the other: while the relay waits for a method of this object, the host refuses further calls of the relay.
        for name in names:
            await asyncio.to_thread(relay.sync.go, me.sync, name)
        await self.queue.put("put")
        self.seen.append(await waits)
        self.thread = 0
        return self.seen

    @millrace.reentrant
    def within(self) -> None:
        assert self.thread == threading.get_ident(), "it runs in the thread of the event loop"
        self.count.add()
        self.seen.append("plain")

    @millrace.reentrant
    async def within_later(self) -> None:
        assert self.thread == threading.get_ident()
        await self.count.add()
        self.seen.append("async")

    def leaves(self) -> None:
        """Returns while one of its threads waits."""
        self.n += 1
        threading.Thread(target=self.queue.get, daemon=True).start()
        time.sleep(0.2)


@millrace.shared(timeout=30.0)
class Relay:
    def go(self, target: Any, name: str) -> None:
        getattr(target, name)()


@pytest.fixture
def room(farm: millrace.Connection, request: pytest.FixtureRequest) -> Any:
    name = request.node.name
    return farm.shared(Room)(name, farm.Queue(f"{name}-queue"), farm.AtomicInt(f"{name}-count"))


def test_a_thread_calls_while_another_one_waits(room: Any) -> None:
    assert [room.plain(), room.later(), room.plain()] == ["put", "put 1", "put"]


def test_the_threads_of_a_task_call_while_others_wait(farm: millrace.Connection) -> None:
    queue, count = farm.Queue("task-queue"), farm.AtomicInt("task-count")

    def task() -> tuple[list[Any], int]:
        got = _beside(queue.get, queue.get, *[count.add_and_get] * 20, lambda: queue.put(1), lambda: queue.put(2))
        return sorted(got[:2]), count.get()

    with farm.Executor(workers=1) as executor:
        for round in (1, 2):
            assert executor.submit(task).result(PATIENCE_S) == ([1, 2], 20 * round)


def test_calls_of_many_threads_take_effect_once(room: Any) -> None:
    assert room.many(16, 50) == 800


def test_what_comes_back_to_a_thread_runs_in_the_event_loop(room: Any, farm: millrace.Connection) -> None:
    relay = farm.shared(Relay)("of-threads")
    names = ["within", "within_later", "within", "within_later"]
    seen = room.comes_back(relay, room, names)
    assert sorted(seen[:4]) == ["async", "async", "plain", "plain"] and seen[4] == "put"


def test_a_thread_that_outlives_its_method_hinders_no_other(room: Any, farm: millrace.Connection) -> None:
    begun = time.monotonic()
    room.leaves()
    room.leaves()
    assert time.monotonic() - begun < 20, "the method does not wait for its thread"
    assert farm.AtomicInt("after").add_and_get() == 1 and room.many(2, 3) == 6


def test_an_event_loop_is_not_stopped_by_an_answer_that_was_received_meanwhile() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel, answers = _channel.Channel(ours.fileno()), []  # type: Any, list[bytes]
        channel._calls.update({1: answers.append, 2: answers.append})
        theirs.send(_channel.HEAD.pack(0, _channel.ANSWER, 0, 0, 0, 1))
        channel.answers()
        again = threading.Thread(target=channel.answers, daemon=True)
        again.start()
        again.join(PATIENCE_S)
        assert not again.is_alive() and len(answers) == 1
        theirs.send(_channel.HEAD.pack(0, _channel.ANSWER, 0, 0, 0, 2))
        channel.answers()
        assert len(answers) == 2


def test_a_thread_that_a_task_leaves_behind_takes_no_item(farm: millrace.Connection) -> None:
    queue = farm.Queue("left-behind")

    def leave(queue: Any) -> None:
        threading.Thread(target=queue.get, daemon=True).start()
        time.sleep(0.5)

    with farm.Executor(workers=1) as executor:
        executor.submit(leave, queue).result(PATIENCE_S)
        for number in range(3):
            queue.put(number)
        assert [queue.get(timeout=PATIENCE_S) for _ in range(3)] == [0, 1, 2]


def test_a_task_and_a_thread_beside_one_that_waits_make_any_number_of_calls(farm: millrace.Connection) -> None:
    queue, count = farm.Queue("waited-for"), farm.AtomicInt("many-calls")
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(queue.get()))
    waiting.start()
    calls = 45_000

    def many(count: Any) -> None:
        for _ in range(calls):
            count.add()

    with farm.Executor(workers=1) as executor:
        task = executor.submit(many, count)
        many(count)
        task.result(PATIENCE_S)
    assert count.get() == 2 * calls
    queue.put("it")
    waiting.join(PATIENCE_S)
    assert got == ["it"]


def test_tasks_receive_any_number_of_long_items(farm: millrace.Connection) -> None:
    items, item = 50, b"x" * (1 << 20)
    queues = [farm.Queue(f"long-{at}", 2) for at in range(6)]

    def receive(queue: Any) -> int:
        return sum(len(queue.get()) for _ in range(items))

    with farm.Executor(workers=len(queues)) as executor:
        tasks = [executor.submit(receive, queue) for queue in queues]
        for _ in range(items):
            for queue in queues:
                queue.put(item, timeout=PATIENCE_S)
        assert [task.result(PATIENCE_S) for task in tasks] == [items << 20] * len(queues)
