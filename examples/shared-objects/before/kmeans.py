"""k-means: processes assign their points to the nearest centre, and add them up in one shared array; a barrier separates the rounds.

    python kmeans.py

The oracle: the centres are those that scikit-learn finds with as many rounds from the same start, to 1e-9.
"""

from __future__ import annotations

import multiprocessing

import numpy as np
from sklearn.cluster import KMeans

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
    data: np.ndarray, shared: multiprocessing.Array, rounds: list[multiprocessing.Array], barrier: multiprocessing.Barrier
) -> None:
    """A worker's part of all rounds."""
    for found in rounds:
        centres = np.reshape(shared[:], (CENTRES, DIMENSIONS))
        with found.get_lock():
            found[:] = np.add(found[:], sums(data, centres).ravel())
        if barrier.wait() == 0:
            shared[:] = moved(centres, np.reshape(found[:], (CENTRES, DIMENSIONS + 1))).ravel()
        barrier.wait()


def main() -> np.ndarray:
    """The centres."""
    data = points()
    first = data[:CENTRES].copy()
    shared = multiprocessing.Array("d", first.ravel())
    rounds = [multiprocessing.Array("d", CENTRES * (DIMENSIONS + 1)) for _ in range(ROUNDS)]
    barrier = multiprocessing.Barrier(WORKERS)
    parts = np.array_split(data, WORKERS)
    workers = [multiprocessing.Process(target=work, args=(part, shared, rounds, barrier)) for part in parts]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(300)
    centres = np.reshape(shared[:], (CENTRES, DIMENSIONS))
    expected = KMeans(CENTRES, init=first, n_init=1, max_iter=ROUNDS, tol=0, algorithm="lloyd").fit(data).cluster_centers_
    assert np.abs(centres - expected).max() < 1e-9, np.abs(centres - expected).max()
    return centres


if __name__ == "__main__":
    print(main().round(3))
