"""The names of `queue`, for queues that threads on workers and programs share.

    import millrace.queue as queue
"""

from __future__ import annotations

import queue as _queue

from millrace import objects as _objects
from millrace.threading import _runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

__all__ = ["Empty", "Full", "LifoQueue", "PriorityQueue", "Queue", "SimpleQueue"]

Empty, Full = _queue.Empty, _queue.Full


def _check(timeout: Optional[float]) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")


class Queue:
    """A `queue.Queue`. Items are pickled, unless they are numbers, text, bytes, lists, dicts or tuples."""

    def __init__(self, maxsize: int = 0) -> None:
        _runtime.ready()
        self._queue = _objects.Queue(_runtime.new_key("queue"), maxsize)
        self.maxsize = maxsize

    def put(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an item, as soon as there is space; raises `Full` after the timeout."""
        _check(timeout)
        self._queue.put(item, block, timeout)

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the oldest item, as soon as there is one; raises `Empty` after the timeout."""
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

    def peek(self) -> Any:
        """The oldest item, which stays in the queue; raises `Empty` if there is none."""
        return self._queue.peek()

    def items(self) -> list[Any]:
        """All items as of now, in the order in which they will be taken; they stay in the queue."""
        return self._queue.items()

    def qsize(self) -> int:
        """How many items the queue has."""
        return self._queue.qsize()

    def empty(self) -> bool:
        """Whether the queue has no items."""
        return self._queue.empty()

    def full(self) -> bool:
        """Whether the queue is full."""
        return self._queue.full()

    def __repr__(self) -> str:
        return f"<millrace.queue.{type(self).__name__} {self._queue.key!r}>"


class SimpleQueue(Queue):
    """A `queue.SimpleQueue`, whose size is unlimited."""

    def __init__(self) -> None:
        super().__init__()


class _Ordered(Queue):
    """A queue with another order than the host's queues: a list and its condition. Each method is a few calls of the host."""

    def __init__(self, maxsize: int = 0) -> None:
        _runtime.ready()
        self._changed = _objects.Condition(_runtime.new_key("queue"))
        self._items = _objects.List(_runtime.new_key("items"))
        self._unfinished = _objects.AtomicInt(_runtime.new_key("unfinished"))
        self.maxsize = maxsize

    def _add(self, item: Any) -> None:
        raise NotImplementedError

    def put(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an item, as soon as there is space; raises `Full` after the timeout."""
        _check(timeout)
        with self._changed:
            if self.maxsize > 0 and not self._until(lambda: len(self._items) < self.maxsize, block, timeout):
                raise Full
            self._add(item)
            self._unfinished.add()
            self._changed.notify_all()

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the next item, as soon as there is one; raises `Empty` after the timeout."""
        _check(timeout)
        with self._changed:
            if not self._until(lambda: len(self._items) > 0, block, timeout):
                raise Empty
            item = self._items.pop()
            self._changed.notify_all()
            return item

    def _until(self, predicate: Callable[[], bool], block: bool, timeout: Optional[float]) -> bool:
        return bool(self._changed.wait_for(predicate, timeout) if block else predicate())

    def put_nowait(self, item: Any) -> None:
        """Adds an item, or raises `Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Takes the next item, or raises `Empty`."""
        return self.get(block=False)

    def task_done(self) -> None:
        """Marks an item that was taken as done."""
        with self._changed:
            if self._unfinished.get() <= 0:
                raise ValueError("task_done() called too many times")
            if self._unfinished.decrement() == 0:
                self._changed.notify_all()

    def join(self) -> None:
        """Waits until every item that was added is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._unfinished.get() == 0)

    def peek(self) -> Any:
        """The item that will be taken next, which stays in the queue; raises `Empty` if there is none."""
        try:
            return self._items[-1]
        except IndexError:
            raise Empty from None

    def items(self) -> list[Any]:
        """All items as of now, in the order in which they will be taken; they stay in the queue."""
        return list(self._items)[::-1]

    def qsize(self) -> int:
        """How many items the queue has."""
        return len(self._items)

    def empty(self) -> bool:
        """Whether the queue has no items."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether the queue is full."""
        return 0 < self.maxsize <= self.qsize()

    def __repr__(self) -> str:
        return f"<millrace.queue.{type(self).__name__} {self._items.key!r}>"


class LifoQueue(_Ordered):
    """A `queue.LifoQueue`: the item that was added last is taken first."""

    def _add(self, item: Any) -> None:
        self._items.append(item)


class PriorityQueue(_Ordered):
    """A `queue.PriorityQueue`: the lowest item is taken first. The program that adds an item compares it with some of the other items."""

    def _add(self, item: Any) -> None:
        # The lowest is the last.
        low, high = 0, len(self._items)
        while low < high:
            middle = (low + high) // 2
            if self._items[middle] < item:
                high = middle
            else:
                low = middle + 1
        self._items.insert(low, item)
