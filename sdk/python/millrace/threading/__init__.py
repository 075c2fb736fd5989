"""The names of `threading`, for threads that run on the workers of a host and share objects.

    import millrace.threading as threading

Threads are tasks of an executor, so each has its own global variables. To share data, use these classes or `millrace.objects`. The host
is that of the newest connection of `millrace.connect`. If there is none, the first object or thread connects as `millrace.connect()`
does, and the connection is closed when the program ends.

Signatures are those of the standard library. A lock belongs to the program or task that acquired it. If this program or
task ends without releasing it, the lock is free after the lease. Functions that cannot work across processes raise `NotImplementedError`.
"""

from __future__ import annotations

import os as _os
import sys
import threading as _threading
import weakref as _weakref
from concurrent.futures import CancelledError as _CancelledError

from millrace import objects as _objects
from millrace.executor._threads import CloudThread as _CloudThread
from millrace.objects import _spaces
from millrace.threading import _runtime
from millrace.threading._local import local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Any, NoReturn, Optional, Union

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "BrokenBarrierError",
    "Condition",
    "Event",
    "ExceptHookArgs",
    "Lock",
    "RLock",
    "Semaphore",
    "TIMEOUT_MAX",
    "Thread",
    "ThreadError",
    "Timer",
    "active_count",
    "current_thread",
    "enumerate",
    "excepthook",
    "get_ident",
    "get_native_id",
    "local",
    "main_thread",
    "setprofile",
    "settrace",
    "stack_size",
]

BrokenBarrierError = _threading.BrokenBarrierError
ExceptHookArgs = _threading.ExceptHookArgs
ThreadError = _threading.ThreadError
TIMEOUT_MAX = _threading.TIMEOUT_MAX
excepthook = _threading.excepthook
get_native_id = _threading.get_native_id
main_thread = _threading.main_thread

_here = _threading.local()
# A forked child is not the thread that it was forked from.
_os.register_at_fork(after_in_child=lambda: _here.__dict__.pop("ident", None))


def _check_timeout(blocking: bool, timeout: float) -> None:
    if not blocking and timeout != -1:
        raise ValueError("can't specify a timeout for a non-blocking call")
    if timeout < 0 and timeout != -1:
        raise ValueError("timeout value must be a non-negative number")
    if timeout > TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")


class Lock:
    """A `threading.Lock`. `token` is a number that is higher for each owner: see `millrace.objects.Lock`."""

    def __init__(self) -> None:
        _runtime.ready()
        # A condition is a lock that can be waited on, so that `Condition()` needs no second object.
        self._lock = _objects.Condition(_runtime.new_key("lock"))

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Waits for the lock; returns whether this caller got it."""
        _check_timeout(blocking, timeout)
        token = self._lock.acquire(blocking, timeout)
        if token is False:
            return False
        self._state()["token"] = token
        return True

    def release(self) -> None:
        """Releases the lock; the caller that has waited longest gets it."""
        self._lock.release()

    def locked(self) -> bool:
        """Whether the lock is taken."""
        return self._lock.locked()

    @property
    def token(self) -> int:
        """The token that this program or task got when it last acquired the lock; 0 if it never did."""
        return int(self._state().get("token", 0))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, t: object, v: object, tb: object) -> None:
        self.release()

    def _state(self) -> dict[str, Any]:
        """The state of the lock in this program or task, shared by all references to it."""
        space = self._lock._space or _spaces.current()
        known: dict[str, dict[str, Any]] = space.__dict__.setdefault("_locks", {})
        return known.setdefault(self._lock.key, {})

    def _is_owned(self) -> bool:
        return self.locked()

    def _release_save(self) -> int:
        self.release()
        return 0

    def _acquire_restore(self, _: int) -> None:
        self.acquire()

    def __repr__(self) -> str:
        return f"<millrace.threading.{type(self).__name__} {self._lock.key!r}>"


class RLock(Lock):
    """A `threading.RLock`: its owner, a thread of a program or task, can acquire it again."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Waits for the lock, unless this thread has it already; returns whether the thread has it."""
        state = self._state()
        if state.get("owner") == get_ident():
            state["count"] += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        state["owner"], state["count"] = get_ident(), 1
        return True

    __enter__ = acquire

    def release(self) -> None:
        """Releases the lock once. After as many releases as acquisitions, the lock is free."""
        state = self._state()
        if state.get("owner") != get_ident():
            raise RuntimeError("cannot release un-acquired lock")
        state["count"] -= 1
        if state["count"] == 0:
            state["owner"] = None
            super().release()

    def __exit__(self, t: object, v: object, tb: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return bool(self._state().get("owner") == get_ident())

    def _recursion_count(self) -> int:
        return int(self._state()["count"]) if self._is_owned() else 0

    def _release_save(self) -> int:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        state = self._state()
        count: int = state["count"]
        state["count"] = 1
        self.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._state()["count"] = count


class Condition:
    """A `threading.Condition`. Several conditions may share a lock."""

    def __init__(self, lock: Optional[Lock] = None) -> None:
        _runtime.ready()
        if lock is not None and not isinstance(lock, Lock):
            raise TypeError(f"a shared condition needs a Lock or RLock of millrace.threading, not {type(lock).__name__}")
        self._lock = RLock() if lock is None else lock
        #: Where its waiters are, if the lock is not this condition's alone.
        self._waiters = None if lock is None else _objects.Condition(_runtime.new_key("waiters"))

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquires the condition's lock."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Releases the condition's lock."""
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *args: object) -> None:
        return self._lock.__exit__(*(*args, None, None, None)[:3])

    def __getattr__(self, name: str) -> Any:
        # As in the standard library, what a condition takes from its lock.
        if name in ("_is_owned", "_release_save", "_acquire_restore", "_recursion_count"):
            return getattr(self._lock, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Releases the lock until the condition is notified, and acquires it again; returns whether that happened in time."""
        if not self._lock._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        if self._waiters is None:
            return self._wait_alone(timeout)
        # Whoever notifies has the lock first and then this one: nobody is notified between the release and the wait.
        self._waiters.acquire()
        saved = self._lock._release_save()
        try:
            return self._waiters.wait(timeout)
        finally:
            self._waiters.release()
            self._lock._acquire_restore(saved)

    def _wait_alone(self, timeout: Optional[float]) -> bool:
        state = self._lock._state()
        owner, count = state["owner"], state["count"]
        # The host releases the lock and acquires it again.
        state["owner"] = None
        notified = self._lock._lock.wait(timeout)
        state["owner"], state["count"] = owner, count
        return notified

    def wait_for(self, predicate: Callable[[], Any], timeout: Optional[float] = None) -> Any:
        """Waits until the predicate is true; returns its last value."""
        return _spaces.wait_for(self.wait, predicate, timeout)

    def notify(self, n: int = 1) -> None:
        """Wakes at most `n` waiters."""
        if not self._lock._is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        if self._waiters is None:
            self._lock._lock.notify(n)
            return
        with self._waiters:
            self._waiters.notify(n)

    def notify_all(self) -> None:
        """Wakes all waiters."""
        self.notify((1 << 62) - 1)

    notifyAll = notify_all

    def __repr__(self) -> str:
        return f"<millrace.threading.Condition of {self._lock!r}>"


class Semaphore:
    """A `threading.Semaphore`. Permits of a program or task that dies are released after its lease."""

    def __init__(self, value: int = 1) -> None:
        _runtime.ready()
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        self._permits = _objects.Semaphore(_runtime.new_key("semaphore"), value, bound=self._bound(value))

    @staticmethod
    def _bound(value: int) -> Optional[int]:
        return None

    def acquire(self, blocking: bool = True, timeout: Optional[float] = None) -> bool:
        """Waits for a permit; returns whether this caller got one."""
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        return self._permits.acquire(blocking, timeout)

    __enter__ = acquire

    def release(self, n: int = 1) -> None:
        """Returns `n` permits."""
        if n < 1:
            raise ValueError("n must be one or more")
        self._permits.release(n)

    def __exit__(self, t: object, v: object, tb: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<millrace.threading.{type(self).__name__} {self._permits.key!r}>"


class BoundedSemaphore(Semaphore):
    """A `threading.BoundedSemaphore`: more permits than it began with cannot be returned."""

    @staticmethod
    def _bound(value: int) -> Optional[int]:
        return value


class Event:
    """A `threading.Event`."""

    def __init__(self) -> None:
        _runtime.ready()
        self._event = _objects.Event(_runtime.new_key("event"))

    def is_set(self) -> bool:
        """Whether the event has been set."""
        return self._event.is_set()

    isSet = is_set

    def set(self) -> None:
        """Sets the event; all waiters continue."""
        self._event.set()

    def clear(self) -> None:
        """Resets the event."""
        self._event.clear()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the event is set; returns whether that happened in time."""
        return self._event.wait(timeout)

    def __repr__(self) -> str:
        return f"<millrace.threading.Event {self._event.key!r}>"


class Barrier:
    """A `threading.Barrier`. It breaks when a waiter gives up or dies."""

    def __init__(self, parties: int, action: Optional[Callable[[], Any]] = None, timeout: Optional[float] = None) -> None:
        _runtime.ready()
        if parties < 1:
            raise ValueError("parties must be > 0")
        self._parties, self._action, self._timeout = parties, action, timeout
        self._barrier = _objects.Barrier(_runtime.new_key("barrier"), parties)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the others; returns a number from 0 to `parties` - 1 that is different for each of them."""
        return self._barrier.wait(self._timeout if timeout is None else timeout, self._action)

    def reset(self) -> None:
        """Resets it; waiting threads get `BrokenBarrierError`."""
        self._barrier.reset()

    def abort(self) -> None:
        """Breaks the barrier."""
        self._barrier.abort()

    @property
    def parties(self) -> int:
        """The number of parties."""
        return self._parties

    @property
    def n_waiting(self) -> int:
        """How many parties wait now."""
        return self._barrier.n_waiting

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken."""
        return self._barrier.broken

    def __repr__(self) -> str:
        return f"<millrace.threading.Barrier {self._barrier.key!r}>"


#: The threads that this program has started and that may still run.
_started: _weakref.WeakSet[Thread] = _weakref.WeakSet()


class Thread(_CloudThread):
    """A `threading.Thread` that runs as a task on a worker of the host.

    At most 64 threads run at once. `start` waits for the end of another one if there are as many, and raises an error (MR7138) if all of them
    wait for shared objects, because then none of them may ever end.

    It gets copies of its arguments and of the globals that it uses, and references to the shared objects among them. What a subclass
    assigns to `self` in `run` stays on the worker; `result()` returns what `run` or the target returned.
    """

    _ident: Optional[int] = None

    def __init__(
        self,
        group: None = None,
        target: Optional[Callable[..., Any]] = None,
        name: Optional[str] = None,
        args: Iterable[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        *,
        daemon: Optional[bool] = None,
    ) -> None:
        # The signature is the standard library's; `start` names the executor.
        super().__init__(group, target, name, args, kwargs, daemon=daemon)

    def start(self) -> None:
        """Starts the thread. A thread can be started once."""
        if self._future is not None:
            raise RuntimeError("threads can only be started once")
        self._executor = _runtime.executor()
        _runtime.await_room(self._executor)
        # Numbers of threads are told apart over all machines.
        self._ident = int(_runtime.new_key("")[1:16], 16)
        self._future = self._executor.submit(_run, self)
        _started.add(self)
        self._future.add_done_callback(self._ended)

    def _ended(self, future: Any) -> None:
        try:
            error = future.exception()
        except _CancelledError:
            return
        if error is not None and not isinstance(error, SystemExit):
            # Through this module, so that a program can replace the hook here.
            sys.modules[__name__].excepthook(ExceptHookArgs((type(error), error, error.__traceback__, self)))

    @property
    def ident(self) -> Optional[int]:
        """The number of the thread, once it was started."""
        return self._ident

    native_id = ident

    def getName(self) -> str:
        """The same as `name`."""
        return self.name

    def setName(self, name: str) -> None:
        """Sets `name`."""
        self.name = name

    def isDaemon(self) -> bool:
        """The same as `daemon`."""
        return self.daemon

    def setDaemon(self, daemonic: bool) -> None:
        """Sets `daemon`."""
        self.daemon = daemonic

    def __repr__(self) -> str:
        state = "initial" if self._future is None else "stopped" if self._future.done() else "started"
        return f"<millrace.threading.{type(self).__name__} {self.name!r} {state}>"


def _run(thread: Thread) -> Any:
    """A thread's task."""
    _here.thread, _here.ident = thread, thread.ident
    try:
        return thread.run()
    finally:
        del _here.thread, _here.ident


class Timer(Thread):
    """A `threading.Timer`: calls a function after an interval, unless it is cancelled before."""

    def __init__(
        self,
        interval: float,
        function: Callable[..., Any],
        args: Optional[Iterable[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__()
        self.interval, self.function = interval, function
        self.args, self.kwargs = tuple(args or ()), dict(kwargs or {})
        self.finished = Event()

    def cancel(self) -> None:
        """Stops the timer if it still waits."""
        self.finished.set()

    def run(self) -> None:
        """Waits, and calls the function."""
        if not self.finished.wait(self.interval):
            self.function(*self.args, **self.kwargs)
        self.finished.set()


def current_thread() -> Union[Thread, _threading.Thread]:
    """The thread that runs this code: in a task the `Thread` that was started, in the program the local thread."""
    found: Union[Thread, _threading.Thread] = getattr(_here, "thread", None) or _threading.current_thread()
    return found


def get_ident() -> int:
    """The number of the thread that runs this code; no other thread has it on any machine."""
    found = getattr(_here, "ident", None)
    if found is None:
        found = _here.ident = int(_runtime.new_key("")[1:16], 16)
    return int(found)


def enumerate() -> list[Any]:
    """The running threads of this program: those on workers, and its main thread."""
    return [_threading.main_thread(), *(thread for thread in list(_started) if thread.is_alive())]


def active_count() -> int:
    """How many threads `enumerate` returns."""
    return len(enumerate())


def _refused(name: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"millrace.threading.{name}: {instead}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Refused: {instead}."
    return refuse


stack_size = _refused("stack_size", "workers are processes; their memory is set by millrace.Executor(memory=...)")
settrace = _refused("settrace", "a task can call sys.settrace itself")
setprofile = _refused("setprofile", "a task can call sys.setprofile itself")
