"""Measure what search needs to know about a store's texts: their language, and the relevance of hits.

Relevance is fitted without judgements, on two groups of queries:

- everyday sentences in the language of the store, which the store does not answer;
- first sentences of chunks without the chunk that they come from: like a question and its answer, sentence and result
  share the subject and some words.

A logistic regression finds the weights of cosine and matched share. A second one, of the sum alone, finds its scale
(Platt 1999); there, the second group counts as 95 % answered. Each file counts the same: the rows of a table resemble
one another more than a question resembles its answer. If the sum does not tell the groups apart, there is no fit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ragembed.corpus import draw_spans
from ragembed.documents.normalisation import normalise
from ragembed.embedder import Embedder
from ragembed.indexes.indexing.languages import language_warnings, languages_of, unread_languages
from ragembed.indexes.search.fusion import Fusion, stored_fusion
from ragembed.indexes.search.pipeline import Mode, query_expression, run_query
from ragembed.indexes.search.relevance import (
    KEY,
    LEAST_CHUNKS,
    Logistic,
    RelevanceModel,
    matched_share,
    stored_relevance,
)
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.storage.writer import StoreWriter
from ragembed.indexes.store import Store
from ragembed.indexes.types import Hit
from ragembed.languages import everyday_sentences, main_language, reads_language
from ragembed.progress import Progress
from ragembed.resources import give_back, processors
from ragembed.types import Doubles

LANGUAGE = "detected_language"
"""Key of the language of the texts in the database."""

_SPANS = 100
_QUERIES_AT_ONCE = 8
"""Number of queries that a thread searches together; the vectors of a thousand candidates of each are in memory."""
_RESULTS = 10
_GROWTH = 2
"""Growth of a store since the fit that makes a new fit necessary."""

_ANSWERED = 0.95
"""Probability that a store answers a sentence of one of its chunks without this chunk."""
_LEAST_AUC = 0.75
"""Probability that a sentence of the store has a higher relevance than an everyday sentence, to keep a fit."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_LEAST_WORDS, _MOST_WORDS = 5, 30
"""Lengths of sentences that are used as queries."""

_DEFAULT_LANGUAGE = "english"
_STEPS, _RIDGE, _SCALE_RIDGE = 50, 1.0, 0.01


def calibrate(store: Store, writer: StoreWriter, progress: Progress, *, again: bool = False) -> list[str]:
    """Find the language of a store's texts, and fit the relevance; return a warning if it does not suit the model.

    Does nothing if both are known and the store has not doubled since, unless ``again``.
    """
    embedder, chunks = store.embedder.refittable, len(store)
    if embedder is None:
        return []
    recorded: dict[str, Any] | None = writer.meta(LANGUAGE)
    if not chunks:
        if recorded is not None:
            writer.set_meta({LANGUAGE: None, KEY: None})
        return []
    if not again and recorded is not None and not _is_due(store, writer, recorded["chunks"], chunks):
        return []
    drawn = draw_spans(store.embedded_texts(), _SPANS, embedder.seed)
    language = main_language(text for _, text in drawn)
    assumed = language in (None, _DEFAULT_LANGUAGE) or embedder.is_remote
    reads = assumed or reads_language(embedder.tokenizer, str(language))
    languages, unread = Counter([language] if language else []), [] if reads else [str(language)]
    if chunks >= LEAST_CHUNKS:
        languages = store.read_database(languages_of, language)
        unread = unread_languages(embedder, languages)
    facts: dict[str, object] = {LANGUAGE: {"chunks": chunks, "language": language, "is_read": reads, "unread": unread}}
    fitted = None
    if chunks >= LEAST_CHUNKS:
        progress.start("fitting", "queries", None)
        with store.snapshot() as snapshot:
            fitted = _fitted(store, snapshot, embedder, drawn, language)
        progress.finish()
    writer.set_meta({**facts, KEY: None if fitted is None else fitted.to_dict()})
    is_new = recorded is None or (recorded["language"], recorded.get("unread", [])) != (language, unread)
    return language_warnings(store, embedder, languages) if languages and is_new else []


def _is_due(store: Store, writer: StoreWriter, before: int, chunks: int) -> bool:
    """Return whether the fit for ``before`` chunks does not suit the present ``chunks`` or the present embedder."""
    is_kept = writer.meta(KEY) is not None
    if chunks < LEAST_CHUNKS:
        return is_kept or chunks >= _GROWTH * before
    model = store.read_database(stored_relevance)
    return before < LEAST_CHUNKS or chunks >= _GROWTH * before or (is_kept and model is None)


class _Signals(NamedTuple):
    """Cosine and matched share of the best hit of each query: by fused score, by cosine, and by BM25; shapes (n,).

    ``weights`` are those of the queries, and add up to 1.
    """

    weights: Doubles
    cosines: Doubles
    matched: Doubles
    best_cosines: Doubles
    best_matched: Doubles

    def columns(self, *names: str) -> Doubles:
        """Return cosines and matched shares, shape ``(n, 2)``; a name that is left out stands for zeros."""
        columns = [getattr(self, name) if name else np.zeros(len(self.weights)) for name in names]
        return np.stack(columns, 1)


def _fitted(
    store: Store, snapshot: Snapshot, embedder: Embedder, drawn: Sequence[tuple[str, str]], language: str | None
) -> RelevanceModel | None:
    """Return the relevance model of spans with their texts, or None; with an external model, words alone decide."""
    mode: Mode = "lexical" if embedder.is_remote else "hybrid"
    spans = [_first_sentence(text) or span for span, text in drawn]
    everyday = everyday_sentences()[language or _DEFAULT_LANGUAGE]
    fusion = replace(stored_fusion(snapshot.connection), feedback=0.0)  # It costs half of the time, and adds no signal.
    answers = _answers(store, embedder, [*spans, *everyday], mode, fusion)
    others = [
        [hit for hit in hits if hit.chunk.embedded_text != text and not _contains(hit, span)]
        for span, (_, text), hits in zip(spans, drawn, answers, strict=False)
    ]
    sources = [_source(hits, text) for hits, (_, text) in zip(answers, drawn, strict=False)]
    of_file = Counter(sources)
    weights = [1.0 if source is None else 1.0 / of_file[source] for source in sources]
    foreign = _signals(snapshot, everyday, answers[len(spans) :], [1.0] * len(everyday))
    own = _signals(snapshot, spans, others, weights)
    if not len(own.weights) or not len(foreign.weights):
        return None
    hybrid = _function(foreign, own, ("cosines", "matched"))
    of_foreign, of_own = (hybrid.cosine * group.cosines + hybrid.matched * group.matched for group in (foreign, own))
    if float(own.weights @ (of_own[:, None] > of_foreign[None, :]) @ foreign.weights) < _LEAST_AUC:
        return None
    return RelevanceModel(
        embedder.fingerprint,
        catalog.count(snapshot.connection, "chunks"),
        len(own.weights),
        hybrid=hybrid,
        dense=None if embedder.is_remote else _function(foreign, own, ("best_cosines", "")),
        lexical=_function(foreign, own, ("", "best_matched")),
    )


def _first_sentence(text: str) -> str | None:
    """Return the first sentence of a text that is as long as a question."""
    sentences = _SENTENCE_END.split(" ".join(text.split()))
    return next((sentence for sentence in sentences if _LEAST_WORDS <= len(sentence.split()) <= _MOST_WORDS), None)


def _answers(store: Store, embedder: Embedder, queries: Sequence[str], mode: Mode, fusion: Fusion) -> list[list[Hit]]:
    """Return the results for each query of a locked store; threads search, as SQLite looks up without Python's lock."""
    queries = [normalise(query) for query in queries]
    vectors = None if mode == "lexical" else embedder.encode_queries(queries)
    give_back()

    def answered(start: int) -> list[list[Hit]]:
        some = slice(start, start + _QUERIES_AT_ONCE)
        own_vectors = None if vectors is None else vectors[some]
        with store.snapshot() as snapshot:
            return run_query(snapshot, queries[some], _RESULTS, mode, None, fusion, vectors=own_vectors)

    with ThreadPoolExecutor(processors()) as threads:
        return list(chain.from_iterable(threads.map(answered, range(0, len(queries), _QUERIES_AT_ONCE))))


def _source(hits: Sequence[Hit], text: str) -> str | None:
    """Return the file of a text among the hits of its sentence, or None if it has none or is not among them."""
    return next((hit.source for hit in hits if hit.chunk.embedded_text == text), None)


def _contains(hit: Hit, span: str) -> bool:
    """Return whether a chunk repeats a span, as overlapping chunks and copies do."""
    return span in " ".join(hit.chunk.embedded_text.split())


def _signals(
    snapshot: Snapshot, queries: Sequence[str], answers: Sequence[Sequence[Hit]], weights: Sequence[float]
) -> _Signals:
    """Return the signals of the queries that have hits."""
    rows = []
    for query, hits, weight in zip(queries, answers, weights, strict=True):
        if not hits:
            continue
        expression = query_expression(snapshot, query)
        highest = None if expression is None else snapshot.highest_score(expression)
        matched = [matched_share(hit.lexical, highest) or 0.0 for hit in hits]
        cosines = [hit.dense or 0.0 for hit in hits]
        rows.append((weight, cosines[0], matched[0], max(cosines), max(matched)))
    values = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    return _Signals(values[0] / (values[0].sum() or 1.0), *values[1:])


def _function(foreign: _Signals, own: _Signals, names: tuple[str, str]) -> Logistic:
    """Return the relevance function for cosine and matched share, the signals with these ``names``, of both groups."""
    groups = [group.columns(*names) for group in (foreign, own)]
    shares = np.concatenate([foreign.weights, own.weights]) * _SPANS
    weights = _regression(groups, [0.0, 1.0], shares, _RIDGE)[1:]
    if (weights < 0).any():  # More of either never makes a text less relevant.
        positive = weights > 0
        of_positive = _regression([group * positive for group in groups], [0.0, 1.0], shares, _RIDGE)
        weights = np.where(positive, of_positive[1:], 0.0)
    weights = np.maximum(weights, 0.0)
    sums = [group @ weights[:, None] for group in groups]
    origin, scale = _regression(sums, [0.0, _ANSWERED], shares, _SCALE_RIDGE)
    cosine, matched = max(float(scale), 0.0) * weights
    return Logistic(float(origin), float(cosine), float(matched))


def _regression(groups: Sequence[Doubles], answers: Sequence[float], shares: Doubles, ridge: float) -> Doubles:
    """Return intercept and coefficients of a logistic regression in which each query counts as ``shares`` says.

    The values of a group have shape ``(n, m)``; ``answers`` are the probabilities that the groups should get.
    """
    values = np.concatenate(groups)
    wanted = np.repeat(answers, [len(group) for group in groups])
    mean, spread = values.mean(axis=0), values.std(axis=0)
    scaled = (values - mean) / np.where(spread > 0, spread, 1.0)
    design = np.column_stack([np.ones(len(values)), scaled])
    penalty = np.diag([1e-9, *[ridge] * values.shape[1]])
    solution = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        odds = 1.0 / (1.0 + np.exp(-np.clip(design @ solution, -30.0, 30.0)))
        gradient = design.T @ (shares * (odds - wanted)) + penalty @ solution
        curvature = (design * (shares * odds * (1.0 - odds))[:, None]).T @ design + penalty
        solution = solution - np.linalg.solve(curvature, gradient)
    coefficients = solution[1:] / np.where(spread > 0, spread, 1.0)
    return np.concatenate([[solution[0] - coefficients @ mean], coefficients])
