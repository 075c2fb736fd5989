"""Pools of processes, and their results."""

from __future__ import annotations

import collections as _collections
import concurrent.futures as _futures
import itertools as _itertools
import multiprocessing as _multiprocessing
import os as _os
import queue as _queue
import threading as _threading

from millrace.threading import _runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, Optional

__all__ = ["AsyncResult", "IMapIterator", "Pool"]

TimeoutError = _multiprocessing.TimeoutError

#: How many calls, or chunks of calls, an iterator over results has under way for each worker.
_AHEAD = 4


class AsyncResult:
    """A `multiprocessing.pool.AsyncResult`."""

    def __init__(
        self,
        futures: list[_futures.Future[Any]],
        join: Callable[[list[Any]], Any],
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> None:
        self._futures, self._join = futures, join
        self._callback, self._error_callback = callback, error_callback
        self._left = _itertools.count(1)
        for future in futures:
            future.add_done_callback(self._ended)
        if not futures and callback is not None:
            callback(join([]))

    def _ended(self, _: object) -> None:
        # `next` on a count is one step for all threads.
        if next(self._left) < len(self._futures):
            return
        try:
            value = self.get(0)
        except BaseException as error:
            if self._error_callback is not None:
                self._error_callback(error)
        else:
            if self._callback is not None:
                self._callback(value)

    def get(self, timeout: Optional[float] = None) -> Any:
        """Waits for the result; raises the exception of the call, or `TimeoutError`."""
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        return self._join([future.result() for future in self._futures])

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until there is a result."""
        _futures.wait(self._futures, timeout)

    def ready(self) -> bool:
        """Whether there is a result."""
        return all(future.done() for future in self._futures)

    def successful(self) -> bool:
        """Whether the call raised no exception."""
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return all(not future.cancelled() and future.exception() is None for future in self._futures)


def _flat(parts: list[list[Any]]) -> list[Any]:
    return [value for part in parts for value in part]


def _call(func: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
    return [func(*args) for args in calls]


class Pool:
    """A `multiprocessing.Pool` on the workers of a host.

    `maxtasksperchild` and `context` have no effect: the host starts workers, and replaces one that exceeds its memory.
    """

    def __init__(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: Optional[int] = None,
        **_on: Any,
    ) -> None:
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild <= 0):
            raise ValueError("maxtasksperchild must be a positive int or None")
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        at, _ = _on.pop("_connection", None), _on.pop("context", None)
        if _on:
            raise TypeError(f"Pool() got an unexpected keyword argument {next(iter(_on))!r}")
        self._processes = processes or _os.cpu_count() or 1
        at = at or _runtime.connection()
        self._executor = at.Executor(workers=self._processes, initializer=initializer, initargs=tuple(initargs))
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def _parts(self, func: Callable[..., Any], calls: Iterable[tuple[Any, ...]], chunksize: Optional[int]) -> list[Any]:
        self._check()
        everything = list(calls)
        if chunksize is None:
            # As in the standard library: about four parts for each worker.
            chunksize = max(1, -(-len(everything) // (self._processes * 4)))
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        parts = [everything[at : at + chunksize] for at in range(0, len(everything), chunksize)]
        return list(self._executor._begin((_call, (func, part), {}) for part in parts))

    def apply(self, func: Callable[..., Any], args: Iterable[Any] = (), kwds: Mapping[str, Any] = {}) -> Any:
        """Calls a function on a worker; returns its result."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., Any],
        args: Iterable[Any] = (),
        kwds: Mapping[str, Any] = {},
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> AsyncResult:
        """Calls a function on a worker; returns a result to wait for."""
        self._check()
        future = self._executor.submit(func, *args, **kwds)
        return AsyncResult([future], lambda results: results[0], callback, error_callback)

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: Optional[int] = None) -> list[Any]:
        """Yields the results of the function, in order."""
        found: list[Any] = self.map_async(func, iterable, chunksize).get()
        return found

    def map_async(
        self,
        func: Callable[[Any], Any],
        iterable: Iterable[Any],
        chunksize: Optional[int] = None,
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> AsyncResult:
        """As `map`; returns a result to wait for."""
        return AsyncResult(self._parts(func, zip(iterable), chunksize), _flat, callback, error_callback)

    def starmap(
        self, func: Callable[..., Any], iterable: Iterable[Iterable[Any]], chunksize: Optional[int] = None
    ) -> list[Any]:
        """As `map`; each element is a tuple with the arguments of a call."""
        found: list[Any] = self.starmap_async(func, iterable, chunksize).get()
        return found

    def starmap_async(
        self,
        func: Callable[..., Any],
        iterable: Iterable[Iterable[Any]],
        chunksize: Optional[int] = None,
        callback: Optional[Callable[[Any], object]] = None,
        error_callback: Optional[Callable[[BaseException], object]] = None,
    ) -> AsyncResult:
        """As `starmap`; returns a result to wait for."""
        return AsyncResult(self._parts(func, map(tuple, iterable), chunksize), _flat, callback, error_callback)

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        """As `map`, one result after the other. Input is read as results are taken, a few calls for each worker ahead."""
        return IMapIterator(self, func, iterable, chunksize, True)

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator:
        """As `imap`, in the order in which results arrive."""
        return IMapIterator(self, func, iterable, chunksize, False)

    def close(self) -> None:
        """Accepts no more calls."""
        self._closed = True

    def terminate(self) -> None:
        """Accepts no more calls, and cancels those that have not ended, including running ones."""
        self._closed = True
        with self._executor._lock:
            left = list(self._executor._futures.values())
        for future in left:
            future.stop()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Waits until all calls have ended."""
        if not self._closed:
            raise ValueError("Pool is still running")
        self._executor.shutdown(wait=True)

    def __enter__(self) -> Pool:
        self._check()
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.terminate()


class IMapIterator:
    """The results of `imap` and `imap_unordered`. An exception takes the place of a result, and the next results follow."""

    def __init__(self, pool: Pool, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int, ordered: bool) -> None:
        pool._check()
        if chunksize < 1:
            raise ValueError(f"Chunksize must be 1+, not {chunksize:n}")
        self._pool, self._func, self._chunksize, self._ordered = pool, func, chunksize, ordered
        self._input: Optional[Iterable[Any]] = iterable
        self._source: Optional[Iterator[Any]] = None
        #: Whether the input has ended, and the exception that has ended it.
        self._is_read = False
        self._failed: Optional[BaseException] = None
        #: The chunks under way, those of them that have ended, and the results of the one that is passed on.
        self._parts: _collections.deque[_futures.Future[Any]] = _collections.deque()
        self._ended: _queue.SimpleQueue[_futures.Future[Any]] = _queue.SimpleQueue()
        self._values: _collections.deque[Any] = _collections.deque()
        self._lock = _threading.Lock()
        with self._lock:
            self._submit()

    def _submit(self) -> None:
        """Submits calls, as far as there is room for them."""
        chunks: list[list[tuple[Any, ...]]] = []
        while not self._is_read and len(self._parts) + len(chunks) < _AHEAD * self._pool._processes:
            try:
                if self._source is None:
                    self._source, self._input = iter(self._input or ()), None
                chunk = [(value,) for value in _itertools.islice(self._source, self._chunksize)]
            except Exception as error:
                # In the place of the chunk in which it was raised.
                self._failed, self._is_read = error, True
                break
            if chunk:
                chunks.append(chunk)
            self._is_read = len(chunk) < self._chunksize
        if not chunks:
            return
        parts = self._pool._executor._begin((_call, (self._func, chunk), {}) for chunk in chunks)
        self._parts.extend(parts)
        if not self._ordered:
            for part in parts:
                part.add_done_callback(self._ended.put)

    def __iter__(self) -> IMapIterator:
        return self

    def next(self, timeout: Optional[float] = None) -> Any:
        """The next result; raises `multiprocessing.TimeoutError` if there is none after `timeout` seconds."""
        with self._lock:
            if not self._values:
                self._values.extend(self._next_chunk(timeout))
            return self._values.popleft()

    __next__ = next

    def _next_chunk(self, timeout: Optional[float]) -> list[Any]:
        if not self._parts:
            failed, self._failed = self._failed, None
            raise StopIteration if failed is None else failed
        if self._ordered:
            part = self._parts[0]
            if not _futures.wait([part], timeout).done:
                raise TimeoutError
        else:
            try:
                part = self._ended.get(timeout=timeout)
            except _queue.Empty:
                raise TimeoutError from None
        self._parts.remove(part)
        self._submit()
        found: list[Any] = part.result()
        return found
