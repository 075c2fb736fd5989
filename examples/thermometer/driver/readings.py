"""Reads files of readings: tolerant of the quirks of instruments, strict about invalid rows.

Tolerated, and counted: gaps, rows twice, rows out of order, missing readings (`NA`, nothing). Refused, with file and
line: rows that are no reading at all. A file with even one such row is not used, because whoever misreads a column
misreads all of it.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from .units import day

MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}
TIME_MAX_S = 4_102_444_800  # the year 2100
VALUE_MAX = 1e9
PROBLEMS_SHOWN = 10
ROUND_S = [
    1,
    2,
    5,
    10,
    15,
    20,
    30,
    *(60 * n for n in (1, 2, 5, 10, 15, 20, 30)),
    *(3600 * n for n in (1, 2, 3, 4, 6, 8, 12, 24)),
]


class Refused(Exception):
    """Invalid input; the message lists the problems, one per line."""


@dataclass(frozen=True)
class Readings:
    """One instrument's readings in order of time, one for each second at most."""

    name: str
    path: Path
    times: list[int]
    values: list[float]
    missing: int
    duplicates: int
    contradictions: int
    disorder: int

    def spacing_s(self) -> int:
        """The usual time between two readings; a round one if it is nearly that, for clocks jitter."""
        usual = median_low(later - earlier for earlier, later in zip(self.times, self.times[1:]))
        round_one = min(ROUND_S, key=lambda s: abs(s - usual))
        return round_one if abs(round_one - usual) <= usual / 10 else usual

    def gaps(self, step_s: int) -> tuple[int, int]:
        """How many gaps there are, and how many steps they lack together."""
        lacking = [(later - earlier) // step_s - 1 for earlier, later in zip(self.times, self.times[1:])]
        return sum(n > 0 for n in lacking), sum(n for n in lacking if n > 0)

    def summary(self, step_s: int) -> str:
        gaps, lacking = self.gaps(step_s)
        counts = [
            f"gaps: {gaps} ({lacking} steps missing)" if gaps else "no gaps",
            f"{self.missing} missing" if self.missing else "",
            f"{self.duplicates} twice" if self.duplicates else "",
            f"({self.contradictions} with another value: the first counts)" if self.contradictions else "",
            f"{self.disorder} out of order" if self.disorder else "",
        ]
        span = f"{day(self.times[0])} to {day(self.times[-1])}"
        return f"{self.name:<12} {len(self.times):>7} readings, {span}; " + ", ".join(filter(None, counts))


def read(name: str, path: Path) -> Readings:
    """Reads one file; raises `Refused`."""
    rows: list[tuple[int, float | None]] = []
    problems: list[str] = []
    try:
        with open(path, encoding="utf-8-sig", errors="replace", newline=None) as lines:
            for number, line in enumerate(lines, 1):
                fields = split(line)
                if not fields or (not rows and not problems and is_header(fields)):
                    continue
                try:
                    rows.append(parse(fields))
                except ValueError as error:
                    problems.append(f"{path}:{number}: {error}")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        raise Refused(
            "\n".join(problems[:PROBLEMS_SHOWN] + ([f"{path}: and {more} more such rows"] if more > 0 else []))
        )
    return arrange(name, path, rows)


def split(line: str) -> list[str]:
    """The fields of a row; none if it is blank or a comment."""
    line = line.strip()
    if not line or line.startswith("#"):
        return []
    fields = next(csv.reader([line])) if "," in line else line.split()
    return [field.strip() for field in fields]


def is_header(fields: list[str]) -> bool:
    """Whether these are names of columns: nothing in them is a number."""
    return (
        len(fields) in (2, 3)
        and not any(is_number(field) for field in fields)
        and any(field[:1].isalpha() for field in fields)
    )


def is_number(field: str) -> bool:
    try:
        return math.isfinite(float(field))
    except ValueError:
        return False


def parse(fields: list[str]) -> tuple[int, float | None]:
    """A row's time and value; the value is None if the instrument had none."""
    if len(fields) not in (2, 3):
        raise ValueError(f"{len(fields)} fields; a row is 'epoch,value', 'epoch value' or 'timestamp, epoch, value'")
    epoch, value = fields[-2:]
    if not is_number(epoch):
        raise ValueError(f"'{epoch}' is not a time in seconds since 1970")
    t = math.floor(float(epoch))
    if not 0 <= t < TIME_MAX_S:
        hint = "; milliseconds?" if 0 <= t / 1000 < TIME_MAX_S else ""
        raise ValueError(f"the time {epoch} is not between 1970 and 2100 in seconds{hint}")
    if value.lower() in MISSING:
        return t, None
    if not is_number(value):
        raise ValueError(f"the value '{value}' is not a number")
    if abs(float(value)) > VALUE_MAX:
        raise ValueError(f"the value {value} is not between -1e9 and 1e9")
    return t, float(value)


def arrange(name: str, path: Path, rows: list[tuple[int, float | None]]) -> Readings:
    """Sorts the rows by time and counts what was odd about them."""
    by_time: dict[int, float] = {}
    missing = duplicates = contradictions = disorder = 0
    newest = -1
    for t, value in rows:
        disorder += t < newest
        newest = max(newest, t)
        if value is None:
            missing += 1
        elif t in by_time:
            duplicates += 1
            contradictions += by_time[t] != value
        else:
            by_time[t] = value
    if len(by_time) < 2:
        raise Refused(f"{path}: {len(by_time)} readings; at least two are needed")
    times = sorted(by_time)
    return Readings(name, path, times, [by_time[t] for t in times], missing, duplicates, contradictions, disorder)
