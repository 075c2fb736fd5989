"""Reports the errors of the predictions, and plots them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from . import score
from .application import Settings
from .units import duration

SMOOTHED, BARE = "against the smoothed truth", "against the bare reading"


def report(settings: Settings, logs: dict[str, list[dict]], lag_s: int, title: str, unit: str, out: Path) -> int:
    """Prints the figures, and writes them and the picture into `out`; the exit code."""
    smooth = {name: series(logs[f"smooth/{name}"]) for name in settings.sensors}
    bare = {name: series(newest_of_step(logs[f"raw/{name}"], settings.step_s)) for name in settings.sensors}
    prediction = series(logs["prediction"])
    score.assert_unseen(logs["prediction"])
    print(account_of_steps(settings, smooth, prediction, len(logs["model"])))
    late = duration(lag_s)
    groups = {
        SMOOTHED: score.compare(prediction, smooth, logs["smooth/truth"], late),
        BARE: score.compare(prediction, bare, newest_of_step(logs["raw/truth"], settings.step_s), late),
    }
    if not all(groups.values()):
        print(
            "nothing to compare: no step has a prediction and a truth. A model needs 12 steps at which the truth and "
            f"the sensors have values, and the truth becomes known {late} late (--lag).",
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
    print(f"picture     {', '.join(map(shown, paths))}")
    return 0


def account_of_steps(settings: Settings, smooth: dict[str, score.Series], prediction: score.Series, models: int) -> str:
    """The outcome of every step."""
    complete = set.intersection(*(set(one) for one in smooth.values()))
    some = set.union(*(set(one) for one in smooth.values()))
    first = min(prediction, default=max(some) + 1)
    early = sum(t < first for t in some)
    return (
        f"steps       {len(some)} of {duration(settings.step_s)}: {early} before the first model, "
        f"{len(prediction)} predicted by {models} models "
        f"({len(prediction.keys() - complete)} of them without some sensor), "
        f"{len(some) - early - len(prediction)} skipped"
    )


def newest_of_step(samples: list[dict], step_s: int) -> list[dict]:
    """For each step the newest sample in it, as of the step's end."""
    newest: dict[int, dict] = {}
    for sample in samples:
        step = -(-sample["t"] // step_s) * step_s
        newest[step] = {"at": sample["t"]} | sample | {"t": step}
    return list(newest.values())


def shown(path: Path) -> str:
    """A path as short as it can be written."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def series(samples: list[dict]) -> score.Series:
    return {sample["t"]: sample["v"] for sample in samples}
