"""The connection and the workers behind `millrace.threading`, `millrace.multiprocessing` and `millrace.queue`."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import weakref

from millrace.objects import _spaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional

    from millrace.executor import Connection, Executor

#: Threads that run at the same time.
THREADS_MAX = 64
#: How often those that run are looked at while another one is to start.
_LOOK_S = 0.5

_lock = threading.Lock()
_own: Optional[Connection] = None
_executors: weakref.WeakKeyDictionary[Connection, Executor] = weakref.WeakKeyDictionary()


def _in_forked_child() -> None:
    # A thread that the child does not have may have taken it.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_forked_child)


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


def await_room(workers: Executor) -> None:
    """Returns when a worker is free for another thread; raises an error if all of them run threads that wait."""
    were_stuck = False
    while True:
        with workers._lock:
            running = sum(not future.done() for future in workers._futures.values())
            if running < THREADS_MAX:
                return
            workers._idle.wait(_LOOK_S)
        # One that was woken a moment ago may not have gone on yet.
        were_stuck, stuck = _all_wait(workers), were_stuck
        if stuck and were_stuck:
            from millrace._records import _native

            raise _native.error("MR7138", f"{THREADS_MAX} threads run, and each of them waits for a shared object")


def _all_wait(workers: Executor) -> bool:
    """Whether every thread that runs waits for a shared object."""
    runs = {_session_of(run) for run in _pages(workers, "runs", "before", log=f"_tasks/{workers._pool}", state="started")}
    if len(runs) < THREADS_MAX:
        return False
    for found in _pages(workers, "objects", "after"):
        runs -= {waiter["session"] for waiter in found["waiters"]}
    return not runs


def _pages(workers: Executor, what: str, behind: str, **options: str) -> Iterator[dict[str, Any]]:
    """The rows of a document of the host."""
    while True:
        page = json.loads(workers._connection.remote.show(what, **options))
        yield from page[what]
        if page["next"] is None:
            return
        options[behind] = page["next"]


def _session_of(run: dict[str, Any]) -> str:
    """The session of a run: the bytes of its id."""
    high, middle, low = (int(part, 16) for part in run["id"].split("-"))
    return (high << 80 | middle << 56 | low).to_bytes(16, "little").hex()


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
