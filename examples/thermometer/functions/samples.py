"""Shared by the functions: samples, and walks along logs of samples.

A sample is a record such as `{"t":1357020000,"v":39.02}`: at second `t` (since 1970) the value was `v`. One that became
known later than it was measured says so: `{"t":1357020000,"v":39.02,"at":1357041600}`. Smoothed samples always do.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millrace import Context, Record

HISTORY = int(os.environ.get("HISTORY", "10000"))  # how many records the logs keep, as in millrace.toml
VALUE_MAX = 1e9


class Sample(NamedTuple):
    t: int  # when it was measured, in seconds since 1970
    v: float
    at: int  # when it became known, never before `t`
    seqno: int


def sample(record: Record) -> Sample:
    """Reads a record; one that is no sample fails the run, and so ends up in the dead-letter log."""
    fields = record.json()
    if not isinstance(fields, dict):
        fields = {}
    t, v = fields.get("t"), fields.get("v")
    at = fields.get("at", t)
    if not (type(t) is type(at) is int and 0 <= t <= at and type(v) in (int, float) and abs(v) <= VALUE_MAX):
        raise ValueError(f'{record.log} {record.seqno} is no sample such as {{"t":1357020000,"v":39.02}}')
    return Sample(t, float(v), at, record.seqno)


def rounded(v: float) -> float:
    """To four decimals, the precision of everything that is appended.

    Not `round`: this is arithmetic that `smooth.c` does bit for bit the same.
    """
    return math.floor(v * 10_000 + 0.5) / 10_000


def newest(ctx: Context, log: str) -> Record | None:
    seqno = ctx.latest(log)
    return ctx.get(log, seqno) if seqno else None


def behind(ctx: Context, log: str, seqno: int, until: int) -> Iterator[Sample]:
    """The samples of `log` behind `seqno`, in order, as long as they are no later than `until`."""
    last = ctx.latest(log)
    oldest_kept = last - HISTORY + 1
    for n in range(max(seqno + 1, oldest_kept), last + 1):
        found = sample(ctx.get(log, n))
        if found.t > until:
            return
        yield found


def up_to(ctx: Context, log: str, t: int) -> int:
    """The seqno of the newest sample no later than `t`; 0, or the one before the oldest kept, if there is none.

    A binary search: the samples of a smoothed log are in order of time.
    """
    high = ctx.latest(log)
    low = max(high - HISTORY, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if sample(ctx.get(log, middle)).t <= t:
            low = middle
        else:
            high = middle - 1
    return low
