"""Statistics of a collection: sizes, imbalance, vocabulary, lengths, alphabetic tokens, overlap of pairs.

Source: Stankevičius & Lukoševičius 2024, tables 2 and 3. The overlap of pairs is not in these tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.sentences.sentence_collections import SPLITS, LabelledTexts, SentencePairs, read_examples


@dataclass(frozen=True, slots=True)
class TextStatistics:
    """The number of different tokens, their mean number in a text or pair, and the per cent with letters only.

    Upper and lower case differ. Tokens inside of words, such as ``##ing``, do not count as alphabetic.
    """

    vocabulary: int
    length: float
    alphabetic: float


@dataclass(frozen=True, slots=True)
class Description:
    """The statistics of a collection, or of one of its splits.

    ``imbalance`` is the largest class divided by the smallest; for scores, the pairs in the highest point of the scale
    divided by those in the lowest. ``overlap`` is the mean Jaccard index of the words of pairs, in per cent.
    """

    collection: str
    split: str | None
    texts: int
    classes: int | None
    imbalance: float | None
    words: TextStatistics
    tokens: TextStatistics
    overlap: float | None


def describe(path: Path, tokenizer: TextTokenizer) -> Iterator[Description]:
    """Yield the statistics of a collection, one for each of its splits; SICK has its entailment labels."""
    name, data = read_examples(path)
    first, second, values = (
        (data.sentences1, data.sentences2, data.scores)
        if isinstance(data, SentencePairs)
        else (data.texts, data.second_texts, data.labels)
    )
    given: list[str | None] = [each for each in SPLITS if each in data.splits]
    for split in given or [None]:
        rows = [row for row in range(len(first)) if split is None or data.splits[row] == split]
        sides = [[side[row] for row in rows] for side in (first, second) if side]
        found = [values[row] for row in rows]
        yield Description(
            name,
            split,
            len(rows),
            len(set(found)) if isinstance(data, LabelledTexts) else None,
            _imbalance(found),
            _statistics([[text.split() for text in side] for side in sides]),
            _statistics([[tokenizer.names(ids) for ids in tokenizer.ids(side).tolist()] for side in sides]),
            _overlap(*sides) if len(sides) == 2 else None,
        )


def _imbalance(values: Sequence[str | float]) -> float | None:
    scores = [value for value in values if isinstance(value, float)]
    if scores:
        low, high = math.floor(min(scores)) + 1, math.ceil(max(scores)) - 1
        most, least = sum(score >= high for score in scores), sum(score <= low for score in scores)
    else:
        counts = Counter(values).values()
        most, least = max(counts), min(counts)
    return most / least if least else None


def _statistics(sides: Sequence[Sequence[Sequence[str]]]) -> TextStatistics:
    """Return the statistics of the tokens of each text of each side."""
    counts = Counter(token for side in sides for tokens in side for token in tokens)
    total = counts.total()
    # str.isalpha is true if every character is of the Unicode category "Letter".
    alphabetic = sum(count for token, count in counts.items() if token.isalpha())
    return TextStatistics(len(counts), total / len(sides[0]), 100.0 * alphabetic / total if total else 0.0)


def _overlap(first: Sequence[str], second: Sequence[str]) -> float:
    shares = []
    for pair in zip(first, second, strict=True):
        one, other = (set(text.lower().split()) for text in pair)
        shares.append(len(one & other) / len(one | other) if one or other else 0.0)
    return 100.0 * sum(shares) / len(shares)
