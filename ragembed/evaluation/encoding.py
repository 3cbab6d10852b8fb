"""Vectors of a task's texts from several configurations at once, with every forward pass that they share done once."""

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
    """Vectors that one configuration makes of a task's documents and queries, float32, shape ``(n, d)``."""

    documents: Floats
    queries: Floats


def encode_each(
    configs: Sequence[EmbedderConfig], documents: Sequence[str], queries: Sequence[str], device: str | None = None
) -> Iterator[Encoded]:
    """Yield what each configuration, fitted on ``documents``, makes of ``documents`` and ``queries``.

    Equal to ``Embedder(config, device=device).fit(documents)`` and its two ways of encoding, one after the other, but
    that queries, which come in bulk here, are computed in the arithmetic of documents.
    Post-processors are fitted on the document vectors, and for two sides on pseudo-queries; on a configuration's
    ``postprocess_corpus`` where it names one.

    Raises
    ------
    ConfigError
        Where there is no configuration, one asks for what its model does not have, or a corpus that it names cannot be
        read or has no text: before anything is encoded.
    """
    if not configs:
        raise ConfigError("no configuration to evaluate: expected at least one")
    _check_corpora(configs)
    raw = RawVectors(configs, documents, device)
    stored, asked = raw.of(documents, "documents"), raw.of(queries, "pseudo-queries")
    for config in configs:
        key = raw_part(config)
        chain = raw.chain(config, documents, stored[key])
        yield Encoded(chain.documents.transform(stored[key]), chain.queries.transform(asked[key]))


class RawVectors:
    """Raw vectors of several configurations; those that differ in post-processing alone have the same.

    Parameters
    ----------
    configs
        What they are; token weights and static vectors are fitted on ``documents`` at once.
    documents
        The texts of a corpus.
    device
        As :class:`ragembed.Embedder` takes it.
    """

    def __init__(self, configs: Sequence[EmbedderConfig], documents: Sequence[str], device: str | None) -> None:
        self._keys = list(dict.fromkeys(raw_part(config) for config in configs))
        self._embedders = [Embedder(key, device=device) for key in self._keys]
        fit_extractors(self._embedders, documents)
        self._samples: dict[tuple[str | None, int], tuple[list[int], list[str]]] = {}
        self._fitted_on: dict[tuple[str, int], dict[EmbedderConfig, Floats]] = {}
        self._pseudo_queries: dict[tuple[str | None, int, int], dict[EmbedderConfig, Floats]] = {}

    def of(self, texts: Sequence[str], side: Side) -> dict[EmbedderConfig, Floats]:
        """Return the raw vectors of ``texts`` by the part of a configuration that decides them."""
        return dict(zip(self._keys, encode_raw(self._embedders, texts, side), strict=True))

    def chain(self, config: EmbedderConfig, documents: Sequence[str], stored: Floats) -> TwoSidedChain:
        """Return the fitted post-processors of ``config``, given ``stored``, the raw vectors of ``documents``."""
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
    """Read every corpus that is named once, as an error in the last of them would cost all of the encoding."""
    corpora = dict.fromkeys(getattr(config, field) for config in configs for field in _CORPORA)
    for corpus in corpora:
        if corpus is not None and not sum(1 for _ in Corpus(Path(corpus))):
            raise ConfigError(f"the corpus {corpus} has no text: expected at least one line that is not blank")


def raw_part(config: EmbedderConfig) -> EmbedderConfig:
    """Return ``config`` without what comes after the raw vectors."""
    return config.replace(postprocess=(), query_fit="shared", postprocess_corpus=None, pseudo_queries=1)


def _sample(texts: Iterable[str], seed: int) -> tuple[list[int], list[str]]:
    """Return the rows and texts that post-processors are fitted on: all, or the sample that an embedder draws."""
    sample = ItemReservoir[tuple[int, str]](FIT_LIMIT, seed)
    deque(sample.watch(enumerate(texts)), maxlen=0)
    return [row for row, _ in sample.items], [text for _, text in sample.items]
