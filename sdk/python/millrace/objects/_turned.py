"""The references in the fields of an object, for an `async` method within a plain one, or for a plain one within an `async` one.

The methods of references are awaited, or are not. While the inner method runs, the references have the methods that it expects, and every
value stays the same Python object. The outer method is stopped then, but threads that it has started may go on: for them the references are
as before. So a reference has a class of its own meanwhile, which asks for each attribute who wants it.
"""

from __future__ import annotations

import contextvars
import functools
import threading

import cloudpickle

from millrace.objects import Object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: Guards the classes of references: methods in several threads of a worker may turn the same ones.
_lock = threading.Lock()
#: The turns within which this context runs: that of the inner method, and of what it gives to `asyncio.to_thread`.
_inside: contextvars.ContextVar[tuple[Turned, ...]] = contextvars.ContextVar("_inside", default=())
#: The special methods that a turned reference does not forward: those of classes, and those that say which object it is unless it says so.
_OF_CLASSES = {"__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__class_getitem__", "__getattribute__", "__getattr__"}
_OF_OBJECTS = ("__eq__", "__ne__", "__hash__")


class Turned:
    """The object, whose references have the methods of the inner method until this ends."""

    def __init__(self, of: Any, inner: Any, outer: Any) -> None:
        #: What the references call through, for methods that are awaited.
        self._of, self._inner, self._outer = of, inner, outer
        self._known: list[Any] = []
        self._turned: list[Any] = []
        #: The thread of the inner method: the outer one stands still in it, so whatever runs there belongs to the inner one.
        self._thread = threading.current_thread()
        #: The threads of the outer method.
        self._others = {*threading.enumerate()} - {self._thread}

    def __enter__(self) -> Any:
        find(self._of, self._known)
        for reference in self._known:
            inner = _other(reference, self._inner)
            if inner is not None:
                _add(reference, self, inner)
                self._turned.append(reference)
        self._token = _inside.set((*_inside.get(), self))
        return self._of

    def __exit__(self, kind: Any, *_: object) -> None:
        _inside.reset(self._token)
        for reference in self._turned:
            _remove(reference, self)
        found: list[Any] = []
        try:
            find(self._of, found)
        except Exception:
            if kind is None:
                raise
        finally:
            known = set(map(id, self._known))
            for reference in found:
                other = None if id(reference) in known else _other(reference, self._outer)
                if other is not None:
                    # One that the inner method has got.
                    reference.__class__, reference.__dict__ = type(other), vars(other)

    def is_inner(self) -> bool:
        """Whether the inner method runs here, or a thread that it has started."""
        if threading.current_thread() is self._thread or self in _inside.get():
            return True
        if threading.current_thread() in self._others:
            return False
        if self._inner is not None:
            # A call of the outer method would not be awaited, and be lost.
            raise RuntimeError(
                "a thread that started while an async reentrant method runs within a plain one cannot use the references in the object's "
                "fields: start it before the call of another object, or use asyncio.to_thread in the async method"
            )
        return True


def _other(reference: Any, connection: Any) -> Any:
    """What has the same state, and methods that are awaited, or are not: without a connection. None if the reference has them."""
    from millrace.aio import _awaited

    if isinstance(reference, _awaited.Object) == (connection is not None):
        return None
    if connection is None:
        return reference.sync
    sync = object.__new__(reference.__class__)
    sync.__dict__ = reference.__dict__
    return _awaited.Object(sync, connection)


def _add(reference: Any, turn: Turned, inner: Any) -> None:
    with _lock:
        cls = type(reference)
        if not issubclass(cls, _Turning):
            outer = object.__new__(cls)
            # The class alone changes, so no thread sees one of two changes.
            outer.__dict__ = reference.__dict__
            kinds: tuple[Any, Any] = cls, type(inner)
            reference.__class__ = type("_Turning", (_class_of(*kinds),), {"_millrace_outer": outer, "_millrace_turns": ((turn, inner),)})
        else:
            cls._millrace_turns = (*cls._millrace_turns, (turn, inner))


@functools.lru_cache(maxsize=256)
def _class_of(outer: type, inner: type) -> type:
    """A class that forwards the special methods of both."""
    names = {name for one in (outer, inner) for name, value in _members(one) if callable(value)} - _OF_CLASSES
    return type("_Turning", (_Turning,), {name: _forwarded(name) for name in names})


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """The special members of a class."""
    return ((name, getattr(cls, name, None)) for name in dir(cls) if name[:2] == name[-2:] == "__")


def _remove(reference: Any, turn: Turned) -> None:
    with _lock:
        cls = type(reference)
        left = tuple(one for one in cls._millrace_turns if one[0] is not turn)
        if left:
            cls._millrace_turns = left
        else:
            object.__setattr__(reference, "__class__", type(cls._millrace_outer))


def _seen(reference: Any) -> Any:
    """What the reference is for the method that asks."""
    cls = type(reference)
    if not issubclass(cls, _Turning):
        # Its turn has ended meanwhile.
        return reference
    for turn, inner in reversed(cls._millrace_turns):
        if turn.is_inner():
            return inner
    return cls._millrace_outer


class _Turning:
    """A reference that two methods have: each sees the methods that it expects."""

    _millrace_outer: Any
    _millrace_turns: tuple[tuple[Turned, Any], ...]

    def __getattribute__(self, name: str) -> Any:
        return getattr(_seen(self), name)

    def __bool__(self) -> bool:
        return bool(_seen(self))


def _forwarded(name: str) -> Any:
    def call(reference: Any, *args: Any) -> Any:
        seen = _seen(reference)
        method = getattr(type(seen), name, None)
        if method is None:
            raise TypeError(f"{type(seen).__name__!r} object has no {name}")
        if name in _OF_OBJECTS and method is getattr(object, name):
            return method(reference, *args)
        result = method(seen, *(seen if arg is reference else arg for arg in args))
        # As of an operator that changes it.
        return reference if result is seen else result

    return call


class _Finder(cloudpickle.Pickler):  # type: ignore[misc]
    """Finds the references among what would be pickled, and calls no object."""

    def __init__(self, found: list[Any]) -> None:
        super().__init__(_Nowhere())
        self._found = found

    def reducer_override(self, value: Any) -> Any:
        from millrace.aio import _awaited

        if isinstance(value, (Object, _awaited.Object)):
            self._found.append(value)
            return str, ()
        return super().reducer_override(value)


class _Nowhere:
    def write(self, data: Any) -> int:
        return len(data)


def find(of: Any, found: list[Any]) -> None:
    """Adds the references in the fields of an object."""
    finder = _Finder(found)
    for name, value in vars(of).items():
        try:
            finder.dump(value)
        except Exception as error:
            told = f"field {name!r} of {type(of).__qualname__} cannot be pickled: {type(error).__name__}: {error}"
            raise TypeError(told) from error
