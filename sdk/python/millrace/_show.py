"""The representation of namespaces, logs and topics in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace._log import Series
    from millrace._namespace import Namespace

_ROWS_MAX = 10
_CELL_CHARACTERS_MAX = 80


def _cell(value: object) -> str:
    text = str(value)
    if len(text) > _CELL_CHARACTERS_MAX:
        text = text[: _CELL_CHARACTERS_MAX - 1] + "…"
    return html.escape(text)


def _table(caption: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table with all contents escaped, because records may contain anything."""
    heads = "".join(f"<th>{_cell(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    caption = f"<caption>{_cell(caption)}</caption>"
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def namespace(namespace: Namespace) -> str:
    """Its logs and functions."""
    if namespace.closed:
        return f"<p>{_cell(repr(namespace))}</p>"
    logs = [(log.name, log.records, log.latest, ", ".join(log.functions)) for log in namespace.logs()]
    shown = _table(f"namespace {namespace.address}", ("log", "records", "newest", "functions"), logs)
    functions = [(one.name, ", ".join(one.on), one.done, one.pending) for one in namespace.functions()]
    if functions:
        shown += _table("functions", ("function", "on", "runs done", "pending"), functions)
    return shown


def series(series: Series[Any]) -> str:
    """Its newest records."""
    latest = series.latest
    first = max(latest - _ROWS_MAX + 1, series.earliest, 1)
    rows = []
    for record in series.source.range(series.name, first):
        try:
            value: object = series.codec.decode(record.data)
        except Exception:
            # The codec cannot decode it: another program may have appended it. Show the bytes instead.
            value = record.data
        rows.append((record.seqno, record.time.isoformat(" ", "milliseconds"), value))
    return _table(f"{series.KIND} {series.name}: {len(series)} records", ("seqno", "time", "value"), rows)
