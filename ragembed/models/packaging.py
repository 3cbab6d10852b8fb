"""What the files beside the weights say about a model: pooling, prompts, the window, and which models are refused.

The format is that of sentence-transformers: ``modules.json``, a folder for each module, and
``config_sentence_transformers.json``.

A model that ragembed would compute in another way than its authors is refused, with the reason and the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ragembed.errors import ModelError
from ragembed.files import read_regular

Route: TypeAlias = Literal["document", "query"]

_HEADS = {
    "ForSequenceClassification": "a classifier or cross-encoder, not an embedding model: use a cross-encoder with "
    "--rerank, and choose an embedding model here",
    "ForTokenClassification": "a model that labels tokens, not an embedding model: choose an embedding model",
    "ForQuestionAnswering": "a model that extracts answers, not an embedding model: choose an embedding model",
}
"""Ends of architecture names in ``config.json``, with the reason for the refusal."""
_MULTI_VECTOR = ("ColBERT", "MultiVectorEncoder")
_STANFORD = "HF_ColBERT"
_KINDS = {
    "SparseEncoder": "a sparse encoder: choose a dense embedding model; ragembed has BM25 for search by words",
    "CrossEncoder": _HEADS["ForSequenceClassification"],
    **dict.fromkeys(
        _MULTI_VECTOR,
        "a multi-vector model, which has a vector for each token: use it with --rerank, and choose an embedding model "
        "here",
    ),
}
"""Values of ``model_type`` in ``config_sentence_transformers.json``, with the reason for the refusal."""
_SPARSE_MODULES = ("SpladePooling", "MLMTransformer", "SparseStaticEmbedding", "SparseAutoEncoder")
_FIRST = ("Transformer", "StaticEmbedding", *_SPARSE_MODULES)
"""Modules whose folder has the weights and the tokenizer of a model."""
PACKAGE_FILES = (
    "sentence_bert_config.json",
    "tokenizer_config.json",
    "modules.json",
    "config_sentence_transformers.json",
)
"""Files in the folder of a model that state how it is used."""
_PORTED = {"nomic_bert": ("NomicBertModel",), "gte": ("NewModel", "GteModel"), "eurobert": ("EuroBertModel",)}
"""Model types whose authors' code is part of transformers, with the names of the authors' classes."""
_TASK = "feature-extraction"
_WEIGHTS = "model.safetensors"
MOST_JSON, MOST_TOKENIZER = 16 << 20, 256 << 20
"""Largest settings of a model, and largest ``tokenizer.json``, in bytes."""
_POOLINGS = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt",
    "weightedmean": "weighted",
    "lasttoken": "last",
}
"""Pooling modes of sentence-transformers in the order in which it joins them, and their names here."""
_OLD_POOLINGS = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
_WITH_WEIGHTS = ("Dense", "LayerNorm")
_HEAD_MODULES = (*_WITH_WEIGHTS, "Normalize")
_ROUTER = "Router"
_COMPUTED = ("Transformer", "Pooling", "StaticEmbedding", "Dropout", *_HEAD_MODULES)
_LIBRARY = "sentence_transformers."
_PLAIN_REMEDY = "set the pooling, such as --pooling mean, to use the transformer alone"
_MODEL2VEC = "model2vec"


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a model: the name of its class, its folder, the full name of the class, and its settings."""

    name: str
    folder: Path
    type: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Package:
    """How the authors of a model use it."""

    pooling: str | None = "mean"  # as in EmbedderConfig; None for a static model
    prompts: Mapping[str, str] = field(default_factory=dict)  # the texts before a document or query, by name
    modules: tuple[Module, ...] = ()  # after the pooling, without a final Normalize, which changes no cosine
    truncate_dim: int | None = None  # leading dimensions to keep; None keeps all

    @property
    def document_prompt(self) -> str:
        """The text before each document: as in sentence-transformers 6.2, only the prompt ``document``."""
        return self.prompts.get("document", "")

    @property
    def unused_prompt(self) -> str:
        """The text that authors of older packages put before each document, and sentence-transformers 6.2 does not."""
        unused = (self.prompts.get(name, "") for name in ("passage", "corpus"))
        return "" if self.document_prompt else next(filter(None, unused), "")

    @property
    def query_prompt(self) -> str:
        """The text before each query."""
        return self.prompts.get("query", "")


def is_packaged(folder: Path) -> bool:
    """Return whether the files of the model in ``folder`` state how it is used."""
    return (folder / "modules.json").is_file() or _is_model2vec(folder)


def has_router(folder: Path) -> bool:
    """Return whether the model in ``folder`` has separate modules for documents and queries."""
    return any(module.name == _ROUTER for module in _listed(folder))


def read_package(folder: Path, route: Route = "document") -> Package:
    """Return how the model in ``folder`` is used for a ``route``; mean pooling without prompts if nothing is stated."""
    if not (folder / "modules.json").is_file() and _is_model2vec(folder):
        return Package(None)
    pooling: str | None = "mean"
    after: list[Module] = []
    for module in _modules(folder, route):
        if module.name not in _COMPUTED or not module.type.startswith(_LIBRARY):
            raise ModelError(
                f"the model in {folder} has the module {module.type!r}, which ragembed does not compute: "
                f"{_PLAIN_REMEDY}"
            )
        if module.name == "StaticEmbedding":
            pooling = None
        elif module.name == "Pooling":
            pooling = _pooling(folder, read_json(module.folder / "config.json"))
        elif module.name in _HEAD_MODULES:
            settings = read_json(module.folder / "config.json")
            _check_input(folder, module.name, settings)
            after.append(replace(module, settings=settings))
    stated = read_json(folder / "config_sentence_transformers.json")
    similarity = stated.get("similarity_fn_name")
    if similarity not in (None, "cosine") and not (after and after[-1].name == "Normalize"):
        raise ModelError(
            f"the model in {folder} compares vectors by {similarity!r}, and ragembed compares them by cosine: choose "
            f"another model, or set the pooling, such as --pooling {pooling or 'mean'}, to compare by cosine anyway"
        )
    while after and after[-1].name == "Normalize":
        after.pop()
    prompts = stated.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ModelError(f"the prompts of the model in {folder} are {prompts!r}: expected an object of texts by name")
    return Package(
        pooling,
        {str(name): str(text or "") for name, text in prompts.items()},
        tuple(after),
        stated.get("truncate_dim"),
    )


def package_files(folder: Path, route: Route = "document") -> list[Path]:
    """Return the files besides weights and tokenizer that determine how the model in ``folder`` is used.

    The poolings are not among them: fingerprints contain their names.
    """
    main = main_folder(folder, route)
    places = [folder] if main == folder else [folder, main]
    heads = [module.folder for module in _modules(folder, route) if module.name in _WITH_WEIGHTS]
    return [
        *(place / name for place in places for name in PACKAGE_FILES),
        *(place / name for place in heads for name in ("config.json", _WEIGHTS)),
    ]


def is_static(folder: Path, route: Route = "document") -> bool:
    """Return whether the model in ``folder`` is a table of static vectors, not a transformer."""
    names = [module.name for module in _modules(folder, route)]
    return "StaticEmbedding" in names if names else _is_model2vec(folder)


def _is_model2vec(folder: Path) -> bool:
    return read_json(folder / "config.json").get("model_type") == _MODEL2VEC


def _check_input(folder: Path, name: str, settings: Mapping[str, Any]) -> None:
    """Raise :class:`ModelError` if a module after the pooling does not work on the vector of a text."""
    source = settings.get("module_input_name", "sentence_embedding")
    if source != "sentence_embedding" or settings.get("use_residual"):
        what = "a residual" if settings.get("use_residual") else f"the input {source!r}"
        raise ModelError(
            f"the model in {folder} has a module {name} with {what}, which ragembed does not compute: {_PLAIN_REMEDY}"
        )


def _pooling(folder: Path, config: dict[str, Any]) -> str:
    """Return the pooling in the configuration of the module ``Pooling``; several modes are joined by ``+``."""
    stated = config.get("pooling_mode")
    old = [
        _OLD_POOLINGS.get(mode := key.removeprefix("pooling_mode_"), mode)
        for key, value in config.items()
        if key.startswith("pooling_mode_") and value is True
    ]
    modes = [stated] if isinstance(stated, str) else list(stated or [])
    modes = modes or sorted(old, key=lambda mode: list(_POOLINGS).index(mode) if mode in _POOLINGS else -1) or ["mean"]
    unknown = [mode for mode in modes if mode not in _POOLINGS]
    if unknown:
        raise ModelError(
            f"the model in {folder} has the pooling {unknown[0]!r}: expected {', '.join(_POOLINGS)}; {_PLAIN_REMEDY}"
        )
    if config.get("include_prompt") is not False or modes == ["lasttoken"]:
        return "+".join(_POOLINGS[mode] for mode in modes)
    if modes != ["mean"]:
        raise ModelError(
            f"the model in {folder} has the pooling {' and '.join(map(repr, modes))} without the prompt, which "
            f"ragembed computes for 'mean' only: {_PLAIN_REMEDY}"
        )
    return "after-prompt"


def check_supported(folder: Path, route: Route = "document", *, trust_remote_code: bool = False) -> None:
    """Raise :class:`ModelError` if the model in ``folder`` is not a dense embedding model that ragembed can run.

    Refused are cross-encoders, sparse encoders and multi-vector models, and models with code of their own unless
    ``trust_remote_code`` is true.
    """
    main = main_folder(folder, route)
    config = read_json(main / "config.json")
    custom = config.get("auto_map")
    code = custom.get("AutoModel") or next(iter(custom.values()), None) if isinstance(custom, dict) else None
    ported = str(code).rpartition(".")[2] in _PORTED.get(str(config.get("model_type")), ()) and not config.get(
        "num_experts"
    )
    if code and not trust_remote_code and not ported:
        raise ModelError(
            f"the model in {folder} needs code of its own ({code}), which ragembed does not run by default: choose a "
            "model that transformers computes without custom code, or read the code and give --trust-remote-code"
        )
    names = architectures(main)
    reasons = [reason for end, reason in _HEADS.items() for name in names if name.endswith(end)]
    if any("ColBERT" in name for name in names):
        reasons.append(_KINDS["ColBERT"])
    packaged = str(read_json(folder / "config_sentence_transformers.json").get("model_type", ""))
    reasons += [_KINDS[packaged]] if packaged in _KINDS else []
    if any(module.name in _SPARSE_MODULES for module in _modules(folder, route)):
        reasons.append(_KINDS["SparseEncoder"])
    task = read_json(main / "sentence_bert_config.json").get("transformer_task", _TASK)
    if task != _TASK:
        reasons.append(f"a model for the task {task!r}: expected an embedding model, with the task {_TASK!r}")
    if reasons:
        raise ModelError(f"the model in {folder} is {reasons[0]}")


def architectures(folder: Path) -> list[str]:
    """Return the names of the classes of the model in ``folder``."""
    file = folder / "config.json"
    stated = read_json(file).get("architectures") or []
    if not isinstance(stated, list):
        raise ModelError(f"{file} has the architectures {stated!r}: expected a list of names; get the model again")
    return [str(name) for name in stated]


def is_multi_vector(folder: Path) -> bool:
    """Return whether the model in ``folder`` has a vector for each token, and a layout that is known."""
    stated = read_json(folder / "config_sentence_transformers.json").get("model_type")
    return stated in _MULTI_VECTOR or _STANFORD in architectures(folder)


def main_folder(folder: Path, route: Route = "document") -> Path:
    """Return the folder of the transformer or of the static vectors; packages may keep it below the model's folder."""
    modules = _modules(folder, route)
    for module in modules:
        if module.name in _FIRST:
            return module.folder
    if modules:
        raise ModelError(
            f"the model in {folder} begins with the module {modules[0].type!r}, which ragembed does not compute: "
            "choose a model that begins with 'Transformer' or 'StaticEmbedding'"
        )
    return folder


def read_json(file: Path) -> dict[str, Any]:
    """Return the fields of a JSON file; none if the file does not exist."""
    fields = _parsed(file, {})
    if not isinstance(fields, dict):
        raise ModelError(f"{file} contains {type(fields).__name__}: expected a JSON object; get the model again")
    return fields


def _modules(folder: Path, route: Route) -> list[Module]:
    """Return the modules in ``modules.json``; a router is replaced by its modules for ``route``."""
    modules: list[Module] = []
    for module in _listed(folder):
        modules += _routed(folder, module, route) if module.name == _ROUTER else [module]
    return modules


def _routed(folder: Path, router: Module, route: Route) -> list[Module]:
    """Return the modules of a router for ``route``."""
    fields = read_json(router.folder / "router_config.json") or read_json(router.folder / "config.json")
    structure, types, parameters = (fields.get(name) or {} for name in ("structure", "types", "parameters"))
    names = structure.get(route) or structure.get(parameters.get("default_route") or "")
    if not names or parameters.get("route_mappings"):
        shown = "has route_mappings" if parameters.get("route_mappings") else f"has no route {route!r}"
        raise ModelError(
            f"the router of the model in {folder} {shown}: expected the routes 'document' and 'query'; choose another "
            "model"
        )
    below = router.folder.relative_to(folder)
    return [_module(folder, types.get(name, ""), below / name) for name in names]


def _listed(folder: Path) -> list[Module]:
    """Return the modules in ``modules.json``."""
    modules = _parsed(folder / "modules.json", [])
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelError(f"{folder / 'modules.json'} is not a list of modules: get the model again")
    return [_module(folder, module.get("type", ""), module.get("path", "")) for module in modules]


def _module(folder: Path, kind: object, below: object) -> Module:
    """Return a module, whose folder ``below`` the model's folder must be in it."""
    path = Path(str(below))
    if path.is_absolute() or ".." in path.parts:
        raise ModelError(f"the module {str(path)!r} is outside the model folder {folder}: get the model again")
    return Module(str(kind).rpartition(".")[2], folder / path, str(kind))


def _parsed(file: Path, absent: Any) -> Any:
    if not file.is_file():
        return absent
    try:
        return json.loads(read_regular(file, MOST_JSON))
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}; get the model again") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{file} is not valid JSON ({error}): get the model again") from error
