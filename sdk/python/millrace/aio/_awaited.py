"""Shared objects whose methods are awaited: for programs, and for the `async` methods of shared classes. Workers have this file, too."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from millrace import objects as _objects
from millrace._worker import Error
from millrace.objects import _classes, _spaces, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any, Optional

_log = logging.getLogger("millrace")

#: Methods whose names Python keeps for operators, and what they are called here.
_OPERATORS = {
    "get_item": "__getitem__",
    "set_item": "__setitem__",
    "del_item": "__delitem__",
    "contains": "__contains__",
    "length": "__len__",
}
#: The methods that return what a call received after its caller was cancelled.
_UNDO = {("Lock", "acquire"), ("Condition", "acquire"), ("Semaphore", "acquire")}


class _Ask(BaseException):
    """A method has reached a call that has no answer yet."""

    def __init__(self, arguments: tuple[Any, ...], timeout: Optional[float]) -> None:
        super().__init__()
        self.arguments, self.timeout = arguments, timeout


class _Replay(_spaces.Space):
    """Answers the first calls of a method with the host's answers, and stops the method at the next call."""

    def __init__(self, application: str) -> None:
        self.application = application
        self.answers: list[tuple[int, Any, Optional[BaseException]]] = []
        self.at = 0

    def call(
        self,
        target: tuple[str, str, str],
        arguments: Any,
        new: bytes,
        incarnation: int,
        *,
        flags: int = 0,
        timeout: Optional[float] = None,
        fence: Optional[tuple[str, int]] = None,
    ) -> tuple[int, Any]:
        if self.at == len(self.answers):
            raise _Ask((target, arguments, new, incarnation, flags, fence), timeout)
        incarnation, value, error = self.answers[self.at]
        self.at += 1
        if error is not None:
            raise error
        return incarnation, value


class Object:
    """A shared object whose methods are awaited. `sync` is the object that tasks get when it is an argument.

    `get_item`, `set_item`, `del_item`, `contains` and `length` stand for operators; properties are methods; `async for` iterates over the
    current contents.
    """

    def __init__(self, sync: _objects.Object, connection: Any) -> None:
        self.sync = sync
        self._connection = connection

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        found = getattr(type(self.sync), _OPERATORS.get(name, name), None)
        if name.startswith("_") or found is None or name in ("wait_for",) and type(self.sync) is _objects.Condition:
            raise AttributeError(f"{type(self).__name__!r} of {type(self.sync).__name__} has no {name!r}")
        method = found.__get__ if isinstance(found, property) else found

        async def call(*args: Any, **named: Any) -> Any:
            if name == "wait" and type(self.sync) is _objects.Barrier and (len(args) > 1 or "action" in named):
                raise TypeError("a barrier of millrace.aio takes no action: await it behind the barrier")
            return await self._run(method, *args, **named)

        call.__name__ = name
        call.__doc__ = found.__doc__
        return call

    async def _run(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Runs a method of the class up to its call, awaits the call, and continues: so the methods are written once for both."""
        if self.sync._flags >> _spaces.COPIES_SHIFT > 1 and not self._connection._space._is_shared:
            await self._connection._space.share(lambda: self._replay(type(self.sync)._touch))
        try:
            return await self._replay(method, *args, **named)
        except Error as error:
            of = self.sync._of if isinstance(self.sync, _classes.Shared) else None
            if error.code != _classes._CLASS_MISSING or of is None or of._body is None:
                raise
            # The hosts that keep the object have lost its class.
            await asyncio.to_thread(of.ship)
        return await self._replay(method, *args, **named)

    async def _replay(self, method: Callable[..., Any], *args: Any, **named: Any) -> Any:
        space = _Replay(self._connection.application)
        while True:
            # Not as `copy.copy` does it: that has a reference to an object of a shared class ask for the object first.
            acting = object.__new__(type(self.sync))
            acting.__dict__.update(self.sync.__dict__)
            acting._space = space
            if isinstance(acting, _classes.Shared):
                acting._of = None
            space.at = 0
            try:
                result = method(acting, *args, **named)
            except _Ask as ask:
                space.answers.append(await self._connection._space.answer(ask.arguments, ask.timeout))
                self.sync._incarnation = space.answers[-1][0] or self.sync._incarnation
                continue
            return result

    def with_options(self, **options: Any) -> Object:
        """The same object, whose calls have these options: see `millrace.objects.Object.with_options`."""
        return Object(self.sync.with_options(**options), self._connection)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """For a future: calls `fn(future)` once it has a result, or is cancelled. This method is not awaited."""
        if type(self.sync) is not _objects.Future:
            raise AttributeError(f"{type(self.sync).__name__} has no 'add_done_callback'")

        async def call() -> None:
            try:
                await self._run(lambda sync: sync._call("result"))
            except Exception as error:
                _log.warning("%r: a callback is not called: %s", self, error)
                return
            fn(self)

        task = asyncio.get_running_loop().create_task(call())
        self._connection._callbacks.add(task)
        task.add_done_callback(self._connection._callbacks.discard)

    async def wait_until(self, predicate: Callable[[], Coroutine[Any, Any, Any]], timeout: Optional[float] = None) -> Any:
        """For a condition: waits until the awaited predicate is true; returns its last value."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while not (result := await predicate()):
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                break
            await self.wait(left)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks and methods of other objects get what they can call.
        return self.sync.__reduce__()

    async def __aenter__(self) -> Any:
        return await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    async def __aiter__(self) -> AsyncIterator[Any]:
        for value in await self._run(lambda sync: list(sync)):
            yield value

    def __repr__(self) -> str:
        return f"<millrace.aio.Object {self.sync!r}>"


#: The tasks that `unhurried` waits for. Whoever cancels all tasks of an event loop leaves them to their end.
unhurried_tasks: set[asyncio.Future[Any]] = set()


async def unhurried(work: Coroutine[Any, Any, Any]) -> None:
    """Waits for a result even if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    unhurried_tasks.add(task)
    task.add_done_callback(unhurried_tasks.discard)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    if not task.cancelled() and task.exception() is not None:
        # The lease does it.
        return


def giving_back(kind: str, method: str, arguments: bytes, value: Any) -> Optional[tuple[str, bytes]]:
    """The method, and its arguments, that returns what a call received after its caller was cancelled."""
    if (kind, method) in _UNDO and value is not False:
        # As many permits as it has acquired; a lock takes no arguments.
        return "release", arguments
    if (kind, method) == ("Queue", "get"):
        # It was not delivered, so it becomes the first one again.
        return "give_back", _values.array([value])
    return None


#: Makes an object of a reference in the `async` method that this worker runs.
_wrap: Optional[Callable[[_objects.Object], Object]] = None


def use(wrap: Optional[Callable[[_objects.Object], Object]]) -> None:
    """From now on references that are unpickled become objects whose methods are awaited; with None, no longer."""
    global _wrap
    _wrap = wrap
    _spaces.wrap = wrap


def awaited(reference: Any) -> Object:
    """The object of a reference, whose methods are awaited, for the `async` method of a shared class that calls this.

    Its arguments and fields have such objects already; this is for others: `await millrace.aio.awaited(millrace.objects.AtomicInt("hits")).add()`.
    """
    if isinstance(reference, Object):
        return reference
    if _wrap is None:
        raise RuntimeError("this is for async methods of shared classes; a program takes its objects from `millrace.aio.connect`")
    return _wrap(reference)
