"""What becomes of tasks: futures, and the results that workers send."""

from __future__ import annotations

import logging
import pickle
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Optional

from millrace._records import _native
from millrace._worker import Error, FunctionFailed
from millrace.executor import _large, _task
from millrace.objects import _raised, _spaces
from millrace.objects._raised import TaskError

_log = logging.getLogger("millrace")
#: The longest task, with all that it is given: one record. The pickles of longer ones are in blobs.
TASK_BYTES_MAX = (16 << 20) - 4096
#: A run was cancelled, had ended, and a task was cancelled before it began.
RUN_CANCELLED, RUN_OVER, TASK_CANCELLED = "MR3140", "MR3141", "MR7116"
#: Its worker was ended for its memory, or ended by itself or by a signal.
_WORKER_LOST = ("MR3108", "MR3111")


class WorkerLost(FunctionFailed, BrokenProcessPool):
    """The worker of a task has ended, in every attempt. The executor itself continues with other workers."""

    @property
    def exitcode(self) -> int:
        """How it ended, as in `multiprocessing.Process.exitcode`: a status, or the negative number of a signal."""
        found = re.search(r"signal (\d+)|(?:code|status) (\d+)", self.detail)
        if found is None:
            return 1
        return -int(found[1]) if found[1] else int(found[2])


class TaskFuture(Future):  # type: ignore[type-arg]
    """A future that asks the host whether the task may still be cancelled."""

    _executor: Any
    _id = b""
    _number = 0
    #: Where its arguments are, if they are long.
    _parts: Optional[_large.Parts] = None
    #: Whether the program has asked for its end, and whether those who wait have been told that it is cancelled.
    _stops = _told = False

    def _free(self, _: object = None) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.delete(self._executor._connection.space)

    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        if not self._executor._cancel_of(self):
            return self.cancelled()
        return self._cancelled()

    def _cancelled(self) -> bool:
        cancelled = super().cancel()
        if cancelled:
            # The caller and the thread of the results may both come here.
            with self._condition:
                first, self._told = not self._told, True
            if first:
                self.set_running_or_notify_cancel()
        return cancelled

    def set_result(self, result: Any) -> None:
        _outlive(lambda: super(TaskFuture, self).set_result(result))

    def set_exception(self, exception: Optional[BaseException]) -> None:
        _outlive(lambda: super(TaskFuture, self).set_exception(exception))

    def running(self) -> bool:
        """Whether a worker runs the task. This asks the host."""
        return not self.done() and self._executor._run_of(self) is not None

    def stop(self) -> bool:
        """Cancels the task, even if it is running: its worker is ended, and the future is cancelled. Returns False if the task had already ended."""
        self._stops = True
        if self.cancel():
            return True
        try:
            run = None if self.done() else self._executor._run_of(self)
            if run is None:
                return self.cancelled()
            remote, id = run
            remote.cancel_run(id)
        except Error as error:
            # It ends with a result just now, or its host is lost.
            if error.code != RUN_OVER and not self._executor._is_lost_with(self, error):
                raise
            return self.cancelled()
        return True


def _outlive(ends: Callable[[], None]) -> None:
    """Ends a future. A callback that leaves its thread, as with `sys.exit`, leaves only itself: the thread has the results of others, too."""
    try:
        ends()
    except Exception:
        raise
    except BaseException:
        _log.exception("a callback of a future ended with this instead of an exception; the other callbacks of this future were not called")


def fail_inherited(futures: Iterable[Future[Any]]) -> None:
    """In a forked child: the results of its parent's tasks come to its parent."""
    for future in futures:
        # Its lock may belong to a thread that this process does not have, and its callbacks are those of the parent.
        inherited: Any = future
        inherited._condition, inherited._waiters, inherited._done_callbacks = threading.Condition(), [], []
        if not future.done():
            detail = "the task was submitted by the process that this one was forked from, which gets its result"
            future.set_exception(_native.error("MR2015", detail))


def outcome(kind: int, payload: bytes, space: Optional[_spaces.Space] = None) -> Any:
    """The return value of a task; raises its exception."""
    if kind == _task.RETURNED:
        try:
            found = pickle.loads(payload)
            if isinstance(found, _large.Parts):
                if space is None:
                    detail = f"a result of more than {TASK_BYTES_MAX} bytes, which tasks that run on several hosts cannot return"
                    raise _native.error("MR7115", detail)
                parts, found = found, found.load(space)
                parts.delete(space)
            return found
        except Error:
            raise
        except BaseException as error:
            raise TaskError(type(error).__name__, f"its result cannot be opened here: {error}") from error
    if kind == _task.FAILED:
        found = _native.error(payload[:6].decode(), payload[6:].decode(errors="replace"))
        raise WorkerLost(*found.args) if found.code in _WORKER_LOST else found
    raised = _raised.completed(_raised.unpack(payload))
    if isinstance(raised, _task.InitializerFailed):
        raise BrokenExecutor(str(raised)) from raised.__cause__
    raise raised
