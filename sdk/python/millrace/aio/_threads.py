"""Threads and loops on an executor's workers, for asyncio. Workers have this file, too."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import itertools
import os

from millrace.aio._awaited import unhurried
from millrace.executor import _threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from typing import Any, Optional

    from millrace.aio import Executor


class CloudThread(_threads.CloudThread):
    """A `millrace.CloudThread` whose `join`, `result` and `stop` are awaited: `thread.start()`, then `await thread.join()`.

    Its code is a plain function, which runs on a worker. `await thread` is `await thread.result()`. If the caller that waits is
    cancelled, the thread continues.
    """

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
        super().__init__(group, target, name, args, kwargs, daemon=daemon)
        self._executor: Any = executor
        self._future: Any = None

    def start(self) -> None:
        """Starts it, within an event loop; it can be started once."""
        super().start()
        self._future.add_done_callback(_seen)

    async def join(self, timeout: Optional[float] = None) -> None:  # type: ignore[override]
        """Waits until it has ended, at most `timeout` seconds."""
        if self._future is None:
            raise RuntimeError("cannot join thread before it is started")
        await asyncio.wait([self._future], timeout=timeout)

    async def stop(self) -> bool:  # type: ignore[override]
        """Ends it, also if it runs: its worker is ended. Returns whether it had not ended. `result` then raises `CancelledError`."""
        if self._future is None:
            raise RuntimeError("it was not started")
        return bool(await self._executor._stop(self._future))

    async def result(self, timeout: Optional[float] = None) -> Any:
        """Waits for its return value, or raises its exception; of a stopped thread, `concurrent.futures.CancelledError`."""
        if self._future is None:
            raise RuntimeError("it was not started")
        await asyncio.wait([self._future], timeout=timeout)
        if not self._future.done():
            raise concurrent.futures.TimeoutError
        if self._future.cancelled():
            # Not that of asyncio, which would mean that the caller was cancelled.
            raise concurrent.futures.CancelledError
        return self._future.result()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.result().__await__()


def _seen(task: asyncio.Task[Any]) -> None:
    """A thread whose result nobody asks for is no reason for a warning."""
    if not task.cancelled():
        task.exception()


async def parallel_for(
    executor: Executor,
    n: int,
    body: Callable[[int], object],
    *,
    workers: int = 4,
    schedule: str = "dynamic",
    chunk: int = 1,
    progress: Optional[Callable[[int, int], object]] = None,
) -> None:
    """Runs `body(i)` for every i below `n`, on this many workers: `millrace.parallel_for` for asyncio, with the same arguments.

    `body` is a plain function, which runs on workers. `progress` runs in the event loop; what it returns is awaited if it can be.
    If the caller is cancelled, the workers end after the calls that they have begun with; with `static`, after their parts.
    """
    _threads.check_loop(n, body, workers, schedule, chunk)
    sync = executor._sync
    if sync is None:
        raise RuntimeError("cannot schedule new futures after shutdown")
    if not sync._shares or sync._is_spread:
        await _from_here(executor, n, body, workers, schedule, chunk, progress)
        return
    key = f"parallel-for-{os.urandom(8).hex()}"
    # Workers report here what they have done.
    steps: Any = executor._connection.Queue(f"{key}-steps") if progress is not None else None
    index: Any = executor._connection.AtomicLong(key) if schedule == "dynamic" else None
    if index is None:
        parts = {executor.submit(_threads._part, body, range(at, n, workers), chunk, steps) for at in range(min(workers, n))}
    else:
        parts = {executor.submit(_threads._share, body, index, n, chunk, steps) for _ in range(min(workers, n))}
    try:
        if progress is None:
            for part in asyncio.as_completed(parts):
                await part
        else:
            await _follow(parts, steps, n, progress)
    except BaseException:
        if index is not None:
            # The workers take no further indices.
            await unhurried(index.set(n))
        raise
    finally:
        await _cancel(parts)


async def _follow(
    parts: set[asyncio.Task[Any]], steps: Any, n: int, progress: Callable[[int, int], object]
) -> None:
    """Reports what the parts of a loop have done, until they have ended."""
    left, done = set(parts), 0
    waiting = asyncio.ensure_future(steps.get())
    try:
        while left or done < n:
            await asyncio.wait({waiting, *left}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                done += waiting.result()
                waiting = asyncio.ensure_future(steps.get())
                await _tell(progress, done, n)
            for part in [part for part in left if part.done()]:
                part.result()
                left.discard(part)
    finally:
        await _cancel({waiting})


async def _from_here(
    executor: Executor,
    n: int,
    body: Callable[[int], object],
    workers: int,
    schedule: str,
    chunk: int,
    progress: Optional[Callable[[int, int], object]],
) -> None:
    """The same for tasks without common shared objects: this program assigns the indices."""
    pieces = _threads.pieces_of(n, workers, schedule, chunk)
    parts = {executor.submit(_threads._part, body, piece) for piece in itertools.islice(pieces, workers)}
    done = 0
    try:
        while parts:
            ended, parts = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in ended:
                done += part.result()
                parts |= {executor.submit(_threads._part, body, piece) for piece in itertools.islice(pieces, 1)}
                if progress is not None:
                    await _tell(progress, done, n)
    finally:
        await _cancel(parts)


async def _tell(progress: Callable[[int, int], object], done: int, n: int) -> None:
    told = progress(done, n)
    if inspect.isawaitable(told):
        await told


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
