"""The names of `multiprocessing`, for processes and pools of processes on the workers of a host.

    import millrace.multiprocessing as multiprocessing

As for `millrace.threading`, the host is that of the newest connection. To share data among processes, use these classes or
`millrace.objects`. Shared memory and start methods exist only within one machine, and raise `NotImplementedError`.
"""

from __future__ import annotations

import concurrent.futures as _futures
import itertools as _itertools
import multiprocessing as _multiprocessing
import os as _os

from millrace import managers as _managers
from millrace import objects as _objects
from millrace import queue as _queue
from millrace import threading as _threads
from millrace.threading import _runtime
from millrace.threading import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, NoReturn, Optional

__all__ = [
    "Array",
    "AsyncResult",
    "Barrier",
    "BoundedSemaphore",
    "Condition",
    "Event",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "Queue",
    "RLock",
    "Semaphore",
    "SimpleQueue",
    "TimeoutError",
    "Value",
    "active_children",
    "cpu_count",
    "current_process",
    "freeze_support",
    "get_context",
    "set_start_method",
]

TimeoutError = _multiprocessing.TimeoutError
cpu_count = _os.cpu_count


class Process(_threads.Thread):
    """A `multiprocessing.Process` that runs as a task on a worker of the host."""

    def __init__(
        self,
        group: None = None,
        target: Optional[Callable[..., Any]] = None,
        name: Optional[str] = None,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] = {},
        *,
        daemon: Optional[bool] = None,
    ) -> None:
        super().__init__(group, target, name, args, kwargs, daemon=daemon)

    @property
    def exitcode(self) -> Optional[int]:
        """None while the process runs; then 0, the code of `SystemExit`, or 1 if the process raised an exception."""
        if self._future is None or not self._future.done():
            return None
        if self._future.cancelled():
            return -15
        error = self._future.exception()
        if error is None:
            return 0
        if isinstance(error, SystemExit):
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        return 1

    @property
    def pid(self) -> Optional[int]:
        """The number of the process, once it was started. It is not the number of a process of the operating system."""
        return self.ident

    def terminate(self) -> None:
        """Ends the process, even if it is running; `exitcode` is then -15."""
        if self._future is not None:
            self.stop()

    kill = terminate

    def close(self) -> None:
        """Does nothing: an ended process uses no resources of this program."""
        if self.is_alive():
            raise ValueError("Cannot close a process while it is still running. You should first call join() or terminate().")


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
    """A `multiprocessing.Pool` on the workers of a host."""

    def __init__(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: Optional[int] = None,
        **_on: Any,
    ) -> None:
        if maxtasksperchild is not None:
            raise NotImplementedError("maxtasksperchild: workers stay alive; the host replaces a worker that exceeds its memory")
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        at = _on.pop("_connection", None)
        if _on:
            raise TypeError(f"Pool() got an unexpected keyword argument {next(iter(_on))!r}")
        self._processes = processes or _os.cpu_count() or 1
        at = at or _runtime.connection()
        self._executor = at.Executor(workers=self._processes, initializer=initializer, initargs=tuple(initargs))
        self._closed = False

    def _parts(self, func: Callable[..., Any], calls: Iterable[tuple[Any, ...]], chunksize: Optional[int]) -> list[Any]:
        if self._closed:
            raise ValueError("Pool not running")
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
        if self._closed:
            raise ValueError("Pool not running")
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

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
        """As `map`, one result after the other."""
        parts = self._parts(func, zip(iterable), chunksize)
        return (value for part in parts for value in part.result())

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> Iterator[Any]:
        """As `imap`, in the order in which results arrive."""
        parts = self._parts(func, zip(iterable), chunksize)
        return (value for part in _futures.as_completed(parts) for value in part.result())

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
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.terminate()


class Queue(_queue.Queue):
    """A `multiprocessing.Queue`."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize)

    def close(self) -> None:
        """Does nothing: the host has the items."""

    join_thread = cancel_join_thread = close


class JoinableQueue(Queue):
    """A `multiprocessing.JoinableQueue`."""


class SimpleQueue(_queue.Queue):
    """A `multiprocessing.SimpleQueue`."""

    def __init__(self) -> None:
        super().__init__()


class _Locked:
    """The additional methods of values and arrays with a lock."""

    _lock: Any = None

    def get_lock(self) -> Any:
        """The lock."""
        return self._lock

    def get_obj(self) -> Any:
        """The same without its lock."""
        return self

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquires the lock."""
        return bool(self._lock.acquire(blocking, timeout))

    def release(self) -> None:
        """Releases the lock."""
        self._lock.release()

    def __enter__(self) -> bool:
        return bool(self._lock.__enter__())

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Value(_Locked, _managers.Value):
    def _check(self, value: Any) -> Any:
        return _managers._of_code(self._typecode, value)


class _Array(_Locked, _managers.Array):
    pass


def _lock_of(lock: Any) -> Any:
    if lock in (True, None):
        return RLock()
    if lock is False:
        return None
    if not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    return lock


def Value(typecode_or_type: Any, *args: Any, lock: Any = True) -> Any:
    """A `multiprocessing.Value` on the host."""
    if len(args) > 1:
        raise NotImplementedError("Value: structures of ctypes are not supported; use several values or a Namespace")
    made = _Value(typecode_or_type, args[0] if args else _zero(typecode_or_type))
    made._lock = _lock_of(lock)
    return made


def Array(typecode_or_type: Any, size_or_initializer: Any, *, lock: Any = True) -> Any:
    """A `multiprocessing.Array` on the host."""
    initial = size_or_initializer
    if isinstance(initial, int):
        initial = [_zero(typecode_or_type)] * initial
    made = _Array(typecode_or_type, initial)
    made._lock = _lock_of(lock)
    return made


def _zero(typecode: Any) -> Any:
    code = typecode if isinstance(typecode, str) else getattr(typecode, "_type_", None)
    kind = _managers._CODES.get(code) if isinstance(code, str) else None
    return kind() if kind is not None else _managers._of_code(typecode, None)


def Manager() -> _managers.SyncManager:
    """A started `SyncManager` on the program's host."""
    manager = _managers.SyncManager()
    manager.start()
    return manager


def current_process() -> Any:
    """The process that runs this code: in a task the `Process` that was started, in the program the local process."""
    found = _threads.current_thread()
    return found if isinstance(found, Process) else _multiprocessing.current_process()


def active_children() -> list[Any]:
    """The running processes of this program."""
    return [thread for thread in _threads.enumerate() if isinstance(thread, Process)]


def freeze_support() -> None:
    """Does nothing: workers start from the host."""


def get_context(method: Optional[str] = None) -> Any:
    """This module: there are no start methods."""
    if method is not None:
        set_start_method(method)
    import sys

    return sys.modules[__name__]


def set_start_method(method: Optional[str], force: bool = False) -> NoReturn:
    """Refused: workers start from the host."""
    raise NotImplementedError(f"the start method {method!r}: the host starts workers")


class Connection:
    """One end of a pipe: a `multiprocessing.connection.Connection` over two queues of the host.

    A process gets a copy of an end. If a copy that has sent or received something is closed, the pipe ends, and the other end gets
    `EOFError`. Closing a copy that was not used has no effect on other copies.
    """

    def __init__(self, incoming: Optional[_objects.Queue], outgoing: Optional[_objects.Queue]) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._closed = self._used = False
        #: The item that `poll` has seen.
        self._next: list[Any] = []

    def __reduce__(self) -> tuple[Any, ...]:
        self._check(None)
        return Connection, (self._incoming, self._outgoing)

    def _check(self, way: Optional[str]) -> Any:
        if self._closed:
            raise OSError("handle is closed")
        if way is None:
            return None
        found = self._incoming if way == "read" else self._outgoing
        if found is None:
            raise OSError(f"connection is {'write' if way == 'read' else 'read'}-only")
        self._used = True
        return found

    def send(self, obj: Any) -> None:
        """Sends an object to the other end."""
        self._check("write").put((obj,))

    def recv(self) -> Any:
        """Waits for the next object; raises `EOFError` if the other end is closed."""
        incoming = self._check("read")
        item = self._next.pop() if self._next else incoming.get()
        if not item:
            self._next.append(item)
            raise EOFError
        return item[0]

    def send_bytes(self, buf: Any, offset: int = 0, size: Optional[int] = None) -> None:
        """Sends bytes to the other end."""
        view = memoryview(buf).cast("B")[offset:]
        self.send(bytes(view if size is None else view[:size]))

    def recv_bytes(self, maxlength: Optional[int] = None) -> bytes:
        """Waits for the next bytes."""
        found = bytes(self.recv())
        if maxlength is not None and len(found) > maxlength:
            raise OSError("bad message length")
        return found

    def poll(self, timeout: Optional[float] = 0.0) -> bool:
        """Whether there is something to receive, at most `timeout` seconds from now."""
        incoming = self._check("read")
        if not self._next:
            try:
                self._next.append(incoming.get(timeout is None or timeout > 0, timeout))
            except _queue.Empty:
                return False
        return True

    def close(self) -> None:
        """Closes this copy of the end."""
        if not self._closed and self._used and self._outgoing is not None:
            self._outgoing.put(())
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether this copy is closed."""
        return self._closed

    @property
    def readable(self) -> bool:
        """Whether this end can receive."""
        return self._incoming is not None

    @property
    def writable(self) -> bool:
        """Whether this end can send."""
        return self._outgoing is not None

    def fileno(self) -> NoReturn:
        """Refused: the host has the items."""
        raise NotImplementedError("fileno: a pipe of millrace.multiprocessing has no file; use poll")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def Pipe(duplex: bool = True) -> tuple[Connection, Connection]:
    """The two ends of a pipe. Without `duplex`, the first one receives and the second one sends."""
    _runtime.ready()
    there, back = _objects.Queue(_runtime.new_key("pipe")), _objects.Queue(_runtime.new_key("pipe"))
    return (Connection(back, there), Connection(there, back)) if duplex else (Connection(back, None), Connection(None, back))
