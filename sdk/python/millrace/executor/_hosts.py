"""An executor over several hosts: each task goes to the host with the fewest waiting tasks, and once more to another one if that is lost."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Future
from typing import Any, Optional

from millrace._namespace import RemoteNamespace
from millrace._records import _native
from millrace._worker import Error, error_of
from millrace.executor import _BATCH_BYTES, _BATCH_MAX, _PAUSE_S, Executor, _check, _task, _TaskFuture

_log = logging.getLogger("millrace")
#: How often hosts are asked for their waiting tasks while this program submits some.
_LOOK_S = 0.2
#: The errors of a host that cannot be reached any more.
_LOST = ("MR6008", "MR6009", "MR6053", "MR6106", "MR6121", "MR6122", "MR6123", "MR6127")


class Host:
    """One of the hosts, with the tasks that it has from this program."""

    def __init__(self, address: str, ca: Optional[str], pool: str, lost_after: float) -> None:
        self.address, self.pool = address, pool
        reconnect_ms = max(1, int(lost_after * 1000))
        self.remote = RemoteNamespace(address, ca, [], reconnect_ms)
        # A connection of its own: it waits for results as they are pushed.
        self.results = RemoteNamespace(address, ca, [], reconnect_ms)
        log = f"_results/{pool}"
        self.tail = self.results.tail(log, self.results.latest(log) + 1)
        self.listener: Optional[threading.Thread] = None
        self.bodies: dict[bytes, int] = {}
        #: Its waiting tasks: as it said last, and those that were sent and have ended since.
        self.waiting = 0
        self.why_lost: Optional[BaseException] = None
        self.look()

    def look(self) -> None:
        """Asks for the tasks and runs that wait there, whoever has sent them."""
        known = json.loads(self.remote.show("functions"))["functions"]
        self.waiting = sum(function["pending"] for function in known)

    def invoke(self, tasks: list[bytes], bodies: bool) -> int:
        """Has it run tasks; the number of the first."""
        _check(tasks, bodies)
        # Asked again, it counts once.
        key = f"task:{os.urandom(12).hex()}"
        while True:
            try:
                return self.remote.invoke(self.pool, bodies, tasks, key)
            except Error as error:
                if error.retry_after is None or error.code in _LOST:
                    raise
                time.sleep(max(error.retry_after, _PAUSE_S))

    def number_of(self, digest: bytes, body: bytes) -> int:
        """The number of a function's body there, which is shipped once."""
        number = self.bodies.get(digest)
        if number is None:
            number = self.bodies[digest] = self.invoke([body], True)
        return number

    def close(self) -> None:
        """Ends its connections."""
        self.tail.close()
        self.results.close()
        self.remote.close()


class _PlacedFuture(_TaskFuture):
    """A future of a task that can be sent to another host."""

    _digest = _body = _arguments = b""
    _host: Optional[Host] = None
    #: Whether its first host was lost.
    _moved = False
    #: Where it is, and its number there.
    _place: Optional[tuple[Host, int]] = None

    def forget(self) -> None:
        """Needs nothing more to be sent again."""
        self._body = self._arguments = b""


class SpreadExecutor(Executor):
    """The executor that `Executor` is for a connection to several hosts."""

    _future = _PlacedFuture

    def _attach(self, addresses: Sequence[str], lost_after: float) -> None:
        self._hosts: list[Host] = []
        self._submitted, self._over = threading.Event(), threading.Event()
        refused: list[tuple[str, Error]] = []
        for address in addresses:
            try:
                self._hosts.append(Host(address, self._connection._ca, self._pool, lost_after))
            except Error as error:
                if error.code == "MR2101":
                    refused.append((address, error_of("MR7114", f"no pool '{self._pool}' at '{address}'")))
                elif error.code in _LOST:
                    refused.append((address, error))
                else:
                    raise
        if not self._hosts:
            raise refused[0][1]
        for address, why in refused:
            _log.warning("no tasks are sent to %s: %s", address, why)
        for host in self._hosts:
            host.listener = threading.Thread(target=self._hear, args=(host,), name="millrace-results", daemon=True)
            host.listener.start()
        self._looking = threading.Thread(target=self._look, name="millrace-load", daemon=True)
        self._looking.start()

    def _hear(self, host: Host) -> None:
        """Completes futures as results come."""
        try:
            for record in host.tail:
                data = record.data
                if data[1:17] == self._client:
                    host.waiting -= 1
                    self._complete(data[1 : 1 + _task.ID_BYTES], data[0], data[1 + _task.ID_BYTES :])
        except BaseException as error:
            if not self._shut:
                self._lose(host, error)

    def _look(self) -> None:
        """Asks hosts for their load while tasks are submitted."""
        while not self._over.is_set():
            self._submitted.wait()
            self._submitted.clear()
            for host in self._living():
                try:
                    host.look()
                except Exception as error:
                    if not self._shut:
                        self._lose(host, error)
            self._over.wait(_LOOK_S)

    def _living(self) -> list[Host]:
        return [host for host in self._hosts if host.why_lost is None]

    def _choose(self) -> Host:
        """The host with the fewest waiting tasks."""
        living = self._living()
        if not living:
            raise BrokenExecutor("every host was lost") from self._hosts[-1].why_lost
        host = min(living, key=lambda host: host.waiting)
        host.waiting += 1
        return host

    def _lose(self, host: Host, why: BaseException) -> None:
        """Sends the tasks that a host has not ended to others, each only once."""
        with self._lock:
            if host.why_lost is not None:
                return
            host.why_lost = why
            theirs: list[Any] = [future for future in self._futures.values() if getattr(future, "_host", None) is host]
            _log.warning("the host %s is lost, and %d tasks are repeated elsewhere: %s", host.address, len(theirs), why)
        if not self._living():
            self._break(why)
            return
        again = [future for future in theirs if not future._moved]
        for future in theirs:
            if future._moved:
                self._fail(future, why)
        for future in again:
            future._moved = True
        try:
            self._place(again)
        except BaseException as error:
            for future in again:
                self._fail(future, error)

    def _fail(self, future: _PlacedFuture, why: BaseException) -> None:
        with self._lock:
            self._futures.pop(future._id, None)
            self._idle.notify_all()
        if not future.done():
            broken = BrokenExecutor(f"the hosts that had the task were lost: {why}")
            broken.__cause__ = why
            future.set_exception(broken)

    def _place(self, futures: Iterable[_PlacedFuture]) -> None:
        """Sends tasks, each to the host that has the fewest, and many to a request."""
        batches: dict[Host, list[_PlacedFuture]] = {}
        sizes: dict[Host, int] = {}
        for future in futures:
            host = self._choose()
            batch = batches.setdefault(host, [])
            batch.append(future)
            sizes[host] = sizes.get(host, 0) + len(future._arguments)
            if len(batch) >= _BATCH_MAX or sizes[host] >= _BATCH_BYTES:
                self._send(host, batches.pop(host))
                sizes.pop(host)
        for host, batch in batches.items():
            self._send(host, batch)
        self._submitted.set()

    def _send(self, host: Host, batch: list[_PlacedFuture]) -> None:
        with self._lock:
            is_lost = host.why_lost is not None
            for future in batch:
                future._host = None if is_lost else host
        if is_lost:
            self._place(batch)
            return
        try:
            tasks = []
            for future in batch:
                number = host.number_of(future._digest, future._body)
                tasks.append(_task.task(future._id, number, self._connection.application, future._arguments))
            first = host.invoke(tasks, False)
        except Error as error:
            if error.code not in _LOST:
                with self._lock:
                    for future in batch:
                        self._futures.pop(future._id, None)
                raise
            self._lose(host, error)
            return
        for at, future in enumerate(batch):
            if future._host is host:
                future._place = host, first + at

    def _begin(self, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]) -> Sequence[Future[Any]]:
        futures: list[_PlacedFuture] = []
        shipped: Optional[tuple[bytes, bytes]] = None
        of: object = None
        placed = 0
        try:
            for fn, args, kwargs in calls:
                if shipped is None or of is not fn:
                    shipped, of = self._body(fn), fn
                arguments = self._pickle("the arguments", (args, kwargs))
                future: Any = self._expect()
                future._digest, future._body = shipped
                future._arguments = arguments
                future.add_done_callback(_PlacedFuture.forget)
                futures.append(future)
                if len(futures) - placed >= _BATCH_MAX:
                    self._place(futures[placed:])
                    placed = len(futures)
        except BaseException:
            with self._lock:
                for future in futures[placed:]:
                    self._futures.pop(future._id, None)
            raise
        self._place(futures[placed:])
        return futures

    def _cancel_of(self, future: Any) -> bool:
        place = future._place
        return place is not None and bool(place[0].remote.revoke(self._pool, place[1]))

    def _detach(self) -> None:
        self._over.set()
        self._submitted.set()
        for host in self._hosts:
            host.close()
        for thread in (self._looking, *(host.listener for host in self._hosts)):
            if thread is not None:
                thread.join(10)
