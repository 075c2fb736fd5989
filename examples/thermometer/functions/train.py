"""`smooth/truth` -> `model`: refits the model when the data have grown by an eighth, and when it is old."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from formulas import Table, choices
from model import SENSORS, SILENT_S, TRUTH, log_of, terms
from samples import Sample, behind, newest, sample, up_to

if TYPE_CHECKING:
    from millrace import Context, Record

AGE_S = int(os.environ["AGE_S"])  # a model older than this is refitted in any case
TRAIN_S = int(os.environ["TRAIN_S"])  # how far back the training data reach
STEPS_MIN = 12
ALONE_STEPS_MIN = 12  # of a sensor by itself
GROWTH = 8  # refitted when an eighth has been added to what it was fitted to
COVERAGE_MIN = 0.5  # a sensor with fewer steps than this part of the best one's is fitted alone only

Samples = dict[int, Sample]  # by time


def train(record: Record, ctx: Context) -> None:
    now = sample(record)
    newest_model = newest(ctx, "model")
    if not due(now, newest_model.json() if newest_model else None):
        return
    truth, known = training_data(ctx, now)
    steps = common_steps(truth, known)
    if len(steps) >= STEPS_MIN:
        ctx.append("model", fitted(steps, alone(truth, known, steps[-1][TRUTH].t), now))


def due(now: Sample, model: dict | None) -> bool:
    """Whether to try. A try reads the whole training window, so where one failed only each 12th truth tries again."""
    if model is None:
        return now.seqno % STEPS_MIN == 0
    more = now.seqno - model["truth"]
    enough = -(-model["steps"] // GROWTH)
    old = now.t - model["until"] >= AGE_S
    return more == enough or (more % STEPS_MIN == 0 and (more > enough or old))


def training_data(ctx: Context, now: Sample) -> tuple[Samples, dict[str, Samples]]:
    """The truth in the training window, and the samples at these times of each sensor that is not silent now."""
    begin = now.t - TRAIN_S
    logs = {log: list(behind(ctx, log, up_to(ctx, log, begin), now.t)) for log in (TRUTH, *map(log_of, SENSORS))}
    truth = {found.t: found for found in logs.pop(TRUTH)}
    return truth, {
        log: {found.t: found for found in samples if found.t in truth}
        for log, samples in logs.items()
        if samples and samples[-1].t >= now.t - SILENT_S
    }


def common_steps(truth: Samples, known: dict[str, Samples]) -> list[dict[str, Sample]]:
    """The steps at which the truth and all sensors are known, without the sensors that have too few."""
    most = max(map(len, known.values()), default=0)
    known = {log: samples for log, samples in known.items() if len(samples) >= COVERAGE_MIN * most}
    if not known:
        return []
    common = set.intersection(*(set(samples) for samples in known.values()))
    return [{TRUTH: truth[t], **{log: samples[t] for log, samples in known.items()}} for t in sorted(common)]


def alone(truth: Samples, known: dict[str, Samples], until: int) -> dict[str, tuple[Table, np.ndarray]]:
    """The values of each sensor at its own steps, no later than `until`, and the truths; not of a sensor with few."""
    result = {}
    for sensor in SENSORS:
        samples = known.get(log_of(sensor), {})
        times = [t for t in sorted(samples) if t <= until]
        if len(times) >= ALONE_STEPS_MIN:
            values = np.array([samples[t].v for t in times])
            result[sensor] = {"one": np.ones(len(times)), sensor: values}, np.array([truth[t].v for t in times])
    return result


def fitted(steps: list[dict[str, Sample]], alone: dict[str, tuple[Table, np.ndarray]], now: Sample) -> dict:
    """The model of these steps; see model.py."""
    t = np.array([step[TRUTH].t for step in steps])
    y = np.array([step[TRUTH].v for step in steps])
    rows = [terms(step[TRUTH].t, step) for step in steps]
    x = {term: np.array([row[term] for row in rows]) for term in rows[0]}
    sensors = [sensor for sensor in SENSORS if sensor in x]
    return {
        "until": steps[-1][TRUTH].t,
        "at": now.at,
        "truth": now.seqno,
        "steps": len(steps),
        "choices": choices(sensors, int(t[-1] - t[0]), x, y, alone if len(SENSORS) > 1 else {}),
        "first": {log: found.seqno for log, found in steps[0].items()},
        "last": {log: found.seqno for log, found in steps[-1].items()},
    }
