"""The figures of a run: those of the study (its section 3.3.6), and what its discussion asks for."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Optional

from millrace.parallelism.clocks import Offset, corrected
from millrace.parallelism.record import Invocation, Run

#: Instances whose machines seem to have booted within this time are on one machine, if it has no other name.
UPTIME_STEP_S = 0.25
#: Sends that spread over more than this part of a task are not "at once".
SPREAD_PART = 0.1


@dataclass(frozen=True)
class Metrics:
    """All times in milliseconds, by the client's clock."""

    invocations: int
    ran: int
    #: The first invocations of their instances. None: nobody recorded which these are.
    cold: Optional[int]
    #: What they waited beyond the median of the others, or if there are no others, in all.
    cold_median_ms: Optional[float]
    cold_p95_ms: Optional[float]
    cold_is_beyond_warm: bool
    #: How many of the instances that were invoked before were met again, and how many there were.
    warm_met: Optional[int]
    warm_made: Optional[int]
    completion_ms: Optional[float]
    #: The most instances that were busy at once, and the most invocations.
    degree: int
    most_at_once: int
    instances: int
    #: The number of failures of each kind.
    failures: dict[str, int]
    median_ms: Optional[float]
    longest_ms: Optional[float]
    alone_ms: Optional[float]
    #: "measured", or "fastest" if only the run itself can tell.
    alone_is: str
    wait_p50_ms: Optional[float]
    wait_p99_ms: Optional[float]
    #: Machines, the instances of each, and how it is known: "boot" or "uptime".
    machines: tuple[int, ...]
    machines_by: Optional[str]
    spread_ms: float
    #: Instances whose clock is provably wrong, those whose times no offset explains, and what was known of each.
    shifted: int
    impossible: int
    offsets: dict[str, Offset] = field(repr=False)

    @property
    def degree_part(self) -> float:
        return self.degree / self.invocations

    @property
    def interference(self) -> Optional[float]:
        return self.median_ms / self.alone_ms if self.median_ms and self.alone_ms else None

    @property
    def is_spread(self) -> bool:
        """Whether the client was too slow to send all at once."""
        usual = self.alone_ms or self.median_ms
        return usual is not None and self.spread_ms > SPREAD_PART * usual


def quantile(values: Iterable[float], part: float) -> Optional[float]:
    """The smallest value that at least this part of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def median(values: Iterable[float]) -> Optional[float]:
    ordered = sorted(values)
    if not ordered:
        return None
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def busy(invocations: Iterable[Invocation], by_instance: bool = True) -> list[tuple[float, int]]:
    """How many instances (or invocations) are busy from each moment on. One that ends when another begins is not busy with it."""
    events: list[tuple[float, int, str]] = []
    for index, one in enumerate(invocations):
        if one.start_ms is not None and one.end_ms is not None and one.instance is not None:
            name = one.instance if by_instance else str(index)
            # Something that took no time was busy nevertheless, for as long as a double can tell.
            end = one.end_ms if one.end_ms > one.start_ms else math.nextafter(one.start_ms, math.inf)
            events += [(one.start_ms, 1, name), (end, -1, name)]
    events.sort(key=lambda event: event[:2])
    running: Counter[str] = Counter()
    steps: list[tuple[float, int]] = []
    for moment, change, name in events:
        running[name] += change
        if not running[name]:
            del running[name]
        if steps and steps[-1][0] == moment:
            steps[-1] = moment, len(running)
        else:
            steps.append((moment, len(running)))
    return steps


def machines(invocations: Sequence[Invocation]) -> tuple[dict[str, int], Optional[str]]:
    """The machine of every instance, as a number in the order of their first invocation, and how it is known.

    `boot` names a machine. Where it is hidden, the moment does at which the machine must have booted.
    """
    ran = sorted((one for one in invocations if one.ran), key=lambda one: one.start_ms or 0)
    names: dict[str, object] = {}
    by = None
    if ran and all(one.boot for one in ran):
        by, names = "boot", {one.instance or "": one.boot for one in ran}
    elif ran and all(one.uptime_s is not None for one in ran):
        by = "uptime"
        booted = {one.instance or "": (one.start_ms or 0) / 1000 - (one.uptime_s or 0) for one in reversed(ran)}
        group, before = 0, -math.inf
        for instance in sorted(booted, key=booted.__getitem__):
            group += booted[instance] - before > UPTIME_STEP_S
            before = booted[instance]
            names[instance] = group
    numbers: dict[object, int] = {}
    return {one.instance: numbers.setdefault(names[one.instance], len(numbers)) for one in ran if one.instance in names}, by


def kind(one: Invocation) -> str:
    """What kind of failure this is: the state, and the number or the first words that tell why."""
    code = one.extra.get("http_status")
    if code is None:
        told = re.match(r"\s*([45]\d\d)\b", one.error or "")
        code = told[1] if told else None
    if code is not None:
        return f"{one.status} {code}"
    words = re.split(r"[:;.\n]", one.error or "", maxsplit=1)[0].strip()
    return f"{one.status}: {words[:40]}" if words else one.status


def measure(run: Run, alone_ms: Optional[float] = None) -> Metrics:
    """The figures. `alone_ms` is how long the task takes alone, if the run does not say."""
    sound, offsets = corrected(run)
    rows = sound.invocations
    ran = [one for one in rows if one.ran]
    durations = [(one.end_ms or 0) - (one.start_ms or 0) for one in ran]
    waits = {one.id: (one.start_ms or 0) - one.sent_ms for one in ran}
    known = bool(ran) and all(one.cold is not None for one in ran)
    cold = [waits[one.id] for one in ran if one.cold]
    warm = [waits[one.id] for one in ran if one.cold is False]
    usual = median(warm) if known else None
    beyond = [wait - (usual or 0) for wait in cold]
    ends = [one.done_ms for one in rows if one.done_ms is not None]
    sends = [one.sent_ms for one in rows]
    found, by = machines(ran)
    alone = alone_ms or run.experiment.alone_ms
    met = {one.instance for one in ran}
    failures = dict(Counter(kind(one) for one in rows if one.status != "ok").most_common())
    if run.experiment.invocations > len(rows):
        failures["lost: no record"] = run.experiment.invocations - len(rows)
    return Metrics(
        invocations=max(len(rows), run.experiment.invocations),
        ran=len(ran),
        cold=len(cold) if known else None,
        cold_median_ms=median(beyond) if known else None,
        cold_p95_ms=quantile(beyond, 0.95) if known else None,
        cold_is_beyond_warm=usual is not None,
        warm_met=None if run.warmed is None else len(met.intersection(run.warmed)),
        warm_made=None if run.warmed is None else len(set(run.warmed)),
        completion_ms=max(ends) - min(sends) if ends else None,
        degree=max((count for _, count in busy(ran)), default=0),
        most_at_once=max((count for _, count in busy(ran, by_instance=False)), default=0),
        instances=len(met),
        failures=failures,
        median_ms=median(durations),
        longest_ms=max(durations, default=None),
        alone_ms=alone or (min(durations) if durations and min(durations) > 0 else None),
        alone_is="measured" if alone else "fastest",
        wait_p50_ms=quantile(waits.values(), 0.5),
        wait_p99_ms=quantile(waits.values(), 0.99),
        machines=tuple(Counter(found.values()).values()),
        machines_by=by,
        spread_ms=max(sends) - min(sends),
        shifted=sum(1 for one in offsets.values() if one.is_possible and one.shift_ms),
        impossible=sum(1 for one in offsets.values() if not one.is_possible),
        offsets=offsets,
    )
