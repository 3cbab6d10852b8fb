"""Encode the texts of a task with several configurations, which share forward passes of the model."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.config.settings import EmbedderConfig
from ragembed.corpus import Corpus
from ragembed.embedder import FIT_LIMIT, Embedder, encode_raw, fit_extractors
from ragembed.errors import ConfigError
from ragembed.extractors.protocol import Side
from ragembed.postprocess import TwoSidedChain
from ragembed.pseudo_queries import draw_pseudo_queries
from ragembed.reservoir import ItemReservoir
from ragembed.types import Floats

_CORPORA = ("weighting_corpus", "avg_corpus", "postprocess_corpus")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Embeddings of a task's documents and queries from one configuration, float32, shape ``(n, d)``."""

    documents: Floats
    queries: Floats


def encode_each(
    configs: Sequence[EmbedderConfig], documents: Sequence[str], queries: Sequence[str], device: str | None = None
) -> Iterator[Encoded]:
    """Fit each configuration on ``documents`` and yield its embeddings of ``documents`` and ``queries``.

    The results equal those of ``Embedder(config, device=device).fit(documents)``, except that queries are encoded with
    the dtype of documents, because there are many of them. Post-processors are fitted on the raw vectors of the
    documents and, with ``query_fit="separate"``, of pseudo-queries; if a configuration has a ``postprocess_corpus``,
    on that instead.

    Raises
    ------
    ConfigError
        If there is no configuration, if a configuration does not fit its model, or if a corpus cannot be read or is
        empty. It is raised before anything is encoded.
    """
    if not configs:
        raise ConfigError("no configuration to evaluate: expected at least one")
    _check_corpora(configs)
    raw = RawVectors(configs, documents, device)
    document_vectors, query_vectors = raw.of(documents, "documents"), raw.of(queries, "pseudo-queries")
    for config in configs:
        key = raw_part(config)
        chain = raw.chain(config, documents, document_vectors[key])
        yield Encoded(chain.documents.transform(document_vectors[key]), chain.queries.transform(query_vectors[key]))


class RawVectors:
    """Raw vectors of several configurations; configurations that differ only in post-processing share them.

    Parameters
    ----------
    configs
        The configurations. Their token weights and static vectors are fitted on ``documents`` immediately.
    documents
        The texts of a corpus.
    device
        The device, as for :class:`ragembed.Embedder`.
    """

    def __init__(self, configs: Sequence[EmbedderConfig], documents: Sequence[str], device: str | None) -> None:
        self._keys = list(dict.fromkeys(raw_part(config) for config in configs))
        self._embedders = [Embedder(key, device=device) for key in self._keys]
        fit_extractors(self._embedders, documents)
        self._samples: dict[tuple[str | None, int], tuple[list[int], list[str]]] = {}
        self._fitted_on: dict[tuple[str, int], dict[EmbedderConfig, Floats]] = {}
        self._pseudo_queries: dict[tuple[str | None, int, int], dict[EmbedderConfig, Floats]] = {}

    def of(self, texts: Sequence[str], side: Side) -> dict[EmbedderConfig, Floats]:
        """Return the raw vectors of ``texts`` by :func:`raw_part` of the configurations."""
        return dict(zip(self._keys, encode_raw(self._embedders, texts, side), strict=True))

    def chain(self, config: EmbedderConfig, documents: Sequence[str], stored: Floats) -> TwoSidedChain:
        """Return the fitted post-processors of ``config``; ``stored`` are the raw vectors of ``documents``."""
        key, corpus, seed = raw_part(config), config.postprocess_corpus, config.seed
        if (corpus, seed) not in self._samples:
            self._samples[corpus, seed] = _sample(documents if corpus is None else Corpus(Path(corpus)), seed)
        rows, texts = self._samples[corpus, seed]
        if corpus is None:
            fit_on = stored[rows]
        else:
            if (corpus, seed) not in self._fitted_on:
                self._fitted_on[corpus, seed] = self.of(texts, "documents")
            fit_on = self._fitted_on[corpus, seed][key]
        if config.query_fit == "shared":
            return TwoSidedChain.fit(config.postprocess, fit_on, None)
        drawn = (corpus, config.pseudo_queries, seed)
        if drawn not in self._pseudo_queries:
            spans = draw_pseudo_queries(texts, config.pseudo_queries, seed)
            self._pseudo_queries[drawn] = self.of(spans, "pseudo-queries")
        spans_raw = self._pseudo_queries[drawn][key]
        return TwoSidedChain.fit(config.postprocess, fit_on, spans_raw if len(spans_raw) else fit_on)


def _check_corpora(configs: Sequence[EmbedderConfig]) -> None:
    """Read every corpus once, so that errors are reported before anything is encoded."""
    corpora = dict.fromkeys(getattr(config, field) for config in configs for field in _CORPORA)
    for corpus in corpora:
        if corpus is not None and not sum(1 for _ in Corpus(Path(corpus))):
            raise ConfigError(f"the corpus {corpus} is empty: expected at least one line with text")


def raw_part(config: EmbedderConfig) -> EmbedderConfig:
    """Return ``config`` reduced to the settings that determine raw vectors."""
    return config.replace(postprocess=(), query_fit="shared", postprocess_corpus=None, pseudo_queries=1)


def _sample(texts: Iterable[str], seed: int) -> tuple[list[int], list[str]]:
    """Return the rows and texts to fit post-processors on: all, or the same sample that an embedder draws."""
    sample = ItemReservoir[tuple[int, str]](FIT_LIMIT, seed)
    deque(sample.watch(enumerate(texts)), maxlen=0)
    return [row for row, _ in sample.items], [text for _, text in sample.items]
