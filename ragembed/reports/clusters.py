"""Clusters of vectors at two levels, and the words that distinguish their texts.

k-means finds the clusters; Ward's method joins their centres to groups. Words are ranked by class-based TF-IDF
(Grootendorst 2022, "BERTopic"), with the terms of the store's full-text index.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ragembed.extras import needed_for
from ragembed.indexes.lexical.analyzer import letters_of, words_or_runs
from ragembed.indexes.search.snippet import known_terms
from ragembed.indexes.types import Rows
from ragembed.types import Floats

MOST_GROUPS = 8
"""Maximum number of groups: so many colours can be told apart."""

_MOST_CLUSTERS, _PER_CLUSTER = 48, 4
_LABEL_WORDS = 4
_LONGEST_TEXT = 4_000
"""Characters of a text whose words are counted."""
_LONGEST_WORD = 30
_SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Unit vectors of cluster centres, float32, shape ``(m, d)``, and the group of each, ascending, shape ``(m,)``.

    Large groups and clusters come first.
    """

    centres: Floats
    group: Rows


@needed_for("finding clusters")
def find_clusters(vectors: Floats) -> tuple[Clusters, Rows]:
    """Return the clusters of unit vectors, and the number of the cluster of each vector."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from sklearn.cluster import KMeans

    distinct = len(np.unique(vectors, axis=0)) if len(vectors) <= 2 * _MOST_CLUSTERS else len(vectors)
    count = min(_MOST_CLUSTERS, distinct, max(1, round((len(vectors) / _PER_CLUSTER) ** 0.5)))
    found = KMeans(count, n_init=1, random_state=_SEED, algorithm="lloyd").fit(vectors)
    number, centres = found.labels_.astype(np.int64), found.cluster_centers_
    groups = min(MOST_GROUPS, max(1, round(1.5 * count**0.5)))
    group = np.zeros(count, dtype=np.int64)
    if 1 < groups < count:
        group = fcluster(linkage(centres, "ward"), groups, "maxclust").astype(np.int64) - 1
    elif groups >= count:
        group = np.arange(count)
    sizes = np.bincount(number, minlength=count)
    of_group = np.bincount(group, sizes)
    order = np.lexsort((np.arange(count), -sizes, group, -of_group[group]))
    renumbered = np.argsort(order)
    lengths = np.linalg.norm(centres, axis=1, keepdims=True)
    units = (centres / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    numbers = {old: new for new, old in enumerate(dict.fromkeys(group[order].tolist()))}
    named = np.array([numbers[each] for each in group[order].tolist()], dtype=np.int64)
    return Clusters(units[order], named), renumbered[number]


def labels(texts: Sequence[str], classes: Sequence[Rows], language: str) -> list[list[list[str]]]:
    """Return for each of several classifications the words that distinguish each class, best first.

    ``classes`` has the numbers of the classes of each text, by classification. ``language`` is that of the store.
    """
    counted = [_words(text) for text in texts]
    vocabulary = sorted({word for words in counted for word in words})
    terms_of = known_terms(language).of_each(vocabulary)
    term_of = {word: " ".join(sorted(terms_of[word])) or word for word in vocabulary}
    spelt: dict[str, Counter[str]] = {}
    of_texts: list[Counter[str]] = []
    for words in counted:
        terms: Counter[str] = Counter()
        for word, times in words.items():
            terms[term_of[word]] += times
            spelt.setdefault(term_of[word], Counter())[word] += times
        of_texts.append(terms)
    shown = {term: min(words, key=lambda word: (-words[word], word)) for term, words in spelt.items()}
    return [_distinguishing(of_texts, numbers, shown) for numbers in classes]


def _distinguishing(texts: Sequence[Counter[str]], classes: Rows, shown: dict[str, str]) -> list[list[str]]:
    """Return the words with the highest class-based TF-IDF in each class."""
    totals: list[Counter[str]] = [Counter() for _ in range(int(classes.max(initial=-1)) + 1)]
    for terms, number in zip(texts, classes.tolist(), strict=True):
        totals[number].update(terms.keys())  # a text that repeats a word counts once
    everywhere: Counter[str] = Counter()
    for total in totals:
        everywhere.update(total)
    mean = sum(everywhere.values()) / max(len(totals), 1)
    count = sum(1 for terms in texts if terms)
    found = []
    for total in totals:
        size = max(total.values(), default=1)
        # The last factor, the usual idf, keeps words that are frequent in all texts behind.
        scores = {
            term: times / size * math.log(1 + mean / everywhere[term]) * math.log(count / everywhere[term])
            for term, times in total.items()
            if everywhere[term] <= max(count / 2, 1) and (times > 1 or size < 3)
        }
        best = sorted(scores, key=lambda term: (-scores[term], term))[:_LABEL_WORDS]
        found.append([shown[term] for term in best])
    return found


def _words(text: str) -> Counter[str]:
    """Return the words of a text, in lower case, without numbers, single letters and very long ones.

    In scripts without spaces, each pair of letters is a word, as in the full-text index.
    """
    found: Counter[str] = Counter()
    for match in words_or_runs(text[:_LONGEST_TEXT]):
        if match["run"] is not None:
            found.update("".join(pair) for pair in pairwise(letters_of(match[0])))
        elif 1 < len(match[0]) <= _LONGEST_WORD and not any(map(str.isdigit, match[0])):
            found[match[0].lower()] += 1
    return found
