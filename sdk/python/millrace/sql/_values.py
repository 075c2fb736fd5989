"""The column `value`: how the bytes of a log's records become values of SQL. What cannot be decoded is an error, or NULL if one asked for that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from millrace._records import StoredRecord, _native

if TYPE_CHECKING:
    from millrace.codecs import Codec

#: By name: the type of the column, the expression over `data`, and whether a value is one of this kind.
_KINDS = {
    "json": ("JSON", "decode(data)::JSON", "json_valid(decode(data))"),
    "text": ("VARCHAR", "decode(data)", "decode(data) IS NOT NULL"),
    "number": ("DOUBLE", "decode(data)::DOUBLE", "decode(data)::DOUBLE IS NOT NULL"),
    "bytes": ("BLOB", "data", "true"),
}
NAMES = ", ".join([*_KINDS, *(f"{name}?" for name in _KINDS if name != "bytes")])


@dataclass(frozen=True)
class Decoder:
    """A decoder of one log. With `?` after its name, what it cannot decode is NULL."""

    name: str
    #: What it is made of, if it is no name: an object with `decode`.
    codec: Optional[Codec[Any]] = None
    #: Whether it was chosen by the newest record.
    guessed: bool = False

    @property
    def _kind(self) -> tuple[str, str, str]:
        return _KINDS["json" if self.codec is not None else self.name.rstrip("?")]

    @property
    def type(self) -> str:
        return self._kind[0]

    @property
    def expression(self) -> str:
        """The value of a row, over its `data`, or over `decoded` if a codec decodes."""
        if self.codec is not None:
            return "decoded::JSON"
        return f"TRY({self._kind[1]})" if self.name.endswith("?") else self._kind[1]

    @property
    def fits(self) -> str:
        return f"coalesce(TRY({self._kind[2]}), false)"

    def decoded(self, log: str, record: StoredRecord) -> str:
        """The value as JSON, by the codec."""
        assert self.codec is not None
        try:
            value = self.codec.decode(record.data)
            # A batch of Arrow has rows.
            value = value.to_pylist() if hasattr(value, "to_pylist") else value
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        except Exception as why:
            raise self.error(log, record.seqno, f"{type(why).__name__}: {why}") from why

    def error(self, log: str, seqno: int, why: str) -> Exception:
        """A record that it cannot decode."""
        if self.codec is not None:
            return _native.error("MR6104", f"record {seqno} of log '{log}' with {self.codec!r}: {why}")
        chosen = f"is not {self.name}, as its newest record is" if self.guessed else f"is not {self.name}"
        others = f"Select `data` instead of `value`, or choose another decoder ({NAMES})"
        lenient = f"with decode={{{log!r}: '{self.name}?'}}, in the command --decode '{log}={self.name}?', its value is NULL"
        detail = f"record {seqno} of log '{log}' {chosen}. {others}; {lenient}"
        return _native.error("MR6104", detail)


def chosen(log: str, given: Union[str, Codec[Any]]) -> Decoder:
    """The decoder that was asked for."""
    if not isinstance(given, str):
        return Decoder(repr(given), given)
    if given.rstrip("?") not in _KINDS or given.count("?") > 1 or given == "bytes?":
        raise _native.error("MR1006", f"the decoder of log '{log}' is '{given}'; it must be one of {NAMES}, or a codec")
    return Decoder(given)


def guessed(connection: Any, newest: Optional[bytes]) -> Decoder:
    """The decoder that fits the newest record."""
    if newest is None:
        return Decoder("json", guessed=True)
    for name in ("json", "text"):
        fits = Decoder(name).fits
        if connection.execute(f"SELECT {fits} FROM (SELECT $1::BLOB AS data)", [newest]).fetchall()[0][0]:
            return Decoder(name, guessed=True)
    return Decoder("bytes", guessed=True)
