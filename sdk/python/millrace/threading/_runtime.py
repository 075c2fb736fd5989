"""The connection and the workers behind `millrace.threading`, `millrace.multiprocessing` and `millrace.queue`."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref

from millrace.objects import _spaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from millrace.executor import Connection, Executor

#: Threads that run at the same time. Later ones start when an earlier one has ended.
THREADS_MAX = 64

_lock = threading.Lock()
_own: Optional[Connection] = None
_executors: weakref.WeakKeyDictionary[Connection, Executor] = weakref.WeakKeyDictionary()


def in_task() -> bool:
    """Whether this code runs in a task on a worker."""
    return isinstance(_spaces._default, _spaces.TaskSpace)


def connection() -> Connection:
    """The newest open connection of this program; if there is none, a new one as of `millrace.connect()`."""
    global _own
    if in_task():
        raise NotImplementedError("a task cannot start threads or processes; start them in the program")
    with _lock:
        found: Optional[Connection] = getattr(_spaces._default, "connection", None)
        if found is None:
            import millrace

            found = _own = millrace.connect()
            atexit.register(close)
        return found


def ready() -> None:
    """Makes sure that shared objects have a host."""
    if _spaces._default is None:
        if _on_worker():
            raise RuntimeError("shared objects can be created on a worker only while a task runs")
        connection()
    elif in_task():
        _refuse_import()


def _on_worker() -> bool:
    # The package that workers have offers no connections.
    return not hasattr(sys.modules["millrace"], "connect")


def _refuse_import() -> None:
    """A module that is imported by a task would silently get objects of its own instead of the program's."""
    frame: Any = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.endswith(os.path.join("executor", "_task.py")):
        if frame.f_code.co_name == "<module>":
            name = frame.f_globals.get("__name__")
            raise RuntimeError(
                f"the module {name!r} creates a shared object when a task imports it, which would not be the program's object; "
                f"call millrace.register_module({name}) in the program, or pass the object as an argument"
            )
        frame = frame.f_back


def new_key(kind: str) -> str:
    """A key that nothing else has."""
    return f"{kind}-{os.urandom(12).hex()}"


def executor() -> Executor:
    """Workers for threads, on the host of the current connection."""
    at = connection()
    with _lock:
        found = _executors.get(at)
        if found is None or found._shut:
            found = _executors[at] = at.Executor(workers=THREADS_MAX)
        return found


def close() -> None:
    """Closes the connection that was opened automatically; threads that are not daemons end first."""
    global _own
    atexit.unregister(close)
    with _lock:
        own, _own = _own, None
    if own is None:
        return
    from millrace import threading as ours

    for thread in ours.enumerate():
        if isinstance(thread, ours.Thread) and not thread.daemon:
            thread.join()
    workers = _executors.pop(own, None)
    if workers is not None:
        workers.shutdown(wait=False, cancel_futures=True)
        own._executors.discard(workers)
    with contextlib.suppress(Exception):
        own.close()
