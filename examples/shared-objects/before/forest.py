"""A random forest: each process grows trees on samples of the data, and all trees vote.

    python forest.py

The oracle: the votes are those of the same trees grown one after the other, and the forest is better than its trees.
"""

from __future__ import annotations

import multiprocessing

import numpy as np
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

TREES, PROCESSES, TESTED = 16, 2, 600

Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def digits() -> Data:
    """Pictures of digits and what they show, to learn from and to be tested with."""
    pictures, shown = load_digits(return_X_y=True)
    order = np.random.default_rng(3).permutation(len(pictures))
    pictures, shown = pictures[order], shown[order]
    return pictures[TESTED:], shown[TESTED:], pictures[:TESTED], shown[:TESTED]


def grow(seed: int, data: Data) -> np.ndarray:
    """What a tree of this seed says of the tested pictures."""
    pictures, shown, tested, _ = data
    random = np.random.default_rng(seed)
    sample = random.integers(len(pictures), size=len(pictures))
    tree = DecisionTreeClassifier(max_features="sqrt", random_state=seed).fit(pictures[sample], shown[sample])
    return tree.predict(tested)


def vote(answers: list[np.ndarray]) -> np.ndarray:
    """For each picture the digit that most trees see."""
    counts = np.zeros((TESTED, 10), dtype=int)
    for answer in answers:
        counts[np.arange(TESTED), answer] += 1
    return counts.argmax(1)


def main() -> float:
    """The share of pictures that the forest reads right."""
    data = digits()
    with multiprocessing.Pool(PROCESSES) as pool:
        answers = pool.starmap(grow, [(seed, data) for seed in range(TREES)])
    alone = [grow(seed, data) for seed in range(TREES)]
    voted, shown = vote(answers), data[3]
    assert np.array_equal(voted, vote(alone))
    right = float((voted == shown).mean())
    assert right > max((answer == shown).mean() for answer in answers)
    return right


if __name__ == "__main__":
    print(f"{main():.3f} of the pictures are read right")
