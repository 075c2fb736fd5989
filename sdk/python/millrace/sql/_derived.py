"""The views `runs` and `events`."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Callable, Optional

from millrace._namespace import LocalNamespace
from millrace._views import moment
from millrace.sql._read import warn

if TYPE_CHECKING:
    from millrace._namespace import Namespace

#: Most logs that one view joins.
LOGS_MAX = 1000
#: Most runs that a query reads, the newest ones.
RUNS_MAX = 100_000
_PAGE = 1000

_TYPES = {
    "id": "VARCHAR",
    "function": "VARCHAR",
    "state": "VARCHAR",
    "log": "VARCHAR",
    "seqno": "BIGINT",
    "cause": "VARCHAR",
    "caused_by": "VARCHAR",
    "triggered": "TIMESTAMPTZ",
    "ended": "TIMESTAMPTZ",
    "attempts": "BIGINT",
    "code": "VARCHAR",
    "error": "VARCHAR",
    "output": "VARCHAR",
}
RUN_COLUMNS = tuple(_TYPES)
RUNS = (
    f"CREATE TABLE store.runs({', '.join(f'{name} {kind}' for name, kind in _TYPES.items())});"
    "CREATE VIEW millrace.runs AS SELECT * FROM store.runs"
)


def events(logs: dict[str, str]) -> str:
    """The view of all events: the records of all logs, and the runs. An event's `cause` is the id of another event."""
    parts = [
        f"SELECT id, time, 'record' AS kind, '{name}' AS log, seqno, NULL::VARCHAR AS function, cause FROM store.{table}"
        for table, name in logs.items()
    ]
    parts.append("SELECT id, triggered, 'run', log, seqno, function, cause FROM store.runs")
    return f"CREATE VIEW millrace.events AS {' UNION ALL '.join(parts)}"


def fill_runs(namespace: Namespace, run: Callable[[str, Any], Any]) -> None:
    """Reads the newest runs; warns if there are more."""
    rows: list[tuple[Any, ...]] = []
    # Files give all in one answer, and a host a page.
    most = RUNS_MAX + 1 if isinstance(namespace, LocalNamespace) else _PAGE
    options: dict[str, Optional[str]] = {"limit": str(most)}
    while True:
        document = namespace._ask("runs", options)
        rows += map(_row, document["runs"])
        if len(rows) > RUNS_MAX or not document.get("next"):
            break
        options["before"] = document["next"]
    if len(rows) > RUNS_MAX:
        warn(f"the result has the newest {RUNS_MAX} runs, and there are older ones")
    del rows[RUNS_MAX:]
    names = ", ".join(f"unnest(${at + 1}::{kind}[])" for at, kind in enumerate(_TYPES.values()))
    for start in range(0, len(rows), _PAGE):
        run(f"INSERT INTO store.runs SELECT {names}", [list(column) for column in zip(*rows[start : start + _PAGE])])


def _row(document: dict[str, Any]) -> tuple[Any, ...]:
    error = document.get("error") or {}
    return (
        document["id"],
        document["function"],
        document["state"],
        document["log"],
        document["seqno"],
        document.get("cause"),
        document.get("caused_by"),
        moment(document["triggered"]),
        _moment(document.get("ended")),
        len(document["attempts"]),
        error.get("code"),
        error.get("detail"),
        document.get("output") or "",
    )


def _moment(text: Optional[str]) -> Optional[datetime.datetime]:
    return moment(text) if text else None
