"""Executors and pools, where they differ from those of Python least visibly: their ends, their inputs, and what tasks find in a worker."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import millrace
import millrace.aio
import millrace.futures
import millrace.multiprocessing as multiprocessing
import millrace.threading
from conftest import PATIENCE_S
from millrace.executor import WorkerLost

pytest.importorskip("cloudpickle")


@pytest.fixture(scope="module")
def farm(binary: Path) -> Iterator[millrace.Connection]:
    """A private host."""
    os.environ["MILLRACE_BIN"] = str(binary)
    millrace.register_module(sys.modules[__name__])
    with millrace.connect() as connection:
        yield connection


def ends(work: Callable[[], Any]) -> Any:
    """What `work` returns; a test fails if it waits forever."""
    found: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return found.result(PATIENCE_S)


def _inputs(error: BaseException) -> Iterator[int]:
    yield from range(3)
    raise error


def test_a_callback_that_leaves_its_thread_loses_no_result_of_others(farm: millrace.Connection) -> None:
    with farm.Executor(workers=1) as executor:
        called: queue.Queue[BaseException] = queue.Queue()

        def leave(why: BaseException) -> None:
            called.put(why)
            raise why

        for why in [SystemExit(3), KeyboardInterrupt(), RuntimeError("of a callback")]:
            go = farm.Event(f"go after {why!r}")
            future = executor.submit(go.wait, 100)
            future.add_done_callback(lambda _, why=why: leave(why))  # type: ignore[misc]
            go.set()
            assert called.get(timeout=PATIENCE_S) is why
            assert executor.submit(abs, -2).result(PATIENCE_S) == 2


# The thread of the callbacks ends as the last of them said.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_callbacks_of_a_shared_future_do_not_end_each_other(farm: millrace.Connection) -> None:
    called: queue.Queue[str] = queue.Queue()

    def leave(_: object) -> None:
        called.put("left")
        sys.exit(3)

    pending, done = farm.Future("pending"), farm.Future("done")
    pending.add_done_callback(leave)
    pending.add_done_callback(lambda _: called.put("next"))
    pending.set_result(1)
    assert [called.get(timeout=PATIENCE_S) for _ in range(2)] == ["left", "next"]
    # It reports its end within this test.
    for thread in threading.enumerate():
        if thread.name == "millrace-callback-pending":
            thread.join(PATIENCE_S)
    done.set_result(1)
    with pytest.raises(SystemExit):
        done.add_done_callback(leave)
    done.add_done_callback(lambda _: called.put("again"))
    assert [called.get(timeout=PATIENCE_S) for _ in range(2)] == ["left", "again"]


@pytest.mark.parametrize("kind", ["executor", "ported", "spread"])
def test_an_input_that_raises_or_cannot_be_sent_leaves_nothing_to_wait_for(farm: millrace.Connection, kind: str) -> None:
    def work() -> None:
        if kind == "ported":
            made: millrace.Executor = millrace.futures.ProcessPoolExecutor(1)
        else:
            made = farm.Executor(workers=1, hosts=[farm.address] * 2 if kind == "spread" else None)
        with made as executor:
            for error in (ZeroDivisionError(), KeyboardInterrupt()):
                with pytest.raises(type(error)):
                    executor.map(abs, _inputs(error))
            with pytest.raises(TypeError):
                executor.map(print, [1, threading.Lock()])
            assert executor.submit(abs, -7).result(PATIENCE_S) == 7
            with pytest.raises(TypeError):
                executor.map(print, [1, threading.Lock()])
            executor.shutdown(cancel_futures=True)

    ends(work)


def test_every_task_draws_other_random_numbers_unless_the_initializer_sets_a_seed(farm: millrace.Connection) -> None:
    pytest.importorskip("numpy")

    def draw(_: int) -> tuple[float, float]:
        import numpy

        return random.random(), float(numpy.random.random())

    with farm.Executor(workers=2) as executor:
        drawn = list(executor.map(draw, range(20)))
        assert len({ours for ours, _ in drawn}) == 20 and len({theirs for _, theirs in drawn}) == 20

    def seed(number: int) -> None:
        import numpy

        random.seed(number)
        numpy.random.seed(number)

    import numpy

    expected = random.Random(7), numpy.random.RandomState(7)
    with farm.Executor(workers=1, initializer=seed, initargs=(7,)) as executor, farm.Executor(workers=1) as other:
        for number in range(4):
            assert executor.submit(draw, number).result(PATIENCE_S) == (expected[0].random(), expected[1].random_sample())
            # A task of another program, on the same worker.
            other.submit(draw, number).result(PATIENCE_S)


def test_a_task_finds_a_worker_as_if_it_were_the_first(farm: millrace.Connection) -> None:
    def look() -> tuple[str, list[str], Any, bool]:
        import sys

        return os.getcwd(), list(sys.argv), os.environ.get("LEFT"), sys.stdout.closed

    def leave() -> None:
        import io
        import sys

        os.chdir("/")
        sys.argv.append("left")
        os.environ["LEFT"] = "1"
        sys.stdout = io.StringIO()
        sys.stdout.close()

    def prepare() -> None:
        os.environ["LEFT"] = "prepared"

    with farm.Executor(workers=1) as executor, farm.Executor(workers=1, initializer=prepare) as prepared:
        before = executor.submit(look).result(PATIENCE_S)
        executor.submit(leave).result(PATIENCE_S)
        assert prepared.submit(look).result(PATIENCE_S) == (*before[:2], "prepared", False)
        assert executor.submit(look).result(PATIENCE_S) == before
        assert prepared.submit(look).result(PATIENCE_S)[2] == "prepared"


_EARLY = """
import millrace.queue as queue
import millrace.threading as threading

class Job:
    def __init__(self, number):
        self.number = number

    def work(self):
        return self.number ** 2

jobs, done = queue.Queue(), queue.Queue()
# Before there are workers, which do not have this module.
jobs.put(Job(7))
thread = threading.Thread(target=lambda: done.put(jobs.get().work()))
thread.start()
thread.result(100)
print(done.get(timeout=100))
"""


def test_what_was_put_before_there_were_workers_can_be_opened_there(binary: Path) -> None:
    variables = {**os.environ, "MILLRACE_BIN": str(binary)}
    done = subprocess.run(
        [sys.executable, "-c", _EARLY], cwd="/", env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == "49\n", done.stderr


def test_an_executor_accepts_nothing_once_it_is_to_end_and_every_caller_waits(farm: millrace.Connection) -> None:
    go, begun = farm.Event("go to the end"), farm.Event("begun to end")
    executor = farm.Executor(workers=1)
    runs = executor.submit(lambda: begun.set() or go.wait(100))
    assert begun.wait(PATIENCE_S)
    executor.shutdown(wait=False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, -1)
    over: list[bool] = []

    def wait() -> None:
        executor.shutdown(wait=True)
        over.append(runs.done())

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert not over and not runs.done()
    go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert over == [True, True] and runs.result(0) is True


def test_a_lost_worker_is_a_broken_executor_that_continues(farm: millrace.Connection) -> None:
    def die() -> None:
        os._exit(3)

    def be_killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with farm.Executor(workers=1, retries=0) as executor:
        for work, code in ((die, 3), (be_killed, -signal.SIGKILL)):
            with pytest.raises(BrokenProcessPool) as broken:
                executor.submit(work).result(PATIENCE_S)
            lost: Any = broken.value
            assert isinstance(lost, WorkerLost) and isinstance(lost, millrace.FunctionFailed) and lost.exitcode == code
            assert isinstance(lost, concurrent.futures.BrokenExecutor) and lost.code == "MR3111" and lost.remedy
        assert executor.submit(abs, -1).result(PATIENCE_S) == 1


def test_processes_end_with_the_codes_of_python(farm: millrace.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(millrace.threading, "excepthook", lambda _: None)

    def ended(target: Any, *args: Any) -> Any:
        process = multiprocessing.Process(target=target, args=args)
        process.start()
        process.join(PATIENCE_S)
        return process.exitcode

    assert [ended(abs, 1), ended(sys.exit), ended(sys.exit, 7), ended(sys.exit, 257), ended(sys.exit, "why")] == [0, 0, 7, 1, 1]
    assert ended(os._exit, 5) == 5
    go = farm.Event("never")
    processes = [multiprocessing.Process(target=go.wait) for _ in range(2)]
    for process in processes:
        process.start()
    processes[0].terminate()
    processes[1].kill()
    for process in processes:
        process.join(PATIENCE_S)
    assert [process.exitcode for process in processes] == [-15, -9]
    processes[0].close()
    with pytest.raises(ValueError, match="closed"):
        processes[0].is_alive()


def test_results_of_imap_come_as_input_is_read(farm: millrace.Connection) -> None:
    def check(number: int) -> int:
        if number == 2:
            raise KeyError(number)
        return number * number

    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in itertools.count():
            read.append(number)
            yield number

    with multiprocessing.Pool(2, maxtasksperchild=10, context=multiprocessing.get_context("spawn")) as pool:
        for imap in (pool.imap, pool.imap_unordered):
            read.clear()
            results, failed = imap(check, numbers()), 0
            found: list[int] = []
            while len(found) + failed < 6:
                try:
                    found.append(next(results))
                except KeyError:
                    failed += 1
            # An exception takes the place of a result, and the input has no end.
            assert failed <= 1 and len(read) < 100 and set(found) <= {number * number for number in read}
            assert sorted(imap(abs, [-1, -2, -3], 2)) == [1, 2, 3]
        results = pool.imap(check, range(4))
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(KeyError):
            next(results)
        assert list(results) == [9]
        failing = pool.imap(abs, _inputs(ZeroDivisionError()), 2)
        assert [next(failing), next(failing)] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            next(failing)
        assert list(failing) == []
        with pytest.raises(multiprocessing.TimeoutError):
            pool.imap(farm.Event("not set").wait, [100.0]).next(timeout=0.01)


def test_start_methods_have_no_effect() -> None:
    before = multiprocessing.get_start_method(allow_none=True)
    try:
        multiprocessing.set_start_method("fork", force=True)
        assert multiprocessing.get_start_method() == "fork" and multiprocessing.get_context("spawn") is multiprocessing
        with pytest.raises(RuntimeError):
            multiprocessing.set_start_method("spawn")
        with pytest.raises(ValueError, match="other"):
            multiprocessing.get_context("other")
    finally:
        multiprocessing.set_start_method(before, force=True)
    assert multiprocessing.get_start_method() in multiprocessing.get_all_start_methods()
