"""Indexes of the same vectors: the kind that ragembed picks, and those of FAISS, hnswlib, USearch and autofaiss.

A build is timed from opening the vectors to an index on disk, without imports. The ``search`` of each library yields
its search settings: a name, and a function that maps queries to the ids of the results, best first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from worker import Report, Request, main

EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
Search = Callable[[np.ndarray], np.ndarray]


def _blocks(request: Request) -> Iterator[tuple[int, np.ndarray]]:
    vectors = np.load(request["vectors"], mmap_mode="r")
    for start in range(0, len(vectors), 20_000):
        yield start, np.asarray(vectors[start : start + 20_000])


class Faiss:
    """The index of FAISS for the string ``factory``, with the defaults of FAISS for everything else."""

    def build(self, request: Request) -> None:
        """Train the index on a sample, add all vectors, and write it."""
        import faiss

        index = faiss.index_factory(request["dim"], request["factory"], faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            vectors = np.load(request["vectors"], mmap_mode="r")
            rows = np.random.default_rng(0).choice(len(vectors), min(len(vectors), request["training"]), replace=False)
            index.train(np.asarray(vectors[np.sort(rows)]))
        for _, block in _blocks(request):
            index.add(block)
        faiss.write_index(index, request["file"])

    def search(self, request: Request) -> Iterator[tuple[str, Search]]:
        """Yield a search with each of ``parameters``, in the syntax of FAISS's ``ParameterSpace``."""
        import faiss

        faiss.omp_set_num_threads(request["threads"])
        index = faiss.read_index(request["file"])
        for parameters in request["parameters"]:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
            yield parameters, lambda queries: index.search(queries, request["k"])[1]


class Hnswlib:
    """The graph of hnswlib, with the settings of its examples."""

    def build(self, request: Request) -> None:
        """Write the index."""
        import hnswlib

        index = hnswlib.Index("ip", request["dim"])
        index.init_index(request["size"], M=16, ef_construction=200)
        for start, block in _blocks(request):
            index.add_items(block, np.arange(start, start + len(block)), num_threads=request["threads"])
        index.save_index(request["file"])

    def search(self, request: Request) -> Iterator[tuple[str, Search]]:
        """Yield searches with increasing ``ef``."""
        import hnswlib

        index = hnswlib.Index("ip", request["dim"])
        index.load_index(request["file"])
        for effort in EFFORTS:
            index.set_ef(effort)
            yield f"ef {effort}", lambda q: index.knn_query(q, request["k"], num_threads=request["threads"])[0]


class Usearch:
    """The graph of USearch, with its defaults and a numeric type."""

    def build(self, request: Request) -> None:
        """Write the index."""
        from usearch.index import Index

        index = Index(ndim=request["dim"], metric="ip", dtype=request["dtype"])
        for start, block in _blocks(request):
            index.add(np.arange(start, start + len(block)), block, threads=request["threads"])
        index.save(request["file"])

    def search(self, request: Request) -> Iterator[tuple[str, Search]]:
        """Yield searches with increasing ``expansion_search``."""
        from usearch.index import Index

        index = Index.restore(request["file"])

        def search(queries: np.ndarray) -> np.ndarray:
            keys = index.search(queries, request["k"], threads=request["threads"]).keys
            return keys.astype(np.int64).reshape(len(queries), -1)

        for effort in EFFORTS:
            index.expansion_search = effort
            yield f"expansion {effort}", search


class Autofaiss:
    """The index that autofaiss picks for its default of 10 ms, within the memory of the machine."""

    def build(self, request: Request) -> Report:
        """Write the index."""
        from autofaiss import build_index

        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        build_index(
            embeddings=str(Path(request["vectors"]).parent),
            index_path=request["file"],
            index_infos_path=f"{request['file']}.json",
            metric_type="ip",
            max_index_memory_usage=f"{min(2**34, machine * 4 // 5)}B",
            current_memory_available=f"{machine}B",
            nb_cores=request["threads"],
        )
        return {"kind": json.loads(Path(f"{request['file']}.json").read_text())["index_key"]}

    def search(self, request: Request) -> Iterator[tuple[str, Search]]:
        """Yield the search with the parameters that autofaiss found."""
        import faiss

        faiss.omp_set_num_threads(request["threads"])
        index, parameters = faiss.read_index(request["file"]), json.loads(Path(f"{request['file']}.json").read_text())
        if parameters["index_param"]:
            faiss.ParameterSpace().set_index_parameters(index, parameters["index_param"])
        yield parameters["index_param"], lambda queries: index.search(queries, request["k"])[1]


class Ragembed:
    """The index that ragembed picks for a budget, tuned on pseudo-queries, built and searched as in a store."""

    def build(self, request: Request) -> Report:
        """Write the index; the report has ``refused`` if no index meets the budget."""
        from ragembed.errors import BudgetError
        from ragembed.indexes.faiss_index.building import IndexInput
        from ragembed.indexes.faiss_index.choose import TuningQueries, pick
        from ragembed.indexes.faiss_index.records import Budget, IndexConfig
        from ragembed.indexes.faiss_index.vectors import ArrayVectors

        budget, drawn = Budget(**request["budget"]), np.load(request["tuning"])
        vectors = np.load(request["vectors"], mmap_mode="r")
        given = IndexInput(ArrayVectors(vectors), np.arange(len(vectors)), Path(request["file"]))
        queries = TuningQueries(np.ascontiguousarray(drawn[0::2]), np.ascontiguousarray(drawn[1::2]))
        report: dict[str, Any] = {"min_recall": budget.wanted_recall}
        try:
            picked = pick(given, queries, IndexConfig(budget=budget))
        except BudgetError as error:
            return {**report, "refused": str(error)}
        report |= {"kind": picked.kind, "effort": picked.effort}
        Path(f"{request['file']}.json").write_text(json.dumps(report))
        return report

    def search(self, request: Request) -> Iterator[tuple[str, Search]]:
        """Yield the search with the picked effort."""
        from ragembed.indexes.faiss_index.index import USUAL_K, RefinedIndex, SegmentIndex
        from ragembed.indexes.faiss_index.records import parse_spec
        from ragembed.indexes.faiss_index.vectors import ArrayVectors

        report = json.loads(Path(f"{request['file']}.json").read_text())
        spec, vectors = parse_spec(report["kind"]), np.load(request["vectors"], mmap_mode="r")
        index = SegmentIndex(Path(request["file"]), spec, *vectors.shape, threads=request["threads"])
        refined = RefinedIndex(index, spec, ArrayVectors(vectors), np.arange(len(vectors)))
        k, effort = request["k"], report["effort"]
        name = report["kind"] if effort is None else f"{report['kind']}, effort {effort}"
        yield name, lambda queries: refined.search(queries, max(k, USUAL_K), effort=effort)[1][:, :k]


LIBRARIES: dict[str, Any] = {
    "faiss": Faiss(),
    "hnswlib": Hnswlib(),
    "usearch": Usearch(),
    "autofaiss": Autofaiss(),
    "ragembed": Ragembed(),
}


def build(request: Request) -> Report:
    """Build an index; the report has the seconds."""
    started = time.perf_counter()
    report = dict(LIBRARIES[request["library"]].build(request) or {})
    return {**report, "seconds": time.perf_counter() - started}


def ask(request: Request) -> Report:
    """Search for all queries with each setting, one by one in one thread after a warm-up; write the ids of results."""
    queries = np.load(request["queries"])
    found, report = [], []
    for name, search in LIBRARIES[request["library"]].search(request):
        found.append(np.concatenate([search(queries[i : i + 1]) for i in range(len(queries))]))
        milliseconds = []
        for i in range(len(queries)):
            started = time.perf_counter()
            search(queries[i : i + 1])
            milliseconds.append(1000 * (time.perf_counter() - started))
        report.append({"name": name, "median": float(np.median(milliseconds))})
    np.save(request["found"], np.stack(found).astype(np.int64))
    return {"ways": report}


if __name__ == "__main__":
    main({"build": build, "ask": ask}, {})
