"""Tasks: a test collection, the texts to encode, and the measures of their vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.evaluation.encoding import Encoded, encode_each
from ragembed.evaluation.inputs import at_least, matrix
from ragembed.evaluation.judgements import RetrievalCollection, read_beir
from ragembed.evaluation.retrieval import MEASURES, Measure, RetrievalScore, score_rankings
from ragembed.evaluation.runs import Ranking
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


class Task(Protocol):
    """A test collection with its measures, from :func:`read_retrieval` or a reader of :mod:`ragembed.papers`."""

    @property
    def name(self) -> str:
        """Name of the collection."""

    @property
    def symmetric(self) -> bool:
        """Whether documents and queries are texts of the same kind, so that a shared query fit is suitable."""

    @property
    def documents(self) -> Sequence[str]:
        """The texts that the embedder is fitted on and encodes as documents."""

    @property
    def queries(self) -> Sequence[str]:
        """The texts that the embedder encodes as queries."""

    @property
    def headline(self) -> str:
        """Name of the main score."""

    def measure(self, encoded: Encoded) -> Measured:
        """Return the scores of the embeddings of ``documents`` and ``queries``."""


@runtime_checkable
class RepeatedTask(Task, Protocol):
    """A task that measures each configuration ``runs`` times, such as k-means; ``unit`` names the runs."""

    @property
    def runs(self) -> int:
        """Number of runs for each configuration."""

    @property
    def unit(self) -> str:
        """Name of the runs, in the plural."""

    def measure(self, encoded: Encoded, advance: Callable[[int], None] | None = None) -> Measured:
        """Return the scores; ``advance`` is called after each run."""


@dataclass(frozen=True, slots=True)
class RetrievalTask:
    """Exact search by cosine, scored with relevance judgements; ``depth`` is the length of a ranking."""

    collection: RetrievalCollection
    measures: Mapping[str, Measure] = field(default_factory=lambda: MEASURES)
    depth: int = DEPTH
    symmetric: bool = False

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self.collection.name

    @property
    def headline(self) -> str:
        """The measure nDCG@10 if it is among the measures, else the first measure."""
        return _headline(self.measures)

    @property
    def documents(self) -> Sequence[str]:
        """The texts of the documents."""
        return list(self.collection.documents.values())

    @property
    def queries(self) -> Sequence[str]:
        """The texts of the queries."""
        return list(self.collection.queries.values())

    def measure(self, encoded: Encoded) -> Measured:
        """Return the retrieval measures, in per cent."""
        from ragembed.postprocess import unit_rows

        names = list(self.collection.documents)
        cosines, rows = search(unit_rows(encoded.queries), unit_rows(encoded.documents), self.depth)
        ranked = [[names[row] for row in ranking] for ranking in rows.tolist()]
        queries = self.collection.queries
        measured = measured_rankings(dict(zip(queries, ranked, strict=True)), self.collection.relevance, self.measures)
        scored = (list(zip(ids, scores, strict=True)) for ids, scores in zip(ranked, cosines.tolist(), strict=True))
        return dataclasses.replace(measured, rankings=dict(zip(queries, scored, strict=True)))


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
    runs, unit = (task.runs, task.unit) if isinstance(task, RepeatedTask) else (1, "configurations")
    started = False
    try:
        for config, vectors in zip(configs, encoded, strict=True):
            if not started:
                progress.start(f"{task.name}: measuring", unit, len(configs) * runs)
                started = True
            yield config, _measure(task, vectors, progress.advance)
    finally:
        if started:
            progress.finish()


def _measure(task: Task, vectors: Encoded, advance: Callable[[int], None]) -> Measured:
    """Return the scores of a configuration, or the reason why its measure is not defined."""
    try:
        if isinstance(task, RepeatedTask):
            return task.measure(vectors, advance)
        measured = task.measure(vectors)
    except ConfigError as error:
        # The readers of collections have checked everything else.
        measured = Measured.without_score(task.headline, str(error))
    advance(1)
    return measured


def read_retrieval(path: Path) -> Task:
    """Read a retrieval task from a BEIR folder, with the judgements in ``qrels/test.tsv``.

    Its scores are ``ndcg@10``, ``recall@100``, ``mrr@10`` and ``map`` (per cent), and ``queries`` (a count).
    """
    return RetrievalTask(dataclasses.replace(read_beir(path), name=path.absolute().name))


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
