"""The searching side of a store: every question is answered from one generation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, DimensionError
from ragembed.indexes import catalog, search
from ragembed.indexes.arranging import Arrangement
from ragembed.indexes.filters import Where, parse
from ragembed.indexes.fusion import Fusion
from ragembed.indexes.reader import Reader
from ragembed.indexes.records import Hit
from ragembed.indexes.search import Mode
from ragembed.indexes.view import View

if TYPE_CHECKING:
    from ragembed.indexes.explaining import Explanation
    from ragembed.indexes.why_not import WhyNot

Floats = NDArray[np.float32]


class Searching:
    """What :class:`ragembed.indexes.Store` answers, by text and by vector."""

    path: Path
    _reader: Reader

    def search(
        self,
        query: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        arrangement: Arrangement | None = None,
    ) -> list[Hit]:
        """Return the best ``k`` chunks for a question, best first; see :class:`ragembed.indexes.Hit` for scores.

        ``mode`` is ``"dense"`` (cosine), ``"lexical"`` (BM25) or ``"hybrid"`` (both fused). ``where`` selects the
        chunks that are searched, by an expression as in ``"ext = 'md'"`` or a dictionary of LangChain's form; see
        ``docs/filters.md``. ``fusion`` says how the two are fused, the store's own if left out, ``arrangement`` whether
        near-duplicates are folded, a reranker reads the best, and the like; without it nothing of that is done. See
        ``docs/search.md``.
        """
        return self.search_many([query], k, mode, where=where, fusion=fusion, arrangement=arrangement)[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        arrangement: Arrangement | None = None,
    ) -> list[list[Hit]]:
        """Answer several questions at once, each as :meth:`search` does, all from one generation of the store."""
        if isinstance(queries, str):
            raise ConfigError(f"queries is the text {queries[:40]!r}: expected a list of texts; ask one with search")
        condition = None if where is None else parse(where)
        asked = list(queries)

        def answer(view: View) -> list[list[Hit]]:
            fused = fusion or catalog.fusion(view.connection)
            return search.search(view, asked, k, mode, condition, fused, arrangement)

        return self._reader.read(answer)

    @property
    def fusion(self) -> Fusion:
        """How hybrid search makes one score of two where it is not told: as tuned, else :class:`Fusion`'s defaults."""
        return self._reader.read(lambda view: catalog.fusion(view.connection))

    def explain(
        self,
        question: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        where: Where | None = None,
        fusion: Fusion | None = None,
        arrangement: Arrangement | None = None,
    ) -> list[Explanation]:
        """Return what :meth:`search` does, each hit with the terms of its score; see ``docs/explain.md``."""
        from ragembed.indexes.explaining import explain

        condition = None if where is None else parse(where)

        def answer(view: View) -> list[Explanation]:
            fused = fusion or catalog.fusion(view.connection)
            return explain(view, question, k, mode, condition, fused, arrangement)

        return self._reader.read(answer)

    def why_not(
        self, question: str, source: str, k: int = 10, mode: Mode = "hybrid", *, fusion: Fusion | None = None
    ) -> WhyNot:
        """Return where the file called ``source`` in the store comes for a question, and what it lacks.

        It is compared with the best ``k`` chunks. Raises :class:`ragembed.errors.ConfigError` for a file that is not in
        the store; the message says whether it was skipped, and why.
        """
        from ragembed.indexes.why_not import why_not

        def answer(view: View) -> WhyNot:
            return why_not(view, question, source, k, mode, fusion or catalog.fusion(view.connection))

        return self._reader.read(answer)

    def search_vector(self, vector: Floats, k: int = 10, *, where: Where | None = None) -> list[Hit]:
        """Return the ``k`` chunks nearest to a query vector, shape ``(d,)``, by cosine, best first.

        ``where`` selects the chunks that are searched, as in :meth:`search`.
        """
        return self.search_vectors(_one_vector(vector)[None, :], k, where=where)[0]

    def search_vectors(self, vectors: Floats, k: int = 10, *, where: Where | None = None) -> list[list[Hit]]:
        """Return for each query vector, shape ``(n, d)``, what :meth:`search_vector` does."""
        vectors = np.asarray(vectors, dtype=np.float32)
        condition = None if where is None else parse(where)
        if not vectors.size and vectors.shape[:1] == (0,):
            return []
        if vectors.ndim != 2:
            raise DimensionError(f"the query vectors have shape {vectors.shape}: expected one vector a row")

        def answer(view: View) -> list[list[Hit]]:
            self._require_dimension(view, vectors)
            return search.search_vectors(view, vectors, k, condition)

        return self._reader.read(answer)

    def search_mmr(
        self,
        query: str,
        k: int = 10,
        *,
        fetch_k: int = 50,
        lambda_mult: float = 0.5,
        where: Where | None = None,
    ) -> list[Hit]:
        """Return ``k`` chunks that are near a question and unlike each other, by maximal marginal relevance.

        They are chosen among the ``fetch_k`` nearest by cosine; ``lambda_mult`` is from 0 (unlike each other) to 1
        (near the question). Hits come in the order in which they are chosen, with their cosines as scores.
        """
        condition = None if where is None else parse(where)

        def answer(view: View) -> list[Hit]:
            vector = view.embedder().encode_queries([query])[0]
            return search.search_mmr(view, vector, k, fetch_k, lambda_mult, condition)

        return self._reader.read(answer)

    def search_mmr_vector(
        self,
        vector: Floats,
        k: int = 10,
        *,
        fetch_k: int = 50,
        lambda_mult: float = 0.5,
        where: Where | None = None,
    ) -> list[Hit]:
        """Return what :meth:`search_mmr` does, for a query vector, shape ``(d,)``."""
        vector = _one_vector(vector)
        condition = None if where is None else parse(where)

        def answer(view: View) -> list[Hit]:
            self._require_dimension(view, vector[None, :])
            return search.search_mmr(view, vector, k, fetch_k, lambda_mult, condition)

        return self._reader.read(answer)

    def vectors(self, ids: Sequence[str]) -> Floats:
        """Return the unit vectors of the chunks ``ids``, float32, shape ``(n, d)``; an unknown id is a KeyError."""

        def answer(view: View) -> Floats:
            rows = catalog.rows_of_ids(view.connection, ids)
            return view.vectors([rows[chunk_id] for chunk_id in ids])

        return self._reader.read(answer)

    def _require_dimension(self, view: View, vectors: Floats) -> None:
        if (dim := view.dim()) not in (None, vectors.shape[1]):
            raise DimensionError(
                f"the query vector has shape {vectors.shape[1:]}, the store {self.path} holds vectors of dimension "
                f"{dim}"
            )


def _one_vector(vector: Floats) -> Floats:
    vector = np.asarray(vector, dtype=np.float32)
    if vector.ndim != 1:
        raise DimensionError(f"the query vector has shape {vector.shape}: expected one dimension")
    return vector
