"""Rank documents for judged queries with the search of a store: a temporary store, or an existing one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from ragembed.corpus import ItemReservoir, blocks
from ragembed.documents.model import Chunk
from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.encoder import VectorEncoder
from ragembed.errors import ConfigError
from ragembed.evaluation.judgements import JudgedQueries, RetrievalCollection, require_known
from ragembed.indexes.collection import Collection
from ragembed.indexes.faiss_index.records import FLAT
from ragembed.indexes.lexical.analyzer import ENGLISH, NO_STEMMER, stemmer
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.pipeline import Mode
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.languages import main_language
from ragembed.progress import Progress, SilentProgress
from ragembed.types import Floats

Rankings = dict[str, list[tuple[str, float]]]
"""By the id of a query, the ids of the results with their scores, best first."""

DEPTH = 100
"""Number of chunks to retrieve for each query, enough for recall@100."""

_QUERIES = 64
_SAMPLED = 200
"""Number of texts by which the language is recognised."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How to search a store; ``fusion`` applies to the mode ``"hybrid"``.

    ``language`` is that of a temporary store; None recognises it.
    """

    mode: Mode = "hybrid"
    fusion: Fusion = field(default_factory=Fusion)
    language: str | None = None


@dataclass(frozen=True, slots=True)
class StoreJudgements:
    """Judgements with ids of chunks in a store, or, for the queries ``by_file``, with names of files."""

    relevance: Mapping[str, Mapping[str, int]]
    by_file: frozenset[str]


def rank(
    collection: RetrievalCollection,
    embedder: Embedder | None,
    searches: Sequence[SearchSettings],
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> list[Rankings]:
    """Return the rankings of each of ``searches``, up to ``depth`` documents, in a temporary store of the collection.

    Each document is a chunk with a title, as if it came from a file.
    """
    if embedder is None and any(search.mode != "lexical" for search in searches):
        raise ConfigError("no embedder given for dense or hybrid search: pass an embedder, or use lexical search only")
    names = list(collection.documents)
    parts = map(collection.parts, names)
    records = [ChunkRecord(str(row), Chunk(text, title=title)) for row, (title, text) in enumerate(parts)]
    texts = [record.chunk.embedded_text for record in records]
    vectors = (
        np.ones((len(texts), 1), np.float32)
        if embedder is None
        else _fit(embedder, texts, progress or SilentProgress())
    )
    with (
        tempfile.TemporaryDirectory(prefix="ragembed-eval-") as folder,
        Store.create(
            Path(folder, "store"),
            embedder or NoEncoder(),
            index=FLAT,
            language=searches[0].language or _language(texts),
        ) as store,
    ):
        with store.writer() as writer:
            writer.stage_vectors(texts, vectors)
            writer.commit(chunks=records)
            if any(search.mode == "hybrid" for search in searches):
                writer.refresh_index()
        named: Callable[[str, Hit], str] = lambda _, hit: names[int(hit.id)]  # noqa: E731  a lambda with a type
        return [_rankings(store, collection.queries, search, depth, named) for search in searches]


def _language(texts: Sequence[str]) -> str:
    """Return the language that most of ``texts`` are in, or that of no stems if Snowball does not know it."""
    language = main_language(texts[:: max(1, len(texts) // _SAMPLED)]) or ENGLISH
    try:
        stemmer(language)
    except ConfigError:
        return NO_STEMMER
    return language


def rank_in_store(
    store: Store | Collection,
    queries: Mapping[str, str],
    judged: StoreJudgements,
    search: SearchSettings,
    depth: int = DEPTH,
) -> Rankings:
    """Return the results of ``search`` in ``store`` for each of ``queries``.

    For queries in ``judged.by_file``, results are the files of the best ``depth`` chunks, each with the rank and score
    of its best chunk. For other queries, results are these chunks. A chunk without a file is ranked by its own id.
    """

    def named(query: str, hit: Hit) -> str:
        return _file_name(hit.store, hit.source) if query in judged.by_file and hit.source is not None else hit.id

    return _rankings(store, queries, search, depth, named)


def _file_name(store: str | None, source: str) -> str:
    """Return a name for a file of a store, or of one of the stores of a collection."""
    return source if store is None else f"{store}:{source}"


def in_store(store: Store | Collection, judged: JudgedQueries, origin: Path) -> StoreJudgements:
    """Map the judgements, read from the file ``origin``, to the files and chunks of ``store``.

    A judgement names a chunk by its id, or a file by its name in the store or its path from the working directory.
    """
    chunks = frozenset(store.ids())
    stores: dict[str | None, Store] = {None: store} if isinstance(store, Store) else dict(store.stores.items())
    files = {(name, source) for name, opened in stores.items() for source in opened.sources()}
    places: dict[str, str] = {}
    for name in judged.documents:
        own = [(of, name) for of in stores] + [
            (of, source_path(Path(name), opened.path)) for of, opened in stores.items()
        ]
        found_in = [place for place in own if place in files]
        if found_in and (name not in chunks or found_in[0][1] == name):
            places[name] = _file_name(*found_in[0])
        elif name in chunks:
            places[name] = name
    shown = f"the store {store.path}" if isinstance(store, Store) else f"the stores {', '.join(store.stores)}"
    require_known(origin, judged.documents, places, shown)
    relevance: dict[str, dict[str, int]] = {}
    by_file = set()
    for query, gains in judged.relevance.items():
        are_files = {name not in chunks for name in gains}
        if len(are_files) > 1:
            raise ConfigError(f"{origin} names both files and chunks for query {query!r}: expected only one of them")
        relevance[query] = {places[name]: gain for name, gain in gains.items()}
        if len(relevance[query]) < len(gains):
            raise ConfigError(f"{origin} names a file by two paths for query {query!r}: remove one of them")
        if True in are_files:
            by_file.add(query)
    return StoreJudgements(relevance, frozenset(by_file))


def _rankings(
    store: Store | Collection,
    queries: Mapping[str, str],
    search: SearchSettings,
    depth: int,
    named: Callable[[str, Hit], str],
) -> Rankings:
    rankings: Rankings = {}
    for block in blocks(queries.items(), _QUERIES):
        texts = [text for _, text in block]
        answers = store.search_many(texts, depth, search.mode, fusion=search.fusion)
        for (query, _), hits in zip(block, answers, strict=True):
            best: dict[str, float] = {}
            for hit in hits:
                best.setdefault(named(query, hit), hit.score)
            rankings[query] = list(best.items())
    return rankings


def _fit(embedder: Embedder, texts: Sequence[str], progress: Progress) -> Floats:
    """Fit ``embedder`` on ``texts`` and return their raw vectors; ``fit`` would encode the texts a second time."""
    embedder.fit_extractor(texts)
    progress.start("embedding", "documents", len(texts))
    raw = embedder.raw_documents(texts, progress.advance)
    progress.finish()
    sample = ItemReservoir[int](FIT_LIMIT, embedder.config.seed)
    for _ in sample.watch(range(len(texts))):
        pass
    embedder.fit_chain(raw[sample.items], [texts[row] for row in sample.items])
    return raw


class NoEncoder(VectorEncoder):
    """Placeholder for an embedder in a store with lexical search only, or with vectors from elsewhere."""

    fingerprint = raw_fingerprint = "0" * 32

    @override
    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Return a one-dimensional vector of 1 for each text."""
        return self.encode_queries(texts)

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return ``raw`` unchanged."""
        return raw

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return a one-dimensional vector of 1 for each text."""
        return np.ones((len(texts), 1), dtype=np.float32)

    def describe(self) -> Mapping[str, Any]:
        """Return a description for the store's status."""
        return {"kind": "words alone", "model": "none"}

    @override
    def save(self, folder: str) -> None:
        """Do nothing: there is no state to save."""
