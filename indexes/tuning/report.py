"""The report of a tuning run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ragembed.config.settings import EmbedderConfig
from ragembed.indexes.search.fusion import Fusion

Outcome = Literal["better", "probably better", "no significant difference", "too little"]
LIMITS = (
    "fusion: on 18 test collections, this choice of alpha and method was significantly better on 7 and worse on none",
    "embedder: pseudo-queries do not rank similar embedders as people do; a gain below 2 points counts for nothing",
    "feedback: pseudo-queries cannot decide it; compare --feedback on judged queries with 'ragembed eval retrieval'",
)
"""What tuning with pseudo-queries can decide; measured by ``benchmarks/run.py collections``."""
APPLICABLE: frozenset[Outcome] = frozenset({"better", "probably better"})
"""The outcomes after which ``--apply`` changes the store."""
MEAN = "mean"
"""The key of the mean over all sources, beside the names of the sources."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of the current settings with other settings on the same queries, nDCG@10 in per cent.

    Parameters
    ----------
    queries : int
        Number of queries.
    now : float
        Mean nDCG@10 of the current settings, from 0 to 100.
    tuned : float
        Mean nDCG@10 of the other settings, from 0 to 100.
    difference : float
        ``tuned - now``.
    low : float
        Lower end of the 95 % confidence interval of the difference.
    high : float
        Upper end of this interval.
    p_value : float
        The p-value of the difference, from 0 to 1.

    Examples
    --------
    >>> from ragembed.indexes.tuning import Compared
    >>> mean = Compared(queries=200, now=61.0, tuned=64.5, difference=3.5, low=1.2, high=5.8, p_value=0.003)
    >>> mean.low > 0  # a significant gain
    True
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
    """Settings that were tried on the first half of the documents.

    Parameters
    ----------
    label : str
        The settings that differ from the current ones, or ``"now"`` for the current settings.
    config : EmbedderConfig
        The embedder configuration.
    fusion : Fusion
        The fusion settings.
    needs : str
        The work to apply the settings: ``"nothing"``, ``"note"`` (save the fusion), ``"refit"`` (fit the
        post-processors) or ``"encode"`` (encode all documents).
    hybrid : mapping of str to float
        Mean nDCG@10 of hybrid search in per cent by source, and of all sources under the key ``"mean"``.
    dense : mapping of str to float
        The same for dense search.
    difference : mapping of str to Compared
        Comparison of ``hybrid`` with the current settings, with the same keys; empty for the current settings.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.indexes.tuning import tune_store
    >>> report = tune_store(Path(".ragembed"))  # doctest: +SKIP
    >>> best = report.candidates[0]  # doctest: +SKIP
    >>> best.label, best.needs, best.hybrid["mean"]  # doctest: +SKIP
    ('postprocess abtt:2,normalize', 'refit', 64.5)
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
    """The result of :func:`tune_store`.

    Parameters
    ----------
    outcome : {"better", "probably better", "no significant difference", "too little"}
        ``"better"`` if the chosen settings are significantly better; ``"probably better"`` if only the fusion changes,
        and its gain is not significant; ``"too little"`` if the store has too few
        chunks or gives too few queries.
    reason : str
        The reason for the outcome.
    chunks : int
        Number of chunks in the store.
    pool : int
        Number of chunks that were searched.
    documents : int
        Number of documents in the pool. Half of them are held out.
    queries : mapping of str to (int, int)
        Number of pseudo-queries in each half by source. Sources with too few queries are not used.
    used : tuple of str
        The sources that were used.
    candidates : tuple of Candidate
        The settings that were compared, best first. The current settings have the label ``"now"``.
    chosen : Candidate or None
        The candidate that was compared with the current settings on the held-out documents, if any.
    held_out : mapping of str to Compared
        This comparison for hybrid search, by source and for the mean under the key ``"mean"``. If only the fusion
        changes, it uses all documents.
    held_out_dense : mapping of str to Compared
        The same comparison for dense search.
    seed : int
        The seed of the draw.
    applied : bool
        Whether the chosen settings were applied to the store.

    Examples
    --------
    >>> from pathlib import Path
    >>> from ragembed.indexes.tuning import tune_store
    >>> report = tune_store(Path(".ragembed"))  # doctest: +SKIP
    >>> report.outcome  # doctest: +SKIP
    'better'
    >>> report.held_out["mean"].difference  # doctest: +SKIP
    3.5
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
        """Return the report as JSON values.

        Returns
        -------
        dict
            The fields of the report, with candidates as objects.
        """
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "limits": list(LIMITS),
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

    def _repr_html_(self) -> str:
        from ragembed.html_elements import notebook_table

        rows = [
            (name, f"{each.now:.1f}", f"{each.tuned:.1f}", f"{each.low:+.1f} to {each.high:+.1f}")
            for name, each in self.held_out.items()
        ]
        chosen = "" if self.chosen is None else f"; {self.chosen.label}"
        head = ("nDCG@10", "Now", "Tuned", "Difference, 95 % interval")
        return notebook_table(f"Tuning: {self.outcome}: {self.reason}{chosen}", head, rows)


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
