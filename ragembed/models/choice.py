"""The interface of a forward pass, and the choice of the implementation: only this module knows all of them."""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError
from ragembed.extras import is_installed, missing
from ragembed.models.bert_files import is_plain_bert
from ragembed.models.numpy_bert import NumpyBert
from ragembed.models.tokenizer import model_window
from ragembed.resources import cores
from ragembed.types import Floats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ragembed.models.files import ModelFiles

_LOG = logging.getLogger(__name__)
_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})
"""Flags of processors that multiply bfloat16 in hardware."""
_COMPARED, _SAME = (1, 9, 16, 24, 33, 47), 0.98
"""Numbers of tokens for which OpenVINO is compared with NumPy, and the least cosine of equal hidden states."""


class Backbone(Protocol):
    """A model that turns windows of token ids into token vectors."""

    dim: int
    n_layers: int

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``: -1 is the word embeddings, 0 the input of the blocks, 1 to L blocks.

        ``ids``, shape ``(batch, tokens)``, are padded on the right after ``lengths`` tokens; states at padding are
        undefined.
        """
        ...

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table, float32, shape ``(vocabulary, d)``."""
        ...


_SHARING = threading.Lock()
_SHARED: WeakValueDictionary[tuple[str, str, str], Backbone] = WeakValueDictionary()


def find_devices(requested: str | None) -> tuple[str, ...]:
    """Return the PyTorch names of the requested devices; only the CPU if PyTorch is not installed.

    Raises like :func:`ragembed.models.torch_devices.find_devices`, and :class:`ragembed.errors.MissingExtraError` if a
    device other than the CPU is requested without PyTorch.
    """
    any_cpu = requested in (None, "auto", "cpu")
    if is_installed("torch") and not (any_cpu and _is_built_for_cpus()):
        from ragembed.models import torch_devices

        return torch_devices.find_devices(requested)
    if not any_cpu:
        raise missing("torch", f"the device {requested!r}")
    return ("cpu",)


@cache
def _is_built_for_cpus() -> bool:
    """Return whether PyTorch can use no GPU; to read that takes no import, which takes more than a second."""
    spec = importlib.util.find_spec("torch")
    if "torch" in sys.modules or spec is None or spec.origin is None:
        return False
    with suppress(OSError):
        built = Path(spec.origin).with_name("version.py").read_text("utf-8")
        return {"cuda", "hip"} <= {*re.findall(r"^(cuda|hip)\b.*= None$", built, re.MULTILINE)}
    return False


def fast_dtype(devices: Sequence[str]) -> str:
    """Return the faster arithmetic on ``devices``: ``"bfloat16"`` or ``"float32"``."""
    on_cpu = all(map(_is_cpu, devices))
    if on_cpu and is_installed("openvino"):
        return _fast_cpu_dtype()
    if not is_installed("torch"):
        return "float32"
    from ragembed.models import torch_devices

    return torch_devices.fast_dtype(devices)


def _fast_cpu_dtype() -> str:
    """Return the faster arithmetic on the CPU; Linux knows it, so that nothing has to be imported there."""
    with suppress(OSError):
        flags = next(filter(re.compile("^flags").match, Path("/proc/cpuinfo").read_text("utf-8").splitlines()), "")
        return "float32" if _BFLOAT16.isdisjoint(flags.split()) else "bfloat16"
    from ragembed.models import openvino_bert

    return openvino_bert.fast_dtype()


def _is_cpu(device: str) -> bool:
    return device.startswith("cpu")


def batch_model(files: ModelFiles, dtype: str, device: str) -> Backbone:
    """Return the model in ``files.folder`` for batches of texts; concurrent users share one loaded model.

    ``dtype`` is ``"float32"``, ``"bfloat16"`` or ``"int8"``, ``device`` a PyTorch name.
    """
    plain = runs_without_torch(files)
    if streams(files, device):
        return _shared((files.sha256, dtype, "openvino"), lambda: _with_openvino(files, dtype))
    if dtype == "int8":
        if plain and _is_cpu(device):
            raise missing("openvino", "encoding in int8")
        reason = f"the device is {device!r}" if plain else "the model is not a BERT or one of its relatives in float32"
        raise ConfigError(f"dtype is 'int8', but {reason}: choose another dtype, or a plain model and the device 'cpu'")
    if is_installed("torch"):
        return _shared((files.sha256, dtype, device), lambda: _with_torch(files, dtype, device))
    if not plain:
        raise missing("torch", f"the model in {files.folder}, which is not a BERT or one of its relatives in float32,")
    if dtype != "float32":
        raise missing("openvino", f"encoding many texts in {dtype}")
    return exact_model(files, None)


def streams(files: ModelFiles, device: str) -> int:
    """Return the number of windows that OpenVINO computes at a time on ``device``; 0 if it does not run the model."""
    return cores() if _is_cpu(device) and is_installed("openvino") and runs_without_torch(files) else 0


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


def _with_openvino(files: ModelFiles, dtype: str) -> Backbone:
    """Return OpenVINO's forward pass, or NumPy's with a warning where the results of OpenVINO differ from it."""
    from ragembed.models.openvino_bert import OpenVinoBert

    fast, exact = OpenVinoBert(files.folder, dtype), NumpyBert(files.folder)
    draw = np.random.default_rng(0)
    room = model_window(files.folder, files.folder)
    for length in (each for each in _COMPARED if each <= room):
        ids = draw.integers(len(exact.word_embeddings()), size=(1, length))
        mine, other = (model.states(ids, np.array([length]), (exact.n_layers,))[0] for model in (fast, exact))
        if not np.sum(mine * other) > _SAME * np.linalg.norm(mine) * np.linalg.norm(other):
            _LOG.warning("OpenVINO computes wrong vectors on this processor; NumPy computes them instead, more slowly")
            return exact
    return fast


def _with_torch(files: ModelFiles, dtype: str, device: str) -> Backbone:
    from ragembed.models.transformers_model import TransformersModel

    return TransformersModel(files.folder, dtype, device, files.adapter, trust_remote_code=files.trust_remote_code)
