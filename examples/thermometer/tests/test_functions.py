"""The functions, on a namespace in memory."""

from __future__ import annotations

import json
import math
import random

import pytest

from fake import Namespace

HOUR = 3600
START = 1_357_020_000 - 1_357_020_000 % (24 * HOUR)


def weather(hours: int, seed: int = 1, lose: float = 0.0) -> dict[str, dict[int, float]]:
    """Hourly readings of two sensors, and a truth that depends on both; some are lost."""
    dice = random.Random(seed)
    readings: dict[str, dict[int, float]] = {"a": {}, "b": {}, "truth": {}}
    for n in range(hours):
        t = START + n * HOUR
        a = 50 + 20 * math.sin(n / 40) + dice.gauss(0, 2)
        b = 55 + 10 * math.cos(n / 30) + dice.gauss(0, 2)
        for name, value in (("a", a), ("b", b), ("truth", 3 + 0.5 * a + 0.25 * b)):
            if dice.random() >= lose:
                readings[name][t] = round(value, 2)
    return readings


def in_order_of_arrival(readings: dict[str, dict[int, float]], lag: int) -> list[tuple[str, int, float, int]]:
    rows = [(name, t, v, t + lag * (name == "truth")) for name, series in readings.items() for t, v in series.items()]
    return sorted(rows, key=lambda row: (row[3], row[0] != "truth", row[0]))


def feed(namespace: Namespace, readings: dict[str, dict[int, float]], lag: int = 6 * HOUR) -> None:
    for name, t, v, at in in_order_of_arrival(readings, lag):
        namespace.feed(f"raw/{name}", t, v, at)


def smooth_series(series: dict[int, float]) -> dict[int, float]:
    """The oracle for hourly samples."""
    return {
        t: (v + series[t - HOUR] + series[t - 2 * HOUR]) / 3
        for t, v in series.items()
        if t - HOUR in series and t - 2 * HOUR in series
    }


def test_smooth_averages_the_window_that_ends_at_the_step():
    readings = weather(200, lose=0.1)
    namespace = Namespace("ab")
    feed(namespace, readings)
    namespace.run_all()
    for name, series in readings.items():
        got = {s["t"]: s["v"] for s in namespace.values(f"smooth/{name}")}
        want = smooth_series(series)
        assert got.keys() == want.keys()
        assert all(abs(got[t] - want[t]) <= 0.5e-4 + 1e-9 for t in want)


def test_smooth_aligns_jittered_samples_without_looking_ahead():
    dice = random.Random(7)
    times = sorted(dice.sample(range(START, START + 12 * HOUR), 150))
    namespace = Namespace("a", step_s=600, window_s=1800)
    for n, t in enumerate(times):
        namespace.feed("raw/a", t, float(n))
        namespace.run_all()
    got = namespace.values("smooth/a")
    want = {}
    for step in range(START, START + 12 * HOUR, 600):
        window = [n for n, t in enumerate(times) if step - 1800 < t <= step]
        fresh = any(step - 600 < t <= step for t in times)
        later = [t for t in times if t >= step]
        if fresh and len(window) >= 3 and later:
            want[step] = (sum(window) / len(window), later[0])
    assert [s["t"] for s in got] == sorted(want)
    for s in got:
        v, at = want[s["t"]]
        assert s["v"] == pytest.approx(v, abs=1e-4) and s["at"] == at


def test_smooth_takes_duplicates_and_late_samples_without_repeating_a_step():
    namespace = Namespace("a")
    for hour in (0, 1, 2, 3, 3, 1, 4, 2, 5, 6, 7, 8, 8, 9):
        namespace.feed("raw/a", START + hour * HOUR, 10.0)
    namespace.run_all()
    steps = [s["t"] for s in namespace.values("smooth/a")]
    assert steps == sorted(set(steps)) and steps[-1] == START + 9 * HOUR


def test_a_record_that_is_no_sample_fails_its_run():
    namespace = Namespace("a")
    for bad in (
        '"warm"',
        '{"t":1.5,"v":1}',
        '{"t":5}',
        '{"t":5,"v":"1"}',
        '{"t":5,"v":NaN}',
        '{"t":5,"v":1,"at":4}',
        '{"t":-5,"v":1}',
        "[]",
        "{",
    ):
        namespace.append("raw/a", bad)
        with pytest.raises(ValueError):
            namespace.run()


def test_each_prediction_is_made_by_the_newest_model_known_then():
    namespace = Namespace("ab")
    feed(namespace, weather(400, lose=0.02))
    namespace.run_all()
    models, predictions = namespace.values("model"), namespace.values("prediction")
    logs = {name: {s["t"]: s for s in namespace.values(f"smooth/{name}")} for name in ("a", "b", "truth")}
    assert len(models) > 20 and len(predictions) > 350

    for model in models:
        trained_t = model["at"] - 6 * HOUR  # of the truth that caused it, which some sensor may have no step for
        window = [
            t for t in logs["truth"] if trained_t - 864_000 < t <= trained_t and t in logs["a"] and t in logs["b"]
        ]
        assert model["until"] == window[-1] and model["steps"] == len(window)
        assert max(logs["truth"][t]["at"] for t in window) <= model["at"]
        assert model["last"] == {f"smooth/{name}": seqno_of(namespace, name, window[-1]) for name in logs}

    steps = sorted(t for t in logs["a"].keys() | logs["b"].keys() if t >= models[0]["at"])
    assert [p["t"] for p in predictions] == steps[: len(predictions)] and len(predictions) >= len(steps) - 2
    for p in predictions:
        known = [n for n, model in enumerate(models, 1) if model["at"] <= p["t"] and model["until"] < p["t"]]
        model = models[known[-1] - 1]
        assert p["model"] == {"seqno": known[-1], "until": model["until"], "at": model["at"]}
        angle = 2 * math.pi * (p["t"] % 86_400) / 86_400
        x = {"one": 1, "sin": math.sin(angle), "cos": math.cos(angle)}
        x |= {name: logs[name][p["t"]]["v"] for name in "ab" if p["t"] in logs[name]}
        weights = next(c["weights"] for c in model["choices"] if c["weights"].keys() <= x.keys())
        assert p["v"] == pytest.approx(sum(weight * x[term] for term, weight in weights.items()), abs=1e-4)
        assert p["from"].keys() == {f"smooth/{name}" for name in x.keys() & {"a", "b"}}
        assert p["without"].keys() == {"smooth/a", "smooth/b"} - p["from"].keys()


def seqno_of(namespace: Namespace, name: str, t: int) -> int:
    return next(n for n, s in enumerate(namespace.values(f"smooth/{name}"), 1) if s["t"] == t)


def test_a_model_is_refitted_when_the_data_have_grown_by_an_eighth_and_then_by_age():
    namespace = Namespace("ab", age_s=86_400)
    feed(namespace, weather(500))
    namespace.run_all()
    models = namespace.values("model")
    for one, other in zip(models, models[1:]):
        assert other["until"] - one["until"] == min(math.ceil(one["steps"] / 8), 24) * HOUR
    assert [model["steps"] for model in models[:5]] == [12, 14, 16, 18, 21]


def test_the_result_does_not_depend_on_how_far_the_feed_runs_ahead():
    readings = weather(300, lose=0.03)
    ahead, live = Namespace("ab"), Namespace("ab")
    feed(ahead, readings)
    ahead.run_all()
    for name, t, v, at in in_order_of_arrival(readings, 6 * HOUR):
        live.feed(f"raw/{name}", t, v, at)
        live.run_all()
    for log in ("smooth/a", "smooth/b", "smooth/truth", "model"):
        assert ahead.logs[log] == live.logs[log]
    assert [(p["t"], p["v"], p["model"]) for p in ahead.values("prediction")] == [
        (p["t"], p["v"], p["model"]) for p in live.values("prediction")
    ]


@pytest.mark.parametrize("seed", range(30))
def test_exactly_one_prediction_per_complete_step_under_any_interleaving(seed: int):
    dice = random.Random(seed)
    namespace = Namespace("ab", silent_s=10 * 365 * 86_400)
    readings = weather(330, seed, lose=0.1)
    begin = START + 250 * HOUR
    feed(namespace, {name: {t: v for t, v in series.items() if t < begin} for name, series in readings.items()}, lag=0)
    namespace.run_all()
    assert namespace.logs["model"]

    rows = [row for row in in_order_of_arrival(readings, 0) if row[1] >= begin]
    waiting = {name: [row for row in rows if row[0] == name] for name in readings}
    while any(waiting.values()):  # each sensor in its own order, but one may come long before the other
        name = dice.choice([name for name, rest in waiting.items() if rest])
        for _, t, v, _ in [waiting[name].pop(0) for _ in range(min(dice.randint(1, 25), len(waiting[name])))]:
            namespace.feed(f"raw/{name}", t, v)
        if dice.random() < 0.5:
            for _ in range(dice.randint(0, len(namespace.queue))):
                namespace.run(
                    next(n for n, run in enumerate(namespace.queue) if run.function == "smooth")
                    if any(run.function == "smooth" for run in namespace.queue) and dice.random() < 0.7
                    else 0
                )
    namespace.run_shuffled(dice)

    a, b = ({s["t"] for s in namespace.values(f"smooth/{name}")} for name in "ab")
    complete = sorted(t for t in a | b if begin <= t <= min(max(a), max(b)))
    assert [p["t"] for p in namespace.values("prediction") if p["t"] >= begin] == complete


def test_predict_never_uses_and_almost_never_reads_a_value_later_than_its_own_time():
    namespace = Namespace("ab")
    feed(namespace, weather(400))
    namespace.run_all()
    for run, read in namespace.reads:
        if run.function == "predict":
            t = json.loads(namespace.logs[run.log][run.seqno - 1])["t"]
            for log, seqno in read:
                if log.startswith("smooth/"):
                    assert json.loads(namespace.logs[log][seqno - 1])["t"] <= t


def test_a_later_value_changes_no_earlier_prediction():
    readings = weather(300, lose=0.05)
    cut = START + 200 * HOUR
    changed = {name: {t: v + 40 * (t > cut) for t, v in series.items()} for name, series in readings.items()}
    first, second = Namespace("ab"), Namespace("ab")
    feed(first, readings)
    feed(second, changed)
    first.run_all()
    second.run_all()
    before = [[p for p in namespace.values("prediction") if p["t"] <= cut] for namespace in (first, second)]
    assert before[0] == before[1] and len(before[0]) > 50
    assert first.values("prediction")[-1] != second.values("prediction")[-1]


def silent_sensor(begin: int, end: int) -> dict[str, dict[int, float]]:
    """400 hours of weather, in some of which sensor b says nothing."""
    readings = weather(400)
    readings["b"] = {t: v for t, v in readings["b"].items() if not begin <= (t - START) // HOUR < end}
    return readings


def test_a_sensor_that_falls_silent_is_done_without_until_it_returns():
    namespace = Namespace("ab", silent_s=12 * HOUR)
    feed(namespace, silent_sensor(200, 300))
    namespace.run_all()
    predictions = {(p["t"] - START) // HOUR: p for p in namespace.values("prediction")}
    assert sorted(predictions) == list(range(min(predictions), 400))
    both = {hour for hour, p in predictions.items() if not p["without"]}
    assert {*range(190, 200), *range(304, 400)} <= both and not both & {*range(200, 302)}
    assert predictions[250]["without"] == {"smooth/b": 198}


def test_a_sensor_that_falls_silent_is_waited_for_no_longer_than_set():
    namespace, newest = Namespace("ab", silent_s=12 * HOUR), {}
    for name, t, v, at in in_order_of_arrival(silent_sensor(200, 400), 6 * HOUR):
        namespace.feed(f"raw/{name}", t, v, at)
        namespace.run_all()
        if namespace.logs["prediction"]:
            newest[(at - START) // HOUR] = (json.loads(namespace.logs["prediction"][-1])["t"] - START) // HOUR
    assert [newest[hour] for hour in (198, 199, 200, 211, 212, 213, 399)] == [198, 199, 199, 199, 212, 213, 399]


def test_whether_a_feed_runs_ahead_does_not_matter_where_a_sensor_falls_silent_and_returns():
    readings = silent_sensor(200, 300)
    ahead, live = (Namespace("ab", silent_s=12 * HOUR) for _ in range(2))
    feed(ahead, readings)
    ahead.run_all()
    for name, t, v, at in in_order_of_arrival(readings, 6 * HOUR):
        live.feed(f"raw/{name}", t, v, at)
        live.run_all()
    assert ahead.logs["model"] == live.logs["model"]
    assert ahead.logs["prediction"] == live.logs["prediction"]


def test_a_model_is_fitted_to_the_sensors_that_are_left():
    namespace = Namespace("ab", silent_s=12 * HOUR)
    feed(namespace, silent_sensor(200, 400))
    namespace.run_all()
    newest = namespace.values("model")[-1]
    assert newest["until"] > START + 380 * HOUR and newest["last"].keys() == {"smooth/truth", "smooth/a"}


def test_logs_that_have_dropped_their_oldest_records_are_read_from_what_they_kept():
    namespace = Namespace("ab", history=24)
    feed(namespace, weather(300))
    namespace.run_all()
    for run, read in namespace.reads:
        for log, seqno in read:
            if run.function == "train" and log.startswith("smooth/") and seqno != run.seqno:
                assert seqno > len(namespace.logs[log]) - 24
