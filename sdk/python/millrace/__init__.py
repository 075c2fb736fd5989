"""Millrace: append records to logs, and run functions for them.

    import millrace

    ns = millrace.open("farm/.millrace")        # or "mr://edge:7070/farm"
    ns.append("raw/kitchen", {"celsius": 21.5})
    for record in ns.tail("clean/kitchen"):
        print(record.seqno, record.json())

A function runs for every record of the logs it is bound to:

    @millrace.function(on="raw/kitchen")
    def smooth(record: millrace.Record, ctx: millrace.Context) -> None:
        ctx.append("clean/kitchen", {"celsius": record.json()["celsius"]})

The parts that a function needs are pure Python and always available in a worker, even if the package is not installed.
The rest is loaded when it is first used.
"""

from __future__ import annotations

import importlib as _importlib

from millrace import _worker
from millrace._worker import (
    Busy,
    Conflict,
    Context,
    Damaged,
    Denied,
    Error,
    FunctionFailed,
    Gone,
    Invalid,
    Missing,
    NotFound,
    Record,
    StorageFailed,
    TimedOut,
    Unavailable,
    function,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    __version__: str
    from millrace import codecs, history, objects, repairs
    from millrace._async import AsyncLog, AsyncNamespace, AsyncTable, AsyncTopic, aopen
    from millrace._log import Entry, Log
    from millrace._namespace import Namespace
    from millrace._open import create, open
    from millrace._records import StoredRecord
    from millrace._views import Deployed, Device, DevicePresence, DeviceUpdate, FunctionStat, LogStat, Reason, RefusedDevice, Run, TableStat, Why
    from millrace._work._tables import Table, TableEntry
    from millrace.executor import CloudThread, Connection, Executor, connect, idempotency_key, parallel_for, register_module
    from millrace.objects._classes import method, readonly, reentrant, shared, when
    from millrace.topics import Topic, TopicStat

__all__ = [
    "AsyncLog",
    "AsyncNamespace",
    "AsyncTable",
    "AsyncTopic",
    "Busy",
    "CloudThread",
    "Conflict",
    "Connection",
    "Context",
    "Damaged",
    "Denied",
    "Deployed",
    "Device",
    "DevicePresence",
    "DeviceUpdate",
    "Entry",
    "Error",
    "Executor",
    "FunctionFailed",
    "FunctionStat",
    "Gone",
    "Invalid",
    "Log",
    "LogStat",
    "Missing",
    "Namespace",
    "NotFound",
    "Reason",
    "Record",
    "RefusedDevice",
    "Run",
    "StorageFailed",
    "StoredRecord",
    "Table",
    "TableEntry",
    "TableStat",
    "TimedOut",
    "Topic",
    "TopicStat",
    "Unavailable",
    "Why",
    "aopen",
    "codecs",
    "connect",
    "create",
    "function",
    "history",
    "idempotency_key",
    "method",
    "objects",
    "open",
    "parallel_for",
    "readonly",
    "reentrant",
    "register_module",
    "repairs",
    "shared",
    "when",
]

_LATER = {
    "AsyncLog": "_async",
    "AsyncNamespace": "_async",
    "AsyncTable": "_async",
    "AsyncTopic": "_async",
    "CloudThread": "executor",
    "Connection": "executor",
    "Deployed": "_views",
    "Device": "_views",
    "DevicePresence": "_views",
    "DeviceUpdate": "_views",
    "Entry": "_log",
    "Executor": "executor",
    "FunctionStat": "_views",
    "Log": "_log",
    "LogStat": "_views",
    "Namespace": "_namespace",
    "Reason": "_views",
    "RefusedDevice": "_views",
    "Run": "_views",
    "StoredRecord": "_records",
    "Table": "_work._tables",
    "TableEntry": "_work._tables",
    "TableStat": "_views",
    "Topic": "topics",
    "TopicStat": "topics",
    "Why": "_views",
    "aopen": "_async",
    "connect": "executor",
    "create": "_open",
    "idempotency_key": "executor",
    "method": "objects._classes",
    "open": "_open",
    "parallel_for": "executor",
    "readonly": "objects._classes",
    "reentrant": "objects._classes",
    "register_module": "executor",
    "shared": "objects._classes",
    "when": "objects._classes",
}

for _name in _worker.OFFERED:
    # Tracebacks and pickles name things as people import them.
    globals()[_name].__module__ = __name__


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _importlib.import_module("millrace._records")._native.VERSION
    if name in ("codecs", "history", "objects", "repairs"):
        return _importlib.import_module(f"millrace.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}")
    value = getattr(_importlib.import_module(f"millrace.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
