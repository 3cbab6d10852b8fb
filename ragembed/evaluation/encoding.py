"""Encode the texts of a task with several configurations, which share forward passes of the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.config.settings import EmbedderConfig
from ragembed.corpus import Corpus, ItemReservoir, draw_pseudo_queries
from ragembed.embedder import FIT_LIMIT, Embedder, encode_raw, fit_extractors
from ragembed.errors import ConfigError
from ragembed.extractors.protocol import Side
from ragembed.extractors.sharing import passes
from ragembed.postprocess import TwoSidedChain
from ragembed.progress import Progress, SilentProgress, phase
from ragembed.types import Floats

_CORPORA = ("weighting_corpus", "avg_corpus", "postprocess_corpus")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Embeddings of a task's documents and queries from one configuration, float32, shape ``(n, d)``.

    With a separate query fit, the second texts of pairs are queries; with a shared one, they are documents.
    """

    documents: Floats
    queries: Floats
    query_fit: str = "shared"

    def halves(self, half: int) -> tuple[Floats, Floats]:
        """Return the vectors of the first and of the second texts of ``half`` pairs."""
        separate = self.query_fit == "separate"
        return self.documents[:half], self.queries if separate else self.documents[half:]


def encode_each(
    configs: Sequence[EmbedderConfig],
    documents: Sequence[str],
    queries: Sequence[str],
    device: str | None = None,
    progress: Progress | None = None,
    name: str = "texts",
) -> Iterator[Encoded]:
    """Fit each configuration on ``documents`` and yield its embeddings of ``documents`` and ``queries``.

    The results equal those of ``Embedder(config, device=device).fit(documents)``, except that queries are encoded with
    the dtype of documents, because there are many of them. Errors in configurations and corpora are raised before
    anything is encoded. ``progress`` gets the phases of fitting and encoding, which start with ``name``; they are
    finished before the first result.
    """
    if not configs:
        raise ConfigError("no configuration to evaluate: expected at least one")
    raw = RawVectors(configs, documents, device, progress or SilentProgress(), name)
    document_vectors, query_vectors = raw.of(documents, "documents"), raw.of(queries, "pseudo-queries")
    for config in configs:
        raw.prepare(config, documents)
    for config in configs:
        key = raw_part(config)
        chain = raw.chain(config, document_vectors[key])
        encoded = chain.documents.transform(document_vectors[key]), chain.queries.transform(query_vectors[key])
        yield Encoded(*encoded, config.query_fit)


class RawVectors:
    """Raw vectors of several configurations; configurations that differ only in post-processing share them.

    Token weights and static vectors are fitted on ``documents`` immediately.
    """

    def __init__(
        self,
        configs: Sequence[EmbedderConfig],
        documents: Sequence[str],
        device: str | None,
        progress: Progress,
        name: str,
    ) -> None:
        self._progress, self._name = progress, name
        sizes = _corpus_sizes(configs)
        fitted_on = {corpus for config in configs for corpus in (config.weighting_corpus, config.avg_corpus) if corpus}
        self._keys = list(dict.fromkeys(raw_part(config) for config in configs))
        self._embedders = [Embedder(key, device=device) for key in self._keys]
        total = len(documents) + sum(sizes[corpus] for corpus in fitted_on)
        with phase(self._progress, f"{name}: fitting", "texts", total):
            fit_extractors(self._embedders, documents, self._progress.advance)
        self._samples: dict[tuple[str | None, int], tuple[list[int], list[str]]] = {}
        self._fitted_on: dict[tuple[str, int], dict[EmbedderConfig, Floats]] = {}
        self._pseudo_queries: dict[tuple[str | None, int, int], dict[EmbedderConfig, Floats]] = {}

    def of(self, texts: Sequence[str], side: Side) -> dict[EmbedderConfig, Floats]:
        """Return the raw vectors of ``texts`` by :func:`raw_part` of the configurations."""
        total = len(texts) * passes([embedder.extractor for embedder in self._embedders])
        with phase(self._progress, f"{self._name}: encoding", "texts", total):
            vectors = encode_raw(self._embedders, texts, side, self._progress.advance)
        return dict(zip(self._keys, vectors, strict=True))

    def prepare(self, config: EmbedderConfig, documents: Sequence[str]) -> None:
        """Encode the texts that the post-processors of ``config`` are fitted on, apart from ``documents``."""
        corpus, seed = config.postprocess_corpus, config.seed
        if (corpus, seed) not in self._samples:
            self._samples[corpus, seed] = _sample(documents if corpus is None else Corpus(Path(corpus)), seed)
        _, texts = self._samples[corpus, seed]
        if corpus is not None and (corpus, seed) not in self._fitted_on:
            self._fitted_on[corpus, seed] = self.of(texts, "documents")
        drawn = (corpus, config.pseudo_queries, seed)
        if config.query_fit == "separate" and drawn not in self._pseudo_queries:
            spans = draw_pseudo_queries(texts, config.pseudo_queries, seed)
            self._pseudo_queries[drawn] = self.of(spans, "pseudo-queries")

    def chain(self, config: EmbedderConfig, stored: Floats) -> TwoSidedChain:
        """Return the fitted post-processors of ``config``; ``stored`` are those of the documents."""
        key, corpus, seed = raw_part(config), config.postprocess_corpus, config.seed
        rows, _ = self._samples[corpus, seed]
        fit_on = stored[rows] if corpus is None else self._fitted_on[corpus, seed][key]
        if config.query_fit == "shared":
            return TwoSidedChain.fit(config.postprocess, fit_on, None)
        spans_raw = self._pseudo_queries[corpus, config.pseudo_queries, seed][key]
        return TwoSidedChain.fit(config.postprocess, fit_on, spans_raw if len(spans_raw) else fit_on)


def _corpus_sizes(configs: Sequence[EmbedderConfig]) -> dict[str, int]:
    """Return the number of texts in every corpus; this reports errors before anything is encoded."""
    named = dict.fromkeys(getattr(config, field) for config in configs for field in _CORPORA)
    sizes = {corpus: sum(1 for _ in Corpus(Path(corpus))) for corpus in named if corpus is not None}
    for corpus, size in sizes.items():
        if not size:
            raise ConfigError(f"the corpus {corpus} is empty: expected at least one line with text")
    return sizes


def raw_part(config: EmbedderConfig) -> EmbedderConfig:
    """Return ``config`` reduced to the settings that determine raw vectors."""
    return config.replace(postprocess=(), query_fit="shared", postprocess_corpus=None, pseudo_queries=1)


def _sample(texts: Iterable[str], seed: int) -> tuple[list[int], list[str]]:
    """Return the rows and texts to fit post-processors on: all, or the same sample that an embedder draws."""
    sample = ItemReservoir[tuple[int, str]](FIT_LIMIT, seed)
    deque(sample.watch(enumerate(texts)), maxlen=0)
    return [row for row, _ in sample.items], [text for _, text in sample.items]
