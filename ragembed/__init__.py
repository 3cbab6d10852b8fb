"""ragembed: training-free, corpus-fitted vector search for retrieval-augmented generation.

>>> from ragembed import Embedder
>>> embedder = Embedder().fit(["first text", "second text"])          # doctest: +SKIP
>>> embedder.encode_queries(["a question"]).shape                      # doctest: +SKIP
(1, 384)

Importing this package imports none of torch, transformers, faiss and langchain_core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ragembed.version import __version__

if TYPE_CHECKING:
    from ragembed.config import EmbedderConfig
    from ragembed.embedder import Embedder

__all__ = ["Embedder", "EmbedderConfig", "__version__"]

_HOMES = {"Embedder": "ragembed.embedder", "EmbedderConfig": "ragembed.config"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ragembed' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
