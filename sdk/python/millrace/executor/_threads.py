"""Threads and loops on an executor's workers. Workers have this file, too."""

from __future__ import annotations

import concurrent.futures
import inspect
import itertools
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from typing import Any, Optional, TypeVar

    from millrace.executor import Executor

    R = TypeVar("R")


def chunk(fn: Callable[..., R], calls: list[tuple[Any, ...]]) -> list[R]:
    """Several calls of a map at once."""
    return [fn(*args) for args in calls]


class CloudThread:
    """A `threading.Thread` that runs on a worker. `result` returns the return value of its target."""

    def __init__(
        self,
        group: None = None,
        target: Optional[Callable[..., Any]] = None,
        name: Optional[str] = None,
        args: Iterable[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        *,
        daemon: Optional[bool] = None,
        executor: Optional[Executor] = None,
    ) -> None:
        if group is not None:
            raise ValueError("group argument must be None for now")
        self._target, self._args, self._kwargs = target, tuple(args), dict(kwargs or {})
        #: Whose workers run it; a subclass may choose one when the thread starts.
        self._executor = executor
        self._future: Optional[Future[Any]] = None
        self.name = name or f"CloudThread-{id(self):x}"
        self.daemon = bool(daemon)

    def run(self) -> Any:
        """The code of the thread; a subclass may override it."""
        return self._target(*self._args, **self._kwargs) if self._target is not None else None

    def start(self) -> None:
        """Starts the thread. A thread can be started once."""
        if self._future is not None:
            raise RuntimeError("threads can only be started once")
        if self._executor is None:
            raise TypeError("a CloudThread needs an executor: CloudThread(..., executor=executor)")
        if type(self).run is CloudThread.run:
            target = self._target if self._target is not None else _nothing
            self._future = self._executor.submit(target, *self._args, **self._kwargs)
        else:
            self._future = self._executor.submit(_run_thread, self)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_executor": None, "_future": None}

    def join(self, timeout: Optional[float] = None) -> None:
        """Waits until the thread has ended, at most `timeout` seconds."""
        if self._future is None:
            raise RuntimeError("cannot join thread before it is started")
        concurrent.futures.wait([self._future], timeout)

    def is_alive(self) -> bool:
        """Whether the thread was started and has not ended."""
        return self._future is not None and not self._future.done()

    def stop(self) -> bool:
        """Ends the thread, even if it is running: its worker is ended. Returns False if it had already ended. `result` then raises `CancelledError`."""
        if self._future is None:
            raise RuntimeError("the thread was not started")
        # An invocation of Lambda that runs goes on to its time limit.
        stop: Any = getattr(self._future, "stop", self._future.cancel)
        return bool(stop())

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits for the thread; returns the return value of its target, or raises the exception."""
        if self._future is None:
            raise RuntimeError("the thread was not started")
        return self._future.result(timeout)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _run_thread(thread: CloudThread) -> Any:
    return thread.run()


def parallel_for(
    executor: Executor,
    n: int,
    body: Callable[[int], object],
    *,
    workers: int = 4,
    schedule: str = "dynamic",
    chunk: int = 1,
    progress: Optional[Callable[[int, int], object]] = None,
) -> None:
    """Runs `body(i)` for every i from 0 to `n` - 1, on `workers` workers.

    With the schedule `dynamic`, a worker takes the next `chunk` indices whenever it has finished some; with `static`, each worker has
    an equal part from the beginning. `progress` is called with the number of finished calls and the total, after every `chunk` calls of a worker. An
    exception of a body ends the loop.
    """
    check_loop(n, body, workers, schedule, chunk)
    if not executor._shares or executor._is_spread:
        _from_here(executor, n, body, workers, schedule, chunk, progress)
        return
    key = f"parallel-for-{os.urandom(8).hex()}"
    # Workers report what they have done here, and a part that has ended reports 0.
    steps: Any = executor._connection.Queue(f"{key}-steps") if progress is not None else None
    parts: set[Future[Any]]
    index: Any = executor._connection.AtomicLong(key) if schedule == "dynamic" else None
    if index is None:
        parts = {executor.submit(_part, body, range(at, n, workers), chunk, steps) for at in range(min(workers, n))}
    else:
        parts = {executor.submit(_share, body, index, n, chunk, steps) for _ in range(min(workers, n))}
    try:
        if progress is None:
            for part in concurrent.futures.as_completed(parts):
                part.result()
            return
        for part in parts:
            part.add_done_callback(lambda _: steps.put(0))
        left, done = set(parts), 0
        while left or done < n:
            count = steps.get()
            done += count
            if count:
                progress(done, n)
            for part in [part for part in left if part.done()]:
                part.result()
                left.discard(part)
    except BaseException:
        if index is not None:
            # The workers take no further indices.
            index.set(n)
        raise
    finally:
        for part in parts:
            part.cancel()


def _from_here(
    executor: Executor,
    n: int,
    body: Callable[[int], object],
    workers: int,
    schedule: str,
    chunk: int,
    progress: Optional[Callable[[int, int], object]],
) -> None:
    """The same for tasks without common shared objects: this program assigns the indices."""
    pieces = pieces_of(n, workers, schedule, chunk)
    parts = {executor.submit(_part, body, piece) for piece in itertools.islice(pieces, workers)}
    done = 0
    try:
        while parts:
            ended, parts = concurrent.futures.wait(parts, return_when=concurrent.futures.FIRST_COMPLETED)
            for part in ended:
                done += part.result()
                parts |= {executor.submit(_part, body, piece) for piece in itertools.islice(pieces, 1)}
                if progress is not None:
                    progress(done, n)
    finally:
        for part in parts:
            part.cancel()


def check_loop(n: int, body: Callable[[int], object], workers: int, schedule: str, chunk: int) -> None:
    """Refuses arguments of a loop."""
    if any(map(inspect.iscoroutinefunction, (body, getattr(body, "__call__", None)))):
        raise TypeError(f"the body of a loop is a plain function, not an async one, which nobody would await: {body!r}")
    if schedule not in ("dynamic", "static"):
        raise ValueError(f"the schedule {schedule!r} is neither 'dynamic' nor 'static'")
    if n < 0 or workers < 1 or chunk < 1:
        raise ValueError("n is at least 0, workers and chunk are at least 1")


def pieces_of(n: int, workers: int, schedule: str, chunk: int) -> Iterator[range]:
    """The indices of a loop, by task."""
    if schedule == "static":
        return (range(at, n, workers) for at in range(min(workers, n)))
    return (range(at, min(at + chunk, n)) for at in range(0, n, chunk))


def _part(body: Callable[[int], object], indices: range, chunk: int = 1, steps: Any = None) -> int:
    for at in range(0, len(indices), chunk):
        for index in indices[at : at + chunk]:
            body(index)
        if steps is not None:
            steps.put(len(indices[at : at + chunk]))
    return len(indices)


def _share(body: Callable[[int], object], index: Any, n: int, chunk: int, steps: Any) -> None:
    while (begin := index.get_and_add(chunk)) < n:
        end = min(begin + chunk, n)
        for at in range(begin, end):
            body(at)
        if steps is not None:
            steps.put(end - begin)
