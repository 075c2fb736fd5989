"""Monte Carlo π: tasks throw points, and count those within the circle in one shared number.

    python pi.py [TASKS] [POINTS]

The oracle: the shared number is the sum of what the tasks returned, and the estimate is near π.
"""

from __future__ import annotations

import math
import random
import sys

import millrace


def throw(points: int, hits: millrace.objects.AtomicLong) -> int:
    """Throws random points; returns how many of them hit."""
    hit = sum(random.random() ** 2 + random.random() ** 2 <= 1 for _ in range(points))
    hits.add(hit)
    return hit


def main(tasks: int = 16, points: int = 20_000) -> float:
    """The estimate from all tasks."""
    with millrace.connect() as host, host.Executor() as executor:
        hits = host.AtomicLong("hits")
        returned = sum(executor.map(throw, [points] * tasks, [hits] * tasks))
        counted = hits.get()
    assert counted == returned, (counted, returned)
    estimate = 4 * counted / (tasks * points)
    # Five standard deviations.
    assert abs(estimate - math.pi) < 5 * math.sqrt(math.pi * (4 - math.pi) / (tasks * points)), estimate
    return estimate


if __name__ == "__main__":
    print(f"pi is about {main(*map(int, sys.argv[1:])):.5f}")
