"""Vectors with noise: of labelled texts, and of pairs with scores."""

import numpy as np


def noisy(rows=120, dimensions=4, classes=3, noise=0.8):
    generator = np.random.default_rng(3)
    labels = np.arange(rows) % classes
    return np.eye(classes, dimensions)[labels] + noise * generator.normal(size=(rows, dimensions)), labels


def pairs(rows=120, dimensions=6, low=0, noise=0.0):
    """Pairs whose distance grows as their score, from ``low`` to 5, falls."""
    generator = np.random.default_rng(4)
    first, away = generator.normal(size=(2, rows, dimensions))
    scores = generator.uniform(low, 5, size=rows)
    second = first + 0.5 * (5 - scores)[:, None] * away
    return first, second, np.clip(scores + noise * generator.normal(size=rows), low, 5)


def at_angles(degrees):
    """Return unit vectors at these angles, in degrees."""
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)
