"""A `concurrent.futures.Executor` whose workers belong to a Millrace host, and connections to hosts.

    with millrace.Executor() as executor:
        print(sum(executor.map(simulate, range(1000))))

A task is a run of its pool's function: it is in the journal, `millrace run ls` shows it, and it is not lost if a worker or the host
ends. Functions are sent pickled, each version once. Only workers and the program that submitted a task unpickle data.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import inspect
import itertools
import json
import logging
import os
import pickle
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any, Optional, TypeVar, Union

from millrace import _open, objects
from millrace._namespace import RemoteNamespace
from millrace._records import _native
from millrace._worker import Error
from millrace.executor import _large, _pools, _private, _task, _threads
from millrace.executor._results import RUN_CANCELLED, TASK_BYTES_MAX, TASK_CANCELLED, TaskFuture, WorkerLost, fail_inherited, outcome
from millrace.executor._task import idempotency_key
from millrace.executor._threads import CloudThread, parallel_for
from millrace.objects import _classes, _spaces, _values
from millrace.objects._raised import RemoteTraceback, TaskError

R = TypeVar("R")

__all__ = [
    "CloudThread",
    "Connection",
    "Executor",
    "RemoteTraceback",
    "TaskError",
    "WorkerLost",
    "connect",
    "idempotency_key",
    "parallel_for",
    "register_module",
]

#: Tasks of one request, and about how many bytes they have together.
_BATCH_MAX = 1024
_BATCH_BYTES = 4 << 20
#: How often a submission is tried again while too many tasks are pending.
_PAUSE_S = 0.05
#: The longest pickle that is in blobs.
_LARGE_BYTES_MAX = 1 << 30
#: How often those who wait for the end of all tasks look at futures that were cancelled.
_LOOK_S = 0.1

#: The memory of a method of a class in WebAssembly.
_MODULE_MEMORY_BYTES = 64 << 20
#: The most copies of an object: a cluster has at most five hosts that vote.
_COPIES_MAX = 3

_log = logging.getLogger("millrace")


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError:
        detail = "tasks travel as cloudpickle writes them: pip install 'millrace[executor]'"
        raise _native.error("MR6105", detail) from None
    return cloudpickle


def register_module(module: Any) -> None:
    """Sends functions of this module by value, so that the module need not be installed where tasks run."""
    _cloudpickle().register_pickle_by_value(module)


def _persistence(persistent: bool, rf: int) -> int:
    """The parts of a call of an object."""
    if rf == 1:
        return _spaces.PERSISTENT if persistent else 0
    if not persistent or not 1 <= rf <= _COPIES_MAX:
        wrong = f"it is from 1 to {_COPIES_MAX}" if persistent else "without persistent=True"
        raise _native.error("MR7113", f"rf={rf}: {wrong}")
    return _spaces.PERSISTENT | rf << _spaces.COPIES_SHIFT


class Connection:
    """A host's shared objects and workers: `with millrace.connect(...) as farm`. See `connect`."""

    def __init__(
        self,
        place: Union[_open.PathOrAddress, Sequence[_open.PathOrAddress], None],
        app: Optional[str],
        lease: float,
        ca: Optional[_open.PathOrAddress] = None,
    ) -> None:
        _spaces.milliseconds("lease", lease, 0)
        self._host: Optional[_private.PrivateHost] = None
        self._executors: weakref.WeakSet[Executor] = weakref.WeakSet()
        #: The pool of the executor that was created last, and the classes that pools have, by their bodies.
        self._pool: Optional[str] = None
        self._classes: dict[tuple[type, str], int] = {}
        #: The namespace's directory, if that is on this machine.
        self.directory: Optional[str] = None
        places: list[_open.PathOrAddress]
        if place is None:
            named = os.environ.get("MILLRACE_NAMESPACE")
            places = [] if named is None else [named]
            if named is None:
                self._host = _private.PrivateHost()
                places = [self._host.address]
        else:
            places = [place] if isinstance(place, (str, os.PathLike)) else list(place)
            if not places:
                raise _native.error("MR6001", "an empty list of addresses; name at least one host of the cluster")
        #: The hosts that are asked, in this order, and the directories of those on this machine.
        self.addresses = [_address(one) for one in places]
        self.address = self.addresses[0]
        self._directories = [one[5:-7] for one in self.addresses if one.startswith("unix:") and one.endswith("/socket")]
        if self._directories and self.address == f"unix:{self._directories[0]}/socket":
            self.directory = self._directories[0]
        self._ca = None if ca is None else os.fspath(ca)
        self.remote = RemoteNamespace(self.address, self._ca, self.addresses[1:])
        self.lease = lease
        self.space = _spaces.ClientSpace(self.remote, app, lease)
        self.space.connection = self
        self._before = _spaces._default
        _spaces.use(self.space)

    def Executor(self, **settings: Any) -> Executor:
        """An executor with workers of this host."""
        return Executor(self, **settings)

    def append(self, log: str, data: object, *, key: Optional[str] = None, fence: Optional[tuple[str, int]] = None) -> int:
        """Appends a record to a log of the host's namespace, and returns its number: see `millrace.Namespace.append`."""
        return self.remote.append(log, data, key=key, fence=fence)

    def delete(self, reference: objects.Object) -> bool:
        """Deletes an object; returns whether it existed. Calls that wait for it raise `millrace.Gone`."""
        return reference._delete()

    def shared(
        self,
        cls: type,
        *,
        executor: Optional[_Executor] = None,
        pool: Optional[str] = None,
        persistent: Optional[bool] = None,
        rf: Optional[int] = None,
    ) -> _classes.SharedClass:
        """A class marked with `@millrace.shared` for objects of this host: `farm.shared(Gate)("front", 3)`.

        Its methods run on the workers of `executor` or `pool`; by default on those of the executor that was created last, or on
        workers that the connection creates. With `persistent=True`, the objects survive a restart of the host. With `rf=2` as well,
        the hosts of the cluster keep them, and the leader of the group `objects` runs the methods. In this case all hosts need the
        pool, so connect to all of them. Settings that are not given here are those of `@millrace.shared`.
        """
        settings, methods = _classes.settings_of(cls), _classes.methods_of(cls)
        flags = _persistence(settings.persistent if persistent is None else persistent, settings.rf if rf is None else rf)
        if executor is not None:
            pool = executor._pool
        _values.pickle_with(_cloudpickle().dumps)
        if pool is None:
            pool = self._pool = self._pool or _pools.make_pool(self, _cloudpickle(), _pools.settings())

        def about(number: int) -> tuple[str, str, int, int, bytes]:
            return f"{cls.__module__}.{cls.__qualname__}", pool, settings.version, number, _classes.code_of(cls)

        if flags >> _spaces.COPIES_SHIFT > 1:
            # Every host has the class, under the number that its bytes give it.
            body = _task.body(sys.version_info[:2], _cloudpickle().dumps((cls, b"", None, ())))
            shared = _classes.SharedClass(about(_classes.number_of(body)), methods, flags, self.space, body)
            shared.ship()
            return shared
        number = self._classes.get((cls, pool))
        if number is None:
            shipped = _task.body(sys.version_info[:2], _cloudpickle().dumps((cls, b"", None, ())))
            number = self._classes[cls, pool] = self._invoke(pool, [shipped], bodies=True)
        return _classes.SharedClass(about(number), methods, flags, self.space)

    def shared_module(
        self,
        path: _open.PathOrAddress,
        *,
        methods: Iterable[str] = (),
        readonly: Iterable[str] = (),
        name: Optional[str] = None,
        version: int = 1,
        timeout: float = 10.0,
        workers: Optional[int] = None,
        memory: int = _MODULE_MEMORY_BYTES,
        pool: Optional[str] = None,
        persistent: bool = False,
        rf: int = 1,
    ) -> _classes.SharedClass:
        """A class in WebAssembly for objects of this host, from a module that is built with `millrace_class.h`: `Gates("front", 3).enter()`.

        Its methods run within the host: at most `workers` at the same time, each with at most `memory` bytes. `methods` names the methods
        that change fields, `readonly` those that do not. `name` is the name of the class, by default that of the file. For a host on
        another machine, name a `pool` that has the module: a function `pool-NAME` with `pool = true` in a `millrace.toml`.
        """
        flags, file = _persistence(persistent, rf), Path(os.fspath(path))
        module = file.read_bytes()
        settings = _classes.Settings(version, _classes._seconds(timeout), False)
        if pool is None:
            pool = _pools.make_module_pool(self, file, module, workers or min(os.cpu_count() or 1, 64), memory)
        limit = max(1, int(settings.timeout * 1000))
        known: _classes.Methods = {name: (reads, limit, None, False) for names, reads in ((methods, False), (readonly, True)) for name in names}
        about = _classes.module_about(module, name or file.stem, pool, version)
        if flags >> _spaces.COPIES_SHIFT <= 1:
            return _classes.SharedClass(about, known, flags, self.space)
        shared = _classes.SharedClass(about, known, flags, self.space, module)
        shared.ship()
        return shared

    def _invoke(self, pool: str, tasks: list[bytes], bodies: bool) -> int:
        _check(tasks, bodies)
        # Asked again, it counts once.
        key = f"task:{os.urandom(12).hex()}"
        while True:
            try:
                return self.remote.invoke_tasks(pool, bodies, tasks, key)
            except Error as error:
                if error.retry_after is None:
                    raise
                time.sleep(max(error.retry_after, _PAUSE_S))

    def __getattr__(self, name: str) -> Any:
        if name not in objects.__all__ or name == "Object":
            raise AttributeError(f"a connection has no {name!r}")
        kind = getattr(objects, name)

        def make(key: str, *args: Any, persistent: bool = False, rf: int = 1, **named: Any) -> Any:
            flags = _persistence(persistent, rf)
            made = kind(key, *args, space=self.space, **named)
            made._flags = flags
            return made

        make.__name__, make.__doc__ = name, kind.__doc__
        return make

    @property
    def application(self) -> str:
        """The name of the application. Its objects are deleted when its last connection is closed."""
        return self.space.application

    def close(self) -> None:
        """Closes executors, releases this program's locks, then deletes its objects. Permits of semaphores that it has acquired stay so."""
        self._close(True)

    def _close(self, well: bool) -> None:
        for executor in list(self._executors):
            executor.shutdown(wait=True)
        if _spaces._default is self.space:
            _spaces.use(self._before)
        self.space.connection = None
        self.space.close(well)
        self.remote.close()
        if self._host is not None:
            self._host.close()

    def __reduce__(self) -> Any:
        raise TypeError("a connection cannot be pickled or sent to a task: pass references to its objects, as in `hits = farm.AtomicInt('hits')`")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        # A program that an exception ends is like one that is killed.
        self._close(kind is None)

    def __repr__(self) -> str:
        return f"<millrace.Connection {self.address!r}>"


def _address(place: _open.PathOrAddress) -> str:
    """Where the host of a namespace is reached: an address as it is, or the socket in a directory."""
    named = os.fspath(place)
    if named.startswith(("mr://", "unix:")):
        return named
    return f"unix:{os.path.join(_open._directory(named), 'socket')}"


def connect(
    place: Union[_open.PathOrAddress, Sequence[_open.PathOrAddress], None] = None,
    *,
    app: Optional[str] = None,
    lease: float = 10.0,
    ca: Optional[_open.PathOrAddress] = None,
) -> Connection:
    """Connects to a host for shared objects and executors.

    `place` is a namespace that a host serves: its directory or its address. It can also be a list of these, for hosts of one cluster: if
    one host is lost, the next one is used for shared objects. Without `place` and MILLRACE_NAMESPACE, the program starts a private
    host, which ends with the program. `app` is the name of an application: objects that are created over this connection are deleted
    when the last connection with this name is closed, or without a name when this one is. `lease` is the time in seconds for which
    this program keeps its locks after the host has lost contact with it. `ca` names certificate authorities, as in `millrace.open`.
    """
    return Connection(place, app, lease, ca)


def _check(tasks: list[bytes], bodies: bool) -> None:
    """Refuses data that does not fit a record."""
    longest = max(map(len, tasks))
    if longest > TASK_BYTES_MAX:
        detail = f"a {'function' if bodies else 'task'} of {longest} bytes; the limit is {TASK_BYTES_MAX}"
        raise _native.error("MR7115", detail)


class Executor(concurrent.futures.Executor):
    """Runs calls on workers of a host, with the interface of `concurrent.futures.Executor`.

    `place` is as in `connect`. `workers` is the number of workers, `memory` the limit of each in bytes, `timeout` the limit of a task in
    seconds, and `retries` how often a task is retried whose worker was lost. An exception is a result: the task is not retried.
    `network` lets tasks use the host's network. `pool` names an existing pool of the host; then none of these settings can be given.

    With a connection to several hosts of a cluster, each task goes to the host with the fewest waiting tasks; `hosts` selects some of the
    hosts. A host that cannot be reached for `lost_after` seconds counts as lost until it can be reached again. Its tasks are sent to other
    hosts, so they may run twice. With `label="gpu=a100"`, or several labels, tasks go only to hosts that have them (`millrace serve --label`).

    With `backend="lambda"`, calls run as invocations of an AWS Lambda `function` with the handler `millrace.lambda_handler.handler`, at
    `endpoint` or at AWS in `region`. `workers`, `timeout` and `retries` have the same meaning. `throttle_timeout` is the time in seconds
    for which a throttled task is retried. `storage` (s3://BUCKET/PREFIX) is for functions, arguments and results of more than 6 MiB. `client`
    is a Lambda client of boto3 to use instead of a new one. `place` is the address (mr://) at which tasks reach shared objects; without it,
    they cannot use any.
    """

    #: The longest pickle of a function or of arguments, and the code of one that is longer.
    _limit, _limit_code = TASK_BYTES_MAX, "MR7115"
    #: Whether tasks reach the shared objects of `_connection`.
    _shares = True
    #: Whether they may be on several hosts.
    _is_spread = False
    _future = TaskFuture

    def __init__(
        self,
        place: Union[Connection, _open.PathOrAddress, None] = None,
        *,
        workers: Optional[int] = None,
        memory: int = _pools.MEMORY_BYTES,
        timeout: float = _pools.TIMEOUT_S,
        retries: int = _pools.RETRIES,
        network: bool = False,
        env: Optional[dict[str, str]] = None,
        python: Optional[str] = None,
        pool: Optional[str] = None,
        initializer: Optional[Callable[..., object]] = None,
        initargs: tuple[Any, ...] = (),
        backend: str = "cluster",
        hosts: Optional[Sequence[_open.PathOrAddress]] = None,
        lost_after: float = 10.0,
        label: Union[str, Iterable[str], None] = None,
        **other: Any,
    ) -> None:
        if backend == "lambda" and type(self) is Executor:
            from millrace.executor._lambda import LambdaExecutor

            # Only what the caller gave: the defaults are others there.
            given: dict[str, Any] = {"workers": workers, "timeout": timeout, "memory": memory, "retries": retries, "network": network}
            given |= {"env": env, "python": python, "pool": pool, "initializer": initializer, "initargs": initargs}
            given |= {"hosts": hosts, "lost_after": lost_after, "label": label}
            made: Any = self
            defaults = inspect.signature(Executor.__init__).parameters
            other |= {name: value for name, value in given.items() if value != defaults[name].default}
            made.__class__ = LambdaExecutor
            made.__init__(place, **other)
            return
        if backend != "cluster":
            raise _native.error("MR7130", f"backend={backend!r}: it is 'cluster' or 'lambda'")
        if other:
            raise _native.error("MR7130", f"backend='cluster' has no setting {next(iter(other))!r}")
        _spaces.milliseconds("lost_after", lost_after, 1)
        self._dumps = _cloudpickle().dumps
        _values.pickle_with(self._dumps)
        self._own = not isinstance(place, Connection)
        self._connection = place if isinstance(place, Connection) else connect(place)
        try:
            if pool is None:
                pool = _pools.make_pool(
                    self._connection, _cloudpickle(), _pools.settings(workers, memory, timeout, retries, network, env, python)
                )
            self._pool = self._connection._pool = pool
            self._initializer = (initializer, initargs)
            self._client = os.urandom(16)
            self._ids = itertools.count(1)
            self._bodies: dict[bytes, int] = {}
            #: Where long functions are.
            self._large: list[_large.Parts] = []
            self._futures: dict[bytes, TaskFuture] = {}
            self._lock = threading.Lock()
            self._idle = threading.Condition(self._lock)
            #: Whether it accepts no more tasks, whether it no longer waits for results, and who sees to the latter.
            self._shut = self._detached = False
            self._ending = threading.Lock()
            self._broken: Optional[BaseException] = None
            #: Whether it was made by the process that this one was forked from, and nothing was submitted here since.
            self._inherited = False
            addresses = self._connection.addresses if hosts is None else [_address(one) for one in hosts]
            if addresses != [self._connection.address] or label is not None:
                from millrace.executor._hosts import SpreadExecutor
                from millrace.executor._labels import parse

                self._needs = parse(label)
                kind = type(self)
                made = self
                made.__class__ = SpreadExecutor if kind is Executor else type(kind.__name__, (SpreadExecutor, kind), {})
            self._from = addresses, lost_after
            self._attach(addresses, lost_after)
            self._connection._executors.add(self)
            _living.add(self)
        except BaseException:
            if self._own:
                self._connection.close()
            raise

    def _attach(self, addresses: Sequence[str], lost_after: float) -> None:
        """Begins to wait for results."""
        # A connection of its own, on which they are pushed.
        self._results = RemoteNamespace(addresses[0], self._connection._ca)
        log = f"_results/{self._pool}"
        try:
            first = self._results.latest(log) + 1
        except Error as error:
            if error.code == "MR2101":
                raise _native.error("MR7114", f"no pool '{self._pool}'") from None
            raise
        self._tail = self._results.tail(log, first)
        self._listener = threading.Thread(target=self._listen, name="millrace-results", daemon=True)
        self._listener.start()

    def _in_forked_child(self) -> None:
        """Threads that held the locks, and those that wait for results, do not exist here."""
        left, self._futures, self._large = list(self._futures.values()), {}, []
        self._lock, self._ending = threading.Lock(), threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._inherited = True
        fail_inherited(left)

    def _make_own(self) -> None:
        """In a forked child: tasks of this process have ids, connections and threads of their own."""
        with self._ending:
            if not self._inherited or self._shut:
                return
            self._client, self._ids = os.urandom(16), itertools.count(1)
            self._bodies, self._broken = {}, None
            self._attach(*self._from)
            self._inherited = False

    def _detach(self) -> None:
        self._tail.close()
        self._results.close()
        self._listener.join(10)

    def _listen(self) -> None:
        """Completes futures as results come."""
        try:
            for record in self._tail:
                data = record.data
                if data[1:17] == self._client:
                    self._complete(data[1 : 1 + _task.ID_BYTES], data[0], data[1 + _task.ID_BYTES :])
        except BaseException as error:
            if not self._detached:
                self._break(error)

    def _break(self, why: BaseException) -> None:
        with self._lock:
            self._broken = why
            left, self._futures = self._futures, {}
            self._idle.notify_all()
        for future in left.values():
            broken = BrokenExecutor(f"no more results arrive: {why}")
            broken.__cause__ = why
            if not future.done():
                future.set_exception(broken)

    def _complete(self, id: bytes, kind: int, payload: bytes) -> None:
        with self._lock:
            future = self._futures.pop(id, None)
            self._idle.notify_all()
        # One that comes again, after an attempt whose end was not heard of.
        if future is None or future.done():
            return
        try:
            result = outcome(kind, payload, self._connection.space if self._keeps_large else None)
        except BaseException as error:
            code = getattr(error, "code", "")
            # The result of a task that is revoked may come before the answer to that.
            if code == TASK_CANCELLED or code == RUN_CANCELLED and future._stops:
                future._cancelled()
            else:
                future.set_exception(error)
        else:
            future.set_result(result)

    def _prepare(self, fn: Callable[..., Any]) -> int:
        """The number of a function's body, which is sent once."""
        digest, body = self._body(fn, _LARGE_BYTES_MAX if self._keeps_large else self._limit)
        number = self._bodies.get(digest)
        if number is None:
            if len(body) > TASK_BYTES_MAX:
                parts = _large.send(f"{self._client.hex()}-{digest.hex()}", [body[2:]], self._connection.space)
                self._large.append(parts)
                body = body[:2] + pickle.dumps(parts)
            number = self._bodies[digest] = self._invoke([body], bodies=True)
        return number

    @property
    def _keeps_large(self) -> bool:
        """Whether data that is longer than a record can be in blobs, which tasks have to reach."""
        return self._shares and not self._is_spread

    def _pickle(self, what: str, value: object, limit: Optional[int] = None, writer: Optional[_large.Writer] = None) -> bytes:
        most = self._limit if limit is None else limit

        def refuse() -> Exception:
            told = f"a task of more than {most} bytes, with its function or its arguments"
            return _native.error(self._limit_code, told)

        into = _large.Pickle(most, refuse, writer)
        try:
            _cloudpickle().Pickler(into).dump(value)
            return pickle.dumps(writer.close()) if writer is not None and into.is_large else into.value()
        except Error:
            raise
        except Exception as error:
            if hasattr(error, "add_note"):
                error.add_note(f"{what} of a task cannot be pickled, or something that it refers to; create that in the task instead")
            raise

    def _body(self, fn: Callable[..., Any], limit: Optional[int] = None) -> tuple[bytes, bytes]:
        """The serialized function, and its digest."""
        initializer, initargs = self._initializer
        named = f"the function {getattr(fn, '__qualname__', fn)!r}"
        pickled = self._pickle(named, (fn, self._client, initializer, initargs), limit)
        return hashlib.sha256(pickled).digest(), _task.body(sys.version_info[:2], pickled)

    def _task(
        self, body: int, args: Any, kwargs: Any, large: Optional[bool] = None, kept: Optional[list[Any]] = None
    ) -> tuple[bytes, bytes, TaskFuture]:
        """The id of a new task, the serialized task, and the future of its result, which is added to `kept`. If `large` is false, long arguments
        are refused."""
        future = self._expect(kept)
        may_be_large = self._keeps_large if large is None else large
        writer = _large.Writer(future._id.hex(), self._connection.space) if may_be_large else None
        try:
            arguments = self._pickle("the arguments", (args, kwargs), writer=writer)
        except BaseException:
            if writer is not None:
                writer.discard()
            self._drop(future)
            raise
        if writer is not None and writer.is_used:
            future._parts = writer.close()
            future.add_done_callback(future._free)
        return future._id, _task.task(future._id, body, self._connection.application, arguments), future

    def _drop(self, future: TaskFuture) -> None:
        """Stops waiting for results."""
        with self._lock:
            self._futures.pop(future._id, None)
            self._idle.notify_all()
        future._free()

    def _expect(self, kept: Optional[list[Any]] = None) -> TaskFuture:
        """A future of the result of a new task, by its id. It is added to `kept` first."""
        id = self._client + next(self._ids).to_bytes(8, "little")
        future = self._future()
        future._executor, future._id = self, id
        if kept is not None:
            kept.append(future)
        with self._lock:
            if self._broken is not None:
                raise BrokenExecutor("no more results arrive") from self._broken
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._futures[id] = future
        return future

    def _invoke(self, tasks: list[bytes], bodies: bool = False) -> int:
        return self._connection._invoke(self._pool, tasks, bodies)

    def _place_of(self, future: Any) -> Optional[tuple[Any, int]]:
        """The host of a task, and the task's number there."""
        return (self._connection.remote, future._number) if future._number else None

    def _run_of(self, future: TaskFuture) -> Optional[tuple[Any, str]]:
        """The run of a task in progress, and its host."""
        place = self._place_of(future)
        if place is None:
            return None
        remote, number = place
        options = {"log": f"_tasks/{self._pool}", "state": "started"}
        while True:
            listed = json.loads(remote.show("runs", **options))
            for run in listed["runs"]:
                if run["seqno"] == number:
                    return remote, run["id"]
            if listed["next"] is None:
                return None
            options["before"] = listed["next"]

    def _is_lost_with(self, future: TaskFuture, error: Error) -> bool:
        """Whether the error means that the task's host is lost, and the executor goes on without it."""
        return False

    def _cancel_of(self, future: TaskFuture) -> bool:
        return future._number != 0 and self._connection.remote.revoke(self._pool, future._number)

    def _begin(self, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]) -> Sequence[Future[Any]]:
        """Submits calls, many to a request."""
        if self._inherited:
            self._make_own()
        futures: list[TaskFuture] = []
        batch: list[bytes] = []
        waiting: list[TaskFuture] = []
        size = 0

        def send() -> None:
            nonlocal size
            if not batch:
                return
            first = self._invoke(batch)
            for number, future in enumerate(waiting, first):
                future._number = number
            batch.clear()
            waiting.clear()
            size = 0

        body: Optional[int] = None
        of: object = None
        try:
            for fn, args, kwargs in calls:
                if body is None or of is not fn:
                    body, of = self._prepare(fn), fn
                _, task, future = self._task(body, args, kwargs, kept=waiting)
                futures.append(future)
                batch.append(task)
                size += len(task)
                if len(batch) >= _BATCH_MAX or size >= _BATCH_BYTES:
                    send()
            send()
        except BaseException:
            # Nobody waits for results of tasks that were not sent.
            for future in waiting:
                self._drop(future)
            raise
        return futures

    def on(self, label: Union[str, Iterable[str]]) -> Executor:
        """This executor, for tasks that run only on hosts with this label, or with all of these labels: `executor.on("gpu=a100").submit(train)`."""
        from millrace.executor import _labels

        needs = _labels.parse(label)
        if not self._shares:
            raise _native.error("MR7130", "labels belong to hosts, and these tasks do not run on hosts")
        has = _labels.of_host(self._connection.remote)
        if not needs.items() <= has.items():
            raise _labels.missing(needs, [(self._connection.address, has)])
        return self

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """Submits `fn(*args, **kwargs)`; returns a future of the result."""
        return self._begin([(fn, args, kwargs)])[0]

    def map(
        self, fn: Callable[..., R], *iterables: Iterable[Any], timeout: Optional[float] = None, chunksize: int = 1, **_: Any
    ) -> Iterator[R]:
        """Yields the results of `fn`, in order. Closing the iterator cancels calls that have not begun."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        deadline = None if timeout is None else time.monotonic() + timeout
        if chunksize > 1:
            calls = list(zip(*iterables))
            chunks = [calls[at : at + chunksize] for at in range(0, len(calls), chunksize)]
            futures = list(self._begin((_threads.chunk, (fn, chunk), {}) for chunk in chunks))
        else:
            futures = list(self._begin((fn, args, {}) for args in zip(*iterables)))

        def results() -> Iterator[Any]:
            try:
                futures.reverse()
                while futures:
                    left = None if deadline is None else max(0.0, deadline - time.monotonic())
                    # The result itself belongs to the caller alone.
                    if chunksize > 1:
                        yield from futures.pop().result(left)
                    else:
                        yield futures.pop().result(left)
            finally:
                for future in futures:
                    future.cancel()

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more tasks. With `wait`, returns when all tasks have ended. With `cancel_futures`, tasks that have not begun are cancelled."""
        with self._lock:
            first, self._shut = not self._shut, True
            left = list(self._futures.values())
        if cancel_futures:
            for future in left:
                future.cancel()
        if wait:
            self._end_once()
        elif first:
            threading.Thread(target=self._end_once, name="millrace-shutdown", daemon=True).start()

    def _end_once(self) -> None:
        """Waits for all tasks, and then ends what waits for results."""
        with self._ending:
            with self._lock:
                while self._broken is None and any(not future.done() for future in self._futures.values()):
                    self._idle.wait(_LOOK_S)
            if not self._detached:
                self._detached = True
                self._end()

    def _end(self) -> None:
        if not self._inherited:
            self._detach()
        for parts in self._large:
            parts.delete(self._connection.space)
        self._connection._executors.discard(self)
        if self._own:
            self._connection.close()

    def __reduce__(self) -> Any:
        raise TypeError("an executor cannot be pickled or sent to a task: a task cannot start other tasks; let the program submit them")

    def __repr__(self) -> str:
        return f"<millrace.Executor of pool {self._pool!r} at {self._connection.address!r}>"


#: The class, where a method of the same name hides it.
_Executor = Executor
#: Those that a forked child makes its own.
_living: weakref.WeakSet[Executor] = weakref.WeakSet()


def _in_forked_child() -> None:
    for executor in list(_living):
        executor._in_forked_child()


os.register_at_fork(after_in_child=_in_forked_child)
