"""Rerank texts with a model that reads query and text. Only this module imports sentence_transformers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ragembed.errors import ModelError
from ragembed.extras import require
from ragembed.models.files import ModelFiles, find_model, weight_files
from ragembed.models.packaging import architectures, is_multi_vector, package_files
from ragembed.types import Floats

_ARCHITECTURE = "ForSequenceClassification"


@runtime_checkable
class Reranker(Protocol):
    """An object that scores texts for a query, such as :class:`ModelReranker`."""

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float] | Floats:
        """Return one finite score per text; a higher score means a better match for ``query``."""
        ...


class ModelReranker:
    """A model of sentence-transformers that scores texts for a query: a cross-encoder or a multi-vector model.

    A cross-encoder reads query and text together in one forward pass; it is a model for sequence classification with
    one output. A multi-vector model such as ColBERT compares each token of the query with each token of a text; it is a
    model in the layout of sentence-transformers, PyLate or Stanford's ColBERT, with safetensors weights.

    ``model`` is the folder of a model, or its id on the Hugging Face hub. It is loaded on first use, on the first of
    the devices that ``device`` names as for :class:`ragembed.Embedder`. Threads may share one object. Raises
    :class:`ragembed.errors.MissingExtraError` without sentence-transformers, and :class:`ragembed.errors.ModelError`
    if the model is not found or is neither of them.

    >>> from ragembed.reranking import ModelReranker
    >>> reranker = ModelReranker("cross-encoder/ms-marco-MiniLM-L6-v2")                 # doctest: +SKIP
    >>> reranker.scores("how is tea brewed", ["Tea is brewed with hot water."]).shape    # doctest: +SKIP
    (1,)
    """

    def __init__(self, model: str, *, device: str | None = None, download: bool = True, batch_size: int = 32) -> None:
        require("sentence_transformers", "reranking")
        self._files = find_model(model, download=download, option="--rerank")
        self._is_multi_vector = is_multi_vector(self._files.root)
        self._device = device
        self._batch_size = batch_size
        self._loading = threading.Lock()
        self._loaded: Any = None
        if not self._is_multi_vector:
            _require_cross_encoder(self._files)
            return
        for file in package_files(self._files.root):
            if file.suffix == ".safetensors":
                weight_files(file.parent)  # raises an error if a module has no such weights

    def scores(self, query: str, texts: Sequence[str]) -> Floats:
        """Return the score of each text for ``query``, float32, shape ``(n,)``; higher is better.

        The score of a multi-vector model is MaxSim: each token of the query contributes its largest cosine with a token
        of the text. Text beyond the length that the model can read is not read.
        """
        if not texts:
            return np.zeros(0, dtype=np.float32)
        with self._loading:
            if self._loaded is None:
                kind = "MultiVectorEncoder" if self._is_multi_vector else "CrossEncoder"
                self._loaded = _load(self._files, self._device, kind)
        options = {"batch_size": self._batch_size, "show_progress_bar": False}
        if not self._is_multi_vector:
            return np.asarray(self._loaded.predict([(query, text) for text in texts], **options), dtype=np.float32)
        documents = self._loaded.encode_document([text.strip() for text in texts], **options)  # as PyLate does
        scores = self._loaded.similarity(self._loaded.encode_query([query.strip()], **options), documents)
        return np.asarray(scores[0].float().cpu(), dtype=np.float32)


def _require_cross_encoder(files: ModelFiles) -> None:
    """Raise :class:`ModelError` for a model that would load, but with an untrained classification head."""
    names = architectures(files.folder)
    if not any(name.endswith(_ARCHITECTURE) for name in names):
        raise ModelError(
            f"the model {files.name!r} has the architecture {', '.join(names) or 'unknown'}: expected a "
            f"cross-encoder (…{_ARCHITECTURE} in its config.json), such as cross-encoder/ms-marco-MiniLM-L6-v2, or a "
            "multi-vector model"
        )


def _load(files: ModelFiles, device: str | None, kind: str) -> Any:
    """Load the model in ``files`` as an object of the class ``kind``, on the first of the requested devices."""
    from safetensors import SafetensorError

    from ragembed.models.torch_devices import find_devices
    from ragembed.models.transformers_model import loading_model

    [first, *_] = find_devices(device)
    try:
        with loading_model():
            import sentence_transformers

            model = getattr(sentence_transformers, kind)(
                str(files.root),
                device=first,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the model in {files.folder} cannot be loaded: {error}") from error
    if kind == "CrossEncoder" and model.num_labels != 1:
        raise ModelError(
            f"the model {files.name!r} gives {model.num_labels} scores per text: expected a cross-encoder with one"
        )
    return model
