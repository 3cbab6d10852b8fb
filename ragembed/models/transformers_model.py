"""Any Hugging Face model through PyTorch: token ids to hidden states. Only this module imports transformers."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ragembed.config.specs import WORD_EMBEDDINGS
from ragembed.errors import ConfigError, GpuError, ModelError
from ragembed.extras import needed_for
from ragembed.types import Floats

with needed_for("a model that is not a BERT or one of its relatives, with a tokenizer.json,"):
    import torch
    import transformers

if TYPE_CHECKING:
    import tokenizers


_MEMORY_SHARE = 0.8  # share of the free GPU memory; the rest is for workspaces of libraries and for fragmentation
_VECTORS_PER_BLOCK = 8  # vectors per token that a block holds at once: input, query, key, value, sums

_ENCODER_DECODERS = frozenset({"t5", "mt5", "umt5", "longt5"})
"""Model types with a class in transformers for their encoder alone, which is how encoders are saved."""
_UNUSED_WEIGHTS = re.compile(r"(^|\.)(pooler|decoder|lm_head)\.")
"""Weights that no hidden state depends on; transformers initialises them if they are not in the files."""
_HEAD_WEIGHTS = re.compile(
    r"^(cls|lm_head|head|predictions|generator_\w+|discriminator_\w+|vocab_\w+|mlm|decoder|pooler|qa_outputs)\b"
    r"|(^|\.)(pooler|decoder|position_ids|inv_freq|masked_bias|attn\.bias)\b"
)
"""Weights of heads and buffers, which checkpoints may contain and hidden states do not need."""
_LOADING = threading.Lock()  # transformers patches torch while it loads a model


class TransformersModel:
    """Any Hugging Face encoder or decoder, in eval mode, without gradients, with weights from safetensors.

    Code in ``folder`` runs only with ``trust_remote_code``; ``adapter`` is the folder of a PEFT adapter.
    """

    def __init__(
        self, folder: Path, dtype: str, device: str, adapter: Path | None = None, *, trust_remote_code: bool = False
    ) -> None:
        self._device = torch.device(device)
        model = load_model(folder, trust_remote_code)
        if adapter is not None:
            _add_adapter(model, adapter)
        try:
            self._model = model.to(device=self._device, dtype=getattr(torch, dtype)).eval()
        except torch.cuda.OutOfMemoryError as error:
            raise GpuError(
                f"the model in {folder} does not fit in the free memory of {device}: free some memory, or choose "
                "another device or a smaller model"
            ) from error
        self.dim = int(model.config.hidden_size)
        self.n_layers = int(model.config.num_hidden_layers)
        self._budget = _memory_budget(self._device)
        self.head: Any = None
        self.kept: tuple[NDArray[np.int64], Any] | None = None

    def take_head(self, model: Any) -> None:
        """Use the weights of ``model``, the same decoder with its language-modelling head, from now on.

        ``head`` is then this model. ``kept`` is the last single window (its token ids, and their keys and values).
        """
        self.head = model.to(device=self._device, dtype=self._model.dtype).eval()
        self._model = self.head.base_model

    def states(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Return the hidden states of ``layers``; a batch that exceeds the memory of the device is split in halves."""
        while True:
            rows = len(ids)
            if self._budget is not None:
                rows = max(1, min(rows, self._budget // self._row_bytes(ids.shape[1], layers)))
            try:
                return self._in_parts(ids, lengths, layers, rows)
            except torch.cuda.OutOfMemoryError as error:
                if rows == 1:
                    raise GpuError(
                        f"1 window of {ids.shape[1]} tokens, from a batch of {len(ids)}, does not fit in the free "
                        f"memory of {self._device}: free some memory, set max_tokens below {ids.shape[1]}, or choose "
                        "another device"
                    ) from error
                self._budget = rows // 2 * self._row_bytes(ids.shape[1], layers)
            torch.cuda.empty_cache()  # after the except block, because the error keeps the partial results alive

    def _in_parts(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...], rows: int
    ) -> list[Floats]:
        """Compute ``rows`` windows at a time."""
        if rows >= len(ids):
            return self._compute(ids, lengths, layers)
        parts = [
            self._compute(ids[start : start + rows], lengths[start : start + rows], layers)
            for start in range(0, len(ids), rows)
        ]
        return [np.concatenate(of_layer) for of_layer in zip(*parts, strict=True)]

    def _compute(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], layers: tuple[int, ...]) -> list[Floats]:
        """Compute the hidden states of a batch that fits in memory."""
        mask = (np.arange(ids.shape[1]) < lengths[:, None]).astype(np.int64)
        with torch.inference_mode(), _current(self._device):
            tokens = torch.from_numpy(ids).to(self._device)
            output = None
            if any(layer != WORD_EMBEDDINGS for layer in layers):
                output = self._model(
                    input_ids=tokens,
                    attention_mask=torch.from_numpy(mask).to(self._device),
                    output_hidden_states=self._needs_all(layers),
                )
            if self.head is not None and output is not None and len(ids) == 1:
                self.kept = ids[0, : lengths[0]].copy(), output.past_key_values
            return [self._state(layer, tokens, output).float().cpu().numpy() for layer in layers]

    def word_embeddings(self) -> Floats:
        """Return the word-embedding table; see :meth:`ragembed.models.choice.Backbone.word_embeddings`."""
        table: Floats = self._model.get_input_embeddings().weight.detach().float().cpu().numpy()
        return table

    def _needs_all(self, layers: tuple[int, ...]) -> bool:
        """Return whether a hidden layer other than the last is needed."""
        return any(layer not in (WORD_EMBEDDINGS, self.n_layers) for layer in layers)

    def _row_bytes(self, tokens: int, layers: tuple[int, ...]) -> int:
        """Return an upper bound of the memory for a window of ``tokens`` tokens on the device."""
        config = self._model.config
        layers_held = self.n_layers + 1 if self._needs_all(layers) else 1
        inner = 3 * _largest(config, "intermediate_size", 4 * self.dim)  # gate, values and their product
        scores = 2 * _largest(config, "num_attention_heads", 0) * tokens  # before and after the softmax
        values = (layers_held + _VECTORS_PER_BLOCK) * self.dim + inner + scores
        size: int = tokens * (values * self._model.dtype.itemsize + 4 * self.dim)  # one layer at a time as float32
        return size

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


def _add_adapter(model: Any, adapter: Path) -> None:
    """Change the weights of ``model`` by the PEFT adapter in ``adapter``."""
    with needed_for(f"the PEFT adapter in {adapter}"):
        import peft  # noqa: F401  transformers imports it
    try:
        with loading_model():
            report = model.load_adapter(str(adapter))
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelError(f"the adapter in {adapter} cannot be loaded: {error}") from error
    wrong = sorted({*getattr(report, "missing_keys", ()), *getattr(report, "unexpected_keys", ())})
    if wrong:
        raise ModelError(
            f"the adapter in {adapter} does not fit its base model: {wrong[0]} does not match; get it again"
        )


def load_model(folder: Path, trust_remote_code: bool = False) -> Any:
    """Load a model, or the encoder of an encoder-decoder.

    Raises :class:`ModelError` if it cannot be loaded, or if its weights are not exactly those that it needs.
    """
    options = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    try:
        with loading_model():
            config = transformers.AutoConfig.from_pretrained(str(folder), **options)
            encoder = config.model_type in _ENCODER_DECODERS
            kind: Any = transformers.AutoModelForTextEncoding if encoder else transformers.AutoModel
            model, info = kind.from_pretrained(str(folder), **options, use_safetensors=True, output_loading_info=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"the model in {folder} cannot be loaded: {error}") from error
    missing = sorted(name for name in info["missing_keys"] if not _UNUSED_WEIGHTS.search(name))
    unknown = sorted(name for name in info["unexpected_keys"] if not _HEAD_WEIGHTS.search(name))
    if missing or unknown:
        name, what = (missing[0], "is missing") if missing else (unknown[0], f"is unknown to {type(model).__name__}")
        raise ModelError(
            f"the weights in {folder} do not match its config.json: {name} {what} ({len(missing)} missing, "
            f"{len(unknown)} unknown); get the model again, or choose one that transformers supports"
        )
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) and not encoder else model


def config_shape(folder: Path) -> tuple[int, int]:
    """Return the dimension and the number of blocks of the model in ``folder``, under any name in its configuration."""
    try:
        config: Any = transformers.AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        return int(config.hidden_size), int(config.num_hidden_layers)
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"cannot read the configuration of the model in {folder}: {error}") from error


@contextlib.contextmanager
def loading_model() -> Iterator[None]:
    """Load one model at a time, without the progress bar and the report of transformers."""
    logging: Any = transformers.utils.logging
    with _LOADING:
        shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if shown:
                logging.enable_progress_bar()


def slow_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """Build the fast tokenizer of a model that has only the files of the slow one."""
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_fast=True
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the tokenizer in the model folder {folder}: {error}") from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ConfigError(
            f"the tokenizer in {folder} has no fast version: expected one; save the model with a tokenizer.json"
        )
    result: tokenizers.Tokenizer = backend
    return result


def _memory_budget(device: torch.device) -> int | None:
    """Return the number of bytes that a batch may use on ``device``; None if there is no limit."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    return int(_MEMORY_SHARE * free)


def _largest(config: Any, name: str, default: int) -> int:
    """Return a size in the configuration of a model; the largest if it differs between blocks."""
    size = getattr(config, name, None)
    return default if size is None else int(np.max(size))


def _current(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Make a GPU the current device of this thread, which some kernels require."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
