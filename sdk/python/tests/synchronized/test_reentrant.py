"""Reentrant methods: a call that comes back to an object runs within the method that waits for its caller."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import PATIENCE_S

import millrace

pytest.importorskip("cloudpickle")


@millrace.shared(timeout=30.0)
class Node:
    """Calls others, which call it back."""

    def __init__(self, friend: Any = None) -> None:
        self.friend, self.value = friend, 0
        self.log: list[str] = []

    def bounce(self, other: Any, me: Any, how: str) -> list[Any]:
        """Changes a field, has `other` call this object back, and sees what that has changed."""
        self.value = 1
        items = self.log
        items.append("before")
        answer = other.call_back(me, how)
        items.append("after")
        return [answer, self.value, self.log is items]

    def bounce_and_wait(self, other: Any, me: Any, begun: Any, go: Any) -> int:
        self.value = 1
        other.call_back(me, "add")
        begun.release()
        go.acquire()
        return self.value

    async def bounce_later(self, other: Any, me: Any, how: str) -> list[Any]:
        self.value = 1
        self.log.append("before")
        answer = await other.call_back(me, how)
        self.log.append("after")
        return [answer, self.value]

    def call_back(self, back: Any, how: str) -> Any:
        return getattr(back, how)()

    async def call_back_later(self, back: Any, how: str) -> Any:
        return await getattr(back, how)()

    async def through(self, other: Any, me: Any, how: str) -> Any:
        return await other.call_back_later(me, how)

    @millrace.reentrant
    def add(self) -> int:
        self.value += 10
        self.log.append("within")
        return self.value

    @millrace.reentrant
    async def add_later(self) -> int:
        self.value += 100
        await asyncio.sleep(0)
        return self.value

    @millrace.reentrant
    def tell_friend(self) -> int:
        """Uses a field that is a reference, as plain methods do."""
        return int(self.friend.add())

    @millrace.reentrant
    async def tell_friend_later(self) -> int:
        return int(await self.friend.add())

    @millrace.reentrant
    def fails(self) -> None:
        self.value += 10
        raise LookupError("within")

    @millrace.reentrant
    @millrace.readonly
    def look(self) -> int:
        return int(self.value)

    @millrace.reentrant
    @millrace.readonly
    def only_reads(self) -> None:
        self.value = 99

    @millrace.reentrant
    @millrace.when(lambda self: self.value > 5)
    def guarded(self) -> int:
        return self.value

    def plain(self) -> int:
        return self.value

    @millrace.reentrant
    def again(self, other: Any, me: Any, depth: int) -> int:
        if depth:
            other.again(me, other, depth - 1)
        self.value += 1
        return self.value

    def itself(self, me: Any) -> int:
        return int(me.add()) + self.value

    @millrace.readonly
    def reads_and(self, other: Any, me: Any, how: str) -> Any:
        return other.call_back(me, how)

    @millrace.method(timeout=0.5)
    def slow(self, other: Any, me: Any) -> Any:
        self.value = 7
        return other.call_back(me, "sleeps")

    @millrace.reentrant
    def sleeps(self) -> None:
        time.sleep(600)

    def breaks(self, other: Any, me: Any) -> None:
        other.call_back(me, "add")
        raise KeyError("after it")

    def state(self) -> tuple[int, list[str]]:
        return self.value, self.log

    def set(self, value: int) -> None:
        self.value, self.log = value, []


@pytest.fixture
def pair(farm: millrace.Connection, request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    """Two objects that call each other, and a counter that the first one refers to."""
    name, Nodes = request.node.name, farm.shared(Node)
    friend = farm.AtomicInt(f"{name}-friend")
    return Nodes(f"{name}-a", friend), Nodes(f"{name}-b"), friend


def wait_for_waiting(farm: Any, calls: int) -> None:
    """Until an object has so many calls that have no answer."""
    while max(shown["waiting"] for shown in json.loads(farm.remote.show("objects"))["objects"]) < calls:
        time.sleep(0.01)


def test_a_call_that_comes_back_sees_and_changes_the_fields(pair: tuple[Any, Any, Any]) -> None:
    a, b, friend = pair
    assert a.bounce(b, a, "add") == [11, 11, True]
    assert a.state() == (11, ["before", "within", "after"]), "it took effect with the method"
    assert a.bounce(b, a, "look") == [1, 1, True]
    assert a.bounce(b, a, "tell_friend") == [1, 1, True] and friend.get() == 1
    a.set(0)
    assert a.itself(a) == 20 and a.add() == 20, "without anyone who waits, it is a method like others"


def test_async_and_plain_methods_come_back_to_each_other(pair: tuple[Any, Any, Any]) -> None:
    a, b, friend = pair
    assert a.bounce_later(b, a, "add") == [11, 11] and a.state()[1] == ["before", "within", "after"]
    assert a.bounce_later(b, a, "add_later") == [101, 101]
    assert a.bounce(b, a, "add_later")[:2] == [101, 101]
    assert [a.bounce_later(b, a, how)[0] for how in ("tell_friend", "tell_friend_later")] == [1, 2]
    assert a.bounce(b, a, "tell_friend_later")[0] == 3 == friend.get()
    value = a.state()[0]
    assert a.through(b, a, "add_later") == value + 100 == a.state()[0]


def test_exceptions_reach_the_caller_and_leave_what_they_changed(pair: tuple[Any, Any, Any]) -> None:
    a, b, _ = pair
    for bounce in (a.bounce, a.bounce_later):
        with pytest.raises(LookupError, match="within"):
            bounce(b, a, "fails")
        assert a.state()[0] == 11
        with pytest.raises(TypeError, match="read-only has changed 'value'"):
            bounce(b, a, "only_reads")
        assert a.state()[0] == 1
        with pytest.raises(millrace.Conflict, match="MR7118.*guard of Node.guarded"):
            bounce(b, a, "guarded")
    with pytest.raises(KeyError, match="after it"):
        a.breaks(b, a)
    assert a.state()[0] == 11
    with pytest.raises(TypeError, match="not marked read-only, as the method is"):
        a.reads_and(b, a, "add")
    assert a.reads_and(b, a, "look") == 11


def test_calls_that_come_back_may_have_a_fence(farm: millrace.Connection, pair: tuple[Any, Any, Any]) -> None:
    a, b, _ = pair

    def fenced(token: int) -> Any:
        return a.with_options(fence=("tick", token))

    assert a.bounce(b, fenced(5), "add") == [11, 11, True] == a.bounce(b, fenced(5), "add")
    for refused in (lambda: a.bounce(b, fenced(4), "add"), fenced(4).add):
        with pytest.raises(millrace.Conflict, match="MR7127.*token 4 of 'tick'"):
            refused()
    a.set(0)
    begun, go = farm.Semaphore("fence-begun", 0), farm.Semaphore("fence-go", 0)
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(a.bounce_and_wait, b, fenced(6), begun, go)
        begun.acquire()
        state = threads.submit(fenced(7).state)
        wait_for_waiting(farm, 2)
        go.release()
        with pytest.raises(millrace.Conflict, match="MR7127.*token 6 of 'tick'"):
            late.result(PATIENCE_S)
        assert state.result(PATIENCE_S) == (0, []), "a method with a call of a former owner within it takes no effect"


def test_without_the_mark_and_for_persistent_objects_it_is_refused(farm: millrace.Connection, pair: tuple[Any, Any, Any]) -> None:
    a, b, _ = pair
    refused = f"MR7118.*'{a.key}' and '{b.key}' would wait for each other"
    with pytest.raises(millrace.Conflict, match=refused):
        a.bounce(b, a, "plain")
    with pytest.raises(millrace.Conflict, match="MR7118"):
        a.bounce_later(b, a, "plain")
    kept = farm.shared(Node, persistent=True)("kept-node")
    with pytest.raises(millrace.Conflict, match="MR7118"):
        kept.bounce(b, kept, "add")

    @millrace.shared(rollback=True)
    class Careful:
        @millrace.reentrant
        def back(self) -> None:
            pass

    with pytest.raises(TypeError, match="rollback"):
        farm.shared(Careful)


def test_calls_come_back_many_times_and_not_without_end(pair: tuple[Any, Any, Any]) -> None:
    a, b, _ = pair
    assert a.again(b, a, 9) == 5 and b.state()[0] == 5
    with pytest.raises(RecursionError, match="16 calls"):
        a.again(b, a, 100)


def test_the_time_limit_is_that_of_the_outer_method(pair: tuple[Any, Any, Any]) -> None:
    a, b, _ = pair
    b.state()  # A call that fails does not create an object.
    with pytest.raises(TimeoutError, match="0.5 seconds"):
        a.slow(b, a)
    assert a.state()[0] == 0, "nothing was changed"
    assert a.bounce(b, a, "add")[0] == 11
