"""Shared objects through a host."""

from __future__ import annotations

import collections
import concurrent.futures
import json
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import millrace
from millrace import objects
from millrace.objects import _spaces, _values


@pytest.fixture
def farm(ns: millrace.Namespace, host: Callable[..., Any]) -> Iterator[millrace.Connection]:
    """A connection to a host."""
    served = host(ns)
    with millrace.connect(served.socket) as connection:
        yield connection


def among(count: int, work: Callable[[int], object]) -> None:
    """Has threads do this, and fails if one of them does."""
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed, failed
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, 127, 128, 255, 256, -1, -32, -33, -129, 1 << 32, -(1 << 63), (1 << 63) - 1, 1 << 70),
        *(1.5, float("inf"), "", "a" * 40, "é" * 400, b"", b"x" * 70_000, [1, [2, "x"]], {"a": 1, 2: (3, 4)}, (1, (2,)), {1, 2}),
    ],
)
def test_values_come_back_as_they_were(value: object) -> None:
    found = _values.decode(_values.encode(value))
    assert found == value and type(found) is type(value)


def test_many_threads_count_together(farm: millrace.Connection) -> None:
    hits = farm.AtomicInt("hits")

    def work(_: int) -> None:
        for _ in range(50):
            hits.add()

    among(8, work)
    assert hits.get() == 400
    assert hits.get_and_set(7) == 400 and hits.compare_and_set(7, 8) and not hits.compare_and_set(7, 9)
    hits.value += 2
    assert int(hits) == 10 and hits.multiply(3) == 30
    with pytest.raises(OverflowError):
        hits.multiply(1 << 62)
    assert hits.get() == 30


def test_collections_are_those_of_python(farm: millrace.Connection) -> None:
    words = farm.Dict("words")
    words["a"] = [1, {"b": (2, None)}]
    words.update({"x": 1}, y=2.5)
    words[(1, "two")] = {3}
    assert words["a"] == [1, {"b": (2, None)}] and words[(1, "two")] == {3} and "x" in words and len(words) == 4
    assert words.get("none", 5) == 5 and words.setdefault("x", 9) == 1 and words.pop("y") == 2.5
    with pytest.raises(KeyError):
        words["none"]
    assert words.popitem() == ((1, "two"), {3}) and list(words) == ["a", "x"]
    assert words.add("n", 2) == 2 and words.add("n", 0.5) == 2.5 and words.put_if_absent("q", 1) and not words.put_if_absent("q", 2)

    ordered = farm.SortedDict("ordered")
    for key in (3, 1.5, -2, "b", "a", b"z"):
        ordered[key] = str(key)
    assert ordered.keys() == [-2, 1.5, 3, "a", "b", b"z"]
    assert [key for key, _ in ordered.range(0, "b")] == [1.5, 3, "a"]
    assert ordered.first() == (-2, "-2") and ordered.last() == (b"z", "b'z'")

    numbers = farm.List("numbers")
    numbers.extend([3, 1, 2])
    numbers.insert(0, 9)
    numbers[-1] = 7
    assert list(numbers) == [9, 3, 1, 7] and numbers[1:3] == [3, 1] and numbers.index(1) == 2 and numbers.pop() == 7
    with pytest.raises(IndexError):
        numbers[17]
    del numbers[0]
    assert list(numbers) == [3, 1] and numbers.count(3) == 1

    seen = farm.Set("seen")
    assert seen.add(1) and not seen.add(1) and 1 in seen and seen.discard(1) and len(seen) == 0
    with pytest.raises(KeyError):
        seen.remove(1)

    counts = farm.Counter("counts")
    counts.update("abracadabra")
    assert counts.most_common(2) == [("a", 5), ("b", 2)] and counts["a"] == 5 and counts["none"] == 0 and counts.total() == 11

    blob = farm.Blob("blob", b"hello")
    blob.write(7, b"world")
    assert blob.read() == b"hello\0\0world" and blob.read(7, 3) == b"wor" and blob.append(b"!") == 12 and len(blob) == 13

    matrix = farm.Matrix("matrix", 2, 3)
    matrix[0, 1] = 2.5
    assert matrix.add(0, 1, 0.5) == 3.0 and matrix.shape == (2, 3)
    matrix.add_row(1, [1, 2, 3])
    matrix.add_row(1, [1, 2, 3])
    assert matrix[1, 2] == 6.0 and len(matrix.tobytes()) == 48
    with pytest.raises(IndexError):
        matrix[2, 0]


@pytest.mark.parametrize("key", [[1], {1: 2}, object(), frozenset([1]), (1, [2]), bytearray(b"x")])
def test_a_key_that_could_not_be_found_again_is_refused(farm: millrace.Connection, key: Any) -> None:
    words, seen, counts = farm.Dict("refusing"), farm.Set("refusing-set"), farm.Counter("refusing-counter")
    calls: list[Callable[[], object]] = [
        lambda: words.__setitem__(key, 1),
        lambda: words.get(key),
        lambda: words.compare_and_set(key, 1, 2),
        lambda: seen.add(key),
        lambda: seen.update(["a", key]),
        lambda: counts.add(key),
        lambda: farm.SortedDict("refusing-sorted").range(key, None),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="keys of shared objects are"):
            call()
    assert len(words) == len(seen) == len(counts) == 0
    words.update({"list": [1], "dict": {}})
    assert words.items() == [("list", [1]), ("dict", {})]


def test_a_lock_lets_one_in_and_its_tokens_only_grow(farm: millrace.Connection) -> None:
    lock, inside, tokens = farm.Lock("door"), farm.AtomicInt("inside"), []

    def work(_: int) -> None:
        with lock as token:
            assert inside.add() == 1
            tokens.append(token)
            inside.decrement()

    among(8, work)
    assert tokens == sorted(set(tokens)) and not lock.locked()
    assert lock.acquire() > tokens[-1] and lock.acquire(blocking=False) is False and lock.acquire(timeout=0.05) is False
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_who_is_gone_holds_nothing_when_its_lease_is_over(farm: millrace.Connection) -> None:
    remote = millrace.open(farm.address)
    gone = _spaces.ClientSpace(remote, "", lease=0.2)
    assert farm.Lock("door").acquire(blocking=False)
    farm.Lock("door").release()
    objects.Lock("door", space=gone).acquire()
    # As when its program is killed: nothing more is heard of it.
    gone._closed.set()
    lock = farm.Lock("door")
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(timeout=120)
    with pytest.raises(millrace.Gone) as late:
        objects.Lock("door", space=gone).release()
    assert late.value.code == "MR7110"


def test_a_queue_is_that_of_python(farm: millrace.Connection) -> None:
    jobs, done = farm.Queue("jobs", maxsize=2), farm.List("done")

    def work(number: int) -> None:
        if number == 0:
            for item in range(20):
                jobs.put(item)
            jobs.join()
            for _ in range(3):
                jobs.put(None)
        else:
            while (item := jobs.get()) is not None:
                done.append(item)
                jobs.task_done()

    among(4, work)
    assert sorted(done) == list(range(20)) and jobs.empty()
    with pytest.raises(queue.Empty):
        jobs.get_nowait()
    jobs.put(1)
    jobs.put(2)
    with pytest.raises(queue.Full):
        jobs.put(3, timeout=0.01)
    assert jobs.full()


def test_barriers_latches_events_conditions_and_futures(farm: millrace.Connection) -> None:
    barrier, latch, places = farm.Barrier("barrier", 4), farm.CountDownLatch("latch", 4), farm.Set("places")

    def work(_: int) -> None:
        for round in range(3):
            places.add((round, barrier.wait()))
        latch.count_down()
        assert latch.wait()

    among(4, work)
    assert len(places) == 12 and latch.get_count() == 0
    with pytest.raises(threading.BrokenBarrierError):
        barrier.wait(timeout=0.01)
    assert barrier.broken
    barrier.reset()
    assert not barrier.broken

    event = farm.Event("event")
    assert not event.wait(0.01)
    condition, items = farm.Condition("condition"), farm.List("items")

    def talk(number: int) -> None:
        if number < 3:
            event.wait()
            with condition:
                condition.wait_for(lambda: len(items) > 0)
                items.pop()
        else:
            event.set()
            for item in range(3):
                with condition:
                    items.append(item)
                    condition.notify_all()

    among(4, talk)
    assert len(items) == 0
    with condition:
        assert not condition.wait(0.01)

    future = farm.Future("future")
    with pytest.raises(TimeoutError):
        future.result(timeout=0.01)
    future.set_result({"a": 1})
    assert future.result() == {"a": 1} and future.done()
    failed = farm.Future("failed")
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.result()


def test_a_thousand_who_wait_hold_up_nobody(farm: millrace.Connection) -> None:
    latch = farm.CountDownLatch("latch", 1)
    waiters = [threading.Thread(target=latch.wait) for _ in range(100)]
    for waiter in waiters:
        waiter.start()
    counter = farm.AtomicInt("counter")
    for _ in range(100):
        counter.add()
    latch.count_down()
    for waiter in waiters:
        waiter.join(120)
    assert not any(waiter.is_alive() for waiter in waiters)


def test_a_key_is_one_object_and_a_lost_one_is_no_fresh_zero(farm: millrace.Connection) -> None:
    farm.AtomicInt("hits").add(5)
    with pytest.raises(millrace.Conflict) as mismatch:
        len(farm.Dict("hits"))
    assert mismatch.value.code == "MR7103"
    other = millrace.connect(farm.address)
    theirs = other.AtomicInt("theirs")
    theirs.add()
    reference = pickle.dumps(theirs)
    other.close()
    _spaces.use(farm.space)
    with pytest.raises(millrace.Gone) as lost:
        pickle.loads(reference).get()
    assert lost.value.code == "MR7106"
    assert farm.AtomicInt("theirs").get() == 0


def test_objects_of_an_application_stay_as_long_as_one_of_its_programs(farm: millrace.Connection) -> None:
    first = millrace.connect(farm.address, app="counting")
    first.AtomicInt("shared").add(3)
    second = millrace.connect(farm.address, app="counting")
    first.close()
    assert second.AtomicInt("shared").get() == 3
    second.close()
    assert farm.AtomicInt("shared").get() == 0


def test_calls_survive_a_host_that_is_slow_to_answer(farm: millrace.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_spaces, "_SLICE_S", 0.05)
    event = farm.Event("event")
    waiter = threading.Thread(target=event.wait)
    waiter.start()
    time.sleep(0.3)
    event.set()
    waiter.join(120)
    assert not waiter.is_alive()


def test_an_object_is_deleted_and_those_who_wait_for_it_hear_of_it(farm: millrace.Connection) -> None:
    queue, words = farm.Queue("doomed"), farm.Dict("doomed-words")
    words["a"] = 1
    assert farm.delete(words) and not farm.delete(words)
    assert farm.Dict("doomed-words").items() == []
    failed: list[str] = []

    def wait() -> None:
        try:
            queue.get()
        except millrace.Gone as error:
            failed.append(error.code)

    waiting = threading.Thread(target=wait)
    queue.qsize()
    waiting.start()
    while not json.loads(farm.remote.show("objects", target="doomed"))["waiting"]:
        time.sleep(0.01)
    assert farm.delete(farm.Queue("doomed"))
    waiting.join(120)
    assert failed == ["MR7106"]
    with pytest.raises(millrace.Conflict, match="MR7103"):
        farm.Set("taken").add(1)
        farm.delete(farm.Dict("taken"))


def test_what_the_host_does_not_have_is_computed_from_the_whole(farm: millrace.Connection) -> None:
    words = farm.Counter("words")
    words.update("abracadabra")
    expected = collections.Counter("abracadabra")
    assert sorted(words) == sorted(expected) and dict(zip(words.keys(), words.values())) == dict(expected)
    assert "a" in words and "z" not in words and (words.get("a"), words.get("z"), words.get("z", 7)) == (5, None, 7)
    assert sorted(words.elements()) == sorted("abracadabra") and words.copy() == expected
    words.subtract("aab")
    words.subtract({"r": 1})
    expected.subtract("aabr")
    assert words.copy() == expected
    one, two = farm.Set("one"), farm.Set("two")
    one.update([1, 2, 3])
    two.update([3, 4])
    assert (one | two, one & two, one - two, one ^ two) == ({1, 2, 3, 4}, {3}, {1, 2}, {1, 2, 4})
    assert one.union(two, [9]) == {1, 2, 3, 4, 9} and one.intersection(two) == {3} and one.difference(two) == {1, 2}
    assert one.symmetric_difference(two) == {1, 2, 4} and one.copy() == {1, 2, 3}
    assert one.isdisjoint([7]) and one.issuperset([1]) and one.issubset([1, 2, 3, 4]) and not one.issubset(two)
    told = farm.Dict("told")
    told.update({"a": 1, ("b", 2): [3]})
    assert told.copy() == {"a": 1, ("b", 2): [3]}
    done, failed, cancelled = farm.Future("done"), farm.Future("failed"), farm.Future("cancelled")
    done.set_result(1)
    failed.set_exception(KeyError("x"))
    cancelled.cancel()
    assert done.exception() is None and isinstance(failed.exception(), KeyError)
    with pytest.raises(concurrent.futures.CancelledError):
        cancelled.exception()
