"""Runs an `async` method of a shared class in a worker: the calls that it awaits wait at the host, any number of them at a time.

The method is one step of its object, like any other: no other call of the object begins before it has ended.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import signal

from millrace.aio import _awaited
from millrace.objects import _spaces, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, Optional

#: How many calls of a method wait at the same time, at most: the host accepts 256. A call that gives up needs another one.
_CALLS_MAX = 100
#: How much later than a method is cancelled it is interrupted. The host ends the worker one second after the time limit.
_INTERRUPTED_S = 0.2

#: That of this worker.
_loop: Optional[asyncio.AbstractEventLoop] = None


class _Space:
    """Calls objects for a method, and numbers the calls: `aio._Space` for workers."""

    #: The host has the session.
    _is_shared = True

    def __init__(self, context: Any, space: _spaces.TaskSpace) -> None:
        self._context, self._sync = context, space
        self._free = asyncio.Semaphore(_CALLS_MAX)

    async def answer(self, arguments: tuple[Any, ...], timeout: Optional[float]) -> tuple[int, Any, Optional[BaseException]]:
        """The incarnation and value of a call, or its exception. If the caller is cancelled, an item or lock is given back."""
        target, encoded, new, incarnation, flags, fence = arguments
        call = self._sync.numbered(target, encoded, new, incarnation, flags, timeout, fence)
        async with self._free:
            try:
                return await self._ask(call)
            except asyncio.CancelledError:
                await _awaited.unhurried(self._take_back(call))
                raise

    async def _ask(self, call: list[Any]) -> tuple[int, Any, Optional[BaseException]]:
        return _spaces.answered(await self._context._call_object_later(_values.encode(call)))

    async def _take_back(self, call: list[Any]) -> None:
        """Handles a cancelled caller: the call gives up, and an item or lock that it already got is returned."""
        _, kind, key, method, arguments, new, incarnation, flags, *rest = call
        given_up = [*call[:7], flags | _spaces.GIVE_UP, *rest]
        incarnation, value, error = await self._ask(given_up)
        kind, key, method = kind.decode(), key.decode(), method.decode()
        back = None if error is not None else _awaited.giving_back(kind, method, arguments, value)
        if back is not None:
            await self._ask(self._sync.numbered((kind, key, back[0]), back[1], b"", incarnation, flags, None, None))


class _Connection:
    """What the objects of a method call through."""

    def __init__(self, space: _Space, application: str) -> None:
        self._space, self.application = space, application
        self._callbacks: set[asyncio.Task[None]] = set()


class Method:
    """The call of an `async` method, within which references that are unpickled become objects whose methods are awaited."""

    def __init__(self, context: Any, space: _spaces.Space) -> None:
        global _loop
        assert isinstance(space, _spaces.TaskSpace), "methods run in workers"
        if _loop is None:
            _loop = asyncio.new_event_loop()
        self._loop, self._context = _loop, context
        #: What its references call through.
        self.connection = _Connection(_Space(context, space), space.application)
        #: Whether it has returned: no other method begins beside it.
        self.is_over = False
        self._others: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Method:
        _awaited.use(lambda reference: _awaited.Object(reference, self.connection))
        return self

    def __exit__(self, *_: object) -> None:
        _awaited.use(None)

    def run(self, method: Coroutine[Any, Any, Any], timeout: Callable[[], Exception]) -> Any:
        """Runs it to its end. At the time limit, for which a signal is set, it is cancelled, and the exception of `timeout` raised."""
        if self._loop.is_running():
            method.close()
            raise RuntimeError("the event loop runs another async method, in another thread")
        # What runs beside it has its context, whichever thread has received the call.
        self._variables = contextvars.copy_context()
        channel, left = self._context._channel, signal.getitimer(signal.ITIMER_REAL)[0]
        signal.setitimer(signal.ITIMER_REAL, left + _INTERRUPTED_S)
        task, is_over = self._loop.create_task(method), False

        def end() -> None:
            nonlocal is_over
            is_over = True
            task.cancel()

        limit = self._loop.call_later(left, end)
        channel.use_loop(self._loop)
        self._loop.add_reader(channel.fd, channel.answers)
        try:
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            if is_over:
                raise timeout() from None
            # Not that of asyncio, which would mean to an awaiting caller that it was cancelled itself.
            raise concurrent.futures.CancelledError from None
        finally:
            limit.cancel()
            try:
                self._end()
            finally:
                self._loop.remove_reader(channel.fd)
                channel.use_loop(None)
            # A method within which this one ran has its own time limit back.
            left = signal.getitimer(signal.ITIMER_REAL)[0]
            if left > 0:
                signal.setitimer(signal.ITIMER_REAL, max(left - _INTERRUPTED_S, 0.001))

    def is_blocked(self) -> bool:
        """Whether its event loop stands still: a task of it is what asks."""
        return not self._loop.is_running() or asyncio.current_task(self._loop) is not None

    def begin(self, other: Coroutine[Any, Any, Any]) -> None:
        """Runs another method beside this one."""
        task = self._variables.copy().run(self._loop.create_task, other)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def _end(self) -> None:
        """Ends what the method has begun and not awaited; what is given back for cancelled calls is given back first."""
        self.is_over = True
        left = asyncio.all_tasks(self._loop)
        for task in left - _awaited.unhurried_tasks:
            task.cancel()
        try:
            if left:
                self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        except BaseException:
            # The time limit is over, and no answers come any more.
            _awaited.unhurried_tasks.clear()
            raise
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
