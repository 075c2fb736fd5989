"""Runs functions in a test, without a host and without files.

    from millrace.testing import Logs
    from total import total

    def test_the_sum_goes_on():
        logs = Logs(orders=[{"price": 5, "count": 3}], totals=[{"sum": 15}])
        run = logs.run(total, "orders", {"price": 2, "count": 1})
        assert [record.json() for record in run.appended] == [{"order": 2, "sum": 17}]

A run follows the same rules as on a host: it reads the logs as of its beginning, its appends become visible together when it
succeeds, and an append to a log that does not exist makes it fail.
"""

from __future__ import annotations

import contextlib
import inspect
import random as _random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from . import _worker
from ._worker import Error, Record

error_of: Callable[[str, str], Error] = _worker.error_of
with contextlib.suppress(ImportError):
    # With cause and remedy.
    from ._records import _native

    error_of = _native.error

__all__ = ["Context", "Logs", "Run"]

_ADDRESS = "mr://"


@dataclass(frozen=True)
class Run:
    """The effects of a run."""

    #: The record that it ran for.
    record: Record
    #: Its appends to logs here, in order.
    appended: list[Record] = field(default_factory=list)
    #: Its appends to logs of other namespaces: addresses and bytes.
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    #: Its return value, which a host ignores.
    returned: object = None


class Context(_worker.Context):
    """The context of a run in a test."""

    __slots__ = ("_logs", "_latest", "_staged", "_now", "_random", "_secrets")

    def __init__(self, logs: Logs, run_id: int, attempt: int, now: float, secrets: Mapping[str, str]) -> None:
        self._channel = None
        self._id = run_id
        self._streamed = False
        self.attempt = attempt
        self._logs = logs
        self._latest = {name: len(records) for name, records in logs._logs.items()}
        self._staged: list[tuple[str, bytes]] = []
        self._now = now
        self._secrets = secrets
        # A further attempt draws other numbers, and each run of a test draws the same ones every time.
        self._random = _random.Random(run_id << 16 | attempt)

    def append(self, log: str, data: object) -> Optional[int]:
        payload = _worker.encode(data)
        if len(payload) > _worker._RECORD_BYTES_MAX:
            raise error_of("MR1004", f"a record of {len(payload)} bytes; the limit is {_worker._RECORD_BYTES_MAX}")
        _worker._log_name(log)
        self._staged.append((log, payload))
        return None

    def get(self, log: str, seqno: int) -> Record:
        latest = self.latest(log)
        if seqno < 1:
            raise error_of("MR1003", f"{seqno} is not a sequence number")
        if seqno > latest:
            raise error_of("MR2105", f"record {seqno} of log '{log}' does not exist; the latest is {latest}")
        return self._logs._logs[log][seqno - 1]

    def latest(self, log: str) -> int:
        if log not in self._latest:
            raise error_of("MR2101", f"no log '{log}'")
        return self._latest[log]

    def externalize(self) -> None:
        """Returns at once: a test has no databases."""

    def now(self) -> float:
        return self._now

    def random(self, n: int) -> bytes:
        return self._random.randbytes(n)

    def secret(self, name: str) -> str:
        if name not in self._secrets:
            raise error_of("MR3130", f"the function may not read secret '{name}'")
        return self._secrets[name]


class Logs:
    """Logs in memory, with initial records: bytes, text, or anything that JSON can express.

    A log whose name is not a Python identifier is given in a mapping: `Logs({"raw/kitchen": [21.5]}, mean=[])`.
    """

    def __init__(self, logs: Optional[Mapping[str, Iterable[object]]] = None, /, **named: Iterable[object]) -> None:
        self._logs: dict[str, list[Record]] = {}
        self._runs: dict[tuple[object, str, int], int] = {}
        for name, records in {**(logs or {}), **named}.items():
            self._logs[name] = []
            for data in records:
                self.append(name, data)

    def append(self, log: str, data: object) -> Record:
        """Appends a record, and runs nothing."""
        records = self._log(log)
        record = Record(log, len(records) + 1, _worker.encode(data))
        records.append(record)
        return record

    def records(self, log: str) -> list[Record]:
        """All records of a log."""
        return list(self._log(log))

    def run(
        self,
        function: Callable[[Record, Any], object],
        log: str,
        data: object,
        *,
        attempt: int = 1,
        now: float = 1_700_000_000.0,
        secrets: Optional[Mapping[str, str]] = None,
    ) -> Run:
        """Appends a record to a log and runs a function for it. An exception of the function is raised here; then only
        the record is appended."""
        return self.run_for(function, self.append(log, data), attempt=attempt, now=now, secrets=secrets)

    def run_for(
        self,
        function: Callable[[Record, Any], object],
        record: Record,
        *,
        attempt: int = 1,
        now: float = 1_700_000_000.0,
        secrets: Optional[Mapping[str, str]] = None,
    ) -> Run:
        """Runs a function for an existing record: with a higher `attempt`, as a host does after a failure."""
        # An attempt at the same record with the same function is an attempt at the same run.
        key = (function, record.log, record.seqno)
        run_id = self._runs.setdefault(key, len(self._runs) + 1)
        context = Context(self, run_id, attempt, now, secrets or {})
        if inspect.iscoroutinefunction(function):
            raise error_of("MR3117", f"'{function.__qualname__}' is a coroutine function")
        returned = function(record, context)
        for name, _ in context._staged:
            if not name.startswith(_ADDRESS):
                self._log(name)
        appended, sent = [], []
        for name, payload in context._staged:
            if name.startswith(_ADDRESS):
                sent.append((name, payload))
            else:
                appended.append(self.append(name, payload))
        return Run(record, appended, sent, returned)

    def _log(self, log: str) -> list[Record]:
        if log not in self._logs:
            raise error_of("MR2101", f"no log '{log}'")
        return self._logs[log]

