"""The figures, against straightforward arithmetic."""

from __future__ import annotations

import random
import statistics

import pytest

from driver import score
from driver.chart import Picture
from driver.report import newest_of_step


def invented(seed: int) -> tuple[dict, dict, list[dict]]:
    dice = random.Random(seed)
    truth = [{"t": t, "v": dice.gauss(50, 9), "at": t + 30} for t in range(0, 2000, 10) if dice.random() < 0.9]
    sensors = {name: {t: dice.gauss(50, 9) for t in range(0, 2000, 10) if dice.random() < 0.9} for name in "abc"}
    return {t: dice.gauss(50, 9) for t in range(200, 2000, 10) if dice.random() < 0.9}, sensors, truth


@pytest.mark.parametrize("seed", range(5))
def test_every_estimator_is_judged_on_the_same_steps(seed):
    prediction, sensors, truth = invented(seed)
    actual = {row["t"]: row["v"] for row in truth}
    steps = sorted(t for t in prediction if t in actual and any(t in sensor for sensor in sensors.values()))

    def figures(estimate):
        errors = sorted(abs(v - actual[t]) for t in steps if (v := estimate(t)) is not None)
        place = 0.95 * (len(errors) - 1)
        low = int(place)
        p95 = errors[low] + (place - low) * (errors[min(low + 1, len(errors) - 1)] - errors[low])
        return statistics.mean(errors), statistics.mean(e * e for e in errors) ** 0.5, p95

    def last_known(t):
        return max((row["t"], row["v"]) for row in truth if row["at"] <= t)[1]

    got = score.compare(prediction, sensors, truth, "30s")
    ranked = sorted(sensors, key=lambda name: figures(sensors[name].get)[0])

    def nearest(t):
        return next(sensors[name][t] for name in ranked if t in sensors[name])

    wanted = [figures(prediction.get), figures(nearest), figures(last_known)]
    assert [(e.mae, e.rmse, e.p95) for e in got] == [pytest.approx(figure) for figure in wanted]
    assert got[1].name == f"nearest sensor ({ranked[0]}, then {ranked[1]})"


def test_the_last_truth_known_is_neither_from_the_future_nor_of_the_step_itself():
    truth = [{"t": 10, "v": 1.0, "at": 40}, {"t": 20, "v": 2.0, "at": 25}, {"t": 30, "v": 3.0}, {"t": 40, "v": 4.0}]
    assert score.last_known(truth, (5, 20, 25, 30, 31, 40, 41)) == {25: 2.0, 30: 2.0, 31: 3.0, 40: 3.0, 41: 4.0}


def test_a_prediction_whose_model_knew_its_time_is_caught():
    score.assert_unseen([{"t": 10, "model": {"until": 9, "at": 10}}])
    for model in ({"until": 10, "at": 10}, {"until": 5, "at": 11}):
        with pytest.raises(AssertionError):
            score.assert_unseen([{"t": 10, "model": model}])


def test_bare_readings_count_for_the_step_that_they_are_in():
    samples = [{"t": 3, "v": 1.0}, {"t": 9, "v": 2.0, "at": 40}, {"t": 10, "v": 3.0}, {"t": 11, "v": 4.0}]
    assert newest_of_step(samples, 10) == [{"at": 10, "t": 10, "v": 3.0}, {"at": 11, "t": 20, "v": 4.0}]
    assert newest_of_step(samples[:2], 10) == [{"at": 40, "t": 10, "v": 2.0}]


def test_nothing_in_common_is_no_figure():
    assert score.compare({1: 1.0}, {"a": {2: 1.0}}, [{"t": 3, "v": 1.0}], "0s") == []


def errors(error: float) -> score.Errors:
    return score.errors_of("one", [1, 2], {1: 5.0, 2: 5.0 + 2 * error}, {1: 5.0, 2: 5.0})


def test_small_errors_are_shown_with_two_digits():
    assert score.decimals([errors(1.5), errors(300.0)]) == 2
    assert score.decimals([errors(0.0027), errors(990.0)]) == 4
    assert score.decimals([errors(0.0)]) == 2
    text = score.table({"of": [errors(0.0027)]}, "inHg")
    assert "0.0027" in text and "0.00 " not in text


def test_a_sensor_of_another_unit_is_not_drawn_on_the_scale_of_the_truth():
    truth = {1: 69.0, 2: 72.0}
    picture = Picture("", "°F", 1, 3, truth, truth, [errors(0.3), errors(300.0), errors(1.0)])
    assert [picture.is_comparable(one) for one in picture.errors] == [True, False, True]
