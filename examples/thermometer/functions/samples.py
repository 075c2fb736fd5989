"""What the functions have in common: samples, and walks along logs of samples.

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


def joined(ctx: Context, seqnos: dict[str, int], until: int) -> Iterator[dict[str, Sample]]:
    """The steps no later than `until` of which every log has a sample, each behind its given seqno; in order.

    No log is read further than needed: past `until` by one record, and only if it has a gap there.
    """
    walks = {log: behind(ctx, log, seqno, until) for log, seqno in seqnos.items()}
    heads = {log: next(walk, None) for log, walk in walks.items()}
    while all(heads.values()):
        t = max(head.t for head in heads.values())
        late = [log for log, head in heads.items() if head.t < t]
        if not late:
            yield heads
            if t == until:
                return
        heads = heads | {log: next(walks[log], None) for log in late or heads}
