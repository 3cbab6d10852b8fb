"""The embedder: an extractor and a post-processor chain, fitted on a corpus.

``fit`` is always explicit. What is fitted are token weights (idf), which decide the *raw* vectors, and the chain
of post-processors, which turns raw vectors into vectors and can be refitted without the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragembed import embedder_files
from ragembed.config import DEFAULT_PRESET, EmbedderConfig, Sides, parse_layers, parse_weighting, preset
from ragembed.errors import ConfigError, ModelError, NotFittedError
from ragembed.extractors.transformer import Progress, TransformerExtractor, Weigh
from ragembed.models import ModelFiles, find_model
from ragembed.numpy_bert import NumpyBert, is_numpy_bert
from ragembed.postprocess import TwoSidedChain
from ragembed.pseudo_queries import draw_pseudo_queries
from ragembed.tokenizer import TextTokenizer
from ragembed.weighting import TokenStatistics, blend, count_tokens

Floats = NDArray[np.float32]

FIT_LIMIT = 100_000
"""Texts beyond which post-processors are fitted on a seeded sample of that many."""


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
        Torch device for documents; None takes a GPU where there is one.
    """

    def __init__(self, config: EmbedderConfig | None = None, *, device: str | None = None) -> None:
        self.config = _with_absolute_folder(config or preset(DEFAULT_PRESET))
        self.fitted_on: FittedOn | None = None
        self._device = device
        self._download = True
        self._statistics: TokenStatistics | None = None
        self._chain: TwoSidedChain | None = None

    @classmethod
    def from_preset(cls, name: str, *, device: str | None = None, **changes: Any) -> Embedder:
        """Build from a preset with some settings changed: ``Embedder.from_preset("minilm", sides="one")``."""
        return cls(preset(name).replace(**changes), device=device)

    # Fitting

    @property
    def is_fitted(self) -> bool:
        """Whether :meth:`encode_documents` and :meth:`encode_queries` can be called."""
        return self._chain is not None

    def fit(self, texts: Iterable[str]) -> Embedder:
        """Fit token weights and post-processors on the texts of a corpus, forgetting any former fit.

        Post-processors are fitted on a seeded sample when there are more than ``FIT_LIMIT`` texts. Raises
        :class:`ConfigError` when there is no text.
        """
        texts = _strings(texts)
        self.fit_weights(texts)
        sample = texts
        if len(texts) > FIT_LIMIT:
            rng = np.random.default_rng(self.config.seed)
            sample = [texts[i] for i in np.sort(rng.choice(len(texts), FIT_LIMIT, replace=False))]
        return self.fit_chain(self.raw_documents(sample), texts)

    def fit_weights(self, texts: Iterable[str]) -> Embedder:
        """Fit the token weights alone, reading ``texts`` once as a stream; the chain has to be fitted after it."""
        tokenizer = self.tokenizer
        ids = (row for block in _blocks(texts, 1024) for row in tokenizer.ids(block))
        statistics = count_tokens(ids, tokenizer.vocabulary_size, [*tokenizer.prefix, *tokenizer.suffix])
        if statistics.texts == 0:
            raise ConfigError("cannot fit on no texts: give at least one text of the corpus")
        self._forget()
        self.config = self.config.replace(dtype=self._resolved_dtype(), max_tokens=self.max_tokens)
        self._statistics = statistics
        return self

    def fit_chain(self, raw_documents: Floats, texts: Iterable[str]) -> Embedder:
        """Fit the post-processors alone, on raw document vectors and on pseudo-queries drawn from ``texts``.

        ``raw_documents`` is float32, shape ``(n, d)``, as :meth:`raw_documents` gives them.
        """
        raw_queries = None
        if self.config.sides == "two":
            drawn = draw_pseudo_queries(texts, self.config.pseudo_queries, self.config.seed)
            raw_queries = self._document_extractor.encode(drawn) if drawn else raw_documents
        self.__dict__.pop("fingerprint", None)
        self._chain = TwoSidedChain.fit(self.config.postprocess, raw_documents, raw_queries)
        self.fitted_on = FittedOn(len(raw_documents), 0 if raw_queries is None else len(raw_queries))
        return self

    def with_postprocess(self, postprocess: Sequence[str], sides: Sides) -> Embedder:
        """Return an embedder with the same model and token weights and another, unfitted chain."""
        other = Embedder(self.config.replace(postprocess=tuple(postprocess), sides=sides), device=self._device)
        other._statistics = self._statistics
        for name in ("model_files", "tokenizer", "_document_extractor", "_query_extractor"):
            if name in self.__dict__:
                other.__dict__[name] = self.__dict__[name]
        return other

    # Encoding

    def encode_documents(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of ``texts`` as documents, float32, shape ``(n, d)``; needs :meth:`fit`."""
        self._require_fitted()
        return self.postprocess_documents(self.raw_documents(texts))

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of ``texts`` as queries, float32, shape ``(n, d)``; needs :meth:`fit`."""
        chain = self._require_fitted()
        return chain.queries.transform(self._query_extractor.encode(_strings(texts)))

    def raw_documents(self, texts: Sequence[str], progress: Progress | None = None) -> Floats:
        """Return pooled vectors before post-processing, float32, shape ``(n, d)``; needs :meth:`fit_weights`.

        ``progress`` is called now and then with the number of texts done since the last call.
        """
        return self._document_extractor.encode(_strings(texts), progress)

    def postprocess_documents(self, raw: Floats) -> Floats:
        """Map raw document vectors, float32, shape ``(n, d)``, to vectors; needs a fitted chain, not the model."""
        return self._require_fitted().documents.transform(raw)

    # Identity

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        if self._chain is not None and (mean := self._chain.documents.state().get("0.mean")) is not None:
            return len(mean)
        return self._query_extractor.dim

    @property
    def max_tokens(self) -> int:
        """Tokens in a window of the model, special tokens included."""
        return min(self.config.max_tokens or self.tokenizer.max_tokens, self.tokenizer.max_tokens)

    @cached_property
    def raw_fingerprint(self) -> str:
        """Hash, in hex, of everything that decides a raw vector; needs :meth:`fit_weights`."""
        statistics = self._require_weights()
        share = parse_weighting(self.config.weighting)
        identity = {
            "model": self.model_files.sha256,
            "layers": self.config.layers,
            "idf_share": share,
            "max_tokens": self.config.max_tokens,
            "dtype": self.config.dtype,
        }
        return _digest(identity, {"idf": statistics.idf()} if share else {})

    @cached_property
    def fingerprint(self) -> str:
        """Hash, in hex, of everything that decides a vector; needs :meth:`fit`."""
        chain = self._require_fitted()
        identity = {
            "raw": self.raw_fingerprint,
            "postprocess": list(self.config.postprocess),
            "sides": self.config.sides,
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
            "texts": self._require_weights().texts,
            "documents": fitted_on.documents,
            "pseudo_queries": fitted_on.pseudo_queries,
        }

    @cached_property
    def model_files(self) -> ModelFiles:
        """The model's files; raises :class:`ModelError` where they cannot be found."""
        return find_model(self.config.model, download=self._download)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The model's tokenizer."""
        return TextTokenizer(self.model_files.folder)

    # Saving and loading

    def save(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``state.safetensors`` into ``folder``, made if need be; needs :meth:`fit`."""
        chain, statistics = self._require_fitted(), self._require_weights()
        arrays: dict[str, NDArray[Any]] = {f"chain.{name}": array for name, array in chain.state().items()}
        arrays["weighting.document_frequency"] = statistics.document_frequency
        about = {
            "config": self.config.to_dict(),
            "model_sha256": self.model_files.sha256,
            "dim": self.dim,
            "fingerprint": self.fingerprint,
            "fitted_on": self._fitted_counts(),
        }
        embedder_files.write(Path(folder), about, arrays)

    @classmethod
    def load(cls, folder: str | Path, *, device: str | None = None) -> Embedder:
        """Read what :meth:`save` wrote.

        The model must be on this machine: files never make it download what they name. Raises :class:`ModelError`
        when the files are damaged, of another format, or when the model found here is not the one the embedder was
        fitted with.
        """
        about, arrays = embedder_files.read(Path(folder))
        embedder = cls(EmbedderConfig.from_dict(about["config"]), device=device)
        embedder._download = False
        fitted_on = about["fitted_on"]
        embedder.fitted_on = FittedOn(fitted_on["documents"], fitted_on["pseudo_queries"])
        embedder._statistics = TokenStatistics(fitted_on["texts"], arrays.pop("weighting.document_frequency"))
        state = {name.removeprefix("chain."): array for name, array in arrays.items()}
        config = embedder.config
        embedder._chain = TwoSidedChain.restore(config.postprocess, state, two=config.sides == "two")
        if embedder.model_files.sha256 != about["model_sha256"]:
            raise ModelError(
                f"the model {config.model!r} found in {embedder.model_files.folder} is not the one this embedder was "
                f"fitted with (sha256 {embedder.model_files.sha256[:12]}…, expected {about['model_sha256'][:12]}…)"
            )
        if embedder.fingerprint != about["fingerprint"]:
            raise ModelError(f"the embedder in {folder} does not match its own fingerprint: its files were changed")
        return embedder

    # Parts

    @cached_property
    def _document_extractor(self) -> TransformerExtractor:
        from ragembed.backbone import TorchBackbone

        return self._extractor(TorchBackbone(self.model_files.folder, self._resolved_dtype(), self._device))

    @cached_property
    def _query_extractor(self) -> TransformerExtractor:
        folder = self.model_files.folder
        if is_numpy_bert(folder):
            return self._extractor(NumpyBert(folder))
        from ragembed.backbone import TorchBackbone

        return self._extractor(TorchBackbone(folder, "float32", self._device))

    def _extractor(self, backbone: Any) -> TransformerExtractor:
        layers = parse_layers(self.config.layers, backbone.n_layers)
        return TransformerExtractor(self.tokenizer, backbone, layers, self.max_tokens, self._weigh())

    def _weigh(self) -> Weigh:
        return partial(blend, idf=self._require_weights().idf(), share=parse_weighting(self.config.weighting))

    def _resolved_dtype(self) -> str:
        if self.config.dtype != "auto":
            return self.config.dtype
        from ragembed.backbone import fast_dtype

        return fast_dtype()

    def _forget(self) -> None:
        self._chain = self._statistics = self.fitted_on = None
        for name in ("_document_extractor", "_query_extractor", "raw_fingerprint", "fingerprint"):
            self.__dict__.pop(name, None)

    def _require_weights(self) -> TokenStatistics:
        if self._statistics is None:
            raise NotFittedError("this embedder is not fitted: call embedder.fit(texts) or Embedder.load(folder) first")
        return self._statistics

    def _require_fitted(self) -> TwoSidedChain:
        self._require_weights()
        if self._chain is None:
            raise NotFittedError(
                "the post-processors are not fitted: call embedder.fit(texts) or embedder.fit_chain(…)"
            )
        return self._chain


def _with_absolute_folder(config: EmbedderConfig) -> EmbedderConfig:
    """Return ``config`` with a model's folder named so that it is found from any working directory."""
    folder = Path(config.model)
    return config.replace(model=str(folder.absolute())) if folder.is_dir() else config


def _strings(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise ConfigError("expected a list of texts, got one str: put it in a list")
    return list(texts)


def _blocks(texts: Iterable[str], size: int) -> Iterable[list[str]]:
    block: list[str] = []
    for text in texts:
        block.append(text)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def _digest(identity: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name}:{arrays[name].dtype.str}:{arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()[:32]
