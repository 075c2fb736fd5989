"""`smooth/x`, for every sensor x -> `prediction`: estimates the truth of each step.

Whichever sensor comes last completes the step. A step that lacks a sensor is estimated from the others as soon as that
sensor has skipped it, or has been silent for `SILENT_S`. Each run brings `prediction` up to the time of its own record,
so it does not matter in which order the sensors' records come, nor (up to `SILENT_S`) how much later: every step is
predicted once. For this to hold runs must not overlap: in millrace.toml they share a monitor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from model import SENSORS, SILENT_S, known_at, log_of, terms
from samples import HISTORY, Sample, newest, rounded, sample, up_to

if TYPE_CHECKING:
    from millrace import Context, Record


def predict(record: Record, ctx: Context) -> None:
    now = sample(record)
    newest_made = newest(ctx, "prediction")
    made = newest_made.json() if newest_made else None
    if made and made["t"] >= now.t:
        return
    model_now = known_at(ctx, now.t)
    if model_now is None:
        return
    # Nothing up to the newest prediction is left to do; before the first one, nothing that the model was fitted to.
    logs = [log_of(sensor) for sensor in SENSORS]
    after = made["t"] if made else model_now["until"]
    known = made["from"] | made["without"] if made else model_now["last"]
    seqnos = {log: known[log] if log in known else up_to(ctx, log, after) for log in logs}
    for t, step, without in steps([Walk(ctx, log, seqnos[log]) for log in logs], after, now.t):
        model = model_now if t == now.t else known_at(ctx, t)
        estimated = estimate(t, step, model) if model else None
        if estimated:
            ctx.append("prediction", estimated | {"without": without})


class Walk:
    """A walk along a log of samples. It reads a sample when it is asked for, and once."""

    def __init__(self, ctx: Context, log: str, seqno: int) -> None:
        self.ctx, self.log, self.end = ctx, log, ctx.latest(log)
        self.seqno = max(seqno, self.end - HISTORY)  # of the newest sample that was passed
        self.passed = self.at(self.seqno) if self.end - HISTORY < self.seqno else None
        self.ahead: Sample | None = None

    def at(self, seqno: int) -> Sample | None:
        return sample(self.ctx.get(self.log, seqno)) if 0 < seqno <= self.end else None

    def next(self) -> Sample | None:
        if self.ahead is None:
            self.ahead = self.at(self.seqno + 1)
        return self.ahead

    def heard_since(self, t: int) -> bool:
        """Whether the newest sample that was passed is no older than `t`."""
        return self.passed is not None and self.passed.t >= t

    def go_past(self, t: int) -> None:
        if self.ahead and self.ahead.t == t:
            self.seqno, self.passed, self.ahead = self.seqno + 1, self.ahead, None


def steps(walks: list[Walk], after: int, until: int) -> Iterator[tuple[int, dict[str, Sample], dict[str, int]]]:
    """The steps after `after`, no later than `until`, that need wait for nothing, in order: the time, each sensor's
    sample, and for a sensor that takes no part the seqno of its newest sample before.

    The first sample after a long silence counts for nothing. If it did, the step would depend on whether that sensor or
    another one was first to report.
    """
    for walk in walks:
        while (head := walk.next()) and head.t <= after:
            walk.go_past(head.t)
    while True:
        t = min((head.t for head in (walk.next() for walk in walks) if head), default=until + 1)
        if t > until:
            return
        step = {}
        for walk in walks:
            if walk.heard_since(t - SILENT_S):
                head = walk.next()
                if head is None and walk.heard_since(until - SILENT_S):
                    return
                if head and head.t == t:
                    step[walk.log] = head
        without = {walk.log: walk.seqno for walk in walks if walk.log not in step}
        for walk in walks:
            walk.go_past(t)
        if step:
            yield t, step, without
        if t == until:
            return


def estimate(t: int, step: dict[str, Sample], model: dict) -> dict | None:
    """The prediction for time `t`, and what it was made from; None if the model needs a sensor that the step lacks."""
    x = terms(t, step)
    for choice in model["choices"]:
        if choice["weights"].keys() <= x.keys():
            return {
                "t": t,
                "v": rounded(sum(weight * x[term] for term, weight in choice["weights"].items())),
                "model": {key: model[key] for key in ("seqno", "until", "at")},
                "from": {log: found.seqno for log, found in step.items()},
            }
    return None
