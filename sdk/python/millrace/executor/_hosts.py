"""An executor over several hosts: each task is sent to the host with the fewest waiting tasks, and to another one if that host is lost.

A lost host is asked, after pauses that double, whether it is back; then it gets tasks again.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Future, wait
from typing import Any, Optional

from millrace._namespace import RemoteNamespace
from millrace._records import _native
from millrace._worker import Error
from millrace.executor import _BATCH_BYTES, _BATCH_MAX, _PAUSE_S, Executor, _check, _labels, _task
from millrace.executor._labels import Labels
from millrace.executor._results import TaskFuture
from millrace.objects import _spaces

_log = logging.getLogger("millrace")
#: How often hosts are asked for their waiting tasks while this program submits some.
_LOOK_S = 0.2
#: How often they are asked for their labels then, if tasks need some: a host may start again with others.
_LABELS_S = 5.0
#: The first and the longest pause before a lost host is asked again, and how long it stays until the next pause is the first one again.
_RETURN_S = 1.0
_RETURN_MAX_S = 30.0
_STAYED_S = 60.0
#: How long a cancellation waits until the task of a lost host is at another one.
_PLACED_S = 10.0
#: The errors of a host that cannot be reached any more.
_LOST = ("MR6008", "MR6009", "MR6053", "MR6106", "MR6121", "MR6122", "MR6123", "MR6127")


class Host:
    """One of the hosts, with the tasks that it has from this program."""

    def __init__(self, address: str, ca: Optional[str], pool: str, lost_after: float) -> None:
        self.address, self.pool = address, pool
        reconnect_ms = _spaces.milliseconds("lost_after", lost_after, 1)
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
        #: Its labels, and when it said so.
        self.labels: Optional[Labels] = None
        self._labels_at = 0.0
        self.look()

    def look(self, labels: bool = False) -> None:
        """Requests the number of waiting tasks and runs there, of all clients, and its labels."""
        known = json.loads(self.remote.show("functions"))["functions"]
        self.waiting = sum(function["pending"] for function in known)
        if labels and (self.labels is None or time.monotonic() >= self._labels_at + _LABELS_S):
            self.look_at_labels()

    def look_at_labels(self) -> None:
        """Requests its labels."""
        self.labels = _labels.of_host(self.remote)
        self._labels_at = time.monotonic()

    def has(self, labels: Labels) -> bool:
        """Whether it has all of these."""
        return not labels or self.labels is not None and labels.items() <= self.labels.items()

    def invoke(self, tasks: list[bytes], bodies: bool) -> int:
        """Submits tasks to it; returns the number of the first."""
        _check(tasks, bodies)
        # Asked again, it counts once.
        key = f"task:{os.urandom(12).hex()}"
        while True:
            try:
                return self.remote.invoke_tasks(self.pool, bodies, tasks, key)
            except Error as error:
                if error.retry_after is None or error.code in _LOST:
                    raise
                time.sleep(max(error.retry_after, _PAUSE_S))

    def number_of(self, digest: bytes, body: bytes) -> int:
        """The number of a function's body there, which is sent once."""
        number = self.bodies.get(digest)
        if number is None:
            number = self.bodies[digest] = self.invoke([body], True)
        return number

    def close(self) -> None:
        """Ends its connections."""
        self.tail.close()
        self.results.close()
        self.remote.close()


def _broken(why: BaseException) -> BrokenExecutor:
    broken = BrokenExecutor(f"the hosts that had the task were lost: {why}")
    broken.__cause__ = why
    return broken


class _PlacedFuture(TaskFuture):
    """A future of a task that can be sent to another host."""

    _digest = _body = _arguments = b""
    #: The labels of the hosts that may run it.
    _needs: Labels = {}
    _host: Optional[Host] = None
    #: Whether its first host was lost.
    _moved = False
    #: The thread that completes it, because its host is lost and it gets no other one.
    _leaver: Optional[int] = None
    #: Where it is, and its number there.
    _place: Optional[tuple[Host, int]] = None

    def forget(self) -> None:
        """Drops the data for sending the task again."""
        self._body = self._arguments = b""


class _Absent:
    """A lost host that is checked for its return."""

    def __init__(self, address: str, pause: float) -> None:
        self.address, self.pause = address, pause
        self.due = time.monotonic() + pause

    def put_off(self) -> None:
        """Doubles the pause before the next attempt."""
        self.pause = min(2 * self.pause, _RETURN_MAX_S)
        self.due = time.monotonic() + self.pause


class SpreadExecutor(Executor):
    """The executor that `Executor` is for a connection to several hosts, or for tasks that need labels."""

    _future = _PlacedFuture
    _is_spread = True
    _needs: Labels

    def _attach(self, addresses: Sequence[str], lost_after: float) -> None:
        self._hosts: list[Host] = []
        self._lost_after = lost_after
        self._submitted, self._over = threading.Event(), threading.Event()
        #: The hosts that are asked whether they are back, and the pauses of those that have been back since when.
        self._absent: dict[str, _Absent] = {}
        self._returned: dict[str, tuple[float, float]] = {}
        self._went = threading.Event()
        #: Whether tasks need labels.
        self._labelled = bool(self._needs)
        refused: list[tuple[str, Error]] = []
        for address in addresses:
            try:
                self._hosts.append(self._reach(address))
            except Error as error:
                if error.code == "MR2101":
                    refused.append((address, _native.error("MR7114", f"no pool '{self._pool}' at '{address}'")))
                elif error.code in _LOST:
                    refused.append((address, error))
                    self._absent[address] = _Absent(address, _RETURN_S)
                else:
                    raise
        if not self._hosts:
            raise refused[0][1]
        if not any(host.has(self._needs) for host in self._hosts):
            for host in self._hosts:
                host.close()
            raise self._no_host_with(self._needs)
        for address, why in refused:
            _log.warning("no tasks are sent to %s: %s", address, why)
        for host in self._hosts:
            self._attend(host)
        self._threads = [
            threading.Thread(target=self._look, name="millrace-load", daemon=True),
            threading.Thread(target=self._await_return, name="millrace-return", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _reach(self, address: str) -> Host:
        host = Host(address, self._connection._ca, self._pool, self._lost_after)
        host.look(self._labelled)
        return host

    def _attend(self, host: Host) -> None:
        """Begins to wait for its results."""
        host.listener = threading.Thread(target=self._hear, args=(host,), name="millrace-results", daemon=True)
        host.listener.start()

    def on(self, label: _labels.Label) -> Executor:
        """This executor, for tasks that run only on hosts with this label, or with all of these labels: `executor.on("gpu=a100").submit(train)`."""
        return self._narrowed(self._needs, _labels.parse(label))

    def _narrowed(self, needs: Labels, more: Labels) -> Executor:
        self._labelled = True
        needs = _labels.parse([f"{key}={value}" for part in (needs, more) for key, value in part.items()])
        # Labels that were read once may be others now.
        for host in self._living() if not any(host.has(needs) for host in self._hosts) else ():
            try:
                host.look_at_labels()
            except Error as error:
                if error.code not in _LOST:
                    raise
                self._lose(host, error)
        if not any(host.has(needs) for host in self._hosts):
            raise self._no_host_with(needs)
        return _labels.Labelled(self, needs)

    def _no_host_with(self, needs: Labels) -> Error:
        hosts = [(host.address, host.labels) for host in self._hosts]
        known = {host.address for host in self._hosts}
        return _labels.missing(needs, [*hosts, *((address, None) for address in self._absent if address not in known)])

    def _hear(self, host: Host) -> None:
        """Completes futures as results come."""
        try:
            for record in host.tail:
                data = record.data
                if data[1:17] == self._client:
                    # It may have said after the task's end how many wait.
                    host.waiting = max(0, host.waiting - 1)
                    self._complete(data[1 : 1 + _task.ID_BYTES], data[0], data[1 + _task.ID_BYTES :])
        except BaseException as error:
            if not self._detached:
                self._lose(host, error)

    def _look(self) -> None:
        """Requests the load of hosts while tasks are submitted."""
        while not self._over.is_set():
            self._submitted.wait()
            self._submitted.clear()
            for host in self._living():
                try:
                    host.look(self._labelled)
                except Exception as error:
                    if not self._detached:
                        self._lose(host, error)
            self._over.wait(_LOOK_S)

    def _living(self) -> list[Host]:
        return [host for host in self._hosts if host.why_lost is None]

    def _choose(self, needs: Labels) -> Host:
        """The host with the fewest waiting tasks, of those with these labels."""
        fit = [host for host in self._living() if host.has(needs)]
        if not fit:
            lost = next((host for host in self._hosts if host.has(needs)), None)
            if lost is None:
                raise self._no_host_with(needs)
            where = f" with {_labels.shown(needs)}" if needs else ""
            raise BrokenExecutor(f"every host{where} is lost") from lost.why_lost
        host = min(fit, key=lambda host: host.waiting)
        host.waiting += 1
        return host

    def _lose(self, host: Host, why: BaseException) -> None:
        """Sends the tasks that a host has not ended to others, each only once."""
        with self._lock:
            if host.why_lost is not None:
                return
            host.why_lost = why
            pause, since = self._returned.pop(host.address, (0.0, -_STAYED_S))
            stayed = time.monotonic() - since >= _STAYED_S
            absent = _Absent(host.address, _RETURN_S if stayed else min(2 * pause, _RETURN_MAX_S))
            self._absent[host.address] = absent
            theirs: list[Any] = [future for future in self._futures.values() if getattr(future, "_host", None) is host]
            again = [future for future in theirs if not future._moved and not future._stops and not future.done()]
            ended = [future for future in theirs if future._moved or future._stops or future.done()]
            for future in theirs:
                future._place = None
            for future in ended:
                # Before any callback runs, which may cancel another one: it does not wait for a place.
                self._futures.pop(future._id, None)
                future._leaver = threading.get_ident()
            for future in again:
                future._moved = True
            self._idle.notify_all()
            _log.warning("the host %s is lost, and %d tasks are repeated elsewhere: %s", host.address, len(again), why)
        self._went.set()
        # First: callbacks of the others may take long, or cancel these.
        self._place_each(again)
        for future in ended:
            if future._stops:
                # Its run was to be ended.
                future._cancelled()
            else:
                self._fail(future, _broken(why))

    def _await_return(self) -> None:
        """Tries to reach lost hosts, after pauses that double."""
        while not self._over.is_set():
            with self._lock:
                absent = min(self._absent.values(), key=lambda one: one.due, default=None)
            if self._went.wait(None if absent is None else max(0.0, absent.due - time.monotonic())):
                self._went.clear()
            elif absent is not None:
                try:
                    self._admit(absent, self._reach(absent.address))
                except Exception as error:
                    _log.debug("the host %s is not back: %s", absent.address, error)
                    absent.put_off()

    def _admit(self, absent: _Absent, host: Host) -> None:
        """Sends tasks to a host that is back."""
        with self._lock:
            is_over = self._over.is_set()
            before = [one for one in self._hosts if one.address == host.address]
            if not is_over:
                self._hosts = [one for one in self._hosts if one.address != host.address] + [host]
                del self._absent[host.address]
                self._returned[host.address] = (absent.pause, time.monotonic())
                # Under the lock: `_detach` waits for it.
                self._attend(host)
        if is_over:
            before = [host]
        else:
            _log.warning("the host %s is back, and tasks are sent to it", host.address)
        for one in before:
            one.close()

    def _fail(self, future: _PlacedFuture, why: BaseException) -> None:
        self._drop(future)
        if not future.done():
            future.set_exception(why)

    def _place(self, futures: Iterable[_PlacedFuture]) -> None:
        """Sends tasks, each to the host that has the fewest, and many to a request."""
        batches: dict[Host, list[_PlacedFuture]] = {}
        sizes: dict[Host, int] = {}
        for future in futures:
            host = self._choose(future._needs)
            batch = batches.setdefault(host, [])
            batch.append(future)
            sizes[host] = sizes.get(host, 0) + len(future._arguments)
            if len(batch) >= _BATCH_MAX or sizes[host] >= _BATCH_BYTES:
                self._send(host, batches.pop(host))
                sizes.pop(host)
        for host, batch in batches.items():
            self._send(host, batch)
        self._submitted.set()

    def _place_each(self, futures: list[_PlacedFuture]) -> None:
        """Sends tasks that need different labels; those that cannot be sent fail with the reason."""
        of: dict[tuple[tuple[str, str], ...], list[_PlacedFuture]] = {}
        for future in futures:
            of.setdefault(tuple(future._needs.items()), []).append(future)
        for batch in of.values():
            try:
                self._place(batch)
            except BaseException as error:
                for future in batch:
                    self._drop(future)
                for future in batch:
                    self._fail(future, error)

    def _send(self, host: Host, batch: list[_PlacedFuture]) -> None:
        with self._lock:
            is_lost = host.why_lost is not None
            for future in batch:
                future._host = None if is_lost else host
        if is_lost:
            self._place(batch)
            return
        try:
            tasks, sent = [], []
            for future in batch:
                body, arguments = future._body, future._arguments
                if future.done():
                    # One that was cancelled has nothing left that could be sent.
                    self._drop(future)
                    continue
                number = host.number_of(future._digest, body)
                tasks.append(_task.task(future._id, number, self._connection.application, arguments))
                sent.append(future)
            if not sent:
                return
            batch = sent
            first = host.invoke(tasks, False)
        except Error as error:
            if error.code not in _LOST:
                with self._lock:
                    for future in batch:
                        self._futures.pop(future._id, None)
                raise
            self._lose(host, error)
            return
        with self._lock:
            for at, future in enumerate(batch):
                if future._host is host:
                    future._place = host, first + at
            self._idle.notify_all()

    def _begin(
        self, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]], needs: Optional[Labels] = None
    ) -> Sequence[Future[Any]]:
        if self._inherited:
            self._make_own()
        futures: list[_PlacedFuture] = []
        shipped: Optional[tuple[bytes, bytes]] = None
        of: object = None
        placed = 0
        try:
            for fn, args, kwargs in calls:
                if shipped is None or of is not fn:
                    shipped, of = self._body(fn), fn
                self._ready(shipped, args, kwargs, needs, kept=futures)
                if len(futures) - placed >= _BATCH_MAX:
                    self._place(futures[placed:])
                    placed = len(futures)
            self._place(futures[placed:])
        except BaseException:
            self._forget(futures)
            raise
        return futures

    def _ready(
        self, shipped: tuple[bytes, bytes], args: Any, kwargs: Any, needs: Optional[Labels] = None, kept: Optional[list[Any]] = None
    ) -> _PlacedFuture:
        """The future of a task to be placed, with the data for sending it."""
        arguments = self._pickle("the arguments", (args, kwargs))
        future: Any = self._expect(kept)
        future._digest, future._body = shipped
        future._arguments = arguments
        future._needs = self._needs if needs is None else needs
        future.add_done_callback(_PlacedFuture.forget)
        made: _PlacedFuture = future
        return made

    def _forget(self, futures: Iterable[_PlacedFuture]) -> None:
        """Awaits no results of tasks that were not sent."""
        with self._lock:
            for future in futures:
                if future._host is None:
                    self._futures.pop(future._id, None)
            self._idle.notify_all()

    def _place_of(self, future: Any) -> Optional[tuple[Any, int]]:
        place = future._place
        return None if place is None else (place[0].remote, place[1])

    def _is_lost_with(self, future: Any, error: Error) -> bool:
        place = future._place
        if error.code not in _LOST:
            return False
        if place is not None:
            self._lose(place[0], error)
        return True

    def _cancel_of(self, future: Any) -> bool:
        while True:
            with self._idle:
                self._idle.wait_for(lambda: future._place is not None or future._id not in self._futures, _PLACED_S)
                place = future._place
            if place is None or future.done():
                if future._leaver not in (None, threading.get_ident()):
                    wait([future], _PLACED_S)
                return False
            host, number = place
            try:
                return bool(host.remote.revoke(self._pool, number))
            except Error as error:
                if error.code not in _LOST:
                    raise
                # It is at another host then, or has ended.
                self._lose(host, error)

    def _detach(self) -> None:
        with self._lock:
            self._over.set()
            hosts = list(self._hosts)
        self._submitted.set()
        self._went.set()
        for host in hosts:
            host.close()
        for thread in (*self._threads, *(host.listener for host in hosts)):
            if thread is not None:
                thread.join(10)
