"""hnswlib's graph, with the settings of its examples."""

from __future__ import annotations

from collections.abc import Iterator

import hnswlib
import numpy as np
from asking import EFFORTS, Request, Search, blocks, main, mapped

_LINKS, _EF_CONSTRUCTION = 16, 200


def build(request: Request) -> None:
    """Write the index."""
    vectors = mapped(request)
    index = hnswlib.Index("ip", vectors.shape[1])
    index.init_index(len(vectors), M=_LINKS, ef_construction=_EF_CONSTRUCTION)
    for start, block in blocks(vectors):
        index.add_items(block, np.arange(start, start + len(block)), num_threads=request["threads"])
    index.save_index(request["file"])


def settings(request: Request) -> Iterator[tuple[str, Search]]:
    """Yield searches of rising ``ef``."""
    index = hnswlib.Index("ip", request["dim"])
    index.load_index(request["file"])
    threads, k = request["threads"], request["k"]
    for effort in EFFORTS:
        index.set_ef(effort)
        yield f"ef {effort}", lambda questions: index.knn_query(questions, k, num_threads=threads)[0]


if __name__ == "__main__":
    main(build, settings)
