"""Shared objects: state that programs and tasks on many machines share, with the names of Python's own types.

    with millrace.connect("farm") as farm:
        hits = farm.AtomicInt("hits")
        hits.add(5)
        with farm.Lock("door") as token:
            ...

An object has a key; all programs that use the key use the same object. References can be passed as arguments of tasks. Each call is
atomic, and takes effect once, even if a connection is lost. Objects are in the memory of their host, and are deleted when the last
program of the application that created them ends.
"""

from __future__ import annotations

import pickle
import queue
import threading

from millrace.objects import _futures, _lists, _spaces, _values, _wholes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any, Optional, TypeVar

    O = TypeVar("O", bound="Object")

__all__ = [
    "AtomicBool",
    "AtomicBytes",
    "AtomicInt",
    "AtomicLong",
    "Barrier",
    "Blob",
    "Condition",
    "CountDownLatch",
    "Counter",
    "Dict",
    "Event",
    "Future",
    "List",
    "Lock",
    "Log",
    "Matrix",
    "Object",
    "Queue",
    "Semaphore",
    "Set",
    "SortedDict",
]

_MISSING = object()


class Object:
    """A shared object, by its type and key."""

    _space: Optional[_spaces.Space]
    #: The name of the type at the host. Classes that only add methods share that of their base.
    _type, _keys = "Object", 0
    #: The additional flags of every call.
    _flags = 0
    #: The name and the token that every call carries.
    _fence: Optional[tuple[str, int]] = None

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if cls.__module__ == __name__:
            cls._type, cls._keys = cls.__name__, _values.KEYED.get(cls.__name__, 0)

    def __init__(self, key: str, *arguments: object, space: Optional[_spaces.Space] = None) -> None:
        if not isinstance(key, str):
            raise TypeError(f"the key of a shared object must be text, not {type(key).__name__!r}")
        self.key = key
        self._new = _values.arguments("the constructor", key, arguments) if arguments else b""
        self._space = space
        self._incarnation = 0

    def _call(self, method: str, *arguments: object, timeout: Optional[float] = None, flags: int = 0) -> Any:
        space = self._space or _spaces.current()
        if self._flags:
            space.prove(self._touch, self._flags)
        if self._keys and arguments:
            _values.check_keys(method, arguments[0], self._keys)
        target = (self._type, self.key, method)
        encoded = _values.arguments(method, self.key, arguments)
        self._incarnation, value = space.call(
            target, encoded, self._new, self._incarnation, flags=self._flags | flags, timeout=timeout, fence=self._fence
        )
        return value

    def with_options(self: O, *, fence: Optional[tuple[str, int]] = None) -> O:
        """The same object, whose calls carry the name and the token of a lock: `hits.with_options(fence=("tick", token)).add()`.

        If the object was already called with this name and a higher token, a call raises `millrace.Conflict` (MR7127).
        """
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._fence = fence
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # A reference means this very object, and never another one that has its key later.
        if not self._incarnation:
            self._touch()
        return _reference, (type(self), self.key, self._new, self._incarnation, self._flags, self._fence)

    def _touch(self) -> None:
        """Creates it if it does not exist."""
        self._call(_values.TOUCH[self._type])

    def _delete(self) -> bool:
        return bool(self._call("delete"))

    def __repr__(self) -> str:
        return f"<millrace.{type(self).__name__} {self.key!r}>"


def _reference(
    kind: type[O], key: str, new: bytes, incarnation: int, flags: int = 0, fence: Optional[tuple[str, int]] = None
) -> O:
    found = kind.__new__(kind)
    found._fence = fence
    found.key, found._new, found._space, found._incarnation, found._flags = key, new, None, incarnation, flags
    return found if _spaces.wrap is None else _spaces.wrap(found)


def _given(*arguments: object) -> tuple[object, ...]:
    """The arguments of a constructor, without omitted ones at the end: an existing object must match the others."""
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    return arguments


def _wait(blocking: bool, timeout: Optional[float]) -> Optional[float]:
    """The timeout in the convention of `threading`: -1 or None means no limit."""
    if not blocking:
        return 0.0
    return None if timeout is None or timeout < 0 else timeout


class _Atomic(Object):
    def get(self) -> Any:
        """The value."""
        return self._call("get")

    def set(self, value: Any) -> None:
        """Sets the value."""
        self._call("set", value)

    def get_and_set(self, value: Any) -> Any:
        """Sets the value; returns the previous one."""
        return self._call("get_and_set", value)

    def compare_and_set(self, expected: Any, value: Any) -> bool:
        """Sets a new value if the current value is the expected one; returns whether it was."""
        return bool(self._call("compare_and_set", expected, value))

    value = property(get, set, doc="The value.")


class AtomicInt(_Atomic):
    """A 64-bit integer, 0 at first unless a value is given. A result out of range raises `OverflowError`."""

    def __init__(self, key: str, value: Optional[int] = None, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, *_given(value), space=space)

    def add(self, delta: int = 1) -> int:
        """Adds to the value; returns the sum."""
        return int(self._call("add_and_get", delta))

    add_and_get = increment = add

    def get_and_add(self, delta: int = 1) -> int:
        """Adds to the value; returns the previous one."""
        return int(self._call("get_and_add", delta))

    def decrement(self, delta: int = 1) -> int:
        """Subtracts from the value; returns the difference."""
        return self.add(-delta)

    def multiply(self, factor: int) -> int:
        """Multiplies the value; returns the product."""
        return int(self._call("multiply_and_get", factor))

    def __int__(self) -> int:
        return int(self.get())

    def __iadd__(self, delta: int) -> AtomicInt:
        self.add(delta)
        return self

    def __isub__(self, delta: int) -> AtomicInt:
        self.decrement(delta)
        return self


class AtomicLong(AtomicInt):
    """The same as `AtomicInt`."""


class AtomicBool(_Atomic):
    """True or False, at first False unless a value is given."""

    def __init__(self, key: str, value: Optional[bool] = None, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, *_given(None if value is None else bool(value)), space=space)


class AtomicBytes(_Atomic):
    """A value of type bytes, initially empty."""

    def __init__(self, key: str, value: Any = _MISSING, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, *([] if value is _MISSING else [value]), space=space)


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2]))


def _flat(mapping: Any, named: Mapping[str, Any]) -> list[Any]:
    items = dict(mapping, **named).items()
    return [part for item in items for part in item]


class Dict(_wholes.OfDict, Object):
    """A `dict`. Keys are numbers, text, bytes, booleans, None and tuples of these; as in Python, 1, 1.0 and True are one key."""

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)

    def __getitem__(self, key: Any) -> Any:
        found = self._call("get", key)
        if not found:
            raise KeyError(key)
        return found[0]

    def get(self, key: Any, default: Any = None) -> Any:
        """The value under a key, or the default."""
        found = self._call("get", key)
        return found[0] if found else default

    def __setitem__(self, key: Any, value: Any) -> None:
        self._call("set", key, value)

    def __delitem__(self, key: Any) -> None:
        self.pop(key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Sets the value of a key to the default if it has none; returns the value."""
        return self._call("setdefault", key, default)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Removes a key; returns its value."""
        found = self._call("pop", key)
        if not found and default is _MISSING:
            raise KeyError(key)
        return found[0] if found else default

    def popitem(self) -> tuple[Any, Any]:
        """Removes the key that was added last; returns it and its value."""
        key, value = self._call("popitem")
        return key, value

    def add(self, key: Any, delta: Any = 1) -> Any:
        """Adds to the number under a key, 0 if there is none; returns the sum."""
        return self._call("add", key, delta)

    def compare_and_set(self, key: Any, expected: Any, value: Any) -> bool:
        """Sets the value of a key if the current value is the expected one; returns whether it was."""
        return bool(self._call("compare_and_set", key, [expected], value))

    def put_if_absent(self, key: Any, value: Any) -> bool:
        """Sets the value of a key if it has none; returns whether it had none."""
        return bool(self._call("compare_and_set", key, [], value))

    def compare_and_pop(self, key: Any, expected: Any) -> bool:
        """Removes a key if its value is the expected one; returns whether it was."""
        return bool(self._call("compare_and_pop", key, expected))

    def update(self, mapping: Any = (), /, **named: Any) -> None:
        """Sets all these values atomically."""
        self._call("update", _flat(mapping, named))

    def __contains__(self, key: Any) -> bool:
        return bool(self._call("contains", key))

    def __len__(self) -> int:
        return int(self._call("len"))

    def keys(self) -> list[Any]:
        """The current keys."""
        return list(self._call("keys"))

    def values(self) -> list[Any]:
        """The current values."""
        return list(self._call("values"))

    def items(self) -> list[tuple[Any, Any]]:
        """The current keys and values."""
        return _pairs(self._call("items"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def clear(self) -> None:
        """Removes everything."""
        self._call("clear")


class SortedDict(Dict):
    """A `Dict` in the order of its keys: numbers, then text, then bytes."""

    def range(self, start: Any = None, stop: Any = None) -> list[tuple[Any, Any]]:
        """Keys from `start` up to, but not including, `stop`, with their values."""
        return _pairs(self._call("range", start, stop))

    def first(self) -> Optional[tuple[Any, Any]]:
        """The lowest key and its value."""
        return next(iter(_pairs(self._call("first"))), None)

    def last(self) -> Optional[tuple[Any, Any]]:
        """The highest key and its value."""
        return next(iter(_pairs(self._call("last"))), None)


class Counter(_wholes.OfCounter, Object):
    """A `collections.Counter`: how often each key was counted."""

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)

    def __getitem__(self, key: Any) -> Any:
        return self._call("get", key)

    def add(self, key: Any, count: Any = 1) -> Any:
        """Adds to the count of a key; returns the count."""
        return self._call("add", key, count)

    def update(self, counts: Any = (), /, **named: Any) -> None:
        """Adds all these counts atomically: a mapping of counts, or an iterable of keys."""
        if not hasattr(counts, "keys"):
            found: dict[Any, int] = {}
            for key in counts:
                found[key] = found.get(key, 0) + 1
            counts = found
        self._call("update", _flat(counts, named))

    def most_common(self, n: Optional[int] = None) -> list[tuple[Any, Any]]:
        """The keys with the highest counts, with these counts."""
        return _pairs(self._call("most_common", n))

    def total(self) -> Any:
        """The sum of all counts."""
        return self._call("total")

    def items(self) -> list[tuple[Any, Any]]:
        """The current keys and counts."""
        return _pairs(self._call("items"))

    def __len__(self) -> int:
        return int(self._call("len"))

    def clear(self) -> None:
        """Removes all counts."""
        self._call("clear")


class Set(_wholes.OfSet, Object):
    """A `set`. Its elements may be anything that can be a key of a `Dict`."""

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)

    def add(self, value: Any) -> bool:
        """Adds an element; returns whether it was new."""
        return bool(self._call("add", value))

    def discard(self, value: Any) -> bool:
        """Removes an element; returns whether it was in the set."""
        return bool(self._call("discard", value))

    def remove(self, value: Any) -> None:
        """Removes an element; raises `KeyError` if it is not in the set."""
        if not self.discard(value):
            raise KeyError(value)

    def pop(self) -> Any:
        """Removes and returns some element."""
        return self._call("pop")

    def __contains__(self, value: Any) -> bool:
        return bool(self._call("contains", value))

    def __len__(self) -> int:
        return int(self._call("len"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._call("items"))

    def clear(self) -> None:
        """Removes everything."""
        self._call("clear")


class List(_lists.OfList, Object):
    """A `list`."""

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)


class Log(Object):
    """A list that only grows, and whose length a program can wait for."""

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)

    def append(self, value: Any) -> int:
        """Appends an item; returns its index, from 0."""
        return int(self._call("append", value))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._call("slice", index.start, index.stop)[:: index.step]
        return self._call("get", index)

    def __len__(self) -> int:
        return int(self._call("len"))

    def wait_for(self, count: int, timeout: Optional[float] = None) -> bool:
        """Waits until there are this many items; returns whether that happened in time."""
        return bool(self._call("wait_for", count, timeout=timeout))


class Queue(Object):
    """A `queue.Queue`. Its size is unlimited unless `maxsize` is given when the queue is created."""

    def __init__(self, key: str, maxsize: Optional[int] = None, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, *_given(maxsize), space=space)

    def put(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an item, as soon as there is space."""
        self._call("put", item, timeout=_wait(block, timeout))

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the oldest item, as soon as there is one."""
        return self._call("get", timeout=_wait(block, timeout))

    def put_nowait(self, item: Any) -> None:
        """Adds an item, or raises `queue.Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Takes the oldest item, or raises `queue.Empty`."""
        return self.get(block=False)

    def task_done(self) -> None:
        """Marks an item that was taken as done."""
        self._call("task_done")

    def join(self) -> None:
        """Waits until every item that was added is done."""
        self._call("join")

    def peek(self) -> Any:
        """The oldest item, which stays in the queue; raises `queue.Empty` if there is none."""
        return self._call("peek")

    def items(self) -> list[Any]:
        """All items as of now, the oldest first; they stay in the queue."""
        return list(self._call("items"))

    def qsize(self) -> int:
        """How many items the queue has."""
        return int(self._call("qsize"))

    def empty(self) -> bool:
        """Whether the queue has no items."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether the queue is full."""
        most = int(self._call("maxsize"))
        return 0 < most <= self.qsize()

    Empty, Full = queue.Empty, queue.Full


class Matrix(Object):
    """Numbers of 64 bits in rows and columns, all 0 at first. Whole rows are passed as little-endian bytes, or with NumPy as arrays."""

    def __init__(self, key: str, rows: int, columns: int, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, rows, columns, space=space)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self._call("shape")
        return rows, columns

    def __getitem__(self, at: tuple[int, int]) -> float:
        return float(self._call("get", *at))

    def __setitem__(self, at: tuple[int, int], value: float) -> None:
        self._call("set", *at, float(value))

    def add(self, row: int, column: int, value: float) -> float:
        """Adds to a number; returns the sum."""
        return float(self._call("add", row, column, float(value)))

    def row(self, row: int) -> bytes:
        """The numbers of a row."""
        return bytes(self._call("row", row))

    def set_row(self, row: int, values: Any) -> None:
        """Sets a row."""
        self._call("set_row", row, _doubles(values))

    def add_row(self, row: int, values: Any) -> None:
        """Adds to each number of a row, atomically."""
        self._call("add_row", row, _doubles(values))

    def tobytes(self) -> bytes:
        """All numbers, row by row, as of one moment."""
        return bytes(self._call("all"))

    def set_all(self, values: Any) -> None:
        """Sets all numbers."""
        self._call("set_all", _doubles(values))

    def add_all(self, values: Any) -> None:
        """Adds to each number, atomically."""
        self._call("add_all", _doubles(values))

    def to_numpy(self) -> Any:
        """All numbers as a NumPy array."""
        numpy = _spaces.import_of("numpy")
        return numpy.frombuffer(self.tobytes(), "<f8").reshape(self.shape).copy()


def _doubles(values: Any) -> bytes:
    if isinstance(values, (bytes, bytearray, memoryview)):
        return bytes(values)
    if hasattr(values, "astype"):
        return bytes(values.astype("<f8").tobytes())
    import struct

    flat = list(values)
    return struct.pack(f"<{len(flat)}d", *flat)


class Blob(Object):
    """Bytes that are read and written in parts."""

    def __init__(self, key: str, data: Optional[bytes] = None, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, *_given(data), space=space)

    def read(self, offset: int = 0, size: int = -1) -> bytes:
        """Returns this many bytes from an offset on; -1 for all."""
        return bytes(self._call("read", offset, size))

    def write(self, offset: int, data: bytes) -> None:
        """Writes bytes at an offset; a gap after the previous end is filled with zeros."""
        self._call("write", offset, bytes(data))

    def append(self, data: bytes) -> int:
        """Appends bytes; returns their offset."""
        return int(self._call("append", bytes(data)))

    def truncate(self, size: int) -> None:
        """Truncates the blob to this many bytes."""
        self._call("truncate", size)

    def replace(self, data: bytes) -> None:
        """Replaces all bytes."""
        self._call("replace", bytes(data))

    def __len__(self) -> int:
        return int(self._call("len"))


class Lock(Object):
    """A `threading.Lock` for programs and tasks. If the owner ends or loses its connection, it loses the lock when its lease expires.

    `acquire` returns a number, the token, which is higher each time. A resource that gets the token with each request can refuse the
    requests of an earlier owner, which may not know yet that it has lost the lock.
    """

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> Any:
        """Waits for the lock; returns the token, or False."""
        return self._call("acquire", timeout=_wait(blocking, timeout))

    def release(self) -> None:
        """Releases the lock; the caller that has waited longest gets it."""
        self._call("release")

    def locked(self) -> bool:
        """Whether the lock is taken."""
        return bool(self._call("locked"))

    def __enter__(self) -> Any:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition(Lock):
    """A `threading.Condition` with its own lock."""

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Releases the lock until the condition is notified, then acquires it again; returns whether it was notified in time."""
        return bool(self._call("wait", timeout=timeout))

    def wait_for(self, predicate: Callable[[], Any], timeout: Optional[float] = None) -> Any:
        """Waits until the predicate is true, and returns its last value."""
        return _spaces.wait_for(self.wait, predicate, timeout)

    def notify(self, n: int = 1) -> None:
        """Wakes this many waiters."""
        self._call("notify", n)

    def notify_all(self) -> None:
        """Wakes all waiters."""
        self.notify((1 << 62) - 1)


class Semaphore(Object):
    """A `threading.Semaphore`, with one permit unless `value` is given; with `bound`, a bounded one.

    If an owner of permits is killed or loses its connection, they are released when its lease expires. If it ends well, they stay acquired.
    """

    def __init__(
        self, key: str, value: Optional[int] = None, *, bound: Optional[int] = None, space: Optional[_spaces.Space] = None
    ) -> None:
        super().__init__(key, *_given(value, bound), space=space)

    def acquire(self, blocking: bool = True, timeout: Optional[float] = None, *, n: int = 1) -> bool:
        """Waits for a permit, or for `n` permits at once; returns whether it acquired them. Calls are served in their order."""
        return bool(self._call("acquire", *(() if n == 1 else (n,)), timeout=_wait(blocking, timeout)))

    def release(self, n: int = 1) -> None:
        """Releases permits."""
        self._call("release", n)

    @property
    def value(self) -> int:
        """How many permits are free."""
        return int(self._call("value"))

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Event(Object):
    """A `threading.Event`."""

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)

    def set(self) -> None:
        """Sets the event: all waiters continue."""
        self._call("set")

    def clear(self) -> None:
        """Resets the event."""
        self._call("clear")

    def is_set(self) -> bool:
        """Whether the event is set."""
        return bool(self._call("is_set"))

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the event is set; returns whether it was set in time."""
        return bool(self._call("wait", timeout=timeout))


class Barrier(Object):
    """A `threading.Barrier`. It breaks when a waiter gives up, ends or loses its connection."""

    def __init__(self, key: str, parties: int, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, parties, space=space)

    def wait(self, timeout: Optional[float] = None, action: Optional[Callable[[], object]] = None) -> int:
        """Waits for all other parties; returns a number from 0 that is different for each of them.

        The last one to arrive runs the action before any of them continues. If it raises or its program ends, the barrier breaks.
        """
        index = int(self._call("wait", *([] if action is None else [True]), timeout=timeout))
        if index >= 0 or action is None:
            return index
        try:
            action()
        except BaseException:
            self.abort()
            raise
        return int(self._call("acted"))

    def reset(self) -> None:
        """Resets the barrier; its waiters get `BrokenBarrierError`."""
        self._call("reset")

    def abort(self) -> None:
        """Breaks the barrier."""
        self._call("abort")

    @property
    def parties(self) -> int:
        """The number of parties."""
        return int(self._call("parties"))

    @property
    def n_waiting(self) -> int:
        """How many parties wait."""
        return int(self._call("n_waiting"))

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken."""
        return bool(self._call("broken"))

    BrokenBarrierError = threading.BrokenBarrierError


class CountDownLatch(Object):
    """A counter that programs count down, and of which they can wait until it is 0."""

    def __init__(self, key: str, count: int, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, count, space=space)

    def count_down(self, n: int = 1) -> int:
        """Counts down by one; returns the remaining count."""
        return int(self._call("count_down", n))

    def get_count(self) -> int:
        """The remaining count."""
        return int(self._call("get_count"))

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the count is 0; returns whether that happened in time."""
        return bool(self._call("wait", timeout=timeout))


class Future(_futures.OfFuture, Object):
    """A result that is set once and that any program can wait for."""

    def __init__(self, key: str, *, space: Optional[_spaces.Space] = None) -> None:
        super().__init__(key, space=space)

    def set_result(self, result: Any) -> None:
        """Sets the result."""
        self._call("set_result", result)

    def set_exception(self, exception: BaseException) -> None:
        """Sets an exception as the outcome."""
        self._call("set_exception", _values.pickled(exception))

    def cancel(self) -> bool:
        """Cancels the future; returns whether it is cancelled."""
        return bool(self._call("cancel"))

    def done(self) -> bool:
        """Whether the future has an outcome or is cancelled."""
        return bool(self._call("done") != 0)

    def cancelled(self) -> bool:
        """Whether the future is cancelled."""
        return bool(self._call("done") == 3)

    def result(self, timeout: Optional[float] = None) -> Any:
        """Waits for the outcome: returns the result, or raises the exception."""
        from concurrent.futures import CancelledError

        status, value = self._call("result", timeout=timeout)
        if status == 3:
            raise CancelledError
        if status == 2:
            raise pickle.loads(value)
        return value
