"""Shared objects and executors for asyncio.

    import millrace.aio

    async with millrace.aio.connect("farm") as farm:
        await farm.AtomicInt("hits").add(5)
        async with farm.Lock("door") as token:
            ...
        async with farm.Executor() as executor:
            print(await executor.submit(pow, 2, 20))
        Accounts = await farm.shared(Account)
        await Accounts("account/ann", "Ann").pay(500)

Objects have the methods of `millrace.objects`, which are awaited. Calls use no threads: all calls of a connection wait at the host, over
one socket, or several if there are thousands. If a call is cancelled after the host has given it a lock, a permit or an item, it gives this
back; the item is then the first of its queue again. All other effects of the call stay.

A connection is to a host, at any address that `millrace.connect` accepts, or to several hosts of one cluster: if one is lost, the next one
is used. The event loop reads Unix sockets itself; a thread of the native module serves all other connections.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, Optional, Union

from millrace.aio import _messages
from millrace import executor as _executor
from millrace import objects as _objects
from millrace._open import PathOrAddress
from millrace._records import _native
from millrace._worker import Error
from millrace._worker import encode as _encode
from millrace.aio import _wire
from millrace.aio._awaited import Object, awaited
from millrace.aio._awaited import giving_back as _giving_back
from millrace.aio._awaited import unhurried as _unhurried
from millrace.aio._threads import CloudThread, parallel_for
from millrace.executor._hosts import SpreadExecutor, _PlacedFuture
from millrace.executor._labels import Labelled
from millrace.executor._results import TaskFuture
from millrace.objects import _classes, _spaces, _values

_Spread = Union[SpreadExecutor, Labelled]
_Place = Union[PathOrAddress, Sequence[PathOrAddress], None]

__all__ = ["CloudThread", "Connection", "Executor", "Object", "SharedClass", "awaited", "connect", "parallel_for"]


class SharedClass:
    """A shared class whose code a pool has: `SharedClass(key, ...)` is the object with that key, whose methods are awaited."""

    def __init__(self, sync: _classes.SharedClass, connection: Connection) -> None:
        self.sync = sync
        self._connection = connection

    def __call__(self, key: str, /, *args: Any, **kwargs: Any) -> Object:
        return Object(self.sync(key, *args, **kwargs), self._connection)

    def __repr__(self) -> str:
        return f"<millrace.aio.SharedClass {self.sync!r}>"


class _Space:
    """Calls objects, and numbers the calls so that each takes effect once: `objects._spaces.ClientSpace` for asyncio."""

    def __init__(self, wire: Union[_wire.Wire, _wire.Tunnel], application: Optional[str], lease: float) -> None:
        self._wire = wire
        #: It is replaced if its lease ends, and so is what follows.
        self._session = os.urandom(16)
        self._lease_ms = _spaces.milliseconds("lease", lease, 100)
        self.application = f"client-{os.urandom(8).hex()}" if application is None else application
        self._last = 0
        self._open: set[int] = set()
        self._renewing: Optional[asyncio.Task[None]] = None
        #: Whether the hosts of the cluster are known to have the session.
        self._is_shared = False
        self._sharing = asyncio.Lock()
        self._replacing = asyncio.Lock()
        self._held = _spaces.Held()
        self._is_closed = False

    async def share(self, touch: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Registers the session with the hosts of the cluster by a call that is safe to repeat: until then, it is lost with its host."""
        async with self._sharing:
            while not self._is_shared:
                session = self._session
                try:
                    await touch()
                except Error as error:
                    # The host was lost meanwhile. It is made again, in another session if need be.
                    if error.code == _spaces._OUTCOME_UNKNOWN:
                        continue
                    raise
                self._is_shared = self._session == session

    async def start(self) -> None:
        await self._lease(self._lease_ms, False)
        self._renewing = asyncio.create_task(self._renew())

    async def _replace(self, over: bytes) -> None:
        """Opens another session in the place of one that has ended."""
        async with self._replacing:
            if self._session != over or self._is_closed:
                return
            session = os.urandom(16)
            await self._lease(self._lease_ms, False, session)
            self._session, self._last, self._open, self._is_shared = session, 0, set(), False
            self._held.lose()

    async def _lease(self, lease_ms: int, resume: bool, session: Optional[bytes] = None) -> None:
        message: dict[str, Any] = {"session": session or self._session, "lease_ms": lease_ms}
        if self.application:
            message["application"] = self.application
        if resume:
            message["resume"] = True
        await self._wire.insist(_messages.SESSION, message)

    async def _renew(self) -> None:
        refused = False
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            session = self._session
            try:
                await self._lease(self._lease_ms, True, session)
                refused = False
            except Error as error:
                if error.code == "MR7110" and (refused or not self._is_shared):
                    with contextlib.suppress(Error):
                        await self._replace(session)
                # A host that takes the place of another one may hear of the session only now.
                refused = error.code == "MR7110" and not refused

    async def close(self, well: bool = True) -> None:
        self._is_closed = True
        if self._renewing is not None:
            self._renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewing
        with contextlib.suppress(Exception):
            # Without a word from it, the host takes it for dead.
            await self._lease(0 if well else 1, True)

    async def answer(
        self, arguments: tuple[Any, ...], timeout: Optional[float]
    ) -> tuple[int, Any, Optional[BaseException]]:
        """The incarnation and value of a call, or its exception. If the caller is cancelled, an item or lock is given back."""
        target, encoded = arguments[0], arguments[1]
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            session, begun = self._session, [False]
            self._held.check(target, encoded)
            try:
                found = await self._answer_in(session, arguments, deadline, begun)
            except Error as error:
                if not await self._is_over(session, error, target):
                    raise
                await self._replace(session)
                if begun[0] and (target[0], target[2]) not in _spaces._REPEATABLE:
                    told = f"the lease of this program ended while {target[2]} of {target[0]} '{target[1]}' waited"
                    raise _native.error(_spaces._OUTCOME_UNKNOWN, told) from error
                continue
            if found[2] is None:
                self._held.note(target, encoded, found[1])
            return found

    async def _is_over(self, session: bytes, error: Error, target: tuple[str, str, str]) -> bool:
        """Whether a call failed because its session has ended, and another one may be opened for it."""
        code = error.code
        if code == _spaces._OUTCOME_UNKNOWN and (target[0], target[2]) in _spaces._REPEATABLE:
            # The connection was lost meanwhile. If the session is there, so is what the call got.
            try:
                await self._lease(self._lease_ms, True, session)
            except Error as why:
                code = why.code
        return code == _spaces._SESSION_OVER and not self._is_closed

    async def _answer_in(
        self, session: bytes, arguments: tuple[Any, ...], deadline: Optional[float], begun: list[bool]
    ) -> tuple[int, Any, Optional[BaseException]]:
        """Makes a call in a session. `begun[0]` is set once the host has said that the call waits."""
        (kind, key, method), encoded, new, incarnation, flags, fence = arguments
        loop, now_open = asyncio.get_running_loop(), self._open
        self._last += 1
        number = self._last
        now_open.add(number)
        message = {
            "session": session,
            "call": number,
            "acked": min(now_open),
            "kind": kind,
            "key": key,
            "method": method,
            "arguments": encoded,
        }
        message |= {"new": new} if new else {}
        message |= {"incarnation": incarnation} if incarnation else {}
        message |= {"must_exist": True} if flags & _spaces.MUST_EXIST else {}
        message |= {"must_create": True} if flags & _spaces.MUST_CREATE else {}
        message |= {"persistent": True} if flags & _spaces.PERSISTENT else {}
        message |= {"rf": flags >> _spaces.COPIES_SHIFT} if flags >> _spaces.COPIES_SHIFT else {}
        message |= _fence(fence)
        try:
            while True:
                left = _spaces._SLICE_S if deadline is None else deadline - loop.time()
                found = await self._once(message, left)
                if found is not None:
                    return found
                begun[0] = True
        except asyncio.CancelledError:
            await _unhurried(self._take_back(message))
            raise
        finally:
            now_open.discard(number)

    async def _once(self, message: dict[str, Any], left: float) -> Optional[tuple[int, Any, Optional[BaseException]]]:
        """The outcome of one request; None if the call still waits."""
        over = left <= 0
        wait_ms = int(min(_spaces._SLICE_S if over else left, _spaces._SLICE_S) * 1000) + 1
        asked = {**message, "wait_ms": wait_ms, **({"give_up": True} if over else {})}
        kind, answer = await self._wire.insist(_messages.CALL, asked)
        if kind == _messages.RAISED:
            return answer["incarnation"], None, _spaces._raised(answer["class"], answer.get("text", ""))
        if answer.get("waiting"):
            return None
        return answer["incarnation"], _values.decode(answer["value"]), None

    async def _take_back(self, message: dict[str, Any]) -> None:
        """Handles a cancelled caller: the call gives up, and an item or lock that it already got is returned."""
        found = None
        while found is None:
            # A condition's waiter continues until it has the lock again, as with asyncio.
            found = await self._once(message, 0)
        _, value, error = found
        back = None if error is not None else _giving_back(message["kind"], message["method"], message["arguments"], value)
        if back is not None:
            await self.answer(((message["kind"], message["key"], back[0]), back[1], b"", 0, 0, None), None)


def _fence(fence: Optional[tuple[str, int]]) -> dict[str, Any]:
    """The fence of a message."""
    if fence is None:
        return {}
    name, token = fence
    return {"fence": {"name": name, "token": token}}


class Connection:
    """A host's shared objects and workers for asyncio. See `connect`."""

    def __init__(self, place: _Place, app: Optional[str], lease: float, ca: Optional[PathOrAddress]) -> None:
        self._place, self._app, self._lease, self._ca = place, app, lease, ca
        self._sync: Optional[_executor.Connection] = None
        self._callbacks: set[asyncio.Task[None]] = set()
        self._forks = _spaces.forks()

    async def _start(self) -> Connection:
        # Starting a private host takes a thread, once.
        self._sync = await asyncio.to_thread(_executor.connect, self._place, app=self._app, lease=self._lease, ca=self._ca)
        try:
            places = self._sync.addresses
            if all(place.startswith("unix:") for place in places):
                self._wire: Union[_wire.Wire, _wire.Tunnel] = _wire.Wire([place[len("unix:") :] for place in places])
            else:
                self._wire = _wire.Tunnel(places, self._sync._ca)
            await self._wire.connect()
            self._space = _Space(self._wire, self._sync.application, self._lease)
            await self._space.start()
        except BaseException:
            await asyncio.to_thread(self._sync.close)
            raise
        return self

    def __await__(self) -> Any:
        return self._start().__await__()

    @property
    def application(self) -> str:
        """The name of the application. Its objects are deleted when its last connection is closed."""
        return self._space.application

    @property
    def address(self) -> str:
        """The address of the host."""
        assert self._sync is not None, "the connection was not awaited"
        return self._sync.address

    def Executor(self, **settings: Any) -> Executor:
        """An executor with workers of this host."""
        return Executor(self, **settings)

    async def shared(self, cls: type, *, executor: Optional[_Executor] = None, **how: Any) -> SharedClass:
        """A class marked with `@millrace.shared`, as for `millrace.Connection`: `await (await farm.shared(Gate))("front", 3).enter()`."""
        sync = self._sync
        assert sync is not None, "the connection was not awaited"
        if executor is not None:
            how["executor"] = executor._sync
        # Sending the class takes a thread, once.
        return SharedClass(await asyncio.to_thread(lambda: sync.shared(cls, **how)), self)

    async def shared_module(self, path: PathOrAddress, **how: Any) -> SharedClass:
        """A class in WebAssembly, as with `millrace.Connection.shared_module`."""
        sync = self._sync
        assert sync is not None, "the connection was not awaited"
        return SharedClass(await asyncio.to_thread(lambda: sync.shared_module(path, **how)), self)

    async def append(
        self, log: str, data: object, *, key: Optional[str] = None, fence: Optional[tuple[str, int]] = None
    ) -> int:
        """Appends a record to a log of the host's namespace, and returns its number: see `millrace.Connection.append`."""
        message = {"log": log, "data": _encode(data), "key": key or f"append:{os.urandom(12).hex()}", **_fence(fence)}
        _, answer = await self._wire.insist(_messages.APPEND, message)
        return int(answer["seqno"])

    async def delete(self, reference: Object) -> bool:
        """Deletes an object; returns whether it existed. Calls that wait for it raise `millrace.Gone`."""
        return bool(await reference._run(type(reference.sync)._delete))

    def __getattr__(self, name: str) -> Any:
        if name not in _objects.__all__ or name == "Object":
            raise AttributeError(f"a connection has no {name!r}")
        kind = getattr(_objects, name)

        def make(key: str, *args: Any, persistent: bool = False, rf: int = 1, **named: Any) -> Object:
            flags = _executor._persistence(persistent, rf)
            made = kind(key, *args, **named)
            made._flags = flags
            return Object(made, self)

        make.__name__, make.__doc__ = name, kind.__doc__
        return make

    async def close(self) -> None:
        """Releases this program's locks, then deletes its objects. Permits of semaphores that it has acquired stay so."""
        await self._close(True)

    async def _close(self, well: bool) -> None:
        if self._sync is not None and self._forks == _spaces.forks():
            for task in self._callbacks:
                task.cancel()
            await self._space.close(well)
            await self._wire.close()
            sync, self._sync = self._sync, None
            await asyncio.to_thread(sync.close)

    async def __aenter__(self) -> Connection:
        return await self._start()

    async def __aexit__(self, kind: Optional[type[BaseException]], *_: object) -> None:
        await self._close(kind is None)


def connect(
    place: _Place = None, *, app: Optional[str] = None, lease: float = 10.0, ca: Optional[PathOrAddress] = None
) -> Connection:
    """Connects to a host: `async with millrace.aio.connect(...) as farm`, or `farm = await millrace.aio.connect(...)`.

    Arguments are those of `millrace.connect`.
    """
    return Connection(place, app, lease, ca)


class Executor:
    """A `millrace.Executor` for asyncio: `async with farm.Executor() as executor`.

    With one host, calls go over the connection of the event loop. With several hosts, or labels, a thread sends the calls in groups;
    results need no thread.
    """

    def __init__(self, connection: Connection, **settings: Any) -> None:
        self._connection, self._settings = connection, settings
        self._sync: Optional[_executor.Executor] = None
        self._bodies: dict[bytes, asyncio.Future[int]] = {}
        self._pending: dict[bytes, asyncio.Future[Any]] = {}
        self._revoking: set[asyncio.Task[None]] = set()
        #: The futures of calls, and what is done once the host has them.
        self._calls: weakref.WeakKeyDictionary[asyncio.Task[Any], tuple[TaskFuture, asyncio.Future[Any]]] = weakref.WeakKeyDictionary()
        #: What is to be placed on several hosts, and whether a thread does so now.
        self._ready: list[_PlacedFuture] = []
        self._placing: Optional[asyncio.Task[None]] = None
        self._forks = _spaces.forks()

    async def __aenter__(self) -> Executor:
        sync = self._connection._sync
        assert sync is not None, "the connection was not awaited"
        self._sync = await asyncio.to_thread(lambda: _executor.Executor(sync, **self._settings))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Submits `fn(*args, **kwargs)`; returns a task to await. Cancelling the task cancels the call, if it has not begun."""
        if self._sync is None:
            raise RuntimeError("cannot schedule new futures after shutdown")
        _spaces.refuse_inherited(self._forks, "the executor")
        return asyncio.get_running_loop().create_task(self._run(self._sync, fn, args, kwargs))

    async def map(self, fn: Callable[..., Any], *iterables: Iterable[Any]) -> AsyncIterator[Any]:
        """Yields the results of `fn`, in order. Closing the iterator cancels calls that have not begun."""
        tasks: list[asyncio.Task[Any]] = []
        try:
            for args in zip(*iterables):
                tasks.append(self.submit(fn, *args))
            for task in tasks:
                yield await task
        finally:
            for task in tasks:
                task.cancel()

    async def on(self, label: Union[str, Iterable[str]]) -> Executor:
        """This executor, for tasks that run only on hosts with this label, or with all of these labels: `(await executor.on("gpu=a100")).submit(train)`."""
        if self._sync is None:
            raise RuntimeError("cannot schedule new futures after shutdown")
        made = _Labelled(self._connection)
        made._of, made._sync = self, await asyncio.to_thread(self._sync.on, label)
        return made

    async def _run(self, sync: _executor.Executor, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if isinstance(sync, (SpreadExecutor, Labelled)):
            return await self._spread(sync, fn, args, kwargs)
        body = await self._body(sync, fn)
        try:
            id, task, future = sync._task(body, args, kwargs, large=False)
        except Error as error:
            if error.code != sync._limit_code or not sync._keeps_large:
                raise
            # Sending what is longer than a record takes a thread.
            id, task, future = await asyncio.to_thread(sync._task, body, args, kwargs)
        done = _end_of(future)
        invoking = asyncio.ensure_future(self._invoke(sync, [task], False))
        self._note(future, invoking)
        try:
            # The host may have the task already when the caller is cancelled: its number is needed to revoke it.
            future._number = await asyncio.shield(invoking)
            await done
        except BaseException:
            with sync._lock:
                sync._futures.pop(id, None)
                sync._idle.notify_all()
            self._later(self._revoke(sync, invoking, future))
            raise
        return future.result()

    async def _spread(self, sync: _Spread, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        future = sync._ready(sync._body(fn), args, kwargs, sync._needs)
        self._ready.append(future)
        if self._placing is None:
            self._placing = asyncio.get_running_loop().create_task(self._place(sync))
        self._note(future, self._placing)
        try:
            await _end_of(future)
        except asyncio.CancelledError:
            self._later(self._cancel(future))
            raise
        return future.result()

    def _note(self, future: TaskFuture, sent: asyncio.Future[Any]) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._calls[task] = future, sent

    async def _stop(self, task: asyncio.Task[Any]) -> bool:
        """Ends a call, also if a worker runs it. Returns whether it had not ended."""
        call = self._calls.get(task)
        if call is None:
            # Nothing was sent.
            return task.cancel()
        future, sent = call
        await asyncio.wait([sent])
        return not task.done() and await asyncio.to_thread(future.stop)

    def _later(self, revoke: Coroutine[Any, Any, None]) -> None:
        """Revokes a call without making its caller wait."""
        revoking = asyncio.get_running_loop().create_task(revoke)
        self._revoking.add(revoking)
        revoking.add_done_callback(self._revoking.discard)

    async def _place(self, sync: _Spread) -> None:
        """Sends calls, together with those that are submitted meanwhile."""
        while self._ready:
            futures, self._ready = self._ready, []
            await asyncio.to_thread(sync._place_each, futures)
        self._placing = None

    async def _cancel(self, future: _PlacedFuture) -> None:
        # It may be on its way, and then has no number yet that it could be revoked by.
        if self._placing is not None:
            await asyncio.wait([self._placing])
        with contextlib.suppress(Error):
            await asyncio.to_thread(future.cancel)

    async def _invoke(self, sync: _executor.Executor, tasks: list[bytes], bodies: bool) -> int:
        _executor._check(tasks, bodies)
        message: dict[str, Any] = {"pool": sync._pool, "tasks": tasks, "key": f"task:{os.urandom(12).hex()}"}
        message |= {"bodies": True} if bodies else {}
        _, answer = await self._connection._wire.insist(_messages.INVOKE, message)
        return int(answer["first"])

    async def _revoke(self, sync: _executor.Executor, invoking: asyncio.Future[int], future: TaskFuture) -> None:
        with contextlib.suppress(Error):
            number = await invoking
            await self._connection._wire.insist(_messages.REVOKE, {"pool": sync._pool, "task": number})
        if future._parts is not None:
            await asyncio.to_thread(future._free)

    async def _body(self, sync: _executor.Executor, fn: Callable[..., Any]) -> int:
        """The number of a function's body, which is sent once, however many calls need it."""
        try:
            digest, body = sync._body(fn)
        except Error as error:
            if error.code != sync._limit_code or not sync._keeps_large:
                raise
            return await asyncio.to_thread(sync._prepare, fn)
        shipped = self._bodies.get(digest)
        if shipped is None:
            shipped = self._bodies[digest] = asyncio.ensure_future(self._invoke(sync, [body], True))
        try:
            return await asyncio.shield(shipped)
        except Error:
            self._bodies.pop(digest, None)
            raise

    async def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more tasks. With `wait`, returns when all tasks have ended. With `cancel_futures`, tasks that have not begun are cancelled.
        """
        sync, self._sync = self._sync, None
        if self._forks != _spaces.forks():
            return
        if self._placing is not None:
            await asyncio.wait([self._placing])
        if self._revoking:
            await asyncio.wait(self._revoking)
        if sync is not None:
            await asyncio.to_thread(lambda: sync.shutdown(wait, cancel_futures=cancel_futures))


def _end_of(future: concurrent.futures.Future[Any]) -> asyncio.Future[None]:
    """A future of the end of a call, which can be cancelled without cancelling the call."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not done.done():
            done.set_result(None)

    def ended(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(ended)
    return done


class _Labelled(Executor):
    """An executor whose tasks need labels; the one that it is of sends them."""

    _of: Executor

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        if self._sync is None or self._of._sync is None:
            raise RuntimeError("cannot schedule new futures after shutdown")
        _spaces.refuse_inherited(self._forks, "the executor")
        return asyncio.get_running_loop().create_task(self._of._run(self._sync, fn, args, kwargs))

    async def _stop(self, task: asyncio.Task[Any]) -> bool:
        return await self._of._stop(task)

    async def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing: the tasks belong to the executor, which continues."""


#: The class, where a method of the same name hides it.
_Executor = Executor
