"""Corpus-fitted vector search for retrieval-augmented generation, without training.

:func:`index` puts files into a store, :func:`search` searches it, and :func:`diagnose` checks it. :class:`Store` and
:class:`Embedder` give access to every step.

>>> import ragembed
>>> ragembed.index("docs")                                    # doctest: +SKIP
>>> for hit in ragembed.search("how are writers locked"):     # doctest: +SKIP
...     print(hit.source, hit.chunk.start_line, hit.score)

``import ragembed`` imports neither NumPy nor any other large package. Each public name is loaded on first use.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ragembed.extras import lazy_attributes

if TYPE_CHECKING:
    from ragembed.config.settings import EmbedderConfig
    from ragembed.documents.model import Chunk
    from ragembed.embedder import Embedder
    from ragembed.indexes.api import index, search
    from ragembed.indexes.collection import Collection
    from ragembed.indexes.doctor import diagnose
    from ragembed.indexes.search.fusion import Fusion
    from ragembed.indexes.search.ranking import RankingOptions
    from ragembed.indexes.store import Store
    from ragembed.indexes.types import Hit
    from ragembed.version import __version__

__all__ = [
    "Chunk",
    "Collection",
    "Embedder",
    "EmbedderConfig",
    "Fusion",
    "Hit",
    "RankingOptions",
    "Store",
    "__version__",
    "diagnose",
    "index",
    "search",
]

# Libraries read these when they are imported. A value that the user has set takes precedence.
for _name, _value in (("HF_HUB_DISABLE_TELEMETRY", "1"), ("RAY_USAGE_STATS_ENABLED", "0")):
    os.environ.setdefault(_name, _value)

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "config.settings": ("EmbedderConfig",),
        "documents.model": ("Chunk",),
        "embedder": ("Embedder",),
        "indexes.api": ("index", "search"),
        "indexes.collection": ("Collection",),
        "indexes.doctor": ("diagnose",),
        "indexes.search.ranking": ("RankingOptions",),
        "indexes.search.fusion": ("Fusion",),
        "indexes.types": ("Hit",),
        "indexes.store": ("Store",),
        "version": ("__version__",),
    },
)
