"""k-means: tasks assign their points to the nearest centre, and add them up in one shared matrix; a barrier separates the rounds.

    python kmeans.py

The oracle: the centres are those that scikit-learn finds with as many rounds from the same start, to 1e-9.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

import millrace
from millrace import objects

POINTS, DIMENSIONS, CENTRES, ROUNDS, WORKERS = 2_000, 4, 5, 10, 4


def points() -> np.ndarray:
    """Points around five places."""
    random = np.random.default_rng(7)
    places = random.uniform(-10, 10, (CENTRES, DIMENSIONS))
    return places[random.integers(CENTRES, size=POINTS)] + random.normal(size=(POINTS, DIMENSIONS))


def sums(data: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The sum and the number of points of each centre."""
    nearest = ((data[:, None, :] - centres[None]) ** 2).sum(2).argmin(1)
    found = np.zeros((CENTRES, DIMENSIONS + 1))
    np.add.at(found, nearest, np.hstack([data, np.ones((len(data), 1))]))
    return found


def moved(centres: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The means of the centres' points; one without points stays."""
    return np.where(found[:, -1:] > 0, found[:, :-1] / np.maximum(found[:, -1:], 1), centres)


def work(
    data: np.ndarray, shared: objects.Matrix, rounds: list[objects.Matrix], barrier: objects.Barrier
) -> None:
    """A worker's part of all rounds."""
    for found in rounds:
        centres = shared.to_numpy()
        found.add_all(sums(data, centres))
        if barrier.wait() == 0:
            shared.set_all(moved(centres, found.to_numpy()))
        barrier.wait()


def main() -> np.ndarray:
    """The centres."""
    data = points()
    first = data[:CENTRES].copy()
    with millrace.connect() as host, host.Executor(workers=WORKERS) as executor:
        shared = host.Matrix("centres", CENTRES, DIMENSIONS)
        shared.set_all(first)
        rounds = [host.Matrix(f"round-{at}", CENTRES, DIMENSIONS + 1) for at in range(ROUNDS)]
        barrier = host.Barrier("round", WORKERS)
        parts = np.array_split(data, WORKERS)
        for thread in [executor.submit(work, part, shared, rounds, barrier) for part in parts]:
            thread.result(300)
        centres = shared.to_numpy()
    expected = KMeans(CENTRES, init=first, n_init=1, max_iter=ROUNDS, tol=0, algorithm="lloyd").fit(data).cluster_centers_
    assert np.abs(centres - expected).max() < 1e-9, np.abs(centres - expected).max()
    return centres


if __name__ == "__main__":
    print(main().round(3))
