"""Models are used as their sentence-transformers package says: pooling, prompts and window."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.errors import IncompatibleStoreError, ModelError
from ragembed.indexes.indexing.request import IndexingRequest
from ragembed.indexes.indexing.run import index_files

TEXTS = ["the cat sleeps", "[CLS] the dog runs and the fish swims, the bird flies", "supersonic air flow", "lock", ""]
PROMPTS = {"query": "query: ", "document": "passage: "}


@pytest.fixture
def package(tiny_model: Path, tmp_path: Path) -> Any:
    """Return a function that packages the tiny model; keywords are files, with their fields."""

    def make(
        pooling: str | None = "cls", prompts: dict[str, str] | None = None, modules: list[str] | None = None
    ) -> Path:
        folder = Path(shutil.copytree(tiny_model, tmp_path / "packaged"))
        names = ["Transformer", "Pooling"] if modules is None else modules
        rows = [
            {
                "idx": i,
                "name": str(i),
                "path": "" if i == 0 else f"{i}_{name}",
                "type": f"sentence_transformers.models.{name}",
            }
            for i, name in enumerate(names)
        ]
        (folder / "modules.json").write_text(json.dumps(rows))
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 48, "do_lower_case": False}))
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts or {}}))
        modes = {
            f"pooling_mode_{name}": name == pooling for name in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")
        }
        (folder / "1_Pooling").mkdir()
        stated = (
            modes if pooling in ("cls_token", "mean_tokens", "lasttoken", "max_tokens") else {"pooling_mode": pooling}
        )
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **stated}))
        return folder

    return make


def embedder(folder: Path, **changes: Any) -> Embedder:
    return Embedder(EmbedderConfig(model=str(folder), **{"weighting": "uniform", "dtype": "float32", **changes})).fit(
        TEXTS
    )


@pytest.mark.parametrize("prompts", [{}, PROMPTS, {"query": "search: "}])
@pytest.mark.parametrize("pooling", ["cls_token", "mean_tokens", "lasttoken"])
def test_vectors_equal_those_of_sentence_transformers(package: Any, pooling: str, prompts: dict[str, str]) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = package(pooling, prompts)
    reference = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    mine = embedder(folder)
    for found, expected in (
        (mine.encode_documents(TEXTS), reference.encode_document(TEXTS, normalize_embeddings=True)),
        (mine.encode_queries(TEXTS), reference.encode_query(TEXTS, normalize_embeddings=True)),
    ):
        assert np.einsum("nd,nd->n", found, expected)[[0, 2, 3]].min() > 0.99999


@pytest.mark.parametrize(
    ("pooling", "name"),
    [("cls_token", "cls"), ("mean_tokens", "mean"), ("lasttoken", "last"), ("cls", "cls"), ("mean", "mean")],
)
def test_settings_in_use_are_recorded(package: Any, pooling: str, name: str) -> None:
    config = embedder(package(pooling, PROMPTS)).config
    assert (config.pooling, config.template, config.query_template) == (name, "passage: [X]", "query: [X]")
    assert config.max_tokens == 48


def test_model_without_package_uses_the_mean(tiny_model: Path) -> None:
    config = embedder(tiny_model).config
    assert (config.pooling, config.template, config.query_template) == ("mean", "[X]", None)


def test_stated_pooling_ignores_the_package(package: Any, tiny_model: Path) -> None:
    plain = embedder(package("max_tokens", PROMPTS), pooling="mean")
    np.testing.assert_allclose(plain.encode_queries(TEXTS), embedder(tiny_model).encode_queries(TEXTS), atol=1e-6)


def test_stated_template_replaces_the_prompts(package: Any) -> None:
    config = embedder(package("cls_token", PROMPTS), template="about [X]").config
    assert (config.pooling, config.template, config.query_template) == ("cls", "about [X]", None)


@pytest.mark.parametrize(
    ("pooling", "modules", "message"),
    [
        ("attention", None, "has the pooling 'attention': expected cls, max, mean"),
        ("mean", ["Transformer", "Pooling", "Dense"], "Dense/model.safetensors is missing"),
        (
            "mean",
            ["Transformer", "Pooling", "CNN"],
            "has the module 'sentence_transformers.models.CNN'.*--pooling mean",
        ),
        ("mean", ["StaticEmbedding"], "has no table of static vectors"),
    ],
)
def test_what_is_not_computed_is_refused(package: Any, pooling: str, modules: list[str] | None, message: str) -> None:
    folder = package(pooling, modules=modules)
    with pytest.raises(ModelError, match=message):
        embedder(folder)


def test_damaged_package_is_refused(package: Any) -> None:
    folder = package("cls_token")
    (folder / "config_sentence_transformers.json").write_text('{"prompts": ["query: "]}')
    with pytest.raises(ModelError, match="expected an object of texts by name"):
        embedder(folder)
    rows = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([rows[0], {**rows[1], "path": "../elsewhere"}]))
    with pytest.raises(ModelError, match="outside the model folder"):
        embedder(folder)


def test_pooling_changes_the_fingerprint(package: Any) -> None:
    folder = package("cls_token")
    before = embedder(folder).fingerprint
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    assert embedder(folder).fingerprint != before


def test_store_keeps_the_package(package: Any, in_folder: Path) -> None:
    (in_folder / "docs").mkdir()
    (in_folder / "docs" / "a.md").write_text("the cat sleeps")
    config = EmbedderConfig(model=str(package("cls_token", PROMPTS)), dtype="float32")
    store, paths = in_folder / "store", (in_folder / "docs",)
    index_files(IndexingRequest(store, paths, embedder=config))
    assert index_files(IndexingRequest(store, paths, embedder=config)).scan.unchanged == 1
    with pytest.raises(IncompatibleStoreError, match="pooling cls, not last"):
        index_files(
            IndexingRequest(
                store,
                paths,
                embedder=config.replace(pooling="last", template="passage: [X]", query_template="query: [X]"),
            )
        )
