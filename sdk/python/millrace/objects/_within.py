"""Runs calls of reentrant methods within the method of the same object that waits for their callers.

A waits for B, and B calls A: the host sends the call to the worker that runs the method of A, and not to the object's queue. It is a part of
that step: it sees the fields as the method has left them, and what it changes takes effect at the end of the step, or never.
"""

from __future__ import annotations

import contextlib
import inspect

from millrace.objects import _classes, _fields, _raised, _spaces, _turned, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: How many of them run at a time, each within another one or beside it.
_CALLS_MAX = 16
_DEADLOCK, _STEP_FAILED = "MR7118", "MR7119"


def _refusal(code: str, told: str) -> Exception:
    from millrace._worker import error_of

    return error_of(code, told)


class _Frame:
    """A method on the stack of a step: a plain one, or the `async` one that an event loop runs."""

    def __init__(self, method: Any, reads: bool) -> None:
        self.method, self.reads = method, reads


class Within:
    """A step, and the calls that run within it."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._cls: Any = None
        self._running = 0
        #: The outermost method, and those within it that run instead of the one before until they end.
        self._frames: list[_Frame] = []

    def begin(self, cls: Any, of: Any, reads: bool, exceeded: Callable[[], Exception], method: Any = None) -> None:
        """A method of `of` begins to run: a plain one, or an `async` one in the event loop of `method`."""
        self._cls, self._of, self._exceeded = cls, of, exceeded
        self._frames.append(_Frame(method, reads))

    def __call__(self, number: int, request: bytes) -> None:
        """Runs a call, and sends its answer."""
        if self._is_over():
            return
        method = self._frames[-1].method if self._frames else None
        reads, name, _, payload = _values.decode(request)
        try:
            function = self._function(reads, name)
            beside = self._beside(method, name) if inspect.iscoroutinefunction(function) else None
            if beside is not None:
                beside.begin(self._answered(number, function, reads, payload))
                return
            self._running += 1
            try:
                answer = _returned(name, self._run(function, reads, payload, method))
            finally:
                self._running -= 1
        except BaseException as error:
            self._answer(number, _values.encode([1, _raised.pack(error, __file__)]))
            from millrace.objects._steps import StepTimeout

            if isinstance(error, StepTimeout):
                # The time of the whole step is over.
                raise
            return
        self._answer(number, answer)

    def is_running(self) -> bool:
        """Whether any of them has not ended."""
        return self._running > 0

    def _is_over(self) -> bool:
        """Whether the step is over: the host has answered all calls then, and numbers those of the next step from the beginning."""
        channel = self._context._channel
        return channel is None or channel.reenter is not self

    def _answer(self, number: int, answer: bytes) -> None:
        if not self._is_over():
            self._context._channel.reentered(number, answer)

    def _function(self, reads: bool, name: str) -> Any:
        """The method, if it may run now."""
        if self._cls is None:
            raise _refusal(_DEADLOCK, f"{name} was called before the method that waits for the caller has begun")
        method = self._frames[-1].method
        if method is not None and method.is_over:
            raise _refusal(_STEP_FAILED, f"the method of {self._cls.__qualname__} has ended within which {name} would have run")
        function = getattr(self._cls, name, None)
        if name not in _classes.methods_of(self._cls) or not _classes.is_reentrant(function):
            raise _refusal(_DEADLOCK, f"{self._cls.__qualname__}.{name} is not marked with @millrace.reentrant")
        if reads != _classes.is_readonly(function):
            raise TypeError(f"{self._cls.__qualname__}.{name} is{'' if reads else ' not'} called as a method that is marked read-only")
        if not reads and any(frame.reads for frame in self._frames):
            raise TypeError(f"{self._cls.__qualname__}.{name} is not marked read-only, as the method is within which it was called")
        if self._running >= _CALLS_MAX:
            raise RecursionError(f"{_CALLS_MAX} calls of reentrant methods run within one method of {self._cls.__qualname__}")
        return function

    def _beside(self, method: Any, name: str) -> Any:
        """What an `async` method runs beside, in the same event loop; None if it runs within plain ones only."""
        if method is not None and not method.is_blocked():
            return method
        if any(frame.method is not None for frame in self._frames):
            told = f"{self._cls.__qualname__}.{name} is async, and cannot run while a plain method, or a call that blocks, stops the event loop"
            raise _refusal(_DEADLOCK, f"{told} of the async method within which it was called")
        return None

    def _check(self, function: Any, of: Any, args: Any, kwargs: Any) -> None:
        guard = _classes.guard_of(function)
        if guard is not None and not _fields.holds(guard, of, args, kwargs):
            raise _refusal(_DEADLOCK, f"the guard of {self._cls.__qualname__}.{function.__name__} does not hold, and would not while it waits")

    def _run(self, function: Any, reads: bool, payload: bytes, outer: Any) -> Any:
        """Runs a plain method, or an `async` one within plain ones. The method that waits is one of the event loop of `outer`, or plain."""
        if inspect.iscoroutinefunction(function):
            from millrace.aio import _steps as coroutines

            with coroutines.Method(self._context, _spaces.current()) as method, self._object(reads, method, outer) as of:
                args, kwargs = _values.decode(payload)
                self._check(function, of, args, kwargs)
                return self._framed(_Frame(method, reads), lambda: method.run(function(of, *args, **kwargs), self._exceeded))
        wrap, _spaces.wrap = _spaces.wrap, None
        try:
            with self._object(reads, None, outer) as of:
                args, kwargs = _values.decode(payload)
                self._check(function, of, args, kwargs)
                return self._framed(_Frame(None, reads), lambda: function(of, *args, **kwargs))
        finally:
            _spaces.wrap = wrap

    def _framed(self, frame: _Frame, run: Callable[[], Any]) -> Any:
        self._frames.append(frame)
        try:
            return run()
        finally:
            self._frames.remove(frame)

    def _object(self, reads: bool, method: Any, outer: Any) -> Any:
        """The object for a method of the event loop of `method`, or for a plain one: always the same object, except for those that read."""
        if reads:
            return _Copy(self._of)
        if (method is None) == (outer is None):
            return contextlib.nullcontext(self._of)
        return _turned.Turned(self._of, *(None if of is None else of.connection for of in (method, outer)))

    async def _answered(self, number: int, function: Any, reads: bool, payload: bytes) -> None:
        """Runs an `async` method beside the one that waits, in the same event loop."""
        import asyncio

        self._running += 1
        try:
            with self._object(reads, None, None) as of:
                args, kwargs = _values.decode(payload)
                self._check(function, of, args, kwargs)
                answer = _returned(function.__name__, await function(of, *args, **kwargs))
        except asyncio.CancelledError:
            told = f"the method of {self._cls.__qualname__} within which {function.__name__} ran has ended"
            answer = _values.encode([1, _raised.pack(_refusal(_STEP_FAILED, told), __file__)])
        except BaseException as error:
            answer = _values.encode([1, _raised.pack(error, __file__)])
        finally:
            self._running -= 1
        self._answer(number, answer)


def _returned(name: str, value: Any) -> bytes:
    """The answer of a call that has returned."""
    try:
        return _values.encode([0, _values.encode(value)])
    except _values.TooLong as error:
        raise _refusal("MR7108", f"what {name} returned has {error}") from None
    except Exception as error:
        raise TypeError(f"the result of {name} cannot be pickled: {type(error).__name__}: {error}") from error


class _Copy:
    """The object for a call that only reads."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __enter__(self) -> Any:
        self._before = _fields.encoded(self._of)
        self._copy = _fields.made(type(self._of), self._before)
        return self._copy

    def __exit__(self, kind: Any, *_: object) -> None:
        now = _fields.encoded(self._copy)
        changed = [name for name in {**self._before, **now} if now.get(name) != self._before.get(name)]
        if changed and kind is None:
            raise TypeError(f"a method that is marked read-only has changed {', '.join(map(repr, changed))}")
