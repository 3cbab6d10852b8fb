"""A map of vectors: positions in the plane at which most neighbours of the vectors are neighbours again.

t-SNE lays out up to :data:`LAID_OUT` vectors, with the attraction along their nearest neighbours (openTSNE; Policar,
Strazar & Zupan 2024). Each further vector is placed beside the nearest of them, so the time grows linearly. The map is
the same in every run on the same machine: all random numbers have a fixed seed, and one thread adds them up.

k-means finds clusters of the vectors; Ward's method joins their centres to groups. Words and phrases are
ranked by class-based TF-IDF (Grootendorst 2022, "BERTopic"), with the terms of the store's full-text index.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ragembed.extras import needed_for
from ragembed.indexes.faiss_index.vectors import nearest
from ragembed.indexes.lexical.analyzer import letters_of, words_or_runs
from ragembed.indexes.search.snippet import known_terms
from ragembed.indexes.types import Rows
from ragembed.languages import unmarked_words_among
from ragembed.types import Doubles, Floats

LAID_OUT = 20_000
"""Maximum number of vectors that t-SNE lays out; of more, every n-th one."""

KEPT = 10
"""Number of nearest neighbours that are compared to measure how well a map keeps them."""

SCALE = 65_535
"""Positions are integers from 0 to this number."""

_LEAST = 16
"""Number of vectors from which t-SNE is used; fewer are shown by their two principal components."""

_FEW = 4_000
"""Number of vectors below which a tree of the points is faster than the Fourier transform."""

_PERPLEXITY, _NEIGHBOURS = 10, 30
_EXAGGERATED, _STEPS, _EXAGGERATION = 150, 350, 12.0
_MEASURED = 1_000
_BLOCK = 8_192
_CENTRES, _BESIDE = 4, 3
_NEAR = SCALE / 50
_SEED = 0
MOST_GROUPS = 8
"""Maximum number of groups: so many colours can be told apart."""

_MOST_CLUSTERS, _PER_CLUSTER = 48, 4
_LABEL_WORDS = 3
_BY_LENGTH = (1.0, 1.6, 1.5)
"""Factors in the scores of single words, and of phrases of two and three words."""
_COMMON = 0.15
"""A word in this share of the texts distinguishes nothing if no class has half of them."""
_NO_TOPIC = re.compile(
    "two|use|used|uses|using|args|async|await|bool|class|const|def|dict|elif|else|false|func|function|import|int|kwargs|"
    "lambda|len|let|list|new|none|null|private|public|raise|return|self|static|str|true|try|tuple|var|void|yield"
)
"""Frequent words that are no function words, and keywords of programming languages."""
_FIELDS = re.compile(r"^(?:[\w-]+: .*\n)+(?=\n)", re.MULTILINE)
"""Fields of a note, such as its tags: many notes share them."""
_ADDRESSES = re.compile(r"\w+://\S+|www\.\S+|\S+@\S+|\S+/\S+")
_JOINTS = re.compile(r"(?<=[a-z])(?=[A-Z])|_+")
"""What is no part of a word: addresses and paths, and the joints of names in source code."""
_WORD = re.compile(r"\b[^\W\d_]+\b")
_PAIR = re.compile(r"\b([A-Z][a-z]+)(?: [A-Z]\.)? (?=([A-Z][a-z]+)\b)")
_LONGEST_TEXT = 4_000
"""Characters of a text whose words are counted."""
_LONGEST_WORD = 30

Read = Callable[[Rows], Floats]
"""Returns the unit vectors at positions, int64, shape ``(n,)``, as float32, shape ``(n, d)``."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Unit vectors of cluster centres, float32, shape ``(m, d)``, and the group of each, ascending, shape ``(m,)``.

    Large groups and clusters come first.
    """

    centres: Floats
    group: Rows


@dataclass(frozen=True, slots=True, eq=False)
class VectorMap:
    """The positions of ``n`` vectors on a map, uint16, shape ``(n, 2)``, with clusters and nearest neighbours.

    ``cluster`` are the numbers of the clusters of the vectors, int64, shape ``(n,)``, and ``clusters`` the clusters of
    those that were laid out. ``laid_out`` are the ascending numbers of the ``m`` vectors that t-SNE laid out, int64.
    ``neighbours`` (as positions in ``laid_out``) and ``cosines`` are those of their nearest neighbours, shape ``(m,
    k)``, best first. ``kept`` is the mean share of the 10 nearest vectors that are among the 10 nearest on the map, of
    those laid out, measured for ``measured`` vectors; None for fewer than 12.
    """

    places: NDArray[np.uint16]
    clusters: Clusters
    cluster: Rows
    laid_out: Rows
    neighbours: Rows
    cosines: Floats
    kept: float | None
    measured: int


def make_map(count: int, read: Read, advance: Callable[[int], None]) -> VectorMap:
    """Return the map of ``count`` vectors, one or more; raises MissingExtraError if openTSNE is not installed."""
    laid_out = np.unique(np.linspace(0, count - 1, min(count, LAID_OUT)).round().astype(np.int64))
    vectors = read(laid_out)
    neighbours, cosines = nearest(
        vectors, vectors, min(_NEIGHBOURS, len(vectors) - 1), leave_out=np.arange(len(vectors))
    )
    with threadpool_limits(1):
        clusters, cluster_of_laid_out = find_clusters(vectors)
        points = _scaled(_laid_out(vectors, neighbours, cosines))
    advance(len(laid_out))
    places = np.zeros((count, 2))
    places[laid_out] = points
    cluster = np.zeros(count, dtype=np.int64)
    cluster[laid_out] = cluster_of_laid_out
    others = np.setdiff1d(np.arange(count), laid_out, assume_unique=True)
    for some, beside, clusters_of in _placed(others, read, vectors, points, cluster_of_laid_out, clusters.centres):
        places[some], cluster[some] = beside, clusters_of
        advance(len(some))
    measured = np.arange(0, len(laid_out), max(1, len(laid_out) // _MEASURED))[:_MEASURED]
    kept = None if count < KEPT + 2 else _kept(points, measured, neighbours[measured, :KEPT])
    return VectorMap(
        places.round().astype(np.uint16), clusters, cluster, laid_out, neighbours, cosines, kept, len(measured)
    )


def place_beside(places: Doubles, weights: Doubles) -> Doubles:
    """Return the mean of those of ``places``, shape ``(k, 2)``, that are near the first, by ``weights``, shape (k,)."""
    close = np.linalg.norm(places - places[0], axis=1) <= _NEAR
    mean: Doubles = (places[close] * weights[close, None]).sum(axis=0) / weights[close].sum()
    return mean


@needed_for("drawing a map")
def _laid_out(vectors: Floats, neighbours: Rows, cosines: Floats) -> Doubles:
    """Return positions of vectors, shape ``(n, 2)``, by t-SNE, or for few vectors by their principal components."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :2]
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    points = np.zeros((len(vectors), 2))
    points[:, : axes.shape[1]] = centred @ axes
    spread = float(points[:, 0].std())
    from openTSNE import TSNEEmbedding, affinity
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    if len(vectors) < _LEAST or spread < 1e-6:
        return points
    distances = np.sqrt(np.maximum(0.0, 2.0 - 2.0 * cosines.astype(np.float64)))
    k = neighbours.shape[1]
    graph = affinity.PerplexityBasedNN(
        perplexity=min(_PERPLEXITY, k / 3), knn_index=PrecomputedNeighbors(neighbours, distances), n_jobs=1
    )
    # Start far inside the unit circle, with a little noise that separates equal vectors.
    start = points * (1e-4 / spread) + np.random.default_rng(_SEED).normal(0.0, 1e-6, points.shape)
    method = "bh" if len(vectors) < _FEW else "fft"
    made = TSNEEmbedding(start, graph, n_jobs=1, random_state=_SEED, negative_gradient_method=method)
    made.optimize(n_iter=_EXAGGERATED, exaggeration=_EXAGGERATION, momentum=0.5, inplace=True)
    made.optimize(n_iter=_STEPS, momentum=0.8, inplace=True)
    return np.asarray(made, dtype=np.float64)


def _scaled(points: Doubles) -> Doubles:
    """Return points shifted and scaled to the range of the map, with the same unit on both axes."""
    low, high = points.min(axis=0), points.max(axis=0)
    size = float((high - low).max()) or 1.0
    scaled: Doubles = (points - (low + high) / 2) / size * SCALE + SCALE / 2
    return scaled


def _placed(
    others: Rows, read: Read, vectors: Floats, points: Doubles, cluster: Rows, centres: Floats
) -> Iterator[tuple[Rows, Doubles, Rows]]:
    """Yield blocks of ``others`` with positions and clusters: beside the nearest of those that were laid out.

    These are looked for in the same and the nearest clusters.
    """
    near, _ = nearest(centres, centres, min(_CENTRES, len(centres)))
    of_cluster = [np.flatnonzero(np.isin(cluster, some)) for some in near]
    for start in range(0, len(others), _BLOCK):
        some = others[start : start + _BLOCK]
        block = read(some)
        clusters = nearest(block, centres, 1)[0][:, 0]
        places = np.zeros((len(block), 2))
        for number in np.unique(clusters).tolist():
            members, candidates = np.flatnonzero(clusters == number), of_cluster[number]
            positions, cosines = nearest(block[members], vectors[candidates], min(_BESIDE, len(candidates)))
            weights = np.maximum(cosines.astype(np.float64), 1e-3)
            for member, beside, weight in zip(members.tolist(), candidates[positions], weights, strict=True):
                places[member] = place_beside(points[beside], weight)
        yield some, places, clusters


def _kept(places: Doubles, measured: Rows, neighbours: Rows) -> float:
    """Return the mean share of ``neighbours``, shape ``(m, 10)``, that are among the 10 nearest on the map."""
    from scipy.spatial import cKDTree

    _, near = cKDTree(places).query(places[measured], KEPT + 1)
    shares = [
        len({*on_map.tolist()} - {own} & {*expected.tolist()})
        for own, on_map, expected in zip(measured.tolist(), near, neighbours, strict=True)
    ]
    return float(np.mean(shares)) / KEPT


# Clusters


@needed_for("finding clusters")
def find_clusters(vectors: Floats) -> tuple[Clusters, Rows]:
    """Return the clusters of unit vectors, and the number of the cluster of each vector."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from sklearn.cluster import KMeans

    distinct = len(np.unique(vectors, axis=0)) if len(vectors) <= 2 * _MOST_CLUSTERS else len(vectors)
    count = min(_MOST_CLUSTERS, distinct, max(1, round((len(vectors) / _PER_CLUSTER) ** 0.5)))
    kmeans = KMeans(count, n_init=1, random_state=_SEED, algorithm="lloyd").fit(vectors)
    number, centres = kmeans.labels_.astype(np.int64), kmeans.cluster_centers_
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
    named = np.array([numbers[old] for old in group[order].tolist()], dtype=np.int64)
    return Clusters(units[order], named), renumbered[number]


def labels(
    texts: Sequence[str], classes: Sequence[Rows], language: str, languages: Iterable[str] = ()
) -> list[list[list[str]]]:
    """Return for each of several classifications the words and phrases that distinguish each class, best first.

    ``classes`` has the numbers of the classes of each text, by classification. ``language`` is that of the store,
    and ``languages`` are those of its texts, whose function words are left out.
    """
    bodies = [_FIELDS.sub("", text[:_LONGEST_TEXT]) for text in texts]
    cleaned = [_JOINTS.sub(" ", _ADDRESSES.sub("\n", body)) for body in bodies]
    words = {word.lower() for text in cleaned for word in _WORD.findall(text)}
    plain = set[str]().union(*(unmarked_words_among(words, each) for each in {language, "english", *languages}))
    ignored = plain | _names_of_people(cleaned, plain)
    counted = [_phrases(text, ignored) for text in cleaned]
    vocabulary = sorted({word for phrases in counted for phrase in phrases for word in phrase.split()})
    terms_of = known_terms(language).of_each(vocabulary)
    term_of = {word: " ".join(sorted(terms_of[word])) or word for word in vocabulary}
    spelt: dict[tuple[str, ...], Counter[str]] = {}
    of_texts: list[set[tuple[str, ...]]] = []
    for phrases in counted:
        terms = set()
        for phrase, times in phrases.items():
            term = tuple(term_of[word] for word in phrase.split())
            terms.add(term)
            spelt.setdefault(term, Counter())[phrase] += times
        of_texts.append(terms)
    shown = {term: min(words, key=lambda word: (-words[word], word)) for term, words in spelt.items()}
    return [_distinguishing(of_texts, numbers, shown) for numbers in classes]


def _distinguishing(
    texts: Sequence[set[tuple[str, ...]]], classes: Rows, shown: dict[tuple[str, ...], str]
) -> list[list[str]]:
    """Return the words and phrases with the highest class-based TF-IDF in each class; no two of them share a word."""
    totals: list[Counter[tuple[str, ...]]] = [Counter() for _ in range(int(classes.max(initial=-1)) + 1)]
    for terms, number in zip(texts, classes.tolist(), strict=True):
        totals[number].update(terms)  # a text that repeats a word counts once
    everywhere: Counter[tuple[str, ...]] = Counter()
    for total in totals:
        everywhere.update(total)
    mean = sum(times for term, times in everywhere.items() if len(term) == 1) / max(len(totals), 1)
    count = sum(1 for terms in texts if terms)
    common = {
        term[0]
        for term, times in everywhere.items()
        if len(term) == 1
        and times > max(1, count * _COMMON)
        and (times > max(1, count / 2) or 2 * max(total[term] for total in totals) < times)
    }
    by_class = []
    for total in totals:
        size = max(total.values(), default=1)
        # The last but one factor, the usual idf, keeps words that are frequent in all texts behind.
        scores = {
            term: times
            / size
            * math.log(1 + mean / everywhere[term])
            * math.log(count / everywhere[term])
            * _BY_LENGTH[len(term) - 1]
            for term, times in total.items()
            if common.isdisjoint(term) and (times > len(term) or (size < 3 and len(term) == 1))
        }
        best: list[tuple[str, ...]] = []
        for term in sorted(scores, key=lambda term: (-scores[term], term)):
            if len(best) < _LABEL_WORDS and not any(set(term) & set(chosen) for chosen in best):
                best.append(term)
        by_class.append([shown[term] for term in best])
    return by_class


def _phrases(text: str, ignored: set[str]) -> Counter[str]:
    """Return words and phrases of two or three words of a text, in lower case, without numbers and short words.

    A phrase has only spaces or hyphens between its words, and none of the ``ignored`` words.
    """
    phrases: Counter[str] = Counter()
    before: list[str] = []
    end = 0
    for match in words_or_runs(text):
        word = match[0].lower()
        if match["run"] is not None:
            phrases.update("".join(pair) for pair in pairwise(letters_of(match[0])))
            before = []
            continue
        if text[end : match.start()].strip(" -"):
            before = []
        end = match.end()
        if (
            not 2 < len(word) <= _LONGEST_WORD
            or any(map(str.isdigit, word))
            or word in ignored
            or _NO_TOPIC.fullmatch(word)
        ):
            before = []
            continue
        before = [*before[-2:], word]
        phrases.update(" ".join(before[i:]) for i in range(len(before)))
    return phrases


def _names_of_people(texts: Sequence[str], plain: set[str]) -> set[str]:
    """Return words that are never written in lower case and mostly stand beside another such word, as in Ann Miller.

    The function words ``plain`` are no names.
    """
    pairs: Counter[str] = Counter()
    capital: Counter[str] = Counter()
    lower: set[str] = set()
    for text in texts:
        for pair in _PAIR.finditer(text):
            if plain.isdisjoint(map(str.lower, pair.groups())):
                pairs.update(pair.groups())
        for word in _WORD.findall(text):
            if word.istitle():
                capital[word] += 1
            elif word.islower():
                lower.add(word)
    return {word.lower() for word, times in pairs.items() if word.lower() not in lower and 2 * times > capital[word]}
