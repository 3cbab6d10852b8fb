"""Vectors of a pool, of what is changed in it, and of the queries, from any number of configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragembed.config import EmbedderConfig
from ragembed.evaluation.encoding import RawVectors, raw_part
from ragembed.extractors.protocol import Side
from ragembed.postprocess import unit_rows
from ragembed.tuning.passages import Pool
from ragembed.tuning.queries import PseudoQuery

Floats = NDArray[np.float32]

_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class PoolVectors:
    """Unit vectors, float32, of one configuration.

    ``documents`` has shape ``(pool, d)``, ``queries`` ``(queries, d)``, and ``changed`` a row for each passage that a
    query changes, ordered by query and then by position.
    """

    documents: Floats
    queries: Floats
    changed: Floats


class Encoder:
    """Encodes a pool and its queries with several configurations, which share the model's passes.

    Parameters
    ----------
    configs
        Those whose raw vectors may be asked for.
    pool, queries
        What is encoded.
    device
        As :class:`ragembed.Embedder` takes it.
    done
        Told how many texts are done since the last call; there are :func:`texts_to_encode` in all.
    """

    def __init__(
        self,
        configs: Sequence[EmbedderConfig],
        pool: Pool,
        queries: Sequence[PseudoQuery],
        device: str | None = None,
        done: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._texts = [passage.chunk.embedded_text for passage in pool.passages]
        self._raw = RawVectors(configs, self._texts, device)
        changed = [query.changed[at].embedded_text for query in queries for at in sorted(query.changed)]
        self._documents = self._encoded(self._texts, "documents", done)
        self._changed = self._encoded(changed, "documents", done)
        self._queries = self._encoded([query.text for query in queries], "pseudo-queries", done)

    def vectors(self, config: EmbedderConfig) -> PoolVectors:
        """Return the vectors that ``config`` makes, fitted on the pool.

        Raises :class:`ragembed.errors.RankError` where a post-processor has more directions than the vectors.
        """
        key = raw_part(config)
        chain = self._raw.chain(config, self._texts, self._documents[key])
        return PoolVectors(
            unit_rows(chain.documents.transform(self._documents[key])),
            unit_rows(chain.queries.transform(self._queries[key])),
            unit_rows(chain.documents.transform(self._changed[key])),
        )

    def _encoded(self, texts: Sequence[str], side: Side, done: Callable[[int], None]) -> dict[EmbedderConfig, Floats]:
        parts: list[dict[EmbedderConfig, Floats]] = []
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            parts.append(self._raw.of(part, side))
            done(len(part))
        if not parts:
            parts.append(self._raw.of([], side))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def texts_to_encode(pool: Pool, queries: Sequence[PseudoQuery]) -> int:
    """Return how many texts :class:`Encoder` encodes."""
    return len(pool) + len(queries) + sum(len(query.changed) for query in queries)
