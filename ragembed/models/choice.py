"""Which forward pass computes a model: the one place that knows them all."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ragembed.extras import is_installed, missing
from ragembed.models.bert_files import is_plain_bert
from ragembed.models.numpy_bert import NumpyBert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ragembed.models.files import ModelFiles
    from ragembed.models.protocol import Backbone

_SHARING = threading.Lock()
_SHARED: WeakValueDictionary[tuple[str, str, str], Backbone] = WeakValueDictionary()


def find_devices(asked: str | None) -> tuple[str, ...]:
    """Return PyTorch's names of the devices that ``asked`` means; the CPU alone where PyTorch is not installed.

    Raises as :func:`ragembed.models.torch_devices.find_devices` does, and
    :class:`ragembed.errors.MissingExtraError` where another device is asked for without PyTorch.
    """
    if is_installed("torch"):
        from ragembed.models import torch_devices

        return torch_devices.find_devices(asked)
    if asked not in (None, "auto", "cpu"):
        raise missing("torch", f"the device {asked!r}")
    return ("cpu",)


def fast_dtype(devices: Sequence[str]) -> str:
    """Return the arithmetic that is fast on ``devices``: ``"bfloat16"`` or ``"float32"``."""
    if not is_installed("torch"):
        return "float32"
    from ragembed.models import torch_devices

    return torch_devices.fast_dtype(devices)


def many_texts(files: ModelFiles, dtype: str, device: str) -> Backbone:
    """Return the model in ``files.folder`` for many texts at a time, loaded once for all who use it at the same time.

    ``dtype`` is ``"float32"`` or ``"bfloat16"``, ``device`` a name of PyTorch's. A model whose files were changed
    meanwhile is another model. Without PyTorch, a BERT model is computed with NumPy. Raises
    :class:`ragembed.errors.ModelError` where it cannot be loaded, :class:`ragembed.errors.GpuError` where it does not
    fit in the device's memory, :class:`ragembed.errors.MissingExtraError` where it needs PyTorch.
    """
    key = (files.sha256, dtype, device)
    with _SHARING:
        backbone = _SHARED.get(key)
        if backbone is None:
            backbone = _SHARED[key] = _load(files.folder, dtype, device)
    return backbone


def one_text(files: ModelFiles, device: str | None) -> Backbone:
    """Return the model in ``files.folder`` for single queries: in float32, and without PyTorch where that can be.

    ``device`` is what was asked for; it counts for a model that needs PyTorch.
    """
    if needs_no_framework(files):
        return NumpyBert(files.folder)
    return many_texts(files, "float32", find_devices(device)[0])


def needs_no_framework(files: ModelFiles) -> bool:
    """Tell whether :func:`one_text` gives a model that is computed without PyTorch."""
    return is_plain_bert(files.folder)


def _load(folder: Path, dtype: str, device: str) -> Backbone:
    if not is_installed("torch"):
        if not is_plain_bert(folder):
            raise missing("torch", f"the model in {folder}, which is not a plain BERT in float32,")
        if dtype != "float32":
            raise missing("torch", f"encoding many texts in {dtype}")
        return NumpyBert(folder)
    if device.startswith("cpu") and is_plain_bert(folder):
        from ragembed.models.packed_bert import PackedBert, can_pack

        if can_pack(dtype):
            return PackedBert(folder, dtype)
    from ragembed.models.transformers_model import TransformersModel

    return TransformersModel(folder, dtype, device)
