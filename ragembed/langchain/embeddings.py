"""``RagEmbeddings``: ragembed's corpus-fitted embedder as LangChain embeddings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

from ragembed.adapters.encoders import NamedEncoder
from ragembed.config.settings import DEFAULT_PRESET, Dtype, EmbedderConfig, QueryFit
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError, NotFittedError
from ragembed.extractors.build import GIVEN
from ragembed.extractors.external import PROBE, SAME, Role
from ragembed.models.vectors import checked_vectors
from ragembed.postprocess import unit_rows
from ragembed.types import Floats

_SETTINGS = tuple(field.name for field in fields(EmbedderConfig))
"""Fields that are settings of :class:`ragembed.EmbedderConfig`."""
_LOADING = threading.RLock()  # shared by all objects, because an object that contains a lock cannot be copied


_BASE_WINDOW = 8192
"""Window of a model that other embeddings ask: they split longer texts themselves."""


_SERVERS: Mapping[str, tuple[str, str, str]] = {
    "langchain_openai": ("OpenAIEmbeddings", "openai_api_base", "openai:"),
    "langchain_ollama": ("OllamaEmbeddings", "base_url", "ollama:"),
}
"""The class that asks a server, its field for the address, and the kind of server, by package."""


class RagEmbeddings(BaseModel, Embeddings):
    """LangChain embeddings that are fitted on your corpus.

    Fitting needs no labels and no training. Embedding a text never fits anything, because LangChain passes texts in
    batches, and each batch would get a different embedding space. Three ways lead to a fit:

    - :class:`RagVectorStore` fits the embeddings on its first documents, and again when it has outgrown the fit. The
      object that you pass then has the fit of the store.
    - :meth:`fit` fits them on texts that you choose. A store keeps this fit.
    - :meth:`load` loads saved embeddings.

    Embeddings that learn nothing from a corpus, such as ``RagEmbeddings(weighting="uniform")``, need no fit. After a
    fit, the vector of a text depends only on the text. Documents and queries are embedded differently. All vectors have
    unit length.

    Parameters
    ----------
    preset : str
        Name of a configuration; ``"minilm"`` by default.
    model : str, optional
        Hugging Face id or folder of a model, instead of the model of the preset.
    path : str, optional
        Folder of saved embeddings, which are loaded when first used. It cannot be combined with ``preset`` or
        ``model``.
    device : str, optional
        Device that embeds documents: ``"cpu"``, ``"gpu"`` (all GPUs) or ``"gpu:0,2"`` (these GPUs). By default, all
        visible GPUs, or the CPU if there is none.
    base : langchain_core.embeddings.Embeddings, optional
        Other embeddings that make the raw vectors, such as ``OpenAIEmbeddings``. They are not saved. Give them together
        with ``path`` to load embeddings that were fitted with them.
    extractor, revision, trust_remote_code, layers, template, query_template, document_prompt, query_prompt, prompt_name
    pooling, modules, normalize, truncate_dim, special_tokens, weighting, template_tokens, biases, weighting_corpus
    avg_corpus, postprocess_corpus, postprocess, query_fit, max_tokens, dtype, pseudo_queries, seed
        Settings as in :class:`ragembed.EmbedderConfig`; they replace those of the preset.

    Raises
    ------
    ConfigError
        If the preset is unknown, if ``path`` is combined with other settings, or if ``base`` is combined with a model
        or a setting that needs one.

    Examples
    --------
    Setup:

    .. code-block:: bash

        pip install '.[cpu,langchain]'  # in a clone of the repository

    Instantiate:

    .. code-block:: python

        from ragembed.langchain import RagEmbeddings

        embeddings = RagEmbeddings().fit(["first text of the corpus", "second text of the corpus"])

    Save and load:

    .. code-block:: python

        embeddings.save("my-embeddings")
        embeddings = RagEmbeddings.load("my-embeddings")

    Embed single text:

    .. code-block:: python

        vector = embeddings.embed_query("What is the second text?")
        len(vector)

    .. code-block:: text

        384

    Embed multiple texts:

    .. code-block:: python

        vectors = embeddings.embed_documents(["first text of the corpus", "second text of the corpus"])

    Async:

    .. code-block:: python

        vector = await embeddings.aembed_query("What is the second text?")

    Fit post-processors on the vectors of other embeddings:

    .. code-block:: python

        from langchain_core.embeddings import DeterministicFakeEmbedding

        base = DeterministicFakeEmbedding(size=8)
        fitted = RagEmbeddings(base=base, postprocess=["center", "normalize"]).fit(["first text", "second text"])

    Cache:

    A new fit changes the vectors, so use :attr:`cache_namespace` as the namespace of a cache.

    .. code-block:: python

        cached = CacheBackedEmbeddings.from_bytes_store(embeddings, store, namespace=embeddings.cache_namespace)
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=(), arbitrary_types_allowed=True)

    preset: str = DEFAULT_PRESET
    model: str | None = None
    path: str | None = None
    device: str | None = None
    base: Embeddings | None = None
    extractor: str | None = None
    revision: str | None = None
    trust_remote_code: bool | None = None
    layers: str | None = None
    template: str | None = None
    query_template: str | None = None
    document_prompt: str | None = None
    query_prompt: str | None = None
    prompt_name: str | None = None
    pooling: str | None = None
    modules: bool | None = None
    normalize: bool | None = None
    truncate_dim: int | None = None
    special_tokens: bool | None = None
    weighting: str | None = None
    template_tokens: Literal["common", "counted"] | None = None
    biases: tuple[str, ...] | None = None
    weighting_corpus: str | None = None
    avg_corpus: str | None = None
    postprocess_corpus: str | None = None
    postprocess: tuple[str, ...] | None = None
    query_fit: QueryFit | None = None
    max_tokens: int | None = None
    dtype: Dtype | None = None
    pseudo_queries: int | None = None
    seed: int | None = None

    _embedder: Embedder | None = PrivateAttr(default=None)
    _settings: Embedder | None = PrivateAttr(default=None)
    """The embedder without a fit, if a store has fitted the present one."""
    _fitted_by: str | None = PrivateAttr(default=None)
    """The path of the store whose fit these embeddings have."""

    @model_validator(mode="after")
    def _check_fields(self) -> RagEmbeddings:
        if self.path is not None and (self.preset != DEFAULT_PRESET or self._changes()):
            raise ConfigError(
                f"path {self.path!r} cannot be combined with preset, model or other settings of the vectors: give only "
                "path"
            )
        if isinstance(self.base, RagEmbeddings):
            raise ConfigError("base is a RagEmbeddings: expected embeddings that are not fitted")
        if self.base is not None and self.model is not None:
            raise ConfigError(f"model {self.model!r} cannot be combined with base: give only one of them")
        self._config()
        return self

    def _changes(self) -> dict[str, Any]:
        """Return the given settings of the embedder."""
        return {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}

    def _config(self) -> EmbedderConfig:
        changes = self._changes()
        if self.base is not None:
            changes.setdefault("max_tokens", _BASE_WINDOW)
            server = server_name(self.base)
            changes["model"] = server or f"{GIVEN}{model_name(self.base)}"
            if server is not None:  # ragembed asks the server for all dimensions
                changes.setdefault("truncate_dim", getattr(self.base, "dimensions", None))
        return EmbedderConfig.from_preset(self.preset, **changes)

    # Create, save and load

    @classmethod
    def load(cls, folder: str | Path, base: Embeddings | None = None) -> RagEmbeddings:
        """Load embeddings that :meth:`save` wrote.

        Parameters
        ----------
        folder : str or pathlib.Path
            The folder.
        base : langchain_core.embeddings.Embeddings, optional
            The ``base`` that they were fitted with, if there was one.
        """
        embeddings = cls(path=str(folder), base=base)
        embeddings.embedder  # noqa: B018  loads now, so that errors are raised here
        return embeddings

    @classmethod
    def from_embedder(cls, embedder: Embedder) -> RagEmbeddings:
        """Wrap an embedder.

        Parameters
        ----------
        embedder : ragembed.Embedder
            The embedder, fitted or not.
        """
        embeddings = cls(model=embedder.config.model) if embedder.source is None else cls()
        embeddings._embedder = embedder
        return embeddings

    @classmethod
    def from_model(
        cls, model: Any, tokenizer: Any, folder: str | Path, *, preset: str = DEFAULT_PRESET, device: str | None = None
    ) -> RagEmbeddings:
        """Use a Hugging Face model and tokenizer that are already in memory.

        Parameters
        ----------
        model, tokenizer : object
            Objects with a method ``save_pretrained``.
        folder : str or pathlib.Path
            Folder that both are written to, because a store has to find them when it is opened again. It must be empty
            or not exist.
        preset, device
            As for the class.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise ConfigError(f"{place} already exists and is not empty: give another folder for the model")
        for name, part in (("model", model), ("tokenizer", tokenizer)):
            if not callable(getattr(part, "save_pretrained", None)):
                raise ConfigError(
                    f"{name} is a {type(part).__name__}: expected a Hugging Face object with save_pretrained"
                )
        model.save_pretrained(place, safe_serialization=True)
        tokenizer.save_pretrained(place)
        return cls(model=str(place.absolute()), preset=preset, device=device)

    def fit(self, texts: Iterable[str]) -> RagEmbeddings:
        """Fit on the texts of a corpus, replacing any earlier fit.

        Vector stores that were created with the earlier fit keep it.

        Parameters
        ----------
        texts : iterable of str
            Texts of the corpus, at least one.
        """
        embedder = self.without_fit() or copy(self.embedder)
        self._embedder = embedder.fit(texts)
        self._settings = self._fitted_by = self.path = None
        return self

    def without_fit(self) -> Embedder | None:
        """Return an embedder with these settings and no fit, or None if the user has fitted or loaded the embeddings.

        A store that gets None keeps the fit. Otherwise it fits the embedder itself.
        """
        if self._settings is not None:
            return copy(self._settings)
        return None if self.embedder.is_fitted else copy(self.embedder)

    def take_fit(self, embedder: Embedder, settings: Embedder, store: Path) -> None:
        """Use the fit of the store in a folder from now on.

        Parameters
        ----------
        embedder, settings, store
            The embedder of the store, one with the same settings that is not fitted, and the folder.
        """
        self._embedder, self._settings, self._fitted_by = embedder, settings, str(store)

    @property
    def fitted_by(self) -> str | None:
        """The path of the store whose fit these embeddings have, or None if the user has fitted or loaded them."""
        return self._fitted_by

    def save(self, folder: str | Path) -> None:
        """Save fitted embeddings in a folder for :meth:`load`, without pickle.

        Parameters
        ----------
        folder : str or pathlib.Path
            The folder.
        """
        self.fitted().save(folder)

    # Embed

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts as documents: one vector per text, of unit length or all zeros.

        Parameters
        ----------
        texts : sequence of str
            The texts.
        """
        vectors: list[list[float]] = self.embed_documents_array(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a text as a query: a vector of unit length, or all zeros.

        Parameters
        ----------
        text : str
            The text.
        """
        vector: list[float] = self.embed_query_array(text).tolist()
        return vector

    def embed_documents_array(self, texts: Sequence[str]) -> Floats:
        """Embed texts as documents and return a float32 array, shape ``(n, d)``, an eighth of the memory of lists.

        Parameters
        ----------
        texts : sequence of str
            The texts.
        """
        return unit_rows(self.fitted().encode_documents(texts))

    def embed_query_array(self, text: str) -> Floats:
        """Embed a text as a query and return a float32 array, shape ``(d,)``.

        Parameters
        ----------
        text : str
            The text.
        """
        vector: Floats = unit_rows(self.fitted().encode_queries([text]))[0]
        return vector

    # Identity

    @property
    def is_fitted(self) -> bool:
        """Whether texts can be embedded: the embeddings are fitted, or learn nothing from a corpus."""
        return self._ready().is_fitted

    @property
    def dimension(self) -> int:
        """Number of dimensions of the vectors; the embeddings must be fitted."""
        return self.fitted().dim

    @property
    def fingerprint(self) -> str:
        """Hexadecimal hash of everything that determines a vector, including the fit."""
        return self.fitted().fingerprint

    @property
    def cache_namespace(self) -> str:
        """Namespace for a cache of these vectors; it differs between fits."""
        return f"ragembed-{self.fingerprint}"

    @property
    def embedder(self) -> Embedder:
        """The wrapped :class:`ragembed.Embedder`; loaded on first use if ``path`` was given."""
        with _LOADING:
            if self._embedder is None:
                self._embedder = self._make()
            return self._embedder

    def _make(self) -> Embedder:
        source = None if self.base is None else LangChainSource(self.base)
        if self.path is not None:
            return Embedder.load(self.path, device=self.device, source=source)
        return Embedder(self._config(), device=self.device, source=source)

    def _ready(self) -> Embedder:
        """Return the embedder, fitted if that needs no corpus."""
        embedder = self.embedder
        if not embedder.is_fitted:
            with _LOADING:
                if not embedder.is_fitted and not embedder.learns:
                    embedder.fit([""])  # any text makes the same fit
        return embedder

    def fitted(self) -> Embedder:
        """Return the embedder; raise :class:`NotFittedError` if it has to be fitted first."""
        embedder = self._ready()
        if not embedder.is_fitted:
            raise NotFittedError(
                "this RagEmbeddings is not fitted: add documents to a RagVectorStore with it, or call "
                "embeddings.fit(texts) with the texts of your corpus, or load saved embeddings with "
                "RagEmbeddings.load(folder)"
            )
        return embedder


# Other embeddings


class LangChainSource:
    """A source of raw vectors for an embedder: LangChain embeddings.

    Texts are not split into windows, because embeddings that have a limit split texts themselves.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self.name = model_name(embeddings)
        self._embeddings = embeddings
        self._symmetric: bool | None = None

    def encode(self, texts: Sequence[str], role: Role, progress: Callable[[int], None] | None = None) -> Floats:
        """Return vectors of unit length, float32, shape ``(n, d)``, of the texts inside the template of their role."""
        prompted = [f"{role.template.before}{text}{role.template.after}" for text in texts]
        if role.side == "queries" or (role.side == "pseudo-queries" and not self._is_symmetric()):
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
    """Embed ``texts`` as documents, unit length, float32, shape ``(n, d)``; call ``progress`` at the end.

    A method ``embed_documents_array``, which returns an array, is used if there is one.
    """
    embed = getattr(embeddings, "embed_documents_array", embeddings.embed_documents)
    vectors = checked_vectors(embed(list(texts)), len(texts), model_name(embeddings))
    if progress is not None:
        progress(len(texts))
    return vectors


class ExternalEncoder(NamedEncoder):
    """The encoder that wraps other LangChain embeddings, which :func:`model_name` identifies.

    They are not saved in the store, so you have to pass them to open it.
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
