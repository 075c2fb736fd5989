"""Shared objects and executors for asyncio."""

from __future__ import annotations

import asyncio
import os
import queue
import struct
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Host

import millrace
import millrace.aio
from millrace.aio import _messages
from millrace.aio import _wire
from millrace.executor._results import TaskFuture
from millrace.objects import _spaces, _values

pytest.importorskip("cloudpickle")
_PATIENCE_S = 120


@pytest.fixture(scope="module")
def near(binary: Path) -> Iterator[millrace.Connection]:
    """A private host."""
    os.environ["MILLRACE_BIN"] = str(binary)
    with millrace.connect() as connection:
        yield connection


def run(near: millrace.Connection, test: Callable[[millrace.aio.Connection], Awaitable[None]]) -> None:
    """Runs a test with a connection."""

    async def main() -> None:
        async with millrace.aio.connect(near.address) as farm:
            await asyncio.wait_for(test(farm), _PATIENCE_S)

    asyncio.run(main())


def test_objects_have_the_methods_of_the_others(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        hits = farm.AtomicInt("hits")
        assert await asyncio.gather(*(hits.add() for _ in range(50))) and await hits.get() == 50
        words = farm.Dict("words")
        await words.set_item("x", (1, {2}))
        assert await words.get_item("x") == (1, {2}) and await words.contains("x") and await words.length() == 1
        await words.del_item("x")
        with pytest.raises(KeyError):
            await words.get_item("x")
        numbers = farm.List("numbers")
        await numbers.extend([1, 2, 3])
        assert [value async for value in numbers] == [1, 2, 3] and await numbers.get_item(slice(1, None)) == [2, 3]
        jobs = farm.Queue("jobs", 1)
        await jobs.put("a")
        assert await jobs.full() and await jobs.get() == "a" and await jobs.empty()
        with pytest.raises(queue.Empty):
            await jobs.get(timeout=0.01)
        with pytest.raises(AttributeError):
            await jobs.nonsense()
        with pytest.raises(OverflowError):
            await hits.multiply(1 << 62)
        with pytest.raises(millrace.Conflict):
            await farm.List("hits").length()
        assert await farm.Semaphore("permits", 3).value() == 3

    run(near, test)


def test_those_who_wait_take_no_threads(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        before = threading.active_count()
        latch, barrier = farm.CountDownLatch("latch", 1), farm.Barrier("barrier", 300)
        waiting = [asyncio.ensure_future(latch.wait()) for _ in range(700)]
        meeting = [asyncio.ensure_future(barrier.wait()) for _ in range(300)]
        assert sorted(await asyncio.gather(*meeting)) == list(range(300))
        assert threading.active_count() == before
        await latch.count_down()
        assert all(await asyncio.gather(*waiting))

    run(near, test)


def test_a_cancelled_call_keeps_nothing(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        lock, permits, jobs = farm.Lock("cancel"), farm.Semaphore("cancel-permits", 1), farm.Queue("cancel-jobs")
        for _ in range(20):
            async with lock:
                waiting = asyncio.ensure_future(lock.acquire())
                await asyncio.sleep(0)
            # The lock may be its own by now, or not.
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not await lock.locked()
            assert await permits.acquire()
            waiting = asyncio.ensure_future(permits.acquire())
            await asyncio.sleep(0)
            await permits.release()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await permits.value() == 1
            waiting = asyncio.ensure_future(jobs.get())
            await asyncio.sleep(0)
            await jobs.put("item")
            waiting.cancel()
            later = asyncio.ensure_future(jobs.put("later"))
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await later
            assert await jobs.qsize() == 2
            assert [await jobs.get(block=False), await jobs.get(block=False)] == ["item", "later"]
            await jobs.task_done()
            await jobs.task_done()
        await jobs.join()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(farm.Event("never").wait(), 0.01)

    run(near, test)


def test_a_condition_has_its_lock_again_when_its_waiter_is_cancelled(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        condition, items = farm.Condition("condition"), farm.List("items")

        async def take() -> Any:
            async with condition:
                await condition.wait_until(items.length)
                return await items.pop()

        taking = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        async with condition:
            await items.append(7)
            await condition.notify()
        assert await taking == 7

        async def wait() -> None:
            async with condition:
                entered.set()
                await condition.wait()

        entered = asyncio.Event()
        waiting = asyncio.ensure_future(wait())
        await entered.wait()
        async with condition:
            waiting.cancel()
            # It has to have the lock before it ends.
            await asyncio.sleep(0.05)
            assert not waiting.done()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not await condition.locked()

    run(near, test)


def test_calls_count_once_over_lost_connections(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        hits, jobs = farm.AtomicInt("lost-hits"), farm.Queue("lost-jobs")
        waiting = asyncio.ensure_future(jobs.get())
        adding = [asyncio.ensure_future(hits.add()) for _ in range(200)]
        for _ in range(10):
            await asyncio.sleep(0.002)
            assert isinstance(farm._wire, _wire.Wire)
            for writer in list(farm._wire._writers):
                writer.transport.abort()
        assert sorted(await asyncio.gather(*adding)) == list(range(1, 201))
        await jobs.put("there")
        assert await waiting == "there"

    run(near, test)


def test_a_call_that_has_waited_for_long_is_sent_again_over_a_new_connection(
    near: millrace.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a host that cannot be reached is tried again.
    monkeypatch.setattr(_wire, "_PATIENCE_S", 0.5)

    async def test(farm: millrace.aio.Connection) -> None:
        jobs = farm.Queue("long-waits")
        waiting = asyncio.ensure_future(jobs.get())
        await asyncio.sleep(1.5)
        assert isinstance(farm._wire, _wire.Wire)
        for writer in list(farm._wire._writers):
            writer.transport.abort()
        await jobs.put("there")
        assert await waiting == "there"

    run(near, test)


def test_a_call_that_is_cancelled_while_it_is_sent_is_revoked() -> None:
    async def main() -> None:
        sent, answered, revoked = asyncio.Event(), asyncio.Event(), []

        async def insist(kind: int, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            if kind == _messages.REVOKE:
                revoked.append(message["task"])
                return kind, {}
            sent.set()
            await answered.wait()
            return kind, {"first": 7}

        wire = SimpleNamespace(insist=insist)
        executor = millrace.aio.Executor(SimpleNamespace(_wire=wire))  # type: ignore[arg-type]
        sync: Any = SimpleNamespace(
            _pool="pool",
            _lock=threading.Lock(),
            _idle=SimpleNamespace(notify_all=lambda: None),
            _futures={},
            _check=lambda *_: None,
            _body=lambda fn: (b"digest", b"body"),
            _task=lambda *_, **__: (b"id", b"task", TaskFuture()),
        )
        body = asyncio.get_running_loop().create_future()
        body.set_result(1)
        executor._bodies[b"digest"] = body
        call = asyncio.create_task(executor._run(sync, pow, (), {}))
        await sent.wait()
        call.cancel()
        await asyncio.wait([call])
        answered.set()
        await asyncio.wait_for(executor.shutdown(), _PATIENCE_S)
        assert call.cancelled() and revoked == [7]

    asyncio.run(main())


def test_a_frame_that_cannot_be_read_ends_the_requests_that_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async def host(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)
            await reader.readexactly(struct.unpack("<I", await reader.readexactly(4))[0])
            body = _values.encode([_messages.WELCOME, 1, 0, None, {}])
            writer.write(struct.pack("<I", len(body)) + body)
            await reader.readexactly(4)
            writer.write(frame)
            try:
                await reader.read()
            finally:
                writer.close()

        for frame in (struct.pack("<I", (1 << 32) - 1), struct.pack("<I", 1) + _values.encode(7)):
            path = str(tmp_path / "s")
            async with await asyncio.start_unix_server(host, path):
                wire = _wire.Wire([path])
                with pytest.raises(_wire.Lost):
                    await asyncio.wait_for(wire.ask(_messages.PING, {}), _PATIENCE_S)
                await wire.close()

    asyncio.run(main())


def test_tasks_are_awaited(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        total, go = farm.AtomicLong("aio-total"), farm.Event("aio-go")
        async with farm.Executor(workers=2) as executor:
            assert await executor.submit(pow, 2, 20) == 1 << 20
            assert [value async for value in executor.map(abs, range(-20, 0))] == list(range(20, 0, -1))
            with pytest.raises(ZeroDivisionError) as raised:
                await executor.submit(lambda: 1 / 0)
            assert "Traceback" in str(raised.value.__cause__)
            shared = total.sync
            await asyncio.gather(*(executor.submit(lambda n: shared.add(n), n) for n in range(10)))
            assert await total.get() == 45
            event = go.sync
            blocked = [executor.submit(lambda: event.wait()) for _ in range(2)]
            late = executor.submit(lambda: shared.add(1000))
            await asyncio.sleep(0.05)
            late.cancel()
            with pytest.raises(asyncio.CancelledError):
                await late
            await go.set()
            assert await asyncio.gather(*blocked) == [True, True]
        with pytest.raises(RuntimeError):
            executor.submit(abs, 1)

    run(near, test)


@pytest.mark.parametrize("transport", ["socket", "address"])
def test_any_number_of_coroutines_wait_and_others_call_meanwhile(
    ns: millrace.Namespace, host: Callable[..., Host], transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = host(ns)
    # No request ends before the test gives up.
    monkeypatch.setattr(_spaces, "_SLICE_S", _PATIENCE_S + 30.0)

    async def main() -> None:
        # More than a host reads from one connection, or the native module sends.
        count = 6000 if transport == "socket" else 1500
        # The calls begin in one turn of the loop, for which a slow machine needs seconds.
        async with millrace.aio.connect(getattr(served, transport), lease=15) as farm:
            gate, permits, hits = farm.Event("gate"), farm.Semaphore("permits", 1), farm.AtomicInt("hits")
            lease, renewals = farm._space._lease, []

            async def counted(*arguments: Any) -> None:
                await lease(*arguments)
                renewals.append(arguments)

            monkeypatch.setattr(farm._space, "_lease", counted)
            await permits.acquire()
            waiting = [asyncio.create_task(gate.wait()) for _ in range(count // 2)]
            waiting += [asyncio.create_task(permits.acquire()) for _ in range(count // 2)]
            while await hits.add() < 2 * count and sum(farm._space._open) < sum(range(1, count)):
                await asyncio.sleep(0)
            before = len(renewals)
            while len(renewals) == before:
                await asyncio.sleep(0.1)
            assert await hits.add() > 1 and not any(task.done() for task in waiting), "the session is renewed"
            await gate.set()
            for _ in range(count // 2):
                await permits.release()
            assert all(await asyncio.gather(*waiting))
            # Later calls need no more connections.
            assert await hits.add() > 1

    asyncio.run(asyncio.wait_for(main(), _PATIENCE_S))


def test_what_is_not_reached_is_refused(ns: millrace.Namespace, host: Callable[..., Host], tmp_path: Path) -> None:
    async def missing() -> None:
        await _wire.Wire([str(tmp_path / "none")]).connect()

    with pytest.raises(millrace.Unavailable) as gone:
        asyncio.run(missing())
    assert gone.value.code == "MR6121"


def test_hosts_at_other_addresses_are_reached(ns: millrace.Namespace, host: Callable[..., Host], tmp_path: Path) -> None:
    served = host(ns)

    async def main() -> None:
        with millrace.connect(served.socket) as near, near.Executor(workers=2) as local:
            async with millrace.aio.connect(served.address, lease=2) as farm, millrace.aio.connect(served.address) as other:
                assert isinstance(farm._wire, _wire.Tunnel)
                hits, lock, jobs = farm.AtomicInt("hits"), farm.Lock("door"), farm.Queue("jobs")
                before = threading.active_count()
                waiting = [asyncio.create_task(jobs.get()) for _ in range(50)]
                assert sorted(await asyncio.gather(*(hits.add() for _ in range(50)))) == list(range(1, 51))
                assert threading.active_count() <= before, "no thread for a call"
                for item in range(50):
                    await jobs.put(item)
                assert sorted(await asyncio.gather(*waiting)) == list(range(50))
                async with lock:
                    blocked = asyncio.create_task(other.Lock("door").acquire())
                    await asyncio.sleep(0.05)
                    blocked.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await blocked
                assert not await lock.locked()
                with pytest.raises(queue.Empty):
                    await jobs.get(timeout=0.01)
                async with farm.Executor(pool=local._pool) as executor:
                    assert await asyncio.gather(*(executor.submit(pow, 2, n) for n in range(5))) == [1, 2, 4, 8, 16]
                await asyncio.sleep(3)
                assert await lock.acquire(), "the session is renewed"

    asyncio.run(asyncio.wait_for(main(), _PATIENCE_S))


def test_a_capability_goes_with_calls_to_other_addresses(
    ns: millrace.Namespace, host: Callable[..., Host], binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, path = host(ns), tmp_path / "reader.cap"
    command = [str(binary), "-n", ns.address, "cap", "issue", "--allow", "read,call,create=object:AtomicInt/hits", "--out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("MILLRACE_CAPABILITY", str(path))

    async def main() -> None:
        async with millrace.aio.connect(served.address) as farm:
            assert await farm.AtomicInt("hits").add(2) == 2
            with pytest.raises(millrace.Denied):
                await farm.AtomicInt("others").add(1)

    asyncio.run(asyncio.wait_for(main(), _PATIENCE_S))


def test_calls_to_other_addresses_count_once_over_lost_connections(
    ns: millrace.Namespace, host: Callable[..., Host], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_wire, "_PATIENCE_S", _PATIENCE_S)
    first = host(ns, f"127.0.0.1:{port}")

    async def main() -> None:
        nonlocal first
        async with millrace.aio.connect(first.address, lease=60) as farm:
            visits = farm.AtomicInt("visits", persistent=True)
            assert await visits.add() == 1
            calls = [asyncio.create_task(visits.add()) for _ in range(100)]
            await asyncio.sleep(0)
            first.process.kill()
            await asyncio.to_thread(first.process.wait)
            await asyncio.to_thread(host, ns, f"127.0.0.1:{port}")
            assert sorted(await asyncio.gather(*calls)) == list(range(2, 102))

    asyncio.run(asyncio.wait_for(main(), _PATIENCE_S))


def test_callbacks_of_futures_are_called(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        told: asyncio.Queue[Any] = asyncio.Queue()
        future = farm.Future("told")
        future.add_done_callback(told.put_nowait)
        await asyncio.sleep(0.01)
        assert told.empty()
        await future.set_result(1)
        assert await told.get() is future and await future.result() == 1
        with pytest.raises(AttributeError):
            farm.Lock("door").add_done_callback(print)
        numbers = farm.List("numbers")
        await numbers.extend([3, 1, 2])
        await numbers.sort(reverse=True)
        assert await numbers.copy() == [3, 2, 1]
        await numbers.set_item(slice(0, 3, 2), [7, 8])
        await numbers.remove(2)
        assert await numbers.copy() == [7, 8] and await numbers.contains(7)

    run(near, test)


@millrace.shared
class Account:
    """Has cents."""

    def __init__(self, owner: str) -> None:
        self.owner, self.cents = owner, 0

    def pay(self, cents: int) -> int:
        self.cents += cents
        return self.cents

    def transfer(self, cents: int, to: Any) -> None:
        if cents > self.cents:
            raise ValueError(f"{self.owner} has only {self.cents} cents")
        self.cents -= cents
        to.pay(cents)

    @millrace.readonly
    def balance(self) -> int:
        return self.cents

    def __len__(self) -> int:
        return self.cents


def test_objects_of_user_classes_are_awaited(near: millrace.Connection) -> None:
    async def test(farm: millrace.aio.Connection) -> None:
        async with farm.Executor(workers=2) as executor:
            accounts = await farm.shared(Account, executor=executor)
            ann, bob = accounts("account/ann", "Ann"), accounts("account/bob", "Bob")
            assert await ann.pay(500) == 500
            await asyncio.gather(*(ann.transfer(50, bob) for _ in range(4)))
            assert (await ann.balance(), await bob.balance()) == (300, 200)
            assert await bob.length() == 200
            with pytest.raises(ValueError, match="Bob has only 200 cents"):
                await bob.transfer(201, ann)
            with pytest.raises(AttributeError):
                await ann.steal()
            assert await executor.submit(lambda account: account.pay(1), ann) == 301
            # A program of threads uses the same object.
            assert accounts.sync("account/ann").balance() == 301
            assert await farm.delete(bob) and not await farm.delete(bob)
            with pytest.raises(millrace.Error):
                await bob.balance()

    register = millrace.register_module
    register(__import__(__name__))
    run(near, test)
