"""Rerank texts with a model that reads query and text together. Only this module imports sentence_transformers."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ragembed.errors import ModelError
from ragembed.extras import require
from ragembed.files import read_regular
from ragembed.models.files import ModelFiles, find_model
from ragembed.models.packaging import MOST_JSON
from ragembed.types import Floats

_ARCHITECTURE = "ForSequenceClassification"


@runtime_checkable
class Reranker(Protocol):
    """An object that scores texts for a query, such as :class:`CrossEncoderReranker`."""

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float] | Floats:
        """Return one finite score per text; a higher score means a better match for ``query``."""
        ...


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers, which reads query and text together in one forward pass.

    ``model`` is the folder, or the id on the Hugging Face hub, of a model for sequence classification with one output;
    it is loaded on first use, on the first of the devices that ``device`` names as for :class:`ragembed.Embedder`.
    Threads may share one object. Raises :class:`ragembed.errors.MissingExtraError` without sentence-transformers, and
    :class:`ragembed.errors.ModelError` if the model is not found or is not a cross-encoder.

    >>> from ragembed.reranking import CrossEncoderReranker
    >>> reranker = CrossEncoderReranker("cross-encoder/ms-marco-MiniLM-L6-v2")          # doctest: +SKIP
    >>> reranker.scores("how is tea brewed", ["Tea is brewed with hot water."]).shape    # doctest: +SKIP
    (1,)
    """

    def __init__(self, model: str, *, device: str | None = None, download: bool = True, batch_size: int = 32) -> None:
        require("sentence_transformers", "reranking")
        self._files = find_model(model, download=download, option="--rerank")
        self._device = device
        self._batch_size = batch_size
        self._loading = threading.Lock()
        self._loaded: Any = None
        _require_cross_encoder(self._files)

    def scores(self, query: str, texts: Sequence[str]) -> Floats:
        """Return the score of each text for ``query``, float32, shape ``(n,)``; higher is better.

        Text beyond the window of the model is not read.
        """
        if not texts:
            return np.zeros(0, dtype=np.float32)
        pairs = [(query, text) for text in texts]
        scores = self._model().predict(pairs, batch_size=self._batch_size, show_progress_bar=False)
        return np.asarray(scores, dtype=np.float32)

    def _model(self) -> Any:
        """Return the model, loaded once."""
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._files, self._device)
            return self._loaded


def _require_cross_encoder(files: ModelFiles) -> None:
    """Raise :class:`ModelError` for a model that would load, but with an untrained classification head."""
    try:
        config = json.loads(read_regular(files.folder / "config.json", MOST_JSON))
        architectures = [str(name) for name in config.get("architectures") or []]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"cannot read config.json in the model folder {files.folder}: {error}") from error
    if not any(name.endswith(_ARCHITECTURE) for name in architectures):
        raise ModelError(
            f"the model {files.name!r} has the architecture {', '.join(architectures) or 'unknown'}: expected a "
            f"cross-encoder (…{_ARCHITECTURE} in its config.json), such as cross-encoder/ms-marco-MiniLM-L6-v2"
        )


def _load(files: ModelFiles, device: str | None) -> Any:
    """Load the cross-encoder in ``files`` on the first of the requested devices."""
    from safetensors import SafetensorError

    from ragembed.models.torch_devices import find_devices
    from ragembed.models.transformers_model import loading_model

    [first, *_] = find_devices(device)
    try:
        with loading_model():
            from sentence_transformers import CrossEncoder

            model = CrossEncoder(
                str(files.folder),
                device=first,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"the model in {files.folder} cannot be loaded: {error}") from error
    if model.num_labels != 1:
        raise ModelError(
            f"the model {files.name!r} gives {model.num_labels} scores per text: expected a cross-encoder with one"
        )
    return model
