"""`raw/x` -> `smooth/x`: aligns samples to steps, and averages.

For each step it appends the mean of the window of samples that ends there. It does so as soon as the step is over: when
a sample of that very second arrives, or the first one after it. So a mean never contains a later value.
`smooth.c` is the same function in C.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from samples import Sample, newest, rounded, sample

if TYPE_CHECKING:
    from millrace import Context, Record

STEP_S = int(os.environ["STEP_S"])
WINDOW_S = int(os.environ["WINDOW_S"])
SAMPLES_MIN = 3  # a mean of fewer says little
SAMPLES_MAX = 4096


def smooth(record: Record, ctx: Context) -> None:
    now = sample(record)
    log = "smooth/" + record.log.removeprefix("raw/")
    done = newest(ctx, log)
    done_t = sample(done).t if done else -1
    past = Past(now, record.log, ctx)
    for step in ended_steps(now, past[1]):
        if step > done_t:
            publish(ctx, log, step, past)


def ended_steps(now: Sample, before: Sample | None) -> Iterator[int]:
    """The steps with samples that this sample ends: that of the sample before it, and its own if it is on the mark."""
    if before and before.t % STEP_S:
        step = before.t - before.t % STEP_S + STEP_S
        if step < now.t:
            yield step
    if now.t % STEP_S == 0:
        yield now.t


def publish(ctx: Context, log: str, step: int, past: Past) -> None:
    """Appends the mean of the window that ends at `step`, if enough samples are in it."""
    total, count, n = 0.0, 0, 0
    while (found := past[n]) and found.t > step - WINDOW_S:
        n += 1
        if found.t <= step:
            total, count = total + found.v, count + 1
            if count > SAMPLES_MAX:
                raise ValueError(f"{log}: more than {SAMPLES_MAX} samples in a window of {WINDOW_S} s")
    if count >= SAMPLES_MIN:
        ctx.append(log, {"t": step, "v": rounded(total / count), "at": past[0].at})


class Past:
    """The samples of a log up to `now`, newest first; each is read when asked for, and once."""

    def __init__(self, now: Sample, log: str, ctx: Context) -> None:
        self.samples, self.log, self.ctx = [now], log, ctx

    def __getitem__(self, n: int) -> Sample | None:
        """The `n`-th before `now`, or None if the log began later."""
        while n >= len(self.samples) and self.samples[-1].seqno > 1:
            self.samples.append(sample(self.ctx.get(self.log, self.samples[-1].seqno - 1)))
        return self.samples[n] if n < len(self.samples) else None
