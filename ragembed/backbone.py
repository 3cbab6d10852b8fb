"""Hugging Face models through PyTorch: token ids to hidden states. The only importer of torch and transformers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from ragembed.errors import ConfigError, ModelError
from ragembed.specs import WORD_EMBEDDINGS

if TYPE_CHECKING:
    import tokenizers

    from ragembed.models import ModelFiles

Floats = NDArray[np.float32]

_LOADING = threading.Lock()  # transformers patches torch while it loads a model
_SHARING = threading.Lock()
_SHARED: WeakValueDictionary[tuple[str, str, str], TorchBackbone] = WeakValueDictionary()


class Backbone(Protocol):
    """A model that turns windows of token ids into token vectors."""

    dim: int
    n_layers: int

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``: -1 the word embeddings, 0 the blocks' input, 1..L the blocks.

        ``ids`` has shape ``(batch, tokens)``, padded at the right with any id; ``lengths``, shape ``(batch,)``, counts
        the tokens of each row that are not padding. Each is float32, shape ``(batch, tokens, d)``; rows at padding are
        undefined.
        """
        ...

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table, float32, shape ``(vocabulary, d)``."""
        ...


class TorchBackbone:
    """Any Hugging Face encoder or decoder, in eval mode, without gradients.

    Parameters
    ----------
    folder
        The model's folder; weights are read from safetensors, code in it is never run.
    dtype
        ``"float32"`` or ``"bfloat16"``.
    device
        A torch device; None takes the first GPU there is, else the CPU.
    """

    def __init__(self, folder: Path, dtype: str, device: str | None = None) -> None:
        self._device = torch.device(device or default_device())
        try:
            with _LOADING, _no_progress_bar():
                model: Any = transformers.AutoModel.from_pretrained(
                    str(folder), local_files_only=True, use_safetensors=True, trust_remote_code=False
                )
        except (OSError, ValueError) as error:
            raise ModelError(f"the model in {folder} cannot be loaded: {error}") from error
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        self._model = model.to(device=self._device, dtype=getattr(torch, dtype)).eval()
        self.dim = int(model.config.hidden_size)
        self.n_layers = int(model.config.num_hidden_layers)

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``; see :meth:`Backbone.states`."""
        mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
        needs_all = any(layer not in (WORD_EMBEDDINGS, self.n_layers) for layer in layers)
        with torch.inference_mode():
            tokens = torch.from_numpy(ids).to(self._device)
            output = None
            if any(layer != WORD_EMBEDDINGS for layer in layers):
                output = self._model(
                    input_ids=tokens,
                    attention_mask=torch.from_numpy(mask).to(self._device),
                    output_hidden_states=needs_all,
                )
            return [self._state(layer, tokens, output).float().cpu().numpy() for layer in layers]

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table; see :meth:`Backbone.word_embeddings`."""
        table: Floats = self._model.get_input_embeddings().weight.detach().float().cpu().numpy()
        return table

    def _state(self, layer: int, tokens: torch.Tensor, output: Any) -> Any:
        if layer == WORD_EMBEDDINGS:
            embeddings = self._model.get_input_embeddings()
            if embeddings.embedding_dim != self.dim:
                raise ConfigError(
                    f"layer {WORD_EMBEDDINGS} of this model has {embeddings.embedding_dim} dimensions, its other "
                    f"layers {self.dim}: choose layers from 0"
                )
            return embeddings(tokens)
        return output.last_hidden_state if layer == self.n_layers else output.hidden_states[layer]


def torch_backbone(files: ModelFiles, dtype: str, device: str | None = None) -> TorchBackbone:
    """Return the model in ``files.folder``, loaded once for all who use it at the same time; as :class:`TorchBackbone`.

    A model whose files were changed meanwhile is another model.
    """
    key = (files.sha256, dtype, device or default_device())
    with _SHARING:
        backbone = _SHARED.get(key)
        if backbone is None:
            backbone = _SHARED[key] = TorchBackbone(files.folder, dtype, device)
        return backbone


def config_shape(folder: Path) -> tuple[int, int]:
    """Return dimension and number of blocks of the model in ``folder``, by whatever names its configuration uses."""
    try:
        config: Any = transformers.AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        return int(config.hidden_size), int(config.num_hidden_layers)
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"the configuration of the model in {folder} cannot be read: {error}") from error


def default_device() -> str:
    """Return ``"cuda"`` where there is a GPU, else ``"cpu"``."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def fast_dtype() -> str:
    """Return ``"bfloat16"`` where the default device multiplies it in hardware, else ``"float32"``.

    On a CPU that takes AMX or AVX512-BF16: without them bfloat16 is slower than float32.
    """
    if default_device() == "cuda":
        supported = torch.cuda.is_bf16_supported()
    else:
        supported = _cpu_reports("_is_amx_tile_supported") or _cpu_reports("_is_avx512_bf16_supported")
    return "bfloat16" if supported else "float32"


def slow_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """Build the fast tokenizer of a model that ships only the slow one's files."""
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_fast=True
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"the model folder {folder} has no tokenizer that can be read: {error}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(f"the tokenizer in {folder} has no fast form: save the model with a tokenizer.json")
    result: tokenizers.Tokenizer = backend
    return result


def _cpu_reports(name: str) -> bool:
    probe = getattr(torch.cpu, name, None)
    return bool(probe is not None and probe())


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keep transformers from drawing its own progress bar while a model loads."""
    logging: Any = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
