"""Tokens of locks: a former owner, whose lease has ended without its knowledge, is refused."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import millrace
import millrace.aio
import millrace.queue

#: Acquires the lock, is stopped until another program has it, and then appends.
FORMER = """
import sys
import millrace

farm = millrace.connect(sys.argv[1], app="ticks", lease=0.5)
with farm.Lock("tick") as token:
    print(token, flush=True)
    sys.stdin.readline()
    try:
        farm.append("raw", b"former", fence=("tick", token))
        print("appended", flush=True)
    except millrace.Conflict as error:
        print(error.code, flush=True)
    sys.stdin.readline()
"""


def test_the_append_of_a_stopped_owner_is_refused_once_another_one_has_appended(
    ns: millrace.Namespace, host: Callable[..., Any], tmp_path: Path
) -> None:
    served = host(ns)
    (tmp_path / "former.py").write_text(FORMER)
    command = [sys.executable, str(tmp_path / "former.py"), served.socket]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as former:
        assert former.stdin is not None and former.stdout is not None
        old = int(former.stdout.readline())
        former.send_signal(signal.SIGSTOP)
        try:
            with millrace.connect(served.socket, app="ticks") as farm, farm.Lock("tick") as token:
                assert token > old
                first = farm.append("raw", b"owner", fence=("tick", token))
                assert farm.append("raw", b"owner", fence=("tick", token)) == first + 1
            former.send_signal(signal.SIGCONT)
            print(file=former.stdin, flush=True)
            assert former.stdout.readline() == "MR7127\n"
        finally:
            former.kill()
    assert [record.data for record in ns.range("raw")] == [b"owner", b"owner"]
    # Without a host and after a restart the token is known as well.
    with pytest.raises(millrace.Conflict, match=f"MR7127.*token {old} of 'tick'.*{token}"):
        ns.append("raw", b"former", fence=("tick", old))
    with pytest.raises(millrace.Conflict, match="MR7127"):
        ns.append_many([("raw", b"former")], fence=("tick", old))
    served.process.kill()
    served.process.wait(60)
    served = host(ns)
    with millrace.connect(served.socket) as farm:
        with pytest.raises(millrace.Conflict, match="MR7127"):
            farm.append("raw", b"former", fence=("tick", old))
        with farm.Lock("tick") as token:
            farm.append("raw", b"owner", fence=("tick", token))


def test_every_way_to_append_takes_a_fence(ns: millrace.Namespace, host: Callable[..., Any], binary: Path) -> None:
    served = host(ns)
    ns.append("raw", b"1", fence=("tick", 7))
    with millrace.open(served.address) as remote:
        with pytest.raises(millrace.Conflict, match="MR7127"):
            remote.append("raw", b"2", fence=("tick", 6))
        with pytest.raises(millrace.Conflict, match="MR7127"):
            remote.append_many([("raw", b"2"), ("raw", b"3")], fence=("tick", 6))
        assert remote.log("raw").append(b"2", fence=("tick", 7)) == 2

    async def main() -> None:
        for address in (served.address, ns.address):
            async with millrace.aopen(address) as other:
                with pytest.raises(millrace.Conflict, match="MR7127"):
                    await other.append("raw", b"3", fence=("tick", 6))
                with pytest.raises(millrace.Conflict, match="MR7127"):
                    await other.append_many([("raw", b"3")], fence=("tick", 6))
        async with millrace.aio.connect(served.socket) as farm:
            with pytest.raises(millrace.Conflict, match="MR7127"):
                await farm.append("raw", b"3", fence=("tick", 6))
            assert await farm.append("raw", b"3", fence=("tick", 8)) == 3

    asyncio.run(main())

    def command(fence: str) -> "subprocess.CompletedProcess[str]":
        words = [str(binary), "-n", ns.address, "log", "append", "raw", "4", "--fence", fence]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)

    assert "MR7127" in command("tick=7").stderr and "MR7128" in command("tick").stderr
    assert command("tick=8").returncode == 0
    url = f"http://{served.address.removeprefix('mr://').removesuffix('/farm')}/v1/namespaces/farm/logs/raw/records"

    def post(fence: str) -> str:
        request = urllib.request.Request(url, b"5", {"Millrace-Fence": fence}, method="POST")
        try:
            with urllib.request.urlopen(request) as answer:
                return str(json.load(answer)["seqno"])
        except urllib.error.HTTPError as error:
            with error:
                told = error.read().decode()
                return f"{error.code} {next(code for code in ('MR7127', 'MR7128') if code in told)}"

    assert [post("tick=7"), post("tick=8"), post("=8")] == ["409 MR7127", "5", "400 MR7128"]
    for odd in (("", 1), ("tick", 0), ("x" * 256, 1)):
        with pytest.raises(ValueError, match="MR7128"):
            ns.append("raw", b"x", fence=odd)


def test_an_object_refuses_calls_with_lower_tokens_than_it_has_seen(ns: millrace.Namespace, host: Callable[..., Any]) -> None:
    served = host(ns)
    with millrace.connect(served.socket) as farm:
        hits = farm.AtomicInt("hits", persistent=True)
        new = hits.with_options(fence=("tick", 7))
        old = hits.with_options(fence=("tick", 6))
        assert old.add() == 1 and new.add() == 2
        with pytest.raises(millrace.Conflict, match="MR7127"):
            old.add()
        with pytest.raises(millrace.Conflict, match="MR7127"):
            pickle.loads(pickle.dumps(old)).get()
        assert hits.add() == 3, "a call without a token is not refused"
        items = farm.Queue("items").with_options(fence=("tick", 7))
        items.put("x")
        with pytest.raises(millrace.Conflict, match="MR7127"):
            items.with_options(fence=("tick", 6)).get(timeout=0)
    served.process.kill()
    served.process.wait(60)
    served = host(ns)

    async def main() -> None:
        async with millrace.aio.connect(served.socket) as farm:
            hits = farm.AtomicInt("hits", persistent=True)
            with pytest.raises(millrace.Conflict, match="MR7127"):
                await hits.with_options(fence=("tick", 6)).add()
            assert await hits.with_options(fence=("tick", 7)).add() == 4

    asyncio.run(main())


def waits(farm: Any) -> bool:
    return any(shown["waiting"] for shown in json.loads(farm.remote.show("objects"))["objects"])


@millrace.shared
class Gate:
    def __init__(self) -> None:
        self.opened, self.through = False, 0

    @millrace.when(lambda self: self.opened)
    def enter(self) -> int:
        self.through += 1
        return self.through

    def open(self) -> None:
        self.opened = True


def test_a_call_that_waits_is_refused_once_a_later_owner_calls_the_object(binary: Path) -> None:
    pytest.importorskip("cloudpickle")
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(sys.modules[__name__])
    old, new = ("tick", 6), ("tick", 7)
    with millrace.connect() as farm, farm.Executor(workers=1), ThreadPoolExecutor(1) as threads:
        items, gate = farm.Queue("items"), farm.shared(Gate)("gate")
        cases: tuple[tuple[Callable[[], Any], Callable[[], Any], Callable[[], bool]], ...] = (
            (items.with_options(fence=old).get, lambda: items.with_options(fence=new).put("x"), lambda: items.get(timeout=60) == "x"),
            (gate.with_options(fence=old).enter, gate.with_options(fence=new).open, lambda: gate.enter() == 1),
        )
        for wait, call, rest in cases:
            waiting = threads.submit(wait)
            while not waits(farm):
                time.sleep(0.01)
            call()
            with pytest.raises(millrace.Conflict, match="MR7127.*token 6 of 'tick'"):
                waiting.result(60)
            assert rest()


def increment(hits: Any) -> int:
    return int(hits.add())


def test_a_task_passes_the_token_on(binary: Path) -> None:
    pytest.importorskip("cloudpickle")
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(sys.modules[__name__])
    with millrace.connect() as farm, farm.Executor(workers=1) as executor:
        hits = farm.AtomicInt("hits")
        assert executor.submit(increment, hits.with_options(fence=("tick", 7))).result() == 1
        with pytest.raises(millrace.Conflict, match="MR7127"):
            executor.submit(increment, hits.with_options(fence=("tick", 6))).result()


def test_queues_show_items_and_semaphores_give_several_permits(binary: Path) -> None:
    os.environ["MILLRACE_BIN"] = str(binary)
    with millrace.connect() as farm:
        jobs = farm.Queue("jobs")
        with pytest.raises(queue.Empty):
            jobs.peek()
        jobs.put((1, "a"))
        jobs.put({"b": 2})
        assert jobs.peek() == (1, "a") and jobs.items() == [(1, "a"), {"b": 2}] and jobs.qsize() == 2
        permits = farm.Semaphore("permits", 3)
        assert permits.acquire(n=2) and not permits.acquire(False, n=2) and permits.value == 1
        permits.release(2)
        assert permits.acquire(timeout=60, n=3) and not permits.acquire(False)
        permits.release(3)
        with pytest.raises(ValueError, match="one or more"):
            permits.acquire(n=0)
        for kind, expected in ((millrace.queue.Queue, [2, 3, 1]), (millrace.queue.LifoQueue, [1, 3, 2]), (millrace.queue.PriorityQueue, [1, 2, 3])):
            ordered = kind()
            with pytest.raises(queue.Empty):
                ordered.peek()
            for item in (2, 3, 1):
                ordered.put(item)
            assert ordered.items() == expected and ordered.peek() == expected[0]
            assert [ordered.get() for _ in expected] == expected

        async def main() -> None:
            async with millrace.aio.connect(farm.address, app=farm.application) as other:
                semaphore = other.Semaphore("permits")
                assert await semaphore.acquire(n=2)
                waiting = asyncio.ensure_future(semaphore.acquire(n=3))
                while not any(shown["waiting"] for shown in json.loads(farm.remote.show("objects"))["objects"]):
                    await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert await semaphore.value() == 1
                await semaphore.release(2)
                assert await semaphore.value() == 3

        asyncio.run(main())


def test_a_capability_needs_the_right_to_the_lock(
    ns: millrace.Namespace, host: Callable[..., Any], binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = host(ns)
    for name, rights in (("append", ["append=log:raw"]), ("both", ["append=log:raw", "call=object:Lock/tick"])):
        allowed = [word for right in rights for word in ("--allow", right)]
        command = [str(binary), "-n", ns.address, "cap", "issue", *allowed, "--out", str(tmp_path / name)]
        subprocess.run(command, check=True, capture_output=True)
    monkeypatch.setenv("MILLRACE_CAPABILITY", str(tmp_path / "append"))
    with millrace.open(served.address) as remote:
        assert remote.append("raw", b"1") == 1
        with pytest.raises(millrace.Denied):
            remote.append("raw", b"2", fence=("tick", 1 << 62))
    monkeypatch.setenv("MILLRACE_CAPABILITY", str(tmp_path / "both"))
    with millrace.open(served.address) as remote:
        assert remote.append("raw", b"2", fence=("tick", 5)) == 2
        with pytest.raises(millrace.Denied):
            remote.append("raw", b"3", fence=("tock", 5))
