"""Twelve sets of readings such as people have: hours to a year long, readings minutes to hours apart.

They are made from the data here. Each is a function of its seed alone. A sensor's readings are (time, value) pairs, as
a file would have them.
"""

from __future__ import annotations

import bisect
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from driver.readings import Readings, arrange, read

DATA = Path(__file__).resolve().parents[1] / "data"
MINUTE, HOUR, DAY = 60, 3600, 86_400
JANUARY, END = 1_357_020_000, 1_388_448_000  # of the data here
Rows = list[tuple[int, float]]


@dataclass
class Site:
    """One airport's temperature at any time, with fluctuations of minutes that its hourly readings do not show."""

    times: list[int]
    values: list[float]

    def at(self, t: float) -> float:
        n = min(max(bisect.bisect_right(self.times, t), 1), len(self.times) - 1)
        (t0, v0), (t1, v1) = ((self.times[k], self.values[k]) for k in (n - 1, n))
        ripple = 0.4 * math.sin(t / 700) + 0.3 * math.sin(t / 1700 + 1)
        return v0 + (v1 - v0) * min(max((t - t0) / (t1 - t0), 0), 1) + ripple


def site(name: str) -> Site:
    readings = read(name, DATA / f"{name}.csv")
    return Site(readings.times, readings.values)


def sampled(
    value: Callable[[int], float],
    begin: int,
    length_s: int,
    every_s: int,
    dice: random.Random,
    noise: float,
    **odd: float,
) -> Rows:
    """Readings of a quantity: `jitter` seconds off, and a part `lose` of them lost."""
    rows = []
    for t in range(begin, begin + length_s, every_s):
        if dice.random() >= odd.get("lose", 0):
            moved = t + dice.randint(0, int(odd.get("jitter", 0)))
            rows.append((moved, round(value(moved) + dice.gauss(0, noise), 2)))
    return rows


def somewhere(dice: random.Random, length_s: int) -> int:
    """A full hour from which the data here last so long."""
    return JANUARY + HOUR * dice.randrange((END - JANUARY - length_s) // HOUR)


def without(rows: Rows, begin: int, end: int) -> Rows:
    return [row for row in rows if not begin <= row[0] < end]


def real(name: str, begin: int, length_s: int, every_s: int = HOUR) -> Rows:
    """Readings as the station sent them."""
    found = site(name)
    return [(t, v) for t, v in zip(found.times, found.values) if begin <= t < begin + length_s and t % every_s == 0]


def four_days_of_a_scaled_sensor(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, 4 * DAY), 4 * DAY, 5 * MINUTE)
    return {
        "shed": sampled(lambda t: 0.7 * air(t) + 31, *size, dice, 0.6),
        "truth": sampled(air, *size, dice, 0.2),
    }


def five_hours_by_the_minute(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, 5 * HOUR), 5 * HOUR, MINUTE)
    return {"porch": sampled(lambda t: air(t) - 3, *size, dice, 0.3), "truth": sampled(air, *size, dice, 0.3)}


def a_day_of_two_sensors_with_odd_clocks(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, DAY), DAY, 10 * MINUTE)
    return {
        "roof": sampled(lambda t: air(t) + 2, *size, dice, 1.0, jitter=20, lose=0.02),
        "wall": sampled(lambda t: 0.5 * air(t) + 30, *size, dice, 0.3, jitter=20, lose=0.02),
        "truth": sampled(air, *size, dice, 0.2),
    }


def a_week_of_two_airports(dice: random.Random) -> dict[str, Rows]:
    begin = somewhere(dice, 7 * DAY)
    return {name: real(source, begin, 7 * DAY) for name, source in (("jfk", "jfk"), ("lga", "lga"), ("truth", "ewr"))}


def two_weeks_in_celsius_with_gaps(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, 14 * DAY), 14 * DAY, 15 * MINUTE)
    probe = sampled(lambda t: (air(t) - 32) / 1.8 + 0.5, *size, dice, 0.4, lose=0.03)
    truth = sampled(air, *size, dice, 0.3, lose=0.05)
    probe = without(probe, size[0] + 3 * DAY, size[0] + 4 * DAY)
    return {"probe": probe, "truth": without(truth, size[0] + 6 * DAY, size[0] + 8 * DAY)}


def a_month_of_a_sensor_in_the_sun(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, 30 * DAY), 30 * DAY, 30 * MINUTE)
    sun = lambda t: 8 * max(0.0, math.sin(2 * math.pi * (t - 11 * HOUR) / DAY))  # noqa: E731
    return {"wall": sampled(lambda t: air(t) + sun(t), *size, dice, 0.3), "truth": sampled(air, *size, dice, 0.3)}


def two_months_of_two_airports_one_of_which_dies(dice: random.Random) -> dict[str, Rows]:
    size = (somewhere(dice, 60 * DAY), 60 * DAY)
    return {"jfk": real("jfk", *size), "lga": real("lga", size[0], 25 * DAY), "truth": real("ewr", *size)}


def three_months_of_a_good_sensor_among_bad_ones(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, 90 * DAY), 90 * DAY, HOUR)
    return {
        "attic": sampled(lambda t: 70 + 5 * math.sin(t / (3 * DAY)), *size, dice, 3.0),
        "cellar": sampled(lambda t: 55 + 0.1 * air(t - 12 * HOUR), *size, dice, 0.5),
        "north": sampled(air, *size, dice, 0.8, lose=0.02),
        "truth": sampled(air, *size, dice, 0.3),
    }


def a_year_four_times_a_day(dice: random.Random) -> dict[str, Rows]:
    size = (JANUARY, 365 * DAY, 6 * HOUR)
    return {name: real(source, *size) for name, source in (("jfk", "jfk"), ("lga", "lga"), ("truth", "ewr"))}


def a_year_of_a_sensor_that_is_moved(dice: random.Random) -> dict[str, Rows]:
    size, moved = (JANUARY, 364 * DAY, 2 * HOUR), JANUARY + 200 * DAY
    jfk = [(t, v + 6 * (t > moved)) for t, v in real("jfk", *size)]
    return {"coast": without(jfk, moved - 5 * DAY, moved), "truth": real("ewr", *size)}


def three_weeks_of_a_sensor_that_dies_and_returns(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, 20 * DAY), 20 * DAY, 20 * MINUTE)
    good = sampled(lambda t: air(t) + 5, *size, dice, 0.2)
    return {
        "good": without(good, size[0] + 2 * DAY, size[0] + 12 * DAY),
        "poor": sampled(lambda t: 1.3 * air(t) - 9, *size, dice, 1.5),
        "truth": sampled(air, *size, dice, 0.2),
    }


def two_hours_of_a_resistance_that_falls(dice: random.Random) -> dict[str, Rows]:
    air, size = site("ewr").at, (somewhere(dice, 2 * HOUR), 2 * HOUR, MINUTE)
    return {
        "thermistor": sampled(lambda t: 900 - 7.5 * air(t), *size, dice, 2.0),
        "truth": sampled(air, *size, dice, 0.1),
    }


DATASETS = [
    four_days_of_a_scaled_sensor,
    five_hours_by_the_minute,
    a_day_of_two_sensors_with_odd_clocks,
    a_week_of_two_airports,
    two_weeks_in_celsius_with_gaps,
    a_month_of_a_sensor_in_the_sun,
    two_months_of_two_airports_one_of_which_dies,
    three_months_of_a_good_sensor_among_bad_ones,
    a_year_four_times_a_day,
    a_year_of_a_sensor_that_is_moved,
    three_weeks_of_a_sensor_that_dies_and_returns,
    two_hours_of_a_resistance_that_falls,
]


def readings_of(dataset: Callable[[random.Random], dict[str, Rows]], seed: int = 1) -> tuple[list[Readings], Readings]:
    """The sensors and the truth, as if read from files."""
    rows = dataset(random.Random(seed))
    *sensors, truth = [arrange(name, Path(name), list(pairs)) for name, pairs in rows.items()]
    return sensors, truth
