"""Repairs: new values for past records, or new code for past runs, with a replay of the runs that depended on them.

    plan = ns.repair({"raw": {289: "21.5"}}, reason="stuck sensor")
    repair = plan.run()                       # replays beside the live system; not visible yet
    print(repair.diff("mean").to_pandas())
    repair.apply()                            # all logs show the repaired records from now on
    repair.rollback()
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, overload

from millrace import _show
from millrace._records import _native
from millrace._worker import encode
from millrace.codecs import Codec, package

if TYPE_CHECKING:
    import os

    import pandas

    from millrace._namespace import Namespace
    from millrace.history import Effects

#: The interval at which a repair's progress is requested, in seconds.
_LOOK_S = 0.05
#: A host that replays notes its progress more often than this.
_HOST_GONE_S = 10.0
#: In these phases there is something that a host does.
_MOVING = ("open", "running", "applying", "preparing", "committing")

__all__ = ["Change", "Diff", "Plan", "Repair", "amend", "plan", "repairs"]


@dataclass(frozen=True)
class Change:
    """A record that a repair changes: its bytes before and after the repair, None where there is no record."""

    log: str
    #: None for a record that is appended when the repair is applied.
    seqno: Optional[int]
    old: Optional[bytes]
    new: Optional[bytes]


class Diff(Sequence[Change]):
    """The changes of a repair, by log and number."""

    def __init__(self, changes: list[Change]) -> None:
        self._changes = changes

    @overload
    def __getitem__(self, at: int) -> Change: ...
    @overload
    def __getitem__(self, at: slice) -> Diff: ...
    def __getitem__(self, at: int | slice) -> Change | Diff:
        return Diff(self._changes[at]) if isinstance(at, slice) else self._changes[at]

    def __len__(self) -> int:
        return len(self._changes)

    def __iter__(self) -> Iterator[Change]:
        return iter(self._changes)

    def __repr__(self) -> str:
        return f"<millrace.repairs.Diff of {len(self)} records>"

    def _repr_html_(self) -> str:
        return _show.diff(self)

    def to_pandas(self, codec: Optional[Codec[Any]] = None) -> pandas.DataFrame:
        """A data frame with a row for each record and the columns log, seqno, old and new. Text that is a number becomes a number.

        With a codec, old and new are the values that it decodes; of dicts, each field has a column, such as `old.celsius`.
        """
        if codec is None:
            rows = [(one.log, one.seqno, _value(one.old), _value(one.new)) for one in self]
            return package("pandas").DataFrame(rows, columns=["log", "seqno", "old", "new"])
        found: list[dict[str, Any]] = []
        for one in self:
            row: dict[str, Any] = {"log": one.log, "seqno": one.seqno}
            for side, data in (("old", one.old), ("new", one.new)):
                value = None if data is None else codec.decode(data)
                row |= {f"{side}.{name}": it for name, it in value.items()} if isinstance(value, dict) else {side: value}
            found.append(row)
        return package("pandas").DataFrame(found, columns=None if found else ["log", "seqno", "old", "new"])


class Repair:
    """A repair of a namespace, and its progress."""

    def __init__(self, namespace: Namespace, told: dict[str, Any]) -> None:
        self._namespace = namespace
        self._told = told

    @property
    def number(self) -> int:
        """The number of the repair in the namespace."""
        return int(self._told["repair"])

    @property
    def phase(self) -> str:
        """`open`, `running`, `ready`, `stopped`, `applying`, `applied`, `rolled-back`, `abandoned` or `closed`; for a part
        of another namespace's repair also `preparing`, `prepared` or `committing`."""
        return str(self._told["phase"])

    @property
    def reason(self) -> str:
        """The reason that was given for the repair."""
        return str(self._told["reason"])

    @property
    def log(self) -> Optional[str]:
        """The log that it corrects."""
        return self._told.get("log")

    @property
    def function(self) -> Optional[str]:
        """The function whose code it replaces."""
        return self._told.get("function")

    @property
    def undo(self) -> Optional[int]:
        """The repair that it rolls back."""
        return self._told.get("undo")

    @property
    def counts(self) -> dict[str, int]:
        """How many runs were `replayed`, had the `same` result as before, `failed`, or were `cancelled`;
        and how many records are `replaced`, `void` (removed) and `appended`."""
        return dict(self._told["counts"])

    @property
    def progress(self) -> Optional[tuple[int, int]]:
        """The progress of a long replay: how many runs were examined, and how many have ended."""
        told = self._told.get("progress")
        return (told["examined"], told["runs"]) if told else None

    @property
    def error(self) -> Optional[tuple[str, str]]:
        """Why the repair stopped, if it did: a code and a detail."""
        told = self._told.get("error")
        return (told[0], told[1]) if told else None

    @property
    def not_run(self) -> dict[str, int]:
        """How many runs of each function were not replayed, because they may have effects outside the namespace."""
        return {one["function"]: one["runs"] for one in self._told.get("not_run", [])}

    @property
    def topics(self) -> dict[str, list[str]]:
        """By log that changes: the topics that keep its old records, because a repair changes no topic."""
        topics: dict[str, list[str]] = {}
        for one in self._told.get("topics", []):
            topics.setdefault(one["log"], []).append(one["topic"])
        return topics

    @property
    def waits(self) -> Optional[tuple[str, str]]:
        """Why the host cannot continue at the moment, while it retries: a code and a detail."""
        told = self._told.get("waits")
        return (told[0], told[1]) if told else None

    @property
    def across(self) -> dict[str, Optional[tuple[str, str]]]:
        """The addresses of the namespaces that take part, each with its problem, if any: a code and a detail."""
        told = self._told.get("across", [])
        return {one["address"]: tuple(one["error"]) if one["error"] else None for one in told}

    def refresh(self) -> Repair:
        """Requests the current state from the host."""
        self._told = self._namespace._ask(f"repairs/{self.number}")
        return self

    def diff(self, log: Optional[str] = None) -> Diff:
        """The changes of this repair, in all logs or in one."""
        changes: list[Change] = []
        after = 0
        while True:
            page = self._namespace._ask(f"repairs/{self.number}/diff", {"log": log, "after": str(after)})
            for one in page["changes"]:
                changes.append(Change(one["log"], one["seqno"], _bytes(one.get("old")), _bytes(one.get("new"))))
            if page.get("next") is None:
                return Diff(changes)
            after = page["next"]

    def run(self, progress: Optional[Callable[[Repair], object]] = None, timeout: Optional[float] = None) -> Repair:
        """Continues a stopped repair; returns when all affected runs are replayed."""
        return self._do("run", progress, timeout)

    def apply(self, progress: Optional[Callable[[Repair], object]] = None, timeout: Optional[float] = None) -> Repair:
        """Applies the repair: all its logs change at once. Before that, the runs that have ended since are replayed."""
        return self._do("apply", progress, timeout)

    def rollback(
        self,
        reason: str = "",
        progress: Optional[Callable[[Repair], object]] = None,
        timeout: Optional[float] = None,
    ) -> Repair:
        """Rolls the repair back by another repair, which is returned. Only the newest applied repair can be rolled back."""
        told = self._namespace.ask_repair(json.dumps({"do": "rollback", "repair": self.number, "reason": reason}))
        undo = Repair(self._namespace, json.loads(told))._wait(progress, timeout)
        self.refresh()
        return undo

    def abandon(self) -> Repair:
        """Abandons the repair before it is applied; no log changes."""
        return self._do("abandon", None, None)

    def gc(self) -> Repair:
        """Frees the space that the repair keeps for its rollback."""
        return self._do("gc", None, None)

    def _do(
        self, what: str, progress: Optional[Callable[[Repair], object]], timeout: Optional[float]
    ) -> Repair:
        self._told = json.loads(self._namespace.ask_repair(json.dumps({"do": what, "repair": self.number})))
        return self._wait(progress, timeout)

    def _wait(self, progress: Optional[Callable[[Repair], object]], timeout: Optional[float]) -> Repair:
        """Returns once the host has nothing to do for it; without a host, this process does the work."""
        until = None if timeout is None else time.monotonic() + timeout
        if self.phase in _MOVING:
            self._namespace.repair_here()
        told, changed = self._told, time.monotonic()
        while self.refresh().phase in _MOVING:
            if self._told != told:
                told, changed = self._told, time.monotonic()
            elif time.monotonic() - changed >= _HOST_GONE_S:
                # The host may have ended. If one runs, this does nothing.
                self._namespace.repair_here()
                changed = time.monotonic()
            if progress is not None:
                progress(self)
            if until is not None and time.monotonic() > until:
                raise _native.error("MR2106", f"repair {self.number} is {self.phase} after {timeout} s")
            time.sleep(_LOOK_S)
        if progress is not None:
            progress(self)
        if self.phase == "stopped" and self.error is not None:
            raise _native.error(*self.error)
        return self

    def __repr__(self) -> str:
        of = f"log {self.log!r}" if self.log else f"function {self.function!r}" if self.function else "undo"
        return f"<millrace.repairs.Repair {self.number} of {of}: {self.phase}>"

    def _repr_html_(self) -> str:
        return _show.repair(self)


@dataclass(frozen=True)
class Plan:
    """A description of a repair, before it is requested."""

    namespace: Namespace
    #: The request to the host; None if code is replaced.
    request: Optional[dict[str, Any]]
    #: The function, its new source, and the event from which on its runs are replayed.
    code: Optional[tuple[str, str, Optional[str]]]
    reason: str
    append_new: bool
    #: The addresses of the namespaces that take part.
    across: list[str]
    #: Functions that are run again although they may have effects outside the namespace.
    run_external: list[str]

    def run(self, progress: Optional[Callable[[Repair], object]] = None, timeout: Optional[float] = None) -> Repair:
        """Opens the repair and returns when all affected runs are replayed. Logs do not change before `apply`. `progress` is called with the
        repair from time to time. Without `timeout` (seconds), the call waits forever.
        """
        if self.code is None:
            told = self.namespace.ask_repair(json.dumps(self.request))
        else:
            function, source, since = self.code
            told = self.namespace.repair_code(
                function, source, since, self.reason, self.append_new, self.across, self.run_external
            )
        return Repair(self.namespace, json.loads(told))._wait(progress, timeout)

    def effects(self, timeout: Optional[float] = 120.0) -> Effects:
        """What the repair would change in this namespace: the runs that it would replay, and the records that these appended. Nothing is
        changed. The namespaces of `across` are not asked. The host reads the journal for it; after `timeout` seconds, `TimedOut` is raised.
        A plan of new code has no such forecast.
        """
        from millrace.history import effects

        if self.request is None:
            raise _native.error("MR7003", "what new code changes is known only after its runs are replayed; call `run`")
        request = {key: self.request[key] for key in ("log", "corrections", "run_external")} | {"do": "plan"}
        return effects(self.namespace, request, timeout)

    def __repr__(self) -> str:
        if self.request is None:
            return f"<millrace.repairs.Plan: new code of function {self.code[0] if self.code else None!r}>"
        return f"<millrace.repairs.Plan: {len(self.request['corrections'])} corrections of log {self.request['log']!r}>"

    def _repr_html_(self) -> str:
        return _show.plan(self)


def plan(
    namespace: Namespace,
    values: Optional[Mapping[str, Any]],
    function: Optional[Mapping[str, str | os.PathLike[str]]],
    since: Optional[str],
    reason: str,
    accept_unknown: bool,
    append_new: bool,
    across: list[str],
    run_external: list[str],
) -> Plan:
    """The implementation of `Namespace.repair`."""
    given = [one for one in (values, function) if one]
    if len(given) != 1 or len(given[0]) != 1:
        raise _native.error("MR7003", "a repair corrects the records of one log, or replaces the code of one function")
    if function:
        ((name, source),) = function.items()
        code = (name, str(source), _event(namespace, since))
        return Plan(namespace, None, code, reason, append_new, across, run_external)
    if since is not None:
        raise _native.error("MR7003", "`since` can be given only with `function`")
    assert values is not None
    ((log, new),) = values.items()
    request = {
        "do": "open",
        "log": log,
        "reason": reason,
        "corrections": [_correction(seqno, value) for seqno, value in _numbered(namespace, log, new)],
        "accept_unknown": accept_unknown,
        "append_new": append_new,
        "across": across,
        "run_external": run_external,
    }
    return Plan(namespace, request, None, reason, append_new, across, run_external)


def amend(namespace: Namespace, log: str, values: Any) -> int:
    """The implementation of `Namespace.amend`."""
    corrections = [_correction(seqno, value) for seqno, value in _numbered(namespace, log, values)]
    request = {"do": "amend", "log": log, "corrections": corrections}
    return int(json.loads(namespace.ask_repair(json.dumps(request)))["waiting"])


def repairs(namespace: Namespace) -> list[Repair]:
    """The implementation of `Namespace.repairs`."""
    return [Repair(namespace, told) for told in namespace._list("repairs")]


def _numbered(namespace: Namespace, log: str, values: Any) -> list[tuple[Any, Any]]:
    """Corrections by the number of their record. A key of a table stands for the record that has its value now."""
    pairs = _pairs(values)
    if not any(isinstance(given, (str, bytes)) for given, _ in pairs) or all(log != stat.name for stat in namespace.tables()):
        return pairs
    table = namespace.table(log)

    def numbered(given: Any, value: Any) -> tuple[Any, Any]:
        if not isinstance(given, (str, bytes)):
            return given, value
        entry = table.entry(given)
        if entry is None:
            raise _native.error("MR7340", f"table {log!r} has no key {given!r}")
        return entry.version, None if value is None else table._encode(value)

    return [numbered(given, value) for given, value in pairs]


def _pairs(values: Any) -> list[tuple[Any, Any]]:
    """Numbers, or keys, and values of a mapping, or of a data frame with the columns seqno or key (or the index) and value."""
    if hasattr(values, "columns"):
        if "value" not in values.columns:
            columns = ", ".join(map(repr, values.columns))
            raise _native.error("MR7003", f"the data frame of corrections has no column 'value'; its columns are {columns}")
        column = next((column for column in ("seqno", "key") if column in values.columns), None)
        numbers = values.index if column is None else values[column]
        return list(zip(numbers, values["value"].tolist()))
    if not hasattr(values, "items"):
        detail = f"corrections are new values by number, as in {{289: '21.5'}}, or a data frame; not a {type(values).__name__}"
        raise _native.error("MR7003", detail)
    return list(values.items())


def _seqno(given: Any) -> int:
    """A sequence number of a mapping or of a data frame, whose numbers may be of other types."""
    try:
        seqno = int(given)
    except (ValueError, TypeError, OverflowError):
        seqno = 0
    if not 1 <= seqno < 2**64 or (isinstance(given, float) and given != seqno):
        raise _native.error("MR1003", f"{given!r} is not a sequence number")
    return seqno


def _correction(given: Any, value: Any) -> dict[str, Any]:
    seqno = _seqno(given)
    if value is None:
        return {"seqno": seqno, "void": True}
    try:
        data = encode(value)
    except (TypeError, ValueError) as why:
        raise _native.error("MR7003", f"the new value of record {seqno}: {why}; None removes the record") from why
    try:
        return {"seqno": seqno, "data": data.decode()}
    except UnicodeDecodeError:
        return {"seqno": seqno, "base64": base64.b64encode(data).decode()}


def _event(namespace: Namespace, since: Optional[str]) -> Optional[str]:
    """The id of an event that is given as such, or as LOG@SEQNO."""
    log, at, seqno = (since or "").rpartition("@")
    if not at:
        return since
    if not seqno.isdecimal():
        raise _native.error("MR7003", f"{since!r} is neither LOG@SEQNO nor the id of an event")
    return namespace.get(log, int(seqno)).id


def _bytes(told: Optional[dict[str, str]]) -> Optional[bytes]:
    if told is None:
        return None
    return told["data"].encode() if "data" in told else base64.b64decode(told["base64"])


def _value(data: Optional[bytes]) -> Any:
    if data is None:
        return None
    text = data.decode(errors="backslashreplace")
    try:
        return float(text)
    except ValueError:
        return text
