"""Methods that read an object as a whole, at one moment, and go on with a copy: those of the classes of Python that the host does not have."""

from __future__ import annotations

import pickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Optional


class OfCounter:
    """What `collections.Counter` has besides."""

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
        """Counts all of these down, at one moment."""
        import collections

        less = collections.Counter(counts, **named)
        self.update({key: -count for key, count in less.items()})

    def copy(self: Any) -> Any:
        """A `collections.Counter` with the counts as of now."""
        import collections

        return collections.Counter(dict(self.items()))


class OfSet:
    """What `set` has besides. The sets that these return are Python's own."""

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
        """The elements that one of both has."""
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
    """What `dict` has besides."""

    def copy(self: Any) -> dict[Any, Any]:
        """A `dict` with what is in it as of now."""
        return dict(self.items())


class OfFuture:
    """What `concurrent.futures.Future` has besides."""

    def exception(self: Any, timeout: Optional[float] = None) -> Optional[BaseException]:
        """Waits for it; the exception, or None if it has a result."""
        from concurrent.futures import CancelledError

        status, value = self._call("result", timeout=timeout)
        if status == 3:
            raise CancelledError
        return pickle.loads(value) if status == 2 else None
