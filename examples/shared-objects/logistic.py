"""Logistic regression by Newton's method: processes add up the gradient and the Hessian of their part of the data.

    python logistic.py

The oracle: scikit-learn finds the same coefficients on the same data, to 1e-9.
"""

from __future__ import annotations

import millrace.multiprocessing as multiprocessing

import numpy as np
from sklearn.linear_model import LogisticRegression

ROWS, COLUMNS, PARTS, ROUNDS, PENALTY = 4_000, 6, 4, 12, 1.0


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Features with a column of ones for the intercept, and labels that a noisy plane parts."""
    random = np.random.default_rng(11)
    features = random.normal(size=(ROWS, COLUMNS))
    plane = random.normal(size=COLUMNS)
    labels = features @ plane + 0.5 + random.logistic(size=ROWS) > 0
    return np.hstack([features, np.ones((ROWS, 1))]), labels.astype(float)


def slopes(features: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradient and the Hessian of one part's loss."""
    guesses = 1 / (1 + np.exp(-features @ weights))
    gradient = features.T @ (guesses - labels)
    hessian = (features * (guesses * (1 - guesses))[:, None]).T @ features
    return gradient, hessian


def fit(pool: multiprocessing.pool.Pool, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The weights; the intercept is not penalized."""
    penalty = np.full(COLUMNS + 1, PENALTY)
    penalty[-1] = 0
    weights = np.zeros(COLUMNS + 1)
    parts = list(zip(np.array_split(features, PARTS), np.array_split(labels, PARTS)))
    for _ in range(ROUNDS):
        found = pool.starmap(slopes, [(*part, weights) for part in parts])
        gradient = sum(gradient for gradient, _ in found) + penalty * weights
        hessian = sum(hessian for _, hessian in found) + np.diag(penalty)
        weights = weights - np.linalg.solve(hessian, gradient)
    return weights


def main() -> np.ndarray:
    """The weights that both find."""
    features, labels = rows()
    with multiprocessing.Pool(PARTS) as pool:
        weights = fit(pool, features, labels)
    peer = LogisticRegression(C=1 / PENALTY, solver="newton-cholesky", tol=1e-13, max_iter=100).fit(features[:, :-1], labels)
    expected = np.append(peer.coef_[0], peer.intercept_)
    assert np.abs(weights - expected).max() < 1e-9, np.abs(weights - expected).max()
    return weights


if __name__ == "__main__":
    print(main().round(3))
