"""One log as a sequence of values, what a log and a topic have in common, and tables as clients have them."""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, Optional, Protocol, TypeVar, Union, overload

from millrace import _show
from millrace._records import StoredRecord, _native
from millrace._work._tables import Table, TableEntry
from millrace._worker import NotFound
from millrace.codecs import Arrow, Codec, package

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from millrace._namespace import Namespace, Records
    from millrace._work._tables import Key

    #: Sends a request to a table, with a token or None; returns the answer and its token.
    AskAfter = Callable[[str, bytes, Optional[str]], tuple[bytes, Optional[str]]]
    _Find = Callable[["Entry[Any]"], Optional[datetime.datetime]]

T = TypeVar("T")

#: Text in the form of RFC 3339: its date, its time, the digits of its fraction, its offset.
_RFC_3339 = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?([Zz]|[+-][0-9]{2}:[0-9]{2})")
_INDEX = re.compile("0|[1-9][0-9]*")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_UNITS_US = {"s": 1_000_000, "ms": 1000, "us": 1}

#: A float holds every integer up to this one.
_FLOAT_EXACT_MAX = 2**53


class Entry(Generic[T]):
    """A record of a log with a codec: `value` is the decoded value, `record` the record itself."""

    __slots__ = ("record", "value")

    def __init__(self, record: StoredRecord, value: T) -> None:
        self.record = record
        self.value = value

    @property
    def seqno(self) -> int:
        """The number of the record in the log."""
        return self.record.seqno

    @property
    def time(self) -> datetime.datetime:
        """When the record was appended."""
        return self.record.time

    def __repr__(self) -> str:
        return f"Entry({self.record.log!r}, {self.seqno}, {self.value!r})"


class Source(Protocol):
    """The source of a series: a namespace for logs, a host of a cluster for topics."""

    @property
    def address(self) -> str: ...
    def get(self, log: str, seqno: Optional[int] = None, *, wait: float = 0.0) -> StoredRecord: ...
    def latest(self, log: str) -> int: ...
    def bounds(self, log: str) -> tuple[Optional[int], int, int]: ...
    def range(self, log: str, start: Optional[int] = None, stop: Optional[int] = None) -> Records: ...
    def tail(
        self, log: str, start: Optional[int] = None, *, timeout: Optional[float] = None, incarnation: int = 0
    ) -> Records: ...


class Series(Generic[T]):
    """Numbered records as a sequence of values: `series[17]`, `series[-1]`, `series[10:20]`, `len(series)`, `for value in series`.

    Numbers start at 1 and never change. Negative numbers count back from the newest record. A slice that begins with a record that has left the
    history raises `Gone`; without a start, it has all records that can be read.
    """

    __slots__ = ("codec", "name", "source")

    #: What error messages call it.
    KIND = "log"

    def __init__(self, source: Source, name: str, codec: Codec[T]) -> None:
        # The class in place of the codec, or its name as in `sql`.
        if isinstance(codec, type) or not (callable(getattr(codec, "decode", None)) and hasattr(codec, "encode")) or isinstance(codec, str):
            detail = f"codec={codec!r} is not an object with `encode` and `decode`; write one, such as `millrace.codecs.Json()`"
            raise _native.error("MR6104", f"{self.KIND} '{name}': {detail}")
        self.source = source
        self.name = name
        self.codec = codec

    def get(self, seqno: Optional[int] = None, *, wait: float = 0.0) -> Entry[T]:
        """Returns the entry with this number, or the newest; waits for it for at most `wait` seconds."""
        return self.entry(self.source.get(self.name, seqno, wait=wait))

    def range(self, start: Optional[int] = None, stop: Optional[int] = None) -> Iterator[Entry[T]]:
        """The entries from `start` up to, but not including, `stop`."""
        return map(self.entry, self.source.range(self.name, start, stop))

    def tail(self, start: Optional[int] = None, *, timeout: Optional[float] = None) -> Iterator[Entry[T]]:
        """The entries from `start` on, and then each new one. See `Namespace.tail`."""
        return map(self.entry, self.source.tail(self.name, start, timeout=timeout))

    @property
    def latest(self) -> int:
        """The number of the newest record, 0 if there is none."""
        return self.source.latest(self.name)

    @property
    def earliest(self) -> int:
        """The number of the oldest record that can be read, 0 if there is none."""
        return self.source.bounds(self.name)[1]

    @property
    def history(self) -> Optional[int]:
        """How many of its newest records the log or topic keeps; None if it keeps them until they are trimmed."""
        return self.source.bounds(self.name)[0]

    def __len__(self) -> int:
        _, earliest, latest = self.source.bounds(self.name)
        return latest - earliest + 1 if latest else 0

    def __iter__(self) -> Iterator[T]:
        return (entry.value for entry in self.range())

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> list[T]: ...
    def __getitem__(self, key: Union[int, slice]) -> Union[T, list[T]]:
        if not isinstance(key, slice):
            return self.get(self._absolute(key) if key < 0 else key).value
        if key.step not in (None, 1):
            raise _native.error("MR1006", f"a {self.KIND} can be read only in order: the step of a slice must be 1, not {key.step}")
        start, stop = (None if end is None else self._absolute(end) if end < 0 else end for end in (key.start, key.stop))
        return [entry.value for entry in self.range(start, stop)]

    def _absolute(self, back: int) -> int:
        """The number of the record at this distance from the end."""
        latest = self.latest
        if latest + 1 + back < 1:
            error = _native.error("MR2105", f"{self.KIND} '{self.name}' has {latest} records; {back} is before the first")
            assert isinstance(error, NotFound)
            raise error
        return latest + 1 + back

    def to_arrow(self, start: Optional[int] = None, stop: Optional[int] = None) -> pyarrow.Table:
        """The records as an Arrow table: the rows of all batches, or a row per record. Needs the package `pyarrow`.

        Batches may have different fields; a field that a batch lacks is null in its rows. Dicts become columns beside
        `seqno` and `time`; a field with one of these names is in the column `field.seqno` or `field.time`.
        """
        arrow = package("pyarrow")
        if isinstance(self.codec, Arrow):
            return self._joined(arrow, start, stop)
        columns = {}
        for name, values in self._columns(start, stop).items():
            try:
                columns[name] = arrow.array(values)
            except Exception as why:
                raise _native.error("MR6104", f"column {name!r} of {self.KIND} '{self.name}': {_said(why)}") from why
        return arrow.table(columns)

    def _joined(self, arrow: Any, start: Optional[int], stop: Optional[int]) -> pyarrow.Table:
        """The rows of all batches."""
        batches: list[Any] = []
        schema: Any = None
        for entry in self.range(start, stop):
            batch: Any = entry.value
            if schema is not None and not schema.equals(batch.schema):
                try:
                    schema = arrow.unify_schemas([schema, batch.schema], promote_options="permissive")
                except Exception as why:
                    detail = f"record {entry.seqno} of {self.KIND} '{self.name}' has another schema than the records before it"
                    raise _native.error("MR6104", f"{detail}: {_said(why)}") from why
            schema = batch.schema if schema is None else schema
            batches.append(arrow.Table.from_batches([batch]))
        if not batches:
            return arrow.table({})
        if all(table.schema.equals(schema) for table in batches):
            return arrow.concat_tables(batches)
        try:
            return arrow.concat_tables(batches, promote_options="permissive")
        except Exception as why:
            raise _native.error("MR6104", f"the batches of {self.KIND} '{self.name}': {_said(why)}") from why

    def to_pandas(
        self, start: Optional[int] = None, stop: Optional[int] = None, *, time: Union[str, Literal[False], None] = None
    ) -> pandas.DataFrame:
        """The records as a data frame: the rows of Arrow batches, or a row per record with its number as index.

        Dicts become columns beside `time`; any other value is in the column `value`. A field named `seqno` or `time` is
        in the column `field.seqno` or `field.time`. Needs the package `pandas`.

        `time` is the time of the append. If the log says which field has the time of the observation (`Namespace.set_time`), `time` is that
        time, and the column `appended` has the time of the append. A record without a time in the field has that of its append in both, and
        `frame.attrs["untimed"]` is the number of such records. `time=False` always takes the time of the append.

        With `time="/observed_at"`, it is the time that each record has in this field (a JSON pointer), whatever the log says:
        text in ISO 8601, taken for UTC if it has no offset, or seconds since 1970. A field that is no time is an error then.
        """
        pandas = package("pandas")
        if isinstance(self.codec, Arrow):
            if time:
                raise _native.error("MR6104", f"{self.KIND} '{self.name}': rows of Arrow batches have their own columns; leave out `time`")
            return self.to_arrow(start, stop).to_pandas()
        declared = self._time_field() if time is None else None
        find: Optional[_Find] = None
        if declared is not None:
            field, unit = declared
            find = lambda entry: _declared_time(_pointed(entry.value, field), unit)  # noqa: E731
        elif isinstance(time, str):
            pointer = time
            find = lambda entry: self._observed(entry, pointer)  # noqa: E731
        columns = self._columns(start, stop, missing=math.nan, find=find)
        index = pandas.Index(columns.pop("seqno"), name="seqno", dtype="int64")
        frame = pandas.DataFrame({name: _exact(pandas, values, index) for name, values in columns.items()}, index=index)
        if find is not None:
            # Some versions of pandas have no times after 2262.
            frame["time"] = pandas.to_datetime(frame["time"], utc=True, errors="raise" if declared is None else "coerce")
        if declared is not None:
            untimed = frame["time"].isna()
            frame["time"] = frame["time"].where(~untimed, pandas.to_datetime(frame["appended"], utc=True))
            frame.attrs["untimed"] = int(untimed.sum())
        return frame

    def _time_field(self) -> Optional[tuple[str, Optional[str]]]:
        """The field that has the time of the observation, and the unit of numbers in it."""
        return None

    def _columns(
        self, start: Optional[int], stop: Optional[int], missing: Any = None, find: Optional[_Find] = None
    ) -> dict[str, list[Any]]:
        """The records by column; a row without a field has `missing`. No field takes the place of another column."""
        entries, rows = [], []
        for entry in self.range(start, stop):
            entries.append(entry)
            value = entry.value
            rows.append(value if isinstance(value, dict) else {"value": value})
        columns: dict[str, list[Any]] = {
            "seqno": [entry.seqno for entry in entries],
            "time": [entry.time if find is None else find(entry) for entry in entries],
        }
        if find is not None:
            columns["appended"] = [entry.time for entry in entries]
        names = list(dict.fromkeys(name for row in rows for name in row))
        for name in names:
            column = name
            while column in columns or (column != name and column in names):
                column = f"field.{column}"
            columns[column] = [row.get(name, missing) for row in rows]
        return columns

    def _observed(self, entry: Entry[T], pointer: str) -> Optional[datetime.datetime]:
        """The time that a record has in a field, None if it has no such field."""
        found = _pointed(entry.value, pointer)
        try:
            if found is None or isinstance(found, datetime.datetime):
                at = found
            elif isinstance(found, str):
                # Python before 3.11 does not know the Z.
                at = datetime.datetime.fromisoformat(found[:-1] + "+00:00" if found.endswith("Z") else found)
            elif isinstance(found, bool):
                raise TypeError
            else:
                at = datetime.datetime.fromtimestamp(found, datetime.timezone.utc)
        except (TypeError, ValueError, OverflowError, OSError) as why:
            detail = f"record {entry.seqno} of {self.KIND} '{self.name}': {pointer} is {found!r}, which is no time"
            raise _native.error("MR6104", detail) from why
        return at if at is None or at.tzinfo is not None else at.replace(tzinfo=datetime.timezone.utc)

    def encode(self, value: T) -> bytes:
        """The bytes of a value, as the codec writes it."""
        try:
            return self.codec.encode(value)
        except Exception as why:
            raise _native.error("MR6104", f"{self.KIND} '{self.name}' with {self.codec!r}: {_said(why)}") from why

    def entry(self, record: StoredRecord) -> Entry[T]:
        """The decoded value of a record."""
        try:
            return Entry(record, self.codec.decode(record.data))
        except Exception as why:
            detail = f"record {record.seqno} of {self.KIND} '{self.name}' with {self.codec!r}: {_said(why)}"
            raise _native.error("MR6104", detail) from why

    def __repr__(self) -> str:
        _, earliest, latest = self.source.bounds(self.name)
        records = f"records {earliest} to {latest}" if latest else "no records"
        return f"<millrace.{type(self).__name__} {self.name!r} of {self.source.address!r}: {records}, {self.codec!r}>"

    def _repr_html_(self) -> str:
        return _show.series(self)


class Log(Series[T]):
    """A log, as a sequence of values: `log[17]`, `log[-1]`, `log[10:20]`, `len(log)`, `for value in log`.

    Numbers are sequence numbers: they start at 1 and never change. Negative numbers count back from the newest record. A slice that
    begins with a record that has left the log's history raises `Gone`; without a start, it has all records that can be read.
    """

    __slots__ = ("namespace",)

    def __init__(self, namespace: Namespace, name: str, codec: Codec[T]) -> None:
        super().__init__(namespace, name, codec)
        self.namespace = namespace

    def _time_field(self) -> Optional[tuple[str, Optional[str]]]:
        return self.namespace.time_field(self.name)

    def append(
        self,
        value: T,
        *,
        function: Optional[str] = None,
        durability: Optional[str] = None,
        key: Optional[str] = None,
        fence: Optional[tuple[str, int]] = None,
        cause: Optional[str] = None,
        patience: float = 0.0,
    ) -> int:
        """Appends a value and returns its number. See `Namespace.append`."""
        data = self.encode(value)
        return self.namespace.append(
            self.name, data, function=function, durability=durability, key=key, fence=fence, cause=cause, patience=patience
        )

    def append_many(
        self, values: Iterable[T], *, durability: Optional[str] = None, patience: float = 0.0
    ) -> list[int]:
        """Appends values as they arrive, many per commit, and returns their numbers.

        Of a data frame, each row becomes a record: a dict of its columns, and of its index unless that only counts the rows. Missing values
        are None.
        """
        if hasattr(values, "columns") and hasattr(values, "itertuples"):
            values = self._rows(values)
        pairs = ((self.name, self.encode(value)) for value in values)
        return self.namespace.append_many(pairs, durability=durability, patience=patience)


    def _rows(self, frame: Any) -> Iterator[Any]:
        """The rows of a data frame. Without this, its columns' names would be appended."""
        if isinstance(self.codec, Arrow):
            raise _native.error("MR6104", f"log '{self.name}' with {self.codec!r}: a data frame is one record; write `append(frame)`")
        pandas = package("pandas")
        index = frame.index
        counts = isinstance(index, pandas.RangeIndex) and (index.start, index.step, index.name) == (0, 1, None)
        whole = frame if counts else frame.reset_index()
        names = [str(name) for name in whole.columns]
        if len(set(names)) < len(names):
            raise _native.error("MR6104", f"the data frame has two columns of one name: {', '.join(names)}")
        for row in whole.itertuples(index=False, name=None):
            yield {name: None if _is_missing(value) else value for name, value in zip(names, row)}


def _is_missing(value: Any) -> bool:
    """Whether it is NaN, NaT or NA: none of them equals itself. NA says neither."""
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return type(value).__name__ == "NAType"


def _exact(pandas: Any, values: list[Any], index: Any) -> Any:
    """A column of a data frame. Beside a missing value pandas makes numbers of integers that a float cannot hold."""
    large = any(isinstance(value, int) and abs(value) > _FLOAT_EXACT_MAX for value in values)
    kind = object if large and any(value is None or isinstance(value, float) for value in values) else None
    return pandas.Series(values, index=index, dtype=kind)


def _pointed(value: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) finds in a value; None if it finds nothing."""
    for name in pointer.split("/")[1:] if pointer.startswith("/") else [pointer]:
        name = name.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, (list, tuple)) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _declared_time(value: Any, unit: Optional[str]) -> Optional[datetime.datetime]:
    """The time that a field has, by the rule of `Namespace.set_time`; None if it has none."""
    try:
        if isinstance(value, datetime.datetime):
            return value if value.tzinfo is not None else None
        if isinstance(value, str):
            found = _RFC_3339.fullmatch(value)
            if found is None:
                return None
            date, time, fraction, offset = found.groups()
            # No clock of Python has leap seconds. Before 3.11, it knows neither the Z nor other than six digits.
            time = f"{time[:6]}59" if time.endswith(":60") else time
            offset = "+00:00" if offset in "Zz" else offset
            return datetime.datetime.fromisoformat(f"{date}T{time}.{(fraction or '')[:6]:0<6}{offset}")
        if unit is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return _EPOCH + datetime.timedelta(microseconds=round(value * _UNITS_US[unit]))
    except (ValueError, OverflowError):
        return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class ClientTable(Table):
    """A table as a client has it: a `Table` whose reads can name a token.

    A replica on another host may lack what a client has just seen or changed. `table.token` is the token of the last answer. A read with `after=`
    this token, at any replica, shows at least what that answer showed or changed: it waits for that up to a second, and then raises
    `Unavailable` (MR7331).
    """

    __slots__ = ("_ask_after", "token")

    def __init__(self, ask_after: AskAfter, name: str) -> None:
        super().__init__(functools.partial(self._send, None), name)
        self._ask_after = ask_after
        #: The token of the last answer.
        self.token: Optional[str] = None

    def _send(self, after: Optional[str], name: str, request: bytes) -> bytes:
        answer, token = self._ask_after(name, request, after)
        # What has changed nothing has none.
        self.token = token or self.token
        return answer

    def _at(self, after: Optional[str]) -> Table:
        """The table, whose reads name this token."""
        table = Table(functools.partial(self._send, after), self.name)
        table._codec, table._keys = self.codec, self._keys
        return table

    def get(self, key: Key, default: Any = None, *, after: Optional[str] = None) -> Any:
        """The value of a key, or `default`; with a token, at least as new as its answer."""
        return self._at(after).get(key, default)

    def entry(self, key: Key, *, after: Optional[str] = None) -> Optional[TableEntry]:
        """The value of a key with its version, or None; with a token, at least as new as its answer."""
        return self._at(after).entry(key)

    def scan(
        self,
        prefix: Key = "",
        *,
        start: Optional[Key] = None,
        stop: Optional[Key] = None,
        limit: Optional[int] = None,
        after: Optional[str] = None,
    ) -> Iterator[tuple[Any, Any]]:
        """Keys and values in order, as `Table.scan`; with a token, each page is at least as new as its answer."""
        return self._at(after).scan(prefix, start=start, stop=stop, limit=limit)

    def versions(self, key: Key, *, limit: int = 100, after: Optional[str] = None) -> list[TableEntry]:
        """The versions of a key, the newest first; with a token, at least as new as its answer."""
        return self._at(after).versions(key, limit=limit)
