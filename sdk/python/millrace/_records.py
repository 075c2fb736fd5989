"""Records as they are read from a namespace."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Optional

from millrace._worker import Record, error_of

try:
    from millrace import _native
except ImportError as _why:
    raise error_of(
        "MR6101",
        f"cannot import 'millrace._native': {_why}",
        "The package has no native module for this interpreter: the source tree was imported, or a wheel for another"
        " platform.",
        "Install the package for this interpreter: `pip install ./sdk/python`. Code that runs as a function does not"
        " need the native module.",
    ) from _why

if TYPE_CHECKING:

    class StoredRecord(Record):
        """A record with its id, time and cause."""

        @property
        def id(self) -> str:
            """The id of the record, which is unique across namespaces."""

        @property
        def time(self) -> datetime.datetime:
            """When it was appended: an aware datetime in UTC."""

        @property
        def clock(self) -> int:
            """When it was appended, on the hybrid logical clock, which orders every cause before its effect."""

        @property
        def cause(self) -> Optional[str]:
            """The run that appended it, or None if it came from outside."""

        @property
        def headers(self) -> tuple[tuple[str, str], ...]:
            """What its client said beside its bytes: names and values, such as the user properties of a message of MQTT."""

else:
    StoredRecord = _native.Record
    # A function can be given what `get` returns, and `isinstance` agrees.
    Record.register(StoredRecord)

__all__ = ["Record", "StoredRecord", "_native"]
