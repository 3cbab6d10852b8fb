"""The embedder: an extractor and a chain of post-processors, fitted on a corpus.

A fit is always explicit and has two parts. The fit of the extractor learns token weights and static vectors, which
determine the *raw* vectors. The fit of the chain learns the post-processors, which turn raw vectors into embeddings; it
can be repeated without the model.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragembed import embedder_files
from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig, QueryFit
from ragembed.config.specs import Words, parse_postprocessor
from ragembed.corpus import Corpus, ItemReservoir, PseudoQueries, draw_pseudo_queries
from ragembed.encoder import VectorEncoder
from ragembed.errors import ConfigError, ModelError, NotFittedError
from ragembed.extractors.build import Built, build_extractor
from ragembed.extractors.external import VectorSource
from ragembed.extractors.protocol import Extractor, Progress, Side, Tokenizer
from ragembed.extractors.sharing import SharedFit, encode_together, fit_together
from ragembed.languages import LATIN, reads_script, scripts
from ragembed.models.choice import fast_dtype, find_devices
from ragembed.postprocess import Chain, TwoSidedChain
from ragembed.tensor_map import release, with_prefix
from ragembed.types import Floats, State

if TYPE_CHECKING:
    from ragembed.contributions import TextParts

_RESOLVED = (
    *("pooling", "modules", "truncate_dim", "weighting", "template", "query_template"),
    *("document_prompt", "query_prompt", "prompt_name"),
)
"""Settings that depend on the model if they are left open."""

FIT_LIMIT = 100_000
"""The most texts that post-processors are fitted on; a larger corpus is sampled, with the seed of the configuration."""

TRUST_VARIABLE = "RAGEMBED_TRUST_REMOTE_CODE"
"""The environment variable that allows saved embedders to run the code of their model if it is 1."""

_HASHED_AT_ONCE = 1 << 20  # bytes; hashing in blocks keeps most of a mapped table out of memory


@dataclass(frozen=True, slots=True)
class FittedOn:
    """The numbers of documents and pseudo-queries that the chain was fitted on."""

    documents: int
    pseudo_queries: int


class Embedder(VectorEncoder):
    """Turn texts into vectors that are fitted to one corpus.

    An embedder has two stages: an extractor turns a text into a raw vector, and a chain of post-processors turns raw
    vectors into embeddings. Call :meth:`fit` or :meth:`load` before you encode texts.

    Parameters
    ----------
    config : EmbedderConfig, optional
        The settings of the embedder. The default is the preset ``"minilm"``.
    device : str, optional
        Where documents are encoded. None and ``"auto"`` use every visible GPU, or the CPU if there is none. ``"cpu"``
        uses the CPU, ``"gpu"`` every visible GPU, ``"gpu:0"`` or ``"gpu:0,2"`` the GPUs with these numbers. Any other
        value is taken as the name of a PyTorch device, such as ``"mps"``. A device that is not available raises
        :class:`ragembed.errors.GpuError` at the first fit or encoding.
    download : bool, default True
        Whether to download a model that is not on this machine.
    source : VectorSource, optional
        An object that makes the raw vectors, instead of the model that ``config`` names. It is not saved.

    Attributes
    ----------
    config : EmbedderConfig
        The settings. After a fit, ``max_tokens``, ``dtype``, ``pooling``, ``weighting``, the templates and other
        settings that were left open hold the values in use.
    device : str or None
        The device that was given.
    source : VectorSource or None
        The source of the raw vectors that was given, or None if the configuration says where they come from.
    fitted_on : FittedOn or None
        The numbers of documents and pseudo-queries that the post-processors were fitted on; None before a fit.
    fitted_queries : PseudoQueries or None
        The pseudo-queries of the last fit, with their raw vectors. They are not saved.

    Examples
    --------
    >>> from ragembed import Embedder
    >>> texts = ["Tea is brewed with hot water.", "A wing lifts because air flows.", "Locks keep writers apart."]
    >>> embedder = Embedder.from_preset("re").fit(texts)
    >>> documents = embedder.encode_documents(texts)
    >>> documents.shape
    (3, 768)
    >>> queries = embedder.encode_queries(["how is tea brewed"])
    >>> int((queries @ documents.T).argmax())
    0
    """

    def __init__(
        self,
        config: EmbedderConfig | None = None,
        *,
        device: str | None = None,
        download: bool = True,
        source: VectorSource | None = None,
    ) -> None:
        self.config = _with_absolute_paths(config or EmbedderConfig.from_preset(DEFAULT_PRESET))
        self.fitted_on: FittedOn | None = None
        self.fitted_queries: PseudoQueries | None = None
        self.device = device
        self._download = download
        self.source = source
        self._texts: int | None = None
        self._chain: TwoSidedChain | None = None
        self._reads: dict[str, bool] = {}

    @classmethod
    def from_preset(cls, name: str, *, device: str | None = None, **changes: Any) -> Embedder:
        """Return an unfitted embedder from a preset, with some settings changed.

        Parameters
        ----------
        name : str
            Name of a preset, such as ``"minilm"`` or ``"t4"``; see :meth:`ragembed.EmbedderConfig.from_preset`.
        device : str, optional
            As for :class:`Embedder`.
        **changes
            Fields of :class:`ragembed.EmbedderConfig` with their new values.

        Raises
        ------
        ragembed.errors.ConfigError
            If the preset, a field or a value is not accepted.

        Examples
        --------
        >>> from ragembed import Embedder
        >>> Embedder.from_preset("minilm", query_fit="shared").config.query_fit
        'shared'
        """
        return cls(EmbedderConfig.from_preset(name, **changes), device=device)

    # Fitting

    @property
    def is_fitted(self) -> bool:
        """Whether the embedder is fitted, so that :meth:`encode_documents` and :meth:`encode_queries` can be called."""
        return self._chain is not None

    @property
    def learns(self) -> bool:
        """Whether a fit depends on the texts that it is given.

        It does not if the token weights are uniform, or come from a corpus that the configuration names, and the
        post-processors have nothing to learn. Finding this out may load the model.
        """
        config = self.config
        learns_chain = config.postprocess_corpus is None and Chain(config.postprocess).learns
        return learns_chain or (config.fits_tokens and self.resolved_config().fits_tokens)

    def fit(self, texts: Iterable[str]) -> Embedder:
        """Fit token weights, static vectors and post-processors on the texts of a corpus.

        An earlier fit is replaced. If the fit fails, the earlier one stays in place. Returns this embedder.

        Parameters
        ----------
        texts : iterable of str
            The texts of the corpus, read once as a stream. Post-processors are fitted on at most ``FIT_LIMIT``
            (100,000) of them, drawn with the seed of the configuration.

        Raises
        ------
        ragembed.errors.ConfigError
            If there is no text, or ``texts`` is a single str.
        ragembed.errors.ModelError
            If the model is not found.
        ragembed.errors.GpuError
            If the requested GPU is not available.
        """
        sample = ItemReservoir[str](FIT_LIMIT, self.config.seed)
        fresh = copy(self)  # if the fit fails, this embedder keeps its earlier fit
        fresh.fit_extractor(sample.watch(_reject_str(texts)))
        fits_here = fresh.config.postprocess_corpus is None and Chain(fresh.config.postprocess).learns
        fresh.fit_chain(fresh.raw_documents(sample.items if fits_here else []), sample.items)
        self.__dict__ = fresh.__dict__
        return self

    def fit_extractor(self, texts: Iterable[str]) -> Embedder:
        """Fit token weights and static vectors only, on texts that are read once; call :meth:`fit_chain` afterwards.

        Errors are as for :meth:`fit`. Returns this embedder.

        Parameters
        ----------
        texts : iterable of str
            The texts of the corpus.

        Examples
        --------
        >>> from ragembed import Embedder
        >>> texts = ["Tea is brewed with hot water.", "Locks keep writers apart."]
        >>> embedder = Embedder.from_preset("re", postprocess=["center", "normalize"]).fit_extractor(texts)
        >>> embedder.is_fitted
        False
        >>> embedder.fit_chain(embedder.raw_documents(texts), texts).fitted_on
        FittedOn(documents=2, pseudo_queries=2)
        """
        fit_extractors([self], texts)
        return self

    def part_of_fit(self, texts: Iterable[str]) -> State:
        """Return the contribution of some texts to the fit of the extractor, as arrays for :meth:`fit_parts`.

        ``texts`` is read once as a stream. The embedder does not change.

        Parameters
        ----------
        texts : iterable of str
            Texts of one part of the corpus.
        """
        fit = SharedFit([self.extractor])
        fit.gather(_reject_str(texts), corpora=False)
        return fit.part()

    def fit_parts(self, parts: Iterable[Mapping[str, NDArray[Any]]], texts: int) -> Embedder:
        """Fit token weights and static vectors from what :meth:`part_of_fit` returned for all parts of a corpus.

        ``texts`` is the number of texts in the corpus. Up to rounding, the fit equals that of :meth:`fit_extractor`.

        Parameters
        ----------
        parts : iterable of mapping
            The arrays of each part of the corpus, as :meth:`part_of_fit` returns them.
        texts : int
            Number of texts in the corpus.
        """
        config = self.resolved_config()
        built = self._fresh(config)
        fit = SharedFit([built.extractor])
        for part in parts:
            fit.add(part)
        fit.gather(None)
        fit.finish()
        self._take_fit(config, built, texts)
        return self

    def _fresh(self, config: EmbedderConfig) -> Built:
        """Build an unfitted extractor for ``config``."""
        return build_extractor(config, device=self.device, download=self._download, source=self.source)

    def fit_chain(self, raw_documents: Floats, texts: Iterable[str], known: PseudoQueries | None = None) -> Embedder:
        """Fit the post-processors only, on raw document vectors and on pseudo-queries drawn from ``texts``.

        If the configuration names a ``postprocess_corpus``, its texts replace both arguments. Afterwards
        ``fitted_queries`` has the pseudo-queries, or None if the query side has no fit of its own. Returns this
        embedder.

        Parameters
        ----------
        raw_documents : numpy.ndarray
            Raw vectors of documents, float32, shape ``(n, d)``, as :meth:`raw_documents` returns them.
        texts : iterable of str
            The texts that pseudo-queries are drawn from.
        known : PseudoQueries, optional
            The pseudo-queries of an earlier fit of the same extractor, which are not encoded again.

        Raises
        ------
        ragembed.errors.ConfigError
            If there is no vector, or the ``postprocess_corpus`` has no text.
        ragembed.errors.RankError
            If a post-processor needs more directions than the rank of the vectors.
        ragembed.errors.NotFittedError
            If the extractor is not fitted.
        """
        self.__dict__.pop("fingerprint", None)
        self.fitted_queries = None
        unfitted = Chain(self.config.postprocess)
        if not unfitted.learns:
            self._chain, self.fitted_on = TwoSidedChain(unfitted, unfitted), FittedOn(len(raw_documents), 0)
            return self
        if self.config.postprocess_corpus is not None:
            sample = ItemReservoir[str](FIT_LIMIT, self.config.seed)
            deque(sample.watch(Corpus(Path(self.config.postprocess_corpus))), maxlen=0)
            if not sample.items:
                raise ConfigError(
                    f"the corpus {self.config.postprocess_corpus} has no text: expected one text per line"
                )
            texts, raw_documents = sample.items, self.raw_documents(sample.items)
        raw_queries = None
        if self.config.query_fit == "separate":
            drawn = draw_pseudo_queries(texts, self.config.pseudo_queries, self.config.seed)
            if drawn:
                self.fitted_queries = PseudoQueries.of(drawn, self.raw_pseudo_queries, known)
            raw_queries = self.fitted_queries.raw if self.fitted_queries else raw_documents
        self._chain = TwoSidedChain.fit(self.config.postprocess, raw_documents, raw_queries)
        self.fitted_on = FittedOn(len(raw_documents), 0 if raw_queries is None else len(raw_queries))
        return self

    def with_postprocess(self, postprocess: Sequence[str], query_fit: QueryFit) -> Embedder:
        """Return an embedder with the same fitted extractor and another chain, to be fitted by :meth:`fit_chain`.

        Parameters
        ----------
        postprocess : sequence of str
            The new post-processors, such as ``["center", "normalize"]``.
        query_fit : {"separate", "shared"}
            Whether the new chain is fitted on pseudo-queries separately.
        """
        config = self.config.replace(postprocess=tuple(postprocess), query_fit=query_fit)
        embedder = Embedder(config, device=self.device, download=self._download, source=self.source)
        embedder._texts = self._texts
        embedder.__dict__["_built"] = self._built
        return embedder

    # Encoding

    def encode_documents(self, texts: Sequence[str]) -> Floats:
        """Return the embeddings of documents.

        Parameters
        ----------
        texts : sequence of str
            The documents. A text longer than the model's window is read in several windows.

        Returns
        -------
        numpy.ndarray
            One row per text, float32, shape ``(n, d)``.

        Raises
        ------
        ragembed.errors.NotFittedError
            If the embedder is not fitted.
        ragembed.errors.ConfigError
            If ``texts`` is a single str.
        """
        self._require_fitted()
        return self.postprocess_documents(self.raw_documents(texts))

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return the embeddings of queries, always computed in float32; errors are as for :meth:`encode_documents`.

        Parameters
        ----------
        texts : sequence of str
            The queries.

        Returns
        -------
        numpy.ndarray
            One row per query, float32, shape ``(n, d)``.
        """
        self._require_fitted()
        return self.postprocess_queries(self.raw_queries(texts))

    def raw_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Floats:
        """Return the raw vectors of documents, before post-processing, float32, shape ``(n, d)``.

        Errors are as for :meth:`encode_documents`.

        Parameters
        ----------
        texts : sequence of str
            The documents.
        progress : callable, optional
            Called now and then with the number of texts completed since the last call.
        """
        self._require_extractor()
        return self.extractor.encode(_text_list(texts), "documents", progress)

    def raw_without_framework(self, texts: Sequence[str], progress: Progress | None = None) -> Floats | None:
        """Return the raw vectors of documents if they are faster to compute without PyTorch, otherwise None.

        An extractor without a model never needs PyTorch. With a BERT model, a small number of texts (at most eight,
        with at most a thousand tokens in total) is computed in float32 on the CPU, unless a GPU or bfloat16 was
        requested.

        Parameters
        ----------
        texts : sequence of str
            Texts to encode.
        progress : callable, optional
            As in :meth:`raw_documents`.
        """
        self._require_extractor()
        texts, model = _text_list(texts), self._built.encoding_model
        if model is None:
            return self.extractor.encode(texts, "documents", progress)
        return self.extractor.encode(texts, "few-documents", progress) if model.is_faster_without_torch(texts) else None

    def raw_queries(self, texts: Sequence[str]) -> Floats:
        """Return the raw vectors of queries, before post-processing.

        Parameters
        ----------
        texts : sequence of str
            The queries.

        Returns
        -------
        numpy.ndarray
            One row per query, float32, shape ``(n, d)``.

        Raises
        ------
        ragembed.errors.NotFittedError
            If the extractor is not fitted.
        ragembed.errors.ConfigError
            If ``texts`` is a single str.

        Examples
        --------
        >>> from ragembed import Embedder
        >>> embedder = Embedder.from_preset("re").fit(["Tea is brewed with hot water.", "Locks keep writers apart."])
        >>> embedder.raw_queries(["how is tea brewed", "who holds the lock"]).shape
        (2, 768)
        """
        self._require_extractor()
        return self.extractor.encode(_text_list(texts), "queries")

    def raw_pseudo_queries(self, texts: Sequence[str]) -> Floats:
        """Return the raw vectors of pseudo-queries: with the query template, computed like documents.

        Parameters
        ----------
        texts : sequence of str
            Pseudo-queries, without the template.
        """
        self._require_extractor()
        return self.extractor.encode(_text_list(texts), "pseudo-queries")

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Return the embeddings of raw document vectors, float32, shape ``(n, d')``; the model is not needed.

        ``d'`` differs from ``d`` if a post-processor reduces the dimension.

        Parameters
        ----------
        raw : numpy.ndarray
            Raw vectors, float32, shape ``(n, d)``; another ``d`` than that of the fit raises
            :class:`ragembed.errors.ConfigError`.
        """
        return self._require_fitted().documents.transform(raw)

    def token_parts(self, text: str, side: Side, raw: Floats | None = None) -> TextParts:
        """Return the unit vector of a text as the sum of the contributions of its tokens.

        Parameters
        ----------
        text : str
            The text.
        side : {"documents", "queries"}
            Whether the text is a document or a query.
        raw : numpy.ndarray, optional
            The stored raw vector of the text, shape ``(d,)``, if it is rounded.

        Returns
        -------
        TextParts
            Tokens, one row per token, and the rest; together they sum to the vector.

        Raises
        ------
        ragembed.errors.NotFittedError
            If the embedder is not fitted.

        Examples
        --------
        >>> from ragembed import Embedder
        >>> embedder = Embedder.from_preset("re").fit(["Tea is brewed with hot water.", "Locks keep writers apart."])
        >>> [token.text for token in embedder.token_parts("hot water", "queries").tokens]
        ['hot', 'water']
        """
        chain = self._require_fitted()
        side_chain = chain.documents if side == "documents" else chain.queries
        from ragembed.contributions import text_parts

        return text_parts(text, self.extractor.token_parts(text, side), side_chain, raw)

    def postprocess_queries(self, raw: Floats) -> Floats:
        """Return the embeddings of raw query vectors; the model is not needed.

        Parameters
        ----------
        raw : numpy.ndarray
            Raw vectors, float32, shape ``(n, d)``.

        Returns
        -------
        numpy.ndarray
            The embeddings, float32, shape ``(n, d')``.

        Raises
        ------
        ragembed.errors.NotFittedError
            If the chain is not fitted.
        ragembed.errors.ConfigError
            If ``raw`` has another dimension than the fit.

        Examples
        --------
        >>> from ragembed import Embedder
        >>> embedder = Embedder.from_preset("re").fit(["Tea is brewed with hot water.", "Locks keep writers apart."])
        >>> embedder.postprocess_queries(embedder.raw_queries(["hot tea"])).shape
        (1, 768)
        """
        return self._require_fitted().queries.transform(raw)

    @property
    def chain(self) -> TwoSidedChain:
        """The fitted post-processors; raises :class:`ragembed.errors.NotFittedError` before a fit."""
        return self._require_fitted()

    # Identity

    @property
    def dim(self) -> int:
        """Dimension of the embeddings."""
        fitted = self._chain.documents.dim if self._chain is not None else None
        return self.extractor.dim if fitted is None else fitted

    def device_names(self) -> tuple[str, ...]:
        """Return the PyTorch names of the devices that encode documents, such as ``("cpu",)`` or ``("cuda:0",)``.

        An extractor without a model always uses the CPU. Raises :class:`ragembed.errors.GpuError` if the requested GPU
        is not available, and :class:`ragembed.errors.ConfigError` if ``device`` is not the name of a device.
        """
        if not self._built.needs_model:
            return ("cpu",)
        return find_devices(self.device)

    @property
    def encodes_with_model(self) -> bool:
        """Whether encoding a text runs a model."""
        return self._built.encoding_model is not None

    @property
    def encodes_one_by_one(self) -> bool:
        """Whether a model encodes documents window by window, so that small parts take no longer than large ones."""
        model = self._built.encoding_model
        return model is not None and model.encodes_one_by_one

    @property
    def fits_with_model(self) -> bool:
        """Whether fitting the embedder, or encoding a text, runs a model."""
        return self._built.needs_model

    def query_note(self, query: str) -> str | None:
        """Return a note if the query is longer than the model's window, which is all that its vector depends on.

        Parameters
        ----------
        query : str
            The query.
        """
        model = self._built.encoding_model
        if model is None or len(query) <= model.rooms["queries"]:  # a token has a character at least
            return None
        unread = len(model.query_ids(query)) - len(model.frames["queries"].prefix) - model.rooms["queries"]
        if unread <= 0:
            return None
        return f"the query is longer than the model's window: its last {unread:,} tokens count only as words"

    @property
    def refittable(self) -> Embedder:
        """The embedder itself: a store can fit it again."""
        return self

    @property
    def is_remote(self) -> bool:
        """Whether the raw vectors come from a server or another library, so that their tokens are not known."""
        return self._built.is_external

    @property
    def seed(self) -> int:
        """The seed of the configuration."""
        return self.config.seed

    @property
    def max_tokens(self) -> int:
        """Number of tokens in a window of the model, special tokens included."""
        return self._built.max_tokens

    @property
    def text_tokens(self) -> int:
        """Number of tokens of a text that fit in one window, without special tokens and template."""
        return self._built.text_tokens

    @cached_property
    def raw_fingerprint(self) -> str:
        """Hash, in hex, of everything that determines a raw vector; needs :meth:`fit_extractor`."""
        self._require_extractor()
        return _digest(self.extractor.config, self.extractor.fingerprint_arrays())

    @cached_property
    def fingerprint(self) -> str:
        """Hash, in hex, of everything that determines an embedding; needs :meth:`fit`."""
        chain = self._require_fitted()
        identity = {
            "raw": self.raw_fingerprint,
            "postprocess": [parse_postprocessor(step) for step in self.config.postprocess],
            "query_fit": self.config.query_fit if chain.documents.learns else "shared",
        }
        return _digest(identity, chain.state())

    def describe(self) -> dict[str, Any]:
        """Return the settings and the sizes of the fit, as JSON values.

        The keys are ``kind`` (always ``"ragembed"``), ``model``, ``config`` and ``fitted_on``, which has the numbers of
        ``texts``, ``documents`` and ``pseudo_queries``. Raises :class:`ragembed.errors.NotFittedError` before
        :meth:`fit_extractor`.
        """
        return {
            "kind": "ragembed",
            "model": self.config.model,
            "config": self.config.to_dict(),
            "fitted_on": self._fitted_counts(),
        }

    def _fitted_counts(self) -> dict[str, int]:
        fitted_on = self.fitted_on or FittedOn(0, 0)
        return {
            "texts": self._require_extractor(),
            "documents": fitted_on.documents,
            "pseudo_queries": fitted_on.pseudo_queries,
        }

    @property
    def extractor(self) -> Extractor:
        """The extractor; raises :class:`ragembed.errors.ModelError` if its model is not found."""
        return self._built.extractor

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that splits texts into tokens."""
        return self._built.tokenizer

    def unread_share(self, text: str) -> float:
        """Return the share of the letters of ``text`` in scripts that the model cannot read, from 0 to 1.

        A model cannot read a script if its tokenizer has no words of it: it maps them to the unknown token, or splits
        them into letters or bytes. Latin letters count as read. An external model counts as reading every script.

        Parameters
        ----------
        text : str
            A text, such as a query.

        Examples
        --------
        >>> from ragembed import Embedder
        >>> embedder = Embedder()
        >>> embedder.unread_share("tea"), embedder.unread_share("чай")  # doctest: +SKIP
        (0.0, 1.0)
        """
        if text.isascii() or self.is_remote:
            return 0.0
        counts = scripts(text)
        for script in counts.keys() - self._reads.keys():
            self._reads[script] = script == LATIN or reads_script(self.tokenizer, script, text)
        return sum(count for script, count in counts.items() if not self._reads[script]) / max(counts.total(), 1)

    @property
    def source_sha256(self) -> str:
        """Hash, in hex, of the files that ``config.model`` names, as far as the extractor uses them."""
        return self._built.source_sha256

    @property
    def set_aside(self) -> tuple[str, ...]:
        """What the model's package states and the settings leave out, such as ``"the pooling 'cls'"``."""
        return self._built.set_aside()

    # Saving and loading

    def save(self, folder: str | Path) -> None:
        """Write the fitted embedder to a folder, as ``config.json`` and ``state.safetensors``.

        Parameters
        ----------
        folder : str or Path
            The folder. It is created if it does not exist.

        Raises
        ------
        ragembed.errors.NotFittedError
            If the embedder is not fitted.
        ragembed.errors.ModelError
            If ``folder`` is a file, or holds another program's ``config.json`` or ``state.safetensors``.

        Examples
        --------
        >>> import tempfile
        >>> from ragembed import Embedder
        >>> embedder = Embedder.from_preset("re").fit(["Tea is brewed with hot water.", "Locks keep writers apart."])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     embedder.save(folder)
        ...     Embedder.load(folder).fingerprint == embedder.fingerprint
        True
        """
        chain = self._require_fitted()
        arrays: dict[str, NDArray[Any]] = {f"chain.{name}": array for name, array in chain.state().items()}
        arrays.update({f"extractor.{name}": array for name, array in self.extractor.state().items()})
        about = {
            "config": self.config.to_dict(),
            "source_sha256": self.source_sha256,
            "fingerprint": self.fingerprint,
            "fitted_on": self._fitted_counts(),
        }
        embedder_files.write(Path(folder), about, arrays)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str | None = None,
        model: str | None = None,
        source: VectorSource | None = None,
    ) -> Embedder:
        """Read an embedder that :meth:`save` wrote.

        The model itself is not part of the saved files and must be on this machine; it is never downloaded.

        Parameters
        ----------
        folder : str or Path
            The folder that was given to :meth:`save`.
        device : str, optional
            As for :class:`Embedder`.
        model : str, optional
            The folder or file of the model, or its server, if it was moved since the embedder was saved.
        source : VectorSource, optional
            The object that made the raw vectors, if the embedder was fitted with one.

        Raises
        ------
        ragembed.errors.ModelError
            If the files are missing, damaged or of another format, or if the model is not found or is not the one that
            the embedder was fitted with.
        """
        about, arrays = embedder_files.read(Path(folder))
        try:
            config = EmbedderConfig.from_dict(about["config"])
            require_trust(config)
            config = config if model is None else config.replace(model=model)
            embedder = cls(config, device=device, download=False, source=source)
        except ConfigError as error:
            raise ModelError(f"the configuration saved in {folder} is not accepted: {error}") from error
        fitted_on = about["fitted_on"]
        embedder.fitted_on = FittedOn(fitted_on["documents"], fitted_on["pseudo_queries"])
        embedder._texts = fitted_on["texts"]
        if embedder.source_sha256 != about["source_sha256"]:
            raise ModelError(
                f"the model {embedder.config.model!r} found here is not the one this embedder was fitted with "
                f"(sha256 {embedder.source_sha256[:12]}…, expected {about['source_sha256'][:12]}…): "
                "give the original model with model=…, or fit again"
            )
        embedder.extractor.restore(with_prefix(arrays, "extractor."))
        try:
            chain = TwoSidedChain.restore(
                config.postprocess, with_prefix(arrays, "chain."), two=config.query_fit == "separate"
            )
        except NotFittedError as error:
            raise ModelError(f"the embedder in {folder} is damaged ({error}): fit and save it again") from error
        embedder._chain = chain
        if embedder.fingerprint != about["fingerprint"]:
            raise ModelError(
                f"the embedder in {folder} does not match its own fingerprint: its files were changed; "
                "fit and save it again"
            )
        return embedder

    # Internals

    @cached_property
    def _built(self) -> Built:
        return build_extractor(self.config, device=self.device, download=self._download, source=self.source)

    def resolved_config(self) -> EmbedderConfig:
        """Return the configuration with the values in use of the settings that it leaves open.

        ``max_tokens``, ``pooling``, ``weighting``, the templates and other settings depend on the model, ``dtype`` on
        this machine. Raises :class:`ragembed.errors.ModelError` if the model is not found, and errors as
        :meth:`device_names` does.
        """
        built = self._built.config
        if self.is_remote:
            self.extractor.dim  # noqa: B018  a server that does not answer raises here, before any text is read
        config = self.config.replace(max_tokens=self.max_tokens, **{name: getattr(built, name) for name in _RESOLVED})
        devices = self.device_names()  # a missing device raises here, before any text is read
        if config.dtype != "auto" or not self._built.needs_model:
            return config
        fast = fast_dtype(devices) == "bfloat16" and self._agrees_in_bfloat16
        return config.replace(dtype="mixed" if fast else "float32")

    @cached_property
    def _agrees_in_bfloat16(self) -> bool:
        """Whether the vectors in bfloat16 are nearly those in float32."""
        return self._built.agrees_in_bfloat16()

    def _take_fit(self, config: EmbedderConfig, built: Built, texts: int) -> None:
        """Replace the extractor by a newly fitted one; the chain has to be fitted again."""
        self.config = config
        self.__dict__["_built"] = built
        self._texts = texts
        self._chain = self.fitted_on = self.fitted_queries = None
        for name in ("raw_fingerprint", "fingerprint"):
            self.__dict__.pop(name, None)

    def _require_extractor(self) -> int:
        """Return the number of texts that the extractor was fitted on; raise :class:`NotFittedError` before a fit."""
        if self._texts is None:
            raise NotFittedError("this embedder is not fitted: call embedder.fit(texts) or Embedder.load(folder) first")
        return self._texts

    def _require_fitted(self) -> TwoSidedChain:
        """Return the fitted chain; raise :class:`NotFittedError` before a fit."""
        if self._chain is None:
            self._require_extractor()
            raise NotFittedError(
                "the post-processors are not fitted: call embedder.fit(texts) or embedder.fit_chain(…) first"
            )
        return self._chain


def fit_extractors(embedders: Sequence[Embedder], texts: Iterable[str], progress: Progress | None = None) -> None:
    """Fit the extractors of several embedders, like :meth:`Embedder.fit_extractor`, with shared forward passes.

    ``texts`` is read once as a stream.
    """
    configs = [embedder.resolved_config() for embedder in embedders]
    fresh = [embedder._fresh(config) for embedder, config in zip(embedders, configs, strict=True)]
    number = fit_together([built.extractor for built in fresh], _reject_str(texts), progress)
    for embedder, config, built in zip(embedders, configs, fresh, strict=True):
        embedder._take_fit(config, built, number)


def encode_raw(
    embedders: Sequence[Embedder], texts: Sequence[str], side: Side, progress: Progress | None = None
) -> list[Floats]:
    """Return the raw vectors of ``texts`` from each of ``embedders``, with shared forward passes.

    Each array is float32, shape ``(n, d)``, as :meth:`Embedder.raw_documents` and :meth:`Embedder.raw_queries` return
    it. ``progress`` is as in :func:`ragembed.extractors.sharing.encode_together`.
    """
    for embedder in embedders:
        embedder._require_extractor()
    return encode_together([embedder.extractor for embedder in embedders], _text_list(texts), side, progress)


def require_trust(config: EmbedderConfig) -> None:
    """Raise :class:`ModelError` if a saved ``config`` wants to run a model's own code and the user did not allow it.

    The setting of a saved embedder is not a permission, because the files may come from somebody else.
    """
    if config.trust_remote_code and os.environ.get(TRUST_VARIABLE) != "1":
        raise ModelError(
            f"the model {config.model!r} runs code from its own files: read the code, and set {TRUST_VARIABLE}=1 if "
            "you trust it"
        )


def _with_absolute_paths(config: EmbedderConfig) -> EmbedderConfig:
    """Return ``config`` with absolute paths, which stay valid in any working directory."""
    named = {name: getattr(config, name) for name in ("weighting_corpus", "avg_corpus", "postprocess_corpus")}
    model = Path(config.model)
    if model.is_dir() or (isinstance(config.extraction, Words) and model.exists()):
        named["model"] = config.model
    return config.replace(**{name: str(Path(path).absolute()) for name, path in named.items() if path is not None})


def _reject_str(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str):
        raise ConfigError("texts is a single str: expected a list of texts; put it in a list")
    return texts


def _text_list(texts: Iterable[str]) -> list[str]:
    as_list = list(_reject_str(texts))
    for number, text in enumerate(as_list):
        if not isinstance(text, str):
            raise ConfigError(f"text {number} is {str(text)[:80]!r}, of type {type(text).__name__}: expected a str")
    return as_list


def _digest(identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name}:{arrays[name].dtype.str}:{arrays[name].shape}".encode())
        data = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        for start in range(0, len(data), _HASHED_AT_ONCE):
            block = data[start : start + _HASHED_AT_ONCE]
            digest.update(block.data)
            release(block)
    return digest.hexdigest()[:32]
