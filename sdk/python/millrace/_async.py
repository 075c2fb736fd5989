"""A namespace for programs that use asyncio.

Calls that cannot block are executed on the event loop: an append to mapped files takes less time than passing it to a thread.
Appends and reads through a host share one connection, and are in flight at the same time. Threads that belong to the namespace
execute all other calls; each tail has its own thread while it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, overload

from millrace._log import ClientTable, Entry, Log
from millrace._namespace import HISTORY_DEFAULT, LocalNamespace, Namespace, Records, RemoteNamespace
from millrace._open import PathOrAddress, open
from millrace._records import StoredRecord, _native
from millrace import _views
from millrace._views import Deployed, Device, DeviceUpdate, FunctionStat, LogStat, RefusedDevice, Run, TableStat, Why
from millrace._work._tables import TableEntry
from millrace._worker import encode
from millrace.objects import _spaces

if TYPE_CHECKING:
    from millrace._work._tables import Key
    from millrace._worker import Handler
    from millrace.codecs import Codec
    from millrace.topics import Topic, TopicStat

T = TypeVar("T")
R = TypeVar("R")

#: Calls that may wait at the same time.
_THREADS = 32
#: Most records that a tail takes from its thread at once.
_BATCH_MAX = 256


#: Entries of a table that are read at once.
_TABLE_PAGE = 1000


class AsyncRecords(AsyncIterator[StoredRecord]):
    """Records of a log as they are read. To resume a tail later, pass its `next` and `incarnation` to `tail`."""

    def __init__(self, read: Callable[[], Records], threads: ThreadPoolExecutor, own: Optional[ThreadPoolExecutor]) -> None:
        self._read = read
        self._threads = threads
        self._own = own
        self._records: Optional[Records] = None
        self._batch: deque[StoredRecord] = deque()
        self._closed = False
        self._forks = _spaces.forks()
        #: The number of the next record; 0 before the first request.
        self.next = 0
        #: The log's incarnation; 0 before the first record.
        self.incarnation = 0

    def __aiter__(self) -> AsyncRecords:
        return self

    async def __anext__(self) -> StoredRecord:
        if not self._batch:
            await self._fill()
        if not self._batch:
            self._close()
            raise StopAsyncIteration
        record = self._batch.popleft()
        self.next = record.seqno + 1
        return record

    async def _fill(self) -> None:
        """Reads a batch in a thread."""
        if self._closed:
            return
        _spaces.refuse_inherited(self._forks, "the iteration")
        run = asyncio.get_running_loop().run_in_executor
        try:
            if self._records is None:
                self._records = await run(self._threads, self._read)
                self.next = self._records.next
            self._batch.extend(await run(self._threads, self._records.batch, _BATCH_MAX))
            self.incarnation = self._records.incarnation
        except BaseException:
            # The thread may have taken records that are no longer needed.
            self._close()
            raise

    def _close(self) -> None:
        self._closed = True
        self._batch.clear()
        if self._records is not None:
            self._records.close()  # So the thread does not wait any longer.
        if self._own is not None and self._forks == _spaces.forks():
            self._own.shutdown(wait=False)

    async def aclose(self) -> None:
        """Closes it; closing twice has no effect."""
        self._close()

    def __del__(self) -> None:
        self._close()


class AsyncNamespace:
    """An open namespace for asyncio: `async with millrace.aopen(...) as ns`. `sync` is the same namespace without asyncio."""

    def __init__(self, namespace: Namespace) -> None:
        self.sync = namespace
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="millrace")
        self._prompt = isinstance(namespace, LocalNamespace) and namespace.durability == "memory"
        self._pipeline: Optional[_native.Pipeline] = None
        self._waiting: set[asyncio.Future[Any]] = set()
        self._forks = _spaces.forks()
        if isinstance(namespace, RemoteNamespace):
            self._pipeline = _native.Pipeline(namespace.address, namespace.ca)
            asyncio.get_running_loop().add_reader(self._pipeline.fileno(), self._pipeline.drain)

    def _check_process(self) -> None:
        _spaces.refuse_inherited(self._forks, f"the namespace '{self.sync.address}', which was opened for asyncio,")

    async def _call(self, f: Callable[..., R], *arguments: Any, **named: Any) -> R:
        self._check_process()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(f, *arguments, **named))

    async def _send(self, send: Callable[..., _native.Request], *arguments: Any) -> Any:
        """Sends a request through the pipeline, beside all others, and waits for its answer."""
        self._check_process()
        if self.sync.closed:
            raise _native.error("MR6106", f"the namespace '{self.address}' is closed")
        future = asyncio.get_running_loop().create_future()
        request = send(future, *arguments)
        self._waiting.add(future)
        try:
            return await future
        except asyncio.CancelledError:
            request.cancel()
            raise
        finally:
            self._waiting.discard(future)

    @property
    def address(self) -> str:
        """The address or the directory of the namespace."""
        return self.sync.address

    @property
    def durability(self) -> str:
        """The default durability of an append."""
        return self.sync.durability

    async def append(
        self,
        log: str,
        data: object,
        *,
        function: Optional[str] = None,
        durability: Optional[str] = None,
        key: Optional[str] = None,
        fence: Optional[tuple[str, int]] = None,
        cause: Optional[str] = None,
        patience: float = 0.0,
    ) -> int:
        """Appends a record and returns its number, once it has the requested durability. See `Namespace.append`."""
        if self._prompt and durability != "disk" and not patience:
            return self.sync.append(
                log, data, function=function, durability=durability, key=key, fence=fence, cause=cause
            )
        if self._pipeline is not None and not patience:
            number: int = await self._send(self._pipeline.append, log, data, function, durability, key, cause, fence)
            return number
        return await self._call(
            self.sync.append,
            log,
            data,
            function=function,
            durability=durability,
            key=key,
            fence=fence,
            cause=cause,
            patience=patience,
        )

    async def append_many(
        self,
        records: Iterable[tuple[str, object]],
        *,
        durability: Optional[str] = None,
        key: Optional[str] = None,
        fence: Optional[tuple[str, int]] = None,
        patience: float = 0.0,
    ) -> list[int]:
        """Appends (log, data) pairs, many per commit, and returns their numbers."""
        return await self._call(
            self.sync.append_many, records, durability=durability, key=key, fence=fence, patience=patience
        )

    async def get(self, log: str, seqno: Optional[int] = None, *, wait: float = 0.0) -> StoredRecord:
        """Returns the record with this number, or the newest; waits for it for at most `wait` seconds."""
        if self._prompt and not wait:
            return self.sync.get(log, seqno)
        if self._pipeline is not None:
            record: StoredRecord = await self._send(self._pipeline.get, log, seqno, wait)
            return record
        return await self._call(self.sync.get, log, seqno, wait=wait)

    async def latest(self, log: str) -> int:
        """The number of the newest record, 0 if there is none."""
        if self._prompt:
            return self.sync.latest(log)
        if self._pipeline is not None:
            number: int = await self._send(self._pipeline.latest, log)
            return number
        return await self._call(self.sync.latest, log)

    def range(self, log: str, start: Optional[int] = None, stop: Optional[int] = None) -> AsyncRecords:
        """The records from `start` up to, but not including, `stop`. See `Namespace.range`."""
        self._check_process()
        return AsyncRecords(functools.partial(self.sync.range, log, start, stop), self._threads, None)

    def tail(
        self, log: str, start: Optional[int] = None, *, timeout: Optional[float] = None, incarnation: int = 0
    ) -> AsyncRecords:
        """The records from `start` on, and then each new one. See `Namespace.tail`."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="millrace-tail")
        tail = functools.partial(self.sync.tail, log, start, timeout=timeout, incarnation=incarnation)
        return AsyncRecords(tail, thread, thread)

    async def create_log(
        self,
        name: str,
        history: Optional[int] = HISTORY_DEFAULT,
        *,
        time: Optional[str] = None,
        unit: Optional[str] = None,
    ) -> None:
        """Creates a log that keeps its `history` newest records, or with None all of them until they are trimmed.

        If the log exists with the same history, nothing changes, except that it gets the `time` that is given.
        """
        await self._call(functools.partial(self.sync.create_log, time=time, unit=unit), name, history)

    async def set_time(self, log: str, time: Optional[str], unit: Optional[str] = None) -> None:
        """Says which field of a log's records has the time of the observation. See `Namespace.set_time`."""
        await self._call(self.sync.set_time, log, time, unit)

    async def set_history(self, name: str, history: Optional[int]) -> None:
        """Changes how many of its newest records the log keeps. See `Namespace.set_history`."""
        await self._call(self.sync.set_history, name, history)

    async def remove_log(self, name: str) -> None:
        """Removes a log; raises `Conflict` if a function is bound to it, or if its records have pending runs."""
        await self._call(self.sync.remove_log, name)

    async def create_table(
        self,
        name: str,
        codec: str = "json",
        *,
        keys: str = "text",
        ttl: Optional[float] = None,
        history: Optional[int] = HISTORY_DEFAULT,
    ) -> AsyncTable:
        """Creates a table and returns it. See `Namespace.create_table`."""
        create = functools.partial(self.sync.create_table, keys=keys, ttl=ttl, history=history)
        return AsyncTable(self, await self._call(create, name, codec))

    async def table(self, name: str) -> AsyncTable:
        """The table with this name."""
        return AsyncTable(self, await self._call(self.sync.table, name))

    async def tables(self) -> list[TableStat]:
        """Every table, by name."""
        return await self._call(self.sync.tables)

    async def logs(self) -> list[LogStat]:
        """Every log, by name."""
        return await self._call(self.sync.logs)

    @overload
    async def log(self, name: str) -> AsyncLog[bytes]: ...
    @overload
    async def log(self, name: str, codec: Codec[T]) -> AsyncLog[T]: ...
    async def log(self, name: str, codec: Optional[Codec[Any]] = None) -> AsyncLog[Any]:
        """The log with this name, as values that the codec decodes; without a codec, they are bytes."""
        if codec is None:
            return AsyncLog(self, await self._call(self.sync.log, name))
        return AsyncLog(self, await self._call(self.sync.log, name, codec))

    async def create_topic(
        self,
        name: str,
        history: Optional[int] = HISTORY_DEFAULT,
        *,
        durability: str = "quorum",
        group: Optional[str] = None,
        engine: str = "builtin",
        beside: Optional[str] = None,
        near: Optional[str] = None,
        here: bool = False,
        site: Optional[str] = None,
        spread: bool = False,
    ) -> str:
        """Creates a topic. See `Namespace.create_topic`."""
        settings: dict[str, Any] = {"durability": durability, "group": group, "engine": engine}
        place: dict[str, Any] = {"beside": beside, "near": near, "here": here, "site": site, "spread": spread}
        return await self._call(self.sync.create_topic, name, history, **settings, **place)

    async def remove_topic(self, name: str) -> None:
        """Removes a topic with its records, subscriptions and feeds. Its name can be used again."""
        await self._call(self.sync.remove_topic, name)

    async def topics(self) -> list[TopicStat]:
        """Every topic of the cluster, by name."""
        return await self._call(self.sync.topics)

    @overload
    async def topic(self, name: str) -> AsyncTopic[bytes]: ...
    @overload
    async def topic(self, name: str, codec: Codec[T]) -> AsyncTopic[T]: ...
    async def topic(self, name: str, codec: Optional[Codec[Any]] = None) -> AsyncTopic[Any]:
        """The topic with this name, as values that the codec decodes; without a codec, they are bytes."""
        if codec is None:
            return AsyncTopic(self, await self._call(self.sync.topic, name))
        return AsyncTopic(self, await self._call(self.sync.topic, name, codec))

    async def functions(self) -> list[FunctionStat]:
        """Every function, by name."""
        return await self._call(self.sync.functions)

    async def devices(self) -> list[Device]:
        """Every device that has sent records to the namespace, by name."""
        return await self._call(self.sync.devices)

    async def device(self, name: str) -> Device:
        """One device."""
        return await self._call(self.sync.device, name)

    async def refused_devices(self) -> list[RefusedDevice]:
        """Every device that is refused. See `Namespace.refused_devices`."""
        return await self._call(self.sync.refused_devices)

    async def update_device(self, name: str, image: bytes, *, version: Optional[str] = None, wait: float = 0.0) -> DeviceUpdate:
        """Sends new firmware to a device. See `Namespace.update_device`."""
        return await self._call(self.sync.update_device, name, image, version=version, wait=wait)

    async def runs(self, **chosen: Any) -> list[Run]:
        """The newest runs, newest first. See `Namespace.runs`."""
        return await self._call(self.sync.runs, **chosen)

    async def run(self, id: str) -> Run:
        """One run: what caused it, what it read and appended, how it ended."""
        return await self._call(self.sync.run, id)

    async def invoke(
        self,
        function: str,
        value: object = b"",
        *,
        wait: float = 30.0,
        log: Optional[str] = None,
        durability: Optional[str] = None,
        key: Optional[str] = None,
        cause: Optional[str] = None,
    ) -> Any:
        """Runs a function for a record and returns what the function returned. See `Namespace.invoke`."""
        if self._pipeline is None or cause is not None:
            how: dict[str, Any] = {"wait": wait, "log": log, "durability": durability, "key": key, "cause": cause}
            return await self._call(self.sync.invoke, function, value, **how)
        # All calls through a host wait there, over one connection.
        from millrace.aio import _wire

        wait_ms = min(max(int(wait * 1000), 1), 300_000)
        message: dict[str, Any] = {"function": function, "data": encode(value), "wait_ms": wait_ms}
        options = {"log": log, "durability": durability, "key": key}
        message |= {name: option for name, option in options.items() if option is not None}
        frame = await self._send(self._pipeline.ask, _wire.invocation(message), wait_ms)
        return _views.answer(function, wait, _wire.invoked(frame))

    async def cancel_run(self, id: str) -> None:
        """Cancels a run that has not ended. See `Namespace.cancel_run`."""
        await self._call(self.sync.cancel_run, id)

    async def why(self, target: str = "") -> Why:
        """Explains what the namespace, a log, a function or a run waits for. See `Namespace.why`."""
        return await self._call(self.sync.why, target)

    async def deploy(self, handler: Handler, *, source: Optional[str] = None, **settings: Any) -> Deployed:
        """Deploys a function. See `Namespace.deploy`."""
        return await self._call(self.sync.deploy, handler, source=source, **settings)

    async def remove_function(self, name: str, force: bool = False) -> int:
        """Removes a function. With `force` its pending runs become dead letters; returns how many."""
        return await self._call(self.sync.remove_function, name, force)

    async def wait_idle(self, timeout: float) -> None:
        """Returns when no run is pending; raises `TimedOut` after `timeout` seconds."""
        await self._call(self.sync.wait_idle, timeout)

    async def close(self) -> None:
        """Closes it; closing twice has no effect."""
        if self._forks != _spaces.forks():
            self.sync.close()
            return
        if self._pipeline is not None and not self.sync.closed:
            asyncio.get_running_loop().remove_reader(self._pipeline.fileno())
            for future in self._waiting:
                if not future.done():
                    detail = f"the namespace '{self.address}' was closed meanwhile"
                    future.set_exception(_native.error("MR6106", detail))
        self._threads.shutdown(wait=False)
        await asyncio.get_running_loop().run_in_executor(None, self.sync.close)

    async def __aenter__(self) -> AsyncNamespace:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<millrace.AsyncNamespace {self.address!r}{' (closed)' if self.sync.closed else ''}>"


class AsyncLog(Generic[T]):
    """A log of an `AsyncNamespace`, as values of its codec."""

    def __init__(self, namespace: AsyncNamespace, log: Log[T]) -> None:
        self.namespace = namespace
        self.sync = log

    @property
    def name(self) -> str:
        """Its name."""
        return self.sync.name

    async def append(self, value: T, *, durability: Optional[str] = None, patience: float = 0.0) -> int:
        """Appends a value and returns its number."""
        data = self.sync.encode(value)
        return await self.namespace.append(self.name, data, durability=durability, patience=patience)

    async def append_many(self, values: Iterable[T], *, durability: Optional[str] = None) -> list[int]:
        """Appends values, many per commit, and returns their numbers."""
        return await self.namespace._call(self.sync.append_many, values, durability=durability)

    async def get(self, seqno: Optional[int] = None, *, wait: float = 0.0) -> Entry[T]:
        """Returns the entry with this number, or the newest; waits for it for at most `wait` seconds."""
        return self.sync.entry(await self.namespace.get(self.name, seqno, wait=wait))

    def range(self, start: Optional[int] = None, stop: Optional[int] = None) -> AsyncGenerator[Entry[T], None]:
        """The entries from `start` up to, but not including, `stop`."""
        return self._entries(self.namespace.range(self.name, start, stop))

    def tail(
        self, start: Optional[int] = None, *, timeout: Optional[float] = None
    ) -> AsyncGenerator[Entry[T], None]:
        """The entries from `start` on, and then each new one."""
        return self._entries(self.namespace.tail(self.name, start, timeout=timeout))

    async def _entries(self, records: AsyncRecords) -> AsyncGenerator[Entry[T], None]:
        async with contextlib.aclosing(records):
            async for record in records:
                yield self.sync.entry(record)

    def __repr__(self) -> str:
        return f"<millrace.AsyncLog {self.name!r} of {self.namespace.address!r}, {self.sync.codec!r}>"


class AsyncTable:
    """The same methods as `Table`, as coroutines: `await table.get(key)`, `async for key, value in table.scan()`."""

    __slots__ = ("namespace", "sync")

    def __init__(self, namespace: AsyncNamespace, sync: ClientTable) -> None:
        self.namespace = namespace
        self.sync = sync

    @property
    def name(self) -> str:
        """The name of the table."""
        return self.sync.name

    @property
    def codec(self) -> str:
        """What its values are: "bytes", "text" or "json"."""
        return self.sync.codec

    @property
    def token(self) -> Optional[str]:
        """The token of the last answer. See `ClientTable`."""
        return self.sync.token

    async def get(self, key: Key, default: Any = None, *, after: Optional[str] = None) -> Any:
        """The value of a key, or `default`. See `Table.get`."""
        return await self.namespace._call(self.sync.get, key, default, after=after)

    async def entry(self, key: Key, *, after: Optional[str] = None) -> Optional[TableEntry]:
        """The value of a key with its version, or None."""
        return await self.namespace._call(self.sync.entry, key, after=after)

    async def put(
        self, key: Key, value: object, *, ttl: Optional[float] = None, if_version: Optional[int] = None, if_absent: bool = False
    ) -> int:
        """Sets the value of a key. See `Table.put`."""
        put = functools.partial(self.sync.put, ttl=ttl, if_version=if_version, if_absent=if_absent)
        return await self.namespace._call(put, key, value)

    async def delete(self, key: Key, *, if_version: Optional[int] = None) -> bool:
        """Deletes the value of a key. Returns whether it had one."""
        return await self.namespace._call(self.sync.delete, key, if_version=if_version)

    async def increment(self, key: Key, amount: int = 1) -> Optional[int]:
        """Adds to the whole number that a key has, or to 0. Returns the sum."""
        return await self.namespace._call(self.sync.increment, key, amount)

    async def scan(
        self,
        prefix: Key = "",
        *,
        start: Optional[Key] = None,
        stop: Optional[Key] = None,
        limit: Optional[int] = None,
        after: Optional[str] = None,
    ) -> AsyncIterator[tuple[Any, Any]]:
        """Keys and values in order. See `Table.scan`."""
        found = self.sync.scan(prefix, start=start, stop=stop, limit=limit, after=after)
        # One page at a time, so that no page is read on the event loop.
        while page := await self.namespace._call(lambda: list(itertools.islice(found, _TABLE_PAGE))):
            for pair in page:
                yield pair

    async def versions(self, key: Key, *, limit: int = 100, after: Optional[str] = None) -> list[TableEntry]:
        """The versions of a key, the newest first."""
        return await self.namespace._call(self.sync.versions, key, limit=limit, after=after)


class AsyncTopic(Generic[T]):
    """A topic of an `AsyncNamespace`, as values of its codec."""

    def __init__(self, namespace: AsyncNamespace, topic: Topic[T]) -> None:
        self.namespace = namespace
        self.sync = topic

    @property
    def name(self) -> str:
        """Its name."""
        return self.sync.name

    async def publish(
        self, value: T, *, key: Optional[str] = None, durability: Optional[str] = None, patience: float = 0.0
    ) -> int:
        """Publishes a value and returns its index. See `Topic.publish`."""
        return await self.namespace._call(
            self.sync.publish, value, key=key, durability=durability, patience=patience
        )

    async def get(self, seqno: Optional[int] = None, *, wait: float = 0.0) -> Entry[T]:
        """Returns the entry with this index, or the newest; waits for it for at most `wait` seconds."""
        return await self.namespace._call(self.sync.get, seqno, wait=wait)

    async def latest(self) -> int:
        """The index of the newest record, 0 if there is none."""
        return await self.namespace._call(self.sync.source.latest, self.name)

    def range(self, start: Optional[int] = None, stop: Optional[int] = None) -> AsyncGenerator[Entry[T], None]:
        """The entries from `start` up to, but not including, `stop`."""
        read = functools.partial(self.sync.source.range, self.name, start, stop)
        return self._entries(AsyncRecords(read, self.namespace._threads, None))

    def tail(
        self, start: Optional[int] = None, *, timeout: Optional[float] = None
    ) -> AsyncGenerator[Entry[T], None]:
        """The entries from `start` on, and then each new one. To resume, start after the last entry's `seqno`."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="millrace-tail")
        read = functools.partial(self.sync.source.tail, self.name, start, timeout=timeout)
        return self._entries(AsyncRecords(read, thread, thread))

    async def _entries(self, records: AsyncRecords) -> AsyncGenerator[Entry[T], None]:
        async with contextlib.aclosing(records):
            async for record in records:
                yield self.sync.entry(record)

    async def subscribe(self, function: str) -> None:
        """Runs a function of this host's namespace for each record that is published from now on, once for each."""
        await self.namespace._call(self.sync.subscribe, function)

    async def unsubscribe(self, function: str) -> None:
        """Ends a subscription of this host."""
        await self.namespace._call(self.sync.unsubscribe, function)

    async def feed(self, log: str) -> None:
        """Publishes each record that is appended to a log of this host's namespace from now on, once and in order."""
        await self.namespace._call(self.sync.feed, log)

    async def unfeed(self, log: str) -> None:
        """Stops publishing the records of a log."""
        await self.namespace._call(self.sync.unfeed, log)

    async def stat(self) -> TopicStat:
        """The topic: its group, subscriptions and feeds."""
        return await self.namespace._call(self.sync.stat)

    def __repr__(self) -> str:
        return f"<millrace.AsyncTopic {self.name!r} of {self.namespace.address!r}, {self.sync.codec!r}>"


class _Opening(Awaitable[AsyncNamespace]):
    """The result of `aopen`: await it, or use it in `async with`."""

    def __init__(self, place: Optional[PathOrAddress], ca: Optional[PathOrAddress]) -> None:
        self._place, self._ca = place, ca
        self._opened: Optional[AsyncNamespace] = None

    async def _open(self) -> AsyncNamespace:
        opening = functools.partial(open, self._place, ca=self._ca)
        return AsyncNamespace(await asyncio.get_running_loop().run_in_executor(None, opening))

    def __await__(self) -> Generator[Any, None, AsyncNamespace]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncNamespace:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def aopen(place: Optional[PathOrAddress] = None, *, ca: Optional[PathOrAddress] = None) -> _Opening:
    """Opens a namespace for asyncio: `async with millrace.aopen(...) as ns`, or `ns = await millrace.aopen(...)`.

    Arguments are those of `millrace.open`.
    """
    return _Opening(place, ca)
