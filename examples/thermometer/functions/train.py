"""`smooth/truth` -> `model`: refits the model when it has aged, by linear least squares over the last weeks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from model import SENSORS, TRUTH, features, log_of
from samples import Sample, joined, newest, rounded, sample

if TYPE_CHECKING:
    from millrace import Context, Record

AGE_S = int(os.environ["AGE_S"])  # a model older than this has aged
TRAIN_S = int(os.environ["TRAIN_S"])  # how far back the training window reaches
EVERY = 24  # only each 24th truth may refit, so that too little data is not gone through over and over
STEPS_PER_WEIGHT_MIN = 10


def train(record: Record, ctx: Context) -> None:
    if record.seqno % EVERY:
        return
    now = sample(record)
    newest_model = newest(ctx, "model")
    model = newest_model.json() if newest_model else None
    if model and now.t - model["until"] < AGE_S:
        return
    logs = [TRUTH, *map(log_of, SENSORS)]
    before = {log: model["first"][log] - 1 if model else 0 for log in logs}
    steps = [step for step in joined(ctx, before, now.t) if step[TRUTH].t > now.t - TRAIN_S]
    if len(steps) >= STEPS_PER_WEIGHT_MIN * (len(SENSORS) + 3):
        ctx.append("model", fitted(steps, now.at))


def fitted(steps: list[dict[str, Sample]], at: int) -> dict:
    """The model that fits these steps best; see model.py."""
    x = np.array([features(step[TRUTH].t, step) for step in steps])
    y = np.array([step[TRUTH].v for step in steps])
    weights, *_ = np.linalg.lstsq(x, y, rcond=None)
    return {
        "until": steps[-1][TRUTH].t,
        "at": at,
        "steps": len(steps),
        "rmse": rounded(float(np.sqrt(np.mean((x @ weights - y) ** 2)))),
        "weights": weights.tolist(),
        "first": {log: found.seqno for log, found in steps[0].items()},
        "last": {log: found.seqno for log, found in steps[-1].items()},
    }
