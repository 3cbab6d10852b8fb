"""Tasks: a test collection, the texts it needs encoded, and what is measured on their vectors."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

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
from ragembed.evaluation.retrieval import MEASURES, Measure, RetrievalScore, score_rankings
from ragembed.evaluation.runs import Ranking
from ragembed.evaluation.table import row_label

DEPTH = 1000
"""Documents that a ranking holds, as trec_eval takes them."""
HEADLINE = "ndcg@10"
POSITIVE_SCORE = 4.0
"""Sentence pairs judged more similar than this, of 5, are positive pairs (Gao et al. 2021, after Wang & Isola 2020)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a task measures: ``scores`` as JSON values, the ``headline`` one named, and its values by question.

    Of retrieval also ``rankings``, what was found for each question, and the score they come from.
    """

    scores: Mapping[str, Any]
    headline: str
    by_query: NDArray[np.float64] | None = None
    rankings: Mapping[str, Ranking] | None = None
    score: RetrievalScore | None = None


class Task(Protocol):
    """A test collection and its measures."""

    @property
    def name(self) -> str:
        """Name of the collection."""
        ...

    @property
    def symmetric(self) -> bool:
        """Whether all texts are of one kind, so that one side of an embedder serves all."""
        ...

    @property
    def documents(self) -> Sequence[str]:
        """The texts that the embedder is fitted on and encodes as documents."""
        ...

    @property
    def queries(self) -> Sequence[str]:
        """The texts that it encodes as queries."""
        ...

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:
        """Measure the vectors of a configuration with ``query_fit`` ``"shared"`` or ``"separate"``."""
        ...


@dataclass(frozen=True, slots=True)
class StsTask:
    """Semantic textual similarity; with two sides, the second sentences are queries."""

    name: str
    pairs: SentencePairs
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
        """Return Spearman's and Pearson's correlation in per cent."""
        from ragembed.evaluation.sts import pearson, spearman

        first, second = _both(self.pairs, encoded, query_fit)
        scores = {
            "spearman": spearman(first, second, self.pairs.scores),
            "pearson": pearson(first, second, self.pairs.scores),
            "pairs": len(self.pairs.scores),
        }
        return Measured(scores, "spearman")


@dataclass(frozen=True, slots=True)
class SimilarityTask:
    """Similarity of sentence pairs as a classification (Stankevičius & Lukoševičius 2024, section 3.5.3)."""

    name: str
    pairs: SentencePairs
    folds: int = 10
    symmetric: bool = True

    documents = StsTask.documents
    queries = StsTask.queries

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:
        """Return the correlations of predicted with judged similarity, in per cent."""
        from ragembed.evaluation.classification import similarity_classification

        first, second = _both(self.pairs, encoded, query_fit)
        score = similarity_classification(first, second, self.pairs.scores, self.folds)
        counts = {"pairs": len(self.pairs.scores), "runs": self.folds}
        return Measured({"spearman": score.spearman, "pearson": score.pearson, **counts}, "spearman")


@dataclass(frozen=True, slots=True)
class ClusteringTask:
    """Accuracy of k-means."""

    name: str
    labelled: LabelledTexts
    runs: int = 10
    symmetric: bool = True
    queries: Sequence[str] = field(default=(), init=False)

    @property
    def documents(self) -> Sequence[str]:
        """The texts."""
        return self.labelled.texts

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:  # noqa: ARG002  the protocol's signature
        """Return the mean accuracy in per cent, and the runs'."""
        from ragembed.evaluation.clustering import clustering_accuracy

        score = clustering_accuracy(encoded.documents, self.labelled.labels, self.runs)
        scores = {"accuracy": score.accuracy, "runs": len(score.runs), "run_accuracies": list(score.runs)}
        return Measured(scores, "accuracy")


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """Accuracy of logistic regression in cross-validation."""

    name: str
    labelled: LabelledTexts
    folds: int = 10
    symmetric: bool = True
    queries: Sequence[str] = field(default=(), init=False)

    @property
    def documents(self) -> Sequence[str]:
        """The texts."""
        return self.labelled.texts

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:  # noqa: ARG002  as above
        """Return the mean accuracy in per cent, and the folds'."""
        from ragembed.evaluation.classification import classification_accuracy

        score = classification_accuracy(encoded.documents, self.labelled.labels, self.folds)
        scores = {"accuracy": score.accuracy, "runs": len(score.folds), "run_accuracies": list(score.folds)}
        return Measured(scores, "accuracy")


@dataclass(frozen=True, slots=True)
class IsotropyTask:
    """How evenly vectors fill their space; of sentence pairs, also how close positive pairs lie."""

    name: str
    texts: Sequence[str]
    pairs: SentencePairs | None = None
    symmetric: bool = True
    queries: Sequence[str] = field(default=(), init=False)

    @property
    def documents(self) -> Sequence[str]:
        """The texts."""
        return self.texts

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:  # noqa: ARG002  as above
        """Return IsoScore, uniformity, and of sentence pairs the alignment of those judged similar."""
        vectors = encoded.documents
        scores: dict[str, Any] = {"iso_score": iso_score(vectors), "uniformity": uniformity(vectors)}
        if self.pairs is not None:
            half = len(self.pairs.scores)
            positive = np.array(self.pairs.scores) > POSITIVE_SCORE
            scores["alignment"] = alignment(vectors[:half][positive], vectors[half:][positive])
        return Measured({**scores, "vectors": len(vectors)}, "iso_score")


@dataclass(frozen=True, slots=True)
class RetrievalTask:
    """Exact search among the documents, scored by relevance judgements; ``depth`` documents are in a ranking."""

    collection: RetrievalCollection
    measures: Mapping[str, Measure] = field(default_factory=lambda: MEASURES)
    depth: int = DEPTH
    symmetric: bool = False

    @property
    def name(self) -> str:
        """Name of the collection."""
        return self.collection.name

    @property
    def documents(self) -> Sequence[str]:
        """The documents' texts."""
        return list(self.collection.documents.values())

    @property
    def queries(self) -> Sequence[str]:
        """The questions' texts."""
        return list(self.collection.queries.values())

    def measure(self, encoded: Encoded, query_fit: str) -> Measured:  # noqa: ARG002  as above
        """Return the measures in per cent, by cosine."""
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
    """Return what is measured of the ids found for each question, in per cent.

    The headline is nDCG@10, or else the first measure.
    """
    score = score_rankings(rankings, relevance, measures)
    headline = HEADLINE if HEADLINE in measures else next(iter(measures))
    scores = {**score.means(), "queries": len(score.queries)}
    return Measured(scores, headline, 100.0 * score.values[headline], score=score)


def evaluate(
    task: Task, configs: Sequence[EmbedderConfig], device: str | None = None
) -> Iterator[tuple[EmbedderConfig, Measured]]:
    """Yield each configuration with what ``task`` measures of it.

    Raises
    ------
    ConfigError
        As :func:`ragembed.evaluation.encoding.encode_each` does, and where vectors are such that they cannot be
        measured; the message names the collection and the configuration.
    """
    queries = task.queries if not task.symmetric or any(config.query_fit == "separate" for config in configs) else ()
    encoded = encode_each(configs, task.documents, queries, device)
    for config, vectors in zip(configs, encoded, strict=True):
        try:
            measured = task.measure(vectors, config.query_fit)
        except ConfigError as error:
            raise ConfigError(f"{task.name}, {config.extractor}, {row_label(config)}: {error}") from error
        yield config, measured


# Readers refuse what a measure could only refuse when everything is encoded.


def read_sts(path: Path) -> Task:
    """Read a table of sentence pairs; their scores must differ."""
    pairs = read_sentence_pairs(path)
    _different(path, pairs.scores, "scores")
    return StsTask(path.stem, pairs)


def read_clustering(path: Path, runs: int = 10) -> Task:
    """Read a table of labelled texts; their labels must differ."""
    labelled = read_labelled_texts(path)
    _different(path, labelled.labels, "labels")
    return ClusteringTask(path.stem, labelled, runs)


def read_classification(path: Path, folds: int = 10) -> Task:
    """Read a table of labelled texts, or of sentence pairs, whose similarity is predicted then.

    There are two ``folds`` or more, and that many texts of each label, or pairs.
    """
    at_least(folds, 2, "the number of folds")
    if _header(path) == "score":
        pairs = read_sentence_pairs(path)
        _different(path, pairs.scores, "scores")
        if len(pairs.scores) < folds:
            raise ConfigError(f"{path} has {len(pairs.scores)} pairs, fewer than the {folds} folds: take fewer folds")
        return SimilarityTask(path.stem, pairs, folds)
    labelled = read_labelled_texts(path)
    _different(path, labelled.labels, "labels")
    rare, count = min(Counter(labelled.labels).items(), key=lambda item: item[1])
    if count < folds:
        raise ConfigError(
            f"{path} has the label {rare!r} on {count} texts, fewer than the {folds} folds: leave it out, or take "
            "fewer folds"
        )
    return ClassificationTask(path.stem, labelled, folds)


def read_retrieval(path: Path) -> Task:
    """Read a BEIR folder, with the judgements of its split ``test``."""
    return RetrievalTask(dataclasses.replace(read_beir(path), name=path.absolute().name))


def read_isotropy(path: Path) -> Task:
    """Read a table of sentence pairs or of labelled texts, a BEIR folder, or a text file with a text a line.

    The texts must differ, and one sentence pair be a positive one.
    """
    if path.is_dir():
        return IsotropyTask(path.absolute().name, tuple(read_beir(path).documents.values()))
    header = _header(path)
    if header == "score":
        pairs = read_sentence_pairs(path)
        if max(pairs.scores) <= POSITIVE_SCORE:
            raise ConfigError(
                f"{path} has no pair with a score above {POSITIVE_SCORE:g}: alignment needs one; where the scale is "
                "not 0 to 5, give the sentences as a text file, one a line"
            )
        return IsotropyTask(path.stem, (*pairs.sentences1, *pairs.sentences2), pairs)
    texts = read_labelled_texts(path).texts if header == "label" else tuple(Corpus(path))
    _different(path, texts, "texts")
    return IsotropyTask(path.stem, texts)


READERS: Mapping[str, Callable[[Path], Task]] = {
    "sts": read_sts,
    "clustering": read_clustering,
    "classification": read_classification,
    "isotropy": read_isotropy,
    "retrieval": read_retrieval,
}
"""What reads the collection of a task, by the task's name."""


def _both(pairs: SentencePairs, encoded: Encoded, query_fit: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    half = len(pairs.scores)
    return encoded.documents[:half], encoded.queries if query_fit == "separate" else encoded.documents[half:]


def _different(path: Path, values: Sequence[Any], name: str) -> None:
    """Raise where not two of ``values`` differ."""
    if len(set(values)) < 2:
        found = f"all {len(values)} {name} are {str(values[0])[:80]!r}" if values else f"there are no {name}"
        raise ConfigError(f"{path}: {found}: expected at least 2 different ones")


def _header(path: Path) -> str:
    """Return the first field of a table's first line."""
    try:
        with path.open("rb") as lines:
            return lines.readline(4096).removeprefix(b"\xef\xbb\xbf").split(b"\t")[0].decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
