"""Each family of models gives the vectors of sentence-transformers, with no options given."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from tests.core.model_families import FAMILIES, TEXTS, Family, make_model
from tests.samples import mostly_slow

LEAST_COSINE = 0.99999
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "models.md"
NAMES = [f"{family.name}, {family.like}" for family in FAMILIES]


@pytest.fixture(scope="module", autouse=True)
def needs_its_packages() -> None:
    """Import them only in the process that runs these tests: that takes seconds."""
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("peft")


def filled(reference: Any, family: Family) -> str:
    """Return a text that fills the window, or does not quite if its last word has several tokens."""
    text = max(family.prompts.values(), key=len, default="")
    start = len(text)
    while len(reference.tokenizer(f"{text} the")["input_ids"]) <= reference.max_seq_length:
        text += " the"
    return text[start:]


def cosines(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of vectors, 1 if both are zero."""
    products = np.einsum("nd,nd->n", found, expected)
    return np.where(found.any(axis=1) | expected.any(axis=1), products, 1.0)


@pytest.mark.parametrize("family", mostly_slow(FAMILIES, 8, NAMES))
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path, family: Family) -> None:
    from sentence_transformers import SentenceTransformer

    folder = make_model(family, tmp_path)
    reference = SentenceTransformer(str(folder), device="cpu", truncate_dim=family.truncate_dim)
    # [CLS] in a text is ordinary text here.
    setattr(reference.tokenizer, "split_special_tokens" if family.config else "encode_special_tokens", True)
    texts = [*TEXTS, "[CLS] the cat </s> <eos> sleeps", *([filled(reference, family)] if family.config else [])]
    embedder = Embedder(EmbedderConfig(model=str(folder), dtype="float32")).fit(TEXTS)
    least = [
        cosines(found, encode(texts, normalize_embeddings=True)).min()
        for found, encode in (
            (embedder.encode_documents(texts), reference.encode_document),
            (embedder.encode_queries(texts), reference.encode_query),
        )
    ]
    assert min(least) > LEAST_COSINE, least
    backwards = embedder.encode_documents(texts[::-1])[::-1]
    np.testing.assert_allclose(embedder.encode_documents(texts), backwards, atol=1e-5)
    for side, vector in (("documents", embedder.encode_documents), ("queries", embedder.encode_queries)):
        parts = embedder.token_parts(texts[1], side)
        np.testing.assert_allclose(parts.vector, vector([texts[1]])[0], atol=1e-4)
        assert [token for token in parts.tokens if token.origin == "text"]
    row = table_row(family, least)
    if os.environ.get("RAGEMBED_WRITE_TABLES"):
        write(row)
    assert row in PAGE.read_text(encoding="utf-8").splitlines()


def table_row(family: Family, least: list[float]) -> str:
    """Return the row of a family in the table of the documentation."""
    pooling = family.pooling if isinstance(family.pooling, str) or family.pooling is None else "+".join(family.pooling)
    modules = [*family.modules, *([f"truncate_dim {family.truncate_dim}"] if family.truncate_dim else [])]
    cells = [
        family.name,
        family.like,
        f"`{pooling}`" if pooling else "–",
        ", ".join(modules) or "–",
        ", ".join(family.prompts) or "–",
        *(f"{value:.5f}" for value in least),
    ]
    return f"| {' | '.join(cells)} |"


def write(row: str) -> None:
    """Put ``row`` into the table of the documentation, replacing the row of the same model."""
    text = PAGE.read_text(encoding="utf-8")
    start = re.escape("|".join(row.split("|")[:3]))
    found = re.subn(rf"(?m)^{start}\|.*$", lambda _: row, text)
    PAGE.write_text(found[0] if found[1] else text.replace("<!-- rows -->", f"{row}\n<!-- rows -->"), encoding="utf-8")


def test_page_has_no_other_rows() -> None:
    rows = re.findall(r"(?m)^\| (.+?) \| (.+?) \|.*\d\.\d{5} \|$", PAGE.read_text(encoding="utf-8"))
    assert rows == [(family.name, family.like) for family in FAMILIES]
