"""Tasks: a test collection, the texts to encode, and the measures of their vectors."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.config.settings import EmbedderConfig
from ragembed.corpus import Corpus
from ragembed.errors import ConfigError
from ragembed.evaluation.datasets import (
    LabelledTexts,
    RetrievalCollection,
    SentencePairs,
    read_beir,
    read_labelled_texts,
    read_sentence_pairs,
)
from ragembed.evaluation.encoding import Encoded, encode_each
from ragembed.evaluation.inputs import at_least
from ragembed.evaluation.isotropy import alignment, iso_score, uniformity
from ragembed.evaluation.nearest import search
from ragembed.evaluation.progress import EvaluationProgress, SilentEvaluation
from ragembed.evaluation.retrieval import MEASURES, Measure, RetrievalScore, score_rankings
from ragembed.evaluation.runs import Ranking
from ragembed.evaluation.senteval import SPLITS, read_examples, read_scored_pairs

DEPTH = 1000
"""Default length of a ranking, the same as in trec_eval."""
HEADLINE = "ndcg@10"
POSITIVE_SCORE = 5.0
"""Pairs with this score or more are positive: on a scale to 5, only those with the highest score (Stankevičius &
Lukoševičius 2024, section 4.4)."""


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
    >>> measured = Measured({"spearman": 81.5, "pearson": 80.2, "pairs": 1379}, "spearman")
    >>> measured.scores[measured.headline]
    81.5
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

    This is the protocol of the tasks that :func:`read_sts`, :func:`read_clustering`, :func:`read_classification`,
    :func:`read_isotropy` and :func:`read_retrieval` return. Pass a task to :func:`evaluate`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_sts
    >>> file = Path("pairs.tsv")
    >>> _ = file.write_text("score\tsentence1\tsentence2\n5\ta\tb\n0\tc\td\n")
    >>> task = read_sts(file)
    >>> task.name, task.symmetric, task.documents
    ('pairs', True, ['a', 'c', 'b', 'd'])
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


@dataclass(frozen=True, slots=True)
class StsTask:
    """Semantic textual similarity; with a separate query fit, the second sentences are encoded as queries."""

    name: str
    pairs: SentencePairs
    headline: ClassVar[str] = "spearman"
    symmetric: bool = True

    @property
    def documents(self) -> Sequence[str]:
        """Both sentences of all pairs."""
        return [*self.pairs.sentences1, *self.pairs.sentences2]

    @property
    def queries(self) -> Sequence[str]:
        """The second sentences."""
        return self.pairs.sentences2

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:
        """Return the Spearman and Pearson correlations, in per cent."""
        from ragembed.evaluation.sts import pearson, spearman

        first, second = _halves(encoded, len(self.pairs.scores), query_fit)
        scores = {
            "spearman": spearman(first, second, self.pairs.scores),
            "pearson": pearson(first, second, self.pairs.scores),
            "pairs": len(self.pairs.scores),
        }
        return Measured(scores, self.headline)


@dataclass(frozen=True, slots=True)
class SimilarityTask:
    """Prediction of the similarity of sentence pairs, in cross-validation or with given splits."""

    name: str
    pairs: SentencePairs
    folds: int = 10
    headline: ClassVar[str] = "spearman"
    symmetric: bool = True

    documents = StsTask.documents
    queries = StsTask.queries

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:
        """Return the correlations of predicted and judged similarity, in per cent."""
        first, second = _halves(encoded, len(self.pairs.scores), query_fit)
        if self.pairs.splits:
            from ragembed.evaluation.relatedness import relatedness_regression

            score = relatedness_regression(first, second, self.pairs.scores, self.pairs.splits)
            counts = {"pairs": self.pairs.splits.count("test")}
        else:
            from ragembed.evaluation.classification import similarity_classification

            score = similarity_classification(first, second, self.pairs.scores, self.folds)
            counts = {"pairs": len(self.pairs.scores), "runs": self.folds}
        return Measured({"spearman": score.spearman, "pearson": score.pearson, **counts}, self.headline)


@dataclass(frozen=True, slots=True)
class ClusteringTask:
    """Accuracy of k-means."""

    name: str
    labelled: LabelledTexts
    runs: int = 10
    headline: ClassVar[str] = "accuracy"
    symmetric: bool = True
    queries: Sequence[str] = field(default=(), init=False)

    @property
    def documents(self) -> Sequence[str]:
        """The texts."""
        return self.labelled.texts

    def measure(
        self,
        encoded: Encoded,
        query_fit: str,  # noqa: ARG002  the protocol's signature
        advance: Callable[[int], None] | None = None,
    ) -> Measured:
        """Return the mean accuracy and that of each run, in per cent; ``advance`` is called after each run."""
        from ragembed.evaluation.clustering import clustering_accuracy

        score = clustering_accuracy(encoded.documents, self.labelled.labels, self.runs, advance)
        scores = {"accuracy": score.accuracy, "runs": len(score.runs), "run_accuracies": list(score.runs)}
        return Measured(scores, self.headline)


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """Accuracy of a classifier for texts or pairs, in cross-validation or with given splits."""

    name: str
    labelled: LabelledTexts
    folds: int = 10
    classifier: str = "logistic"
    nested: bool = False
    headline: ClassVar[str] = "accuracy"
    symmetric: bool = True

    @property
    def documents(self) -> Sequence[str]:
        """The texts; for pairs, the first texts and then the second ones."""
        return [*self.labelled.texts, *self.labelled.second_texts]

    @property
    def queries(self) -> Sequence[str]:
        """The second texts of pairs."""
        return self.labelled.second_texts

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:
        """Return the mean accuracy and that of each fold, or the accuracy on the test split, in per cent."""
        from ragembed.evaluation.classification import classification_accuracy, pair_features, split_accuracy

        found = self.labelled
        features: NDArray[Any] = encoded.documents
        if found.second_texts:
            features = pair_features(*_halves(encoded, len(found.labels), query_fit))
        if found.splits:
            split = split_accuracy(features, found.labels, found.splits, self.folds, classifier=self.classifier)
            counts = {"train": found.splits.count("train"), "test": found.splits.count("test")}
            return Measured({**dataclasses.asdict(split), **counts}, self.headline)
        score = classification_accuracy(
            features, found.labels, self.folds, classifier=self.classifier, nested=self.nested
        )
        scores = {"accuracy": score.accuracy, "runs": len(score.folds), "run_accuracies": list(score.folds)}
        return Measured(scores, self.headline)


@dataclass(frozen=True, slots=True)
class IsotropyTask:
    """IsoScore and uniformity of vectors; for sentence pairs, also the alignment of positive pairs.

    Pairs with a score of ``positive_score`` or more are positive. The uniformity of ``n`` texts needs all ``n²``
    distances; ``with_uniformity=False`` leaves it out.
    """

    name: str
    texts: Sequence[str]
    pairs: SentencePairs | None = None
    positive_score: float = POSITIVE_SCORE
    with_uniformity: bool = True
    headline: ClassVar[str] = "iso_score"
    symmetric: bool = True
    queries: Sequence[str] = field(default=(), init=False)

    @property
    def documents(self) -> Sequence[str]:
        """The texts."""
        return self.texts

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:  # noqa: ARG002  as above
        """Return IsoScore, uniformity and, for sentence pairs, alignment."""
        vectors = encoded.documents
        scores: dict[str, Any] = {"iso_score": iso_score(vectors)}
        if self.with_uniformity:
            scores["uniformity"] = uniformity(vectors)
        if self.pairs is not None:
            half = len(self.pairs.scores)
            positive = np.array(self.pairs.scores) >= self.positive_score
            scores["alignment"] = alignment(vectors[:half][positive], vectors[half:][positive])
            scores |= {"positive_score": self.positive_score, "positive_pairs": int(positive.sum())}
        return Measured({**scores, "vectors": len(vectors)}, self.headline)


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

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:  # noqa: ARG002  as above
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
    progress: EvaluationProgress | None = None,
) -> Iterator[tuple[EmbedderConfig, Measured]]:
    r"""Fit and evaluate several configurations on one task.

    Embedders are fitted on the documents of the task. Configurations with the same model share forward passes.

    Parameters
    ----------
    task : Task
        The task, from a reader such as :func:`read_sts`.
    configs : sequence of EmbedderConfig
        The configurations, at least one. For symmetric tasks, set ``query_fit="shared"``.
    device : str, optional
        Device, as for :class:`ragembed.Embedder`.
    progress : object, optional
        Listener with the methods ``start(phase, unit, total)``, ``advance(count)`` and ``finish()``. The phases are
        fitting and encoding, counted in texts, and measuring, counted in configurations or k-means runs. By default,
        the function reports nothing.

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
    >>> from pathlib import Path
    >>> from ragembed import EmbedderConfig
    >>> from ragembed.evaluation import evaluate, read_sts
    >>> pairs = ["5\thot tea\thot tea with milk", "2\ta bird\tbirds and tea", "0\ta wing\thot tea"]
    >>> _ = Path("pairs.tsv").write_text("\n".join(["score\tsentence1\tsentence2", *pairs]))
    >>> config = EmbedderConfig.from_preset("re", query_fit="shared")
    >>> for config, measured in evaluate(read_sts(Path("pairs.tsv")), [config]):
    ...     print(config.extractor, measured.headline, measured.scores["pairs"])
    re spearman 3
    """
    queries = task.queries if not task.symmetric or any(config.query_fit == "separate" for config in configs) else ()
    encoded = encode_each(configs, task.documents, queries, device, progress, task.name)
    progress = progress or SilentEvaluation()
    runs = task.runs if isinstance(task, ClusteringTask) else 1
    started = False
    try:
        for config, vectors in zip(configs, encoded, strict=True):
            if not started:
                unit = "k-means runs" if isinstance(task, ClusteringTask) else "configurations"
                progress.start(f"{task.name}: measuring", unit, len(configs) * runs)
                started = True
            yield config, _measure(task, vectors, config.query_fit, progress.advance)
    finally:
        if started:
            progress.finish()


def _measure(task: Task, vectors: Encoded, query_fit: str, advance: Callable[[int], None]) -> Measured:
    """Return the scores of a configuration, or the reason why its measure is not defined."""
    try:
        if isinstance(task, ClusteringTask):
            return task.measure(vectors, query_fit, advance)
        measured = task.measure(vectors, query_fit)
    except ConfigError as error:
        # The readers of collections have checked everything else.
        measured = Measured.without_score(task.headline, str(error))
    advance(1)
    return measured


# Readers check collections for everything that a measure would reject after all texts are encoded.


def read_sts(path: Path) -> Task:
    r"""Read a task for semantic textual similarity.

    Parameters
    ----------
    path : pathlib.Path
        TSV file with the columns ``score``, ``sentence1`` and ``sentence2``, with at least two different scores. Or the
        folder of STS-B or SICK with the files of SentEval; their test split is read.

    Returns
    -------
    Task
        The task; its scores are ``spearman``, ``pearson`` (per cent) and ``pairs`` (a count).

    Raises
    ------
    ConfigError
        If the file cannot be read, a line is not as expected, or all scores are equal.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_sts
    >>> file = Path("pairs.tsv")
    >>> _ = file.write_text("score\tsentence1\tsentence2\n5\ta\tb\n0\tc\td\n")
    >>> read_sts(file).queries
    ('b', 'd')
    """
    name, pairs = read_scored_pairs(path) if path.is_dir() else (path.stem, read_sentence_pairs(path))
    _require_different(path, pairs.scores, "scores")
    return StsTask(name, pairs)


def read_clustering(path: Path, runs: int = 10) -> Task:
    r"""Read a clustering task.

    Parameters
    ----------
    path : pathlib.Path
        TSV file with the columns ``label`` and ``text``, with at least two different labels.
    runs : int
        Number of k-means runs to average.

    Returns
    -------
    Task
        The task; its scores are ``accuracy``, ``run_accuracies`` (per cent) and ``runs`` (a count).

    Raises
    ------
    ConfigError
        If the file cannot be read, a line is not as expected, or all labels are equal.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_clustering
    >>> file = Path("topics.tsv")
    >>> _ = file.write_text("label\ttext\ntea\thot tea\nwing\tair over a wing\n")
    >>> read_clustering(file, runs=5).documents
    ('hot tea', 'air over a wing')
    """
    labelled = read_labelled_texts(path)
    _require_different(path, labelled.labels, "labels")
    return ClusteringTask(path.stem, labelled, runs)


def read_classification(
    path: Path, folds: int = 10, classifier: str = "logistic", nested: bool = False, relatedness: bool = False
) -> Task:
    r"""Read a classification task.

    Parameters
    ----------
    path : pathlib.Path
        One of these:

        - TSV file with the columns ``label`` and ``text``, or ``label``, ``sentence1`` and ``sentence2``;
        - TSV file with the columns ``score``, ``sentence1`` and ``sentence2``, to predict the similarity of pairs;
        - any of these with a first column ``split``, which is ``train``, ``dev`` or ``test``;
        - file of a probing task of SentEval: ``tr``, ``va`` or ``te``, the label and the text, without a header;
        - folder with the files of SST, TREC, MRPC, SICK, STS-B, MR, CR, MPQA or SUBJ as in SentEval, or of SciCite.
    folds : int
        Number of folds of a cross-validation, 2 or more. Each label needs at least as many texts; sentence pairs with
        scores need at least as many pairs.
    classifier : {"logistic", "mlp"}
        The classifier of :func:`classification_accuracy` and :func:`split_accuracy`.
    nested : bool
        Choose the regularisation in nested cross-validation; with given splits, it is always chosen.
    relatedness : bool
        Predict the relatedness scores of SICK instead of its entailment labels.

    Returns
    -------
    Task
        The task. Its scores are in per cent, without ``strength``, ``runs``, ``train``, ``test`` and ``pairs``:

        - for labels, ``accuracy``, ``run_accuracies`` and ``runs`` (folds);
        - for labels and splits, ``accuracy`` (test), ``dev_accuracy``, ``strength`` (regularisation), ``train`` and
          ``test`` (counts);
        - for scores, ``spearman``, ``pearson``, ``pairs`` (a count; of the test split) and, without splits, ``runs``.

    Raises
    ------
    ConfigError
        If a file cannot be read, a line is not as expected, all labels or scores are equal, a label is too rare, or a
        split is empty.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_classification
    >>> file = Path("topics.tsv")
    >>> _ = file.write_text("label\ttext\ntea\thot tea\nwing\ta wing\ntea\ttea with milk\nwing\tair\n")
    >>> read_classification(file, folds=2).name
    'topics'
    """
    at_least(folds, 2, "the number of folds")
    name, found = read_examples(path, relatedness)
    if found.splits:
        _check_splits(path, found, folds)
    if isinstance(found, SentencePairs):
        if classifier != "logistic":
            raise ConfigError(f"{path} has scores, which no {classifier!r} predicts: leave out the classifier")
        _require_different(path, found.scores, "scores")
        if not found.splits and len(found.scores) < folds:
            raise ConfigError(f"{path} has {len(found.scores)} pairs, fewer than the {folds} folds: use fewer folds")
        return SimilarityTask(name, found, folds)
    _require_different(path, found.labels, "labels")
    if not found.splits:
        _require_frequent(path, found.labels, folds, nested)
    return ClassificationTask(name, found, folds, classifier, nested)


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


def read_isotropy(path: Path, positive_score: float = POSITIVE_SCORE) -> Task:
    r"""Read an isotropy task.

    Parameters
    ----------
    path : pathlib.Path
        TSV file of sentence pairs or labelled texts, BEIR folder, or text file with one text per line. There must be at
        least two different texts.
    positive_score : float
        Score from which sentence pairs are positive and count for the alignment. The default, 5, is the highest score
        of semantic textual similarity; other authors use 4.

    Returns
    -------
    Task
        The task; its scores are ``iso_score``, ``uniformity``, ``vectors`` (a count) and, for sentence pairs,
        ``alignment``, ``positive_score`` and ``positive_pairs`` (a count).

    Raises
    ------
    ConfigError
        If a file cannot be read, a line is not as expected, all texts are equal, or no pair is positive.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.evaluation import read_isotropy
    >>> file = Path("texts.txt")
    >>> _ = file.write_text("tea with hot water\nair over the wing\n")
    >>> read_isotropy(file).documents
    ('tea with hot water', 'air over the wing')
    """
    if path.is_dir():
        return IsotropyTask(path.absolute().name, tuple(read_beir(path).documents.values()))
    header = _header(path)
    if header == "score":
        pairs = read_sentence_pairs(path)
        if max(pairs.scores, default=-math.inf) < positive_score:
            raise ConfigError(
                f"{path} has no pair with a score of {positive_score:g} or more, which alignment needs: choose a lower "
                "positive score, or give the sentences as a text file, one per line"
            )
        return IsotropyTask(path.stem, (*pairs.sentences1, *pairs.sentences2), pairs, positive_score)
    texts = read_labelled_texts(path).texts if header == "label" else tuple(Corpus(path))
    _require_different(path, texts, "texts")
    return IsotropyTask(path.stem, texts)


READERS: Mapping[str, Callable[[Path], Task]] = {
    "sts": read_sts,
    "clustering": read_clustering,
    "classification": read_classification,
    "isotropy": read_isotropy,
    "retrieval": read_retrieval,
}
"""The reader of each task, by the name of the task."""


def _halves(encoded: Encoded, half: int, query_fit: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the vectors of the first and of the second texts of pairs."""
    return encoded.documents[:half], encoded.queries if query_fit == "separate" else encoded.documents[half:]


def _check_splits(path: Path, found: LabelledTexts | SentencePairs, folds: int) -> None:
    """Raise unless every split has what the measures need."""
    scored = isinstance(found, SentencePairs)
    values: Sequence[Any] = found.scores if isinstance(found, SentencePairs) else found.labels
    by_split = {
        split: [value for value, each in zip(values, found.splits, strict=True) if each == split] for split in SPLITS
    }
    for split in SPLITS if scored else ("train", "test"):
        if not by_split[split]:
            raise ConfigError(f"{path} has nothing in the split {split!r}: expected at least one line")
        if scored or split == "train":
            _require_different(path, by_split[split], f"{'scores' if scored else 'labels'} in the split {split!r}")
    if scored:
        outside = [value for value in values if not 0 <= value <= 5]
        if outside:
            raise ConfigError(f"{path} has the score {outside[0]:g}: with splits, scores are 0 to 5")
    elif not by_split["dev"]:
        _require_frequent(path, by_split["train"], folds, nested=False)


def _require_frequent(path: Path, labels: Sequence[str], folds: int, nested: bool) -> None:
    """Raise unless each label is in every fold; with ``nested``, also in every fold of a training part."""
    rare, count = min(Counter(labels).items(), key=lambda item: item[1])
    inner = count - -(-count // folds)
    if count < folds or (nested and inner < folds):
        part = f", {inner} in the training part of a fold" if count >= folds else ""
        raise ConfigError(
            f"{path}: the label {rare!r} has {count} texts{part}, fewer than the {folds} folds: remove the label or "
            "use fewer folds"
        )


def _require_different(path: Path, values: Sequence[Any], name: str) -> None:
    """Raise unless ``values`` has at least two different values."""
    if len(set(values)) < 2:
        found = f"all {len(values)} {name} are {str(values[0])[:80]!r}" if values else f"it has no {name}"
        raise ConfigError(f"{path}: {found}: expected at least 2 different {name}")


def _header(path: Path) -> str:
    """Return the first field of the first line of a TSV file."""
    try:
        with path.open("rb") as lines:
            return lines.readline(4096).removeprefix(b"\xef\xbb\xbf").split(b"\t")[0].decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
