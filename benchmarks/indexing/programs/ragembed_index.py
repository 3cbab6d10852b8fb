"""ragembed's choice for a budget, tuned on pseudo-queries; the one contestant in the environment of the benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from asking import Floats, Request, Search, main, mapped
from numpy.typing import NDArray

from ragembed.errors import BudgetError
from ragembed.indexes.ann.building import Shard
from ragembed.indexes.ann.choosing import Budget
from ragembed.indexes.ann.index import USUAL_K, RefinedIndex, SegmentIndex
from ragembed.indexes.ann.picking import Picked, Questions, pick
from ragembed.indexes.ann.records import Wanted
from ragembed.indexes.ann.specs import parse_spec
from ragembed.indexes.ann.vectors import ArrayVectors
from ragembed.postprocess import unit_rows


class RawVectors(ArrayVectors):
    """Unit vectors made of raw ones in float16, shape ``(n, d)``, when they are read, as a store does it."""

    def at(self, positions: NDArray[np.int64]) -> Floats:
        """Return those at ``positions``."""
        return unit_rows(super().at(positions))


def build(request: Request) -> dict[str, Any]:
    """Write the index for the ``budget``; ``refused`` tells that there is none, and why."""
    budget = Budget(**request["budget"])
    asked = {
        "max_memory": budget.max_memory,
        "max_latency_ms": budget.max_latency_ms,
        "min_recall": budget.wanted_recall,
    }
    try:
        picked = _picked(request, budget)
    except BudgetError as error:
        return {"asked": asked, "refused": str(error)}
    told = {"kind": picked.kind, "effort": picked.effort}
    _notes(request).write_text(json.dumps(told))
    ranked_anew = not parse_spec(picked.kind).lossless
    return {**told, "asked": asked, "ranked_anew": ranked_anew, "reasons": picked.reasons}


def settings(request: Request) -> Iterator[tuple[str, Search]]:
    """Yield the search that was picked."""
    told = json.loads(_notes(request).read_text())
    name = "" if told["effort"] is None else f"effort {told['effort']}"
    yield name, _searcher(request, told["kind"], told["effort"])


def _picked(request: Request, budget: Budget) -> Picked:
    """Let ragembed pick, build and tune: the one call of what is measured."""
    vectors, drawn = mapped(request), np.load(request["tuning"])
    questions = Questions(np.ascontiguousarray(drawn[0::2]), np.ascontiguousarray(drawn[1::2]))
    wanted = Wanted(budget=budget)
    shard = Shard(ArrayVectors(vectors), np.arange(len(vectors)), Path(request["file"]))
    return pick([shard], questions, wanted)


def _searcher(request: Request, kind: str, effort: int | None) -> Search:
    """Return the search as a store has it: some more are looked for, and ranked anew where the kind rounds."""
    spec, k = parse_spec(kind), request["k"]
    raw = np.memmap(request["raw"], dtype="<f2", mode="r").reshape(-1, request["dim"])
    index = SegmentIndex(Path(request["file"]), spec, *raw.shape, threads=request["threads"])
    refined = RefinedIndex(index, spec, RawVectors(raw), np.arange(len(raw)))
    return lambda questions: refined.search(questions, max(k, USUAL_K), effort=effort)[1][:, :k]


def _notes(request: Request) -> Path:
    return Path(f"{request['file']}.json")


if __name__ == "__main__":
    main(build, settings)
