"""The representation of namespaces, logs, topics, repairs and causes in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    from millrace._log import Series
    from millrace.history import Effects, Graph, Trace
    from millrace._namespace import Namespace
    from millrace.repairs import Diff, Plan, Repair

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


def plan(plan: Plan) -> str:
    """What a repair would change, before it is requested."""
    if plan.code is not None:
        function, source, since = plan.code
        rows: list[tuple[object, ...]] = [("code of", function), ("new code", source), ("since", since or "the first run that is kept")]
        shown = _table("plan of a repair", ("", ""), rows)
    else:
        assert plan.request is not None
        new = plan.request["corrections"]
        rows = [(one["seqno"], "removed" if one.get("void") else one.get("data", one.get("base64"))) for one in new[:_ROWS_MAX]]
        shown = _table(f"plan of a repair of log {plan.request['log']}: {_first(len(new))}", ("seqno", "new"), rows)
    return shown + (f"<p>{_cell(plan.reason)}</p>" if plan.reason else "")


def repair(repair: Repair) -> str:
    """A repair, and its progress."""
    rows = [("phase", repair.phase), ("reason", repair.reason), *repair.counts.items()]
    if repair.error is not None:
        rows.append(("error", ": ".join(repair.error)))
    of = f"log {repair.log}" if repair.log else f"function {repair.function}" if repair.function else f"repair {repair.undo}"
    return _table(f"repair {repair.number} of {of}", ("", ""), rows)


def diff(diff: Diff) -> str:
    """The first changes of a repair, old beside new."""
    rows = [
        (one.log, "new" if one.seqno is None else one.seqno, data(one.old), data(one.new)) for one in diff[:_ROWS_MAX]
    ]
    return _table(f"changes of a repair: {_first(len(diff))}", ("log", "seqno", "old", "new"), rows)


def _first(count: int) -> str:
    return f"{count} records" if count <= _ROWS_MAX else f"the first {_ROWS_MAX} of {count} records"


def data(data: Optional[bytes]) -> str:
    """Bytes as text."""
    return "" if data is None else data.decode(errors="backslashreplace")


def trace(trace: Trace) -> str:
    """A tree: what is below a branch is indented."""
    rows = []
    for one in trace._ordered():
        # Text of the namespace cannot make spaces: they are escaped with the rest.
        place = "\u2003" * one.level + (one.link or "")
        what = f"{one.record.log}@{one.record.seqno}" if one.record else f"run of {one.function}"
        detail = one._shown() if one.record else (one.state or "")
        rows.append((place, what, one.time.isoformat(" ", "milliseconds"), detail, one.more or ""))
    shown = _table(f"{trace.direction} of {trace.document['event']}", ("", "record or run", "time", "value or state", "more below"), rows)
    if trace.document["next"] is not None:
        shown += "<p>The host has read only a part of the journal.</p>"
    return shown


def graph(graph: Graph) -> str:
    """Each edge, in the direction in which records flow."""
    rows = []
    for one in graph.flows:
        source, target = one.log or "", one.function or ""
        if one.kind == "appends" or one.to is not None:
            source, target = one.function or one.log or "", one.to or one.log or ""
        rows.append((source, one.kind, target, one.records))
    more = "<p>There are more edges.</p>" if graph.more else ""
    return _table(f"flows since {graph.since.isoformat(' ', 'seconds')}", ("from", "", "to", "records"), rows) + more


def effects(effects: Effects) -> str:
    """What a repair would replay and write anew."""
    rows: list[tuple[object, ...]] = [("replay", name, count, "runs") for name, count in effects.runs.items()]
    rows += [("replay, if numbers change", name, count, "runs") for name, count in effects.maybe.items()]
    rows += [("not replayed", name, count, "runs") for name, count in effects.not_run.items()]
    rows += [("write anew", name, count, "records") for name, count in effects.records.items()]
    rows += [("old on a device", name, count, "records") for name, count in effects.on_devices.items()]
    corrected = effects.document["found"]["corrects"]
    caption = f"what {corrected['records']} corrected records of {corrected['log']} change, in about {effects.seconds:.1f} s"
    return _table(caption, ("", "function or log", "", ""), rows)
