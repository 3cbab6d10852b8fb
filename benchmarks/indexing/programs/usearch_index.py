"""USearch's graph, with its defaults, in a type of numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from asking import EFFORTS, Floats, Request, Rows, Search, blocks, main, mapped
from usearch.index import Index


def build(request: Request) -> None:
    """Write the index."""
    vectors = mapped(request)
    index = Index(ndim=vectors.shape[1], metric="ip", dtype=request["dtype"])
    for start, block in blocks(vectors):
        index.add(np.arange(start, start + len(block)), block, threads=request["threads"])
    index.save(request["file"])


def settings(request: Request) -> Iterator[tuple[str, Search]]:
    """Yield searches of rising ``expansion_search``."""
    index = Index.restore(request["file"])
    threads, k = request["threads"], request["k"]

    def search(questions: Floats) -> Rows:
        keys: Rows = index.search(questions, k, threads=threads).keys.astype(np.int64)
        return keys.reshape(len(questions), -1)

    for effort in EFFORTS:
        index.expansion_search = effort
        yield f"expansion {effort}", search


if __name__ == "__main__":
    main(build, settings)
