"""Planning: the files that differ from what a store holds, in shards of about equal size."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ragembed.documents.discovery import Candidate
from ragembed.documents.places import absolute
from ragembed.indexes.progress import Progress
from ragembed.indexes.scan import Scan
from ragembed.indexes.steps import Sources
from ragembed.scaling.work import Plan, Work

SHARD_BYTES = 8 * 1024 * 1024
"""Bytes of files in a shard, about: what is read again where a worker dies in it."""
_LEAST_SHARDS = 8
"""Shards of a plan that has as many files, so that a few workers share them evenly."""


def make_plan(work: Work, sources: Sources, shards: int | None, progress: Progress) -> tuple[Plan, Scan]:
    """Plan the reading of what differs, and return the plan, and what is known without reading.

    A plan of the same files that was begun before is carried on, where the store is as it was then or keeps the plan's
    id. ``shards`` is how many there are to be; as many as the size of the files asks for if it is None.
    """
    former = work.find_plan()
    if former is not None and (sources.generation == former.generation or sources.mark == former.id):
        plan, scan, _ = _drawn(replace(sources, known=work.known()), shards or former.shards, progress)
        if former.same_request(plan):
            return former, scan
    plan, scan, waiting = _drawn(sources, shards, progress)
    work.begin(plan, sources.known, balanced(waiting, plan.shards))
    return plan, scan


def _drawn(sources: Sources, shards: int | None, progress: Progress) -> tuple[Plan, Scan, list[Candidate]]:
    scan = Scan.of(sources.paths, sources.gone, sources.store)
    progress.start("listing", "files", None)
    waiting = []
    for candidate in sources.scanner().waiting(sources.paths, scan, progress):
        waiting.append(candidate)
        progress.advance(1)
    progress.finish()
    size = sum(candidate.size for candidate in waiting)
    digest = hashlib.sha256()
    for candidate in waiting:
        digest.update(json.dumps(candidate.to_dict()).encode())
    # The chain is fitted when all is encoded; until then a new store has another than it is to have.
    config = sources.embedder.resolved_config().replace(postprocess=(), sides="one")
    plan = Plan(
        id=uuid.uuid4().hex,
        store=str(sources.store.absolute()),
        paths=tuple(absolute(path) for path in sources.paths),
        gone=tuple(absolute(path) for path in sources.gone),
        options=_as_kept(sources.options.to_dict()),
        config=_as_kept(config.to_dict()),
        generation=sources.generation,
        shards=min(shards or max(_LEAST_SHARDS, -(-size // SHARD_BYTES)), len(waiting)),
        files=len(waiting),
        size=size,
        digest=digest.hexdigest(),
    )
    return plan, scan, waiting


def _as_kept(fields: Mapping[str, object]) -> dict[str, object]:
    """Return JSON values as they are read back: lists for tuples."""
    kept: dict[str, object] = json.loads(json.dumps(fields))
    return kept


def balanced(files: Sequence[Candidate], shards: int) -> list[list[Candidate]]:
    """Return ``files``, in their order, as ``shards`` lists of about equal size in bytes; none is empty."""
    if not shards:
        return []
    ends = np.cumsum([file.size + 1 for file in files])
    cuts = [0, *np.searchsorted(ends, ends[-1] * np.arange(1, shards) / shards).tolist(), len(files)]
    for i in range(1, shards):
        cuts[i] = min(max(cuts[i], cuts[i - 1] + 1), len(files) - (shards - i))
    return [list(files[start:stop]) for start, stop in pairwise(cuts)]
