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
    """Sentence pairs with judged similarity.

    Attributes
    ----------
    sentences1, sentences2 : tuple of str
        First and second sentence of each pair.
    scores : tuple of float
        Judged similarity of each pair, on any scale.
    splits : tuple of {"train", "dev", "test"}
        Split of each pair; empty if the collection has no given splits.

    Examples
    --------
    >>> from ragembed.papers import SentencePairs
    >>> pairs = SentencePairs(("a cat sleeps", "a bird"), ("the cat is asleep", "hot tea"), (4.8, 0.0))
    >>> pairs.scores
    (4.8, 0.0)
    """

    sentences1: tuple[str, ...]
    sentences2: tuple[str, ...]
    scores: tuple[float, ...]
    splits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts or pairs of texts with labels.

    Attributes
    ----------
    texts : tuple of str
        The texts, or the first text of each pair.
    labels : tuple of str
        Label of each text or pair.
    second_texts : tuple of str
        The second text of each pair; empty if single texts have labels.
    splits : tuple of {"train", "dev", "test"}
        Split of each text or pair; empty if the collection has no given splits.

    Examples
    --------
    >>> from ragembed.papers import LabelledTexts
    >>> LabelledTexts(("hot tea", "air over a wing"), ("drinks", "flight")).labels
    ('drinks', 'flight')
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    second_texts: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()


def read_sentence_pairs(path: Path) -> SentencePairs:
    r"""Read sentence pairs from a TSV file with the columns ``score``, ``sentence1`` and ``sentence2``.

    Parameters
    ----------
    path : pathlib.Path
        UTF-8 file with a header line. Scores are finite numbers on any scale.

    Returns
    -------
    SentencePairs
        The pairs, in the order of the file.

    Raises
    ------
    ConfigError
        If the file cannot be read or a line is not as expected.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.papers import read_sentence_pairs
    >>> file = Path("pairs.tsv")
    >>> _ = file.write_text("score\tsentence1\tsentence2\n4.5\ta cat sleeps\tthe cat is asleep\n")
    >>> read_sentence_pairs(file).scores
    (4.5,)
    """
    scores, sentences1, sentences2 = [], [], []
    for number, (score, sentence1, sentence2) in table_rows(path, ("score", "sentence1", "sentence2")):
        scores.append(score_number(f"{path}, line {number}", score))
        sentences1.append(sentence1)
        sentences2.append(sentence2)
    return SentencePairs(tuple(sentences1), tuple(sentences2), tuple(scores))


def read_labelled_texts(path: Path) -> LabelledTexts:
    r"""Read labelled texts from a TSV file with the columns ``label`` and ``text``.

    Parameters
    ----------
    path : pathlib.Path
        UTF-8 file with a header line. Labels are non-empty strings.

    Returns
    -------
    LabelledTexts
        The texts, in the order of the file.

    Raises
    ------
    ConfigError
        If the file cannot be read or a line is not as expected.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.papers import read_labelled_texts
    >>> file = Path("topics.tsv")
    >>> _ = file.write_text("label\ttext\ntea\thot tea\nwing\tair over a wing\n")
    >>> read_labelled_texts(file).labels
    ('tea', 'wing')
    """
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
