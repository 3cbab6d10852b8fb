"""Tasks: a test collection, the texts to encode, and the measures of their vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.errors import ConfigError
from ragembed.evaluation.datasets import RetrievalCollection, read_beir
from ragembed.evaluation.encoding import Encoded, encode_each
from ragembed.evaluation.nearest import search
from ragembed.evaluation.retrieval import MEASURES, Measure, RetrievalScore, score_rankings
from ragembed.evaluation.runs import Ranking
from ragembed.progress import Progress, SilentProgress

DEPTH = 1000
"""Default length of a ranking, the same as in trec_eval."""
HEADLINE = "ndcg@10"


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a task for one configuration.

    Attributes
    ----------
    scores : mapping of str to object
        Scores as JSON values, by name.
    headline : str
        Name of the main score.
    by_query : numpy.ndarray or None
        Main score of each query in per cent, float64, shape ``(q,)``; only for retrieval.
    rankings : mapping of str to sequence of (str, float) or None
        Ranking of each query, document ids with their scores; only for retrieval.
    score : RetrievalScore or None
        All measures of each query; only for retrieval.
    undefined : str or None
        Why the measure is not defined for the vectors of this configuration; then the main score is None.

    Examples
    --------
    >>> from ragembed.evaluation import Measured
    >>> measured = Measured({"ndcg@10": 64.5, "recall@100": 92.5, "queries": 300}, "ndcg@10")
    >>> measured.scores[measured.headline]
    64.5
    """

    scores: Mapping[str, Any]
    headline: str
    by_query: NDArray[np.float64] | None = None
    rankings: Mapping[str, Ranking] | None = None
    score: RetrievalScore | None = None
    undefined: str | None = None

    @classmethod
    def without_score(cls, headline: str, reason: str) -> Measured:
        """Return the result for vectors for which the measure is not defined.

        Parameters
        ----------
        headline : str
            Name of the main score.
        reason : str
            Why the measure is not defined.

        Returns
        -------
        Measured
            A result whose scores are None for the main score and ``reason`` for ``undefined``.
        """
        return cls({headline: None, "undefined": reason}, headline, undefined=reason)

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        rows = [(name, f"{value:,.3f}") for name, value in self.scores.items() if isinstance(value, (int, float))]
        return notebook_table(self.headline, (), rows)


class Task(Protocol):
    r"""A test collection with its measures.

    This is the protocol of the task that :func:`read_retrieval` returns, and of the sentence tasks in
    :mod:`ragembed.papers`. Pass a task to :func:`evaluate`.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_retrieval
    >>> folder = Path("drinks")
    >>> (folder / "qrels").mkdir(parents=True)
    >>> _ = (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d1", "text": "Tea is brewed with hot water."}))
    >>> _ = (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "how do I make tea?"}))
    >>> _ = (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    >>> task = read_retrieval(folder)
    >>> task.name, task.symmetric, task.queries
    ('drinks', False, ['how do I make tea?'])
    """

    @property
    def name(self) -> str:
        """Name of the collection."""
        ...

    @property
    def symmetric(self) -> bool:
        """Whether documents and queries are texts of the same kind, so that a shared query fit is suitable."""
        ...

    @property
    def documents(self) -> Sequence[str]:
        """The texts that the embedder is fitted on and encodes as documents."""
        ...

    @property
    def queries(self) -> Sequence[str]:
        """The texts that the embedder encodes as queries."""
        ...

    @property
    def headline(self) -> str:
        """Name of the main score."""
        ...

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:
        """Return the scores of embeddings.

        Parameters
        ----------
        encoded : ragembed.evaluation.encoding.Encoded
            Embeddings of ``documents`` and ``queries``, each float32, shape ``(n, d)``.
        query_fit : {"shared", "separate"}
            The query fit of the embeddings.

        Returns
        -------
        Measured
            The scores.
        """
        ...


@runtime_checkable
class RepeatedTask(Task, Protocol):
    """A task that measures each configuration ``runs`` times, such as k-means; ``unit`` names the runs."""

    @property
    def runs(self) -> int:
        """Number of runs for each configuration."""
        ...

    @property
    def unit(self) -> str:
        """Name of the runs, in the plural."""
        ...

    def measure(self, encoded: Encoded, query_fit: str, advance: Callable[[int], None] | None = None) -> Measured:
        """Return the scores; ``advance`` is called after each run."""
        ...


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

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:  # noqa: ARG002  the protocol's signature
        """Return the retrieval measures, in per cent."""
        from ragembed.postprocess import unit_rows

        names = list(self.collection.documents)
        cosines, rows = search(unit_rows(encoded.queries), unit_rows(encoded.documents), self.depth)
        ranked = [[names[row] for row in ranking] for ranking in rows.tolist()]
        queries = self.collection.queries
        measured = measured_rankings(dict(zip(queries, ranked, strict=True)), self.collection.relevance, self.measures)
        found = (list(zip(ids, scores, strict=True)) for ids, scores in zip(ranked, cosines.tolist(), strict=True))
        return dataclasses.replace(measured, rankings=dict(zip(queries, found, strict=True)))


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
    task: Task,
    configs: Sequence[EmbedderConfig],
    device: str | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[EmbedderConfig, Measured]]:
    """Fit and evaluate several configurations on one task.

    Embedders are fitted on the documents of the task. Configurations with the same model share forward passes.

    Parameters
    ----------
    task : Task
        The task, from :func:`read_retrieval` or a reader of :mod:`ragembed.papers`.
    configs : sequence of EmbedderConfig
        The configurations, at least one. For symmetric tasks, set ``query_fit="shared"``.
    device : str, optional
        Device, as for :class:`ragembed.Embedder`.
    progress : object, optional
        Listener with the methods ``start(phase, unit, total)``, ``advance(count)`` and ``finish()``. The phases are
        fitting and encoding, counted in texts, and measuring, counted in configurations or in the runs of a task. By
        default, the function reports nothing.

    Yields
    ------
    config : EmbedderConfig
        The configuration.
    measured : Measured
        Its scores. If the measure is not defined for the vectors of a configuration, for example because all of them
        are equal, ``undefined`` says why, and the main score is None.

    Raises
    ------
    ConfigError
        If there is no configuration, if a configuration does not fit its model, or if a corpus cannot be read or is
        empty.

    Examples
    --------
    .. code-block:: python

        from pathlib import Path

        from ragembed import EmbedderConfig
        from ragembed.evaluation import evaluate, read_retrieval

        configs = [EmbedderConfig.from_preset(name) for name in ("minilm", "t4")]
        for config, measured in evaluate(read_retrieval(Path("scifact")), configs):
            print(config.extractor, measured.headline, measured.scores[measured.headline])
    """
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
            yield config, _measure(task, vectors, config.query_fit, progress.advance)
    finally:
        if started:
            progress.finish()


def _measure(task: Task, vectors: Encoded, query_fit: str, advance: Callable[[int], None]) -> Measured:
    """Return the scores of a configuration, or the reason why its measure is not defined."""
    try:
        if isinstance(task, RepeatedTask):
            return task.measure(vectors, query_fit, advance)
        measured = task.measure(vectors, query_fit)
    except ConfigError as error:
        # The readers of collections have checked everything else.
        measured = Measured.without_score(task.headline, str(error))
    advance(1)
    return measured


def read_retrieval(path: Path) -> Task:
    """Read a retrieval task from a BEIR folder, with the judgements in ``qrels/test.tsv``.

    Parameters
    ----------
    path : pathlib.Path
        The folder; see :func:`ragembed.evaluation.read_beir`.

    Returns
    -------
    Task
        The task; its scores are ``ndcg@10``, ``recall@100``, ``mrr@10``, ``map`` (per cent) and ``queries`` (a count).

    Raises
    ------
    ConfigError
        If a file cannot be read, a line is not as expected, or no query has a relevant document.

    Examples
    --------
    .. code-block:: python

        from pathlib import Path

        from ragembed.evaluation import read_retrieval

        task = read_retrieval(Path("scifact"))
        print(len(task.documents), len(task.queries))
    """
    return RetrievalTask(dataclasses.replace(read_beir(path), name=path.absolute().name))
