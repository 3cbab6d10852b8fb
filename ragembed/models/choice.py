"""Choose the implementation that runs a model. Only this module knows all of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from ragembed.extras import is_installed, missing
from ragembed.models.bert_files import is_plain_bert
from ragembed.models.numpy_bert import NumpyBert

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragembed.models.files import ModelFiles
    from ragembed.models.protocol import Backbone

_SHARING = threading.Lock()
_SHARED: WeakValueDictionary[tuple[str, str, str], Backbone] = WeakValueDictionary()


def find_devices(requested: str | None) -> tuple[str, ...]:
    """Return the PyTorch names of the requested devices; only the CPU if PyTorch is not installed.

    Raises like :func:`ragembed.models.torch_devices.find_devices`, and :class:`ragembed.errors.MissingExtraError` if a
    device other than the CPU is requested without PyTorch.
    """
    if is_installed("torch"):
        from ragembed.models import torch_devices

        return torch_devices.find_devices(requested)
    if requested not in (None, "auto", "cpu"):
        raise missing("torch", f"the device {requested!r}")
    return ("cpu",)


def fast_dtype(devices: Sequence[str]) -> str:
    """Return the faster arithmetic on ``devices``: ``"bfloat16"`` or ``"float32"``."""
    if not is_installed("torch"):
        return "float32"
    from ragembed.models import torch_devices

    return torch_devices.fast_dtype(devices)


def batch_model(files: ModelFiles, dtype: str, device: str) -> Backbone:
    """Return the model in ``files.folder`` for batches of texts; concurrent users share one loaded model.

    ``dtype`` is ``"float32"``, ``"bfloat16"`` or ``"int8"``, ``device`` a PyTorch name. If the files change, the model
    is loaded again. Without PyTorch, BERT and its relatives run in NumPy. Raises :class:`ragembed.errors.ModelError` if
    it cannot be loaded, :class:`ragembed.errors.ConfigError` if it cannot run in 8 bits here,
    :class:`ragembed.errors.GpuError` if it does not fit in the memory of the device, and
    :class:`ragembed.errors.MissingExtraError` if it needs PyTorch.
    """
    if is_installed("torch"):
        return _shared((files.sha256, dtype, device), lambda: _load(files, dtype, device))
    if not runs_without_torch(files):
        raise missing("torch", f"the model in {files.folder}, which is not a BERT or one of its relatives in float32,")
    if dtype != "float32":
        raise missing("torch", f"encoding many texts in {dtype}")
    return exact_model(files, None)


def _shared(key: tuple[str, str, str], load: Callable[[], Backbone]) -> Backbone:
    with _SHARING:
        backbone = _SHARED.get(key)
        if backbone is None:
            backbone = _SHARED[key] = load()
    return backbone


def exact_model(files: ModelFiles, device: str | None) -> Backbone:
    """Return the model in ``files.folder`` in float32, without PyTorch if possible; concurrent users share it.

    ``device`` is the requested device; it matters only for a model that needs PyTorch.
    """
    if runs_without_torch(files):
        return _shared((files.sha256, "float32", "numpy"), lambda: NumpyBert(files.folder))
    return batch_model(files, "float32", find_devices(device)[0])


def runs_without_torch(files: ModelFiles) -> bool:
    """Return whether :func:`exact_model` returns a model that runs without PyTorch."""
    return files.adapter is None and not files.trust_remote_code and is_plain_bert(files.folder)


def _load(files: ModelFiles, dtype: str, device: str) -> Backbone:
    """Load a model with the fastest implementation in PyTorch that supports it."""
    folder = files.folder
    plain = runs_without_torch(files)
    if dtype == "int8":
        from ragembed.models.int8_bert import Int8Bert, require_int8

        require_int8(device, plain)
        return Int8Bert(files)
    if device.startswith("cpu") and plain:
        from ragembed.models.packed_bert import PackedBert, can_pack

        if can_pack(dtype):
            return PackedBert(folder, dtype)
    from ragembed.models.transformers_model import TransformersModel

    return TransformersModel(folder, dtype, device, files.adapter, trust_remote_code=files.trust_remote_code)
