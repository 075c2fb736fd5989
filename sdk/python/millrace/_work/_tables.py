"""A table as a mapping, within a run of a function and for clients. The bytes of requests and answers are defined in spec/protocol/table.md."""

from __future__ import annotations

import json
import struct

from millrace._errors import error_of
from millrace._errors._explain import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Optional, Union

    Key = Union[str, bytes]
    #: Sends a request to a table and returns its answer.
    Ask = Callable[[str, bytes], bytes]

_GET, _PUT, _DELETE, _INCREMENT, _SCAN, _VERSIONS, _DESCRIBE, _RECORD = range(8)
_ALWAYS = 2**64 - 1
_ENTRY = struct.Struct("<QQQBI")
#: Most entries of one request.
_PAGE = 1000


class TableEntry:
    """A version of a key: `key`, `value`, `version`, `time` and `expires` (seconds since 1970; None: never).

    `deleted` says that the key was deleted with this version; then `value` is None. What a run has changed itself has version 0 until it ends.
    """

    __slots__ = ("deleted", "expires", "key", "time", "value", "version")

    def __init__(self, key: Any, value: Any, version: int, time: float, expires: Optional[float], deleted: bool) -> None:
        self.key = key
        self.value = value
        self.version = version
        self.time = time
        self.expires = expires
        self.deleted = deleted

    def __repr__(self) -> str:
        shown = "deleted" if self.deleted else repr(self.value)
        return f"TableEntry({self.key!r}, {shown}, version={self.version})"


class Table:
    """A table: `table[key]`, `table[key] = value`, `del table[key]`, `key in table`, `for key in table`, `table.get(key)`.

    Keys are str, or bytes if the table's keys are; values are what its codec makes of them: bytes, str, or any value of JSON.
    """

    __slots__ = ("_ask", "_codec", "_keys", "name")

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask = ask
        self._codec: Optional[str] = None
        self._keys = "text"
        self.name = name

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    @property
    def codec(self) -> str:
        """What its values are: "bytes", "text" or "json"."""
        if self._codec is None:
            _, entries = _entries(self._ask(self.name, bytes([_DESCRIBE])))
            described = json.loads(entries[0][5])
            self._keys, self._codec = described["keys"], described["codec"]
        return self._codec

    def __getitem__(self, key: Key) -> Any:
        entry = self.entry(key)
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __setitem__(self, key: Key, value: object) -> None:
        self.put(key, value)

    def __delitem__(self, key: Key) -> None:
        if self.entry(key) is None:
            raise KeyError(key)
        self.delete(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, (str, bytes)) and self.entry(key) is not None

    def __iter__(self) -> Iterator[Any]:
        return self.keys()

    def __len__(self) -> int:
        raise TypeError("a table does not know how many keys it has; count those of a scan: sum(1 for _ in table)")

    def __bool__(self) -> bool:
        return True

    def get(self, key: Key, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        entry = self.entry(key)
        return default if entry is None else entry.value

    def entry(self, key: Key) -> Optional[TableEntry]:
        """The value of a key with its version, or None."""
        entries = self._request(bytes([_GET]) + self._key(key))[1]
        return entries[0] if entries else None

    def put(
        self, key: Key, value: object, *, ttl: Optional[float] = None, if_version: Optional[int] = None, if_absent: bool = False
    ) -> int:
        """Sets the value of a key, for `ttl` seconds if that is given. Returns its version; within a run 0.

        With `if_version`, only if the key has this version; with `if_absent`, only if it has no value. Otherwise it raises `Conflict` (MR7300).
        """
        condition = _condition(if_version, if_absent)
        ttl_ms = 0 if ttl is None else max(1, round(ttl * 1000))
        entries = self._request(
            bytes([_PUT]) + self._key(key) + struct.pack("<QQ", condition, ttl_ms) + self._encode(value)
        )[1]
        return entries[0].version if entries else 0

    def delete(self, key: Key, *, if_version: Optional[int] = None) -> bool:
        """Deletes the value of a key. Returns whether it had one; within a run False."""
        condition = struct.pack("<Q", _condition(if_version, False))
        return bool(self._request(bytes([_DELETE]) + self._key(key) + condition)[1])

    def increment(self, key: Key, amount: int = 1) -> Optional[int]:
        """Adds to the whole number that a key has, or to 0. Returns the sum; within a run None: the sum is made when the run ends.

        Runs that increment a key never wait for each other and are never repeated because of it.
        """
        if not -(2**63) <= amount < 2**63:
            raise error_of("MR7307", f"{amount} has more than 64 bits")
        entries = self._request(bytes([_INCREMENT]) + self._key(key) + struct.pack("<q", amount))[1]
        return int(entries[0].value) if entries else None

    def setdefault(self, key: Key, default: Any = None) -> Any:
        """The value of a key, which is set to `default` if it has none."""
        entry = self.entry(key)
        if entry is not None:
            return entry.value
        self.put(key, default, if_absent=True)
        return default

    def pop(self, key: Key, *default: Any) -> Any:
        """Deletes a key and returns its value; without one, `default` or a KeyError."""
        entry = self.entry(key)
        if entry is not None:
            self.delete(key)
            return entry.value
        if default:
            return default[0]
        raise KeyError(key)

    def update(self, values: Any = (), **more: Any) -> None:
        """Sets keys, of a mapping or of pairs."""
        pairs = values.items() if hasattr(values, "items") else values
        for key, value in pairs:
            self.put(key, value)
        for name, value in more.items():
            self.put(name, value)

    def keys(self, prefix: Key = "") -> Iterator[Any]:
        """The keys, in order of their bytes."""
        return (entry.key for entry in self._scan(prefix, None, None, None, True))

    def items(self, prefix: Key = "") -> Iterator[tuple[Any, Any]]:
        """Keys and their values, in order."""
        return self.scan(prefix)

    def values(self) -> Iterator[Any]:
        """The values, in order of their keys."""
        return (entry.value for entry in self._scan("", None, None, None, False))

    def scan(
        self, prefix: Key = "", *, start: Optional[Key] = None, stop: Optional[Key] = None, limit: Optional[int] = None
    ) -> Iterator[tuple[Any, Any]]:
        """Keys and values in order: those with a prefix, from `start` up to, but not including, `stop`, at most `limit`.

        It reads a thousand entries at a time. Within a run all of them are as of its beginning; a client sees each page as it is when it is read.
        """
        return ((entry.key, entry.value) for entry in self._scan(prefix, start, stop, limit, False))

    def entries(self, prefix: Key = "", *, limit: Optional[int] = None) -> Iterator[TableEntry]:
        """The same as entries with their versions."""
        return self._scan(prefix, None, None, limit, False)

    def change(self, record: Any) -> TableEntry:
        """What a record of the table's log says: its key and value, or that the key was deleted. Takes a record, or its number."""
        seqno = record if isinstance(record, int) else record.seqno
        return self._request(bytes([_RECORD]) + struct.pack("<Q", seqno))[1][0]

    def versions(self, key: Key, *, limit: int = 100) -> list[TableEntry]:
        """The versions of a key, the newest first, as far as the namespace still has them."""
        return self._request(bytes([_VERSIONS]) + self._key(key) + struct.pack("<QI", 0, limit))[1]

    def _scan(
        self, prefix: Key, start: Optional[Key], stop: Optional[Key], limit: Optional[int], keys_only: bool
    ) -> Iterator[TableEntry]:
        first = _bytes(prefix)
        end = _after(first)
        if start is not None:
            first = max(first, _bytes(start))
        if stop is not None:
            end = min(end, _bytes(stop)) if end else _bytes(stop)
        left = limit
        while left is None or left > 0:
            count = _PAGE if left is None else min(left, _PAGE)
            more, entries = self._request(
                bytes([_SCAN]) + _counted(first) + _counted(end) + struct.pack("<IB", count, keys_only)
            )
            yield from entries
            if not more or not entries:
                return
            first = _bytes(entries[-1].key) + b"\0"
            left = None if left is None else left - len(entries)

    def _request(self, request: bytes) -> tuple[bool, list[TableEntry]]:
        codec = self.codec
        more, rows = _entries(self._ask(self.name, request))
        entries = []
        for key, version, expires_us, time_us, deleted, value in rows:
            shown: Any = None
            # A scan of keys has no values.
            if not deleted and (value or codec != "json"):
                shown = value if codec == "bytes" else value.decode() if codec == "text" else json.loads(value)
            named: Any = key.decode() if self._keys == "text" else key
            expires = expires_us / 1e6 if expires_us else None
            entries.append(TableEntry(named, shown, version, time_us / 1e6, expires, deleted))
        return more, entries

    def _key(self, key: Key) -> bytes:
        if not isinstance(key, (str, bytes)):
            raise TypeError(f"a key of a table is str or bytes, not {type(key).__name__}")
        return _counted(_bytes(key))

    def _encode(self, value: object) -> bytes:
        codec = self.codec
        if codec == "json":
            return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False, default=plain).encode()
        if isinstance(value, str):
            return value.encode()
        if codec == "bytes" and isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        wanted = "str" if codec == "text" else "bytes or str"
        raise TypeError(f"the values of table {self.name!r} are {wanted}, not {type(value).__name__}")


def _bytes(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


def _counted(key: bytes) -> bytes:
    return min(len(key), 0xFFFF).to_bytes(2, "little") + key[:0xFFFF]


def _condition(version: Optional[int], absent: bool) -> int:
    if absent and version is not None:
        raise ValueError("if_version and if_absent exclude each other")
    if version is not None and not 0 < version < _ALWAYS:
        raise ValueError(f"{version} is not a version")
    return 0 if absent else _ALWAYS if version is None else version


def _after(prefix: bytes) -> bytes:
    """The first bytes after all that begin with this prefix; empty if there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b""


def _entries(answer: bytes) -> tuple[bool, list[tuple[bytes, int, int, int, bool, bytes]]]:
    more, at, entries = answer[0] == 1, 1, []
    while at < len(answer):
        end = at + 2 + int.from_bytes(answer[at : at + 2], "little")
        key = answer[at + 2 : end]
        version, expires_us, time_us, deleted, length = _ENTRY.unpack_from(answer, end)
        at = end + _ENTRY.size + length
        entries.append((key, version, expires_us, time_us, deleted == 1, answer[at - length : at]))
    return more, entries
