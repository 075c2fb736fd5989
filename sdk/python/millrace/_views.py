"""Views of a namespace: logs, functions, runs, and why something is not running."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from millrace._records import _native


#: The states of runs that have ended.
_ENDED = ("done", "dead", "cancelled")


@dataclass(frozen=True)
class LogStat:
    """A log and the numbers of its records."""

    name: str
    #: How many of its newest records it keeps; None if it keeps them until they are trimmed.
    history: Optional[int]
    #: The oldest record that can be read, 0 if there is none.
    earliest: int
    #: The newest record, 0 if there is none.
    latest: int
    #: The functions bound to it.
    functions: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """How many records can be read."""
        return self.latest - self.earliest + 1 if self.latest else 0


@dataclass(frozen=True)
class TableStat:
    """A table."""

    name: str
    #: What its values are: "json", "text" or "bytes".
    codec: str
    #: What its keys are: "text" or "bytes".
    keys: str
    #: After how many seconds a value expires that is put without a lifetime; None: never.
    ttl: Optional[float]
    #: How many of its newest changes can be read as a log; None if all.
    history: Optional[int]
    #: The version of the newest change, 0 if there is none.
    latest: int
    #: Of a replica: `owner`, `stage`, `connected`, `position`, `records` and `age_ms` that it is behind, and `trouble`.
    replica: Optional[dict[str, Any]] = None


@dataclass(frozen=True)
class FunctionStat:
    """A function and how many runs it has pending."""

    name: str
    #: Runs triggered since the function was deployed, runs that have ended, and runs that have not.
    triggered: int
    done: int
    pending: int
    runtime: Optional[str] = None
    on: tuple[str, ...] = ()
    #: SHA-256 of its code.
    code: Optional[str] = None
    #: Why its definition cannot be read, if it cannot: a code, and what was wrong.
    error: Optional[tuple[str, str]] = None


@dataclass(frozen=True)
class DeviceUpdate:
    """An update of the firmware of a device."""

    number: int
    version: str
    #: Bytes of the image, and its SHA-256 in hexadecimal.
    size: int
    sha256: str
    #: "storing", "waiting", "receiving", "ready" or "trial", and in the end "confirmed", "reverted" or "refused".
    state: str
    #: How many bytes the host has, and how many were sent to the device.
    stored: int
    sent: int
    #: Why it failed, if it did: a code, and what was wrong.
    error: Optional[tuple[str, str]] = None


@dataclass(frozen=True)
class RefusedDevice:
    """A device that a host refuses, until it is accepted again."""

    #: The name that it uses.
    device: str
    #: How that is known: "right" if it may append to the logs of the device; "claim" if it only says so; "capability" if a connection named
    #: a capability of the device that is not valid, and proved nothing.
    known_by: str
    #: The code, what was wrong, and what to do about it.
    code: str
    detail: str
    remedy: str
    #: How often it was refused since it was accepted; the first and the last time, as text.
    times: int
    first: str
    last: str
    #: Where it connects from, if that is another machine.
    address: Optional[str] = None
    #: The id of its capability, if it has shown one, and its identity, if it said one.
    capability: Optional[str] = None
    identity: Optional[str] = None


@dataclass(frozen=True)
class DevicePresence:
    """Whether a device is connected to its host. Times are text."""

    connected: bool
    #: Since when it is connected, or until when it was.
    since: Optional[str] = None
    until: Optional[str] = None
    #: When it will connect again, if it does so at regular intervals.
    expected: Optional[str] = None


@dataclass(frozen=True)
class Device:
    """A device that has sent records, and how far its journal is imported."""

    name: str
    #: Records and runs that were imported, and how many of the runs failed for good.
    records: int
    runs: int
    dead: int
    #: Starts of the device, and records that it dropped before they were imported.
    starts: int
    lost_records: int
    #: Its logs in the namespace, with the seqno of the newest record of each.
    logs: dict[str, int]
    commands_waiting: int
    #: Why it takes no commands, if it refused all of them: a code, and what was wrong.
    commands_refused: Optional[tuple[str, str]] = None
    #: Why it is refused, or another device that says to be it.
    refused: tuple[RefusedDevice, ...] = ()
    #: The version of its firmware, if that takes updates, and the last update.
    firmware: Optional[str] = None
    update: Optional[DeviceUpdate] = None
    #: The time of its newest entry, as text.
    time: Optional[str] = None
    #: Only a host knows it: None for a program that has opened the files of the namespace itself.
    presence: Optional[DevicePresence] = None


@dataclass(frozen=True)
class RecordRef:
    """A reference to a record; `log` is None if the log was removed."""

    log: Optional[str]
    seqno: int


@dataclass(frozen=True)
class KeysRead:
    """Keys of a table that a run found without a value (`absent`), or a range that it read: from `start` to before `stop`."""

    #: None if the table was removed.
    table: Optional[str]
    absent: Optional[Union[str, bytes]] = None
    start: Optional[Union[str, bytes]] = None
    stop: Optional[Union[str, bytes]] = None
    #: How many keys were asked for at most. A scan asks for a thousand at a time.
    limit: Optional[int] = None


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run."""

    attempt: int
    time: datetime.datetime


@dataclass(frozen=True)
class Run:
    """One run of a function."""

    id: str
    function: Optional[str]
    #: "pending", "started", "done", "dead" or "cancelled".
    state: str
    #: The record that it runs for.
    record: RecordRef
    #: The run that appended that record, or None if it came from outside.
    caused_by: Optional[str]
    triggered: datetime.datetime
    ended: Optional[datetime.datetime]
    attempts: tuple[Attempt, ...] = ()
    reads: tuple[RecordRef, ...] = ()
    #: What it read of the keys of tables, besides values of single keys.
    keys: tuple[KeysRead, ...] = ()
    appends: tuple[RecordRef, ...] = ()
    #: Its output.
    output: str = ""
    #: Why it failed for good, if it did: a code, and what was wrong.
    error: Optional[tuple[str, str]] = None
    #: What its function returned: text, bytes or a value that JSON has; None if it returned nothing. Lists of runs leave it out.
    result: Any = None


@dataclass(frozen=True)
class Reason:
    """One reason why something is not running: a word for programs, and a sentence."""

    reason: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Why:
    """All reasons that apply, the most fundamental first."""

    target: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.target}:", *(f"  {reason}" for reason in self.reasons)])


@dataclass(frozen=True)
class Deployed:
    """A deployed function: its name, the SHA-256 of its code, and "created", "updated" or "unchanged"."""

    name: str
    code: str
    change: str


def moment(text: str) -> datetime.datetime:
    """The time that JSON from a host contains: RFC 3339, or seconds since 1970 and a count."""
    if "T" in text:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    seconds, _, rest = text.partition(".")
    microseconds = rest.partition("+")[0] or "0"
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return epoch + datetime.timedelta(seconds=int(seconds), microseconds=int(microseconds))


def _refs(refs: list[dict[str, Any]]) -> tuple[RecordRef, ...]:
    return tuple(RecordRef(ref["log"], ref["seqno"]) for ref in refs)


def log_stat(document: dict[str, Any]) -> LogStat:
    functions = tuple(document.get("functions") or ())
    return LogStat(document["name"], document["history"], document["earliest"], document["latest"], functions)


def table_stat(document: dict[str, Any]) -> TableStat:
    ttl_ms = document["ttl_ms"]
    return TableStat(
        document["table"],
        document["codec"],
        document["keys"],
        ttl_ms / 1000 if ttl_ms else None,
        document["history"],
        document["latest"],
        document.get("replica"),
    )


def function_stat(document: dict[str, Any]) -> FunctionStat:
    return FunctionStat(
        document["name"],
        document["triggered"],
        document["done"],
        document["pending"],
        document.get("runtime"),
        tuple(document.get("on") or ()),
        document.get("code"),
        _error(document),
    )


def device(document: dict[str, Any]) -> Device:
    commands = document.get("commands_refused")
    firmware = document.get("firmware") or {}
    return Device(
        document["name"],
        document["records"],
        document["runs"],
        document["dead"],
        document["starts"],
        document["lost_records"],
        {name: newest for name, newest in document["logs"]},
        document["commands_waiting"],
        (commands["code"], commands["detail"]) if commands else None,
        tuple(map(refused_device, document.get("refused", ()))),
        firmware.get("running"),
        device_update(firmware["update"]) if firmware.get("update") else None,
        document.get("time"),
        DevicePresence(**document["presence"]) if document.get("presence") else None,
    )


def refused_device(document: dict[str, Any]) -> RefusedDevice:
    names = ("device", "known_by", "code", "detail", "remedy", "times", "first", "last")
    more = ("address", "capability", "identity")
    return RefusedDevice(*(document[name] for name in names), *(document.get(name) for name in more))


def device_update(document: dict[str, Any]) -> DeviceUpdate:
    names = ("number", "version", "size", "sha256", "state", "stored", "sent")
    error = (document["code"], document.get("detail", "")) if document.get("code") else None
    return DeviceUpdate(**{name: document[name] for name in names}, error=error)


def run(document: dict[str, Any]) -> Run:
    ended = document.get("ended")
    return Run(
        id=document["id"],
        function=document["function"],
        state=document["state"],
        record=RecordRef(document["log"], document["seqno"]),
        caused_by=document.get("caused_by"),
        triggered=moment(document["triggered"]),
        ended=moment(ended) if ended else None,
        attempts=tuple(Attempt(attempt["attempt"], moment(attempt["time"])) for attempt in document["attempts"]),
        reads=_refs(document["reads"]),
        keys=tuple(_keys_read(read) for read in document.get("keys", ())),
        appends=_refs(document["appends"]),
        output=document.get("output") or "",
        error=_error(document),
        result=_result(document.get("result") or {}),
    )


def answer(function: str, wait: float, invoked: tuple[str, str, bytes, str, str]) -> Any:
    """What a caller gets of a run: the value of its result, or an exception."""
    run, state, result, code, detail = invoked
    if not code and state not in _ENDED:
        code = "MR2106"
        detail = f"run {run} of function '{function}' has not ended after {wait:g} s; its state is '{state}'"
    if code:
        error = _native.error(code, detail)
        error.run = run  # type: ignore[attr-defined]
        raise error
    kind, content = result[:1], result[1:]
    if kind == b"\0":
        return content.decode()
    if kind == b"\1":
        return content
    return json.loads(content) if kind == b"\2" else None


def _keys_read(document: dict[str, Any]) -> KeysRead:
    absent, start, stop = (table_key(document.get(name)) for name in ("absent", "from", "to"))
    return KeysRead(document["table"], absent, start, stop, document.get("limit"))


def table_key(document: Any) -> Optional[Union[str, bytes]]:
    """A key of a table, as documents have it."""
    return base64.b64decode(document["base64"]) if isinstance(document, dict) else document


def _result(document: dict[str, Any]) -> Any:
    kind, data = document.get("type"), document.get("data")
    if kind == "bytes":
        return base64.b64decode(document["base64"]) if data is None else data.encode()
    return json.loads(data or "null") if kind == "json" else data


def _error(document: dict[str, Any]) -> Optional[tuple[str, str]]:
    error = document.get("error")
    return (error["code"], error["detail"]) if error else None


def why(document: dict[str, Any]) -> Why:
    def reason(one: dict[str, Any]) -> Reason:
        details = {key: value for key, value in one.items() if key not in ("reason", "text")}
        return Reason(one["reason"], one["text"], details)

    return Why(document["target"], tuple(reason(one) for one in document["reasons"]))


def deployed(text: str) -> Deployed:
    document = json.loads(text)
    return Deployed(document["name"], document["code"], document["change"])
