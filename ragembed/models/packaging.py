"""What the files beside the weights say about a model: pooling, prompts, the window, and which models are refused.

The format is that of sentence-transformers: ``modules.json``, a folder for each module, and
``config_sentence_transformers.json``.

A model that ragembed would compute in another way than its authors is refused, with the reason and the remedy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragembed.errors import ModelError

_HEADS = {
    "ForSequenceClassification": "a classifier or cross-encoder, not an embedding model: use a cross-encoder with "
    "--rerank, and choose an embedding model here",
    "ForTokenClassification": "a model that labels tokens, not an embedding model: choose an embedding model",
    "ForQuestionAnswering": "a model that extracts answers, not an embedding model: choose an embedding model",
}
"""Ends of architecture names in ``config.json``, with the reason for the refusal."""
_KINDS = {
    "SparseEncoder": "a sparse encoder: choose a dense embedding model; ragembed has BM25 for search by words",
    "CrossEncoder": _HEADS["ForSequenceClassification"],
    "ColBERT": "a multi-vector model, which has a vector for each token: choose a model with one vector per text",
}
"""Values of ``model_type`` in ``config_sentence_transformers.json``, with the reason for the refusal."""
_SPARSE_MODULES = ("SpladePooling", "MLMTransformer", "SparseStaticEmbedding", "SparseAutoEncoder")
_UNLIMITED = 1_000_000
"""A larger ``model_max_length`` in ``tokenizer_config.json`` means that the tokenizer has no limit."""


_POOLINGS = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
"""Pooling modes of sentence-transformers, and the names of the same pooling here."""
_OLD_POOLINGS = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "lasttoken"}
_COMPUTED = ("Transformer", "Pooling", "Normalize")
_PLAIN_REMEDY = "set the pooling, such as --pooling mean, to use the transformer alone"


@dataclass(frozen=True, slots=True)
class Package:
    """How the authors of a model use it: the pooling, and the texts before each document and query."""

    pooling: str = "mean"
    document_prompt: str = ""
    query_prompt: str = ""


def read_package(folder: Path) -> Package:
    """Return how the model in ``folder`` is used; mean pooling without prompts if nothing is stated.

    Raises :class:`ModelError` for a module or a pooling that ragembed does not compute.
    """
    pooling = "mean"
    for module in _modules(folder):
        name = _class_name(module)
        if name not in _COMPUTED:
            raise ModelError(
                f"the model in {folder} has the module {name!r}, which ragembed does not compute: {_PLAIN_REMEDY}"
            )
        if name == "Pooling":
            pooling = _pooling(folder, read_json(_module_folder(folder, module) / "config.json"))
    if read_json(folder / "sentence_bert_config.json").get("do_lower_case"):
        raise ModelError(f"the model in {folder} needs texts in lower case: lower-case them, and {_PLAIN_REMEDY}")
    settings = read_json(folder / "config_sentence_transformers.json")
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise ModelError(f"the prompts of the model in {folder} are {prompts!r}: expected an object of texts by name")
    default = prompts.get(settings.get("default_prompt_name")) or ""
    documents = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), default)
    return Package(pooling, str(documents or ""), str(prompts.get("query", default) or ""))


def _pooling(folder: Path, config: dict[str, Any]) -> str:
    """Return the name of the pooling in the configuration of the module ``Pooling``."""
    stated = config.get("pooling_mode")
    modes = [stated] if isinstance(stated, str) else list(stated or [])
    modes += [
        _OLD_POOLINGS.get(mode := key.removeprefix("pooling_mode_"), mode)
        for key, value in config.items()
        if key.startswith("pooling_mode_") and value is True
    ]
    known = [_POOLINGS[mode] for mode in modes if mode in _POOLINGS]
    if len(modes) != 1 or not known or config.get("include_prompt") is False:
        shown = " and ".join(map(repr, modes)) or "no mode"
        excluded = " without the prompt" if config.get("include_prompt") is False else ""
        raise ModelError(
            f"the model in {folder} has the pooling {shown}{excluded}: expected one of {', '.join(_POOLINGS)}; "
            f"{_PLAIN_REMEDY}"
        )
    return known[0]


def check_supported(folder: Path) -> None:
    """Raise :class:`ModelError` if the model in ``folder`` is not a dense embedding model that needs no own code.

    Refused are models with custom code, cross-encoders, sparse encoders and multi-vector models.
    """
    config = read_json(folder / "config.json")
    custom = config.get("auto_map")
    if isinstance(custom, dict) and any(name.startswith("AutoModel") for name in custom):
        raise ModelError(
            f"the model in {folder} needs code from its own folder ({custom.get('AutoModel') or next(iter(custom))}), "
            "which ragembed never runs: choose a model that transformers computes without custom code"
        )
    architectures = [str(name) for name in config.get("architectures") or []]
    reasons = [reason for end, reason in _HEADS.items() for name in architectures if name.endswith(end)]
    if any("ColBERT" in name for name in architectures):
        reasons.append(_KINDS["ColBERT"])
    packaged = str(read_json(folder / "config_sentence_transformers.json").get("model_type", ""))
    reasons += [_KINDS[packaged]] if packaged in _KINDS else []
    if any(_class_name(module) in _SPARSE_MODULES for module in _modules(folder)):
        reasons.append(_KINDS["SparseEncoder"])
    if reasons:
        raise ModelError(f"the model in {folder} is {reasons[0]}")


def window(folder: Path) -> int | None:
    """Return the window in tokens that the model's package states, or None.

    sentence-transformers keeps it in ``sentence_bert_config.json`` or, from version 6, in ``tokenizer_config.json``.
    """
    stated = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
    limits = [stated, read_json(folder / "tokenizer_config.json").get("model_max_length")]
    known = [int(limit) for limit in limits if isinstance(limit, int | float) and 0 < limit <= _UNLIMITED]
    return min(known) if known else None


def read_json(file: Path) -> dict[str, Any]:
    """Return the fields of a JSON file; none if the file does not exist."""
    fields = _parsed(file, {})
    if not isinstance(fields, dict):
        raise ModelError(f"{file} contains {type(fields).__name__}: expected a JSON object; get the model again")
    return fields


def _class_name(module: dict[str, Any]) -> str:
    return str(module.get("type", "")).rpartition(".")[2]


def _module_folder(folder: Path, module: dict[str, Any]) -> Path:
    """Return the folder of a module, which must be in the model's folder."""
    path = Path(str(module.get("path", "")))
    if path.is_absolute() or ".." in path.parts:
        raise ModelError(f"the module {str(path)!r} is outside the model folder {folder}: get the model again")
    return folder / path


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Return the modules in ``modules.json``."""
    modules = _parsed(folder / "modules.json", [])
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelError(f"{folder / 'modules.json'} is not a list of modules: get the model again")
    return modules


def _parsed(file: Path, absent: Any) -> Any:
    if not file.is_file():
        return absent
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON ({error}): get the model again") from error
