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
    """Runs this in threads, and fails if one of them does."""
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
    # As when its program is killed: no further requests of it arrive.
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


@pytest.mark.parametrize(
    "change",
    [
        lambda items: items.sort(),
        lambda items: items.sort(key=lambda x: -x, reverse=True),
        lambda items: items.reverse(),
        lambda items: items.remove(1),
        lambda items: items.remove(True),
        lambda items: items.remove(99),
        lambda items: items.insert(-1, 8),
        lambda items: items.insert(99, 8),
        lambda items: items.pop(2),
        lambda items: items.pop(99),
        lambda items: items.__imul__(2),
        lambda items: items.__imul__(0),
        lambda items: items.__iadd__((7, 8)),
        lambda items: items.__setitem__(slice(1, 3), "abcd"),
        lambda items: items.__setitem__(slice(-1, None), []),
        lambda items: items.__setitem__(slice(4, 1), [0]),
        lambda items: items.__setitem__(slice(None, None, 2), [0, 0, 0]),
        lambda items: items.__setitem__(slice(None, None, 2), [0]),
        lambda items: items.__delitem__(slice(1, 3)),
        lambda items: items.__delitem__(slice(None, None, -2)),
        lambda items: items.__delitem__(-1),
        lambda items: items.clear(),
    ],
)
def test_a_list_changes_as_that_of_python(farm: millrace.Connection, change: Callable[[Any], Any]) -> None:
    ours, theirs = farm.List("changing"), [3, 1, 2.0, 1.0, 5]
    ours.extend(theirs)
    raised: list[Any] = []
    for items in (ours, theirs):
        try:
            change(items)
            raised.append(None)
        except Exception as error:
            raised.append(type(error))
    assert list(ours) == theirs and raised[0] == raised[1]


def test_the_rest_of_a_list_is_that_of_python(farm: millrace.Connection) -> None:
    ours, theirs = farm.List("rest"), [3, 1, 2.0, True, {1, 2}, (1, 2.0)]
    ours.extend(theirs)
    for wanted in (1, 1.0, True, 2, {2, 1}, (True, 2), "x"):
        assert ours.count(wanted) == theirs.count(wanted) and (wanted in ours) == (wanted in theirs)
    assert ours.index(1, 2) == theirs.index(1, 2) == 3 and ours.index(2, -4, -1) == theirs.index(2, -4, -1)
    with pytest.raises(ValueError):
        ours.index(3, 1)
    assert ours + [1] == theirs + [1] and [1] + ours == [1] + theirs and ours * 2 == 2 * ours == theirs * 2
    assert ours[::-2] == theirs[::-2] and list(reversed(ours)) == theirs[::-1] and ours.copy() == theirs
    missing = {name for name in dir(list) if not name.startswith("_")} - set(dir(objects.List))
    missing |= {name for name in dir(set) if not name.startswith("_")} - set(dir(objects.Set))
    missing |= {name for name in dir(dict) if not name.startswith("_")} - set(dir(objects.Dict))
    missing |= {name for name in dir(collections.Counter) if not name.startswith("_")} - set(dir(objects.Counter))
    missing |= {name for name in dir(concurrent.futures.Future) if not name.startswith("_")} - set(dir(objects.Future))
    assert not missing


def test_lists_are_sorted_while_others_append(farm: millrace.Connection) -> None:
    numbers = farm.List("numbers")

    def work(number: int) -> None:
        for at in range(20):
            if number == 0:
                numbers.sort()
            else:
                numbers.append(100 * number - at)

    among(4, work)
    numbers.sort(key=str, reverse=True)
    expected = [100 * number - at for number in range(1, 4) for at in range(20)]
    assert list(numbers) == sorted(expected, key=str, reverse=True)


def test_sets_are_changed_at_one_moment(farm: millrace.Connection) -> None:
    def filled(items: Any) -> Any:
        items.clear()
        items.update([1, 2, 3], (4,))
        return items

    ours = farm.Set("ours")
    theirs: set[Any] = set()
    changes: list[Callable[[Any], object]] = [
        lambda items: items.difference_update([1, 2.0], {3}),
        lambda items: items.intersection_update([1.0, 2, 7], [True]),
        lambda items: items.intersection_update(),
        lambda items: items.symmetric_difference_update([4, 5, 5]),
        lambda items: items.__ior__({9}),
        lambda items: items.__iand__({1, 2}),
        lambda items: items.__isub__({1, 2}),
        lambda items: items.__ixor__({1, 9}),
    ]
    for change in changes:
        change(filled(ours))
        change(filled(theirs))
        assert set(ours) == theirs
    filled(ours)
    assert {1} | ours == {1, 2, 3, 4} and {1, 9} & ours == {1} and {1, 9} - ours == {9} and {1, 9} ^ ours == {2, 3, 4, 9}
    assert ours >= {1} and ours > {1} and ours <= {1, 2, 3, 4} and not ours < {1, 2, 3, 4}
    with pytest.raises(TypeError, match="keys of shared objects"):
        ours.difference_update([[1]])
    same = ours
    same |= {10}
    assert same is ours and 10 in ours


def test_equal_keys_are_one_key_as_in_python(farm: millrace.Connection) -> None:
    for name, ours in (("Dict", farm.Dict("d")), ("SortedDict", farm.SortedDict("s"))):
        theirs: dict[Any, Any] = {}
        for words in (ours, theirs):
            words[1] = "a"
            words[1.0] = "b"
            words[True] = "c"
            words[(1, 0.0)] = "d"
            words[(True, False)] = "e"
            words[0.5] = "f"
            words[2**53 + 1] = "g"
        assert dict(ours.items()) == theirs and len(ours) == 4, name
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), "the key that came first stays"
        assert ours.pop(True) == "c" and 1 not in ours and ours.get((1.0, 0)) == "e" and float(2**53 + 1) not in ours
        assert ours.compare_and_set(0.5, "f", 1) and ours.compare_and_set(0.5, 1.0, 2) and not ours.compare_and_pop(0.5, 3)
        assert ours.compare_and_pop(0.5, 2.0) and 0.5 not in ours
    seen, counts = farm.Set("seen"), farm.Counter("counts")
    assert seen.add(1) and not seen.add(True) and 1.0 in seen and list(map(repr, seen)) == ["1"]
    counts.update([0, False, 0.0])
    assert counts[0] == 3 and len(counts) == 1
    persistent = farm.Dict("kept", persistent=True)
    persistent[1.0] = 1
    persistent[1] = 2
    assert list(map(repr, persistent.keys())) == ["1.0"] and persistent[True] == 2


def test_dicts_and_counters_have_the_operators_of_python(farm: millrace.Connection) -> None:
    words = farm.Dict("words")
    same = words
    words |= {"a": 1}
    words |= [("b", 2)]
    assert words is same and words | {"c": 3} == {"a": 1, "b": 2, "c": 3} and {"a": 0} | words == {"a": 1, "b": 2}
    assert list(reversed(words)) == ["b", "a"]
    counts, expected = farm.Counter("operators"), collections.Counter("aab")
    counts.update("aab")
    counts["c"] = expected["c"] = 5
    other = collections.Counter("abz")
    for ours, theirs in (
        (counts + other, expected + other),
        (counts - other, expected - other),
        (counts & counts, expected),
        (counts | other, expected | other),
        (-counts, -expected),
        (+counts, +expected),
    ):
        assert ours == theirs
    assert counts.pop("c") == 5 and counts.pop("c", 7) == 7 and counts["c"] == 0
    del counts["a"]
    del counts["none"]
    assert counts.copy() == {"b": 1}
    refusals: list[Callable[[], object]] = [
        lambda: counts.__iadd__(other),
        lambda: counts.__isub__(other),
        lambda: counts.setdefault("a", 1),
        lambda: farm.Future("f").set_running_or_notify_cancel(),
        lambda: objects.Dict.fromkeys("ab"),
    ]
    for refused in refusals:
        with pytest.raises(NotImplementedError, match="; (use|ask)|: others"):
            refused()
    with pytest.raises(TypeError, match="number"):
        counts["a"] = "x"
    hits = number = farm.AtomicInt("hits")
    hits += 3
    hits -= 1
    assert hits is number and hits.get() == 2


def test_callbacks_are_called_when_a_future_has_its_result(farm: millrace.Connection, caplog: pytest.LogCaptureFixture) -> None:
    told: queue.Queue[Any] = queue.Queue()
    future = farm.Future("called-back")

    def fails(_: Any) -> None:
        raise ValueError("in a callback")

    future.add_done_callback(lambda of: told.put(("first", of is future)))
    future.add_done_callback(fails)
    future.add_done_callback(lambda of: told.put(("second", of.result())))
    assert told.empty() and not future.running()
    farm.Future("called-back").set_result(7)
    assert [told.get(timeout=120), told.get(timeout=120)] == [("first", True), ("second", 7)]
    assert "in a callback" in caplog.text
    future.add_done_callback(lambda of: told.put(of.result()))
    assert told.get_nowait() == 7, "one that is done calls at once"
    cancelled = farm.Future("cancelled-back")
    cancelled.add_done_callback(lambda of: told.put(of.cancelled()))
    cancelled.cancel()
    assert told.get(timeout=120) is True


def test_an_object_that_exists_is_not_taken_for_one_with_other_arguments(farm: millrace.Connection) -> None:
    made: list[tuple[Callable[..., Any], tuple[Any, ...], list[tuple[Any, ...]], list[tuple[Any, ...]]]] = [
        (farm.AtomicInt, (5,), [(), (5,)], [(6,), (0,)]),
        (farm.AtomicInt, (), [(), (0,)], [(1,)]),
        (farm.AtomicBool, (), [(), (False,)], [(True,)]),
        (farm.AtomicBytes, (b"x",), [(), (b"x",)], [(b"",), (None, {1})[1:]]),
        (farm.Queue, (3,), [(), (3,)], [(4,), (0,)]),
        (farm.Queue, (), [(), (0,)], [(4,)]),
        (farm.Semaphore, (2,), [(), (2,)], [(1,)]),
        (farm.Barrier, (2,), [(2,)], [(3,)]),
        (farm.CountDownLatch, (2,), [(2,)], [(3,)]),
        (farm.Matrix, (2, 2), [(2, 2)], [(2, 3)]),
        (farm.Blob, (b"abc",), [(), (b"abc",)], [(b"ab",)]),
    ]
    for persistent in (False, True):
        for number, (kind, arguments, fitting, others) in enumerate(made):
            key = f"made-{number}-{persistent}"
            kind(key, *arguments, persistent=persistent)._touch()
            for fits in fitting:
                kind(key, *fits, persistent=persistent)._touch()
            for other in others:
                with pytest.raises(millrace.Conflict, match="was created with other arguments") as refused:
                    kind(key, *other, persistent=persistent)._touch()
                assert refused.value.code == "MR7125"
    counted = farm.AtomicInt("made-0-False", 5)
    counted.set(9)
    assert farm.AtomicInt("made-0-False", 5).get() == 9, "the value may change"
    assert farm.delete(farm.AtomicInt("made-0-False", 1)) and farm.AtomicInt("made-0-False", 1).get() == 1
    with pytest.raises(millrace.Conflict):
        farm.Semaphore("made-6-False", 2, bound=3).acquire()
