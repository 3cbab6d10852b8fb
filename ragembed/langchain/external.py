"""Use any LangChain ``Embeddings`` as the source of an embedder's raw vectors, or as the encoder of a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from langchain_core.embeddings import Embeddings

from ragembed.adapters.named_encoder import NamedEncoder
from ragembed.config.specs import Template
from ragembed.extractors.external import PROBE, SAME
from ragembed.extractors.protocol import Side
from ragembed.models.vectors import checked_vectors
from ragembed.types import Floats

_SERVERS: Mapping[str, tuple[str, str, str]] = {
    "langchain_openai": ("OpenAIEmbeddings", "openai_api_base", "openai:"),
    "langchain_ollama": ("OllamaEmbeddings", "base_url", "ollama:"),
}
"""The class that asks a server, its field for the address, and the kind of server, by package."""


class LangChainSource:
    """A source of raw vectors for an embedder: LangChain embeddings.

    Texts are not split into windows, because embeddings that have a limit split texts themselves.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self.name = model_name(embeddings)
        self._embeddings = embeddings
        self._symmetric: bool | None = None

    def encode(
        self, texts: Sequence[str], prompt: Template, side: Side, progress: Callable[[int], None] | None = None
    ) -> Floats:
        """Return vectors of unit length, float32, shape ``(n, d)``, of the texts inside ``prompt``."""
        prompted = [f"{prompt.before}{text}{prompt.after}" for text in texts]
        if side == "queries" or (side == "pseudo-queries" and not self._is_symmetric()):
            return checked_vectors([self._embeddings.embed_query(text) for text in prompted], len(texts), self.name)
        return documents_of_embeddings(self._embeddings, prompted, progress)

    def _is_symmetric(self) -> bool:
        """Return whether queries are embedded like documents; then many queries can be embedded together."""
        if self._symmetric is None:
            pair = [*self._embeddings.embed_documents([PROBE]), self._embeddings.embed_query(PROBE)]
            document, query = checked_vectors(pair, 2, self.name)
            self._symmetric = bool(document @ query >= SAME)
        return self._symmetric


def server_name(embeddings: Embeddings) -> str | None:
    """Return the name under which ``--model`` finds the same vectors, or None if no server is known for them."""
    kind = type(embeddings)
    package = kind.__module__.partition(".")[0]
    if package not in _SERVERS or kind.__name__ != _SERVERS[package][0]:
        return None
    _, field, prefix = _SERVERS[package]
    address, model = getattr(embeddings, field, None), getattr(embeddings, "model", None)
    if not isinstance(model, str):
        return None
    if address is None:
        return f"{prefix}{model}"
    path = "" if prefix == "openai:" else "/v1"
    return f"{str(address).rstrip('/')}{path}#{model}"


def documents_of_embeddings(
    embeddings: Embeddings, texts: Sequence[str], progress: Callable[[int], None] | None = None
) -> Floats:
    """Embed ``texts`` as documents, unit length, float32, shape ``(n, d)``; call ``progress`` at the end."""
    embed = getattr(embeddings, "embed_documents_array", embeddings.embed_documents)
    vectors = checked_vectors(embed(list(texts)), len(texts), model_name(embeddings))
    if progress is not None:
        progress(len(texts))
    return vectors


class ExternalEncoder(NamedEncoder):
    """The encoder that wraps LangChain embeddings other than :class:`RagEmbeddings`.

    The embeddings are identified only by :func:`model_name`, because LangChain has no other identity for them. They are
    not saved in the store, so you have to pass them to open it. If they have a method ``embed_documents_array`` that
    returns a float32 array of shape ``(n, d)``, it is used instead of ``embed_documents``.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        name = model_name(embeddings)
        super().__init__("external", name, f"external:{name}")
        self._embeddings = embeddings

    def raw_documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> Floats:
        """Embed ``texts`` as documents, float32, shape ``(n, d)``; call ``progress`` at the end."""
        return documents_of_embeddings(self._embeddings, texts, progress)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Embed ``texts`` as queries, float32, shape ``(n, d)``."""
        return checked_vectors([self._embeddings.embed_query(text) for text in texts], len(texts), self._model)


def model_name(embeddings: Embeddings) -> str:
    """Return the qualified name of the class, with the attribute ``model`` or ``model_name`` if there is one."""
    kind = type(embeddings)
    path = f"{kind.__module__}.{kind.__qualname__}"
    for attribute in ("model", "model_name"):
        if isinstance(value := getattr(embeddings, attribute, None), str):
            return f"{path}({value})"
    return path
