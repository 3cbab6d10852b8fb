"""Generate text with the decoder that encodes queries: one loaded model, and one pass over the tokens they share.

Source of the idea: Stankevičius & Lukoševičius 2024, section 5.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ragembed.errors import ConfigError, ModelError
from ragembed.extras import needed_for
from ragembed.models.choice import exact_model
from ragembed.models.tokenizer import TextTokenizer

with needed_for("generating text"):
    import torch
    import transformers
    from transformers.cache_utils import DynamicCache

    from ragembed.models.transformers_model import loading_model

if TYPE_CHECKING:
    from ragembed.models.files import ModelFiles
    from ragembed.models.transformers_model import TransformersModel

_SHARING = threading.Lock()


class Generator:
    """A decoder that encodes queries and generates text; an encoder or an adapter raises :class:`ConfigError`.

    It shares its weights with the embedders of this process, and continues the last encoded query.
    """

    def __init__(self, files: ModelFiles, device: str | None) -> None:
        if TextTokenizer(files.tokenizer, files.folder).has_mask:
            raise ConfigError(
                f"the model in {files.folder} is an encoder, which does not generate: expected a decoder, such as GPT-2"
            )
        if files.adapter is not None:
            raise ConfigError(f"the adapter in {files.root} cannot generate: merge it with its base model first")
        # Models without a mask token are decoders, which run in transformers.
        self._backbone = backbone = cast("TransformersModel", exact_model(files, device))
        self.reused = 0
        with _SHARING:
            if backbone.head is None:
                backbone.take_head(_with_head(files))
        self.max_tokens = int(backbone.head.config.max_position_embeddings)  # transformers maps n_positions to this

    def generate(self, ids: Sequence[int], most: int, settings: Mapping[str, Any]) -> list[int]:
        """Return at most ``most`` tokens that follow ``ids``; ``settings`` are those of transformers' ``generate``."""
        backbone = self._backbone
        cache, self.reused = _known_part(backbone.kept, ids)
        tokens = torch.tensor([list(ids)], device=backbone.head.device)
        options = {"do_sample": False, "max_new_tokens": most, **settings}
        if "pad_token_id" not in options and backbone.head.generation_config.pad_token_id is None:
            options["pad_token_id"] = 0  # a single text has no padding; without an id, transformers warns
        with torch.inference_mode():
            output = backbone.head.generate(
                tokens, attention_mask=torch.ones_like(tokens), past_key_values=cache, **options
            )
        generated: list[int] = output[0, len(ids) :].tolist()
        return generated


def _with_head(files: ModelFiles) -> Any:
    """Load a decoder with its language-modelling head."""
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": files.trust_remote_code}
    try:
        with loading_model():
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                str(files.folder), **options, use_safetensors=True, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"the model in {files.folder} cannot generate: {error}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        raise ModelError(
            f"the weights in {files.folder} have no {missing[0]}, which generating needs: choose a model with its "
            "language-modelling head"
        )
    return model


def _known_part(kept: tuple[NDArray[np.int64], Any] | None, ids: Sequence[int]) -> tuple[DynamicCache, int]:
    """Return a cache with the keys and values of the longest common beginning, and its length.

    At least one token is left to compute. Caches that forget tokens, such as those of sliding windows, are not used.
    """
    cache = DynamicCache()
    if kept is None or any(type(layer).__name__ != "DynamicLayer" for layer in getattr(kept[1], "layers", [None])):
        return cache, 0
    computed, states = kept
    length = min(len(computed), len(ids) - 1)
    differ = np.flatnonzero(computed[:length] != np.asarray(ids[:length]))
    same = int(differ[0]) if len(differ) else length
    if same:
        for number, layer in enumerate(states.layers):
            cache.update(layer.keys[:, :, :same], layer.values[:, :, :same], number)
    return cache, same
