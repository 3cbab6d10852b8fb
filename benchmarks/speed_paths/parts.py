"""The parts of the comparison by name: what each measures, and about how long it takes on two idle cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from speed_paths import cold, encode, growth, index, lexical, methods, quantile, reindex, runtimes, static, warm
from speed_paths.scores import Outcome
from speed_paths.setting import Setting


@dataclass(frozen=True, slots=True)
class Part:
    """A title, minutes, whether ``--check`` measures it, and what measures it."""

    title: str
    minutes: float
    quick: bool
    measure: Callable[[Setting], Outcome]


PARTS = {
    "encode": Part("Encoding", 4, True, encode.measure),
    "runtimes": Part("Other runtimes", 5, False, runtimes.measure),
    "methods": Part("Ways of embedding", 1, True, methods.measure),
    "static": Part("Static vectors", 1, True, static.measure),
    "index": Part("Indexing", 11, True, index.measure),
    "reindex": Part("Indexing again", 1.5, False, reindex.measure),
    "cold": Part("A question, cold", 3, True, cold.measure),
    "warm": Part("A question, warm", 4, False, warm.measure),
    "bm25": Part("Words alone", 5, False, lexical.measure),
    "quantile": Part("Quantiles", 1.5, True, quantile.measure),
    "growth": Part("Growth", 13, False, growth.measure),
}
