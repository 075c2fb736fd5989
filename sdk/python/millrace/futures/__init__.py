"""The names of `concurrent.futures`, for executors whose workers belong to a host.

    import millrace.futures as futures

The host is that of the newest connection, or else the one that `millrace.connect()` finds or starts, as for `millrace.threading`. Both
kinds of executors run tasks in processes of the host: tasks have no memory in common, but can share objects.
"""

from __future__ import annotations

import concurrent.futures as _futures
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    BrokenExecutor,
    CancelledError,
    Future,
    InvalidStateError,
    TimeoutError,
    as_completed,
    wait,
)

from millrace.threading import _runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

    from millrace.executor import Executor as _Executor
else:
    try:
        from millrace.executor import Executor as _Executor
    except ImportError:
        # Workers have this module for the names that functions mention; executors are refused there.
        _Executor = _futures.Executor

__all__ = [
    "ALL_COMPLETED",
    "FIRST_COMPLETED",
    "FIRST_EXCEPTION",
    "BrokenExecutor",
    "CancelledError",
    "Executor",
    "Future",
    "InvalidStateError",
    "ProcessPoolExecutor",
    "ThreadPoolExecutor",
    "TimeoutError",
    "as_completed",
    "wait",
]

Executor = _futures.Executor


class ProcessPoolExecutor(_Executor):
    """A `concurrent.futures.ProcessPoolExecutor` on the workers of a host.

    `mp_context` and `max_tasks_per_child` have no effect: the host starts workers, and replaces one that exceeds its memory. If a worker is
    lost, only its task fails, with an exception that is a `BrokenProcessPool`, too; the executor continues.
    """

    def __init__(
        self,
        max_workers: Optional[int] = None,
        mp_context: Any = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: Optional[int] = None,
    ) -> None:
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError("max_tasks_per_child must be an integer")
            if max_tasks_per_child <= 0:
                raise ValueError("max_tasks_per_child must be >= 1")
        _start(self, max_workers, initializer, initargs)


class ThreadPoolExecutor(_Executor):
    """A `concurrent.futures.ThreadPoolExecutor` whose threads are tasks on the workers of a host."""

    def __init__(
        self,
        max_workers: Optional[int] = None,
        thread_name_prefix: str = "",
        initializer: Optional[Callable[..., object]] = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        _start(self, max_workers, initializer, initargs)


def _start(executor: _Executor, workers: Optional[int], initializer: Any, initargs: tuple[Any, ...]) -> None:
    if workers is not None and workers <= 0:
        raise ValueError("max_workers must be greater than 0")
    _Executor.__init__(executor, _runtime.connection(), workers=workers, initializer=initializer, initargs=initargs)
