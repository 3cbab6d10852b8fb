"""The embedder: an extractor and a post-processor chain, fitted on a corpus.

``fit`` is always explicit. What is fitted are the extractor's token weights and static vectors, which decide the *raw*
vectors, and the chain of post-processors, which turns raw vectors into vectors and can be refitted without the model.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed import embedder_files
from ragembed.config.settings import DEFAULT_PRESET, EmbedderConfig, QueryFit
from ragembed.config.specs import Words, parse_postprocessor
from ragembed.contributions import TextParts, text_parts
from ragembed.corpus import Corpus
from ragembed.errors import ConfigError, ModelError, NotFittedError
from ragembed.extractors.build import Built, build_extractor
from ragembed.extractors.protocol import Extractor, Progress, Side, State, Tokenizer
from ragembed.extractors.sharing import SharedFit, encode_together, fit_together
from ragembed.models.choice import fast_dtype, find_devices
from ragembed.postprocess import Chain, TwoSidedChain
from ragembed.postprocess.moments import Moments
from ragembed.pseudo_queries import PseudoQueries, draw_pseudo_queries
from ragembed.reservoir import ItemReservoir
from ragembed.tensor_map import release
from ragembed.types import Floats

FIT_LIMIT = 100_000
"""Texts beyond which post-processors are fitted on a seeded sample of that many."""

_HASHED_AT_ONCE = 1 << 20  # bytes, so that a mapped table is never in memory as a whole


@dataclass(frozen=True, slots=True)
class FittedOn:
    """How much the chain was fitted on."""

    documents: int
    pseudo_queries: int


class Embedder:
    """Turn texts into vectors that fit one corpus.

    >>> embedder = Embedder().fit(texts)                       # doctest: +SKIP
    >>> embedder.encode_documents(texts).shape                 # doctest: +SKIP
    (1400, 384)

    Parameters
    ----------
    config
        What the embedder is made of; the default preset if left out.
    device
        Where documents are encoded: None or ``"auto"`` on every visible GPU, and on the CPU where there is none;
        ``"cpu"``; ``"gpu"`` on every visible GPU; ``"gpu:0"`` or ``"gpu:0,2"`` on those; or a device's name in PyTorch.
        A GPU that is asked for and not there is a :class:`ragembed.errors.GpuError` of the first fit or encoding.
    download
        Whether a model that is not on this machine is downloaded.
    """

    def __init__(
        self, config: EmbedderConfig | None = None, *, device: str | None = None, download: bool = True
    ) -> None:
        self.config = _with_absolute_paths(config or EmbedderConfig.from_preset(DEFAULT_PRESET))
        self.fitted_on: FittedOn | None = None
        self.fitted_queries: PseudoQueries | None = None
        self.fitted_moments: Moments | None = None
        self._device = device
        self._download = download
        self._texts: int | None = None
        self._chain: TwoSidedChain | None = None

    @classmethod
    def from_preset(cls, name: str, *, device: str | None = None, **changes: Any) -> Embedder:
        """Build from a preset with some settings changed: ``Embedder.from_preset("minilm", query_fit="shared")``."""
        return cls(EmbedderConfig.from_preset(name, **changes), device=device)

    # Fitting

    @property
    def is_fitted(self) -> bool:
        """Whether :meth:`encode_documents` and :meth:`encode_queries` can be called."""
        return self._chain is not None

    def fit(self, texts: Iterable[str]) -> Embedder:
        """Fit token weights, static vectors and post-processors on the texts of a corpus, forgetting any former fit.

        ``texts`` is read once as a stream; where there are more than ``FIT_LIMIT``, post-processors are fitted on a
        seeded sample of that many. Raises :class:`ConfigError` when there is no text.
        """
        sample = ItemReservoir[str](FIT_LIMIT, self.config.seed)
        fresh = copy(self)  # so that a fit that fails leaves the former one as it was
        fresh.fit_extractor(sample.watch(_each_string(texts)))
        fits_here = fresh.config.postprocess_corpus is None and Chain(fresh.config.postprocess).learns
        fresh.fit_chain(fresh.raw_documents(sample.items if fits_here else []), sample.items)
        self.__dict__ = fresh.__dict__
        return self

    def fit_extractor(self, texts: Iterable[str]) -> Embedder:
        """Fit token weights and static vectors alone, reading ``texts`` once as a stream; the chain has to follow."""
        fit_extractors([self], texts)
        return self

    def _part_of_fit(self, texts: Iterable[str]) -> State:
        """Return what a part of the corpus adds to the fit of the extractor, as arrays for :meth:`_fit_parts`.

        ``texts`` is read once as a stream. The embedder stays as it is.
        """
        fit = SharedFit([self.extractor])
        fit.gather_texts(_each_string(texts))
        return fit.part()

    def _fit_parts(self, parts: Iterable[Mapping[str, NDArray[Any]]], texts: int) -> Embedder:
        """Fit token weights and static vectors on what :meth:`_part_of_fit` gave of all parts of a corpus of ``texts``.

        The fit is that of :meth:`fit_extractor`, to the last bit where the parts are of multiples of 2,048 texts.
        """
        config = self.resolved_config()
        built = self._fresh(config)
        fit = SharedFit([built.extractor])
        for part in parts:
            fit.add(part)
        fit.gather_corpora()
        fit.finish()
        self._take_fit(config, built, texts)
        return self

    def _fresh(self, config: EmbedderConfig) -> Built:
        """Return what an extractor of ``config``, not fitted, is made of."""
        return build_extractor(config, device=self._device, download=self._download)

    def fit_chain(self, raw_documents: Floats, texts: Iterable[str], known: PseudoQueries | None = None) -> Embedder:
        """Fit the post-processors alone, on raw document vectors and on pseudo-queries drawn from ``texts``.

        ``raw_documents`` is float32, shape ``(n, d)``, as :meth:`raw_documents` gives them. Where the configuration
        names a ``postprocess_corpus``, its texts take the place of both. Pseudo-queries that are ``known`` from a
        former fit of the same extractor are not encoded again. Until the embedder is saved and loaded,
        ``fitted_queries`` and ``fitted_moments`` tell what the chain was fitted on; None where it learns nothing.
        """
        self.__dict__.pop("fingerprint", None)
        self.fitted_queries = self.fitted_moments = None
        unfitted = Chain(self.config.postprocess)
        if not unfitted.learns:
            self._chain, self.fitted_on = TwoSidedChain(unfitted, unfitted), FittedOn(len(raw_documents), 0)
            return self
        if self.config.postprocess_corpus is not None:
            sample = ItemReservoir[str](FIT_LIMIT, self.config.seed)
            deque(sample.watch(Corpus(Path(self.config.postprocess_corpus))), maxlen=0)
            if not sample.items:
                raise ConfigError(f"the corpus {self.config.postprocess_corpus} has no text: nothing to fit on")
            texts, raw_documents = sample.items, self.raw_documents(sample.items)
        raw_queries = None
        if self.config.query_fit == "separate":
            drawn = draw_pseudo_queries(texts, self.config.pseudo_queries, self.config.seed)
            if drawn:
                self.fitted_queries = PseudoQueries.of(drawn, self._raw_pseudo_queries, known)
            raw_queries = self.fitted_queries.raw if self.fitted_queries else raw_documents
        self._chain = TwoSidedChain.fit(self.config.postprocess, raw_documents, raw_queries)
        self.fitted_moments = Moments.of(raw_documents)
        self.fitted_on = FittedOn(len(raw_documents), 0 if raw_queries is None else len(raw_queries))
        return self

    def with_postprocess(self, postprocess: Sequence[str], query_fit: QueryFit) -> Embedder:
        """Return an embedder with the same fitted extractor and another, unfitted chain."""
        config = self.config.replace(postprocess=tuple(postprocess), query_fit=query_fit)
        other = Embedder(config, device=self._device, download=self._download)
        other._texts = self._texts
        other.__dict__["_built"] = self._built
        return other

    # Encoding

    def encode_documents(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of ``texts`` as documents, float32, shape ``(n, d)``; needs :meth:`fit`."""
        self._require_fitted()
        return self.postprocess_documents(self.raw_documents(texts))

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of ``texts`` as queries, float32, shape ``(n, d)``; needs :meth:`fit`."""
        self._require_fitted()
        return self.postprocess_queries(self.raw_queries(texts))

    def raw_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Floats:
        """Return pooled vectors before post-processing, float32, shape ``(n, d)``; needs :meth:`fit_extractor`.

        ``progress`` is called now and then with the number of texts done since the last call.
        """
        self._require_extractor()
        return self.extractor.encode(_strings(texts), "documents", progress)

    def _raw_without_framework(self, texts: Sequence[str], progress: Progress | None = None) -> Floats | None:
        """Return what :meth:`raw_documents` does where that is made sooner without PyTorch than with it, else None.

        An extractor without a model never needs it. With a BERT model, few texts (eight, of a thousand tokens together,
        at most) are then computed in float32 on the CPU, unless a GPU or bfloat16 was asked for.
        """
        self._require_extractor()
        texts, model = _strings(texts), self._built.encoding_model
        if model is None:
            return self.extractor.encode(texts, "documents", progress)
        return self.extractor.encode(texts, "few-documents", progress) if model.computes_alone(texts) else None

    def raw_queries(self, texts: Sequence[str]) -> Floats:
        """Return pooled vectors of queries before post-processing, as :meth:`raw_documents` does of documents."""
        self._require_extractor()
        return self.extractor.encode(_strings(texts), "queries")

    def _raw_pseudo_queries(self, texts: Sequence[str]) -> Floats:
        """Return raw vectors of pseudo-queries: framed as queries, computed as documents are."""
        self._require_extractor()
        return self.extractor.encode(_strings(texts), "pseudo-queries")

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Map raw document vectors, float32, shape ``(n, d)``, to vectors; needs a fitted chain, not the model."""
        return self._require_fitted().documents.transform(raw)

    def token_parts(self, text: str, side: Side, raw: Floats | None = None) -> TextParts:
        """Return the unit vector of ``text`` as the sum of its tokens' parts; needs :meth:`fit`.

        ``raw``, shape ``(d,)``, is the raw vector that was kept of it, where that is rounded.
        """
        chain = self._require_fitted()
        of_side = chain.documents if side == "documents" else chain.queries
        return text_parts(text, self.extractor.token_parts(text, side), of_side, raw)

    def postprocess_queries(self, raw: Floats) -> Floats:
        """Map raw vectors of queries as :meth:`postprocess_documents` does those of documents."""
        return self._require_fitted().queries.transform(raw)

    @property
    def chain(self) -> TwoSidedChain:
        """The fitted post-processors; needs :meth:`fit`."""
        return self._require_fitted()

    # Identity

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        fitted = self._chain.documents.dim if self._chain is not None else None
        return self.extractor.dim if fitted is None else fitted

    def device_names(self) -> tuple[str, ...]:
        """Return PyTorch's names of the devices that documents are encoded on: ``("cpu",)``, ``("cuda:0", "cuda:1")``.

        An extractor without a model works on the CPU, whatever device was asked for. Raises
        :class:`ragembed.errors.GpuError` where a GPU that was asked for is not there, :class:`ConfigError` where the
        device is none.
        """
        if not self._built.needs_model:
            return ("cpu",)
        return find_devices(self._device)

    @property
    def _encodes_with_model(self) -> bool:
        """Whether texts go through a model when they are encoded."""
        return self._built.encoding_model is not None

    @property
    def _fits_with_model(self) -> bool:
        """Whether texts go through a model when the embedder is fitted or encodes."""
        return self._built.needs_model

    @property
    def max_tokens(self) -> int:
        """Tokens in a window of the model, special tokens included."""
        return self._built.max_tokens

    @property
    def text_tokens(self) -> int:
        """Tokens of a text that fit one window, the rest of it being special tokens and the template."""
        return self._built.text_tokens

    @cached_property
    def raw_fingerprint(self) -> str:
        """Hash, in hex, of everything that decides a raw vector; needs :meth:`fit_extractor`."""
        self._require_extractor()
        return _digest(self.extractor.config, self.extractor.decisive())

    @cached_property
    def fingerprint(self) -> str:
        """Hash, in hex, of everything that decides a vector; needs :meth:`fit`."""
        chain = self._require_fitted()
        identity = {
            "raw": self.raw_fingerprint,
            "postprocess": [parse_postprocessor(step) for step in self.config.postprocess],
            "query_fit": self.config.query_fit if chain.documents.learns else "shared",
        }
        return _digest(identity, chain.state())

    def describe(self) -> dict[str, Any]:
        """Return what the embedder is made of and was fitted on, as JSON values."""
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
        """What makes raw vectors; raises :class:`ModelError` where its model cannot be found."""
        return self._built.extractor

    @property
    def tokenizer(self) -> Tokenizer:
        """What splits texts into tokens."""
        return self._built.tokenizer

    @property
    def source_sha256(self) -> str:
        """Hash, in hex, of what ``config.model`` names, as far as the extractor uses it."""
        return self._built.source_sha256

    # Saving and loading

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``state.safetensors`` into ``folder``, made if need be; needs :meth:`fit`."""
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
    def load(cls, folder: str | Path, *, device: str | None = None, model: str | None = None) -> Embedder:
        """Read what :meth:`save` wrote; ``model`` says where the model is now, if it was moved since.

        The model must be on this machine: files never make it download what they name. Raises :class:`ModelError`
        when the files are damaged, of another format, or when the model found here is not the one the embedder was
        fitted with.
        """
        about, arrays = embedder_files.read(Path(folder))
        try:
            config = EmbedderConfig.from_dict(about["config"])
            embedder = cls(config if model is None else config.replace(model=model), device=device, download=False)
        except ConfigError as error:
            raise ModelError(f"the saved configuration in {folder} is not accepted: {error}") from error
        fitted_on = about["fitted_on"]
        embedder.fitted_on = FittedOn(fitted_on["documents"], fitted_on["pseudo_queries"])
        embedder._texts = fitted_on["texts"]
        if embedder.source_sha256 != about["source_sha256"]:
            raise ModelError(
                f"the model {embedder.config.model!r} found here is not the one this embedder was fitted with "
                f"(sha256 {embedder.source_sha256[:12]}…, expected {about['source_sha256'][:12]}…)"
            )
        embedder.extractor.restore(_below(arrays, "extractor."))
        try:
            chain = TwoSidedChain.restore(
                config.postprocess, _below(arrays, "chain."), two=config.query_fit == "separate"
            )
        except NotFittedError as error:
            raise ModelError(f"the embedder in {folder} is damaged: {error}") from error
        embedder._chain = chain
        if embedder.fingerprint != about["fingerprint"]:
            raise ModelError(f"the embedder in {folder} does not match its own fingerprint: its files were changed")
        return embedder

    # Parts

    @cached_property
    def _built(self) -> Built:
        return build_extractor(self.config, device=self._device, download=self._download)

    def resolved_config(self) -> EmbedderConfig:
        """Return the configuration with what depends on this machine and the model written out.

        Raises :class:`ragembed.errors.GpuError` where a GPU that was asked for is not there.
        """
        config = self.config.replace(max_tokens=self.max_tokens)
        devices = self.device_names()  # a device that is not there is told before any text is read
        if config.dtype != "auto" or not self._built.needs_model:
            return config
        return config.replace(dtype="mixed" if fast_dtype(devices) == "bfloat16" else "float32")

    def _take_fit(self, config: EmbedderConfig, built: Built, texts: int) -> None:
        """Take a newly fitted extractor in place of a former one; the chain has to be fitted after it."""
        self.config = config
        self.__dict__["_built"] = built
        self._texts = texts
        self._chain = self.fitted_on = self.fitted_queries = self.fitted_moments = None
        for name in ("raw_fingerprint", "fingerprint"):
            self.__dict__.pop(name, None)

    def _require_extractor(self) -> int:
        """Return the number of texts that the extractor was fitted on."""
        if self._texts is None:
            raise NotFittedError("this embedder is not fitted: call embedder.fit(texts) or Embedder.load(folder) first")
        return self._texts

    def _require_fitted(self) -> TwoSidedChain:
        self._require_extractor()
        if self._chain is None:
            raise NotFittedError(
                "the post-processors are not fitted: call embedder.fit(texts) or embedder.fit_chain(…)"
            )
        return self._chain


def fit_extractors(embedders: Sequence[Embedder], texts: Iterable[str]) -> None:
    """Do what :meth:`Embedder.fit_extractor` does for all of ``embedders``, which share the forward passes they need.

    ``texts`` is read once as a stream.
    """
    configs = [embedder.resolved_config() for embedder in embedders]
    fresh = [embedder._fresh(config) for embedder, config in zip(embedders, configs, strict=True)]
    number = fit_together([built.extractor for built in fresh], _each_string(texts))
    for embedder, config, built in zip(embedders, configs, fresh, strict=True):
        embedder._take_fit(config, built, number)


def encode_raw(embedders: Sequence[Embedder], texts: Sequence[str], side: Side) -> list[Floats]:
    """Return the raw vectors of ``texts`` from each of ``embedders``, which share the forward passes they need.

    Each is float32, shape ``(n, d)``, as :meth:`Embedder.raw_documents` or :meth:`Embedder.raw_queries` give them.
    """
    for embedder in embedders:
        embedder._require_extractor()
    return encode_together([embedder.extractor for embedder in embedders], _strings(texts), side)


def _with_absolute_paths(config: EmbedderConfig) -> EmbedderConfig:
    """Return ``config`` with files and folders named so that they are found from any working directory."""
    named = {name: getattr(config, name) for name in ("weighting_corpus", "avg_corpus", "postprocess_corpus")}
    model = Path(config.model)
    if model.is_dir() or (isinstance(config.extraction, Words) and model.exists()):
        named["model"] = config.model
    return config.replace(**{name: str(Path(path).absolute()) for name, path in named.items() if path is not None})


def _below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _each_string(texts: Iterable[str]) -> Iterable[str]:
    if isinstance(texts, str):
        raise ConfigError("expected a list of texts, got one str: put it in a list")
    return texts


def _strings(texts: Iterable[str]) -> list[str]:
    return list(_each_string(texts))


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
