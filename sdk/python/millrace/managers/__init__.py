"""The names of `multiprocessing.managers`: a `SyncManager` whose objects are on a Millrace host instead of in a server process.

    from millrace.managers import SyncManager

    with SyncManager() as manager:
        counts = manager.dict()

A manager returns references to objects. They can be passed as arguments of tasks. The objects are deleted with the manager. Each method is
atomic.
"""

from __future__ import annotations

import operator as _operator
import struct as _struct

from millrace import objects as _objects
from millrace import queue as _queue
from millrace import threading as _threads
from millrace.objects import _classes, _spaces
from millrace.threading import _runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Any, NoReturn, Optional

    from millrace.executor import Connection
    from millrace.multiprocessing import Pool

__all__ = ["Array", "BaseManager", "DictProxy", "ListProxy", "Namespace", "SyncManager", "Value"]

_MISSING = object()


class DictProxy(_objects.Dict):
    """A `dict` on the host. Keys are numbers, text, bytes, booleans, None and tuples of these."""


class ListProxy(_objects.List):
    """A `list` on the host."""


class Namespace:
    """A `multiprocessing.managers.Namespace`: shared attributes."""

    def __init__(self, /, **kwds: Any) -> None:
        _runtime.ready()
        self.__dict__["_fields"] = DictProxy(_runtime.new_key("namespace"))
        if kwds:
            self._fields.update(kwds)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = self._fields.get(name, _MISSING)
        if found is _MISSING:
            raise AttributeError(name)
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            self.__dict__[name] = value
        else:
            self._fields[name] = value

    def __delattr__(self, name: str) -> None:
        if self._fields.pop(name, _MISSING) is _MISSING:
            raise AttributeError(name)

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in sorted(self._fields.items()))
        return f"Namespace({named})"


#: Type codes of `ctypes` and `array`, and what their values are in Python.
_CODES = {**dict.fromkeys("bBhHiIlLqQ", int), **dict.fromkeys("fd", float), "c": bytes, "u": str}
#: How `struct` writes the numbers of an array, the same on every machine.
_FORMS = {**{code: code for code in "bBhHiIqQfd"}, "l": "q", "L": "Q"}


def _of_code(typecode: Any, value: Any) -> Any:
    """A value converted to its type code."""
    if not isinstance(typecode, str):
        # A type of ctypes.
        typecode = getattr(typecode, "_type_", None)
    kind = _CODES.get(typecode) if isinstance(typecode, str) else None
    if kind is None:
        raise NotImplementedError(f"the type code {typecode!r} is not supported; the codes are {''.join(_CODES)}")
    if kind is float and isinstance(value, int):
        return float(value)
    if kind is int and hasattr(value, "__index__"):
        # Numbers of NumPy, too.
        return _operator.index(value)
    if not isinstance(value, kind):
        raise TypeError(f"a value of type code {typecode!r} is {kind.__name__}, not {type(value).__name__}")
    return value


class Value:
    """A `multiprocessing.managers.Value`. `value += 1` is two calls: use a lock around it, or use `millrace.objects.AtomicLong`."""

    def __init__(self, typecode: Any, value: Any, lock: bool = True) -> None:
        _runtime.ready()
        self._typecode = typecode
        self._held = _objects.AtomicBytes(_runtime.new_key("value"), self._check(value))

    def _check(self, value: Any) -> Any:
        # As in the standard library, a manager's value takes anything.
        return value

    def get(self) -> Any:
        """The value."""
        return self._held.get()

    def set(self, value: Any) -> None:
        """Sets the value."""
        self._held.set(self._check(value))

    value = property(get, set)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._typecode!r}, {self.get()!r})"


class Array:
    """A `multiprocessing.managers.Array`: a list of numbers whose length does not change. A slice is read or written in one call."""

    def __init__(self, typecode: Any, sequence: Any, lock: bool = True) -> None:
        _runtime.ready()
        self._typecode = typecode
        values = [_of_code(typecode, value) for value in sequence]
        code = typecode if isinstance(typecode, str) else getattr(typecode, "_type_", "")
        self._length, self._form = len(values), _FORMS.get(code)
        self._items: Any
        if self._form is None:
            self._items = ListProxy(_runtime.new_key("array"))
            self._items.extend(values)
        else:
            self._items = _objects.Blob(_runtime.new_key("array"), self._pack(values))

    def _pack(self, values: Any) -> bytes:
        try:
            return _struct.pack(f"<{len(values)}{self._form}", *values)
        except _struct.error as error:
            raise OverflowError(f"a number is out of range for type code {self._typecode!r}: {error}") from None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: Any) -> Any:
        if self._form is None:
            return self._items[key]
        size = _struct.calcsize(f"<{self._form}")
        if isinstance(key, slice):
            begin, end, step = key.indices(self._length)
            if step != 1:
                return self[:][key]
            count = max(end - begin, 0)
        else:
            begin, count = self._place(key), 1
        found = list(_struct.unpack(f"<{count}{self._form}", self._items.read(begin * size, count * size) if count else b""))
        return found if isinstance(key, slice) else found[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        places = range(self._length)[key] if isinstance(key, slice) else range(self._place(key), self._place(key) + 1)
        values = [_of_code(self._typecode, one) for one in (value if isinstance(key, slice) else [value])]
        if len(values) != len(places):
            raise ValueError("Can only assign sequence of same size")
        if self._form is not None and places.step == 1:
            if values:
                self._items.write(places[0] * _struct.calcsize(f"<{self._form}"), self._pack(values))
            return
        for place, one in zip(places, values):
            if self._form is None:
                self._items[place] = one
            else:
                self[place] = one

    def _place(self, index: int) -> int:
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError("invalid index")
        return place

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._typecode!r}, {list(self)!r})"


class BaseManager:
    """A connection under the names of `multiprocessing.managers.BaseManager`.

    `address` is a place as in `millrace.connect`: the directory or the address of a namespace that a host serves, or None for the
    program's current host. The address determines the rights, so `authkey` must be None.
    """

    def __init__(
        self,
        address: Any = None,
        authkey: Optional[bytes] = None,
        serializer: str = "pickle",
        ctx: Any = None,
        *,
        shutdown_timeout: float = 1.0,
    ) -> None:
        if authkey is not None:
            raise NotImplementedError("authkey: a host admits callers by capabilities; put one into the address")
        if serializer != "pickle":
            raise NotImplementedError(f"serializer={serializer!r}: values travel as MessagePack, or pickled")
        self._place = address
        self._connection: Optional[Connection] = None
        self._own = False

    @property
    def address(self) -> Any:
        """The address of the host, once the manager has started."""
        return self._place if self._connection is None else self._connection.address

    def start(self, initializer: Optional[Callable[..., object]] = None, initargs: Any = ()) -> None:
        """Connects to the host. There is no server process that an initializer could run in."""
        if initializer is not None:
            raise NotImplementedError("initializer: objects live in the memory of the host, which runs no code of the program")
        self.connect()

    def connect(self) -> None:
        """Connects to the host."""
        if self._connection is not None:
            raise RuntimeError("the manager has already started")
        if self._place is None:
            self._connection = _runtime.connection()
        else:
            import millrace

            self._connection, self._own = millrace.connect(self._place), True

    def shutdown(self) -> None:
        """Closes the manager's connection, if it opened one; its objects end with it."""
        connection, self._connection = self._connection, None
        if connection is not None and self._own:
            connection.close()

    def join(self, timeout: Optional[float] = None) -> None:
        """Returns at once: there is no server process to wait for."""

    def get_server(self) -> NoReturn:
        """Refused: the host is the server."""
        raise NotImplementedError("get_server: the server is a host, which `millrace serve` starts")

    @classmethod
    def register(
        cls,
        typeid: str,
        callable: Any = None,
        proxytype: Any = None,
        exposed: Any = None,
        method_to_typeid: Any = None,
        create_method: bool = True,
    ) -> None:
        """Adds a method with this name to managers, which creates objects of a class.

        Methods run on workers of the host, one at a time for each object, and the host keeps the fields: see `millrace.shared`. `exposed` names
        the methods that can be called, by default all public ones. A function that returns an object is refused.
        """
        if not isinstance(callable, type):
            raise NotImplementedError(f"register({typeid!r}): a class is needed; a function of this program cannot create objects on the host")
        if proxytype is not None or method_to_typeid is not None or not create_method:
            raise NotImplementedError(f"register({typeid!r}): references have the methods of the class; there are no other proxies")
        kind: Any = callable
        if "__millrace_shared__" not in vars(kind):
            # As in the standard library, a method may take as long as it wants.
            kind = _classes.shared(timeout=_classes._TIMEOUT_MAX_S)(kind)
        names = set(_classes.methods_of(kind) if exposed is None else exposed)

        def make(self: BaseManager, /, *args: Any, **kwds: Any) -> Any:
            if self._connection is None:
                raise RuntimeError("the manager has not been started")
            shared = self._connection.shared(kind)
            shared._methods = {name: about for name, about in shared._methods.items() if name in names}
            made = shared(_runtime.new_key(typeid), *args, **kwds)
            # The constructor runs now, as in the standard library.
            made._touch()
            return made

        make.__name__ = make.__qualname__ = typeid
        make.__doc__ = kind.__doc__
        setattr(cls, typeid, make)

    def __enter__(self) -> BaseManager:
        if self._connection is None:
            self.start()
        return self

    def __exit__(self, exc_type: object, exc_val: object, exc_tb: object) -> None:
        self.shutdown()

    def _on(self, make: Callable[..., Any], *args: Any, **kwds: Any) -> Any:
        """Makes an object on this manager's host, whichever connection is the newest."""
        if self._connection is None:
            raise RuntimeError("the manager has not been started")
        before = _spaces._default
        _spaces.use(self._connection.space)
        try:
            made = make(*args, **kwds)
        finally:
            _spaces.use(before)
        for held in (made, *vars(made).values()):
            if isinstance(held, _objects.Object):
                held._space = self._connection.space
        return made


class SyncManager(BaseManager):
    """A `multiprocessing.managers.SyncManager`."""

    def dict(self, *args: Any, **kwds: Any) -> DictProxy:
        """A shared `dict`."""
        made: DictProxy = self._on(DictProxy, _runtime.new_key("dict"))
        initial: Any = dict(*args, **kwds)
        if initial:
            made.update(initial)
        return made

    def list(self, *args: Any, **kwds: Any) -> ListProxy:
        """A shared `list`."""
        made: ListProxy = self._on(ListProxy, _runtime.new_key("list"))
        initial: Any = list(*args, **kwds)
        if initial:
            made.extend(initial)
        return made

    def Queue(self, *args: Any, **kwds: Any) -> _queue.Queue:
        """A shared `queue.Queue`."""
        made: _queue.Queue = self._on(_queue.Queue, *args, **kwds)
        return made

    JoinableQueue = Queue

    def Event(self, *args: Any, **kwds: Any) -> _threads.Event:
        """A shared `threading.Event`."""
        made: _threads.Event = self._on(_threads.Event, *args, **kwds)
        return made

    def Lock(self, *args: Any, **kwds: Any) -> _threads.Lock:
        """A shared `threading.Lock`."""
        made: _threads.Lock = self._on(_threads.Lock, *args, **kwds)
        return made

    def RLock(self, *args: Any, **kwds: Any) -> _threads.RLock:
        """A shared `threading.RLock`."""
        made: _threads.RLock = self._on(_threads.RLock, *args, **kwds)
        return made

    def Semaphore(self, *args: Any, **kwds: Any) -> _threads.Semaphore:
        """A shared `threading.Semaphore`."""
        made: _threads.Semaphore = self._on(_threads.Semaphore, *args, **kwds)
        return made

    def BoundedSemaphore(self, *args: Any, **kwds: Any) -> _threads.BoundedSemaphore:
        """A shared `threading.BoundedSemaphore`."""
        made: _threads.BoundedSemaphore = self._on(_threads.BoundedSemaphore, *args, **kwds)
        return made

    def Condition(self, *args: Any, **kwds: Any) -> _threads.Condition:
        """A shared `threading.Condition`."""
        made: _threads.Condition = self._on(_threads.Condition, *args, **kwds)
        self._on(lambda: made._lock)
        return made

    def Barrier(self, *args: Any, **kwds: Any) -> _threads.Barrier:
        """A shared `threading.Barrier`."""
        made: _threads.Barrier = self._on(_threads.Barrier, *args, **kwds)
        return made

    def Namespace(self, *args: Any, **kwds: Any) -> Namespace:
        """Shared attributes."""
        made: Namespace = self._on(Namespace, *args, **kwds)
        return made

    def Value(self, *args: Any, **kwds: Any) -> Value:
        """A value of any type."""
        made: Value = self._on(Value, *args, **kwds)
        return made

    def Array(self, *args: Any, **kwds: Any) -> Array:
        """Numbers in a list whose length does not change."""
        made: Array = self._on(Array, *args, **kwds)
        return made

    def Pool(self, *args: Any, **kwds: Any) -> Pool:
        """A pool of workers on the manager's host."""
        from millrace.multiprocessing import Pool

        if self._connection is None:
            raise RuntimeError("the manager has not been started")
        return Pool(*args, **kwds, _connection=self._connection)

    def __enter__(self) -> SyncManager:
        super().__enter__()
        return self
