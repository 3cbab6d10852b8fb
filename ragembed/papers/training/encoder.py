"""The encoder that is trained: a Hugging Face model, a pooling and a head, on a device; loading and saving it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional

from ragembed.errors import ModelError
from ragembed.files import publish
from ragembed.models.packaging import read_json
from ragembed.models.torch_devices import find_devices
from ragembed.models.transformers_model import load_model, loading_model
from ragembed.papers.training.settings import Head, Pooling


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A device, and whether forward passes use bfloat16 autocast."""

    device: torch.device
    bf16: bool = False

    @classmethod
    def of(cls, device: str | None, bf16: bool) -> Arithmetic:
        """Use the first device of :func:`ragembed.models.torch_devices.find_devices`. Raises the same errors."""
        return cls(torch.device(find_devices(device)[0]), bf16)

    def autocast(self) -> torch.autocast:
        """Return the context manager for a forward pass."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.bf16)

    @contextlib.contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Seed PyTorch's random generators, which dropout uses, and restore their states afterwards."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    def generator_states(self) -> dict[str, torch.Tensor]:
        """Return the states of the random generators, as uint8 tensors."""
        states = {"rng.cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def restore_generators(self, states: dict[str, torch.Tensor]) -> None:
        """Restore the states that :meth:`generator_states` returned."""
        torch.set_rng_state(states["rng.cpu"])
        if "rng.cuda" in states and self.device.type == "cuda":
            torch.cuda.set_rng_state(states["rng.cuda"], self.device)


Activation = Literal["tanh", "gelu"]


class PoolerHead(nn.Module):
    """A dense layer and an activation: tanh for BERT's pooler, GELU (erf) for the dense layer of RoBERTa's MLM head."""

    def __init__(self, dense: nn.Linear, activation: Activation) -> None:
        super().__init__()
        self.dense = dense
        self.activation = activation

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return the projection of ``pooled``, both of shape ``(n, d)``."""
        inner = self.dense(pooled)
        return torch.tanh(inner) if self.activation == "tanh" else functional.gelu(inner)


class MlmHead(nn.Module):
    """The frozen masked-word head of DefSent, without its last product: dense layer, GELU (erf), layer norm."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], epsilon: float) -> None:
        super().__init__()
        dim = len(tensors["dense.bias"])
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=epsilon)
        self.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        self.requires_grad_(False)

    def forward(self, pooled: torch.Tensor) -> torch.Tensor:
        """Return the projection of ``pooled``, both of shape ``(n, d)``."""
        projected: torch.Tensor = self.norm(functional.gelu(self.dense(pooled)))
        return projected


_OWN = "pooler.dense."
_MLM_DENSE = ("lm_head.dense.", "cls.predictions.transform.dense.")
_MLM_NORM = ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm.")
_MLM_BIAS = ("lm_head.bias", "cls.predictions.bias")
_TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "sentence_bert_config.json"),
)
_ROBERTA = ("roberta", "xlm-roberta", "camembert")


class DefinitionEncoder(nn.Module):
    """``h(s)`` of equation 1: the last layer of a model, pooled and projected.

    ``body`` is the Hugging Face model. Its parameters include those of a :class:`PoolerHead`, so saving the body saves
    both.
    """

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def pooled(self, ids: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
        """Return vectors of first tokens (``cls``), or means over all tokens with special ones, shape ``(n, d)``."""
        states: torch.Tensor = self.body(input_ids=ids, attention_mask=mask).last_hidden_state
        if pooling == "cls":
            return states[:, 0]
        weights = mask.unsqueeze(-1).to(states.dtype)  # (n, tokens, 1)
        return (states * weights).sum(dim=1) / weights.sum(dim=1)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, pooling: Pooling) -> torch.Tensor:
        """Return the projections of texts, shape ``(n, d)``; see :meth:`pooled`."""
        projected: torch.Tensor = self.head(self.pooled(ids, mask, pooling))
        return projected

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        config: Any = self.body.config
        return int(config.hidden_size)

    @property
    def pad(self) -> int:
        """Id of the padding token."""
        config: Any = self.body.config
        return int(config.pad_token_id or 0)


def load_encoder(folder: Path, head: Head, head_folder: Path | None = None) -> DefinitionEncoder:
    """Load a new copy of the model in ``folder``, in float32, with the head ``head``.

    The weights of the head come from the model in ``head_folder``, by default from ``folder``.
    """
    source = head_folder or folder
    body = _load_body(folder)
    pooler = getattr(body, "pooler", None)
    dense = getattr(pooler, "dense", None)
    if not isinstance(dense, nn.Linear):
        raise ModelError(
            f"the model in {folder} has the type {body.config.model_type!r} and no pooler with one dense layer: "
            "expected BERT, RoBERTa or a similar model"
        )
    chosen = choose_head(head, body.config.model_type)
    tensors = _tensors(source, (_OWN,) if chosen == "own" else _MLM_DENSE)
    if set(tensors) != {"weight", "bias"}:
        wanted, other = ("pooler.dense", "mlm-head") if chosen == "own" else (" or ".join(_MLM_DENSE), "own")
        raise ModelError(
            f"the model in {source} has no weights {wanted}, which the head {chosen!r} needs: choose the head "
            f"{other!r}, or take the head from a checkpoint with these weights (--head-from)"
        )
    _require_dimension(source, tensors["bias"], folder, dense.out_features)
    with torch.no_grad():
        dense.weight.copy_(tensors["weight"])
        dense.bias.copy_(tensors["bias"])
    activation: Activation = "tanh" if chosen == "own" else "gelu"
    return DefinitionEncoder(body, PoolerHead(dense, activation))


def _require_dimension(source: Path, bias: torch.Tensor, folder: Path, dim: int) -> None:
    if len(bias) != dim:
        raise ModelError(
            f"the head in {source} has {len(bias)} dimensions, but the model in {folder} has {dim}: take the head from "
            "the model that this one was trained from"
        )


def choose_head(head: Head, model_type: str) -> Head:
    """Return ``own`` or ``mlm-head``. RoBERTa's pooler is untrained, so ``auto`` uses its masked-word head."""
    if head != "auto":
        return head
    return "mlm-head" if model_type in _ROBERTA else "own"


def load_trained(folder: Path, activation: Activation) -> DefinitionEncoder:
    """Load an encoder with a :class:`PoolerHead` that :func:`save_encoder` saved."""
    body = _load_body(folder)
    return DefinitionEncoder(body, PoolerHead(body.pooler.dense, activation))


def load_bare(folder: Path) -> DefinitionEncoder:
    """Load the model in ``folder`` without a head, for pooled vectors without projection (equation 2)."""
    return DefinitionEncoder(_load_body(folder), nn.Identity())


def load_with_mlm_head(folder: Path, head: Mapping[str, torch.Tensor] | None = None) -> DefinitionEncoder:
    """Load a new copy of a model with its frozen masked-word head, for DefSent.

    The word embeddings are frozen too, because the last layer of the head shares them.
    """
    body = _load_body(folder)
    if body.config.hidden_act != "gelu":
        raise ModelError(f"the model in {folder} has the activation {body.config.hidden_act!r}: expected 'gelu'")
    tensors = head if head is not None else mlm_head_tensors(folder)
    _require_dimension(folder, tensors["dense.bias"], folder, body.config.hidden_size)
    body.get_input_embeddings().weight.requires_grad_(False)
    return DefinitionEncoder(body, MlmHead(tensors, float(body.config.layer_norm_eps)))


def mlm_head_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors for :class:`MlmHead`. Raises :class:`ModelError` if the model has none."""
    dense, norm = _tensors(folder, _MLM_DENSE), _tensors(folder, _MLM_NORM)
    if set(dense) != {"weight", "bias"} or set(norm) != {"weight", "bias"}:
        raise ModelError(
            f"the model in {folder} has no masked-word head ({' or '.join(_MLM_DENSE)}), which DefSent needs: "
            "train with DefSent+, or choose another model"
        )
    return {
        f"{part}.{name}": tensor for part, found in (("dense", dense), ("norm", norm)) for name, tensor in found.items()
    }


def mlm_bias(folder: Path) -> torch.Tensor:
    """Return the bias of the masked-word head, which it adds to the score of each token, shape ``(vocabulary,)``."""
    found = _tensors(folder, _MLM_BIAS)
    if not found:
        raise ModelError(
            f"the model in {folder} has no {' or '.join(_MLM_BIAS)}, a part of the masked-word head: choose a "
            "checkpoint with this tensor"
        )
    return found[""].float()


def save_encoder(encoder: DefinitionEncoder, folder: Path, source: Path) -> None:
    """Save the model, with the tokenizer of the model in ``source``, to ``folder`` atomically.

    A pooler head is saved among the weights of the model as ``pooler.dense``. The caller must record its activation.
    """
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    body: Any = encoder.body
    with loading_model():
        body.save_pretrained(str(temporary))
    for file in (*(source / name for name in _TOKENIZER_FILES), *source.glob("*.model")):
        if file.is_file():
            shutil.copyfile(file, temporary / file.name)
    publish(temporary, folder)


def _load_body(folder: Path) -> Any:
    # A missing pooler is initialised at random. This must not change the caller's random generator.
    with torch.random.fork_rng(devices=[]):
        model = load_model(folder)
    if getattr(model.config, "is_encoder_decoder", False) or getattr(model.config, "is_decoder", False):
        raise ModelError(f"the model in {folder} is a decoder: expected an encoder such as BERT")
    return model.float()


def _tensors(folder: Path, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Return the tensors whose names contain one of ``names`` after an optional prefix, by the rest of their name."""
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        with safe_open(str(file), framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118  not a mapping
                for name in names:
                    head, marker, rest = key.rpartition(name)
                    if marker and (not head or head.endswith(".")):
                        found[rest] = tensors.get_tensor(key)
    return found


def model_type(folder: Path) -> str:
    """Return the model type from ``config.json``."""
    return str(read_json(folder / "config.json").get("model_type", ""))
