"""Writing what is kept of boilerplate: lines of files, those that are boilerplate, and what is searched of chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ragembed.documents.boilerplate import Keys
from ragembed.indexes.storage import catalog, changes
from ragembed.indexes.storage.transactions import write_errors
from ragembed.indexes.types import ChunkRecord, text_hash
from ragembed.indexes.writing.boilerplate_store import BoilerplateLine, StrippingPlan, done, lines_as_bytes, plan
from ragembed.indexes.writing.upkeep import Upkeep


class Stripping(Upkeep):
    """The part of a store's writer that changes what is searched of chunks, and not what they are."""

    def plan_stripping(
        self, coming: Mapping[str, tuple[str, Keys]], removed: Collection[str], mode: str
    ) -> StrippingPlan:
        """Return what a run is to do about boilerplate; see :func:`ragembed.indexes.writing.boilerplate_store.plan`."""
        return plan(self._connection, coming, removed, mode)

    def done_stripping(self, mode: str) -> dict[str, Any]:
        """Return what to keep of a run that has done it, as the JSON value ``boilerplate``."""
        return done(self._connection, mode)

    def keep_lines(self, lines: Mapping[str, Keys]) -> None:
        """Keep the keys of the lines of files, by name, in the place of those that were kept of them."""
        if not lines:
            return
        with write_errors(self._store), self._database.transaction():
            self._insert_lines(lines)

    def _insert_lines(self, lines: Mapping[str, Keys]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO source_lines (source, keys) SELECT id, ?2 FROM sources WHERE path = ?1",
            [(path, lines_as_bytes(keys)) for path, keys in lines.items()],
        )

    def search_by(self, records: Sequence[ChunkRecord]) -> None:
        """Let chunks that are in the store be searched by the ``searched`` of these, which differs, and nothing else.

        Its text must have been staged.
        """
        if not records:
            return
        hashes = {record.id: text_hash(record.chunk.embedded_text) for record in records}
        with write_errors(self._store), self._database.transaction():
            rows = catalog.rows_of_hashes(self._connection, hashes.values())
            before = catalog.rows_of_ids(self._connection, list(hashes))
            self._connection.executemany(
                "UPDATE chunks SET searched = ?, row = ? WHERE id = ?",
                [(record.chunk.searched, rows[hashes[record.id]], record.id) for record in records],
            )
            changes.mark_unused(self._connection, {*rows.values(), *before.values()})

    def keep_boilerplate(self, lines: Iterable[BoilerplateLine]) -> None:
        """Keep the lines that are boilerplate now, in the place of those that were."""
        with write_errors(self._store), self._database.transaction():
            self._connection.execute("DELETE FROM boilerplate")
            self._connection.executemany(
                "INSERT OR REPLACE INTO boilerplate (kind, line, files) VALUES (?, ?, ?)",
                [(line.kind, line.line, line.files) for line in lines],
            )
