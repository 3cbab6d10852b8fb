"""ragembed: training-free, corpus-fitted vector search for retrieval-augmented generation.

>>> from ragembed import Embedder
>>> embedder = Embedder().fit(["first text", "second text"])          # doctest: +SKIP
>>> embedder.encode_queries(["a question"]).shape                      # doctest: +SKIP
(1, 384)

Importing this package imports none of torch, transformers, faiss and langchain_core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragembed.lazy import lazy_attributes
from ragembed.version import __version__

if TYPE_CHECKING:
    from ragembed.config import EmbedderConfig
    from ragembed.embedder import Embedder

__all__ = ["Embedder", "EmbedderConfig", "__version__"]

__getattr__ = lazy_attributes(__name__, {"config": ("EmbedderConfig",), "embedder": ("Embedder",)})
