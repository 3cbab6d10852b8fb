"""autofaiss: an index for a limit of memory and a time for a query, with the parameters that it finds for it."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
from asking import Request, Search, main
from autofaiss import build_index
from autofaiss.external.optimize import get_optimal_hyperparameters

_GIB = 2**30
_DEFAULT_LIMIT = 16 * _GIB
_MOST = 0.8
"""Of the machine's memory may be the index's; autofaiss demands a tenth beside it."""


def build(request: Request) -> dict[str, Any]:
    """Write the index for the first of the ``latencies``, in milliseconds, within ``limit`` bytes or its default."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = request["limit"] or min(_DEFAULT_LIMIT, int(_MOST * machine))
    index, _ = build_index(
        embeddings=str(Path(request["vectors"]).parent),
        index_path=request["file"],
        index_infos_path=_notes(request),
        metric_type="ip",
        max_index_memory_usage=f"{limit}B",
        current_memory_available=f"{machine}B",
        max_index_query_time_ms=request["latencies"][0],
        nb_cores=request["threads"],
        verbose=logging.WARNING,
    )
    if index is None:
        raise RuntimeError(f"autofaiss made no index of at most {limit:,} bytes")
    return {"kind": _read_notes(request)["index_key"]}


def tune(request: Request) -> dict[str, Any]:
    """Find the parameters for the other latencies, as its ``tune_index`` does, and note those of all of them."""
    notes = _read_notes(request)
    parameters = {request["latencies"][0]: notes["index_param"]}
    if request["latencies"][1:]:
        index = faiss.read_index(request["file"])
        for latency in request["latencies"][1:]:
            parameters[latency] = get_optimal_hyperparameters(index, notes["index_key"], max_speed_ms=latency)
    found = [f"{latency:g} ms" for latency in parameters], list(parameters.values())
    Path(_notes(request)).write_text(json.dumps({**notes, "settings": list(zip(*found, strict=True))}))
    return {}


def settings(request: Request) -> Iterator[tuple[str, Search]]:
    """Yield a search for each latency."""
    faiss.omp_set_num_threads(request["threads"])
    index, k = faiss.read_index(request["file"]), request["k"]
    for latency, parameters in _read_notes(request)["settings"]:
        if parameters:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
        yield f"{latency}: {parameters}", lambda questions: index.search(questions, k)[1]


def _notes(request: Request) -> str:
    return f"{request['file']}.json"


def _read_notes(request: Request) -> dict[str, Any]:
    notes: dict[str, Any] = json.loads(Path(_notes(request)).read_text())
    return notes


if __name__ == "__main__":
    main(build, settings, tune)
