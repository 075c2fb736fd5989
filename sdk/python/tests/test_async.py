"""The same for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
from conftest import Host

import millrace
from millrace import codecs

Test = Callable[[millrace.AsyncNamespace], Coroutine[None, None, None]]


@pytest.fixture(params=["memory", "disk", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path, host: Callable[..., Host]) -> Iterator[str]:
    durability = "disk" if request.param == "disk" else "memory"
    with millrace.create(tmp_path / "ns", durability=durability, segment_bytes=1 << 20) as namespace:
        namespace.create_log("raw")
        yield host(namespace).address if request.param == "remote" else namespace.address


def run(place: str, test: Test) -> None:
    async def main() -> None:
        async with millrace.aopen(place) as ns:
            await test(ns)

    asyncio.run(asyncio.wait_for(main(), 240))


def test_every_method_answers(place: str) -> None:
    async def test(ns: millrace.AsyncNamespace) -> None:
        assert await ns.append("raw", {"a": 1}) == 1
        assert await ns.append_many([("raw", b"2"), ("raw", b"3")]) == [2, 3]
        assert (await ns.get("raw", 1)).json() == {"a": 1} and (await ns.get("raw")).seqno == 3
        assert await ns.latest("raw") == 3
        assert [record.seqno async for record in ns.range("raw", 2)] == [2, 3]
        await ns.create_log("other")
        assert [log.name for log in await ns.logs() if not log.name.startswith("_")] == ["other", "raw"]
        await ns.set_history("other", None)
        assert (await ns.log("other")).sync.history is None
        await ns.remove_log("other")
        assert await ns.functions() == [] == await ns.runs() and (await ns.why()).reasons
        await ns.wait_idle(5)
        with pytest.raises(millrace.NotFound, match="MR2101"):
            await ns.append("missing", b"")
        with pytest.raises(millrace.NotFound, match="MR3007"):
            await ns.run("1-1-1")
        with pytest.raises(millrace.NotFound, match="MR3007"):
            await ns.cancel_run("1-1-1")
        assert await ns.append("raw", b"4", key="k") == 4 == await ns.append("raw", b"4", key="k")

    run(place, test)


def test_many_appends_are_in_flight_together(place: str) -> None:
    async def test(ns: millrace.AsyncNamespace) -> None:
        numbers = await asyncio.gather(*(ns.append("raw", i) for i in range(500)))
        assert sorted(numbers) == list(range(1, 501))
        read = await asyncio.gather(*(ns.get("raw", seqno) for seqno in numbers))
        assert [record.json() for record in read] == list(range(500))

    run(place, test)


def test_more_tails_than_threads_do_not_stop_anybody(place: str) -> None:
    async def test(ns: millrace.AsyncNamespace) -> None:
        async def first() -> int:
            async for record in ns.tail("raw"):
                return int(record.json())
            return -1

        tails = [asyncio.create_task(first()) for _ in range(48)]
        waits = [asyncio.create_task(ns.get("raw", 1, wait=120)) for _ in range(8)]
        # A tail brings what comes after it began, and each begins when it can.
        while not all(tail.done() for tail in tails):
            await ns.append("raw", 7)
            await asyncio.sleep(0.3)
        assert await asyncio.gather(*tails) == [7] * 48
        assert [wait.seqno for wait in await asyncio.gather(*waits)] == [1] * 8

    run(place, test)


def test_a_tail_ends_at_its_timeout_and_when_it_is_cancelled(place: str) -> None:
    async def test(ns: millrace.AsyncNamespace) -> None:
        await ns.append_many([("raw", i) for i in range(600)])
        for timeout in (0.3, 3, 30, 90):  # At one of them this machine is fast enough.
            if len([record async for record in ns.tail("raw", 1, timeout=timeout)]) == 600:
                break
        else:
            raise AssertionError("a tail ended before it had brought what was there")

        tail = ns.tail("raw", 1, timeout=90)
        assert [(await anext(tail)).seqno for _ in range(3)] == [1, 2, 3]
        await tail.aclose()
        assert [record async for record in tail] == []
        assert tail.next == 4 and tail.incarnation > 0
        again = ns.tail("raw", tail.next, timeout=90, incarnation=tail.incarnation)
        assert (await anext(again)).seqno == 4
        await ns.remove_log("raw")
        await ns.create_log("raw")
        with pytest.raises(millrace.Gone):
            await anext(ns.tail("raw", again.next, timeout=90, incarnation=again.incarnation))

        async def forever() -> None:
            async for _ in ns.tail("raw"):
                pass

        task = asyncio.create_task(forever())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(place, test)


def test_a_log_of_values(place: str) -> None:
    async def test(ns: millrace.AsyncNamespace) -> None:
        log = await ns.log("raw", codec=codecs.Json())
        assert await log.append([1]) == 1 and await log.append_many([2, 3]) == [2, 3]
        assert (await log.get(1)).value == [1]
        assert [entry.value async for entry in log.range()] == [[1], 2, 3]
        for timeout in (0.2, 3, 30, 90):
            read = [entry.value async for entry in log.tail(2, timeout=timeout)]
            if read == [2, 3]:
                break
        assert read == [2, 3]
        with pytest.raises(millrace.Invalid, match="MR6104"):
            await log.append(object())
        assert (await ns.log("raw")).sync[1] == b"[1]"

    run(place, test)


def test_it_can_be_awaited_and_says_when_it_is_closed(place: str) -> None:
    async def main() -> None:
        ns = await millrace.aopen(place)
        assert ns.address and ns.durability in ("memory", "disk") and "closed" not in repr(ns)
        await ns.close()
        assert "closed" in repr(ns)
        with pytest.raises((millrace.Invalid, RuntimeError)):
            await ns.append("raw", b"")

    asyncio.run(main())


def test_closing_ends_what_waits(place: str) -> None:
    async def main() -> None:
        ns = await millrace.aopen(place)
        waits = [asyncio.create_task(ns.get("raw", 1, wait=600)) for _ in range(3)]
        await asyncio.sleep(0.2)
        await ns.close()
        for wait in waits:
            with pytest.raises(millrace.Error):
                await wait

    asyncio.run(asyncio.wait_for(main(), 240))


def test_a_cancelled_request_disturbs_no_other(place: str) -> None:
    async def test(ns: millrace.AsyncNamespace) -> None:
        wait = asyncio.create_task(ns.get("raw", 1, wait=600))
        await asyncio.sleep(0.1)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        assert await ns.append("raw", b"x") == 1 and (await ns.get("raw", 1)).data == b"x"

    run(place, test)


def test_thousands_are_in_flight_over_one_connection(place: str) -> None:
    async def test(ns: millrace.AsyncNamespace) -> None:
        numbers = await asyncio.gather(*(ns.append("raw", b"x" * 100) for _ in range(5000)))
        assert sorted(numbers) == list(range(1, 5001))

    run(place, test)


def test_a_host_that_goes_away_is_told_and_found_again(
    tmp_path: Path, host: Callable[..., Host], port: int
) -> None:
    with millrace.create(tmp_path / "ns", durability="memory") as namespace:
        namespace.create_log("raw")
        first = host(namespace, f"127.0.0.1:{port}")

        async def main() -> None:
            async with millrace.aopen(first.address) as ns:
                assert await ns.append("raw", b"1") == 1
                first.process.kill()
                first.process.wait()
                with pytest.raises(millrace.Unavailable):
                    for _ in range(100):
                        await ns.append("raw", b"lost")
                host(namespace, f"127.0.0.1:{port}")
                assert (await ns.get("raw", 1)).data == b"1"
                assert await ns.append("raw", b"2") == 2

        asyncio.run(asyncio.wait_for(main(), 240))
