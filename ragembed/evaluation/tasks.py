"""Tasks: a test collection, the texts to encode, and the measures of their vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.evaluation.encoding import Encoded, encode_each
from ragembed.evaluation.inputs import at_least, matrix
from ragembed.evaluation.judgements import RetrievalCollection, read_beir
from ragembed.evaluation.retrieval import MEASURES, Measure, RetrievalScore, score_rankings
from ragembed.evaluation.runs import Ranking
from ragembed.postprocess.steps import unit_rows
from ragembed.progress import Progress, SilentProgress

DEPTH = 1000
"""Default length of a ranking, the same as in trec_eval."""
HEADLINE = "ndcg@10"


@dataclass(frozen=True, slots=True)
class Measured:
    """The scores of a task for one configuration, as JSON values, and the name of the main one.

    Retrieval adds the main score of each query, the rankings, and all measures of each query. ``undefined`` says why a
    measure is not defined for the vectors.
    """

    scores: Mapping[str, Any]
    headline: str
    by_query: NDArray[np.float64] | None = None
    rankings: Mapping[str, Ranking] | None = None
    score: RetrievalScore | None = None
    undefined: str | None = None

    @classmethod
    def without_score(cls, headline: str, reason: str) -> Measured:
        """Return the result for vectors for which the measure is not defined."""
        return cls({headline: None, "undefined": reason}, headline, undefined=reason)

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        rows = [(name, f"{value:,.3f}") for name, value in self.scores.items() if isinstance(value, (int, float))]
        return notebook_table(self.headline, (), rows)


@dataclass(frozen=True, slots=True)
class Task:
    """A test collection with its measures, from :func:`read_retrieval` or a reader of :mod:`ragembed.papers`.

    The embedder is fitted on ``documents`` and encodes them as documents, and ``queries`` as queries. In a
    ``symmetric`` task, both are texts of the same kind, so that a shared query fit is suitable. ``headline`` is the
    name of the main score. ``measure`` returns the scores of the embeddings; it makes ``runs`` runs, which ``unit``
    names, and calls the function that it is given after each of several.
    """

    name: str
    documents: Sequence[str]
    queries: Sequence[str]
    measure: Callable[[Encoded, Callable[[int], None] | None], Measured]
    headline: str
    symmetric: bool = True
    runs: int = 1
    unit: str = "configurations"


def retrieval_task(
    collection: RetrievalCollection, measures: Mapping[str, Measure] = MEASURES, depth: int = DEPTH
) -> Task:
    """Return the task of exact search by cosine, scored in per cent; ``depth`` is the length of a ranking."""
    names, queries = list(collection.documents), collection.queries

    def measure(encoded: Encoded, _: object) -> Measured:
        cosines, rows = search(unit_rows(encoded.queries), unit_rows(encoded.documents), depth)
        ranked = [[names[row] for row in ranking] for ranking in rows.tolist()]
        measured = measured_rankings(dict(zip(queries, ranked, strict=True)), collection.relevance, measures)
        scored = (list(zip(ids, scores, strict=True)) for ids, scores in zip(ranked, cosines.tolist(), strict=True))
        return dataclasses.replace(measured, rankings=dict(zip(queries, scored, strict=True)))

    texts = list(collection.documents.values()), list(queries.values())
    return Task(collection.name, *texts, measure, _headline(measures), symmetric=False)


def measured_rankings(
    rankings: Mapping[str, Sequence[str]],
    relevance: Mapping[str, Mapping[str, int]],
    measures: Mapping[str, Measure] = MEASURES,
) -> Measured:
    """Score rankings, in per cent; the headline is nDCG@10 if it is among the measures, else the first measure."""
    score = score_rankings(rankings, relevance, measures)
    headline = _headline(measures)
    scores = {**score.means(), "queries": len(score.queries)}
    return Measured(scores, headline, 100.0 * score.values[headline], score=score)


def _headline(measures: Mapping[str, Measure]) -> str:
    return HEADLINE if HEADLINE in measures else next(iter(measures))


def evaluate(
    task: Task, configs: Sequence[EmbedderConfig], device: str | None = None, progress: Progress | None = None
) -> Iterator[tuple[EmbedderConfig, Measured]]:
    """Fit configurations on the documents of a task, with shared forward passes, and yield each with its scores."""
    queries = task.queries if not task.symmetric or any(config.query_fit == "separate" for config in configs) else ()
    encoded = encode_each(configs, task.documents, queries, device, progress, task.name)
    progress = progress or SilentProgress()
    started = False
    try:
        for config, vectors in zip(configs, encoded, strict=True):
            if not started:
                progress.start(f"{task.name}: measuring", task.unit, len(configs) * task.runs)
                started = True
            yield config, _measure(task, vectors, progress.advance)
    finally:
        if started:
            progress.finish()


def _measure(task: Task, vectors: Encoded, advance: Callable[[int], None]) -> Measured:
    """Return the scores of a configuration, or the reason why its measure is not defined."""
    try:
        measured = task.measure(vectors, advance if task.runs > 1 else None)
    except ConfigError as error:
        # The readers of collections have checked everything else.
        measured = Measured.without_score(task.headline, str(error))
    if task.runs == 1:
        advance(1)
    return measured


def read_retrieval(path: Path) -> Task:
    """Read a retrieval task from a BEIR folder, with the judgements in ``qrels/test.tsv``.

    Its scores are ``ndcg@10``, ``recall@100``, ``mrr@10`` and ``map`` (per cent), and ``queries`` (a count).
    """
    return retrieval_task(dataclasses.replace(read_beir(path), name=path.absolute().name))


_BLOCK_CELLS = 1 << 24


def search(queries: ArrayLike, documents: ArrayLike, k: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return scores and rows of the ``k`` documents with the largest inner product for each query, best first.

    Candidates come from a float32 product, whose errors depend on the position of a row; those near the k-th are scored
    again in float64, so equal vectors have equal scores.
    """
    query_vectors, document_vectors = _single(queries, "queries"), _single(documents, "documents")
    if query_vectors.shape[1] != document_vectors.shape[1]:
        raise ConfigError(
            f"queries have {query_vectors.shape[1]} dimensions and documents {document_vectors.shape[1]}: expected the "
            "same"
        )
    width = min(at_least(k, 1, "k"), len(document_vectors))
    slack = _slack(query_vectors, document_vectors)
    scores = np.empty((len(query_vectors), width))
    rows = np.empty((len(query_vectors), width), dtype=np.int64)
    step = max(1, _BLOCK_CELLS // len(document_vectors))
    for start in range(0, len(query_vectors), step):
        products = query_vectors[start : start + step] @ document_vectors.T  # (step, n)
        least = np.partition(products, len(document_vectors) - width, axis=1)[:, len(document_vectors) - width]
        for query, (row, bound) in enumerate(zip(products, least, strict=True), start):
            candidates = np.flatnonzero(row >= float(bound) - slack[query])
            exact = (document_vectors[candidates].astype(np.float64) * query_vectors[query]).sum(axis=1)
            best = np.argsort(-exact, kind="stable")[:width]
            scores[query], rows[query] = exact[best], candidates[best]
    return scores, rows


def _single(values: ArrayLike, name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(matrix(values, name), dtype=np.float32)
    matrix(single, f"{name}, as float32,")
    return single


def _slack(queries: NDArray[np.float32], documents: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return, for each query, twice the largest error of a float32 inner product with a document.

    The error of a sum of d products in any order is at most d·ε·‖q‖·‖x‖, plus the smallest normal number for each
    product that underflows.
    """
    limits = np.finfo(np.float32)
    norms = [np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)) for vectors in (queries, documents)]
    lengths = norms[0] * norms[1].max()
    # A quarter of the range leaves room for the difference of two such numbers.
    if lengths.max() > float(limits.max) / 4.0:
        raise ConfigError(
            f"inner products could reach {lengths.max():.1e}, which exceeds float32: normalise the vectors"
        )
    dimensions = queries.shape[1]
    slack: NDArray[np.float64] = 2.0 * dimensions * (float(limits.eps) * lengths + float(limits.tiny))
    return slack
