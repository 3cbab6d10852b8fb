"""What tuning found, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ragembed.config.settings import EmbedderConfig
from ragembed.indexes.search.fusion import Fusion

Outcome = Literal["better", "no significant difference", "too little"]
MEAN = "mean"
"""What the mean over the sources is called beside them."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Two settings on the same queries, nDCG@10 in per cent: ``now``, ``tuned``, and their difference.

    The difference is that of ``tuned`` less ``now``, with its 95 % interval from ``low`` to ``high``.
    """

    queries: int
    now: float
    tuned: float
    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings that were tried on the first half.

    ``label`` says what differs from the present ones; ``needs`` what a store has to do for them: ``"nothing"``,
    ``"note"`` (the fusion), ``"refit"`` or ``"encode"`` (all documents). ``hybrid`` and ``dense`` are nDCG@10 in per
    cent by source, with their mean; ``difference`` compares ``hybrid`` with the present settings, by source, too.
    """

    label: str
    config: EmbedderConfig
    fusion: Fusion
    needs: str
    hybrid: Mapping[str, float]
    dense: Mapping[str, float]
    difference: Mapping[str, Compared]


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What tuning a store found.

    Parameters
    ----------
    outcome, reason
        ``"better"`` where the chosen settings are significantly better on the documents held out; why they are chosen
        or not.
    chunks, pool, documents
        Chunks of the store; those that were searched; the documents these are of, of which half were held out.
    queries
        By source, the number of pseudo-queries in each half; those of sources with too few are not used.
    used
        The sources that are used.
    candidates
        All that was tried, best first; that of the present settings has the label ``"now"``.
    chosen
        The one that was compared with the present settings on the documents held out; None where there is none.
    held_out
        That comparison by source, and its mean: of hybrid search, and of dense search alone.
    seed
        Of the draw.
    applied
        Whether the store has the chosen settings now.
    """

    outcome: Outcome
    reason: str
    chunks: int
    pool: int
    documents: int
    queries: Mapping[str, tuple[int, int]]
    used: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    held_out: Mapping[str, Compared]
    held_out_dense: Mapping[str, Compared]
    seed: int
    applied: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "applied": self.applied,
            "chunks": self.chunks,
            "pool": self.pool,
            "documents": self.documents,
            "queries": {name: list(counts) for name, counts in self.queries.items()},
            "used": list(self.used),
            "chosen": None if self.chosen is None else candidate_dict(self.chosen),
            "held_out": {name: asdict(compared) for name, compared in self.held_out.items()},
            "held_out_dense": {name: asdict(compared) for name, compared in self.held_out_dense.items()},
            "candidates": [candidate_dict(candidate) for candidate in self.candidates],
            "seed": self.seed,
        }


def candidate_dict(candidate: Candidate) -> dict[str, Any]:
    """Return a candidate as JSON values."""
    return {
        "label": candidate.label,
        "needs": candidate.needs,
        "hybrid": dict(candidate.hybrid),
        "dense": dict(candidate.dense),
        "difference": {name: asdict(compared) for name, compared in candidate.difference.items()},
        "config": candidate.config.to_dict(),
        "fusion": candidate.fusion.to_dict(),
    }
