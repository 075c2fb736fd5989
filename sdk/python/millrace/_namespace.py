"""A namespace: the same methods for mapped files and for a host."""

from __future__ import annotations

import hashlib
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Protocol, TypeVar, Union, overload

from millrace import _show, _views
from millrace._records import StoredRecord, _native
from millrace._views import Deployed, Device, DeviceUpdate, FunctionStat, LogStat, RefusedDevice, Run, TableStat, Why
from millrace._worker import NotFound

if TYPE_CHECKING:
    import duckdb

    from millrace._log import ClientTable, Entry, Log
    from millrace._worker import Handler
    from millrace.codecs import Codec
    from millrace.history import Graph, Trace
    from millrace.repairs import Plan, Repair
    from millrace.topics import Topic, Topics, TopicStat

T = TypeVar("T")

#: How many of its newest records a log keeps when it is not said.
HISTORY_DEFAULT = 10_000
#: The parts in which a host takes an image, and how often it is asked how far an update is, in seconds.
_FIRMWARE_PART_BYTES, _UPDATE_LOOK_S = 32 << 10, 0.2
#: Most records that one call into the native module appends.
_BATCH_MAX = 1024


class Records(Protocol):
    """Iterates over records. `next` is the number of the next record: pass it to `tail` to resume later."""

    @property
    def next(self) -> int: ...
    @property
    def incarnation(self) -> int:
        """The incarnation of the log; 0 before the first record."""
        ...

    def batch(self, most: int) -> list[StoredRecord]:
        """Waits for one record, and returns it with up to `most - 1` available records that follow it; returns none at the end."""
        ...

    def close(self) -> None:
        """Ends the iteration; can be called from any thread."""
        ...

    def __iter__(self) -> Iterator[StoredRecord]: ...
    def __next__(self) -> StoredRecord: ...


class Namespace(ABC):
    """An open namespace. Use it in a `with` statement, or close it. Threads can share it.

    `address` is its location, `id` its identity, `durability` the default durability of appends:
    "disk" (survives a power failure) or "memory" (survives the death of every process).
    """

    __slots__ = ()

    # Implemented by the native classes.

    if TYPE_CHECKING:

        @property
        def address(self) -> str: ...
        @property
        def id(self) -> str: ...
        @property
        def durability(self) -> str: ...
        @property
        def closed(self) -> bool: ...

        _topics: Topics

    @abstractmethod
    def append(
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
        """Appends a record and returns its sequence number, once it has the requested durability.

        `data` is bytes, text, or anything that JSON can express. `function` names one more function to run for the record.
        With a `key` (1 to 128 bytes), a repeated append returns the result of the first one, so the append can be repeated safely if its
        outcome is unknown. `fence=(name, token)` passes the token of a lock: if a higher token was already used with this name in the
        namespace, the append raises `Conflict` (MR7127). `cause` is the id of the record's cause, if it is known. If too many
        runs are pending, the append waits up to `patience` seconds before it raises `Busy`.
        """

    @abstractmethod
    def get(self, log: str, seqno: Optional[int] = None, *, wait: float = 0.0) -> StoredRecord:
        """Returns the record with this number, or the newest; waits for it for at most `wait` seconds."""

    @abstractmethod
    def latest(self, log: str) -> int:
        """The number of the newest record, 0 if there is none."""

    @abstractmethod
    def bounds(self, log: str) -> tuple[Optional[int], int, int]:
        """How many of its newest records the log keeps, and the numbers of the oldest and the newest; 0 for none.

        The first value is None if the log keeps all records until they are trimmed.
        """

    @abstractmethod
    def records(
        self,
        log: str,
        start: int,
        stop: Optional[int] = None,
        timeout: Optional[float] = None,
        incarnation: int = 0,
    ) -> Records:
        """The basis of `range` and `tail`."""

    @abstractmethod
    def append_batch(
        self,
        records: list[tuple[str, object]],
        progress: list[int],
        *,
        durability: Optional[str] = None,
        key: Optional[str] = None,
        fence: Optional[tuple[str, int]] = None,
        patience: float = 0.0,
    ) -> None:
        """The basis of `append_many`."""

    @abstractmethod
    def make_log(self, log: str, history: Optional[int]) -> None:
        """The basis of `create_log`."""

    @abstractmethod
    def set_time_field(self, log: str, field: Optional[str], unit: Optional[str]) -> None:
        """The basis of `set_time`."""

    @abstractmethod
    def time_field(self, log: str) -> Optional[tuple[str, Optional[str]]]:
        """The field of the log's records that has the time of the observation, and the unit of numbers in it. See `set_time`."""

    @abstractmethod
    def begin_update(self, device: str, size: int, sha256: str, version: str) -> str:
        """A basis of `update_device`: announces an image."""

    @abstractmethod
    def add_firmware(self, device: str, update: int, offset: int, part: bytes) -> str:
        """A basis of `update_device`: stores a part of the image."""

    @abstractmethod
    def make_table(self, table: str, history: Optional[int], keys: str, codec: str, ttl_ms: int) -> None:
        """The basis of `create_table`."""

    @abstractmethod
    def ask_table(self, table: str, request: bytes, after: Optional[str] = None) -> tuple[bytes, Optional[str]]:
        """The basis of `table`: takes a request as spec/protocol/table.md has it, and returns the answer and its token."""

    @abstractmethod
    def set_history(self, log: str, history: Optional[int]) -> None:
        """Changes how many of its newest records the log keeps; with None, it keeps all until they are trimmed.

        A shorter history drops the records beyond it at once. A longer one does not restore them.
        """

    @abstractmethod
    def remove_log(self, log: str) -> None:
        """Removes a log; raises `Conflict` if a function is bound to it, or if its records have pending runs."""

    @abstractmethod
    def call_function(
        self,
        function: str,
        data: object,
        wait: float,
        log: Optional[str] = None,
        durability: Optional[str] = None,
        key: Optional[str] = None,
        cause: Optional[str] = None,
    ) -> tuple[str, str, bytes, str, str]:
        """The basis of `invoke`."""

    @abstractmethod
    def cancel_run(self, id: str) -> None:
        """Cancels a run that has not ended; raises `Conflict` if it has.

        It publishes nothing more, its process is stopped, it is not retried, and it leaves no dead letter. What a
        streamed run has published stays.
        """

    @abstractmethod
    def show(self, what: str, **options: str) -> str:
        """The basis of `logs`, `functions`, `runs` and `why`: a document as JSON."""

    @abstractmethod
    def remove_function(self, name: str, force: bool = False) -> int:
        """Removes a function. With `force` its pending runs become dead letters; returns how many."""

    @abstractmethod
    def wait_idle(self, timeout: float) -> None:
        """Returns when no run is pending; raises `TimedOut` after `timeout` seconds."""

    @abstractmethod
    def ask_repair(self, request: str) -> str:
        """The basis of `repair`: takes a request as JSON, and returns the state of the repair."""

    @abstractmethod
    def repair_code(
        self,
        function: str,
        source: str,
        since: Optional[str],
        reason: str,
        append_new: bool,
        across: list[str],
        run_external: list[str],
    ) -> str:
        """The basis of `repair`: replaces a function's code."""

    @abstractmethod
    def repair_here(self) -> None:
        """Carries out the pending steps of repairs, unless a host does so."""

    @abstractmethod
    def topic_calls(self) -> _native.Topics:
        """The basis of `topic`: connections to a host of the cluster."""

    @abstractmethod
    def close(self) -> None:
        """Closes the namespace; closing it twice has no effect."""

    # Methods based on the above.

    def append_many(
        self,
        records: Iterable[tuple[str, object]],
        *,
        durability: Optional[str] = None,
        key: Optional[str] = None,
        fence: Optional[tuple[str, int]] = None,
        patience: float = 0.0,
    ) -> list[int]:
        """Appends (log, data) pairs as they arrive, many per commit, and returns their numbers.

        With a `key`, they are one batch of at most 1024 records, of which all or none are appended; it can be repeated safely with the same
        key. With a `fence`, a batch is refused if a higher token was already used.

        If the call raises an exception, its attribute `appended` has the numbers of the records that were appended.
        """
        appended: list[int] = []
        batch: list[tuple[str, object]] = []
        try:
            for pair in records:
                batch.append(pair)
                if len(batch) == _BATCH_MAX and key is None:
                    self.append_batch(batch, appended, durability=durability, fence=fence, patience=patience)
                    batch = []
            if batch:
                self.append_batch(batch, appended, durability=durability, key=key, fence=fence, patience=patience)
        except Exception as error:
            if isinstance(error, (TypeError, ValueError)) and (odd := [one for one in batch if not (isinstance(one, tuple) and len(one) == 2)]):
                detail = f"append_many takes pairs (log, data), not {odd[0]!r:.80}; `ns.log(NAME, codec=...).append_many(values)` takes values"
                error = TypeError(detail)
            error.appended = appended  # type: ignore[attr-defined]
            raise error
        return appended

    def range(self, log: str, start: Optional[int] = None, stop: Optional[int] = None) -> Records:
        """The records from `start` up to, but not including, `stop`; all records if neither is given.

        A `start` that has left the log's history raises `Gone`.
        """
        _, earliest, latest = self.bounds(log)
        first = max(earliest, 1) if start is None else start
        end = latest + 1 if stop is None else max(min(stop, latest + 1), 0)
        return self.records(log, first, end)

    def tail(
        self, log: str, start: Optional[int] = None, *, timeout: Optional[float] = None, incarnation: int = 0
    ) -> Records:
        """The records from `start` on, and then each new one; by default only new ones.

        The iteration ends after `timeout` seconds without a record; without `timeout`, it ends only with Ctrl-C. To resume a tail later,
        pass its `next` and its `incarnation`: if the log was recreated since, the call raises `Gone`.
        """
        return self.records(log, self.latest(log) + 1 if start is None else start, None, timeout, incarnation)

    def create_log(
        self,
        name: str,
        history: Optional[int] = HISTORY_DEFAULT,
        *,
        time: Optional[str] = None,
        unit: Optional[str] = None,
    ) -> None:
        """Creates a log that keeps its `history` newest records, or with None all of them until they are trimmed.

        If the log exists with the same history, nothing changes, except that it gets the `time` that is given. See `set_time`.
        """
        self.make_log(name, history)
        if time is not None or unit is not None:
            self.set_time(name, time, unit)

    def set_time(self, log: str, time: Optional[str], unit: Optional[str] = None) -> None:
        """Says which field of a log's records has the time of the observation: a JSON pointer such as "/observed_at"; with None, none has it.

        In the field, text in the form of RFC 3339 is a time; with `unit` ("s", "ms" or "us"), so are numbers, as such units since 1970.
        Data frames, exports, plots and corrections by time use this time; for a record without it, they use the time of its append.
        """
        if time is None and unit is not None:
            raise _native.error("MR1006", f"unit={unit!r} is the unit of a field; name the field, too: time='/t'")
        self.set_time_field(log, time, unit)

    def create_table(
        self,
        name: str,
        codec: str = "json",
        *,
        keys: str = "text",
        ttl: Optional[float] = None,
        history: Optional[int] = HISTORY_DEFAULT,
    ) -> ClientTable:
        """Creates a table and returns it. If it exists with the same attributes, nothing changes.

        `codec` says what its values are: "json", "text" or "bytes"; `keys` are "text" or "bytes". A value that is put without a lifetime
        expires after `ttl` seconds. Of each key the newest value is kept, and the `history` newest changes of the table.
        """
        self.make_table(name, history, keys, codec, 0 if ttl is None else max(1, round(ttl * 1000)))
        return self.table(name)

    def table(self, name: str) -> ClientTable:
        """The table with this name as a mapping: `table[key]`, `table[key] = value`, `del table[key]`, `table.scan(prefix)`."""
        from millrace._log import ClientTable

        table = ClientTable(self.ask_table, name)
        table.codec  # noqa: B018: an error here says that there is no such table
        return table

    def tables(self) -> list[TableStat]:
        """Every table, by name."""
        return [_views.table_stat(document) for document in json.loads(self.show("tables"))["tables"]]

    def logs(self) -> list[LogStat]:
        """Every log, by name."""
        return [_views.log_stat(document) for document in self._list("logs")]

    @overload
    def log(self, name: str) -> Log[bytes]: ...
    @overload
    def log(self, name: str, codec: Codec[T]) -> Log[T]: ...
    def log(self, name: str, codec: Optional[Codec[Any]] = None) -> Log[Any]:
        """The log with this name, as a sequence of values that the codec decodes; without a codec, they are bytes."""
        from millrace._log import Log
        from millrace.codecs import Bytes

        self.bounds(name)
        return Log(self, name, codec or Bytes())

    def sql(
        self,
        query: str,
        parameters: Union[Sequence[Any], Mapping[str, Any], None] = None,
        *,
        decode: Optional[Mapping[str, Union[str, Codec[Any]]]] = None,
        memory: str = "1GB",
    ) -> duckdb.DuckDBPyRelation:
        """Answers a query in SQL over logs; returns DuckDB's relation, with `df()`, `pl()`, `arrow()` and `fetchall()`.

            ns.sql('select time, value.celsius::double from "raw/kitchen" where time > ?', [since]).df()

        Each log is a view with the columns seqno, time, id, cause, data and value, which is the decoded data: JSON, text or bytes, as
        the newest record is. `decode={"raw/kitchen": "text"}` chooses another decoder: "json", "text", "number", "bytes", or a codec. A record that
        cannot be decoded is an error; after "json?", "text?" or "number?" its value is NULL. `runs` and `events` are views, too. Times are in UTC.

        Conditions that compare `seqno` and `time` with constants decide which records are read; all logs are read as of one moment. If records
        that the query asks for have left the history of their log, there is a warning, `millrace.sql.MissingRecords`. Beyond `memory`, DuckDB
        writes to temporary files. Needs the packages of `pip install 'millrace[sql]'`.
        """
        from millrace.sql import query as answer

        return answer(self, query, parameters, decode=decode, memory=memory)

    def create_topic(
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
        """Creates a topic, and returns the name of its group. A host of a cluster has to serve the namespace.

        The topic keeps its `history` newest records, or all of them with None. A publish is acknowledged once a majority of the topic's
        group has the record on disk ("quorum"), or once the leader has it ("leader"), unless a publish has another durability. The hosts of the
        group keep the records, or with the engine "nats" the NATS cluster that the host was started with (`millrace serve --nats`).
        If the topic exists with the same settings, nothing changes.

        The topic stays in its group: by default `main`, or `group`. Instead of `group`, one of these chooses among the existing groups:
        `beside`, the name of a topic, chooses the group of that topic; `near="zone=barn"` the group that has the largest share of voters
        with this label; `here` a group whose voters are at the site of the connected host; `site` a group that belongs to this site; and
        `spread` a group of the site that has the fewest topics. `millrace topic create --help` explains the choice if several groups fit.
        """
        engine_or_none = None if engine == "builtin" else engine
        place = (beside, near, here, site, spread)
        return self._hosted().calls.create(name, history, durability, group, engine_or_none, place)

    def remove_topic(self, name: str) -> None:
        """Removes a topic with its records, subscriptions and feeds. Its name can be used again."""
        self._hosted().calls.remove(name)

    def topics(self) -> list[TopicStat]:
        """Every topic of the cluster, by name."""
        return self._hosted().all()

    @overload
    def topic(self, name: str) -> Topic[bytes]: ...
    @overload
    def topic(self, name: str, codec: Codec[T]) -> Topic[T]: ...
    def topic(self, name: str, codec: Optional[Codec[Any]] = None) -> Topic[Any]:
        """The topic with this name, as a sequence of values that the codec decodes; without a codec, they are bytes."""
        from millrace.codecs import Bytes
        from millrace.topics import Topic

        topics = self._hosted()
        topics.latest(name)
        return Topic(self, topics, name, codec or Bytes())

    def _hosted(self) -> Topics:
        """The topics of the cluster; the connections to the host are made when they are first needed."""
        from millrace.topics import Topics

        if self.closed:
            raise _native.error("MR6106", f"the namespace '{self.address}' is closed")
        topics: Optional[Topics] = getattr(self, "_topics", None)
        if topics is None:
            topics = Topics(self.address, self.topic_calls())
            # The subclasses have the slot.
            object.__setattr__(self, "_topics", topics)
        return topics

    def _leave(self) -> None:
        """Closes the connections to the host."""
        topics: Optional[Topics] = getattr(self, "_topics", None)
        if topics is not None:
            topics.close()

    def functions(self) -> list[FunctionStat]:
        """Every function, by name."""
        return [_views.function_stat(document) for document in self._list("functions")]

    def devices(self) -> list[Device]:
        """Every device that has sent records to the namespace, by name."""
        return [_views.device(document) for document in self._list("devices")]

    def device(self, name: str) -> Device:
        """One device."""
        return _views.device(self._ask(f"devices/{name}"))

    def refused_devices(self) -> list[RefusedDevice]:
        """Every device that is refused, also under names that no device of the namespace has, newest first."""
        return [_views.refused_device(document) for document in self._ask("devices")["refused"]]

    def update_device(self, name: str, image: bytes, *, version: Optional[str] = None, wait: float = 0.0) -> DeviceUpdate:
        """Sends new firmware to a device, and waits up to `wait` seconds until the device has tried it; returns how far the update is.

        The update goes on without this program; the same call again follows it. `version` has up to 24 characters, and is the beginning of the
        image's SHA-256 without one. An update that fails raises the error that says why: the device goes on with the firmware that it had.
        """
        sha256 = hashlib.sha256(image).hexdigest()
        update = _views.device_update(json.loads(self.begin_update(name, len(image), sha256, version or sha256[:12])))
        while update.state == "storing":
            part = image[update.stored : update.stored + _FIRMWARE_PART_BYTES]
            update = _views.device_update(json.loads(self.add_firmware(name, update.number, update.stored, part)))
        until = time.monotonic() + wait
        while update.state not in ("confirmed", "reverted", "refused") and time.monotonic() < until:
            time.sleep(_UPDATE_LOOK_S)
            newest = self.device(name).update
            if newest is None or newest.number != update.number:
                raise _native.error("MR6352", f"update {update.number} of device '{name}' was replaced by another one")
            update = newest
        if update.error is not None:
            raise _native.error(*update.error)
        return update

    def function(self, name: str) -> FunctionStat:
        """One function."""
        for function in self.functions():
            if function.name == name:
                return function
        error = _native.error("MR3001", f"no function '{name}'")
        assert isinstance(error, NotFound)
        raise error

    def runs(
        self,
        *,
        function: Optional[str] = None,
        log: Optional[str] = None,
        state: Optional[str] = None,
        limit: int = 100,
    ) -> list[Run]:
        """The newest runs, newest first: all, or those of one function, for records of one log, or in one state."""
        options = {"function": function, "log": log, "state": state, "limit": str(limit)}
        runs: list[Run] = []
        while True:
            document = self._ask("runs", options)
            runs += map(_views.run, document["runs"])
            # A host examines a limited number of runs for one answer, and returns where to continue.
            if len(runs) >= limit or not document.get("next"):
                return runs
            options |= {"before": document["next"], "limit": str(limit - len(runs))}

    def run(self, id: str) -> Run:
        """One run: what caused it, what it read and appended, how it ended."""
        return _views.run(self._ask(f"runs/{id}"))

    def invoke(
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
        """Runs a function for a record and returns what the function returned.

        `value` is the record: bytes, text, or anything that JSON can express. It is appended to the log that the function is bound to, or to
        `log`, or, if the function is bound to none, to `invoke/FUNCTION`. If the function fails for good, its error is raised. If the run
        has not ended after `wait` seconds (at most 300 through a host), `TimedOut` is raised; its attribute `run` is the run's id, and
        `run(id).result` is the result once there is one. With a `key`, a repeated call answers with the result of the first one.
        """
        answer = self.call_function(function, value, wait, log, durability, key, cause)
        return _views.answer(function, wait, answer)

    def why(self, target: str = "") -> Why:
        """Explains why a function, a log, a run, or (without a target) anything in the namespace waits."""
        return _views.why(self._ask("why", {"target": target}))

    def trace(
        self, of: Union[str, StoredRecord, Entry[Any]], *, up: bool = False, depth: int = 6, width: int = 50, limit: int = 300
    ) -> Trace:
        """What a record, a run or another event caused, or with `up`, what it came from.

        `of` is a record, the id of an event or a run, or "LOG@SEQNO". The tree has at most `depth` levels, `width` branches below one, and
        `limit` branches. The host of the namespace answers; `millrace trace` needs none.
        """
        from millrace.history import trace

        return trace(self, of, up, depth, width, limit)

    def graph(self) -> Graph:
        """How many records flow between logs and functions, and to other namespaces, since the host of the namespace started."""
        from millrace.history import graph

        return graph(self)

    def deploy(self, handler: Handler, *, source: Optional[str] = None, **settings: Any) -> Deployed:
        """Deploys a function that `@millrace.function` decorates; `settings` take precedence over those of the decorator.

        Its code is the file that defines it, or the directory `source`. For a function of a notebook, it is the text of the function and of
        the notebook's functions that it calls, and the imports that they need; variables of the notebook are refused. A host
        (`millrace serve`) runs the function. If `on` names topics as `topic:NAME`, it runs for their records from now on, until
        `Topic.unsubscribe`.
        """
        from millrace._deploy import deploy

        return deploy(self, handler, source, settings)

    def repair(
        self,
        values: Optional[Mapping[str, Any]] = None,
        *,
        function: Optional[Mapping[str, Union[str, os.PathLike[str]]]] = None,
        since: Optional[str] = None,
        reason: str = "",
        accept_unknown: bool = False,
        append_new: bool = False,
        across: Sequence[str] = (),
        run_external: Sequence[str] = (),
    ) -> Plan:
        """Plans a repair: new values for past records, or new code for past runs of a function.

        `values` is `{log: {seqno: value}}`, or `{log: frame}` with a data frame that has the columns `seqno` and `value`;
        None as a value removes the record. For a table, `{table: {key: value}}` (with a frame, the column `key`) corrects the record that has
        the value of the key, and the table's codec encodes the new one. `function` is `{name: source}`, with a file or a directory; it replays the
        runs from the event `since` on ("LOG@SEQNO" or an event's id), and is accepted only for a namespace that is opened by its files.
        A run that appends more records than before stops the repair; with `append_new`, the additional records are appended to the end of
        their logs. `across` lists the addresses of namespaces that take part, because they received records of this one: the repair is
        applied in all of them, or in none. Functions with `network = true` are not replayed, and the records that they appended stay,
        except for functions in `run_external`. `plan.run()` replays the runs, and `apply()` makes the result visible.
        """
        from millrace.repairs import plan

        return plan(self, values, function, since, reason, accept_unknown, append_new, list(across), list(run_external))

    def repairs(self) -> list[Repair]:
        """All repairs of the namespace, the oldest first."""
        from millrace.repairs import repairs

        return repairs(self)

    def amend(self, log: str, values: Any) -> int:
        """Amends records of a log that is declared amendable; returns how many amendments of the log are waiting.

        `values` is `{seqno: value}`, or a data frame with the columns `seqno` and `value`; None as a value removes the record.
        The host repairs the log when `amend_count` or `amend_age` in millrace.toml is reached.
        """
        from millrace.repairs import amend

        return amend(self, log, values)

    def _ask(self, what: str, options: Optional[dict[str, Optional[str]]] = None) -> Any:
        given = {key: value for key, value in (options or {}).items() if value is not None}
        return json.loads(self.show(what, **given))

    def _host(self) -> Namespace:
        """The namespace through its host, for what only a host answers. The caller closes it."""
        raise NotImplementedError

    def _of_host(self, what: str, options: Optional[dict[str, Optional[str]]] = None) -> Any:
        with self._host() as host:
            return host._ask(what, options)

    def _list(self, what: str) -> list[Any]:
        """All items of a list that a host returns in parts."""
        document = self._ask(what)
        items: list[Any] = list(document[what])
        while document.get("next"):
            document = self._ask(what, {"after": str(document["next"])})
            items += document[what]
        return items

    def __enter__(self: N) -> N:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<millrace.Namespace {self.address!r}{' (closed)' if self.closed else ''}>"

    def _repr_html_(self) -> str:
        return _show.namespace(self)

    def __reduce__(self) -> tuple[Callable[..., Namespace], tuple[Union[str, None]]]:
        # Another process opens it for itself.
        from millrace._open import open

        return open, (self.address,)


N = TypeVar("N", bound=Namespace)


class LocalNamespace(_native.LocalNamespace, Namespace):
    """A namespace on this machine, by its mapped files."""

    __slots__ = ("_topics",)

    def topic_calls(self) -> _native.Topics:
        """The basis of `topic`: connections to the host that serves the files."""
        return _native.Topics(self._socket())

    def _socket(self) -> str:
        socket = os.path.join(self.address, "socket")
        if not os.path.exists(socket):
            raise _native.error("MR5009", f"no host serves {self.address}")
        return f"unix:{socket}"

    def _host(self) -> Namespace:
        return RemoteNamespace(self._socket())

    def close(self) -> None:
        """Closes the namespace; closing it twice has no effect."""
        self._leave()
        super().close()


class RemoteNamespace(_native.RemoteNamespace, Namespace):
    """A namespace on a host, by its address."""

    __slots__ = ("_topics",)

    def topic_calls(self) -> _native.Topics:
        """The basis of `topic`: further connections to the host."""
        return _native.Topics(self.address, self.ca)

    def _host(self) -> Namespace:
        # Closing it leaves this one open.
        return RemoteNamespace(self.address, self.ca)

    def close(self) -> None:
        """Closes the namespace; closing it twice has no effect."""
        self._leave()
        super().close()
