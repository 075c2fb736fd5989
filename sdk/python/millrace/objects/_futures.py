"""The methods of `concurrent.futures.Future` that the host does not have."""

from __future__ import annotations

import logging
import os
import pickle
import threading

from millrace.objects import _spaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, Optional

_log = logging.getLogger("millrace")
#: Guards the callbacks of all futures.
_lock = threading.Lock()


def _in_forked_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_forked_child)


class OfFuture:
    """The methods of `concurrent.futures.Future` that the host does not have."""

    def exception(self: Any, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Waits for the outcome; returns the exception, or None if there is a result."""
        from concurrent.futures import CancelledError

        status, value = self._call("result", timeout=timeout)
        if status == 3:
            raise CancelledError
        return pickle.loads(value) if status == 2 else None

    def add_done_callback(self: Any, fn: Callable[[Any], object]) -> None:
        """Calls `fn(future)` in this program when the future has an outcome or is cancelled; at once if it already has one.

        For each future, a thread of the program waits for the outcome and makes the calls. No calls are made after the connection is
        closed. Exceptions of `fn` are logged.
        """
        if isinstance(self._space or _spaces.current(), _spaces.TaskSpace):
            raise NotImplementedError("add_done_callback is not available in a task, which may end before the future has a result; wait with result()")
        with _lock:
            waiting: Optional[list[Callable[[Any], object]]] = self.__dict__.get("_callbacks")
            # A forked child does not have the thread of its parent.
            if waiting is not None and self._callbacks_of == _spaces.forks():
                waiting.append(fn)
                return
            self._callbacks, self._callbacks_of = [fn], _spaces.forks()
        if self.done():
            self._call_back()
        else:
            threading.Thread(target=self._await_result, name=f"millrace-callback-{self.key}", daemon=True).start()

    def _await_result(self: Any) -> None:
        try:
            self._call("result")
        except Exception as error:
            _log.warning("%r: its callbacks are not called: %s", self, error)
            with _lock:
                del self._callbacks
            return
        self._call_back()

    def _call_back(self: Any) -> None:
        left: Optional[BaseException] = None
        while True:
            with _lock:
                if not self._callbacks:
                    del self._callbacks
                    break
                fn = self._callbacks.pop(0)
            try:
                fn(self)
            except Exception:
                _log.exception("exception calling callback for %r", self)
            except BaseException as why:
                # Such as `sys.exit`: it ends this thread once the others are called.
                left = why
        if left is not None:
            raise left

    def running(self) -> bool:
        """False: the host does not know whether a program computes the result."""
        return False

    def set_running_or_notify_cancel(self) -> NoReturn:
        """Refused: the host does not know whether a program computes the result."""
        raise NotImplementedError(
            "set_running_or_notify_cancel: other programs can cancel a shared future until it has a result; use cancelled(), and expect "
            "InvalidStateError from set_result"
        )
