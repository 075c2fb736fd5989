"""Runs one method of one object of a shared class in a worker of a pool.

    asked   [key, incarnation, changed, number, reads, pool, body, older, new, application, [method, milliseconds, arguments]]
            changed: which step has changed the fields last; number: this one's; older: the version that the fields are of if the body is
            of a newer one; new: the constructor's arguments if it has not run
    left    [kind, value, fields that changed]; 0 and the value, 1 and the exception, or 2 and the exception before the method began; 3 if
            its guard does not hold, and then the call waits until a field changes

A worker keeps objects. It asks for the fields of an object if it has none, or if another worker has changed them since.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import signal

from millrace.objects import _classes, _fields, _raised, _spaces, _values

# Before workers are forked. A program without cloudpickle has none, and calls the objects of others.
with contextlib.suppress(ModuleNotFoundError):
    from millrace.objects import _within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

RETURNED, RAISED, NOT_BEGUN, BLOCKED = 0, 1, 2, 3
#: The most bytes that a call may leave: the fields that changed, and the answer.
_RESULT_BYTES_MAX = (16 << 20) - 4096
#: Objects that a worker keeps.
_KEPT_MAX = 256
#: How soon a method is interrupted after a call of another object in which it could not be.
_AGAIN_S = 0.02


class StepTimeout(TimeoutError):
    """A method of a shared object exceeded its time limit; no field was changed."""


class _Kept:
    """An object, the step that has changed it last, and its fields as the host has them."""

    __slots__ = ("object", "changed", "fields")

    def __init__(self, object: Any, changed: int, fields: dict[str, bytes]) -> None:
        self.object, self.changed, self.fields = object, changed, fields


_kept: collections.OrderedDict[tuple[str, int, int], _Kept] = collections.OrderedDict()


class _Limit:
    """Interrupts a method at its time limit."""

    def __init__(self, context: Any, milliseconds: int) -> None:
        self._context, self._seconds = context, milliseconds / 1000

    def __enter__(self) -> _Limit:
        self._before = signal.signal(signal.SIGALRM, self._over)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        return self

    def exceeded(self) -> StepTimeout:
        """The exception of a method that exceeded it."""
        return StepTimeout(f"the method did not end within {self._seconds:g} seconds")

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def _over(self, _: int, stack: Any) -> None:
        if self._context._channel.is_in_use(stack):
            # An answer is on its way, and has to be taken. If it does not come, the host ends this worker.
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
            return
        raise self.exceeded()


def _received(context: Any) -> dict[str, bytes]:
    flat = _values.decode(context._fields())
    return dict(zip(flat[::2], flat[1::2]))


def _object(cls: Any, context: Any, place: tuple[str, int, int], about: tuple[int, Optional[int], Optional[bytes]]) -> _Kept:
    """The object, from the host's fields, or created here."""
    changed, older, new = about
    kept = _kept.get(place)
    if kept is not None and kept.changed == changed and type(kept.object) is cls and older is None and new is None:
        _kept.move_to_end(place)
        return kept
    fields = {} if new is not None else _received(context)
    if new is not None:
        args, kwargs = _values.decode(new)
        made = cls(*args, **kwargs)
    else:
        values = {name: _values.decode(value) for name, value in fields.items()}
        if older is not None:
            migrate = getattr(cls, "__migrate__", None)
            if migrate is None:
                from millrace._worker import error_of

                told = f"the object has version {older}; {cls.__qualname__} has a newer version and no __migrate__"
                raise error_of("MR7120", told)
            values = dict(migrate(values, older))
        made = cls.__new__(cls)
        made.__dict__.update(values)
    _kept[place] = kept = _Kept(made, changed, fields)
    _kept.move_to_end(place)
    while len(_kept) > _KEPT_MAX:
        _kept.popitem(last=False)
    return kept


def _changes(kept: _Kept) -> dict[str, Optional[bytes]]:
    """The fields that differ from those of the host."""
    now = _fields.encoded(kept.object)
    changed: dict[str, Optional[bytes]] = {name: value for name, value in now.items() if kept.fields.get(name) != value}
    changed.update((name, None) for name in kept.fields if name not in now)
    kept.fields = now
    return changed


def _reopened(kept: _Kept) -> _Kept:
    """The same object with fields that are decoded once more, among other references."""
    return _Kept(_fields.made(type(kept.object), _fields.encoded(kept.object)), kept.changed, kept.fields)


def _step(asked: list[Any], context: Any, body: Any, within: _within.Within) -> tuple[int, bytes, dict[str, Optional[bytes]]]:
    key, incarnation, changed, number, reads, pool, record, older, new, _, (method, milliseconds, payload) = asked
    place = (key, incarnation, record)
    kind, value, rollback = NOT_BEGUN, b"", False
    try:
        cls = body(pool, record, context)
        with _Limit(context, milliseconds) as limit:
            rollback = _classes.settings_of(cls).rollback
            function = getattr(cls, method, None)
            if method not in _classes.methods_of(cls) or function is None:
                raise AttributeError(f"{cls.__qualname__!r} has no public method {method!r}")
            if reads and not _classes.is_readonly(function):
                raise TypeError(f"{cls.__qualname__}.{method} is not marked read-only")
            kept = _object(cls, context, place, (changed, older, new))
            args, kwargs = _values.decode(payload)
            guard = _classes.guard_of(function)
            if guard is not None:
                # The fields of an object that was made or migrated just now are kept even if the guard does not hold.
                before, made = kept.fields, {} if new is None and older is None else _changes(kept)
                holds = _fields.holds(guard, kept.object, args, kwargs)
                if spoilt := _changes(kept):
                    raise TypeError(f"the guard of {cls.__qualname__}.{method} has changed {', '.join(map(repr, spoilt))}")
                if not holds:
                    kept.changed = number if made else kept.changed
                    return BLOCKED, b"", made
                kept.fields = before
            if inspect.iscoroutinefunction(function):
                from millrace.aio import _steps as coroutines

                with coroutines.Method(context, _spaces.current()) as call:
                    kept = _reopened(kept)
                    args, kwargs = _values.decode(payload)
                    kind = RAISED
                    within.begin(cls, kept.object, reads, limit.exceeded, call)
                    returned = call.run(function(kept.object, *args, **kwargs), limit.exceeded)
            else:
                kind = RAISED
                within.begin(cls, kept.object, reads, limit.exceeded)
                returned = function(kept.object, *args, **kwargs)
            try:
                value, kind = _values.encode(returned), RETURNED
            except _values.TooLong as error:
                # The code says that nothing was changed.
                kind = NOT_BEGUN
                raise _fields.too_large(f"what {method} returned has {error}") from None
            except Exception as error:
                told = f"the result of {method} cannot be pickled: {type(error).__name__}: {error}"
                raise TypeError(told) from error
    except MemoryError:
        _kept.pop(place, None)
        raise
    except BaseException as error:
        value = _raised.pack(error, __file__)
        if kind == NOT_BEGUN or rollback or isinstance(error, StepTimeout):
            _kept.pop(place, None)
            # An object that was made or migrated for this call is not kept either.
            return NOT_BEGUN, value, {}
    try:
        changes = _changes(kept)
        if changes and reads and new is None and older is None:
            raise TypeError(f"{cls.__qualname__}.{method} is marked read-only and has changed {', '.join(map(repr, changes))}")
    except BaseException as error:
        _kept.pop(place, None)
        return NOT_BEGUN, _raised.pack(error, __file__), {}
    if changes and _kept.get(place) is not kept:
        # Only the `async` method's own object has them.
        _kept.pop(place, None)
    elif changes:
        kept.changed = number
    return kind, value, changes


def run(request: bytes, context: Any, body: Any) -> bytes:
    """Runs a method, and returns its result. `body` loads the class."""
    asked = _values.decode(request)
    _values.pickle_with(_raised.dumps)
    _spaces.use(_spaces.TaskSpace(context, asked[9]))
    within = context._channel.reenter = _within.Within(context)
    try:
        left = _step(asked, context, body, within)
        result = _values.encode(list(left))
        if len(result) > _RESULT_BYTES_MAX:
            told = f"{asked[10][0]} left {len(result)} bytes of fields and answer; the limit of a call is {_RESULT_BYTES_MAX}"
            _kept.pop((asked[0], asked[1], asked[6]), None)
            result = _values.encode([NOT_BEGUN, _raised.pack(_fields.too_large(told), __file__), {}])
    finally:
        context._channel.reenter = None
        _spaces.use(None)
        if within.is_running():
            # The caller gets an error, so changes that the method still makes in another thread are discarded.
            _kept.pop((asked[0], asked[1], asked[6]), None)
    return result
