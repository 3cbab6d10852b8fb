"""Readers of sentence pairs and labelled texts.

All files are UTF-8 and TSV, with a header line and without quoting. Every reader raises
:class:`ragembed.errors.ConfigError` with the file and the line if a file is not as expected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ragembed.errors import ConfigError
from ragembed.evaluation.lines import table_rows


@dataclass(frozen=True, slots=True)
class SentencePairs:
    """Sentence pairs with judged similarity on any scale; ``splits`` is empty if the collection has none."""

    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    scores: tuple[float, ...]
    splits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts or pairs of texts with labels.

    ``second_texts`` is empty for single texts, ``splits`` if the collection has none.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    second_texts: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()


def read_sentence_pairs(path: Path) -> SentencePairs:
    """Read sentence pairs from a TSV file with the columns ``score``, ``sentence1`` and ``sentence2``."""
    scores, sentences1, sentences2 = [], [], []
    for number, (score, sentence1, sentence2) in table_rows(path, ("score", "sentence1", "sentence2")):
        scores.append(score_number(f"{path}, line {number}", score))
        sentences1.append(sentence1)
        sentences2.append(sentence2)
    return SentencePairs(tuple(sentences1), tuple(sentences2), tuple(scores))


def read_labelled_texts(path: Path) -> LabelledTexts:
    """Read labelled texts from a TSV file with the columns ``label`` and ``text``."""
    texts, labels = [], []
    for number, (label, text) in table_rows(path, ("label", "text")):
        if not label:
            raise ConfigError(f"{path}, line {number}: the label is empty")
        labels.append(label)
        texts.append(text)
    return LabelledTexts(tuple(texts), tuple(labels))


def score_number(place: str, text: str) -> float:
    """Return a judged score; ``place`` is the file and the line, for the error."""
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ConfigError(f"{place}: the score is {text!r}: expected a number")
    return score
