"""Objects of classes of the user's own: methods run in workers, next to their fields."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import millrace
from millrace.executor import RemoteTraceback

pytest.importorskip("cloudpickle")


@millrace.shared
class Gate:
    """Lets as many in as fit."""

    def __init__(self, size: int) -> None:
        self.size, self.inside = size, 0
        self.names: list[str] = []

    def enter(self, name: str) -> int:
        if self.inside >= self.size:
            raise OverflowError(f"{name} does not fit")
        self.inside += 1
        self.names.append(name)
        return self.inside

    @millrace.readonly
    def who(self) -> list[str]:
        return self.names

    @millrace.readonly
    def cheat(self) -> None:
        self.inside = 0

    def fill(self, other: Any, name: str) -> Any:
        return other.enter(name)

    def hand_over(self, other: Any, me: Any) -> Any:
        return other.fill(me, "again")

    def try_circle(self, me: Any) -> str:
        try:
            me.enter("again")
        except millrace.Conflict as error:
            return error.code
        return ""

    def half(self) -> None:
        self.inside = 99
        raise LookupError("half done")


@millrace.shared
class Careless:
    """Leaves and returns what cannot be kept."""

    def __init__(self) -> None:
        self.held: Any = None

    def hold(self, what: Any) -> None:
        self.held = what

    def hold_lock(self) -> None:
        self.held = threading.Lock()

    def give_lock(self) -> Any:
        return threading.Lock()

    def large(self, size: int, give: bool) -> Any:
        self.held = b"x" if give else bytes(size)
        return bytes(size) if give else None

    def ask(self, me: Any) -> Any:
        return me.hold(1)

    @millrace.readonly
    def length(self) -> int:
        return len(self.held or b"")


def test_what_cannot_travel_is_named_and_changes_nothing(farm: millrace.Connection) -> None:
    careless = farm.shared(Careless)("careless")
    with pytest.raises(TypeError) as raised:
        careless.hold(threading.Lock())
    if sys.version_info >= (3, 11):
        assert "an argument of hold of 'careless'" in raised.value.__notes__[0]
    with pytest.raises(TypeError, match="field 'held' of Careless cannot be pickled"):
        careless.hold_lock()
    with pytest.raises(TypeError, match="the result of give_lock cannot be pickled"):
        careless.give_lock()
    # Long values are refused where they are, and not after they were copied.
    long = bytes((16 << 20) + 1)
    with pytest.raises(millrace.Conflict, match="MR7108: an argument of hold of 'careless'"):
        careless.hold(long)
    with pytest.raises(millrace.Conflict, match="MR7108: an argument of set of 'blob'"):
        farm.AtomicBytes("blob").set(long)
    for size in (len(long), (16 << 20) - 10):
        for give in (False, True):
            with pytest.raises(millrace.Conflict, match="MR7108"):
                careless.large(size, give)
    with pytest.raises(millrace.Conflict, match="'careless' would wait for itself"):
        careless.ask(careless)
    assert careless.length() == 0
    with pytest.raises(TypeError, match="text, not 'int'"):
        farm.AtomicInt(5)
    with pytest.raises(millrace.Conflict, match="'careless' is of type Shared, not Queue"):
        farm.Queue("careless").qsize()


def test_methods_run_elsewhere_one_at_a_time_and_the_host_keeps_the_fields(farm: millrace.Connection) -> None:
    gates = farm.shared(Gate)
    gate = gates("front", 300)
    assert gate.enter("ann") == 1 and gates("front").enter("bob") == 2
    assert gate.who() == ["ann", "bob"]
    seen: list[int] = []

    def enter() -> None:
        for _ in range(20):
            seen.append(gate.enter("x"))

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(3, 83))


def test_an_exception_arrives_with_its_traceback_and_keeps_what_was_changed(farm: millrace.Connection) -> None:
    gate = farm.shared(Gate)("small", 1)
    gate.enter("ann")
    with pytest.raises(OverflowError, match="bob does not fit") as raised:
        gate.enter("bob")
    cause = raised.value.__cause__
    assert isinstance(cause, RemoteTraceback) and "in enter" in str(cause)
    with pytest.raises(LookupError, match="half done"):
        gate.half()
    with pytest.raises(OverflowError):
        gate.enter("carl")

    @millrace.shared(rollback=True)
    class Careful(Gate):
        pass

    careful = farm.shared(Careful)("careful", 1)
    with pytest.raises(LookupError, match="half done"):
        careful.half()
    assert careful.enter("ann") == 1


def test_a_method_marked_readonly_changes_nothing_and_others_cannot_be_called_as_such(farm: millrace.Connection) -> None:
    gate = farm.shared(Gate)("readonly", 2)
    gate.enter("ann")
    with pytest.raises(TypeError, match="marked read-only and has changed 'inside'"):
        gate.cheat()
    assert gate.enter("bob") == 2
    about = {**gate._methods, "enter": (True, 1000)}
    forged = millrace.objects._classes.SharedClass(gate._about, about, 0, farm.space)("readonly")
    forged._methods = about
    with pytest.raises(TypeError, match="not marked read-only"):
        forged.enter("carl")


def test_methods_call_other_objects_and_a_circle_is_refused_and_named(farm: millrace.Connection) -> None:
    gates = farm.shared(Gate)
    one, two = gates("one", 9), gates("two", 9)
    assert one.fill(two, "ann") == 1 and two.who() == ["ann"]
    with pytest.raises(millrace.Conflict, match="'one' and 'two' would wait for each other") as raised:
        one.hand_over(two, one)
    assert raised.value.code == "MR7118"
    assert one.try_circle(one) == "MR7118"
    assert one.enter("after") == 1


def test_two_methods_that_call_each_other_at_once_do_not_hang(farm: millrace.Connection) -> None:
    @millrace.shared
    class Meets:
        def __init__(self) -> None:
            self.met = 0

        def meet(self, other: Any, barrier: Any) -> int:
            barrier.wait()
            try:
                return int(other.plain())
            except millrace.Conflict:
                return -1

        def plain(self) -> int:
            return 1

    meets, barrier = farm.shared(Meets), farm.Barrier("meet", 2)
    one, two = meets("m1"), meets("m2")
    found: list[int] = []
    threads = [threading.Thread(target=lambda a, b: found.append(a.meet(b, barrier)), args=pair) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == [-1, 1]


def test_more_methods_wait_for_others_than_the_pool_has_workers(farm: millrace.Connection) -> None:
    @millrace.shared
    class Link:
        def __init__(self, after: Any) -> None:
            self.after = after

        def depth(self) -> int:
            return 1 + (self.after.depth() if self.after is not None else 0)

    links, last = farm.shared(Link), None
    for number in range(6):
        last = links(f"link-{number}", last)
    assert last is not None and last.depth() == 6


def test_a_method_that_does_not_end_is_ended_and_changes_nothing(farm: millrace.Connection) -> None:
    @millrace.shared
    class Stuck:
        def __init__(self) -> None:
            self.value = 1

        @millrace.method(timeout=0.2)
        def loop(self) -> None:
            self.value = 2
            while True:
                pass

        @millrace.method(timeout=0.2)
        def swallow(self) -> None:
            self.value = 3
            while True:
                try:
                    time.sleep(1)
                except TimeoutError:
                    pass

        def get(self) -> int:
            return self.value

        def die(self) -> None:
            self.value = 4
            os._exit(1)

    stuck = farm.shared(Stuck)("stuck")
    with pytest.raises(TimeoutError, match="did not end within 0.2 seconds"):
        stuck.loop()
    assert stuck.get() == 1
    with pytest.raises(millrace.FunctionFailed) as raised:
        stuck.swallow()
    assert raised.value.code == "MR7119" and stuck.get() == 1
    with pytest.raises(millrace.FunctionFailed, match="MR7119"):
        stuck.die()
    assert stuck.get() == 1


def test_only_changed_fields_travel(farm: millrace.Connection) -> None:
    @millrace.shared
    class Table:
        def __init__(self) -> None:
            self.large, self.small = b"x" * (12 << 20), 0

        def count(self) -> int:
            self.small += 1
            return self.small

        def size(self) -> int:
            return len(self.large)

    table = farm.shared(Table)("table")
    assert [table.count() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert table.size() == 12 << 20


def versions() -> tuple[Any, Any, Any]:
    """Three versions of one class; the last has no way from the ones before."""

    def class_of(version: int, migrates: bool) -> Any:
        class Account:
            def __init__(self) -> None:
                self.cents = 100

            def get(self) -> Any:
                return version, vars(self)

        if migrates:

            def migrate(cls: Any, fields: dict[str, Any], before: int) -> dict[str, Any]:
                return {"euros": fields["cents"] / 100, "was": before}

            Account.__migrate__ = classmethod(migrate)  # type: ignore[attr-defined]
        return millrace.shared(version=version)(Account)

    return class_of(1, False), class_of(2, True), class_of(3, False)


def test_a_newer_class_migrates_the_fields_and_others_are_refused(farm: millrace.Connection) -> None:
    first, second, third = versions()
    old = farm.shared(first)("account")
    assert old.get() == (1, {"cents": 100})
    with pytest.raises(millrace.Conflict, match="MR7120.* and no __migrate__"):
        farm.shared(third)("account").get()
    assert old.get() == (1, {"cents": 100})
    new = farm.shared(second)("account")
    assert new.get() == (2, {"euros": 1.0, "was": 1})
    with pytest.raises(millrace.Conflict, match="version 2 of the class, and the caller has version 1"):
        old.get()

    @millrace.shared(version=2)
    class Account:
        def get(self) -> int:
            return 7

    Account.__qualname__ = second.__qualname__
    with pytest.raises(millrace.Conflict, match="differs from that of the object"):
        farm.shared(Account)("account").get()


def test_a_constructor_that_raises_leaves_no_object(farm: millrace.Connection) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        farm.shared(Gate)("unmade").who()
    assert farm.shared(Gate)("unmade", 1).enter("ann") == 1


def test_tasks_use_references_and_classes(farm: millrace.Connection) -> None:
    gates = farm.shared(Gate)
    gate = gates("tasks", 100)
    with farm.Executor(workers=2) as executor:
        assert sorted(executor.map(gate.enter, ["a", "b", "c"])) == [1, 2, 3]

        def make(gates: Any) -> int:
            return int(gates("made-by-a-task", 3).enter("x"))

        assert executor.submit(make, gates).result(120) == 1
    assert gates("made-by-a-task", 3).who() == ["x"]


def test_what_is_no_shared_class_is_refused(farm: millrace.Connection) -> None:
    class Plain:
        pass

    with pytest.raises(TypeError, match="not marked with @millrace.shared"):
        farm.shared(Plain)
    with pytest.raises(TypeError, match="has __slots__"):

        @millrace.shared
        class Slots:
            __slots__ = ("x",)

    with pytest.raises(ValueError, match="version -1"):
        millrace.shared(version=-1)
    with pytest.raises(TypeError, match="Later.get is a generator"):

        @millrace.shared
        class Later:
            async def get(self) -> AsyncIterator[int]:
                yield 1

        farm.shared(Later)
    for few in (0, 4):
        with pytest.raises(millrace.Invalid, match="MR7113"):
            farm.AtomicInt("copies", persistent=True, rf=few)
    with pytest.raises(millrace.Invalid, match="MR7113"):
        farm.AtomicInt("copies", rf=2)
    # The host belongs to no cluster.
    with pytest.raises(millrace.Invalid, match="MR7113"):
        farm.AtomicInt("copies", persistent=True, rf=2).add()
    with pytest.raises(millrace.Invalid, match="MR7113"):
        farm.shared(Gate, persistent=True, rf=2)
    with pytest.raises(millrace.Invalid, match="an empty list of addresses"):
        millrace.connect([])
