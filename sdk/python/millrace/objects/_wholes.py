"""Methods that read an object as a whole, atomically, and work on the copy: methods of Python's classes that the host does not have."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, NoReturn

_MISSING = object()


def _refuse(what: str, instead: str) -> NoReturn:
    raise NotImplementedError(f"{what}: the host cannot do it in one call; use {instead}")


class OfCounter:
    """Further methods of `collections.Counter`."""

    def __iter__(self: Any) -> Iterator[Any]:
        return iter(self.keys())

    def __contains__(self: Any, key: Any) -> bool:
        return key in self.copy()

    def keys(self: Any) -> list[Any]:
        """The keys as of now."""
        return [key for key, _ in self.items()]

    def values(self: Any) -> list[Any]:
        """The counts as of now."""
        return [count for _, count in self.items()]

    def get(self: Any, key: Any, default: Any = None) -> Any:
        """How often a key was counted, or the default."""
        return self.copy().get(key, default)

    def elements(self: Any) -> Iterator[Any]:
        """Each key as often as it was counted."""
        return iter([key for key, count in self.items() for _ in range(count)])

    def subtract(self: Any, counts: Any = (), /, **named: Any) -> None:
        """Subtracts all these counts atomically."""
        import collections

        less = collections.Counter(counts, **named)
        self.update({key: -count for key, count in less.items()})

    def copy(self: Any) -> Any:
        """A `collections.Counter` with the counts as of now."""
        import collections

        return collections.Counter(dict(self.items()))

    def __setitem__(self: Any, key: Any, count: Any) -> None:
        self._call("set", key, count)

    def pop(self: Any, key: Any, default: Any = _MISSING) -> Any:
        """Removes a key; returns its count."""
        found = self._call("pop", key)
        if not found and default is _MISSING:
            raise KeyError(key)
        return found[0] if found else default

    def __delitem__(self: Any, key: Any) -> None:
        self.pop(key, None)

    def __add__(self: Any, other: Any) -> Any:
        return self.copy() + _plain(other)

    def __sub__(self: Any, other: Any) -> Any:
        return self.copy() - _plain(other)

    def __and__(self: Any, other: Any) -> Any:
        return self.copy() & _plain(other)

    def __or__(self: Any, other: Any) -> Any:
        return self.copy() | _plain(other)

    def __pos__(self: Any) -> Any:
        return +self.copy()

    def __neg__(self: Any) -> Any:
        return -self.copy()

    def __iadd__(self: Any, other: Any) -> Any:
        _refuse("+= of a shared counter, which drops counts below 1", "update(other)")

    def __isub__(self: Any, other: Any) -> Any:
        _refuse("-= of a shared counter, which drops counts below 1", "subtract(other)")

    def __iand__(self: Any, other: Any) -> Any:
        _refuse("&= of a shared counter", "`counter.copy() & other`")

    def __ior__(self: Any, other: Any) -> Any:
        _refuse("|= of a shared counter", "`counter.copy() | other`")

    def setdefault(self: Any, key: Any, default: Any = None) -> Any:
        """Refused: see `_refuse`."""
        _refuse("setdefault of a shared counter", "add(key, 0), which returns the count")

    def popitem(self: Any) -> Any:
        """Refused: see `_refuse`."""
        _refuse("popitem of a shared counter", "pop(key)")

    @classmethod
    def fromkeys(cls, iterable: Any, value: Any = None) -> Any:
        """Refused: see `_refuse`."""
        _refuse("fromkeys", "Counter(KEY), and then update")


def _plain(other: Any) -> Any:
    return other.copy() if isinstance(other, OfCounter) else other


class OfSet:
    """Further methods of `set`. The sets that these return are Python's own."""

    def update(self: Any, *others: Iterable[Any]) -> None:
        """Adds all these elements atomically."""
        self._call("update", [value for other in others for value in other])

    def difference_update(self: Any, *others: Iterable[Any]) -> None:
        """Removes all these elements atomically."""
        self._call("difference_update", [value for other in others for value in other])

    def intersection_update(self: Any, *others: Iterable[Any]) -> None:
        """Keeps only the elements that all of the others have, atomically."""
        if others:
            self._call("intersection_update", list(set(others[0]).intersection(*others[1:])))

    def symmetric_difference_update(self: Any, other: Iterable[Any]) -> None:
        """Removes common elements and adds those that only the other has, atomically."""
        self._call("symmetric_difference_update", list(other))

    def __ior__(self: Any, other: Any) -> Any:
        self.update(other)
        return self

    def __iand__(self: Any, other: Any) -> Any:
        self.intersection_update(other)
        return self

    def __isub__(self: Any, other: Any) -> Any:
        self.difference_update(other)
        return self

    def __ixor__(self: Any, other: Any) -> Any:
        self.symmetric_difference_update(other)
        return self

    def __ror__(self: Any, other: Any) -> set[Any]:
        return set(other) | set(self)

    def __rand__(self: Any, other: Any) -> set[Any]:
        return set(other) & set(self)

    def __rsub__(self: Any, other: Any) -> set[Any]:
        return set(other) - set(self)

    def __rxor__(self: Any, other: Any) -> set[Any]:
        return set(other) ^ set(self)

    def __le__(self: Any, other: Any) -> bool:
        return set(self) <= set(other)

    def __lt__(self: Any, other: Any) -> bool:
        return set(self) < set(other)

    def __ge__(self: Any, other: Any) -> bool:
        return set(self) >= set(other)

    def __gt__(self: Any, other: Any) -> bool:
        return set(self) > set(other)

    def copy(self: Any) -> set[Any]:
        """A `set` with the elements as of now."""
        return set(self)

    def union(self: Any, *others: Iterable[Any]) -> set[Any]:
        """The elements of this set and of the others."""
        return set(self).union(*others)

    def intersection(self: Any, *others: Iterable[Any]) -> set[Any]:
        """The elements that all of them have."""
        return set(self).intersection(*others)

    def difference(self: Any, *others: Iterable[Any]) -> set[Any]:
        """The elements that none of the others has."""
        return set(self).difference(*others)

    def symmetric_difference(self: Any, other: Iterable[Any]) -> set[Any]:
        """The elements that exactly one of both has."""
        return set(self).symmetric_difference(other)

    def isdisjoint(self: Any, other: Iterable[Any]) -> bool:
        """Whether they have no element in common."""
        return set(self).isdisjoint(other)

    def issubset(self: Any, other: Iterable[Any]) -> bool:
        """Whether the other has all its elements."""
        return set(self).issubset(other)

    def issuperset(self: Any, other: Iterable[Any]) -> bool:
        """Whether it has all elements of the other."""
        return set(self).issuperset(other)

    def __or__(self: Any, other: Any) -> set[Any]:
        return set(self) | set(other)

    def __and__(self: Any, other: Any) -> set[Any]:
        return set(self) & set(other)

    def __sub__(self: Any, other: Any) -> set[Any]:
        return set(self) - set(other)

    def __xor__(self: Any, other: Any) -> set[Any]:
        return set(self) ^ set(other)


class OfDict:
    """Further methods of `dict`."""

    def copy(self: Any) -> dict[Any, Any]:
        """A `dict` with the current contents."""
        return dict(self.items())

    def __or__(self: Any, other: Any) -> dict[Any, Any]:
        return dict(self.items()) | dict(other)

    def __ror__(self: Any, other: Any) -> dict[Any, Any]:
        return dict(other) | dict(self.items())

    def __ior__(self: Any, other: Any) -> Any:
        self.update(other)
        return self

    def __reversed__(self: Any) -> Iterator[Any]:
        return iter(self.keys()[::-1])

    @classmethod
    def fromkeys(cls, iterable: Any, value: Any = None) -> Any:
        """Refused: see `_refuse`."""
        _refuse("fromkeys", "Dict(KEY), and then update(dict.fromkeys(...))")
