"""What the journal of a host knows of runs: when each was triggered, when its attempts began, and when it was done."""

from __future__ import annotations

from typing import Any

from millrace import Error
from millrace._views import Run


def times(namespace: Any, log: str, wanted: dict[int, str]) -> dict[str, dict[str, Any]]:
    """The times of the runs for these records of a log, by the ids of the requests. Without the right to read them, none."""
    found: dict[str, dict[str, Any]] = {}
    try:
        runs: list[Run] = namespace.runs(log=log, limit=2 * len(wanted) + 100)
    except Error:
        return found
    for run in runs:
        id = wanted.get(run.record.seqno)
        if id is not None and id not in found:
            found[id] = {
                "run": run.id,
                "trigger_ms": run.triggered.timestamp() * 1000,
                "fired_ms": [attempt.time.timestamp() * 1000 for attempt in run.attempts],
                "done_ms": None if run.ended is None else run.ended.timestamp() * 1000,
            }
    return found
