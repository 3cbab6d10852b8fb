"""Held-out definitions, and the accuracy with which a model finds their entries (as a reverse dictionary)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.papers.training.arithmetic import Arithmetic
from ragembed.papers.training.dictionaries.senses import Dictionary
from ragembed.papers.training.encoder import DefinitionEncoder
from ragembed.papers.training.glosses import Windows
from ragembed.papers.training.objective import entry_scores
from ragembed.papers.training.settings import Pooling
from ragembed.papers.training.training_run import EntrySpace

_SHARE, _MOST = 20, 1000
_BATCH_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A definition that is excluded from the training, and the numbers of its entries."""

    definition: str
    entries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReverseAccuracy:
    """How well a model finds the entries of definitions.

    ``top1``, ``top10`` and ``top100`` are percentages of the definitions with one of their entries among the first
    results; ``mrr`` is the mean reciprocal rank, from 0 to 1.
    """

    top1: float
    top10: float
    top100: float
    mrr: float
    definitions: int

    def to_dict(self) -> dict[str, float | int]:
        """Return the fields as JSON values."""
        return asdict(self)


def hold_out(dictionary: Dictionary, count: int | None, seed: int) -> tuple[Dictionary, tuple[HeldOut, ...]]:
    """Draw ``count`` definitions at random. Return the dictionary without them, and the drawn definitions.

    A definition that several entries share is removed from all of them. A definition is drawn only if each of its
    entries keeps another one. If ``count`` is None, up to a twentieth of the distinct definitions is drawn, at most
    1,000. Raises :class:`ConfigError` if fewer than ``count`` definitions can be drawn.
    """
    owners: dict[str, list[int]] = {}
    for entry, definition in dictionary.pairs():
        owners.setdefault(definition, []).append(entry)
    left = Counter({entry: len(definitions) for entry, definitions in enumerate(dictionary.definitions)})
    wanted = min(_MOST, len(owners) // _SHARE) if count is None else count
    texts = list(owners)
    drawn: dict[str, tuple[int, ...]] = {}
    for number in np.random.default_rng(seed).permutation(len(texts)):
        if len(drawn) == wanted:
            break
        definition = texts[number]
        if all(left[entry] > 1 for entry in owners[definition]):
            drawn[definition] = tuple(owners[definition])
            left.subtract(owners[definition])
    if count is not None and len(drawn) < count:
        raise ConfigError(
            f"cannot hold out {count} definitions: only {len(drawn)} belong to entries with another definition; "
            f"choose at most {len(drawn)}"
        )
    kept = tuple(tuple(text for text in texts if text not in drawn) for texts in dictionary.definitions)
    return Dictionary(dictionary.entries, kept), tuple(HeldOut(*item) for item in drawn.items())


def ranks(
    encoder: DefinitionEncoder,
    windows: Windows,
    answers: Sequence[Sequence[int]],
    space: EntrySpace,
    pooling: Pooling,
    arithmetic: Arithmetic,
) -> NDArray[np.int64]:
    """Return the best rank of the ``answers`` of each text among all entries, from 1, shape ``(texts,)``.

    Other entries with the same score as the best answer rank before it.
    """
    found = np.zeros(len(answers), dtype=np.int64)
    entries = torch.from_numpy(space.vectors).to(arithmetic.device)
    bias = None if space.bias is None else torch.from_numpy(space.bias).to(arithmetic.device)
    encoder.to(arithmetic.device).eval()
    with torch.inference_mode():
        for rows in windows.by_length(_BATCH_TOKENS):
            ids, mask = windows.batch(rows, arithmetic.device)
            with arithmetic.autocast():
                projected = encoder(ids, mask, pooling)
            scores = entry_scores(projected, entries, bias)  # (rows, entries)
            for row, of_row in zip(rows, scores, strict=True):
                right = torch.tensor(answers[row], device=arithmetic.device)
                best = of_row[right].max()
                same = int((of_row[right] == best).sum())
                found[row] = int((of_row >= best).sum()) - same + 1
    return found


def accuracy(found: NDArray[np.int64]) -> ReverseAccuracy:
    """Return the accuracy for the given ranks. There must be at least one."""
    top1, top10, top100 = (100.0 * float((found <= depth).mean()) for depth in (1, 10, 100))
    return ReverseAccuracy(top1, top10, top100, float((1.0 / found).mean()), len(found))
