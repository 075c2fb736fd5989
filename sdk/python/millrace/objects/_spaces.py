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


class ClientSpace(Space):
    """The objects of a host, over a connection; this program keeps its locks and permits while it runs, and for one lease longer."""

    def __init__(
        self, remote: Any, application: Optional[str], lease: float = _LEASE_MS / 1e3, session: Optional[bytes] = None
    ) -> None:
        self._remote = remote
        # One that another attempt of a task may take up again acknowledges nothing: it asks for the same answers from the first on.
        self._session, self._resumed = session or os.urandom(16), session is not None
        self._lease_ms = milliseconds("lease", lease, 100)
        # Its own objects end with it, unless it says whose they are.
        self.application = f"client-{os.urandom(8).hex()}" if application is None else application
        self._lock = threading.Lock()
        self._last = 0
        self._open: set[int] = set()
        self._closed = threading.Event()
        #: Where the session is known to be kept, in the host's journal or by its cluster, and who finds out now.
        self._proven: set[bool] = set()
        self._proving = threading.local()
        #: The connection that this is the space of, while it is open.
        self.connection: Any = None
        remote.object_session(self._session, self.application, self._lease_ms, False)
        self._keep_open()

    def _keep_open(self) -> None:
        self._renewing = threading.Thread(target=self._renew, name="millrace-lease", daemon=True)
        self._renewing.start()

    def prove(self, touch: Callable[[], None], flags: int) -> None:
        """Has the host record the session, by a call that changes nothing.

        From then on a restarted host knows the session, and a call that is repeated counts once. Before, it may have forgotten it, and
        nothing is lost if it is opened again.
        """
        copied = flags >> COPIES_SHIFT > 1
        if copied in self._proven or getattr(self._proving, "now", False):
            return
        self._proving.now = True
        try:
            while True:
                try:
                    touch()
                except Exception as error:
                    if getattr(error, "code", "") != "MR7110":
                        raise
                    self._remote.object_session(self._session, self.application, self._lease_ms, False)
                    if not self._renewing.is_alive():
                        self._keep_open()
                    continue
                self._proven.add(copied)
                return
        finally:
            self._proving.now = False

    def _renew(self) -> None:
        refused = False
        while not self._closed.wait(self._lease_ms / 3000):
            try:
                self._remote.object_session(self._session, self.application, self._lease_ms, True)
                refused = False
            except Exception as error:
                # If what it held is lost, calls say so, and do not begin again as if nothing had been. Else the host may be there
                # again the next time.
                if getattr(error, "code", "") == "MR7110":
                    # A host that takes the place of another one may hear of the session only now.
                    if refused or True not in self._proven:
                        return
                    refused = True

    def close(self) -> None:
        """Ends the session: releases its locks and permits, and deletes its objects."""
        if not self._closed.is_set():
            self._closed.set()
            try:
                self._remote.object_session(self._session, self.application, 0, True)
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
        with self._lock:
            self._last += 1
            number = self._last
            self._open.add(number)
            # Every answer below has come.
            acked = 0 if self._resumed else min(self._open)
        ask = self._remote.object_call
        try:
            while True:
                left = _SLICE_S if deadline is None else deadline - time.monotonic()
                over = GIVE_UP if left <= 0 else 0
                wait_ms = int(min(_SLICE_S if over else left, _SLICE_S) * 1000) + 1
                status, incarnation_now, value, text = ask(
                    self._session, number, acked, target, arguments, new, incarnation, flags | over, wait_ms, fence
                )
                if status == 0:
                    return incarnation_now, _values.decode(value)
                if status == 1:
                    raise _raised(value.decode(), text)
        except KeyboardInterrupt:
            # Nobody waits any more.
            ask(self._session, number, acked, target, arguments, new, incarnation, flags | GIVE_UP, 1000, fence)
            raise
        finally:
            with self._lock:
                self._open.discard(number)


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
