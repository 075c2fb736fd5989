"""What caused what, as a host answers it: `Namespace.trace`, `Namespace.graph` and `Plan.effects`. A notebook shows all three as tables.

    ns.trace("estimate@10", up=True)          # what the record came from
    ns.graph().to_pandas()                    # how many records flow between logs and functions
    ns.repair({"raw": {289: "21.5"}}).effects()
"""

from __future__ import annotations

import base64
import datetime
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union
from urllib.parse import quote

from millrace import _show
from millrace._records import _native
from millrace._views import RecordRef, moment, table_key
from millrace.codecs import package

if TYPE_CHECKING:
    import pandas

    from millrace._log import Entry
    from millrace._namespace import Namespace
    from millrace._records import StoredRecord

#: The interval at which a plan's progress is requested, in seconds.
_LOOK_S = 0.05

__all__ = ["Branch", "Effects", "Flow", "Graph", "Trace", "graph", "trace"]


@dataclass(frozen=True)
class Branch:
    """A record or a run of a trace."""

    id: str
    #: How it belongs to the branch above it: "triggered", "read", "appended", "forwarded" or "claimed"; None for the first.
    link: Optional[str]
    #: How many branches are above it.
    level: int
    time: datetime.datetime
    #: The record, or None if it is a run.
    record: Optional[RecordRef]
    #: The first 4 KiB of the record.
    data: bytes
    #: Of a record of a table, the key, and whether it has no value from here on.
    key: Optional[Union[str, bytes]]
    deleted: bool
    #: The function of the run and the state of the run, or None if it is a record.
    function: Optional[str]
    state: Optional[str]
    #: How many records and runs below it are not listed.
    more: int

    def __str__(self) -> str:
        if self.record is not None:
            what = f"{self.record.log}@{self.record.seqno}  {self._shown()}"
        else:
            what = f"run of {self.function}  {self.state}"
        how = f"{self.link}: " if self.link else ""
        return how + what + (f"  ({self.more} more below)" if self.more else "")

    def _shown(self) -> str:
        value = "(deleted)" if self.deleted else _show.data(self.data)
        return value if self.key is None else f"{self.key if isinstance(self.key, str) else self.key.hex()} = {value}"


class Trace:
    """What an event caused, or what it came from: a tree, as the list of its branches."""

    def __init__(self, document: dict[str, Any]) -> None:
        #: The answer of the host.
        self.document = document
        #: "effects" or "causes".
        self.direction = str(document["direction"])
        branches: list[Branch] = []
        for one in document["branches"]:
            above = one["above"]
            level = 0 if above is None else branches[above].level + 1
            branches.append(_branch(one, level))
        #: The event first; each further branch below the one that it belongs to.
        self.branches = tuple(branches)
        #: In the order of the tree.
        self._order = _depth_first([one["above"] for one in document["branches"]])

    @property
    def complete(self) -> bool:
        """Whether all records and runs are listed, and the host has read all that may belong to them."""
        return self.document["next"] is None and not self.document["unknown"] and not any(one.more for one in self.branches)

    def __str__(self) -> str:
        return "\n".join("  " * one.level + str(one) for one in self._ordered())

    def __repr__(self) -> str:
        return f"<millrace.history.Trace of the {self.direction} of {self.document['event']}: {len(self.branches)} branches>"

    def _ordered(self) -> list[Branch]:
        return [self.branches[at] for at in self._order]

    def _repr_html_(self) -> str:
        return _show.trace(self)


@dataclass(frozen=True)
class Flow:
    """How many records have flowed along one edge since the host started."""

    #: "runs" (a log runs a function), "reads", "appends", or how records leave the namespace.
    kind: str
    function: Optional[str]
    log: Optional[str]
    #: The address to which they are sent, if they leave the namespace.
    to: Optional[str]
    records: int


class Graph:
    """The logs and functions of a namespace, and how many records flow between them."""

    def __init__(self, document: dict[str, Any]) -> None:
        #: Since when the records are counted: since the host started.
        self.since = moment(document["since"])
        self.flows = tuple(Flow(one["kind"], one["function"], one["log"], one["to"], one["records"]) for one in document["edges"])
        #: Whether there are more edges than the host lists.
        self.more = bool(document["more"])

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a row for each edge."""
        rows = [(one.kind, one.function, one.log, one.to, one.records) for one in self.flows]
        return package("pandas").DataFrame(rows, columns=["kind", "function", "log", "to", "records"])

    def __repr__(self) -> str:
        return f"<millrace.history.Graph of {len(self.flows)} edges>"

    def _repr_html_(self) -> str:
        return _show.graph(self)


class Effects:
    """What a correction would change, before anything is changed."""

    def __init__(self, document: dict[str, Any]) -> None:
        #: The answer of the host; docs/reference/http.md describes it.
        self.document = document
        self._found = document["found"]

    @property
    def runs(self) -> Mapping[str, int]:
        """How many runs of each function would be replayed."""
        return _sums((one["function"], one["runs"]) for one in self._found["replays"])

    @property
    def maybe(self) -> Mapping[str, int]:
        """How many further runs of each function are replayed if the number of records changes."""
        return _sums((one["function"], one["runs"]) for one in self._found["may_replay"])

    @property
    def records(self) -> Mapping[str, int]:
        """How many records of each log would be written anew."""
        return _sums((one["log"], one["records"]) for one in self._found["rewrites"])

    @property
    def not_run(self) -> Mapping[str, int]:
        """How many runs of each function would not be replayed, because they may have effects outside the namespace."""
        return _sums((one["function"], one["runs"]) for one in self._found["not_run"])

    @property
    def on_devices(self) -> Mapping[str, int]:
        """How many records of each log a device may still have as they were: a repair does not rewrite its flash."""
        return _sums((one["log"], one["records"]) for one in self._found["on_devices"])

    @property
    def seconds(self) -> float:
        """The estimated time of the replay."""
        return float(self._found["estimate"]["time_us"]) / 1e6

    def __repr__(self) -> str:
        runs, records = sum(self.runs.values()), sum(self.records.values())
        return f"<millrace.history.Effects: replays {runs} runs, rewrites {records} records>"

    def _repr_html_(self) -> str:
        return _show.effects(self)


def trace(namespace: Namespace, of: Union[str, Entry[Any], StoredRecord], up: bool, depth: int, width: int, limit: int) -> Trace:
    """The implementation of `Namespace.trace`."""
    record: Any = getattr(of, "record", of)
    event: str = of if isinstance(of, str) else record.id
    options: dict[str, Optional[str]] = {"direction": "causes" if up else "effects", "depth": str(depth), "width": str(width), "limit": str(limit)}
    return Trace(namespace._of_host(f"trace/{quote(event, safe='')}", options))


def graph(namespace: Namespace) -> Graph:
    """The implementation of `Namespace.graph`."""
    return Graph(namespace._of_host("flows"))


def effects(namespace: Namespace, request: dict[str, Any], timeout: Optional[float]) -> Effects:
    """The implementation of `Plan.effects`."""
    until = None if timeout is None else time.monotonic() + timeout
    with namespace._host() as host:
        plan = json.loads(host.ask_repair(json.dumps(request)))
        while plan["state"] == "running":
            if until is not None and time.monotonic() > until:
                host.ask_repair(json.dumps({"do": "cancel-plan", "plan": plan["plan"]}))
                raise _native.error("MR2106", f"plan {plan['plan']} is not made after {timeout} s")
            time.sleep(_LOOK_S)
            plan = host._ask(f"plans/{plan['plan']}")
    if plan["found"] is None:
        error = plan["error"] or {"code": "MR7003", "detail": f"plan {plan['plan']} is {plan['state']}"}
        raise _native.error(error["code"], error["detail"])
    return Effects(plan)


def _branch(one: dict[str, Any], level: int) -> Branch:
    record, run = one.get("record"), one.get("run") or {}
    data = b""
    if record is not None:
        data = record["data"].encode() if "data" in record else base64.b64decode(record.get("base64", ""))
    return Branch(
        id=one["id"],
        link=one["link"],
        level=level,
        time=moment(one["time"]),
        record=None if record is None else RecordRef(record["log"], record["seqno"]),
        data=data,
        key=None if record is None else table_key(record.get("key")),
        deleted=bool(record and record.get("deleted")),
        function=run.get("function"),
        state=run.get("state"),
        more=one["more"],
    )


def _depth_first(above: list[Optional[int]]) -> list[int]:
    """The order in which each branch is followed by those below it."""
    below: dict[Optional[int], list[int]] = {}
    for at, one in enumerate(above):
        below.setdefault(one, []).append(at)
    order: list[int] = []
    left = list(reversed(below.get(None, [])))
    while left:
        at = left.pop()
        order.append(at)
        left += reversed(below.get(at, []))
    return order


def _sums(counts: Any) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, count in counts:
        sums[name] = sums.get(name, 0) + count
    return sums
