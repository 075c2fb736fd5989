"""Plain and `async` reentrant methods within each other, on the same Python object."""

from __future__ import annotations

import asyncio
import threading
import time
import types
from typing import Any

import pytest

import millrace
import millrace.aio
from millrace.objects import _turned

pytest.importorskip("cloudpickle")


@millrace.shared(timeout=60.0)
class Relay:
    """Calls methods of others, as one that waits for them."""

    def go(self, target: Any, name: str, *args: Any) -> Any:
        return getattr(target, name)(*args)


@millrace.shared(timeout=60.0)
class Cart:
    """Each of its methods calls the next one through a relay: `chain` has the names."""

    def __init__(self, relays: list[Any], hits: Any) -> None:
        self.relays, self.hits, self.box, self.pair = relays, hits, types.SimpleNamespace(held={"hits": hits}), (hits, [hits])
        self.n, self.extra = 0, None  # type: int, Any
        self.items: list[str] = []

    def plain(self, me: Any, chain: list[str], depth: int = 0) -> Any:
        items, self.n = self.items, self.n + 1
        items.append(f"plain {depth}")
        if chain:
            before = self.relays, self.box, self.hits
            self.relays[depth].go(me, chain[0], me, chain[1:], depth + 1)
            assert all(one is other for one, other in zip(before, (self.relays, self.box, self.hits)))
        items.append(f"after {depth}")
        self.hits.add()
        assert self.box.held["hits"].add_and_get() == self.pair[1][0].get() == self.pair[0].get()
        return self.n, self.items is items

    within = millrace.reentrant(plain)

    async def later(self, me: Any, chain: list[str], depth: int = 0) -> Any:
        items, self.n = self.items, self.n + 1
        items.append(f"later {depth}")
        if chain:
            before = self.relays, self.box, self.hits
            await self.relays[depth].go(me, chain[0], me, chain[1:], depth + 1)
            assert all(one is other for one, other in zip(before, (self.relays, self.box, self.hits)))
        items.append(f"after {depth}")
        await self.hits.add()
        assert await self.box.held["hits"].add_and_get() == await self.pair[1][0].get() == await self.pair[0].get()
        return self.n, self.items is items

    within_later = millrace.reentrant(later)

    @millrace.reentrant
    @millrace.readonly
    def reads(self, me: Any, chain: list[str], depth: int = 0) -> int:
        return int(self.relays[depth].go(me, chain[0], me, chain[1:], depth + 1))

    async def blocks(self, me: Any) -> None:
        """Stops its event loop by a call that is not awaited."""
        self.relays[0].sync.go(me.sync, "within_later", me.sync, [], 1)

    async def new(self, me: Any, extra: Any) -> int:
        await self.relays[0].go(me, "keep", extra)
        await self.extra[0].add()
        return int(await self.extra[0].get())

    def new_plain(self, me: Any, extra: Any) -> int:
        self.relays[0].go(me, "keep_later", extra)
        self.extra[0].add()
        return int(self.extra[0].get())

    @millrace.reentrant
    def keep(self, extra: Any) -> None:
        self.extra = [extra]
        extra.add()

    @millrace.reentrant
    async def keep_later(self, extra: Any) -> None:
        self.extra = [extra]
        await extra.add()

    @millrace.reentrant
    def spoils(self) -> None:
        self.extra = [self.hits, (at for at in range(3))]

    async def spoilt(self, me: Any) -> tuple[str, int]:
        try:
            await self.relays[0].go(me, "spoils")
        except TypeError as error:
            told = str(error)
        self.extra = None
        return told, int(await self.hits.get())

    @millrace.readonly
    def state(self) -> tuple[int, list[str]]:
        return self.n, self.items


@pytest.fixture
def cart(farm: millrace.Connection, request: pytest.FixtureRequest) -> Any:
    name, Relays = request.node.name, farm.shared(Relay)
    made = farm.shared(Cart)(f"{name}-cart", [Relays(f"{name}-{at}") for at in range(5)], farm.AtomicInt(f"{name}-hits"))
    assert made.state() == (0, [])
    return made


#: Of the outermost method, and of those within.
PLAIN, LATER = "plain", "later"
W = {PLAIN: "within", LATER: "within_later"}


@pytest.mark.parametrize(
    "kinds",
    [
        (PLAIN, PLAIN, PLAIN),
        (LATER, LATER, LATER),
        (LATER, PLAIN),
        (PLAIN, LATER),
        (LATER, PLAIN, PLAIN),
        (PLAIN, LATER, LATER),
        (PLAIN, LATER, PLAIN),
        (LATER, LATER, PLAIN, PLAIN),
        (PLAIN, PLAIN, LATER, LATER, PLAIN),
    ],
    ids="-".join,
)
def test_methods_within_each_other_share_the_object(cart: Any, farm: millrace.Connection, kinds: tuple[str, ...], request: Any) -> None:
    begun = [f"{kind} {at}" for at, kind in enumerate(kinds)]
    ended = [f"after {at}" for at in reversed(range(len(kinds)))]
    assert getattr(cart, kinds[0])(cart, [W[kind] for kind in kinds[1:]]) == (len(kinds), True)
    assert cart.state() == (len(kinds), begun + ended)
    assert farm.AtomicInt(f"{request.node.name}-hits").get() == 2 * len(kinds)
    assert cart.plain(cart, []) == (len(kinds) + 1, True) and cart.later(cart, []) == (len(kinds) + 2, True)


def test_async_within_plain_within_async_is_refused_at_once(cart: Any) -> None:
    begun = time.monotonic()
    for method, *args in ((cart.later, cart, ["within", "within_later"]), (cart.blocks, cart)):
        with pytest.raises(millrace.Conflict, match="MR7118.*within_later is async"):
            method(*args)
    with pytest.raises(millrace.Conflict, match="MR7118.*within_later is async"):
        cart.plain(cart, ["within_later", "within", "within_later"])
    assert time.monotonic() - begun < 50
    assert cart.later(cart, ["within"])[1], "the object is as before"


def test_nothing_changes_within_a_call_that_reads(cart: Any) -> None:
    for outer in (cart.plain, cart.later):
        with pytest.raises(TypeError, match="Cart.within is not marked read-only, as the method is"):
            outer(cart, ["reads", "within"])


def test_references_that_a_method_within_leaves_can_be_called(cart: Any, farm: millrace.Connection) -> None:
    extra = farm.AtomicInt("extra")
    assert [cart.new(cart, extra), cart.new_plain(cart, extra), cart.new(cart, extra)] == [2, 4, 6]


def test_a_field_that_cannot_be_pickled_reaches_the_caller(cart: Any) -> None:
    told, hits = cart.spoilt(cart)
    assert "field 'extra' of Cart cannot be pickled" in told and hits == 0


def test_every_reference_turns_and_is_itself_again(farm: millrace.Connection) -> None:
    kinds = [getattr(millrace.objects, name) for name in millrace.objects.__all__]
    made: list[Any] = [kind.__new__(kind) for kind in kinds if isinstance(kind, type) and issubclass(kind, millrace.objects.Object)]
    made.append(farm.shared(Relay)("turned"))
    assert len(made) > 15
    for at, reference in enumerate(made):
        reference.key = f"key-{at}"

    class Of:
        pass

    of = Of()
    of.first, of.rest = made[0], {"rest": made[1:], "twice": made[0]}  # type: ignore[attr-defined]
    before = [(type(reference), dict(vars(reference))) for reference in made]
    with _turned.Turned(of, object(), None) as turned:
        assert turned is of and all(reference.__class__ is millrace.aio.Object for reference in made)
        made[0].sync._incarnation = before[0][1]["_incarnation"] = 7
        with _turned.Turned(of, None, object()):
            assert [(reference.__class__, vars(reference)) for reference in made] == before
        assert all(reference.__class__ is millrace.aio.Object for reference in made)
    assert [(type(reference), vars(reference)) for reference in made] == before


def test_a_turned_reference_is_the_same_object_for_every_operator(farm: millrace.Connection) -> None:
    class Of:
        pass

    of: Any = Of()
    of.items, of.number = farm.List("turned-items"), farm.AtomicInt("turned-number")
    of.items.append(1)
    known = {of.number: "number"}
    with _turned.Turned(of, object(), None):
        assert known[of.number] == "number" and of.number == of.number and of.items and not hasattr(of.number, "nothing")
        with pytest.raises(TypeError, match="no __len__"):
            len(of.items)
        with _turned.Turned(of, None, object()):
            assert known[of.number] == "number" and len(of.items) == 1 and of.items[0] == 1
            items = of.items
            of.items += [2]
            assert of.items is items and list(of.items) == [1, 2]
            of.number.value = 5
    assert of.number.value == 5 and type(of.number) is millrace.objects.AtomicInt


@millrace.shared(timeout=60.0)
class Counted:
    """Its threads use the reference in its field while an inner method of the other kind runs."""

    def __init__(self, count: Any) -> None:
        self.count = count

    def plain(self, me: Any, relay: Any) -> tuple[int, str]:
        done, calls, told = threading.Event(), 0, ""

        def wait() -> None:
            try:
                relay.go(me, "slow_later")
            finally:
                done.set()

        def start() -> None:
            nonlocal told
            late = threading.Thread(target=use)
            late.start()
            late.join()

        def use() -> None:
            nonlocal told
            try:
                self.count.get()
            except RuntimeError as error:
                told = str(error)

        caller, starter = threading.Thread(target=wait), threading.Timer(1, start)
        caller.start()
        starter.start()
        while not done.is_set():
            self.count.add()
            calls += 1
        caller.join()
        starter.join()
        return calls, told

    async def later(self, me: Any, relay: Any) -> int:
        done, calls = threading.Event(), 0

        def work() -> None:
            nonlocal calls
            while not done.is_set():
                self.count.sync.add()
                calls += 1

        worker = asyncio.create_task(asyncio.to_thread(work))
        try:
            await asyncio.to_thread(relay.sync.go, me.sync, "slow")
        finally:
            done.set()
            await worker
        return calls

    def both(self, me: Any, relay: Any, other: Any) -> None:
        slow = threading.Thread(target=relay.go, args=(me, "slow_later"))
        slow.start()
        time.sleep(0.5)
        quick = threading.Thread(target=other.go, args=(me, "quick_later"))
        quick.start()
        quick.join()
        slow.join()

    @millrace.reentrant
    async def quick_later(self) -> None:
        await self.count.add()

    @millrace.reentrant
    async def slow_later(self) -> None:
        await asyncio.sleep(1.5)
        # In a thread that was there before, or that starts now.
        await asyncio.to_thread(lambda: self.count.sync.add(1000))
        await asyncio.gather(*(self.count.add(1000) for _ in range(4)))

    @millrace.reentrant
    def slow(self) -> None:
        time.sleep(1.5)
        late = threading.Thread(target=lambda: self.count.add(1000))
        late.start()
        late.join()
        for _ in range(4):
            self.count.add(1000)


@pytest.mark.parametrize("kind", [PLAIN, LATER])
def test_threads_of_a_method_use_references_while_a_method_of_the_other_kind_runs_within_it(farm: millrace.Connection, kind: str) -> None:
    count = farm.AtomicInt(f"counted-{kind}")
    counted, relay = farm.shared(Counted)(f"threads-{kind}", count), farm.shared(Relay)(f"threads-{kind}-relay")
    if kind == PLAIN:
        calls, told = counted.plain(counted, relay)
        assert "a thread that started while an async reentrant method runs" in told
    else:
        calls = counted.later(counted, relay)
    assert calls > 0 and count.get() == calls + 5000


def test_two_threads_of_a_plain_method_call_async_methods_back(farm: millrace.Connection) -> None:
    count, Relays = farm.AtomicInt("counted-both"), farm.shared(Relay)
    counted = farm.shared(Counted)("threads-both", count)
    counted.both(counted, Relays("threads-both-1"), Relays("threads-both-2"))
    assert count.get() == 5001
