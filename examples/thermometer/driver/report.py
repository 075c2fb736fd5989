"""Says how good the predictions were, and has them drawn."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from . import score
from .application import Settings
from .units import duration

SMOOTHED, BARE = "against the smoothed truth", "against the bare reading"


def report(settings: Settings, logs: dict[str, list[dict]], lag_s: int, title: str, unit: str, out: Path) -> int:
    """Prints the figures, and writes them and the picture into `out`; the exit code."""
    smooth, raw = ({name: series(logs[f"{stage}/{name}"]) for name in settings.sensors} for stage in ("smooth", "raw"))
    prediction = series(logs["prediction"])
    score.assert_unseen(logs["prediction"])
    print(account_of_steps(settings, smooth, prediction, len(logs["model"])))
    groups = {
        SMOOTHED: score.compare(prediction, smooth, logs["smooth/truth"], duration(lag_s)),
        BARE: score.compare(prediction, raw, logs["raw/truth"], duration(lag_s)),
    }
    if not all(groups.values()):
        print(
            "nothing to compare: no step has a prediction and a truth. Is there enough data, at the same times?",
            file=sys.stderr,
        )
        return 1
    print(f"\n{score.table(groups, unit)}\n")

    figures = {of: {one.name: one.figures() for one in group} for of, group in groups.items()}
    (out / "thermometer.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    from .chart import Picture  # here, because matplotlib takes long to import, and mistakes should be told at once

    truth = series(logs["smooth/truth"])
    picture = Picture(title, unit, settings.step_s, settings.window_s, prediction, truth, groups[SMOOTHED])
    paths = picture.draw(out / "thermometer")
    print(f"picture     {', '.join(os.path.relpath(path) for path in paths)}")
    return 0


def account_of_steps(settings: Settings, smooth: dict[str, score.Series], prediction: score.Series, models: int) -> str:
    """What became of every step."""
    complete = set.intersection(*(set(one) for one in smooth.values()))
    some = set.union(*(set(one) for one in smooth.values()))
    return (
        f"steps       {len(some)} of {duration(settings.step_s)}: {len(some - complete)} without some sensor, "
        f"{len(complete) - len(prediction)} before the first model, {len(prediction)} predicted by {models} models"
    )


def series(samples: list[dict]) -> score.Series:
    return {sample["t"]: sample["v"] for sample in samples}
