"""`python -m millrace.sql`, which the command `millrace sql` runs: answers a query as a table, or as JSON or CSV for programs."""

from __future__ import annotations

import argparse
import base64
import csv
import datetime
import itertools
import json
import math
import signal
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from typing import Any, Optional, TextIO, Union

import millrace
from millrace._records import _native
from millrace.sql import MEMORY_DEFAULT, MissingRecords, load, rows

#: Rows and characters of a cell that are printed for people.
_ROWS_MAX = 40
_CELL_MAX = 60

_EPILOG = """examples:
  millrace sql 'select * from "raw/kitchen" limit 5'
  millrace sql "select date_trunc('day', time) as day, count(*) from sensor where time >= '2026-03-01' group by day"
  millrace sql --csv "select seqno, time, value.celsius from sensor" > celsius.csv
  millrace sql "copy (select time, value.celsius::double as celsius from sensor) to 'celsius.parquet'"

Each log is a view with the columns seqno, time, id, cause, data and value (the decoded data). runs and events are views, too. Put names
with a / in double quotes. Times are in UTC."""


def _arguments(words: Optional[list[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="millrace sql",
        description="Answer a query in SQL over the logs of a namespace",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("query", help="the query: SELECT, or COPY (SELECT ...) TO 'file.parquet'; - reads it from standard input")
    parser.add_argument("-n", "--namespace", help="the namespace: a directory, mr://host:port/namespace or unix:PATH")
    parser.add_argument("--ca", help="CA certificates to verify a host: a PEM file, or 'system'")
    parser.add_argument(
        "--decode",
        action="append",
        default=[],
        metavar="LOG=DECODER",
        help="how to decode a log: json, text, number or bytes; with ? after it, a record that cannot be decoded is NULL"
        " [default: as its newest record is]",
    )
    parser.add_argument("--memory", default=MEMORY_DEFAULT, help="memory to use before temporary files [default: %(default)s]")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print one JSON object per row")
    how.add_argument("--csv", action="store_true", help="print CSV with a header")
    return parser.parse_args(words)


def main(words: Optional[list[str]] = None) -> int:
    given = _arguments(words)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        _load_uninterrupted()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", MissingRecords)
            with millrace.open(given.namespace, ca=given.ca) as namespace:
                _answer(namespace, given)
        for warning in caught:
            print(f"warning: {warning.message}", file=sys.stderr)
        return 0
    except millrace.Error as error:
        _report(error, given.json)
        return 2 if isinstance(error, millrace.Invalid) else 75 if isinstance(error, millrace.Busy) else 1
    except KeyboardInterrupt:
        return 130


def _load_uninterrupted() -> None:
    """Loads what the query needs. Ctrl-C meanwhile ends the process: an exception while a native module is loaded can end in an abort."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        load()
    finally:
        signal.signal(signal.SIGINT, before)


def _answer(namespace: millrace.Namespace, given: argparse.Namespace) -> None:
    statement = sys.stdin.read() if given.query == "-" else given.query
    decode = {}
    for pair in given.decode:
        log, separator, decoder = pair.rpartition("=")
        if not separator:
            raise _native.error("MR1006", f"--decode is '{pair}'; it must be LOG=DECODER")
        decode[log] = decoder
    found, answer = rows(namespace, statement, decode=decode, memory=given.memory)
    columns, kinds = _distinct([name for name, _ in found]), [kind for _, kind in found]
    if given.json:
        for row in answer:
            values = (_plain(value, kind) for value, kind in zip(row, kinds))
            print(json.dumps(dict(zip(columns, values)), ensure_ascii=False, allow_nan=False))
    elif given.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in answer)
    else:
        _table(columns, kinds, answer, sys.stdout)


def _distinct(names: list[str]) -> list[str]:
    """The names of columns; an object of JSON cannot have one twice."""
    found: list[str] = []
    for name in names:
        number = 1
        other = name
        while other in found:
            other, number = f"{name}_{number}", number + 1
        found.append(other)
    return found


def _plain(value: Any, kind: str = "") -> Any:
    """A value as JSON has it. Bytes are text if they are UTF-8, and otherwise an object, as everywhere in Millrace."""
    if isinstance(value, str) and kind == "JSON":
        try:
            return json.loads(value, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime.datetime):
        return _moment(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _moment(value: datetime.datetime) -> str:
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _cell(value: Any) -> Union[str, int, float]:
    """A value in a table or in CSV; nothing for NULL."""
    value = _plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def _table(columns: list[str], kinds: list[str], answer: Iterator[tuple[Any, ...]], out: TextIO) -> None:
    """Prints aligned columns; what is left out is said."""
    shown = [[_visible(str(_cell(value))) for value in row] for row in itertools.islice(answer, _ROWS_MAX)]
    more = sum(1 for _ in answer)
    heads = [_visible(column) for column in columns]
    widths = [max([_width(head), *(_width(row[at]) for row in shown)]) for at, head in enumerate(heads)]
    right = [kind.endswith("INT") or kind in ("INTEGER", "DOUBLE", "FLOAT") or kind.startswith("DECIMAL") for kind in kinds]
    for row in [heads, *shown]:
        padded = (
            " " * (width - _width(cell)) + cell if number else cell + " " * (width - _width(cell))
            for cell, width, number in zip(row, widths, right)
        )
        print("  ".join(padded).rstrip(), file=out)
    if more:
        print(f"... and {more} more rows; --json and --csv print all", file=out)


def _visible(text: str) -> str:
    """Text without characters that would change what a terminal shows, because records may contain anything."""
    cut = text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 1] + "…"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in cut)


def _width(text: str) -> int:
    """How many columns a terminal needs for it."""
    return sum(0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def _report(error: millrace.Error, as_json: bool) -> None:
    """Prints an error as the command line does."""
    if as_json:
        said = {"code": error.code, "detail": error.detail, "cause": error.cause, "remedy": error.remedy}
        print(json.dumps({"error": said}, ensure_ascii=False), file=sys.stderr)
        return
    detail = error.detail.replace("\n", "\n  ")
    print(f"error[{error.code}]: {detail}\n  cause: {error.cause}\n  remedy: {error.remedy}", file=sys.stderr)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
