"""Persistent objects: what was answered is there after the host was killed, and histories of concurrent clients are linearizable."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Optional

import pytest

import millrace


def kill(served: Any) -> None:
    served.process.send_signal(signal.SIGKILL)
    served.process.wait(60)


def test_answered_calls_survive_a_killed_host(ns: millrace.Namespace, host: Callable[..., Any]) -> None:
    served = host(ns)
    with millrace.connect(served.socket) as farm:
        farm.AtomicInt("count", 40, persistent=True).add(2)
        table = farm.Dict("table", persistent=True)
        table.update(a=1, b=[2, "two"], c=(3, 4.5))
        table.pop("a")
        queue = farm.Queue("queue", persistent=True)
        for item in range(5):
            queue.put(item)
        assert queue.get() == 0
        blob = farm.Blob("blob", persistent=True)
        # A step is a record, and a record is at most a quarter of a segment.
        for part in range(16):
            blob.write(part << 17, b"x" * (1 << 17))
        with pytest.raises(millrace.Conflict, match="MR7108"):
            blob.append(b"x" * (1 << 18))
        farm.AtomicInt("passing").set(1)
        farm.List("gone", persistent=True).append(1)
    kill(served)
    served = host(ns)
    with millrace.connect(served.socket) as farm:
        assert farm.AtomicInt("count", persistent=True).get() == 42
        assert farm.Dict("table", persistent=True).items() == [("b", [2, "two"]), ("c", (3, 4.5))]
        queue = farm.Queue("queue", persistent=True)
        assert [queue.get() for _ in range(4)] == [1, 2, 3, 4] and queue.qsize() == 0
        assert farm.Blob("blob", persistent=True).read() == b"x" * (2 << 20)
        assert farm.AtomicInt("passing").get() == 0, "it was not persistent"
        with pytest.raises(millrace.Conflict, match="MR7103.*persistent"):
            farm.AtomicInt("count").get()


def test_waiting_calls_and_locks_survive_a_restart(ns: millrace.Namespace, host: Callable[..., Any]) -> None:
    served = host(ns)
    farm = millrace.connect(served.socket)
    lock, queue = farm.Lock("lock", persistent=True), farm.Queue("jobs", persistent=True)
    token = lock.acquire()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(queue.get()))
    waiting.start()
    while not any(shown["waiting"] for shown in objects_of(farm) if shown["key"] == "jobs"):
        time.sleep(0.01)
    kill(served)
    host(ns)
    assert lock.locked() and token > 0
    queue.put("job")
    waiting.join(120)
    assert found == ["job"]
    lock.release()
    assert not lock.locked()
    farm.close()


def objects_of(farm: millrace.Connection) -> list[dict[str, Any]]:
    """What the host shows of its objects."""
    return list(json.loads(farm.remote.show("objects"))["objects"])


def test_a_snapshot_replaces_everything_before_it(ns: millrace.Namespace, host: Callable[..., Any]) -> None:
    served = host(ns)
    with millrace.connect(served.socket) as farm:
        blob, hits = farm.Blob("blob", persistent=True), farm.AtomicInt("hits", persistent=True)
        early = farm.Dict("early", persistent=True)
        early["one"] = 1
        for turn in range(60):
            blob.replace(bytes([turn]) * (200 << 10))
            hits.add()
    log = next(log for log in ns.logs() if log.name == "_entities")
    assert log.earliest > 1, "the log was trimmed"
    kill(served)
    served = host(ns)
    with millrace.connect(served.socket) as farm:
        assert farm.Blob("blob", persistent=True).read() == bytes([59]) * (200 << 10)
        assert farm.AtomicInt("hits", persistent=True).get() == 60 and farm.Dict("early", persistent=True)["one"] == 1


#: One operation: when it began and ended, what it was, and what it returned.
Operation = tuple[int, int, tuple[Any, ...], Any]


def linearizable(history: list[Operation], state: Any, apply: Callable[[Any, tuple[Any, ...]], tuple[Any, Any]]) -> bool:
    """Whether some order of the operations explains what they returned: Wing and Gong's search, with the states seen (Lowe)."""
    history = sorted(history)
    seen: set[tuple[int, Any]] = set()
    stack = [(0, state)]
    whole = (1 << len(history)) - 1
    while stack:
        done, state = stack.pop()
        if done == whole:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        left = [at for at in range(len(history)) if not done >> at & 1]
        # What began before every operation that is left has ended may be the next.
        first_end = min(history[at][1] for at in left)
        for at in left:
            begin, _, asked, returned = history[at]
            if begin <= first_end:
                after, result = apply(state, asked)
                if result == returned:
                    stack.append((done | 1 << at, after))
    return False


def register(state: int, asked: tuple[Any, ...]) -> tuple[int, Any]:
    """An `AtomicInt`."""
    kind, *values = asked
    if kind == "get":
        return state, state
    if kind == "add":
        return state + values[0], state + values[0]
    if kind == "swap":
        return values[0], state
    return (values[1], True) if state == values[0] else (state, False)


def test_the_search_finds_what_cannot_be() -> None:
    both = [(0, 9, ("add", 1), 1), (1, 8, ("add", 1), 2)]
    assert linearizable(both, 0, register)
    assert not linearizable([(0, 9, ("add", 1), 1), (1, 8, ("add", 1), 1)], 0, register)
    assert not linearizable([(0, 1, ("add", 1), 1), (2, 3, ("get",), 0)], 0, register)


def test_histories_under_kills_are_linearizable(ns: millrace.Namespace, host: Callable[..., Any]) -> None:
    served = [host(ns)]
    seed = time.time_ns() & 0xFFFF
    print("seed", seed)
    histories: dict[str, list[Operation]] = {f"cell-{number}": [] for number in range(4)}
    failures: list[BaseException] = []
    # Those that have ended, and how many may before the next kill, so that all are not over before the third one.
    count, most, lock = [0], [40], threading.Lock()

    def client(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        try:
            with millrace.connect(served[0].socket, lease=60) as farm:
                cells = {key: farm.AtomicInt(key, persistent=True) for key in histories}
                for _ in range(40):
                    while count[0] >= most[0] and not failures:
                        time.sleep(0.001)
                    key = chance.choice(list(cells))
                    cell, a, b = cells[key], chance.randrange(3), chance.randrange(3)
                    asked: tuple[Any, ...] = chance.choice([("get",), ("add", 1), ("swap", a), ("cas", a, b)])
                    begin = time.monotonic_ns()
                    returned: Any
                    if asked[0] == "get":
                        returned = cell.get()
                    elif asked[0] == "add":
                        returned = cell.add(1)
                    elif asked[0] == "swap":
                        returned = cell.get_and_set(a)
                    else:
                        returned = cell.compare_and_set(a, b)
                    with lock:
                        histories[key].append((begin, time.monotonic_ns(), asked, returned))
                        count[0] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    kills = 0
    while any(thread.is_alive() for thread in threads):
        before = count[0]
        patience = time.monotonic() + 120
        while count[0] < before + 25 and any(thread.is_alive() for thread in threads) and time.monotonic() < patience:
            time.sleep(0.002)
        if any(thread.is_alive() for thread in threads):
            kill(served[0])
            served[0] = host(ns)
            kills += 1
            most[0] = count[0] + 40
    assert not failures, (seed, failures[:1])
    assert kills >= 3 and count[0] == 240
    for key, history in histories.items():
        assert linearizable(history, 0, register), f"seed {seed}: {key}: {sorted(history)}"


def test_methods_of_a_user_class_survive(ns: millrace.Namespace, host: Callable[..., Any]) -> None:
    pytest.importorskip("cloudpickle")

    @millrace.shared
    class Account:
        def __init__(self, owner: str) -> None:
            self.owner, self.cents = owner, 0

        def pay(self, cents: int, log: Optional[Any] = None) -> int:
            self.cents += cents
            if log is not None:
                log.append(cents)
            return self.cents

    served = host(ns)
    farm = millrace.connect(served.socket)
    account = farm.shared(Account, persistent=True)("ann", "Ann")
    log = farm.List("payments", persistent=True)
    assert account.pay(5, log) == 5
    kill(served)
    host(ns)
    assert account.pay(7, log) == 12 and list(log) == [5, 7]
    farm.close()

