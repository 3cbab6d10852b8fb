"""Embeddings that need no download: random vectors of the words of a small tokenizer."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("langchain_ragembed") is None:
    # Test the package without installing it. Its folder on the path would hide the tests of ragembed.
    file = Path(__file__).resolve().parents[1] / "langchain_ragembed" / "__init__.py"
    spec = importlib.util.spec_from_file_location("langchain_ragembed", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["langchain_ragembed"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer for a few words and all letters."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "foo", "bar", "baz", "new", "lock", "wing"]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = [*words, *letters, *(f"##{letter}" for letter in letters)]
    special = [
        {"id": i, "content": words[i], "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for i in range(4)
    ]
    parts = {"cls": "[CLS]", "sep": "[SEP]"}
    template = [
        {"SpecialToken": {"id": parts["cls"], "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": parts["sep"], "type_id": 0}},
    ]
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": template,
            "pair": template,
            "special_tokens": {
                word: {"id": word, "ids": [words.index(word)], "tokens": [word]} for word in parts.values()
            },
        },
        "decoder": None,
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {word: i for i, word in enumerate(vocabulary)},
        },
    }
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(json.dumps(file), encoding="utf-8")
    return folder
