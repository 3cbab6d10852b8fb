"""The contents of a store, or of several stores at once, that every reader may ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

import numpy as np
from typing_extensions import Self

from ragembed.indexes.filters import Where, parse
from ragembed.indexes.filters.notes import notes_on
from ragembed.indexes.search.searchable import Searchable, retried
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import ChunkRecord, VectorEncoder
from ragembed.types import Floats


class Readable(Searchable, ABC):
    """Base class of :class:`ragembed.Store` and :class:`ragembed.Collection`."""

    @retried
    def get(self, ids: Sequence[str]) -> list[ChunkRecord]:
        """Return the chunks with these ids, in the order of ``ids``. Unknown ids are left out.

        Several stores of a collection may have a chunk with the same id.

        Parameters
        ----------
        ids : sequence of str
            Ids of the chunks.

        Examples
        --------
        >>> [record.chunk.text for record in store.get(["bird", "unknown"])]
        ['Many birds fly south in autumn.']
        """
        with self.snapshot() as snapshot:
            by_store = [(store.name, catalog.chunks_by_id(store.connection, ids)) for store in snapshot.stores]
        wanted = dict.fromkeys(ids)
        return [_with_store(records[each], name) for each in wanted for name, records in by_store if each in records]

    @retried
    def ids(self) -> list[str]:
        """Return the ids of all chunks, in order of insertion, store by store.

        Examples
        --------
        >>> store.ids()
        ['tea', 'lock', 'bird']
        """
        with self.snapshot() as snapshot:
            return [each for store in snapshot.stores for each in catalog.chunk_ids(store.connection)]

    @retried
    def vectors(self, ids: Sequence[str]) -> Floats:
        """Return the unit vectors of chunks, float32, shape ``(n, d)``, in the order of ``ids``.

        Raise KeyError if an id is in no store, and :class:`ConfigError` if stores have different embedders. If several
        stores have an id, the first of them counts.

        Parameters
        ----------
        ids : sequence of str
            Ids of the chunks.

        Examples
        --------
        >>> vectors = store.vectors(["tea", "bird"])
        >>> vectors.shape[0], vectors.dtype.name
        (2, 'float32')
        """
        with self.snapshot() as snapshot:
            group = snapshot.comparable("dense")
            return group.vectors(group.rows_of_keys(np.array(group.keys_of_ids(ids), dtype=np.int64)))

    @retried
    def filter_notes(self, where: Where) -> list[str]:
        """Return notes on the parts of a filter that cannot match: unknown fields, other types, and paths of no file.

        An empty store gets none, and a collection those that hold in each of its stores. Raise :class:`ConfigError` if
        the filter is invalid.

        Parameters
        ----------
        where : str or mapping
            Filter, as in :meth:`search`.

        Examples
        --------
        >>> store.filter_notes({"yeer": 2024})
        ["no chunk has the field 'yeer': did you mean 'year'?"]
        >>> store.filter_notes("year = '2024'")
        ["the field 'year' is compared with a string, but its values are numbers: the comparison is never true"]
        """
        condition = parse(where)
        with self.snapshot() as snapshot:
            first, *others = [notes_on(store.connection, condition) for store in snapshot.stores if store.count()] or [
                {}
            ]
        everywhere = (note for leaf, note in first.items() if all(leaf in notes for notes in others))
        return list(dict.fromkeys(everywhere))

    @retried
    def __len__(self) -> int:
        """Return the number of chunks."""
        with self.snapshot() as snapshot:
            return snapshot.count()

    @property
    @retried
    def generation(self) -> int:
        """Number of changes that have been committed."""
        with self.snapshot() as snapshot:
            return snapshot.generation()

    @property
    @retried
    def language(self) -> str:
        """Language whose stemmer lexical search uses, that of the first store."""
        with self.snapshot() as snapshot:
            return snapshot.language()

    @property
    @retried
    def unfinished(self) -> bool:
        """Whether the last indexing run was interrupted, or is not finished yet; see :attr:`being_written`."""
        with self.snapshot() as snapshot:
            return any(catalog.meta(store.connection, "unfinished", False) for store in snapshot.stores)

    @property
    @retried
    def vector_share(self) -> float:
        """Share of the chunks that have a vector, less than 1 until a run has encoded all of them.

        Words find the others meanwhile.
        """
        with self.snapshot() as snapshot:
            return 1.0 - snapshot.waiting() / max(snapshot.count(), 1)

    @property
    @abstractmethod
    def being_written(self) -> bool:
        """Whether a process of this machine writes now."""

    @property
    def incomplete(self) -> str | None:
        """A note if results may miss something, because a run is under way or was interrupted, else None."""
        if not self.unfinished:
            return None
        share, is_running = self.vector_share, self.being_written
        if share < 1:
            then = "wait for the run that encodes them" if is_running else "run 'ragembed index' again to encode them"
            return f"vectors for {int(100 * share)} % of the chunks; words find the others: {then}"
        if is_running:
            return "the store is being indexed: files that are still missing follow"
        return "the last indexing run was interrupted: run 'ragembed index' to continue it"

    @property
    @retried
    def embedder(self) -> VectorEncoder:
        """Embedder of the current generation.

        Raise :class:`IncompatibleStoreError` if it cannot be loaded, or is not the one that was passed to :meth:`open`,
        :class:`ModelError` if its model cannot be found, and :class:`ConfigError` if stores have different ones.

        Examples
        --------
        >>> store.embedder.encode_documents(["Tea is brewed with hot water."]).dtype.name
        'float32'
        """
        with self.snapshot() as snapshot:
            return snapshot.comparable("dense").embedder()

    # Closing

    @abstractmethod
    def close(self) -> None:
        """Close the database and the files. The next use opens them again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _with_store(record: ChunkRecord, name: str | None) -> ChunkRecord:
    return record if name is None else replace(record, store=name)
