"""Runs calls of reentrant methods within the method of the same object that waits for their callers.

A waits for B, and B calls A: the host sends the call to the worker that runs the method of A, and not to the object's queue. It is a part of
that step: it sees the fields as the method has left them, and what it changes takes effect at the end of the step, or never.
"""

from __future__ import annotations

import inspect

from millrace.objects import _classes, _fields, _raised, _spaces, _values

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


class Within:
    """A step, and the calls that run within it."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._cls: Any = None
        self._running = 0

    def begin(self, cls: Any, of: Any, reads: bool, exceeded: Callable[[], Exception], method: Any = None) -> None:
        """A method of `of` begins to run: a plain one, or an `async` one in the event loop of `method`."""
        self._cls, self._of, self._reads, self._exceeded, self._method = cls, of, reads, exceeded, method

    def __call__(self, number: int, request: bytes) -> None:
        """Runs a call, and sends its answer."""
        reads, name, _, payload = _values.decode(request)
        try:
            function = self._function(reads, name)
            if self._method is not None and inspect.iscoroutinefunction(function):
                self._method.begin(self._answered(number, function, reads, payload))
                return
            self._running += 1
            try:
                answer = _returned(name, self._run(function, reads, payload))
            finally:
                self._running -= 1
        except BaseException as error:
            self._context._channel.reentered(number, _values.encode([1, _raised.pack(error, __file__)]))
            from millrace.objects._steps import StepTimeout

            if isinstance(error, StepTimeout):
                # The time of the whole step is over.
                raise
            return
        self._context._channel.reentered(number, answer)

    def _function(self, reads: bool, name: str) -> Any:
        """The method, if it may run now."""
        if self._cls is None:
            raise _refusal(_DEADLOCK, f"{name} was called before the method that waits for the caller has begun")
        function = getattr(self._cls, name, None)
        if name not in _classes.methods_of(self._cls) or not _classes.is_reentrant(function):
            raise _refusal(_DEADLOCK, f"{self._cls.__qualname__}.{name} is not marked with @millrace.reentrant")
        if reads != _classes.is_readonly(function):
            raise TypeError(f"{self._cls.__qualname__}.{name} is{'' if reads else ' not'} called as a method that is marked read-only")
        if self._reads and not reads:
            raise TypeError(f"{self._cls.__qualname__}.{name} is not marked read-only, as the method is within which it was called")
        if self._running >= _CALLS_MAX:
            raise RecursionError(f"{_CALLS_MAX} calls of reentrant methods run within one method of {self._cls.__qualname__}")
        return function

    def _check(self, function: Any, of: Any, args: Any, kwargs: Any) -> None:
        guard = _classes.guard_of(function)
        if guard is not None and not _fields.holds(guard, of, args, kwargs):
            raise _refusal(_DEADLOCK, f"the guard of {self._cls.__qualname__}.{function.__name__} does not hold, and would not while it waits")

    def _run(self, function: Any, reads: bool, payload: bytes) -> Any:
        """Runs a plain method, or an `async` one within a plain one."""
        if not inspect.iscoroutinefunction(function):
            wrap, _spaces.wrap = _spaces.wrap, None
            try:
                with _Copy(self._of, reads, self._method is not None, wrap) as of:
                    args, kwargs = _values.decode(payload)
                    self._check(function, of, args, kwargs)
                    return function(of, *args, **kwargs)
            finally:
                _spaces.wrap = wrap
        from millrace.aio import _steps as coroutines

        with coroutines.Method(self._context, _spaces.current()) as method, _Copy(self._of, reads, True, None) as of:
            args, kwargs = _values.decode(payload)
            self._check(function, of, args, kwargs)
            return method.run(function(of, *args, **kwargs), self._exceeded)

    async def _answered(self, number: int, function: Any, reads: bool, payload: bytes) -> None:
        """Runs an `async` method beside the one that waits, in the same event loop."""
        import asyncio

        self._running += 1
        try:
            with _Copy(self._of, reads, False, _spaces.wrap) as of:
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
        self._context._channel.reentered(number, answer)


def _returned(name: str, value: Any) -> bytes:
    """The answer of a call that has returned."""
    try:
        return _values.encode([0, _values.encode(value)])
    except _values.TooLong as error:
        raise _refusal("MR7108", f"what {name} returned has {error}") from None
    except Exception as error:
        raise TypeError(f"the result of {name} cannot be pickled: {type(error).__name__}: {error}") from error


class _Copy:
    """The object for a call: itself, or a copy if the call only reads, or if its references are others, whose methods are awaited or not."""

    def __init__(self, of: Any, reads: bool, is_other: bool, wrap: Any) -> None:
        self._of, self._reads, self._is_other, self._wrap = of, reads, is_other, wrap

    def __enter__(self) -> Any:
        if not self._reads and not self._is_other:
            return self._of
        self._before = _fields.encoded(self._of)
        self._copy = _fields.made(type(self._of), self._before)
        return self._copy

    def __exit__(self, kind: Any, *_: object) -> None:
        if not self._reads and not self._is_other:
            return
        now = _fields.encoded(self._copy)
        changed = [name for name in {**self._before, **now} if now.get(name) != self._before.get(name)]
        if self._reads:
            if changed and kind is None:
                raise TypeError(f"a method that is marked read-only has changed {', '.join(map(repr, changed))}")
            return
        wrap, _spaces.wrap = _spaces.wrap, self._wrap
        try:
            for name in changed:
                if name in now:
                    vars(self._of)[name] = _values.decode(now[name])
                else:
                    vars(self._of).pop(name, None)
        finally:
            _spaces.wrap = wrap
