"""What the machine allows: the model's operations, the rate of matrix products, and the start of a process."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragembed.tokenizer import TextTokenizer
from speed_paths.setting import PROGRAMS, Setting
from speed_paths.turns import Contestant, Turns, take_turns

STARTING = [sys.executable, "-c", "import numpy"]
"""The least that a process in Python does which computes anything."""

_SQUARE, _TRIAL_SQUARE = 4096, 1024


def operations(folder: Path, lengths: Sequence[int]) -> float:
    """Return the multiplications and additions of the BERT in ``folder`` for texts of so many tokens."""
    shape: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    dim, inner, layers = (shape[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    products = 2 * (4 * dim**2 + 2 * dim * inner) * sum(lengths)
    attention = 4 * dim * sum(length**2 for length in lengths)
    return float(layers * (products + attention))


def windows(folder: Path, texts: Sequence[str]) -> list[int]:
    """Return the tokens, special ones included, of each window that the texts take in the model in ``folder``."""
    tokenizer = TextTokenizer(folder)
    room = tokenizer.max_tokens - tokenizer.special_tokens
    found: list[int] = []
    for length in tokenizer.ids(texts).lengths.tolist():
        found += [min(room, length - start) + tokenizer.special_tokens for start in range(0, max(length, 1), room)]
    return found


def multiplier(setting: Setting) -> Contestant:
    """Return what multiplies large squares, in the arithmetic that ragembed takes for documents."""
    square = {"size": setting.choose(_SQUARE, _TRIAL_SQUARE)}
    return Contestant("matrix product", sys.executable, PROGRAMS / "limit_matmul.py", square)


def rate(found: Turns) -> float:
    """Return the operations in a second that :func:`multiplier` came to."""
    return float(found.ready["operations"]) / statistics.median(found.seconds)


def matrix_rate(setting: Setting) -> float:
    """Return the operations in a second of :func:`multiplier`, measured by itself."""
    one = multiplier(setting)
    return rate(take_turns([one], 2, setting.runner)[one.name])
