"""Sends calls of shared objects: those of a task to its host, those of a program over its connection."""

from __future__ import annotations

import abc
import builtins
import concurrent.futures
import importlib
import os
import queue
import threading
import time
import weakref

from millrace.objects import _raised as _exceptions
from millrace.objects import _values

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Optional

GIVE_UP, MUST_EXIST, MUST_CREATE, PERSISTENT = 1, 2, 4, 8
#: The method is reentrant. Workers say so when they call it; nobody else waits within a method.
REENTRANT = 16
#: Above these flags is how many hosts have a copy.
COPIES_SHIFT = 8
#: How long the host lets a call wait before the client asks again, so that each side notices when the other is gone.
_SLICE_S = 20.0
_LEASE_MS = 10_000
#: 32 bits of milliseconds.
_TIME_MAX_S = 4_294_967

_EXCEPTIONS = {
    "queue.Empty": queue.Empty,
    "queue.Full": queue.Full,
    "threading.BrokenBarrierError": threading.BrokenBarrierError,
    "concurrent.futures.InvalidStateError": concurrent.futures.InvalidStateError,
}


#: Exceptions of the host that are errors of Millrace.
_CODES = {
    "millrace.NotFound": "MR7106",
    "millrace.TooLarge": "MR7108",
    "millrace.Busy": "MR7109",
    "millrace.StepFailed": "MR7119",
    "millrace.ClassChanged": "MR7120",
    "millrace.PoolMissing": "MR7124",
    "millrace.FenceStale": "MR7127",
    "millrace.AnswerForgotten": "MR7111",
}


#: How many forks lie between the process that imported this and this one.
_forks = 0


def forks() -> int:
    """A number that a forked child does not have in common with its parent."""
    return _forks


def refuse_inherited(birth: int, what: str) -> None:
    """Raises an error in a forked child: its threads and event loops are not those of its parent, and what it sends would be taken for what the
    parent sends."""
    if birth != _forks:
        raise _exceptions.known("MR2015", f"{what} belongs to the process that this one was forked from")


def _raised(kind: str, text: str) -> BaseException:
    """The exception that the host names."""
    if kind.startswith("millrace."):
        return _exceptions.known(_CODES.get(kind, "MR7117"), text)
    found: Any = _EXCEPTIONS.get(kind) or getattr(builtins, kind, RuntimeError)
    return found(text) if text else found()  # type: ignore[no-any-return]


def milliseconds(what: str, seconds: float, least: int) -> int:
    """A time as the wire has it: at least `least`."""
    if not 0 <= seconds <= _TIME_MAX_S:
        raise _exceptions.known("MR1006", f"{what} is {seconds}; it must be 0 to {_TIME_MAX_S} seconds")
    return max(least, int(seconds * 1000))


class Space(abc.ABC):
    """Calls objects, and numbers the calls so that each takes effect once."""

    application = ""

    @abc.abstractmethod
    def call(
        self,
        target: tuple[str, str, str],
        arguments: bytes,
        new: bytes,
        incarnation: int,
        *,
        flags: int = 0,
        timeout: Optional[float] = None,
        fence: Optional[tuple[str, int]] = None,
    ) -> tuple[int, Any]:
        """Calls a method with encoded arguments; returns the object's incarnation and the method's return value. `timeout` is how long it
        may wait, 0 for not at all. `fence` is the name and the token of a lock: the object refuses a token lower than an earlier one.
        """

    def prove(self, touch: Callable[[], None], flags: int) -> None:
        """Before the first call of an object with these flags: `touch` makes one that may be made any number of times."""


class TaskSpace(Space):
    """The objects of the host that runs this task."""

    def __init__(self, context: Any, application: str) -> None:
        self._context = context
        self._count = 0
        self._lock = threading.Lock()
        self.application = application

    def call(
        self,
        target: tuple[str, str, str],
        arguments: bytes,
        new: bytes,
        incarnation: int,
        *,
        flags: int = 0,
        timeout: Optional[float] = None,
        fence: Optional[tuple[str, int]] = None,
    ) -> tuple[int, Any]:
        call = self.numbered(target, arguments, new, incarnation, flags, timeout, fence)
        incarnation, value, error = answered(self._context._call_object(_values.encode(call)))
        if error is not None:
            raise error
        return incarnation, value

    def numbered(
        self,
        target: tuple[str, str, str],
        arguments: bytes,
        new: bytes,
        incarnation: int,
        flags: int,
        timeout: Optional[float],
        fence: Optional[tuple[str, int]],
    ) -> list[Any]:
        """The next call, as the host gets it."""
        with self._lock:
            self._count += 1
            number = self._count
        flags |= GIVE_UP if timeout is not None and timeout <= 0 else 0
        kind, key, method = (part.encode() for part in target)
        call = [number, kind, key, method, arguments, new, incarnation, flags, self.application.encode(), timeout]
        if fence is not None:
            call.append([fence[0].encode(), fence[1]])
        return call


def answered(answer: bytes) -> tuple[int, Any, Optional[BaseException]]:
    """The incarnation and value of a call, or its exception."""
    incarnation = int.from_bytes(answer[:8], "little")
    if answer[8] == 0:
        return incarnation, _values.decode(answer[9:]), None
    name, _, text = answer[9:].partition(b"\0")
    return incarnation, None, _raised(name.decode(), text.decode(errors="replace"))


#: The types that a session has something of, until it releases it or ends.
_HELD = ("Lock", "Condition", "Semaphore")
#: Calls that may be made again in another session after their own has ended: what they were given is released with it, or they take nothing.
_REPEATABLE = {
    ("Lock", "acquire"), ("Condition", "acquire"), ("Semaphore", "acquire"), ("Event", "wait"), ("CountDownLatch", "wait"),
    ("Future", "result"), ("Queue", "join"),
}  # fmt: skip
_SESSION_OVER, _OUTCOME_UNKNOWN = "MR7110", "MR7111"


class Held:
    """The locks and permits of a program's session. If the session ends, whoever releases one of them is told so."""

    def __init__(self) -> None:
        self._has: dict[tuple[str, str], int] = {}
        self._lost: dict[tuple[str, str], int] = {}

    def lose(self) -> None:
        """The lease has ended, and the host has released everything."""
        lost, self._has = self._has, {}
        for what, count in lost.items():
            self._lost[what] = self._lost.get(what, 0) + count

    def check(self, target: tuple[str, str, str], arguments: bytes) -> None:
        """Refuses a call by which the program would release, or use, what it no longer has."""
        kind, key, method = target
        lost = self._lost.get((kind, key)) if self._lost and kind in _HELD else None
        if not lost or method not in ("release", "wait", "notify"):
            return
        if method == "release":
            self._put(self._lost, (kind, key), lost - _permits(kind, arguments))
        what = f"{lost} permits of Semaphore" if kind == "Semaphore" else kind
        told = f"the lease of this program has ended, and its host released {what} '{key}', which others may have acquired since"
        raise _exceptions.known(_SESSION_OVER, told)

    def note(self, target: tuple[str, str, str], arguments: bytes, value: Any) -> None:
        """A call has this result."""
        kind, key, method = target
        if kind not in _HELD or method not in ("acquire", "release"):
            return
        permits, has = _permits(kind, arguments), self._has.get((kind, key), 0)
        if method == "release":
            self._put(self._has, (kind, key), has - permits)
        elif value is not False:
            self._has[kind, key] = has + permits
            if kind != "Semaphore":
                self._lost.pop((kind, key), None)

    @staticmethod
    def _put(counts: dict[tuple[str, str], int], what: tuple[str, str], count: int) -> None:
        if count > 0:
            counts[what] = count
        else:
            counts.pop(what, None)


def _permits(kind: str, arguments: bytes) -> int:
    given = _values.decode(arguments) if kind == "Semaphore" else ()
    return int(given[0]) if given else 1


class _Session:
    """The calls of one process, numbered, until the lease ends."""

    def __init__(self, id: bytes) -> None:
        self.id = id
        self.lock = threading.Lock()
        self.last = 0
        self.open: set[int] = set()
        #: Where the session is known to be kept, in the host's journal or by its cluster.
        self.proven: set[bool] = set()


class ClientSpace(Space):
    """The objects of a host, over a connection; this program keeps its locks and permits while it runs, and for one lease longer.

    If the lease ends while the program is suspended, or in a forked child, the next call opens another session, which has no locks.
    """

    def __init__(
        self, remote: Any, application: Optional[str], lease: float = _LEASE_MS / 1e3, session: Optional[bytes] = None
    ) -> None:
        self._remote = remote
        # One that another attempt of a task may take up again acknowledges nothing: it asks for the same answers from the first on.
        self._resumed = session is not None
        self._lease_ms = milliseconds("lease", lease, 100)
        # Its own objects end with it, unless it says whose they are.
        self.application = f"client-{os.urandom(8).hex()}" if application is None else application
        #: Whose turn it is to open a session.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._session: Optional[_Session] = None
        self._renewing: Optional[threading.Thread] = None
        self._held = Held()
        #: Who finds out whether the session is kept.
        self._proving = threading.local()
        #: The connection that this is the space of, while it is open.
        self.connection: Any = None
        self._begin(session)
        _inherited.add(self)

    def _begin(self, id: Optional[bytes] = None) -> _Session:
        session = _Session(id or os.urandom(16))
        self._remote.object_session(session.id, self.application, self._lease_ms, False)
        self._session = session
        if self._renewing is None:
            self._renewing = threading.Thread(target=self._renew, name="millrace-lease", daemon=True)
            self._renewing.start()
        return session

    def _current(self) -> _Session:
        """The session of this process."""
        session = self._session
        if session is None:
            with self._lock:
                if self._closed.is_set():
                    raise _exceptions.known(_SESSION_OVER, "the connection is closed")
                session = self._session or self._begin()
        return session

    def _replace(self, over: _Session) -> None:
        """Opens another session in the place of one that has ended."""
        with self._lock:
            if self._session is over and not self._closed.is_set():
                self._begin()
                self._held.lose()

    def in_forked_child(self) -> None:
        """The session stays the parent's. Threads that held locks may not exist here."""
        is_closed = self._closed.is_set()
        self._lock, self._closed, self._held = threading.Lock(), threading.Event(), Held()
        self._session, self._renewing = None, None
        # What the parent's threads know of locks.
        self.__dict__.pop("_locks", None)
        if is_closed:
            self._closed.set()

    def prove(self, touch: Callable[[], None], flags: int) -> None:
        """Has the host record the session, by a call that changes nothing.

        From then on a restarted host knows the session, and a call that is repeated counts once. Before, it may have forgotten it, and
        nothing is lost if another one is opened.
        """
        copied = flags >> COPIES_SHIFT > 1
        while copied not in (session := self._current()).proven and not getattr(self._proving, "now", False):
            self._proving.now = True
            try:
                touch()
            except Exception as error:
                code = getattr(error, "code", "")
                if code == _OUTCOME_UNKNOWN:
                    # The host was lost meanwhile. The call changes nothing, so it is made again, in another session if need be.
                    continue
                if not self._resumed or code != _SESSION_OVER:
                    raise
                self._remote.object_session(session.id, self.application, self._lease_ms, False)
                continue
            finally:
                self._proving.now = False
            if self._session is session:
                session.proven.add(copied)

    def _renew(self) -> None:
        closed, refused = self._closed, False
        while not closed.wait(self._lease_ms / 3000):
            session = self._session
            if session is None:
                continue
            try:
                self._remote.object_session(session.id, self.application, self._lease_ms, True)
                refused = False
            except Exception as error:
                if getattr(error, "code", "") != _SESSION_OVER:
                    # The host may be there again the next time.
                    continue
                if not refused and True in session.proven:
                    # A host that takes the place of another one may hear of the session only now.
                    refused = True
                elif self._resumed:
                    return
                else:
                    refused = False
                    try:
                        self._replace(session)
                    except Exception:
                        continue

    def close(self, well: bool = True) -> None:
        """Ends the session: releases its locks, and deletes its objects. Permits of a program that ends well stay acquired."""
        if not self._closed.is_set():
            self._closed.set()
            session = self._session
            if session is None:
                return
            try:
                # Without a word from it, the host takes it for dead.
                self._remote.object_session(session.id, self.application, 0 if well else 1, True)
            except Exception:
                # The lease does it.
                pass

    def call(
        self,
        target: tuple[str, str, str],
        arguments: bytes,
        new: bytes,
        incarnation: int,
        *,
        flags: int = 0,
        timeout: Optional[float] = None,
        fence: Optional[tuple[str, int]] = None,
    ) -> tuple[int, Any]:
        deadline = None if timeout is None else time.monotonic() + timeout
        flags &= ~REENTRANT
        while True:
            session = self._current()
            self._held.check(target, arguments)
            begun: list[bool] = []
            try:
                found, value = self._call_in(session, target, arguments, new, incarnation, flags, deadline, fence, begun)
            except Exception as error:
                if self._resumed or not self._is_over(session, error, target):
                    raise
                self._replace(session)
                if begun and (target[0], target[2]) not in _REPEATABLE:
                    told = f"the lease of this program ended while {target[2]} of {target[0]} '{target[1]}' waited"
                    raise _exceptions.known(_OUTCOME_UNKNOWN, told) from error
                continue
            self._held.note(target, arguments, value)
            return found, value

    def _is_over(self, session: _Session, error: Exception, target: tuple[str, str, str]) -> bool:
        """Whether a call failed because its session has ended, and another one may be opened for it."""
        code = getattr(error, "code", "")
        if code == _OUTCOME_UNKNOWN and (target[0], target[2]) in _REPEATABLE:
            # The connection was lost meanwhile. If the session is there, so is what the call got.
            try:
                self._remote.object_session(session.id, self.application, self._lease_ms, True)
            except Exception as why:
                code = getattr(why, "code", "")
        return bool(code == _SESSION_OVER) and not self._closed.is_set()

    def _call_in(
        self,
        session: _Session,
        target: tuple[str, str, str],
        arguments: bytes,
        new: bytes,
        incarnation: int,
        flags: int,
        deadline: Optional[float],
        fence: Optional[tuple[str, int]],
        begun: list[bool],
    ) -> tuple[int, Any]:
        """Makes a call in a session. `begun` is not empty once the host has said that the call waits."""
        with session.lock:
            session.last += 1
            number = session.last
            session.open.add(number)
            # Every answer below has come.
            acked = 0 if self._resumed else min(session.open)
        ask = self._remote.object_call
        try:
            while True:
                left = _SLICE_S if deadline is None else deadline - time.monotonic()
                over = GIVE_UP if left <= 0 else 0
                wait_ms = int(min(_SLICE_S if over else left, _SLICE_S) * 1000) + 1
                status, incarnation_now, value, text = ask(
                    session.id, number, acked, target, arguments, new, incarnation, flags | over, wait_ms, fence
                )
                if status == 0:
                    return incarnation_now, _values.decode(value)
                if status == 1:
                    raise _raised(value.decode(), text)
                begun.append(True)
        except KeyboardInterrupt:
            # Nobody waits any more.
            ask(session.id, number, acked, target, arguments, new, incarnation, flags | GIVE_UP, 1000, fence)
            raise
        finally:
            with session.lock:
                session.open.discard(number)


#: What a forked child makes its own.
_inherited: weakref.WeakSet[ClientSpace] = weakref.WeakSet()


def _in_forked_child() -> None:
    global _forks
    _forks += 1
    for space in list(_inherited):
        space.in_forked_child()


os.register_at_fork(after_in_child=_in_forked_child)

_default: Optional[Space] = None
#: What references that are unpickled become: in the `async` method of a shared class, objects whose methods are awaited.
wrap: Optional[Callable[[Any], Any]] = None


def current() -> Space:
    """The space of this task, or of the program's last connection."""
    if _default is None:
        raise RuntimeError("there is no connection; create one with `millrace.connect()`")
    return _default


def use(space: Optional[Space]) -> None:
    """Makes this space the one of references without a connection of their own."""
    global _default
    _default = space


def wait_for(wait: Callable[[Optional[float]], object], predicate: Callable[[], Any], timeout: Optional[float]) -> Any:
    """Waits on a condition until the predicate is true; returns its last value."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while not (result := predicate()):
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        wait(left)
    return result


def import_of(name: str) -> Any:
    """Imports an optional module."""
    return importlib.import_module(name)
