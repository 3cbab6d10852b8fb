"""FAISS's exhaustive index, exact."""

from __future__ import annotations

from collections.abc import Iterator

import faiss
from asking import Request, Search, blocks, main, mapped


def build(request: Request) -> None:
    """Write an ``IndexFlatIP``."""
    vectors = mapped(request)
    index = faiss.IndexFlatIP(vectors.shape[1])
    for _, block in blocks(vectors):
        index.add(block)
    faiss.write_index(index, request["file"])


def settings(request: Request) -> Iterator[tuple[str, Search]]:
    """Yield the one way to search it."""
    faiss.omp_set_num_threads(request["threads"])
    index, k = faiss.read_index(request["file"]), request["k"]
    yield "", lambda questions: index.search(questions, k)[1]


if __name__ == "__main__":
    main(build, settings)
