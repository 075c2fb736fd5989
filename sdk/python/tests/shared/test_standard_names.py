"""`millrace.futures`, `.threading`, `.queue`, `.managers` and `.multiprocessing`: the names, signatures and behaviour of the standard library."""

from __future__ import annotations

import concurrent.futures
import inspect
import json
import multiprocessing
import multiprocessing.connection
import multiprocessing.managers
import multiprocessing.pool
import os
import queue
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millrace
import millrace.futures
import millrace.managers
import millrace.multiprocessing
import millrace.queue
import millrace.threading

pytest.importorskip("cloudpickle")


@pytest.fixture(scope="module")
def farm(binary: Path) -> Iterator[millrace.Connection]:
    """A private host, which the modules use as the newest connection."""
    os.environ["MILLRACE_BIN"] = str(binary)
    with millrace.connect() as connection:
        yield connection


def parameters(of: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults; classes by what makes their objects."""
    found = inspect.signature(of).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name != "self" and not one.name.startswith("_")]


#: Ours beside the standard library's. Where that is written in C and tells no signature, its twin in Python stands for it.
_RLock: Any = threading._RLock
_Queue = queue.Queue
_managers: Any = multiprocessing.managers
CLASSES: list[tuple[Any, Any, str]] = [
    (millrace.futures.ProcessPoolExecutor, concurrent.futures.ProcessPoolExecutor, "submit shutdown"),
    (millrace.futures.ThreadPoolExecutor, concurrent.futures.ThreadPoolExecutor, "submit shutdown"),
    (millrace.threading.Thread, threading.Thread, "start run join is_alive getName setName isDaemon setDaemon"),
    (millrace.threading.Timer, threading.Timer, "cancel run"),
    (millrace.threading.Lock, _RLock, "acquire release"),
    (millrace.threading.RLock, _RLock, "acquire release __enter__ __exit__"),
    (millrace.threading.Condition, threading.Condition, "wait wait_for notify notify_all notifyAll __enter__ __exit__"),
    (millrace.threading.Semaphore, threading.Semaphore, "acquire release __enter__ __exit__"),
    (millrace.threading.BoundedSemaphore, threading.BoundedSemaphore, "acquire release"),
    (millrace.threading.Event, threading.Event, "is_set isSet set clear wait"),
    (millrace.threading.Barrier, threading.Barrier, "wait reset abort"),
    (millrace.queue.Queue, _Queue, "put get put_nowait get_nowait task_done join qsize empty full"),
    (
        millrace.managers.SyncManager,
        multiprocessing.managers.SyncManager,
        "start connect join get_server register dict list Queue JoinableQueue Event Lock RLock Semaphore BoundedSemaphore"
        " Condition Barrier Pool Namespace Value Array __enter__ __exit__",
    ),
    (millrace.managers.Namespace, multiprocessing.managers.Namespace, ""),
    (millrace.managers.Value, _managers.Value, "get set"),
    (
        millrace.multiprocessing.Pool,
        multiprocessing.Pool,
        "",
    ),
    (
        millrace.multiprocessing.Pool,
        multiprocessing.pool.Pool,
        "apply apply_async map map_async starmap starmap_async imap imap_unordered close terminate join __enter__ __exit__",
    ),
    (millrace.multiprocessing.AsyncResult, multiprocessing.pool.ApplyResult, "get wait ready successful"),
    (millrace.multiprocessing.Process, multiprocessing.Process, "start run join is_alive terminate kill close"),
    (millrace.multiprocessing.Queue, multiprocessing.Queue, ""),
    (millrace.multiprocessing.Value, multiprocessing.Value, ""),
    (millrace.multiprocessing.Array, multiprocessing.Array, ""),
    (millrace.multiprocessing.Manager, multiprocessing.Manager, ""),
    (millrace.multiprocessing.Pipe, multiprocessing.Pipe, ""),
    (
        millrace.multiprocessing.Connection,
        multiprocessing.connection.Connection,
        "send recv send_bytes recv_bytes poll close fileno __enter__",
    ),
    (millrace.queue.LifoQueue, queue.LifoQueue, "put get put_nowait get_nowait task_done join qsize empty full"),
    (millrace.queue.PriorityQueue, queue.PriorityQueue, "put get put_nowait get_nowait task_done join qsize empty full"),
]

#: `multiprocessing.pool.Pool` has a context besides, which `multiprocessing.Pool` hides.
_OWN = {
    (millrace.multiprocessing.Connection, multiprocessing.connection.Connection),
    (millrace.multiprocessing.Pool, multiprocessing.pool.Pool),
    (millrace.multiprocessing.AsyncResult, multiprocessing.pool.ApplyResult),
}


@pytest.mark.parametrize(("ours", "theirs", "methods"), CLASSES, ids=lambda one: getattr(one, "__qualname__", ""))
def test_signatures_are_those_of_the_standard_library(ours: Any, theirs: Any, methods: str) -> None:
    if (ours, theirs) not in _OWN:
        assert parameters(ours) == parameters(theirs)
    for name in methods.split():
        mine, its = parameters(getattr(ours, name)), parameters(getattr(theirs, name))
        if name == "__exit__":
            # Nobody names what `with` passes.
            mine, its = [mine[0]] if mine[0][1] is inspect.Parameter.VAR_POSITIONAL else mine, its
            assert len(mine) in (len(its), 1) or its[0][1] is inspect.Parameter.VAR_POSITIONAL
            continue
        if (theirs, name) in ((multiprocessing.pool.Pool, "starmap_async"),):
            mine, its = mine[:3], its[:3]
        assert mine == its, f"{ours.__name__}.{name}"


@pytest.mark.parametrize("name", ["threading", "queue"])
def test_every_public_name_is_there(name: str) -> None:
    ours, theirs = getattr(millrace, name), {"threading": threading, "queue": queue}[name]
    left_out = {"gettrace", "getprofile", "setprofile_all_threads", "settrace_all_threads", "ShutDown"}
    assert set(theirs.__all__) - left_out <= set(ours.__all__)
    for public in ours.__all__:
        assert getattr(ours, public) is not None


def test_futures_have_the_names_of_concurrent_futures(farm: millrace.Connection) -> None:
    left_out = {"InterpreterPoolExecutor"}
    assert set(concurrent.futures.__all__) - left_out <= set(millrace.futures.__all__)
    for kind in (millrace.futures.ProcessPoolExecutor, millrace.futures.ThreadPoolExecutor):
        with kind(2) as executor:
            assert isinstance(executor, millrace.futures.Executor) and isinstance(executor, concurrent.futures.Executor)
            futures = [executor.submit(pow, x, 2) for x in range(5)]
            assert sorted(future.result() for future in millrace.futures.as_completed(futures, 120)) == [0, 1, 4, 9, 16]
            assert list(executor.map(pow, range(5), [2] * 5, timeout=120, chunksize=2)) == [0, 1, 4, 9, 16]
            assert executor.submit(os.getpid).result(120) != os.getpid()
        with pytest.raises(RuntimeError):
            executor.submit(abs, 1)
        with pytest.raises(ValueError):
            kind(0)
    with farm.Executor(workers=1) as worker:
        assert worker.submit(lambda: millrace.futures.FIRST_COMPLETED).result(120) == "FIRST_COMPLETED"
        with pytest.raises(NotImplementedError, match="a task cannot start"):
            worker.submit(lambda: millrace.futures.ProcessPoolExecutor()).result(120)
    with pytest.raises(ValueError, match="max_tasks_per_child"):
        millrace.futures.ProcessPoolExecutor(1, max_tasks_per_child=0)


def test_a_program_is_ported_by_its_imports(tmp_path: Path, binary: Path) -> None:
    program = textwrap.dedent(
        """
        import queue
        import threading

        jobs, squares = queue.Queue(), queue.Queue()
        lock, barrier = threading.RLock(), threading.Barrier(3)
        ready = threading.Condition()
        room = threading.BoundedSemaphore(2)

        def work():
            barrier.wait()
            while (job := jobs.get()) is not None:
                with room, lock, lock:
                    squares.put((threading.current_thread().name[:6], job * job))
                jobs.task_done()
            with ready:
                ready.notify()

        threads = [threading.Thread(target=work, name=f"worker-{n}") for n in range(3)]
        with ready:
            for thread in threads:
                thread.start()
            for job in range(9):
                jobs.put(job)
            jobs.join()
            for _ in threads:
                jobs.put(None)
            print("notified:", ready.wait(120))
        for thread in threads:
            thread.join()
        print(sorted(squares.get() for _ in range(9)))
        """
    )
    told = []
    for prefix in ("", "millrace."):
        file = tmp_path / f"{prefix}program.py"
        file.write_text(program.replace("import queue", f"import {prefix}queue as queue").replace(
            "import threading", f"import {prefix}threading as threading"
        ))
        env = {**os.environ, "MILLRACE_BIN": str(binary)}
        env.pop("MILLRACE_NAMESPACE", None)
        ran = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0 and not ran.stderr, ran.stderr
        told.append(ran.stdout)
    assert told[0] == told[1] and "notified: True" in told[0]


#: What they print is the same with both libraries.
PORTED = {
    "local": """
        import queue
        import threading

        class Named(threading.local):
            kind = "thread"

            def __init__(self, first):
                self.values = [first]

            @property
            def sum(self):
                return sum(self.values)

        mine, plain, told = Named(1), threading.local(), queue.Queue()
        plain.value = "of the program"

        def work(number):
            before = mine.sum, hasattr(plain, "value"), mine.kind
            mine.values.append(number)
            mine.kind, plain.value = "own", number
            del mine.kind
            told.put((before, mine.sum, mine.kind, sorted(mine.__dict__), plain.value))

        for number in range(3):
            threads = [threading.Thread(target=work, args=(number,))]
            threads[0].start()
            threads[0].join()
            print(told.get())
        try:
            print(mine.sum, plain.value, plain.other)
        except AttributeError as error:
            print("other" in str(error))
        try:
            threading.local(1)
        except TypeError as error:
            print(error)
        """,
    "queues": """
        import queue
        import threading

        last, lowest, results = queue.LifoQueue(3), queue.PriorityQueue(), queue.Queue()
        for item in (3, 1, 2):
            last.put(item)
        try:
            last.put(4, timeout=0.01)
        except queue.Full:
            print("full", last.full(), last.qsize())
        print([last.get() for _ in range(3)], last.empty())
        try:
            last.get_nowait()
        except queue.Empty:
            print("empty")
        for item in ((5, "e"), (1, "a"), (3, "c"), (1, "b"), (9, "z")):
            lowest.put(item)

        def work():
            while (item := lowest.get())[0] < 100:
                results.put(item)
                lowest.task_done()
            lowest.task_done()
            last.put("from the thread")

        thread = threading.Thread(target=work)
        thread.start()
        lowest.join()
        print([results.get() for _ in range(5)])
        lowest.put((100, None))
        print(last.get(timeout=120))
        thread.join()
        lowest.join()
        try:
            lowest.task_done()
        except ValueError as error:
            print(error)
        """,
    "pipes": """
        import multiprocessing

        def child(end, receiving):
            end.send(["child", end.recv(), receiving.recv_bytes()])
            end.send(["from", {"the": "child"}])
            end.close()

        if __name__ == "__main__":
            here, there = multiprocessing.Pipe()
            receiving, sending = multiprocessing.Pipe(duplex=False)
            process = multiprocessing.Process(target=child, args=(there, receiving))
            process.start()
            there.close()
            print(there.closed, receiving.readable, receiving.writable, sending.readable, here.poll())
            here.send((1, "two"))
            sending.send_bytes(b"bytes", 1, 3)
            print(here.poll(120), here.recv(), here.recv())
            try:
                here.recv()
            except EOFError:
                print("ended")
            process.join()
            for refused in (sending.recv, lambda: receiving.send(1), there.poll):
                try:
                    refused()
                except OSError as error:
                    print(error)
        """,
    "managers": """
        from multiprocessing.managers import BaseManager

        class Sums:
            def __init__(self, start=0):
                self.total = start

            def add(self, number):
                if number < 0:
                    raise ValueError("below 0")
                self.total += number
                return self.total

            def hidden(self):
                return "secret"

        class Manager(BaseManager):
            pass

        Manager.register("Sums", Sums)
        Manager.register("Few", Sums, exposed=["add"])

        if __name__ == "__main__":
            with Manager() as manager:
                sums, few = manager.Sums(5), manager.Few(start=1)
                print(sums.add(3), sums.add(number=4), few.add(1), manager.Sums().add(0), sums.hidden())
                try:
                    sums.add(-1)
                except ValueError as error:
                    print(error)
                try:
                    few.hidden()
                except AttributeError:
                    print("hidden")
        """,
}


@pytest.mark.parametrize("name", PORTED)
def test_programs_print_the_same_with_both_libraries(name: str, tmp_path: Path, binary: Path) -> None:
    told = []
    for prefix in ("", "millrace."):
        program = textwrap.dedent(PORTED[name])
        for module in ("queue", "threading", "multiprocessing"):
            program = program.replace(f"import {module}\n", f"import {prefix}{module} as {module}\n")
        if prefix:
            program = program.replace("from multiprocessing.managers", "from millrace.managers")
        file = tmp_path / f"{prefix}program.py"
        file.write_text(program)
        env = {**os.environ, "MILLRACE_BIN": str(binary)}
        env.pop("MILLRACE_NAMESPACE", None)
        ran = subprocess.run([sys.executable, str(file)], env=env, capture_output=True, text=True, timeout=300, check=False)
        assert ran.returncode == 0, ran.stderr
        told.append(ran.stdout)
    assert told[0] == told[1]


def test_locks_know_their_owner_in_every_thread(farm: millrace.Connection) -> None:
    lock, inside = millrace.threading.RLock(), farm.AtomicInt("inside")

    def work() -> None:
        for _ in range(5):
            with lock:
                assert lock.acquire(timeout=100)
                assert inside.add() == 1
                inside.decrement()
                lock.release()

    # Threads of this program and of others at the same time.
    local = [threading.Thread(target=work) for _ in range(2)]
    remote = [millrace.threading.Thread(target=work) for _ in range(2)]
    both: list[Any] = [*local, *remote]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    for one in remote:
        one.result(120)
    assert not lock.locked()
    with pytest.raises(RuntimeError, match="un-acquired"):
        lock.release()
    plain = millrace.threading.Lock()
    assert plain.acquire() is True and plain.acquire(blocking=False) is False and plain.acquire(timeout=0.01) is False
    token = plain.token
    plain.release()
    assert plain.acquire() and plain.token > token > 0
    with pytest.raises(ValueError, match="non-blocking"):
        plain.acquire(False, 1.0)


def test_conditions_that_share_a_lock_wake_their_own(farm: millrace.Connection) -> None:
    lock = millrace.threading.Lock()
    full, empty = millrace.threading.Condition(lock), millrace.threading.Condition(lock)
    waiting, woken = farm.AtomicInt("waiting"), farm.List("woken")

    def wait(condition: Any, name: str) -> None:
        with condition:
            waiting.add()
            assert condition.wait(120)
            woken.append(name)

    threads = [
        millrace.threading.Thread(target=wait, args=(condition, name))
        for condition, name in ((full, "full"), (full, "full"), (empty, "empty"))
    ]
    for thread in threads:
        thread.start()
    while True:
        with lock:
            # Who has counted itself has the lock, and waits once it is free.
            if waiting.get() == 3:
                assert not full.wait(0.01)
                empty.notify(5)
                break
        time.sleep(0.01)
    threads[2].result(120)
    assert list(woken) == ["empty"]
    with full:
        full.notify_all()
    for thread in threads:
        thread.result(120)
    assert sorted(woken) == ["empty", "full", "full"]
    with pytest.raises(RuntimeError, match="un-acquired"):
        full.notify()
    with pytest.raises(TypeError, match="millrace.threading"):
        millrace.threading.Condition(threading.Lock())  # type: ignore[arg-type]


def shown(farm: millrace.Connection, key: str) -> dict[str, Any]:
    """What the host says of an object."""
    return dict(json.loads(farm.remote.show("objects", target=key)))


def test_a_notification_passes_over_a_waiter_that_died(farm: millrace.Connection) -> None:
    lock = millrace.threading.Lock()
    condition, waiting, woken = millrace.threading.Condition(lock), farm.AtomicInt("w2"), farm.Event("w2-woken")
    assert condition._waiters is not None
    key, began = condition._waiters.key, farm.Event("w2-began")

    def die() -> None:
        with condition:
            began.set()
            condition.wait()

    # The host ends the worker at the task's timeout; on a slow machine the task may not have got as far as to wait.
    for timeout in (1.0, 8.0, 60.0):
        with farm.Executor(workers=1, retries=0, timeout=timeout) as dying, pytest.raises(millrace.Error):
            dying.submit(die).result(120)
        if began.is_set():
            break
    # Its lease ends.
    while shown(farm, key)["waiting"]:
        time.sleep(0.05)

    def wait() -> None:
        with condition:
            waiting.add()
            assert condition.wait(120)
        woken.set()

    thread = millrace.threading.Thread(target=wait)
    thread.start()
    while waiting.get() == 0:
        time.sleep(0.01)
    with condition:
        condition.notify()
    assert woken.wait(120)
    thread.result(120)


def test_waiting_on_a_condition_of_a_lock_leaves_nothing_on_the_host(farm: millrace.Connection) -> None:
    lock = millrace.threading.Lock()
    condition = millrace.threading.Condition(lock)

    def wait() -> None:
        with condition:
            assert not condition.wait(0.001)

    def keys() -> list[str]:
        return [found["key"] for found in json.loads(farm.remote.show("objects", limit="1000"))["objects"]]

    wait()
    before = keys()
    for _ in range(5):
        wait()
    assert keys() == before


def test_a_barrier_breaks_if_the_program_that_runs_its_action_ends(farm: millrace.Connection) -> None:
    barrier = farm.Barrier("dying", 2)

    def come() -> None:
        barrier.wait(action=lambda: os._exit(1))

    with farm.Executor(workers=2, retries=0) as workers:
        waits = [workers.submit(come) for _ in range(2)]
        errors = {type(wait.exception(120)).__name__ for wait in waits}
    assert "BrokenBarrierError" in errors and len(errors) == 2
    assert barrier.broken


def test_a_barrier_runs_its_action_once_for_all(farm: millrace.Connection) -> None:
    rounds, seen = farm.AtomicInt("rounds"), farm.List("seen")
    barrier = millrace.threading.Barrier(3, action=rounds.add, timeout=120)

    def work() -> None:
        for _ in range(2):
            barrier.wait()
            seen.append(rounds.get())
            barrier.wait()

    threads = [millrace.threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.result(120)
    assert sorted(seen) == [1, 1, 1, 3, 3, 3] and barrier.parties == 3 and not barrier.broken

    def refuse() -> None:
        raise LookupError

    broken = millrace.threading.Barrier(1, action=refuse)
    with pytest.raises(LookupError):
        broken.wait()
    assert broken.broken
    with pytest.raises(threading.BrokenBarrierError):
        broken.wait()


def test_threads_tell_who_they_are_and_what_they_raised(farm: millrace.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(millrace.threading, "excepthook", told.append)

    class Own(millrace.threading.Thread):
        def run(self) -> tuple[str, bool]:
            here = millrace.threading.current_thread()
            return here.name, here.ident == millrace.threading.get_ident() == self.ident

    own = Own(name="own")
    assert own.ident is None and not own.is_alive()
    own.start()
    assert own.result(120) == ("own", True) and own.ident != millrace.threading.get_ident()
    with pytest.raises(RuntimeError, match="once"):
        own.start()
    assert millrace.threading.current_thread() is threading.current_thread()

    def fail() -> None:
        raise ZeroDivisionError("there")

    failing = millrace.threading.Thread(target=fail)
    failing.start()
    failing.join()
    with pytest.raises(ZeroDivisionError):
        failing.result(120)
    assert [hook.exc_type for hook in told] == [ZeroDivisionError] and told[0].thread is failing
    timer = millrace.threading.Timer(600, fail)
    timer.start()
    timer.cancel()
    timer.result(120)


def test_what_cannot_be_is_refused_with_its_reason(farm: millrace.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = millrace.multiprocessing.Manager()
    for refused in (
        lambda: millrace.threading.stack_size(1),
        lambda: manager.dict().fromkeys("ab"),
        lambda: manager.get_server(),
        lambda: type(manager).register("Own"),
        lambda: type(manager).register("Own", lambda: manager),
        lambda: type(manager).register("Own", dict, proxytype=dict),
        lambda: millrace.multiprocessing.Pipe()[0].fileno(),
        lambda: millrace.managers.SyncManager(authkey=b"x"),
        lambda: manager.Array("Z", [1]),
    ):
        with pytest.raises(NotImplementedError, match=r"[:;]"):
            refused()

    monkeypatch.setattr(millrace.threading, "excepthook", lambda _: None)

    def start() -> None:
        millrace.threading.Thread(target=print).start()

    thread = millrace.threading.Thread(target=start)
    thread.start()
    with pytest.raises(NotImplementedError, match="a task cannot start threads"):
        thread.result(120)


def test_a_module_that_a_task_imports_creates_no_objects_of_its_own(
    farm: millrace.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ported.py").write_text(
        "import millrace.threading as threading\nlock = threading.Lock()\n\ndef locked():\n    return lock.locked()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import ported  # type: ignore[import-not-found]

    with farm.Executor(workers=1, env={"PYTHONPATH": str(tmp_path)}) as executor:
        source = (tmp_path / "ported.py").read_text()

        def imported(source: str = source) -> None:
            # What an installed module is to a worker.
            import types

            exec(compile(source, "ported.py", "exec"), types.ModuleType("ported").__dict__)

        with pytest.raises(RuntimeError, match="register_module"):
            executor.submit(imported).result(120)
        millrace.register_module(ported)
        with ported.lock:
            assert executor.submit(ported.locked).result(120) is True
        assert executor.submit(ported.locked).result(120) is False


def test_a_manager_has_what_that_of_multiprocessing_has(farm: millrace.Connection) -> None:
    with millrace.managers.SyncManager() as manager:
        words, numbers, settings = manager.dict(a=1), manager.list(range(3)), manager.Namespace(x=1)
        value, array, lock = manager.Value("i", 5), manager.Array("d", [1, 2]), manager.Lock()

        def work(name: str) -> None:
            with lock:
                words[name] = words.get(name, 0) + 1
                settings.x += 1
                value.value += 1
                array[0] += 0.5
            numbers.append(name)

        with manager.Pool(2) as pool:
            pool.map(work, ["x", "y", "x"])
        assert words.copy() == {"a": 1, "x": 2, "y": 1} == words | {} and settings.x == 4 and value.get() == 8
        assert list(array) == [2.5, 2.0] and len(array) == 2 and sorted(map(str, numbers)) == ["0", "1", "2", "x", "x", "y"]
        numbers += [7]
        assert 7 in numbers and (numbers + [1])[-2:] == [7, 1] and next(reversed(numbers)) == 7 and numbers.index(7, 3) == 6
        numbers[:] = [3, 1, 2]
        numbers.sort()
        numbers.reverse()
        numbers.remove(2)
        assert list(numbers) == [3, 1]
        del settings.x
        with pytest.raises(AttributeError):
            _ = settings.x
        with pytest.raises(TypeError):
            array[0] = "x"
    with pytest.raises(RuntimeError, match="started"):
        manager.dict()


def test_arrays_of_numbers_are_those_of_multiprocessing(farm: millrace.Connection) -> None:
    for ours, theirs in (
        (millrace.multiprocessing.Array("d", 6), multiprocessing.Array("d", 6)),
        (millrace.multiprocessing.Array("B", range(6)), multiprocessing.Array("B", range(6))),
        (millrace.multiprocessing.Array("l", [-1] * 6), multiprocessing.Array("l", [-1] * 6)),
    ):
        for one in (ours, theirs):
            one[1:4] = [7, 8, 9]
            one[-1] = 5
            one[::3] = (1, 2)
            with one.get_lock():
                one[2:2] = []
            with pytest.raises(ValueError):
                one[0:2] = [1]
            with pytest.raises(IndexError):
                one[6]
            with pytest.raises(TypeError):
                one[0] = "x"
        assert len(ours) == len(theirs) and list(ours) == ours[:] == theirs[:]
        assert (ours[1:3], ours[::-2], ours[-2], ours[9:]) == (theirs[1:3], theirs[::-2], theirs[-2], theirs[9:])
    with pytest.raises(OverflowError):
        millrace.multiprocessing.Array("B", [256])
    with farm.Executor(workers=1) as executor:
        assert executor.submit(lambda shared: shared[1:3], millrace.multiprocessing.Array("i", [1, 2, 3])).result(120) == [2, 3]
    assert millrace.multiprocessing.Array("u", "abc")[:] == ["a", "b", "c"]


def test_a_manager_reaches_the_host_that_its_address_names(farm: millrace.Connection) -> None:
    other = millrace.managers.SyncManager(farm.address)
    other.start()
    condition, names = other.Condition(), other.dict(a=1)
    with condition:
        assert not condition.wait(0.01)
    space = names._space
    assert space is not farm.space and space is condition._lock._lock._space
    other.shutdown()
    with pytest.raises(millrace.Error):
        names["a"]


def test_pools_are_those_of_multiprocessing(farm: millrace.Connection) -> None:
    told: list[Any] = []
    with millrace.multiprocessing.Pool(2) as pool:
        assert pool.map(abs, range(-10, 0)) == list(range(10, 0, -1)) and pool.apply(pow, (2, 5)) == 32
        assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9] and list(pool.imap(abs, [-1, -2], chunksize=2)) == [1, 2]
        assert sorted(pool.imap_unordered(abs, [-1, -2])) == [1, 2]
        later = pool.map_async(abs, [-3], callback=told.append)
        assert later.get(120) == [3] and later.successful()
        failing = pool.apply_async(divmod, (1, 0), error_callback=told.append)
        with pytest.raises(ZeroDivisionError):
            failing.get(120)
        assert not failing.successful()
        stop = farm.Event("stop")
        with pytest.raises(multiprocessing.TimeoutError):
            pool.apply_async(stop.wait).get(0.01)
        stop.set()
        assert pool.map(abs, []) == []
        pool.close()
        pool.join()
        with pytest.raises(ValueError, match="not running"):
            pool.map(abs, [1])
    assert told[0] == [3] and isinstance(told[1], ZeroDivisionError)

    def leave(code: int) -> None:
        raise SystemExit(code)

    total = millrace.multiprocessing.Value("i", 0)

    def count() -> None:
        with total.get_lock():
            total.value += 1

    processes = [millrace.multiprocessing.Process(target=count) for _ in range(4)]
    processes.append(millrace.multiprocessing.Process(target=leave, args=(3,)))
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0, 0, 3] and total.value == 4
