"""Reads the records that a query needs: as of one moment, in ranges, a bounded number at once."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from millrace._records import StoredRecord
from millrace._worker import Gone, NotFound
from millrace.sql._plan import Box

if TYPE_CHECKING:
    from millrace._namespace import Namespace

#: A clock is microseconds since 1970, and in these lowest bits a count of events within the microsecond.
CLOCK_COUNT_BITS = 12
#: Records that are handed on at once: so many, or so many bytes.
_CHUNK_RECORDS = 8192
_CHUNK_BYTES = 8 << 20
#: A range of so few records is read without asking for the times in it.
_READ_WITHOUT_TIMES = 4096
#: How many times are asked for in a whole log, and in each part of it that contains a limit.
_PROBES = 256
_PROBES_WITHIN = 16
#: How often the ends of several logs are read until none of them has moved.
_LOOKS_MAX = 50


class MissingRecords(UserWarning):
    """The result of a query lacks records that it asks for, because they have left the history of their log."""


def warn(text: str) -> None:
    """Warns the program that calls the package."""
    frame: Optional[types.FrameType] = sys._getframe()
    level = 1
    while frame is not None and (frame.f_globals.get("__name__", "") + ".").startswith(("millrace.", "contextlib.")):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, MissingRecords, stacklevel=level)


@dataclass
class Snapshot:
    """A log as of the moment of the query."""

    name: str
    earliest: int
    latest: int
    #: Ranges that were asked for and have left the history.
    missing: list[tuple[int, int]] = field(default_factory=list)

    def lacks(self, first: int, last: int) -> None:
        if first <= last:
            self.missing.append((first, last))

    def warn(self) -> None:
        """Says what is missing, if anything is."""
        if self.missing:
            said = ", ".join(f"{first} to {last}" for first, last in joined(self.missing))
            warn(f"records {said} of log '{self.name}' have left its history, and the result does not have them")


def snapshots(namespace: Namespace, logs: Iterable[str]) -> dict[str, Snapshot]:
    """The ends of logs, all as of one moment: they are read again until none has moved in between."""
    names = list(logs)

    def look() -> dict[str, Snapshot]:
        found = {}
        for name in names:
            _, earliest, latest = namespace.bounds(name)
            # Without a record that can be read, all were trimmed.
            found[name] = Snapshot(name, earliest or latest + 1, latest)
        return found

    ends = look()
    if len(names) < 2:
        return ends
    for _ in range(_LOOKS_MAX):
        before, ends = ends, look()
        if all(ends[name].latest == before[name].latest for name in names):
            return ends
    warn(f"the logs {', '.join(names)} grow so fast that each was read as of another moment")
    return ends


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order; those that meet are one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def ranges(namespace: Namespace, log: Snapshot, boxes: list[Box]) -> list[tuple[int, int]]:
    """The numbers of the records that may be in the boxes; notes what has left the history."""
    found: list[tuple[int, int]] = []
    for box in boxes:
        first, last = max(box.first, 1), min(box.last, log.latest)
        if first > last:
            continue
        if first < log.earliest:
            oldest = _time(namespace, log.name, log.earliest, log.latest)
            # Older records are in the box, unless it begins later than the oldest that is there.
            if oldest is None or box.since_us <= oldest:
                log.lacks(first, min(last, log.earliest - 1))
        first = max(first, log.earliest)
        if first > last:
            continue
        found += [(first, last)] if box.any_time else _between(namespace, log.name, first, last, box, _PROBES)
    return joined(found)


def _between(namespace: Namespace, log: str, first: int, last: int, box: Box, probes: int) -> list[tuple[int, int]]:
    """The parts of a range that may have records of these times.

    Times grow within a log, except where a wrong clock was corrected. So this does not search for the limits, but looks at
    every part whose ends do not exclude it. Only records of a wrong clock that lie wholly between two probes are not seen.
    """
    count = last - first + 1
    if count <= _READ_WITHOUT_TIMES:
        return [(first, last)]
    step = max(count // probes, _READ_WITHOUT_TIMES // 4)
    seqnos = [*range(first, last, step), last]
    times = [_time(namespace, log, seqno, last) for seqno in seqnos]
    found: list[tuple[int, int]] = []
    for at, (low, high) in enumerate(zip(times, times[1:])):
        start, end = seqnos[at], seqnos[at + 1]
        if low is None or high is None:
            found.append((start, end))
            continue
        # Where times go back, the ends say nothing of what is between them.
        if low <= high and (high < box.since_us or low > box.until_us):
            continue
        if box.since_us <= low <= high <= box.until_us:
            found.append((start, end))
        else:
            found += _between(namespace, log, start, end, box, _PROBES_WITHIN)
    return joined(found)


def _time(namespace: Namespace, log: str, seqno: int, last: int) -> Optional[int]:
    """The time of a record, or of the next one if a repair removed it; None if that is not known."""
    if seqno > last:
        return None
    try:
        return namespace.get(log, seqno).clock >> CLOCK_COUNT_BITS
    except NotFound:
        pass
    try:
        for record in namespace.records(log, seqno, last + 1):
            return record.clock >> CLOCK_COUNT_BITS
    except Gone:
        pass
    return None


def chunks(
    namespace: Namespace, log: Snapshot, parts: list[tuple[int, int]], limit: Optional[int]
) -> Iterator[list[StoredRecord]]:
    """The records of these ranges. What leaves the history meanwhile is noted, and the rest is read."""
    left = limit
    for first, last in parts:
        while first <= last and left != 0:
            records = namespace.records(log.name, first, last + 1)
            chunk: list[StoredRecord] = []
            size = 0
            try:
                for record in records:
                    chunk.append(record)
                    size += len(record.data)
                    left = None if left is None else left - 1
                    if len(chunk) == _CHUNK_RECORDS or size >= _CHUNK_BYTES or left == 0:
                        yield chunk
                        chunk, size = [], 0
                    if left == 0:
                        return
                first = last + 1
            except Gone:
                earliest = namespace.bounds(log.name)[1]
                at = max(records.next, first)
                first = last + 1 if earliest == 0 else max(min(earliest, last + 1), at + 1)
                log.lacks(at, first - 1)
            finally:
                records.close()
            if chunk:
                yield chunk
