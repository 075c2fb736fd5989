"""The figures of runs, compared with a slow and simple computation of the same."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from typing import Any, Optional

import pytest

from millrace.parallelism import Experiment, Invocation, Run, measure, table
from millrace.parallelism import run as running
from millrace.parallelism.clocks import corrected
from millrace.parallelism.metrics import busy, kind, machines, median, quantile
from millrace.parallelism.platforms import Answer, Options, Platform, failure

BEGIN = 1_600_000_000_000.0


class Fake(Platform):
    """A platform with a known schedule: instances whose clocks are wrong by known offsets, and refusals."""

    name = "fake"

    def __init__(self, options: Options, experiment: Experiment, seed: int) -> None:
        super().__init__(options, experiment)
        self.random = random.Random(seed)
        self.free: dict[str, float] = {}
        self.nth: dict[str, int] = {}
        self.offsets: dict[str, float] = {}
        #: What truly happened, by the ids of requests.
        self.truth: dict[str, tuple[float, float, str]] = {}
        self.clock = BEGIN
        self.instances = self.random.randint(1, 2 * experiment.invocations)

    def now(self) -> float:
        # Whole halves of milliseconds, so that moments coincide.
        self.clock += self.random.choice([0.0, 0.5, 1.0])
        return self.clock

    async def invoke(self, request: Mapping[str, Any]) -> Answer:
        sent, draw = self.clock, self.random
        if draw.random() < 0.1:
            return failure("refused", "429 Too Many Requests: later", answered_ms=sent + 5, extra={"http_status": 429})
        if draw.random() < 0.05:
            return failure("lost", "no answer within 600 s")
        instance = f"instance {draw.randrange(self.instances)}"
        if instance not in self.offsets:
            self.offsets[instance] = draw.choice([0.0, 0.0, 250.0, -400.0, draw.uniform(-50, 50)])
        start = max(sent + draw.randint(0, 60) / 2, self.free.get(instance, 0) if draw.random() < 0.8 else 0)
        end = start + draw.randint(0, 200) / 2
        answered = end + draw.randint(0, 20) / 2
        self.free[instance] = end
        self.nth[instance] = self.nth.get(instance, 0) + 1
        self.truth[str(request["id"])] = start, end, instance
        wrong = self.offsets[instance]
        result = {"start_ms": start + wrong, "end_ms": end + wrong, "instance": instance, "nth": self.nth[instance], "boot": f"machine {instance[-1]}"}
        return Answer(result, answered_ms=answered)


def faked(monkeypatch: pytest.MonkeyPatch, seed: int, count: Optional[int] = None) -> tuple[Fake, Run]:
    """A run of the whole machinery on such a platform."""
    count = count or random.Random(seed).randint(1, 60)
    experiment = Experiment(count, 0, "C", 1000, 2048)
    fake = Fake(Options(), experiment, seed)
    monkeypatch.setattr(running, "platform", lambda *_: fake)
    monkeypatch.setattr(running, "now_ms", fake.now)
    return fake, running.run("fake", experiment, Options())


def slow_degree(ran: list[Invocation]) -> int:
    """The most instances that are busy at once: looks at each start, and there at each invocation."""

    def covers(other: Invocation, moment: float) -> bool:
        start, end = other.start_ms or 0, other.end_ms or 0
        return start <= moment < end or start == moment == end

    return max((len({other.instance for other in ran if covers(other, one.start_ms or 0)}) for one in ran), default=0)


def slow_at_once(ran: list[Invocation]) -> int:
    def covers(other: Invocation, moment: float) -> bool:
        start, end = other.start_ms or 0, other.end_ms or 0
        return start <= moment < end or start == moment == end

    return max((sum(covers(other, one.start_ms or 0) for other in ran) for one in ran), default=0)


def slow_quantile(values: list[float], part: float) -> Optional[float]:
    """The smallest value that at least this part of all values does not exceed."""
    fitting = [value for value in values if sum(other <= value for other in values) >= part * len(values) - 1e-9]
    return min(fitting, default=None)


@pytest.mark.parametrize("seed", range(60))
def test_figures_are_those_of_a_slow_computation(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, run = faked(monkeypatch, seed)
    numbers, sound = measure(run), corrected(run)[0].invocations
    ran = [one for one in sound if one.ran]
    assert {one.id for one in ran} == set(fake.truth)
    assert numbers.degree == slow_degree(ran) and numbers.most_at_once == slow_at_once(ran)
    assert numbers.instances == len({instance for _, _, instance in fake.truth.values()})
    assert numbers.ran == len(ran) == numbers.invocations - sum(numbers.failures.values())
    assert numbers.cold == sum(1 for one in ran if one.nth == 1) if ran else numbers.cold is None
    waits = [(one.start_ms or 0) - one.sent_ms for one in ran]
    assert (numbers.wait_p50_ms, numbers.wait_p99_ms) == (slow_quantile(waits, 0.5), slow_quantile(waits, 0.99))
    warm = [wait for one, wait in zip(ran, waits) if one.nth != 1]
    cold = [wait - (median(warm) or 0) for one, wait in zip(ran, waits) if one.nth == 1]
    assert numbers.cold_p95_ms == slow_quantile(cold, 0.95)
    done = [one.answered_ms for one in run.invocations if one.answered_ms is not None]
    assert numbers.completion_ms == (max(done) - min(one.sent_ms for one in run.invocations) if done else None)
    found: dict[str, int] = {}
    for one in run.invocations:
        if one.status != "ok":
            word = "refused 429" if one.status == "refused" else "lost: no answer within 600 s"
            found[word] = found.get(word, 0) + 1
    assert numbers.failures == found
    assert all(sentence.endswith(".") for sentence in table.answers(numbers))
    assert run.title in table.table([run], [numbers])


@pytest.mark.parametrize("seed", range(60))
def test_a_clock_is_corrected_by_the_least_that_its_bounds_allow(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, run = faked(monkeypatch, seed)
    sound, offsets = corrected(run)
    assert offsets.keys() == {instance for _, _, instance in fake.truth.values()}
    for instance, offset in offsets.items():
        own = [one for one in run.invocations if one.instance == instance]

        def explains(theta: float) -> bool:
            slack = 1e-3
            return all(
                one.sent_ms <= (one.start_ms or 0) - theta + slack and (one.end_ms or 0) - theta <= (one.answered_ms or 0) + slack for one in own
            )

        assert explains(fake.offsets[instance]), "the true offset is within the bounds"
        assert offset.low_ms - 1e-3 <= fake.offsets[instance] <= offset.high_ms + 1e-3
        assert explains(offset.shift_ms)
        assert explains(0.0) == (abs(offset.shift_ms) < 1e-3)
        if abs(offset.shift_ms) > 1:
            assert not explains(offset.shift_ms - math.copysign(0.5, offset.shift_ms)), "less would not do"
            assert not explains(offset.low_ms - 0.5) and not explains(offset.high_ms + 0.5)
    for before, after in zip(run.invocations, sound.invocations):
        if before.ran:
            shift = offsets[before.instance or ""].shift_ms
            assert after.start_ms == (before.start_ms or 0) - shift and after.end_ms == (before.end_ms or 0) - shift


def simple(*rows: tuple[float, float, float, float, str], **more: Any) -> Run:
    """A run of rows: sent, start, end, answered, instance."""
    invocations = tuple(Invocation(f"{n}", s, a, start_ms=b, end_ms=e, instance=i, **more) for n, (s, b, e, a, i) in enumerate(rows))
    return Run(Experiment(len(rows), 0, "S", None, 256, False, 10.0), "test", invocations)


def test_one_that_ends_when_another_begins_is_not_at_once_with_it() -> None:
    numbers = measure(simple((0, 10, 20, 21, "a"), (0, 20, 30, 31, "b"), (0, 29, 29, 31, "c")))
    assert (numbers.degree, numbers.most_at_once) == (2, 2)
    assert busy(simple((0, 10, 20, 21, "a"), (0, 20, 30, 31, "b")).invocations) == [(10, 1), (20, 1), (30, 0)]


def test_an_instance_with_two_invocations_at_once_counts_once() -> None:
    numbers = measure(simple((0, 10, 30, 41, "a"), (0, 20, 40, 41, "a"), (0, 22, 24, 41, "b")))
    assert (numbers.degree, numbers.most_at_once) == (2, 3)


def test_times_that_no_offset_explains_are_reported() -> None:
    numbers = measure(simple((100, 90, 95, 130, "a"), (200, 260, 290, 220, "a")))
    assert numbers.impossible == 1 and numbers.shifted == 0
    assert numbers.offsets["a"].width_ms < 0
    run = simple((100, 90, 95, 130, "a"), (200, 260, 290, 220, "a"))
    assert any("contradict" in remark for remark in table.remarks(run, numbers))


def test_sends_that_spread_are_reported() -> None:
    run = simple((0, 1, 11, 12, "a"), (2, 3, 13, 14, "b"))
    assert measure(run).is_spread and any("--processes" in remark for remark in table.remarks(run, measure(run)))
    assert not measure(simple((0, 1, 11, 12, "a"), (0.5, 3, 13, 14, "b"))).is_spread


def test_machines_are_told_by_boot_or_by_steps_of_the_uptime() -> None:
    rows = [(0.0, 1000.0 + 10 * n, 2000.0, 2001.0, f"{n}") for n in range(6)]
    run = simple(*rows)
    booted = (100.0, 100.0, 100.05, 500.0, 500.1, 900.0)
    by_uptime = [dataclasses.replace(one, uptime_s=(one.start_ms or 0) / 1000 + moment) for one, moment in zip(run.invocations, booted)]
    found, by = machines(by_uptime)
    assert by == "uptime" and [found[f"{n}"] for n in range(6)] == [0, 0, 0, 1, 1, 2]
    found, by = machines([dataclasses.replace(one, boot="x" if n < 2 else "y") for n, one in enumerate(by_uptime)])
    assert by == "boot" and sorted(found.values()) == [0, 0, 1, 1, 1, 1]
    assert machines(run.invocations) == ({}, None)


def test_cold_starts_are_recorded_and_never_guessed() -> None:
    rows = [(0.0, 5.0, 6.0, 7.0, "a"), (0.0, 7.0, 8.0, 9.0, "a"), (0.0, 25.0, 26.0, 27.0, "b")]
    assert measure(simple(*rows)).cold is None
    assert measure(simple(*rows, extra={"init_ms": 3.0})).cold == 3
    numbered = [dataclasses.replace(one, nth=nth) for one, nth in zip(simple(*rows).invocations, (2, 3, 1))]
    numbers = measure(dataclasses.replace(simple(*rows), invocations=tuple(numbered), warmed=("a", "c")))
    assert (numbers.cold, numbers.cold_median_ms, numbers.warm_met, numbers.warm_made) == (1, 25.0 - 6.0, 1, 2)


def test_quantiles_of_little() -> None:
    assert quantile([], 0.5) is None and median([]) is None
    assert quantile([3.0], 0.01) == 3.0 and quantile([1.0, 2.0], 0.5) == 1.0 and median([1.0, 2.0]) == 1.5


def test_kinds_of_failures() -> None:
    def of(**more: Any) -> str:
        return kind(Invocation("x", 0.0, **more))

    assert of(status="refused", error="500 Server Error") == "refused 500"
    assert of(status="failed", error="ValueError: no") == "failed: ValueError"
    assert of(status="lost") == "lost"
