"""Scoring texts by a model that reads them together with the query. The only importer of sentence_transformers."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ragembed.errors import ModelError
from ragembed.extras import require
from ragembed.models.files import ModelFiles, find_model
from ragembed.types import Floats

_ARCHITECTURE = "ForSequenceClassification"


@runtime_checkable
class Reranker(Protocol):
    """What scores texts for a query; :class:`CrossEncoderReranker` is one."""

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float] | Floats:
        """Return a finite score for each of ``texts``, higher for what answers ``query`` better."""
        ...


class CrossEncoderReranker:
    """A cross-encoder of sentence-transformers: one pass of a model over query and text together.

    It is loaded when it is first asked; threads may share it.

    Parameters
    ----------
    model
        Folder, or id on the Hugging Face hub, of a model for sequence classification with one score.
    device
        Where it runs, as for :class:`ragembed.Embedder`: None for GPUs where there are any.
    download
        Whether a model that is not on this machine is downloaded.
    batch_size
        Texts that are read at once.

    Raises
    ------
    MissingExtraError
        Where sentence-transformers is not installed.
    ModelError
        Where the model is not found, or is no cross-encoder.
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
        """Return the model's score of each of ``texts`` for ``query``, float32, shape ``(n,)``; higher is better.

        What is beyond the model's window is not read.
        """
        if not texts:
            return np.zeros(0, dtype=np.float32)
        pairs = [(query, text) for text in texts]
        scores = self._model().predict(pairs, batch_size=self._batch_size, show_progress_bar=False)
        return np.asarray(scores, dtype=np.float32)

    def _model(self) -> Any:
        with self._loading:
            if self._loaded is None:
                self._loaded = _load(self._files, self._device)
            return self._loaded


def _require_cross_encoder(files: ModelFiles) -> None:
    """Raise for a model that would answer, but with weights that nobody trained for it."""
    try:
        config = json.loads((files.folder / "config.json").read_text(encoding="utf-8"))
        architectures = [str(name) for name in config.get("architectures") or []]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ModelError(f"the model folder {files.folder} has no config.json that can be read: {error}") from error
    if not any(name.endswith(_ARCHITECTURE) for name in architectures):
        raise ModelError(
            f"the model {files.name!r} is {', '.join(architectures) or 'of no known kind'}, no cross-encoder: expected "
            f"one whose config.json names an architecture …{_ARCHITECTURE}, as cross-encoder/ms-marco-MiniLM-L6-v2 is"
        )


def _load(files: ModelFiles, device: str | None) -> Any:
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
            f"the model {files.name!r} has {model.num_labels} scores for a text: expected a cross-encoder with one"
        )
    return model
