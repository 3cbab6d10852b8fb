"""How much of what there is in a corpus, for all who read or describe it; imports nothing."""

from __future__ import annotations

K = 10
"""Documents that every search asks for."""
QUESTIONS = 200
FILTERED = 40
"""Of the questions are asked under filters, each under one of its own."""
UNFILTERED = "all"
FILTERS = ("1 in 1,000", "1 in 100", "half")
DIM = 384
EXTRA = 1000
"""Documents beyond the corpus that are added later, each near to a question."""
THREADS = 8
PAUSE = 0.02
"""Seconds between two additions while others ask."""
