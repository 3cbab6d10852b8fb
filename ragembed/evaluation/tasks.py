"""Tasks: a test collection, the texts it needs encoded, and what is measured on their vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ragembed.config import EmbedderConfig
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
from ragembed.evaluation.isotropy import alignment, iso_score, uniformity
from ragembed.evaluation.nearest import search
from ragembed.evaluation.retrieval import score_rankings

DEPTH = 1000
"""Documents that a ranking holds, as trec_eval takes them."""
POSITIVE_SCORE = 4.0
"""Sentence pairs judged at least this similar, of 5, are positive pairs (Gao et al. 2021, after Wang & Isola 2020)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a task measures: ``scores`` as JSON values, the ``headline`` one named, and its values by question."""

    scores: Mapping[str, Any]
    headline: str
    by_question: NDArray[np.float64] | None = None


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

    def measure(self, encoded: Encoded, sides: str) -> Measured:
        """Measure the vectors of a configuration with ``sides`` ``"one"`` or ``"two"``."""
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

    def measure(self, encoded: Encoded, sides: str) -> Measured:
        """Return Spearman's and Pearson's correlation in per cent."""
        from ragembed.evaluation.sts import pearson, spearman

        first, second = _both(self.pairs, encoded, sides)
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
    symmetric: bool = True

    documents = StsTask.documents
    queries = StsTask.queries

    def measure(self, encoded: Encoded, sides: str) -> Measured:
        """Return the correlations of predicted with judged similarity, in per cent."""
        from ragembed.evaluation.classification import similarity_classification

        first, second = _both(self.pairs, encoded, sides)
        score = similarity_classification(first, second, self.pairs.scores)
        scores = {"spearman": score.spearman, "pearson": score.pearson, "pairs": len(self.pairs.scores)}
        return Measured(scores, "spearman")


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

    def measure(self, encoded: Encoded, sides: str) -> Measured:  # noqa: ARG002  the protocol's signature
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

    def measure(self, encoded: Encoded, sides: str) -> Measured:  # noqa: ARG002  as above
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

    def measure(self, encoded: Encoded, sides: str) -> Measured:  # noqa: ARG002  as above
        """Return IsoScore, uniformity, and of sentence pairs the alignment of those judged similar."""
        vectors = encoded.documents
        scores: dict[str, Any] = {"iso_score": iso_score(vectors), "uniformity": uniformity(vectors)}
        if self.pairs is not None:
            half = len(self.pairs.scores)
            positive = np.array(self.pairs.scores) >= POSITIVE_SCORE
            if not positive.any():
                raise ConfigError(f"{self.name} has no pair judged {POSITIVE_SCORE} or more: alignment needs one")
            scores["alignment"] = alignment(vectors[:half][positive], vectors[half:][positive])
        return Measured({**scores, "vectors": len(vectors)}, "iso_score")


@dataclass(frozen=True, slots=True)
class RetrievalTask:
    """Exact search among the documents, scored by relevance judgements."""

    collection: RetrievalCollection
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
        return list(self.collection.questions.values())

    def measure(self, encoded: Encoded, sides: str) -> Measured:  # noqa: ARG002  as above
        """Return nDCG@10, recall@100, MRR@10 and MAP in per cent, by cosine."""
        from ragembed.postprocess import unit_rows

        names = list(self.collection.documents)
        _, rows = search(unit_rows(encoded.queries), unit_rows(encoded.documents), DEPTH)
        ranked = ([names[row] for row in ranking] for ranking in rows.tolist())
        score = score_rankings(dict(zip(self.collection.questions, ranked, strict=True)), self.collection.relevance)
        scores = {**score.means(), "queries": len(score.questions)}
        return Measured(scores, "ndcg@10", 100.0 * score.values["ndcg@10"])


def evaluate(
    task: Task, configs: Sequence[EmbedderConfig], device: str | None = None
) -> Iterator[tuple[EmbedderConfig, Measured]]:
    """Yield each configuration with what ``task`` measures of it."""
    queries = task.queries if not task.symmetric or any(config.sides == "two" for config in configs) else ()
    encoded = encode_each(configs, task.documents, queries, device)
    for config, vectors in zip(configs, encoded, strict=True):
        yield config, task.measure(vectors, config.sides)


def read_sts(path: Path) -> Task:
    """Read a table of sentence pairs."""
    return StsTask(path.stem, read_sentence_pairs(path))


def read_clustering(path: Path, runs: int = 10) -> Task:
    """Read a table of labelled texts."""
    return ClusteringTask(path.stem, read_labelled_texts(path), runs)


def read_classification(path: Path, folds: int = 10) -> Task:
    """Read a table of labelled texts, or of sentence pairs, whose similarity is predicted then."""
    if _header(path) == "score":
        return SimilarityTask(path.stem, read_sentence_pairs(path))
    return ClassificationTask(path.stem, read_labelled_texts(path), folds)


def read_retrieval(path: Path) -> Task:
    """Read a BEIR folder."""
    return RetrievalTask(read_beir(path))


def read_isotropy(path: Path) -> Task:
    """Read a table of sentence pairs or of labelled texts, a BEIR folder, or a text file with a text a line."""
    if path.is_dir():
        return IsotropyTask(path.name, tuple(read_beir(path).documents.values()))
    header = _header(path)
    if header == "score":
        pairs = read_sentence_pairs(path)
        return IsotropyTask(path.stem, (*pairs.sentences1, *pairs.sentences2), pairs)
    if header == "label":
        return IsotropyTask(path.stem, read_labelled_texts(path).texts)
    from ragembed.corpus import Corpus

    return IsotropyTask(path.stem, tuple(Corpus(path)))


READERS: Mapping[str, Callable[[Path], Task]] = {
    "sts": read_sts,
    "clustering": read_clustering,
    "classification": read_classification,
    "isotropy": read_isotropy,
    "retrieval": read_retrieval,
}
"""What reads the collection of a task, by the task's name."""


def _both(pairs: SentencePairs, encoded: Encoded, sides: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    half = len(pairs.scores)
    return encoded.documents[:half], encoded.queries if sides == "two" else encoded.documents[half:]


def _header(path: Path) -> str:
    """Return the first field of a table's first line."""
    try:
        with path.open("rb") as lines:
            return lines.readline(4096).removeprefix(b"\xef\xbb\xbf").split(b"\t")[0].decode("utf-8", "replace")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
