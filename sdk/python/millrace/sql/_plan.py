"""What a query reads, as DuckDB's planner says: columns, and ranges of numbers and times.

The query is explained over empty tables. Each scan then names its columns and its filters. The filters stay in the query, so a filter that is
not understood here costs time only: then more records are read than are needed.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional, Union

#: Optimizers that take an empty table for the whole truth.
DISABLED = "statistics_propagation,empty_result_pullup"
SEQNO_MAX = 2**64 - 1
TIME_MAX_US = 2**63 - 1
#: More boxes than this are joined into one.
_BOXES_MAX = 16
_EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Box:
    """Records with a number and a time (microseconds since 1970) within these bounds, which belong to it."""

    first: int = 0
    last: int = SEQNO_MAX
    since_us: int = -TIME_MAX_US
    until_us: int = TIME_MAX_US

    def within(self, other: Box) -> Box:
        return Box(
            max(self.first, other.first),
            min(self.last, other.last),
            max(self.since_us, other.since_us),
            min(self.until_us, other.until_us),
        )

    @property
    def empty(self) -> bool:
        return self.first > self.last or self.since_us > self.until_us

    @property
    def any_time(self) -> bool:
        return self.since_us == -TIME_MAX_US and self.until_us == TIME_MAX_US


@dataclass
class Wanted:
    """What the scans of one table need."""

    columns: set[str] = field(default_factory=set)
    boxes: list[Box] = field(default_factory=list)
    #: So many records suffice, if the query has only one scan of the table.
    limit: Optional[int] = None
    scans: int = 0

    def covers(self, other: Wanted) -> bool:
        """Whether records that were read for this suffice for the other."""
        inside = all(any(_inside(box, wide) for wide in self.boxes) for box in other.boxes)
        enough = self.limit is None or (other.limit is not None and other.limit <= self.limit)
        return other.columns <= self.columns and inside and enough


ALL = [Box()]


def _inside(box: Box, wide: Box) -> bool:
    """Whether the numbers are within the others, and times are limited where the others are: now() moves on."""
    since = box.since_us > -TIME_MAX_US or wide.since_us == -TIME_MAX_US
    until = box.until_us < TIME_MAX_US or wide.until_us == TIME_MAX_US
    return wide.first <= box.first and box.last <= wide.last and since and until


def wanted(explained: str, columns: tuple[str, ...]) -> dict[str, Wanted]:
    """By table as the planner names it: what the plan reads. `columns` are those that a table can have."""
    tables: dict[str, Wanted] = {}
    for root in json.loads(explained):
        for node, limit in _nodes(root, None):
            details = node.get("extra_info", {})
            table = details.get("Table")
            if table is None:
                continue
            filters = _text(details.get("Filters", ""))
            named = _list(details.get("Projections", "")) + [name for name in columns if re.search(rf"\b{name}\b", filters)]
            table = tables.setdefault(table, Wanted())
            table.columns.update(name for name in named if name in columns)
            table.boxes += boxes(filters)
            table.scans += 1
            table.limit = limit if table.scans == 1 and not filters and "Sample Method" not in details else None
    return tables


_WORD = re.compile(r"'(?:[^']|'')*'|\"((?:[^\"]|\"\")*)\"|([^\W\d]\w*)")


def names(statement: str) -> set[str]:
    """The words of a statement that may name a log: all that are not in literals."""
    found = {word or quoted.replace('""', '"') for quoted, word in _WORD.findall(statement)}
    return found - {""}


def copies(explained: str) -> bool:
    """Whether it is the plan of COPY ... TO."""
    return any("COPY_TO_FILE" in root["name"] for root in json.loads(explained))


def _nodes(node: dict[str, Any], limit: Optional[int]) -> Iterator[tuple[dict[str, Any], Optional[int]]]:
    """Every node, with the number of rows that the nodes above take of it."""
    yield node, limit
    name, details = node["name"], node.get("extra_info", {})
    below: Optional[int] = None
    if name in ("STREAMING_LIMIT", "LIMIT") and set(details) <= {"Limit", "Estimated Cardinality"} and details["Limit"].isdecimal():
        below = int(details["Limit"])
    elif name == "PROJECTION":
        below = limit
    for child in node.get("children", []):
        yield from _nodes(child, below)


def _list(value: Union[str, list[str]]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _text(value: Union[str, list[str]]) -> str:
    # The planner cuts text at line ends, also within literals.
    return value if isinstance(value, str) else "\n".join(value)


Token = Union[str, list[Any]]
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[A-Za-z_]\w*|\d+(?:\.\d+)?\w*|::|<=|>=|!=|<>|\s+|.", re.DOTALL)
_TIME = re.compile(r"'(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?\+00'")
_TIMESTAMP = ["::", "TIMESTAMP", "WITH", "TIME", "ZONE"]


def boxes(filters: str) -> list[Box]:
    """The records that can satisfy the filters of a scan: one expression a line, all of which hold."""
    tokens = _tokens(filters)
    found = ALL
    if tokens is None:
        return found
    line: list[Token] = []
    for token in [*tokens, "\n"]:
        if token != "\n":
            line.append(token)
            continue
        if line:
            found = _both(found, _boxes(line))
        line = []
    return found


def _tokens(text: str) -> Optional[list[Token]]:
    """The tokens, those in parentheses as lists; None if it has no such form. Line ends outside of parentheses are tokens."""
    levels: list[list[Token]] = [[]]
    for token in _TOKEN.findall(text):
        if token in ("'", '"'):
            return None
        if token == "(":
            levels.append([])
        elif token == ")":
            if len(levels) == 1:
                return None
            inner = levels.pop()
            levels[-1].append(inner)
        elif token.isspace():
            if "\n" in token and len(levels) == 1:
                levels[-1].append("\n")
        else:
            levels[-1].append(token)
    return levels[0] if len(levels) == 1 else None


def _boxes(tokens: list[Token]) -> list[Box]:
    """Where an expression can be true. What it does not know can be true everywhere."""
    if tokens[:2] == ["optional", ":"]:
        # It follows from the query, so it can be relied on.
        return _boxes(tokens[2:])
    if len(tokens) == 1 and isinstance(tokens[0], list):
        return _boxes(tokens[0])
    for word, join in (("AND", _both), ("OR", _either)):
        operands = _operands(tokens, word)
        if operands is not None:
            found = _boxes(operands[0])
            for operand in operands[1:]:
                found = join(found, _boxes(operand))
            return found
    if len(tokens) == 3 and tokens[:2] == ["seqno", "IN"] and isinstance(tokens[2], list):
        numbers = [token for token in tokens[2] if token != ","]
        if all(isinstance(number, str) and number.isdecimal() for number in numbers):
            return _few([Box(int(str(number)), int(str(number))) for number in numbers])
    if len(tokens) >= 3 and isinstance(tokens[2], str):
        if tokens[0] == "seqno" and len(tokens) == 3 and tokens[2].isdecimal():
            low, high = _bounds(str(tokens[1]), int(tokens[2]), SEQNO_MAX)
            return [Box(max(low, 0), high)]
        time = _TIME.fullmatch(tokens[2])
        if tokens[0] == "time" and time and tokens[3:] == _TIMESTAMP:
            low, high = _bounds(str(tokens[1]), _microseconds(time), TIME_MAX_US)
            return [Box(since_us=low, until_us=high)]
    return ALL


def _operands(tokens: list[Token], word: str) -> Optional[list[list[Token]]]:
    """What the word joins, if it joins every two of the operands, each of which is in parentheses or a call."""
    operands: list[list[Token]] = [[]]
    for token in tokens:
        if token == word:
            operands.append([])
        else:
            operands[-1].append(token)
    for operand in operands:
        bare = operand[2:] if operand[:2] == ["optional", ":"] else operand
        call = len(bare) == 2 and bare[0] not in ("CASE", "WHEN", "NOT")
        if not bare or not isinstance(bare[-1], list) or not (len(bare) == 1 or call):
            return None
    return operands if len(operands) > 1 else None


def _bounds(operator: str, value: int, most: int) -> tuple[int, int]:
    if operator == "=":
        return value, value
    if operator in (">", ">="):
        return value + (operator == ">"), most
    if operator in ("<", "<="):
        return -most, value - (operator == "<")
    return -most, most


def _microseconds(time: re.Match[str]) -> int:
    *whole, fraction = time.groups()
    try:
        moment = datetime.datetime(*map(int, whole))  # type: ignore[arg-type]
    except ValueError:
        # It cannot come from the planner; year 0 is the earliest that has this form.
        return -TIME_MAX_US
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1) + int((fraction or "").ljust(6, "0"))


def _both(one: list[Box], other: list[Box]) -> list[Box]:
    return _few([box for left in one for right in other if not (box := left.within(right)).empty])


def _either(one: list[Box], other: list[Box]) -> list[Box]:
    return _few(one + other)


def _few(found: list[Box]) -> list[Box]:
    if len(found) <= _BOXES_MAX:
        return found
    return [
        Box(
            min(box.first for box in found),
            max(box.last for box in found),
            min(box.since_us for box in found),
            max(box.until_us for box in found),
        )
    ]
