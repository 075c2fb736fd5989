"""The fields of objects of shared classes, as the host keeps them."""

from __future__ import annotations

from millrace.objects import _spaces, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _GuardSpace(_spaces.Space):
    """Refuses the calls of a guard: it is tried any number of times, so none of them would count once."""

    def call(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("a guard reads the fields of its own object, and calls no other object")


def too_large(told: str) -> Exception:
    """The error that something has too many bytes."""
    from millrace._worker import error_of

    return error_of("MR7108", told)


def encoded(of: Any) -> dict[str, bytes]:
    """The encoded fields of an object."""
    now: dict[str, bytes] = {}
    for name, value in vars(of).items():
        try:
            now[name] = _values.encode(value)
        except _values.TooLong as error:
            raise too_large(f"field {name!r} of {type(of).__qualname__} has {error}") from None
        except Exception as error:
            if hasattr(error, "code"):
                raise
            told = f"field {name!r} of {type(of).__qualname__} cannot be pickled: {type(error).__name__}: {error}"
            raise TypeError(told) from error
    return now


def made(cls: Any, fields: dict[str, bytes]) -> Any:
    """The object with these encoded fields."""
    of = cls.__new__(cls)
    of.__dict__.update((name, _values.decode(value)) for name, value in fields.items())
    return of


def holds(guard: Any, of: Any, args: Any, kwargs: Any) -> bool:
    """Whether a guard holds."""
    space = _spaces.current()
    _spaces.use(_GuardSpace())
    try:
        return bool(guard(of, *args, **kwargs))
    finally:
        _spaces.use(space)
