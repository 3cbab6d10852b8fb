"""What the files beside the weights say about a model: which models are refused, and the size of the window.

A model that ragembed would compute in another way than its authors is refused, with the reason and the remedy.
"""

from __future__ import annotations

import json
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
    modules = _module_types(folder)
    reasons += [_KINDS["SparseEncoder"]] if any(name in _SPARSE_MODULES for name in modules) else []
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


def _module_types(folder: Path) -> list[str]:
    """Return the class names of the modules in ``modules.json``."""
    modules = _parsed(folder / "modules.json", [])
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ModelError(f"{folder / 'modules.json'} is not a list of modules: get the model again")
    return [str(module.get("type", "")).rpartition(".")[2] for module in modules]


def _parsed(file: Path, absent: Any) -> Any:
    if not file.is_file():
        return absent
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} is not valid JSON ({error}): get the model again") from error
