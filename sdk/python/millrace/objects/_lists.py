"""The methods of a shared list: those of `list`. Each is one call at one moment; those that Python computes are repeated if another changes
the list meanwhile."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Optional

#: How often a change that Python computes is tried while others change the list.
_TRIES = 100


def _is_plain(index: slice) -> bool:
    return index.step in (None, 1)


class OfList:
    """The methods of `list`."""

    def __getitem__(self: Any, index: Any) -> Any:
        if not isinstance(index, slice):
            return self._call("get", index)
        return self._call("slice", index.start, index.stop) if _is_plain(index) else list(self)[index]

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            self._call("set", index, value)
        elif _is_plain(index):
            self._call("splice", index.start, index.stop, list(value))
        else:
            values = list(value)
            self._change(lambda items: items.__setitem__(index, values))

    def __delitem__(self: Any, index: Any) -> None:
        if not isinstance(index, slice):
            self.pop(index)
        elif _is_plain(index):
            self._call("splice", index.start, index.stop, [])
        else:
            self._change(lambda items: items.__delitem__(index))

    def _change(self: Any, change: Callable[[list[Any]], object]) -> None:
        """Changes a copy, and replaces the items by it if the list is unchanged."""
        for _ in range(_TRIES):
            digest, found = self._call("snapshot")
            # asyncio runs this once for each call, with the same answers.
            items = list(found)
            change(items)
            if self._call("swap", digest, items):
                return
        raise RuntimeError(f"{self!r} was changed by others in each of {_TRIES} tries; hold a lock around the changes")

    def append(self: Any, value: Any) -> None:
        """Appends an item."""
        self._call("append", value)

    def extend(self: Any, values: Iterable[Any]) -> None:
        """Appends all these items atomically."""
        self._call("extend", list(values))

    def insert(self: Any, index: int, value: Any) -> None:
        """Inserts an item before an index."""
        self._call("insert", index, value)

    def pop(self: Any, index: int = -1) -> Any:
        """Removes and returns the item at an index."""
        return self._call("pop", index)

    def remove(self: Any, value: Any) -> None:
        """Removes the first item that equals this one; raises `ValueError` if there is none."""
        self._call("remove", value)

    def index(self: Any, value: Any, start: int = 0, stop: Optional[int] = None) -> int:
        """The first index of an item; raises `ValueError` if it is not in the list."""
        found = self._call("index", value, start, stop)
        if found is None:
            raise ValueError(f"{value!r} is not in list")
        return int(found)

    def count(self: Any, value: Any) -> int:
        """How often an item is in the list."""
        return int(self._call("count", value))

    def reverse(self: Any) -> None:
        """Reverses the order of the items."""
        self._call("reverse")

    def sort(self: Any, *, key: Optional[Callable[[Any], Any]] = None, reverse: bool = False) -> None:
        """Sorts the items in this program, and writes them unless another program has changed the list; then it sorts again."""
        self._change(lambda items: items.sort(key=key, reverse=reverse))

    def copy(self: Any) -> list[Any]:
        """A `list` with the items as of now."""
        return list(self)

    def clear(self: Any) -> None:
        """Removes all items."""
        self._call("clear")

    def __len__(self: Any) -> int:
        return int(self._call("len"))

    def __iter__(self: Any) -> Iterator[Any]:
        return iter(self._call("items"))

    def __reversed__(self: Any) -> Iterator[Any]:
        return iter(self._call("items")[::-1])

    def __contains__(self: Any, value: object) -> bool:
        return self._call("index", value) is not None

    def __add__(self: Any, other: Any) -> list[Any]:
        return list(self) + list(other)

    def __radd__(self: Any, other: Any) -> list[Any]:
        return list(other) + list(self)

    def __mul__(self: Any, n: int) -> list[Any]:
        return list(self) * n

    __rmul__ = __mul__

    def __iadd__(self: Any, values: Any) -> Any:
        self.extend(values)
        return self

    def __imul__(self: Any, n: int) -> Any:
        self._change(lambda items: items.__imul__(n))
        return self
