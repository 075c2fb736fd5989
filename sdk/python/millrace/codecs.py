"""How a log's records are written and read: bytes, text, JSON, struct, MessagePack, Arrow.

    raw = ns.log("raw", codec=millrace.codecs.Struct("<qd", names=("at_us", "celsius")))
    raw.append((1700000000000000, 21.5))
    raw.to_pandas()

A codec is any object with `encode` and `decode`; `dumps` and `loads` of most libraries fit `Custom`.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, Protocol, TypeVar

from millrace._errors._explain import plain

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Arrow", "Bytes", "Codec", "Custom", "Json", "MsgPack", "Struct", "Text"]

T = TypeVar("T")


class Codec(Protocol[T]):
    """Turns values into a record's bytes and back. Exceptions are reported with the log and the record."""

    def encode(self, value: T) -> bytes: ...
    def decode(self, data: bytes) -> T: ...


class Bytes:
    """The unchanged bytes."""

    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"expected bytes, not {type(value).__name__}")
        return bytes(value)

    def decode(self, data: bytes) -> bytes:
        return data

    def __repr__(self) -> str:
        return "Bytes()"


class Text:
    """UTF-8 text."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, data: bytes) -> str:
        return data.decode()

    def __repr__(self) -> str:
        return "Text()"


class Json:
    """Anything that JSON can express, scalars of numpy and pandas, and times as ISO 8601, written compactly. NaN and infinities are refused,
    as JSON has none."""

    def encode(self, value: Any) -> bytes:
        try:
            return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=plain).encode()
        except ValueError as why:
            if "Out of range float" not in str(why):
                raise
            raise ValueError("NaN and infinities are not in JSON; write None where a value is missing") from why

    def decode(self, data: bytes) -> Any:
        return json.loads(data)

    def __repr__(self) -> str:
        return "Json()"


class Struct:
    """A fixed layout, as in the module `struct`; with `names`, values are read as dicts and may be written as such."""

    def __init__(self, format: str, names: Optional[Sequence[str]] = None) -> None:
        self._struct = struct.Struct(format)
        self._names = tuple(names) if names is not None else None
        count = len(self._struct.unpack(bytes(self._struct.size)))
        if self._names is not None and len(self._names) != count:
            raise ValueError(f"format {format!r} has {count} fields, and {len(self._names)} names were given")
        if self._names is not None and len(set(self._names)) != count:
            raise ValueError(f"a name occurs twice: {', '.join(self._names)}")

    def encode(self, value: Any) -> bytes:
        if self._names is not None and isinstance(value, dict):
            if value.keys() != set(self._names):
                raise ValueError(f"the fields are {', '.join(self._names)}, not {', '.join(map(str, value))}")
            value = [value[name] for name in self._names]
        packed = self._struct.pack(*value)
        # `struct` cuts bytes that are too long.
        for given, kept in zip(value, self._struct.unpack(packed)):
            if isinstance(given, (bytes, bytearray)) and len(given) > len(kept):
                raise ValueError(f"{bytes(given)!r} is longer than its field of {len(kept)} bytes")
        return packed

    def decode(self, data: bytes) -> Any:
        values = self._struct.unpack(data)
        return values if self._names is None else dict(zip(self._names, values))

    def __repr__(self) -> str:
        names = "" if self._names is None else f", names={self._names!r}"
        return f"Struct({self._struct.format!r}{names})"


class MsgPack:
    """MessagePack. Needs the package `msgpack`."""

    def __init__(self) -> None:
        msgpack = package("msgpack")
        self._pack: Callable[[Any], bytes] = msgpack.packb
        self._unpack: Callable[[bytes], Any] = msgpack.unpackb

    def encode(self, value: Any) -> bytes:
        return self._pack(value)

    def decode(self, data: bytes) -> Any:
        return self._unpack(data)

    def __repr__(self) -> str:
        return "MsgPack()"


class Arrow:
    """An Arrow record batch per record, as an IPC stream with its schema. Needs the package `pyarrow`.

    Accepts everything that `pyarrow.RecordBatch` can be made from: a batch, a table, a pandas data frame, a list of
    dicts, a dict of lists. The index of a data frame is kept unless it only counts from 0, and a field that some dicts
    of a list lack is null there. With a schema, fields that it does not have are refused.
    """

    def __init__(self, schema: Optional[pyarrow.Schema] = None) -> None:
        self._arrow = package("pyarrow")
        importlib.import_module("pyarrow.ipc")
        self._schema = schema

    def encode(self, value: Any) -> bytes:
        batch = self._batch(value)
        sink = self._arrow.BufferOutputStream()
        with self._arrow.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    def decode(self, data: bytes) -> pyarrow.RecordBatch:
        with self._arrow.ipc.open_stream(data) as reader:
            # Other writers may have written several batches, or none.
            return self._whole(reader.read_all())

    def _batch(self, value: Any) -> pyarrow.RecordBatch:
        arrow, schema = self._arrow, self._schema
        if isinstance(value, arrow.RecordBatch):
            return value if schema is None else value.cast(schema)
        if isinstance(value, dict):
            self._check(value)
            return arrow.RecordBatch.from_pydict(value, schema=schema)
        if isinstance(value, list):
            # From rows, pyarrow takes the fields of the first row only.
            names = schema.names if schema is not None else list(dict.fromkeys(name for row in value for name in row))
            self._check(name for row in value for name in row)
            columns = {name: [row.get(name) for row in value] for name in names}
            return arrow.RecordBatch.from_pydict(columns, schema=schema)
        if not isinstance(value, arrow.Table):
            value = self._table(value)
        elif schema is not None:
            value = value.cast(schema)
        return self._whole(value)

    def _table(self, frame: Any) -> pyarrow.Table:
        """The table of a data frame with its index, unless that only counts the rows."""
        if not hasattr(frame, "columns") or not hasattr(frame, "index"):
            raise TypeError(f"cannot make a record batch of {type(frame).__name__}")
        pandas = package("pandas")
        index = frame.index
        counts = isinstance(index, pandas.RangeIndex) and (index.start, index.step, index.name) == (0, 1, None)
        table = self._arrow.Table.from_pandas(frame, preserve_index=not counts)
        if self._schema is None:
            return table
        self._check(table.schema.names)
        return table.select(self._schema.names).cast(self._schema)

    def _check(self, names: Iterable[str]) -> None:
        """Refuses fields that the schema would drop."""
        if self._schema is not None and (other := [name for name in dict.fromkeys(names) if name not in self._schema.names]):
            raise ValueError(f"the schema has no field {', '.join(map(repr, other))}")

    def _whole(self, table: pyarrow.Table) -> pyarrow.RecordBatch:
        batches = table.combine_chunks().to_batches()
        if len(batches) > 1:
            raise ValueError("the table is too large for one record")
        return batches[0] if batches else self._arrow.RecordBatch.from_pylist([], schema=table.schema)

    def __repr__(self) -> str:
        return "Arrow()" if self._schema is None else f"Arrow(schema of {len(self._schema)} fields)"


class Custom(Generic[T]):
    """Any two functions, such as `dumps` and `loads` of a library."""

    def __init__(self, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self._encode = encode
        self._decode = decode

    def encode(self, value: T) -> bytes:
        return self._encode(value)

    def decode(self, data: bytes) -> T:
        return self._decode(data)

    def __repr__(self) -> str:
        return f"Custom({self._encode!r}, {self._decode!r})"


def package(name: str) -> Any:
    """Imports an optional package, or raises an error that names the command to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as why:
        from millrace._records import _native

        raise _native.error("MR6105", f"this needs the package '{name}': `pip install {name}`") from why
