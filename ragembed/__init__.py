"""Training-free, corpus-fitted vector search for retrieval-augmented generation.

>>> import ragembed
>>> ragembed.index("docs")                                    # doctest: +SKIP
>>> for hit in ragembed.search("how are writers locked"):     # doctest: +SKIP
...     print(hit.source, hit.chunk.start_line, hit.score)

Importing this package imports neither NumPy nor any other large package; each name below is loaded when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragembed.version import __version__

if TYPE_CHECKING:
    from ragembed.config import EmbedderConfig
    from ragembed.documents.model import Chunk
    from ragembed.embedder import Embedder
    from ragembed.indexes.api import index, search
    from ragembed.indexes.arranging import Arrangement
    from ragembed.indexes.fusion import Fusion
    from ragembed.indexes.records import Hit
    from ragembed.indexes.store import Store

__all__ = [
    "Arrangement",
    "Chunk",
    "Embedder",
    "EmbedderConfig",
    "Fusion",
    "Hit",
    "Store",
    "__version__",
    "index",
    "search",
]

_HOMES = {
    "Arrangement": "ragembed.indexes.arranging",
    "Chunk": "ragembed.documents.model",
    "Embedder": "ragembed.embedder",
    "EmbedderConfig": "ragembed.config",
    "Fusion": "ragembed.indexes.fusion",
    "Hit": "ragembed.indexes.records",
    "Store": "ragembed.indexes.store",
    "index": "ragembed.indexes.api",
    "search": "ragembed.indexes.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragembed' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
