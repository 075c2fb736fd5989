"""`smooth/truth` -> `model`: refits the model when it has aged, by linear least squares over the last weeks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from model import SENSORS, TRUTH, features, log_of
from samples import joined, newest, rounded, sample, text

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
    old = newest(ctx, "model")
    model = old.json() if old else None
    if model and now.t - model["until"] < AGE_S:
        return
    logs = [TRUTH, *map(log_of, SENSORS)]
    before = {log: model["first"][log] - 1 if model else 0 for log in logs}
    steps = [step for step in joined(ctx, before, now.t) if step[TRUTH].t > now.t - TRAIN_S]
    if len(steps) < STEPS_PER_WEIGHT_MIN * (len(SENSORS) + 3):
        return

    x = np.array([features(step[TRUTH].t, step) for step in steps])
    y = np.array([step[TRUTH].v for step in steps])
    weights, *_ = np.linalg.lstsq(x, y, rcond=None)
    model = {
        "until": steps[-1][TRUTH].t,
        "at": now.at,
        "steps": len(steps),
        "rmse": rounded(float(np.sqrt(np.mean((x @ weights - y) ** 2)))),
        "weights": [float(weight) for weight in weights],
        "first": {log: steps[0][log].seqno for log in logs},
        "last": {log: steps[-1][log].seqno for log in logs},
    }
    ctx.append("model", text(**model))
