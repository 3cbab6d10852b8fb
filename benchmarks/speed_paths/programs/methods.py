"""Ways of embedding beside the plain mean of the last layer, in one process, each taking turns with the plain one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from alternating import alternate

from ragembed import Embedder
from ragembed.templates import PLAIN, Template
from ragembed.tokenizer import TextTokenizer

_PLAIN = {"weighting": "uniform", "postprocess": ()}
_WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "T4": ("t4", {}),
    "BERT + Avg., first + last layer, idf": ("bert+avg", {}),
    "SBERT-WK": ("sbert-wk", {}),
    "SBERT-WK, released code": ("sbert-wk", {"extractor": "sbert-wk:variant=released-code"}),
    "first + last layer, idf": ("bert", {"weighting": "idf"}),
    "Avg., idf": ("avg", {}),
    "RE, idf": ("re", {}),
}


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Return for each way the seconds of its turns and of the plain ones, and the tokens that each has per turn."""
    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    plain = Embedder.from_preset("minilm", **_PLAIN).fit(texts)
    told = {}
    for name, (preset, changes) in _WAYS.items():
        embedder = Embedder.from_preset(preset, postprocess=(), **changes).fit(texts)
        calls = {"plain": lambda: plain.raw_documents(texts), "this": lambda e=embedder: e.raw_documents(texts)}
        tokens = {"plain": _tokens(plain, texts), "this": _tokens(embedder, texts)}
        told[name] = {"seconds": alternate(calls, request["turns"]), "tokens": tokens}
    return told


def _tokens(embedder: Embedder, texts: list[str]) -> int:
    """Return the tokens of the texts with what frames each of them."""
    tokenizer = embedder.tokenizer
    template = Template.parse(embedder.config.template) if embedder.config.template != PLAIN else None
    framing = tokenizer.special_tokens
    if template is not None and isinstance(tokenizer, TextTokenizer):
        frame = tokenizer.frame(template)
        framing = len(frame.prefix) + len(frame.suffix)
    return int(tokenizer.ids(texts).lengths.sum()) + framing * len(texts)


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
