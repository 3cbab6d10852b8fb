"""Who takes part: ragembed once for each budget, and the peers, each with the programs that build and ask."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments import INDEXES

from indexing.budgets import Budget

PEERS = ("flat", "hnswlib", "usearch", "autofaiss")

_PROGRAMS = Path(__file__).resolve().parent / "programs"
_TYPES = {"f32": 30_000, "f16": None, "i8": 100_000}
"""Of USearch's numbers, each with the most vectors that it is tried with, for the time it takes."""
_AUTOFAISS_MS = 10.0
"""Its default."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A program, the Python that runs it, and what it is told beside the vectors; ``budget`` where it is ragembed."""

    name: str
    program: Path
    python: str | Path
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget | None = None


READER = Contestant("reading the vectors", _PROGRAMS / "reading.py", sys.executable)
"""No contestant: what reads the vectors as the others do, and builds nothing."""


def contestants_for(size: int, budgets: Sequence[Budget], peers: Sequence[str], *, ours: bool) -> list[Contestant]:
    """Return who takes part with ``size`` vectors."""
    found = list(_peers(size, budgets, peers))
    if ours:
        program = _PROGRAMS / "ragembed_index.py"
        found += [
            Contestant(f"ragembed, {one.name}", program, sys.executable, {"budget": one.given()}, one)
            for one in budgets
        ]
    return found


def _peers(size: int, budgets: Sequence[Budget], names: Sequence[str]) -> Iterator[Contestant]:
    if "flat" in names:
        yield Contestant("FAISS flat", _PROGRAMS / "flat_index.py", sys.executable)
    if "hnswlib" in names:
        yield _peer("hnswlib", "hnswlib_index")
    if "usearch" in names:
        for dtype, largest in _TYPES.items():
            if largest is None or size <= largest:
                yield _peer(f"USearch {dtype}", "usearch_index", dtype=dtype)
    if "autofaiss" in names:
        wanted = [budget.max_latency_ms for budget in budgets]
        latencies = dict.fromkeys([_AUTOFAISS_MS, *(latency for latency in wanted if latency is not None)])
        yield _peer("autofaiss", "autofaiss_index", limit=None, latencies=list(latencies))


def _peer(name: str, program: str, **options: Any) -> Contestant:
    return Contestant(name, _PROGRAMS / f"{program}.py", INDEXES.python, options)
