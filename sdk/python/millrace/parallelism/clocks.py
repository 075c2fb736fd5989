"""Corrects the clocks of instances.

An instance's clock may be wrong by an offset θ. It ran its invocations after they were sent and before they were answered, so
max(end − answered) ≤ θ ≤ min(start − sent) over all its invocations. If 0 is not within these bounds, the clock is provably wrong, and the
instance's times are shifted to the nearer bound. The width of the bounds says how much of the offset stays unknown.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from millrace.parallelism.record import Invocation, Run


@dataclass(frozen=True)
class Offset:
    """What is known of one instance's clock, in milliseconds. What it is ahead of the client's is positive."""

    low_ms: float
    high_ms: float

    @property
    def width_ms(self) -> float:
        """How much stays unknown. Negative: no offset explains all its times, since the clock was set meanwhile."""
        return self.high_ms - self.low_ms

    @property
    def is_possible(self) -> bool:
        return self.low_ms <= self.high_ms

    @property
    def shift_ms(self) -> float:
        """What its times are reduced by."""
        if not self.is_possible:
            return (self.low_ms + self.high_ms) / 2
        return min(max(0.0, self.low_ms), self.high_ms)


def offsets(invocations: tuple[Invocation, ...]) -> dict[str, Offset]:
    """The bounds of every instance's offset."""
    bounds: dict[str, tuple[float, float]] = {}
    for one in invocations:
        if one.instance is None or one.start_ms is None or one.end_ms is None:
            continue
        low, high = bounds.get(one.instance, (-math.inf, math.inf))
        if one.done_ms is not None and one.status == "ok":
            low = max(low, one.end_ms - one.done_ms)
        bounds[one.instance] = low, min(high, one.start_ms - one.sent_ms)
    return {instance: Offset(*both) for instance, both in bounds.items()}


def corrected(run: Run) -> tuple[Run, dict[str, Offset]]:
    """The run with all times by the client's clock, and what was known of each clock."""
    known = offsets(run.invocations)
    rows = []
    for one in run.invocations:
        shift = known[one.instance].shift_ms if one.instance in known else 0.0
        if shift and one.start_ms is not None and one.end_ms is not None:
            one = dataclasses.replace(one, start_ms=one.start_ms - shift, end_ms=one.end_ms - shift)
        rows.append(one)
    return dataclasses.replace(run, invocations=tuple(rows)), known
