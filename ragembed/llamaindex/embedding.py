"""``RagembedEmbedding``: ragembed's corpus-fitted embedder as a LlamaIndex embedding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llama_index.core.embeddings import BaseEmbedding
from pydantic import PrivateAttr
from typing_extensions import Self

from ragembed.adapters.encoders import LazyEmbedder
from ragembed.config.settings import DEFAULT_PRESET
from ragembed.embedder import Embedder
from ragembed.progress import in_thread


class RagembedEmbedding(BaseEmbedding):
    """LlamaIndex embedding that is fitted on your corpus. All vectors have unit length.

    Call :meth:`fit` once with the texts of your corpus, give the ``path`` of a saved embedder, or choose ``settings``
    that learn nothing, such as ``{"weighting": "uniform"}``.

    Parameters
    ----------
    path : str, optional
        Folder of a saved embedder.
    preset : str
        Name of a configuration, without ``path``.
    settings : dict, optional
        Fields of :class:`ragembed.EmbedderConfig` that replace those of the preset.
    device : str, optional
        Device, as for :class:`ragembed.Embedder`.
    **kwargs
        Other fields of LlamaIndex's embeddings, such as ``embed_batch_size``.

    Examples
    --------
    .. code-block:: python

        from ragembed.llamaindex import RagembedEmbedding
        embedding = RagembedEmbedding().fit(["Tea is brewed with hot water.", "Birds fly south in autumn."])
        len(embedding.get_query_embedding("How do I brew tea?"))
    """

    path: str | None = None
    preset: str = DEFAULT_PRESET
    settings: dict[str, Any] | None = None
    device: str | None = None

    _lazy: LazyEmbedder = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        """Prepare the embedder, which is loaded when it is used."""
        super().model_post_init(context)
        self._lazy = LazyEmbedder(self.path, self.preset, self.settings, self.device)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "RagembedEmbedding"

    @property
    def embedder(self) -> Embedder:
        """The wrapped :class:`ragembed.Embedder`; loaded on first use if ``path`` was given."""
        return self._lazy.embedder

    def fit(self, texts: Iterable[str]) -> Self:
        """Fit the embedder on the texts of a corpus. Save it with ``embedder.save(folder)``."""
        self.embedder.fit(texts)
        return self

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._lazy.encode_query(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await in_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._lazy.encode_documents(texts).tolist()
        return vectors
