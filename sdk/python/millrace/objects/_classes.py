"""User classes whose objects are shared: their decorators, and references to their objects.

    @millrace.shared
    class Gate:
        def __init__(self, size):
            self.size, self.inside = size, 0

        def enter(self):
            self.inside += 1
            return self.inside

    Gates = farm.shared(Gate)
    Gates("front", 3).enter()

Methods run in workers of a pool, one at a time for each object, and the host keeps the fields. `Gate` itself stays an ordinary class.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from typing import overload

from millrace.objects import Object, _raised, _spaces, _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional, TypeVar, Union

    C = TypeVar("C", bound=type)
    F = TypeVar("F", bound=Callable[..., Any])
    S = TypeVar("S", bound="Shared")
    #: By name: whether it only reads, for how many milliseconds it may run, for how many seconds a call may wait, and whether it is reentrant.
    Methods = dict[str, tuple[bool, int, Optional[float], bool]]

#: The default timeout of a method, in seconds.
_TIMEOUT_S = 10.0
_TIMEOUT_MAX_S = 24 * 3600.0
_CODE_BYTES = 16
#: The hosts that keep the objects do not have the class any more.
_CLASS_MISSING = "MR7123"
#: The names of classes in WebAssembly begin with it.
_MODULE = "wasm:"


class Settings:
    """The settings of a shared class."""

    __slots__ = ("version", "timeout", "rollback", "persistent", "rf")

    def __init__(self, version: int, timeout: float, rollback: bool, persistent: bool = False, rf: int = 1) -> None:
        self.version, self.timeout, self.rollback, self.persistent, self.rf = version, timeout, rollback, persistent, rf


def _seconds(timeout: float) -> float:
    if not 0 < timeout <= _TIMEOUT_MAX_S:
        raise ValueError(f"a timeout of {timeout} seconds; it must be more than 0 and at most {_TIMEOUT_MAX_S:.0f}")
    return float(timeout)


@overload
def shared(cls: C, /) -> C: ...


@overload
def shared(
    *, version: int = 1, timeout: float = _TIMEOUT_S, rollback: bool = False, persistent: bool = False, rf: int = 1
) -> Callable[[C], C]: ...


def shared(
    cls: Optional[C] = None,
    /,
    *,
    version: int = 1,
    timeout: float = _TIMEOUT_S,
    rollback: bool = False,
    persistent: bool = False,
    rf: int = 1,
) -> Union[C, Callable[[C], C]]:
    """Marks a class whose objects are shared.

    Raise `version` when the fields or the code change; `__migrate__(cls, fields, version)` then computes the new fields from those of an
    older version. `timeout` is the limit of a method in seconds. If a method raises an exception, its changes to fields stay, as in any
    class; with `rollback=True`, they are undone. `persistent` and `rf` are the defaults of `farm.shared`.
    """
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version < 1 << 31:
        raise ValueError(f"version {version!r} is not a whole number from 0")
    settings = Settings(version, _seconds(timeout), rollback, persistent or rf > 1, rf)

    def mark(cls: C) -> C:
        if not isinstance(cls, type):
            raise TypeError(f"@millrace.shared marks classes, not {cls!r}")
        slots = [base.__qualname__ for base in cls.__mro__[:-1] if vars(base).get("__slots__")]
        if slots:
            raise TypeError(f"a shared class keeps its fields in __dict__: {slots[0]} has __slots__")
        cls.__millrace_shared__ = settings  # type: ignore[attr-defined]
        return cls

    return mark if cls is None else mark(cls)


def method(*, timeout: Optional[float] = None, readonly: bool = False) -> Callable[[F], F]:
    """Sets the limit of a method in seconds, and whether it only reads fields."""

    def mark(function: F) -> F:
        function.__millrace_method__ = (readonly, None if timeout is None else _seconds(timeout))  # type: ignore[attr-defined]
        return function

    return mark


def when(guard: Callable[..., object], /, *, timeout: Optional[float] = None) -> Callable[[F], F]:
    """Makes calls of a method wait until a condition, its guard, is true: `@when(lambda self: self.inside < self.size)`.

    The guard gets the arguments of the method. It can only read fields, and cannot call other objects. The guards of waiting calls are
    evaluated again, in the order of the calls, each time a method has changed a field. A call that has not begun after `timeout` seconds
    raises `TimeoutError`.
    """
    if not callable(guard):
        raise TypeError(f"a guard must be a function, not {guard!r}")
    wait = None if timeout is None else _seconds(timeout)

    def mark(function: F) -> F:
        function.__millrace_guard__ = (guard, wait)  # type: ignore[attr-defined]
        return function

    return mark


def guard_of(function: object) -> Optional[Callable[..., object]]:
    """The guard of a method."""
    guard: Optional[Callable[..., object]] = getattr(function, "__millrace_guard__", (None, None))[0]
    return guard


def reentrant(function: F) -> F:
    """Marks a method that may be called while another method of the same object waits for the caller: A calls B, and B calls A.

    The call then runs within the method that waits. It sees the fields as that has left them, and what it changes takes effect with it.
    Without the mark, such a call is refused (MR7118), and so is one of a persistent object.
    """
    function.__millrace_reentrant__ = True  # type: ignore[attr-defined]
    return function


def is_reentrant(function: object) -> bool:
    """Whether a method is marked so."""
    return bool(getattr(function, "__millrace_reentrant__", False))


def readonly(function: F) -> F:
    """Marks a method that changes no field: callers with only the right to read objects can call it."""
    return method(readonly=True)(function)


def settings_of(cls: type) -> Settings:
    """The settings of a shared class."""
    found = vars(cls).get("__millrace_shared__") if isinstance(cls, type) else None
    if found is None:
        raise TypeError(f"{cls!r} is not marked with @millrace.shared")
    return found  # type: ignore[no-any-return]


def is_readonly(function: object) -> bool:
    """Whether a method is marked so."""
    return bool(getattr(function, "__millrace_method__", (False, None))[0])


def methods_of(cls: type) -> Methods:
    """The methods that are called from elsewhere; see `Methods`."""
    settings = settings_of(cls)
    found: Methods = {}
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") and not (name.startswith("__") and name in _OPERATORS):
            continue
        if inspect.isgeneratorfunction(member) or inspect.isasyncgenfunction(member):
            raise TypeError(f"{cls.__qualname__}.{name} is a generator: methods of shared objects return one value")
        reads, own = getattr(member, "__millrace_method__", (False, None))
        wait = getattr(member, "__millrace_guard__", (None, None))[1]
        if settings.rollback and is_reentrant(member):
            raise TypeError(f"{cls.__qualname__}.{name} is reentrant: what it changes cannot be discarded by itself, so there is no rollback=True")
        found[name] = (bool(reads), max(1, int((own or settings.timeout) * 1000)), wait, is_reentrant(member))
    return found


#: Methods of operators that references have.
_OPERATORS = ("__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__call__", "__iter__")


def _feed(code: types.CodeType, out: Callable[[bytes], None]) -> None:
    for part in (code.co_code, repr(code.co_names).encode(), repr(code.co_varnames).encode()):
        out(part)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _feed(constant, out)
        elif isinstance(constant, frozenset):
            # The order of its elements differs from one process to the next.
            out(repr(sorted(map(repr, constant))).encode())
        else:
            out(repr(constant).encode())


def code_of(cls: type) -> bytes:
    """A digest of the code of a class: that of its methods and of those of its bases."""
    digest = hashlib.sha256(cls.__qualname__.encode())
    for base in cls.__mro__[:-1]:
        for name, member in sorted(vars(base).items()):
            for function in _functions(member):
                digest.update(name.encode())
                _feed(function.__code__, digest.update)
    return digest.digest()[:_CODE_BYTES]


def module_about(module: bytes, name: str, pool: str, version: int) -> tuple[str, str, int, int, bytes]:
    """The identity of a class in WebAssembly. Its pool runs it, so there is no body: the number is that of its content."""
    return _MODULE + name, pool, version, number_of(module), hashlib.sha256(module).digest()[:_CODE_BYTES]


def number_of(body: bytes) -> int:
    """The number of a body of a replicated class, which is computed from its content."""
    return int.from_bytes(hashlib.sha256(body).digest()[:8], "little") >> 2 | 1


def _functions(member: Any) -> list[types.FunctionType]:
    if isinstance(member, property):
        found = [member.fget, member.fset, member.fdel]
    elif isinstance(member, (staticmethod, classmethod)):
        found = [member.__func__]
    else:
        found = [member]
    found += [guard_of(function) for function in found]
    return [function for function in found if isinstance(function, types.FunctionType)]


class SharedClass:
    """A shared class whose code a pool has: `SharedClass(key, ...)` is a reference to the object with that key.

    The arguments after the key are those of the class's constructor, which runs if the object does not exist. A shared class can be passed to tasks.
    """

    #: What is shipped if several hosts have the objects: whichever of them runs a method needs the class.
    _body: Optional[bytes] = None

    def __init__(
        self,
        about: tuple[Any, ...],
        methods: Methods,
        flags: int = 0,
        space: Optional[_spaces.Space] = None,
        body: Optional[bytes] = None,
    ) -> None:
        self._about, self._methods, self._flags, self._space, self._body = about, methods, flags, space, body

    def __call__(self, key: str, /, *args: Any, **kwargs: Any) -> Any:
        return _class(self._about, self._methods)(self, key, args, kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedClass, (self._about, self._methods, self._flags, None, self._body)

    def ship(self) -> None:
        """Sends the class to the hosts that have the objects."""
        space = self._space or _spaces.current()

        def send() -> None:
            arguments = _values.array((*self._about, self._body))
            space.call((Shared._type, self._about[0], "class"), arguments, b"", 0, flags=self._flags)

        # The first call of a session may be lost with its host: this one may be made any number of times.
        space.prove(send, self._flags)
        send()

    def __repr__(self) -> str:
        return f"<millrace.SharedClass {self._about[0]!r} version {self._about[2]}>"


def _arguments(about: tuple[Any, ...], method: str, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The arguments of a call: an array of values for a class in WebAssembly, which has no names for them."""
    if not about[0].startswith(_MODULE):
        return _values.arguments(method, key, (list(args), kwargs))
    if kwargs:
        raise TypeError(f"{method} of {key!r} takes no named arguments: its class is in WebAssembly")
    for value in args:
        if value is not None and type(value) not in (bool, int, float, str, bytes):
            kind = type(value).__name__
            raise TypeError(f"{method} of {key!r} takes numbers, text, bytes, booleans and None, not {kind!r}: its class is in WebAssembly")
    return _values.arguments(method, key, args)


class Shared(Object):
    """A reference to an object of a shared class. It has the methods of the class; each call runs in a worker."""

    _type = "Shared"
    _methods: Methods = {}
    #: For how many seconds every call may wait.
    _timeout: Optional[float] = None
    #: The class, if it can be shipped.
    _of: Optional[SharedClass] = None

    def __init__(self, of: SharedClass, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(key, *of._about, _arguments(of._about, "the constructor", key, args, kwargs), space=of._space)
        self._about, self._flags, self._of = of._about, of._flags, of

    def _call(self, method: str, *arguments: object, timeout: Optional[float] = None, flags: int = 0) -> Any:
        try:
            return super()._call(method, *arguments, timeout=timeout, flags=flags)
        except Exception as error:
            if getattr(error, "code", "") != _CLASS_MISSING or self._of is None or self._of._body is None:
                raise
        self._of.ship()
        return super()._call(method, *arguments, timeout=timeout, flags=flags)

    def _ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # References that earlier versions pickled have two or three.
        reads, timeout_ms, wait, reentrant = (*self._methods[name], None, False)[:4]
        wait = wait if self._timeout is None else self._timeout
        payload = _arguments(self._about, name, self.key, args, kwargs)
        flags = _spaces.REENTRANT if reentrant else 0
        kind, value = self._call("read" if reads else "call", *self._about, name, timeout_ms, payload, timeout=wait, flags=flags)
        if kind and self._about[0].startswith(_MODULE):
            raise _spaces._raised(*_values.decode(value))
        if kind:
            raise _raised.completed(_raised.unpack(value))
        return _values.decode(value)

    def with_options(self: S, *, fence: Optional[tuple[str, int]] = None, timeout: Optional[float] = None) -> S:
        """The same object, whose calls carry the token of a lock, and wait at most `timeout` seconds until their method begins.

        See `millrace.objects.Object.with_options`. A call that waits for longer raises `TimeoutError`.
        """
        made = super().with_options(fence=fence)
        made._timeout = timeout
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        told = f"{self._about[0]} has no public method {name!r}; only its methods read its fields"
        raise AttributeError(told, name=name, obj=self)

    def _touch(self) -> None:
        self._call("version", *self._about)

    def _delete(self) -> bool:
        return bool(self._call("delete", *self._about))

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._incarnation:
            self._touch()
        which = (self.key, self._new, self._incarnation, self._flags, self._fence, self._timeout)
        return _reference, (self._about, self._methods, which)

    def __repr__(self) -> str:
        return f"<shared {self._about[0]} {self.key!r}>"


def _reference(about: tuple[Any, ...], methods: Methods, which: tuple[Any, ...]) -> Shared:
    kind = _class(about, methods)
    found: Shared = kind.__new__(kind)
    found.key, found._new, found._incarnation, found._flags, found._fence, found._timeout = (*which, None, None)[:6]
    found._space, found._about = None, about
    return found if _spaces.wrap is None else _spaces.wrap(found)


#: By class, and the methods that can be called: the class of the references to its objects.
_kinds: dict[tuple[Any, ...], type[Shared]] = {}


def _class(about: tuple[Any, ...], methods: Methods) -> type[Shared]:
    found = _kinds.get((about, *methods))
    if found is None:

        def forward(name: str) -> Callable[..., Any]:
            def call(self: Shared, /, *args: Any, **kwargs: Any) -> Any:
                return self._ask(name, args, kwargs)

            call.__name__ = call.__qualname__ = name
            return call

        members: dict[str, Any] = {name: forward(name) for name in methods}
        found = _kinds[(about, *methods)] = type(about[0].rpartition(".")[2], (Shared,), {**members, "_methods": methods})
    return found
