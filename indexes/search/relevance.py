"""Relevance of hits: the probability that a text answers a query, comparable between queries.

Scores order the hits of one query. The best score of a query that the corpus has nothing about is as high as that of
any other, because fused scores are scaled over the candidates of the query. Relevance is computed from two values with
a fixed scale:

- the cosine of the query and the chunk;
- the matched share, the chunk's BM25 divided by the highest BM25 that any text could have for the query. A word that
  the store does not contain has the highest idf, so it lowers the share most.

A logistic function of both, fitted on the store, gives the relevance. A query in a script that the model cannot read is
judged by the matched share only, to the degree that the fusion leaves the cosine out.
"""

from __future__ import annotations

import math
import sqlite3
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ragembed.errors import ConfigError
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import Hit

KEY = "relevance"

LEAST_CHUNKS = 20
"""Number of chunks from which a store gets a fit of relevance."""

WEAK = 0.5
"""Relevance of the best hit below which the matches of a query are weak: probably, no hit answers it."""

STRONG = 0.8
"""Relevance from which a match is strong; below, from ``WEAK``, it is possible."""

WEAK_MATCHES = "weak matches: the documents may not answer this query"
"""The note for a best hit with a relevance below ``WEAK``."""

_FUNCTIONS = ("hybrid", "dense", "lexical")


@dataclass(frozen=True, slots=True)
class Logistic:
    """The function ``1 / (1 + exp(-(origin + cosine * c + matched * m)))`` of a cosine c and a matched share m."""

    origin: float
    cosine: float
    matched: float

    def __call__(self, cosine: float, matched: float) -> float:
        """Return the value of the function, from 0 to 1."""
        logit = self.origin + self.cosine * cosine + self.matched * matched
        return 1.0 / (1.0 + math.exp(-max(-500.0, min(500.0, logit))))


@dataclass(frozen=True, slots=True)
class RelevanceModel:
    """The relevance functions of a store: for hits with both values, with a cosine only, and with BM25 only.

    ``fingerprint`` is that of the embedder that they were fitted with. ``chunks`` and ``pseudo_queries`` count what
    they were fitted on. ``dense`` is None if no vectors of queries were made for the fit.
    """

    fingerprint: str
    chunks: int
    pseudo_queries: int
    hybrid: Logistic
    dense: Logistic | None
    lexical: Logistic

    def of(self, cosine: float | None, matched: float | None, read: float) -> float | None:
        """Return the relevance of a hit; ``read`` is the share of the query that the model can read.

        Returns None if the cosine is all that is known of a query that the model cannot read.
        """
        if matched is None and (cosine is None or read == 0):
            return None
        function = self.function(cosine, matched, read)
        if function is None:
            return None
        value = function(cosine or 0.0, matched or 0.0)
        if cosine is None or matched is None or read == 0:
            return value
        return read * value + (1.0 - read) * self.lexical(0.0, matched)

    def function(self, cosine: float | None, matched: float | None, read: float) -> Logistic | None:
        """Return the function for a hit with these values."""
        if cosine is None or (read == 0 and matched is not None):
            return self.lexical
        return self.dense if matched is None else self.hybrid

    def to_dict(self) -> dict[str, Any]:
        """Return the model as JSON values."""
        about = {"fingerprint": self.fingerprint, "chunks": self.chunks, "pseudo_queries": self.pseudo_queries}
        functions = {name: getattr(self, name) for name in _FUNCTIONS}
        return about | {
            name: None if function is None else [function.origin, function.cosine, function.matched]
            for name, function in functions.items()
        }

    @classmethod
    def from_dict(cls, value: Any) -> RelevanceModel:
        """Return the model that :meth:`to_dict` returned; raise :class:`ConfigError` for anything else."""
        try:
            hybrid, lexical = (Logistic(*map(_finite, value[name])) for name in ("hybrid", "lexical"))
            dense = None if value["dense"] is None else Logistic(*map(_finite, value["dense"]))
            chunks, queries = int(value["chunks"]), int(value["pseudo_queries"])
            return cls(str(value["fingerprint"]), chunks, queries, hybrid, dense, lexical)
        except (TypeError, KeyError, ValueError) as error:
            raise ConfigError(f"the relevance is {str(value)[:60]!r}: expected the record of a fit") from error


def _finite(value: object) -> float:
    if not isinstance(value, float | int) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)


def stored_relevance(connection: sqlite3.Connection) -> RelevanceModel | None:
    """Return the relevance model of the store's embedder, or None if it was not fitted with this embedder."""
    model = catalog.parsed_meta(connection, KEY, RelevanceModel)
    return model if model is not None and model.fingerprint == catalog.embedder(connection)["fingerprint"] else None


def mean_relevance(models: Sequence[tuple[RelevanceModel | None, int]]) -> RelevanceModel | None:
    """Return the mean of the models of several stores, weighted by their numbers of chunks.

    Stores without chunks or without a model, because they are too small, do not count. Returns None if no store has a
    model.
    """
    fitted = [(model, chunks) for model, chunks in models if model is not None and chunks]
    if not fitted:
        return None
    first = fitted[0][0]
    if len(fitted) == 1:
        return first

    def mean(name: str) -> Logistic | None:
        functions = [(getattr(model, name), chunks) for model, chunks in fitted]
        if any(function is None for function, _ in functions):
            return None
        total = sum(chunks for _, chunks in functions)
        shares = [(function, chunks / total) for function, chunks in functions]
        return Logistic(
            *(
                sum(getattr(function, part) * share for function, share in shares)
                for part in ("origin", "cosine", "matched")
            )
        )

    hybrid, dense, lexical = map(mean, _FUNCTIONS)
    if hybrid is None or lexical is None:
        return None
    return RelevanceModel(
        first.fingerprint,
        sum(model.chunks for model, _ in fitted),
        sum(model.pseudo_queries for model, _ in fitted),
        hybrid,
        dense,
        lexical,
    )


@dataclass(frozen=True, slots=True)
class RelevanceParts:
    """The parts of the relevance ``value`` of a hit; a part that was not computed is None.

    ``matched`` is the BM25 of the chunk divided by ``highest``, the highest BM25 that a text could have for the query.
    ``origin``, ``of_cosine`` and ``of_matched`` add up to the logarithm of the odds, before ``read``: the weight of the
    query's vector, from 1 to 0, by how much of the query the model can read.
    """

    value: float
    cosine: float | None
    matched: float | None
    highest: float | None
    read: float
    origin: float
    of_cosine: float
    of_matched: float

    @classmethod
    def of(cls, model: RelevanceModel, hit: Hit, highest: float | None, read: float) -> RelevanceParts | None:
        """Return the parts for a hit, or None if it has no relevance."""
        matched = matched_share(hit.lexical, highest)
        value, function = model.of(hit.dense, matched, read), model.function(hit.dense, matched, read)
        if value is None or function is None:
            return None
        of_cosine, of_matched = function.cosine * (hit.dense or 0.0), function.matched * (matched or 0.0)
        return cls(value, hit.dense, matched, highest, read, function.origin, of_cosine, of_matched)


def matched_share(lexical: float | None, highest: float | None) -> float | None:
    """Return the share of the highest possible BM25 that a hit reaches, from 0 to 1, or None without BM25."""
    if lexical is None or highest is None:
        return None
    return min(1.0, lexical / highest) if highest > 0 else 0.0


def is_weak(relevances: Iterable[float | None]) -> bool:
    """Return whether no hit reaches the relevance ``WEAK``, or False if the relevance is not known."""
    known = [relevance for relevance in relevances if relevance is not None]
    return bool(known) and max(known) < WEAK


def relevance_word(relevance: float | None) -> str | None:
    """Return ``strong``, ``possible`` or ``weak``, or None for an unknown relevance."""
    if relevance is None:
        return None
    return "strong" if relevance >= STRONG else "possible" if relevance >= WEAK else "weak"


def note_unknown(hits: Iterable[Hit], least: float, model: RelevanceModel | None, chunks: int) -> None:
    """Warn if ``least`` cannot be applied to hits, because their relevance is unknown; see :func:`collected_notes`.

    ``chunks`` is the number of chunks of the store, and ``model`` its relevance model.
    """
    if all(hit.relevance is not None for hit in hits):
        return
    if model is not None:
        reason = "the model of the store cannot read the query, or has no fit for this search"
    elif chunks < LEAST_CHUNKS:
        reason = f"it is fitted for {LEAST_CHUNKS} chunks or more, and the store has {chunks}"
    else:
        reason = (
            "the store has no fit of it; 'ragembed refit' makes one if ragembed made the vectors, and the texts tell "
            "their own queries from others"
        )
    unapplied = f", so the threshold {least:g} was not applied" if least else ""
    add_note(f"the relevance of results is unknown{unapplied}: {reason}")


def add_note(note: str) -> None:
    """Add a note on a search; see :func:`collected_notes`."""
    collected = _COLLECTED.get()
    if collected is None:
        warnings.warn(note, stacklevel=3)
    elif note not in collected:
        collected.append(note)


_COLLECTED: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextmanager
def collected_notes() -> Iterator[list[str]]:
    """Collect the notes of the searches of this thread, each once, which otherwise are warnings."""
    notes: list[str] = []
    token = _COLLECTED.set(notes)
    try:
        yield notes
    finally:
        _COLLECTED.reset(token)
