"""The names of `multiprocessing`, for processes and pools of processes on the workers of a host.

    import millrace.multiprocessing as multiprocessing

As for `millrace.threading`, the host is that of the newest connection. To share data among processes, use these classes or
`millrace.objects`. Start methods have no effect: the host starts workers. Shared memory exists only within one machine, and raises
`NotImplementedError`.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
import os as _os

from millrace import managers as _managers
from millrace import objects as _objects
from millrace import queue as _queue
from millrace import threading as _threads
from millrace.multiprocessing._pools import AsyncResult, Pool
from millrace.threading import _runtime
from millrace.threading import Barrier, BoundedSemaphore, Condition, Event, Lock, RLock, Semaphore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
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
    "get_all_start_methods",
    "get_context",
    "get_start_method",
    "set_start_method",
]

TimeoutError = _multiprocessing.TimeoutError
cpu_count = _os.cpu_count


class Process(_threads.Thread):
    """A `multiprocessing.Process` that runs as a task on a worker of the host."""

    #: What `terminate` or `kill` has ended it with.
    _signal = 15
    _is_closed = False

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
        """None while the process runs; then 0, the code of `SystemExit`, 1 if the process raised an exception, or how its worker ended: a status,
        or the negative number of a signal."""
        self._check_closed()
        if self._future is None or not self._future.done():
            return None
        if self._future.cancelled():
            return -self._signal
        error = self._future.exception()
        if error is None:
            return 0
        if isinstance(error, SystemExit):
            return int(error.code) & 0xFF if isinstance(error.code, int) else int(error.code is not None)
        # It may have ended by a signal, or without raising anything.
        return int(getattr(error, "exitcode", 1))

    @property
    def pid(self) -> Optional[int]:
        """The number of the process, once it was started. It is not the number of a process of the operating system."""
        return self.ident

    def terminate(self) -> None:
        """Ends the process, even if it is running; `exitcode` is then -15."""
        self._end_with(15)

    def kill(self) -> None:
        """The same; `exitcode` is then -9."""
        self._end_with(9)

    def _end_with(self, signal: int) -> None:
        self._check_closed()
        if self._future is not None and not self._future.done():
            self._signal = signal
            self.stop()

    def join(self, timeout: Optional[float] = None) -> None:
        """Waits until the process has ended, at most `timeout` seconds."""
        self._check_closed()
        super().join(timeout)

    def is_alive(self) -> bool:
        """Whether the process was started and has not ended."""
        self._check_closed()
        return super().is_alive()

    def close(self) -> None:
        """From now on the process cannot be used."""
        if not self._is_closed and self.is_alive():
            raise ValueError("Cannot close a process while it is still running. You should first call join() or terminate().")
        self._is_closed = True

    def _check_closed(self) -> None:
        if self._is_closed:
            raise ValueError("process object is closed")


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


class _Unlocked(_managers.Value):
    def _check(self, value: Any) -> Any:
        return _managers._of_code(self._typecode, value)


class _Value(_Locked, _Unlocked):
    pass


class _Array(_Locked, _managers.Array):
    pass


def _lock_of(lock: Any) -> Any:
    if lock in (True, None):
        return RLock()
    if not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    return lock


def Value(typecode_or_type: Any, *args: Any, lock: Any = True) -> Any:
    """A `multiprocessing.Value` on the host."""
    if len(args) > 1:
        raise NotImplementedError("Value: structures of ctypes are not supported; use several values or a Namespace")
    initial = args[0] if args else _zero(typecode_or_type)
    if lock is False:
        return _Unlocked(typecode_or_type, initial)
    made = _Value(typecode_or_type, initial)
    made._lock = _lock_of(lock)
    return made


def Array(typecode_or_type: Any, size_or_initializer: Any, *, lock: Any = True) -> Any:
    """A `multiprocessing.Array` on the host."""
    initial = size_or_initializer
    if isinstance(initial, int):
        initial = [_zero(typecode_or_type)] * initial
    if lock is False:
        return _managers.Array(typecode_or_type, initial)
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


_START_METHODS = ("spawn", "fork", "forkserver")
_start_method: list[str] = []


def _check_method(method: str) -> None:
    if method not in _START_METHODS:
        raise ValueError(f"cannot find context for {method!r}")


def get_context(method: Optional[str] = None) -> Any:
    """This module. The start method has no effect: the host starts workers, in which only what is sent to them exists, as with `spawn`."""
    import sys

    if method is not None:
        _check_method(method)
    return sys.modules[__name__]


def set_start_method(method: Optional[str], force: bool = False) -> None:
    """Sets what `get_start_method` returns, and has no other effect."""
    if _start_method and not force:
        raise RuntimeError("context has already been set")
    if method is not None:
        _check_method(method)
    _start_method[:] = [] if method is None else [method]


def get_start_method(allow_none: bool = False) -> Optional[str]:
    """The start method that was set, or `spawn`."""
    return _start_method[0] if _start_method else None if allow_none else "spawn"


def get_all_start_methods() -> list[str]:
    """The start methods that can be set."""
    return list(_START_METHODS)


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
