"""Rankings of judged questions by the search of a store: a store for the purpose, or one that is there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ragembed.corpus import blocks
from ragembed.documents.model import Chunk
from ragembed.embedder import FIT_LIMIT, Embedder
from ragembed.errors import ConfigError
from ragembed.evaluation.datasets import RetrievalCollection
from ragembed.evaluation.judgements import JudgedQueries, require_known
from ragembed.indexes.ann.specs import FLAT
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.search import Mode
from ragembed.indexes.storage.layout import source_path
from ragembed.indexes.store import Store
from ragembed.indexes.types import ChunkRecord, Hit, Progress, SilentProgress
from ragembed.reservoir import ItemReservoir
from ragembed.types import Floats

Rankings = dict[str, list[tuple[str, float]]]
"""By the id of a question, what was found with its score, best first."""

DEPTH = 100
"""Chunks that are asked for, for each question: more than a reader looks at, and enough for recall@100."""

_QUERIES = 64


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """A way of searching a store; ``fusion`` is for ``"hybrid"``."""

    mode: Mode = "hybrid"
    fusion: Fusion = field(default_factory=Fusion)


@dataclass(frozen=True, slots=True)
class StoreJudgements:
    """Judgements by what a store calls its files and chunks.

    ``by_file`` are the questions to which files are relevant, to the others chunks are.
    """

    relevance: Mapping[str, Mapping[str, int]]
    by_file: frozenset[str]


def rank(
    collection: RetrievalCollection,
    embedder: Embedder | None,
    searches: Sequence[SearchSettings],
    depth: int = DEPTH,
    progress: Progress | None = None,
) -> list[Rankings]:
    """Return what each of ``searches`` finds in a store of the collection, which is deleted afterwards.

    A document is a chunk with a title, as it would be of a file; the index is exact. Dense search comes close to
    :class:`ragembed.evaluation.tasks.RetrievalTask`: a store keeps raw vectors as float16, does not repeat a title with
    which a text begins, and has a line break less between the two, which pseudo-queries are drawn by.

    Parameters
    ----------
    collection
        Documents and questions.
    embedder
        One that is not fitted yet, and is fitted on the documents; None where all searches are lexical.
    searches
        Ways of searching, all of one store.
    depth
        Documents in a ranking, at most.
    progress
        Told of documents as they are encoded.

    Raises
    ------
    ConfigError
        Where there is no embedder for a search that is not lexical.
    """
    if embedder is None and any(search.mode != "lexical" for search in searches):
        raise ConfigError("no embedder for a search by meaning: expected one, or lexical search alone")
    names = list(collection.documents)
    records = [_record(row, *collection.parts(name)) for row, name in enumerate(names)]
    texts = [record.chunk.embedded_text for record in records]
    vectors = (
        np.ones((len(texts), 1), np.float32)
        if embedder is None
        else _fit(embedder, texts, progress or SilentProgress())
    )
    with (
        tempfile.TemporaryDirectory(prefix="ragembed-eval-") as folder,
        Store.create(Path(folder, "store"), embedder or NoEncoder(), index=FLAT) as store,
    ):
        with store.writer() as writer:
            writer.stage_vectors(texts, vectors)
            writer.commit(chunks=records)
        named: Callable[[str, Hit], str] = lambda _, hit: names[int(hit.id)]  # noqa: E731  typed
        return [_rankings(store, collection.queries, search, depth, named) for search in searches]


def rank_in_store(
    store: Store, queries: Mapping[str, str], judged: StoreJudgements, search: SearchSettings, depth: int = DEPTH
) -> Rankings:
    """Return what ``search`` finds in ``store`` for each of ``queries``.

    For questions of ``judged.by_file``, the files of the best ``depth`` chunks, each with the score of its best one
    and in its place; for the others, these chunks. A chunk of no file stands for itself.
    """

    def named(query: str, hit: Hit) -> str:
        return hit.source if query in judged.by_file and hit.source is not None else hit.id

    return _rankings(store, queries, search, depth, named)


def in_store(store: Store, judged: JudgedQueries, origin: Path) -> StoreJudgements:
    """Find what the judgements, read from the file ``origin``, name in ``store``.

    An id is that of a chunk, the name of a file in the store, or the path of a file from the working directory, as
    the first of these that there is. Raises :class:`ConfigError` listing what is none of them, and where a question
    names files and chunks, or a file twice.
    """
    chunks, files = frozenset(store.ids()), store.sources()
    places: dict[str, str] = {}
    for name in judged.documents:
        for place in (name, source_path(Path(name), store.path)):
            if place in files or (place == name and name in chunks):
                places[name] = place
                break
    require_known(origin, judged.documents, places, f"the store {store.path}")
    found: dict[str, dict[str, int]] = {}
    by_file = set()
    for query, gains in judged.relevance.items():
        are_files = {name not in chunks for name in gains}
        if len(are_files) > 1:
            raise ConfigError(f"{origin} names files and chunks for query {query!r}: expected one of them")
        found[query] = {places[name]: gain for name, gain in gains.items()}
        if len(found[query]) < len(gains):
            raise ConfigError(f"{origin} names a file twice, by two paths, for query {query!r}")
        if True in are_files:
            by_file.add(query)
    return StoreJudgements(found, frozenset(by_file))


def _rankings(
    store: Store, queries: Mapping[str, str], search: SearchSettings, depth: int, named: Callable[[str, Hit], str]
) -> Rankings:
    rankings: Rankings = {}
    for block in blocks(queries.items(), _QUERIES):
        texts = [text for _, text in block]
        found = store.search_many(texts, depth, search.mode, fusion=search.fusion)
        for (query, _), hits in zip(block, found, strict=True):
            best: dict[str, float] = {}
            for hit in hits:
                best.setdefault(named(query, hit), hit.score)
            rankings[query] = list(best.items())
    return rankings


def _record(row: int, title: str | None, text: str) -> ChunkRecord:
    return ChunkRecord(str(row), Chunk(text, title=title))


def _fit(embedder: Embedder, texts: Sequence[str], progress: Progress) -> Floats:
    """Fit ``embedder`` as its ``fit`` does, and return the raw vectors of ``texts``, encoded once for both."""
    embedder.fit_extractor(texts)
    progress.start("embedding", "documents", len(texts))
    raw = embedder.raw_documents(texts, progress.advance)
    progress.finish()
    sample = ItemReservoir[int](FIT_LIMIT, embedder.config.seed)
    for _ in sample.watch(range(len(texts))):
        pass
    embedder.fit_chain(raw[sample.items], [texts[row] for row in sample.items])
    return raw


class NoEncoder:
    """Stands for an embedder in a store that is searched by words alone, or by vectors from elsewhere."""

    fingerprint = raw_fingerprint = "0" * 32

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:  # noqa: ARG002  the protocol's signature
        """Return ones."""
        return self.encode_queries(texts)

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return ``raw``."""
        return raw

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return ones."""
        return np.ones((len(texts), 1), dtype=np.float32)

    def describe(self) -> Mapping[str, Any]:
        """Return what the store keeps of it."""
        return {"kind": "words alone", "model": "none"}

    def save(self, folder: str) -> None:
        """Nothing has to be kept."""
