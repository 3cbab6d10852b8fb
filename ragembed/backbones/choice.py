"""Which forward pass computes a model: the one place that knows them all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ragembed.backbones.bert_files import is_plain_bert
from ragembed.backbones.numpy_bert import NumpyBert

if TYPE_CHECKING:
    from ragembed.backbones.protocol import Backbone
    from ragembed.models import ModelFiles

_SHARING = threading.Lock()
_SHARED: WeakValueDictionary[tuple[str, str, str], Backbone] = WeakValueDictionary()


def many_texts(files: ModelFiles, dtype: str, device: str) -> Backbone:
    """Return the model in ``files.folder`` for many texts at a time, loaded once for all who use it at the same time.

    ``dtype`` is ``"float32"`` or ``"bfloat16"``, ``device`` a name of PyTorch's. A model whose files were changed
    meanwhile is another model. Raises :class:`ragembed.errors.ModelError` where it cannot be loaded,
    :class:`ragembed.errors.GpuError` where it does not fit in the device's memory.
    """
    key = (files.sha256, dtype, device)
    with _SHARING:
        backbone = _SHARED.get(key)
        if backbone is None:
            backbone = _SHARED[key] = _load(files.folder, dtype, device)
    return backbone


def one_text(files: ModelFiles, device: str | None) -> Backbone:
    """Return the model in ``files.folder`` for single questions: in float32, and without PyTorch where that can be.

    ``device`` is what was asked for; it counts for a model that needs PyTorch.
    """
    if needs_no_framework(files):
        return NumpyBert(files.folder)
    from ragembed.backbones.torch_devices import find_devices

    return many_texts(files, "float32", find_devices(device)[0])


def needs_no_framework(files: ModelFiles) -> bool:
    """Tell whether :func:`one_text` gives a model that is computed without PyTorch."""
    return is_plain_bert(files.folder)


def _load(folder: Path, dtype: str, device: str) -> Backbone:
    if device.startswith("cpu") and is_plain_bert(folder):
        from ragembed.backbones.packed_bert import PackedBert, can_pack

        if can_pack(dtype):
            return PackedBert(folder, dtype)
    from ragembed.backbones.transformers_model import TransformersModel

    return TransformersModel(folder, dtype, device)
