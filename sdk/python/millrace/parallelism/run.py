"""Runs an experiment: sends all invocations at once, waits for all answers, and records who did what when."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import datetime
import math
import multiprocessing
import os
import uuid
from collections.abc import Mapping
from typing import Any, Callable, Optional

from millrace.parallelism.metrics import median
from millrace.parallelism.platforms import Answer, Options, Platform, failure, now_ms, platform
from millrace.parallelism.record import Client, Experiment, Invocation, Run, RunError

#: How long a task should take alone, by its kind: about a second, as in the study, and about a minute for large experiments.
SECONDS = {"S": 1.0, "C": 1.0, "M": 60.0}
#: A first guess of this many iterations is measured to calibrate the next one.
GUESS = {"C": 200_000, "M": 20}
CALIBRATION_REPEATS = 3
PROCESSES_MAX = 64
#: How long processes of the client wait for each other.
TOGETHER_S = 120.0
#: What an instance tells of itself, and its type.
TOLD: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("boot", (str,)), ("uptime_s", (int, float)), ("hostname", (str,)), ("cpu", (str,)), ("memory_mib", (int,)),
)  # fmt: skip

Say = Callable[[str], None]
#: A request's id, when it was sent, and its answer.
Sent = tuple[str, float, Answer]


def request_of(experiment: Experiment, seconds: Optional[float]) -> dict[str, Any]:
    """What an invocation is asked to do."""
    task = experiment.task or "S"
    return {"id": str(uuid.uuid4()), "task": task, "iterations": experiment.iterations, "seconds": seconds or SECONDS[task]}


async def send(on: Platform, requests: list[dict[str, Any]]) -> list[Sent]:
    """Sends all requests at once."""

    async def one(request: Mapping[str, Any]) -> Sent:
        sent = now_ms()
        try:
            answer = await asyncio.wait_for(on.invoke(request), on.options.timeout_s)
        except asyncio.TimeoutError:
            answer = failure("lost", f"no answer within {on.options.timeout_s:g} s")
        return str(request["id"]), sent, answer

    return await asyncio.gather(*(one(request) for request in requests))


async def _whole(on: Platform, experiment: Experiment, seconds: Optional[float], before: Callable[[], None]) -> tuple[list[Sent], dict[str, dict[str, Any]]]:
    """One experiment on a platform that is started."""
    requests = [request_of(experiment, seconds) for _ in range(experiment.invocations)]
    # Other processes may have to be ready, too.
    await asyncio.to_thread(before)
    sent = await send(on, requests)
    return sent, await on.finish([(id, answer) for id, _, answer in sent])


async def calibrate(on: Platform, experiment: Experiment, seconds: Optional[float]) -> Experiment:
    """Measures how long the task takes alone. Tasks that compute get as many iterations as take the time that is wanted."""
    wanted = 1000 * (seconds or SECONDS[experiment.task or "S"])
    guess = GUESS.get(experiment.task or "")
    if guess is not None:
        # The first invocation may start an instance; the others are repeated for the fastest.
        trial = dataclasses.replace(experiment, iterations=guess)
        took = min([await _alone(on, trial, seconds) for _ in range(CALIBRATION_REPEATS)])
        experiment = dataclasses.replace(experiment, iterations=max(1, round(guess * wanted / max(took, 0.001))))
    alone = [await _alone(on, experiment, seconds) for _ in range(1 if wanted > 10_000 else CALIBRATION_REPEATS)]
    return dataclasses.replace(experiment, alone_ms=median(alone))


async def _alone(on: Platform, experiment: Experiment, seconds: Optional[float]) -> float:
    ((_, _, answer),) = await send(on, [request_of(experiment, seconds)])
    if answer.result is None:
        raise RunError(f"--calibrate: the invocation {answer.status}: {answer.error}; see that the function is deployed and can be invoked")
    return float(answer.result["end_ms"]) - float(answer.result["start_ms"])


async def _one_process(
    name: str, options: Options, experiment: Experiment, seconds: Optional[float], warm: bool, calibrated: bool, say: Say
) -> tuple[Experiment, Optional[tuple[str, ...]], list[Sent], dict[str, dict[str, Any]]]:
    on = platform(name, options, experiment)
    try:
        await on.start()
        if calibrated:
            say("calibrating: the task runs alone")
            experiment = on.experiment = await calibrate(on, experiment, seconds)
        warmed: Optional[tuple[str, ...]] = None
        if warm:
            say(f"warming {experiment.warm_expected} instances")
            # These sleep at the same time, so that no instance can run two of them.
            requests = [{**request_of(experiment, 1.0), "task": "S"} for _ in range(experiment.warm_expected or 0)]
            answers = await send(on, requests)
            warmed = tuple({str(answer.result["instance"]): None for _, _, answer in answers if answer.result is not None})
        say(f"sending {experiment.invocations} invocations")
        sent, more = await _whole(on, experiment, seconds, lambda: None)
        return experiment, warmed, sent, more
    finally:
        await on.close()


_barrier: Any = None


def _enter(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def _part(name: str, options: Options, experiment: Experiment, seconds: Optional[float]) -> tuple[list[Sent], dict[str, dict[str, Any]]]:
    """A part of the experiment, in a process of its own."""

    async def main() -> tuple[list[Sent], dict[str, dict[str, Any]]]:
        on = platform(name, options, experiment)
        try:
            await on.start()
            return await _whole(on, experiment, seconds, lambda: _barrier.wait(TOGETHER_S))
        except BaseException:
            _barrier.abort()
            raise
        finally:
            await on.close()

    return asyncio.run(main())


def _parts(
    name: str, options: Options, experiment: Experiment, seconds: Optional[float], processes: int
) -> tuple[list[Sent], dict[str, dict[str, Any]]]:
    """The experiment from several processes, which send at the same time."""
    context = multiprocessing.get_context("spawn")
    processes = min(processes, experiment.invocations)
    share, rest = divmod(experiment.invocations, processes)
    sizes = [share + (index < rest) for index in range(processes)]
    sent: list[Sent] = []
    more: dict[str, dict[str, Any]] = {}
    barrier = context.Barrier(processes)
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context, initializer=_enter, initargs=(barrier,)) as pool:
        parts = [dataclasses.replace(experiment, invocations=size) for size in sizes]
        futures = [pool.submit(_part, name, options, part, seconds) for part in parts]
        failures = [future.exception() for future in futures]
        for error in failures:
            # The first of them is the cause; in the others the barrier is broken.
            if error is not None and "BrokenBarrier" not in type(error).__name__:
                raise error
        for future in futures:
            part_sent, part_more = future.result()
            sent += part_sent
            more |= part_more
    return sent, more


def run(
    name: str,
    experiment: Experiment,
    options: Options,
    *,
    warm: bool = False,
    calibrated: bool = False,
    processes: int = 1,
    seconds: Optional[float] = None,
    say: Say = lambda _: None,
) -> Run:
    """Measures an experiment on a platform."""
    if not 1 <= processes <= PROCESSES_MAX:
        raise RunError(f"--processes {processes}: it is 1 to {PROCESSES_MAX}")
    if processes > 1 and name == "local":
        raise RunError("--processes does not fit --on local, whose instances are processes of this one; leave it out")
    if processes > 1 and name == "millrace" and options.url is None and "MILLRACE_NAMESPACE" not in os.environ:
        raise RunError("--processes with --on millrace needs --url: each process would have a private host of its own")
    if seconds is not None and not (0 < seconds <= 3600 and math.isfinite(seconds)):
        raise RunError(f"--seconds {seconds:g}: it is more than 0, and at most 3600")
    started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    warmed: Optional[tuple[str, ...]] = None
    if processes == 1:
        experiment, warmed, sent, more = asyncio.run(_one_process(name, options, experiment, seconds, warm, calibrated, say))
    else:
        if warm or calibrated:
            raise RunError("--processes cannot be combined with --warm or --calibrate: run those first, and give --iterations")
        say(f"sending {experiment.invocations} invocations from {processes} processes")
        sent, more = _parts(name, options, experiment, seconds, processes)
    if experiment.task == "S" and experiment.alone_ms is None:
        experiment = dataclasses.replace(experiment, alone_ms=1000 * (seconds or SECONDS["S"]))
    moments = [moment for _, moment, _ in sent]
    invocations = tuple(_record(id, moment, answer, more.get(id, {})) for id, moment, answer in sorted(sent, key=lambda one: one[1]))
    return Run(experiment, name, invocations, Client(os.cpu_count(), started, max(moments) - min(moments)), warmed)


def _record(id: str, sent: float, answer: Answer, more: Mapping[str, Any]) -> Invocation:
    extra = {name: value for name, value in {**answer.extra, **more}.items() if value is not None}
    result = answer.result
    if result is None:
        return Invocation(id, sent, answer.answered_ms, answer.received_ms, status=answer.status, error=answer.error, extra=extra)
    if result.get("request"):
        extra["request"] = result["request"]
    start, end, nth = float(result["start_ms"]), float(result["end_ms"]), result.get("nth")
    told: dict[str, Any] = {name: result[name] for name, kinds in TOLD if isinstance(result.get(name), kinds)}
    if end < start:
        error = f"the instance's clock was set back by {start - end:.0f} ms or more meanwhile"
        return Invocation(id, sent, answer.answered_ms, answer.received_ms, status="failed", error=error, extra=extra)
    return Invocation(
        id,
        sent,
        answer.answered_ms,
        answer.received_ms,
        start_ms=start,
        end_ms=end,
        instance=str(result["instance"]),
        nth=nth if isinstance(nth, int) and nth >= 1 else None,
        extra=extra,
        **told,
    )
