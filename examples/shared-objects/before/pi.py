"""Monte Carlo π: processes throw points, and count those within the circle in one shared number.

    python pi.py [PROCESSES] [POINTS]

The oracle: the shared number is the sum of what the processes counted, and the estimate is near π.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import sys


def throw(points: int, hits: multiprocessing.Value, counted: multiprocessing.Queue) -> None:
    """Throws random points, and adds how many of them hit."""
    hit = sum(random.random() ** 2 + random.random() ** 2 <= 1 for _ in range(points))
    with hits.get_lock():
        hits.value += hit
    counted.put(hit)


def main(processes: int = 8, points: int = 40_000) -> float:
    """The estimate from all processes."""
    hits, counted = multiprocessing.Value("q", 0), multiprocessing.Queue()
    throwing = [multiprocessing.Process(target=throw, args=(points, hits, counted)) for _ in range(processes)]
    for process in throwing:
        process.start()
    own = [counted.get() for _ in throwing]
    for process in throwing:
        process.join()
    assert hits.value == sum(own), (hits.value, own)
    estimate = 4 * hits.value / (processes * points)
    # Five standard deviations.
    assert abs(estimate - math.pi) < 5 * math.sqrt(math.pi * (4 - math.pi) / (processes * points)), estimate
    return estimate


if __name__ == "__main__":
    print(f"pi is about {main(*map(int, sys.argv[1:])):.5f}")
