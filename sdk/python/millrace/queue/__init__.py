"""The names of `queue`, for queues that threads on workers and programs share.

    import millrace.queue as queue
"""

from __future__ import annotations

import queue as _queue

from millrace import objects as _objects
from millrace.threading import _runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

__all__ = ["Empty", "Full", "LifoQueue", "PriorityQueue", "Queue", "SimpleQueue"]

Empty, Full = _queue.Empty, _queue.Full


def _check(timeout: Optional[float]) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")


class Queue:
    """A `queue.Queue`. Items travel pickled, unless they are numbers, text, bytes, lists, dicts or tuples."""

    def __init__(self, maxsize: int = 0) -> None:
        _runtime.ready()
        self._queue = _objects.Queue(_runtime.new_key("queue"), maxsize)
        self.maxsize = maxsize

    def put(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an item, once there is room; raises `Full` after the timeout."""
        _check(timeout)
        self._queue.put(item, block, timeout)

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the oldest item, once there is one; raises `Empty` after the timeout."""
        _check(timeout)
        return self._queue.get(block, timeout)

    def put_nowait(self, item: Any) -> None:
        """Adds an item, or raises `Full`."""
        self._queue.put_nowait(item)

    def get_nowait(self) -> Any:
        """Takes the oldest item, or raises `Empty`."""
        return self._queue.get_nowait()

    def task_done(self) -> None:
        """Marks an item that was taken as done."""
        self._queue.task_done()

    def join(self) -> None:
        """Waits until every item that was added is done."""
        self._queue.join()

    def qsize(self) -> int:
        """How many items it has."""
        return self._queue.qsize()

    def empty(self) -> bool:
        """Whether it has no items."""
        return self._queue.empty()

    def full(self) -> bool:
        """Whether it has no room."""
        return self._queue.full()

    def __repr__(self) -> str:
        return f"<millrace.queue.{type(self).__name__} {self._queue.key!r}>"


class SimpleQueue(Queue):
    """A `queue.SimpleQueue`: without bound."""

    def __init__(self) -> None:
        super().__init__()


class LifoQueue(Queue):
    """Refused: the host keeps items in the order in which they were added."""

    def __init__(self, maxsize: int = 0) -> None:
        raise NotImplementedError("millrace.queue.LifoQueue: the host keeps items in the order in which they were added; use Queue")


class PriorityQueue(Queue):
    """Refused: the host does not compare items."""

    def __init__(self, maxsize: int = 0) -> None:
        raise NotImplementedError("millrace.queue.PriorityQueue: the host does not compare items; use millrace.objects.SortedDict")
