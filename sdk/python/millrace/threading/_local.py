"""`threading.local`, for threads that run on workers."""

from __future__ import annotations

import threading as _threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MISSING = object()


class local:
    """A `threading.local`: each thread has its own attributes. A copy that is sent to another process has none at first."""

    __slots__ = ("_millrace_made", "_millrace_own", "__dict__", "__weakref__")

    def __new__(cls, /, *args: Any, **kwargs: Any) -> local:
        if (args or kwargs) and cls.__init__ is object.__init__:
            raise TypeError("Initialization arguments are not supported")
        self = super().__new__(cls)
        object.__setattr__(self, "_millrace_made", (args, kwargs))
        own = _threading.local()
        object.__setattr__(self, "_millrace_own", own)
        # The thread that makes it initializes it in the usual way.
        own.ident, own.values = _ident(), {}
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        args, kwargs = object.__getattribute__(self, "_millrace_made")
        return _again, (type(self), args, kwargs)

    def __getattribute__(self, name: str) -> Any:
        values = _values(self)
        if name == "__dict__":
            return values
        if name in values:
            return values[name]
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__dict__":
            raise AttributeError(f"{type(self).__name__!r} object attribute '__dict__' is read-only")
        if hasattr(getattr(type(self), name, None), "__set__"):
            object.__setattr__(self, name, value)
        else:
            _values(self)[name] = value

    def __delattr__(self, name: str) -> None:
        if hasattr(getattr(type(self), name, None), "__delete__"):
            object.__delattr__(self, name)
            return
        if _values(self).pop(name, _MISSING) is _MISSING:
            raise AttributeError(name)


def _ident() -> int:
    from millrace.threading import get_ident

    return get_ident()


def _again(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return cls(*args, **kwargs)


def _values(self: local) -> dict[str, Any]:
    """The attributes of the calling thread. A worker runs one thread after another: each begins without any."""
    own = object.__getattribute__(self, "_millrace_own")
    ident = _ident()
    if getattr(own, "ident", None) != ident:
        own.ident, own.values = ident, {}
        args, kwargs = object.__getattribute__(self, "_millrace_made")
        type(self).__init__(self, *args, **kwargs)
    values: dict[str, Any] = own.values
    return values
