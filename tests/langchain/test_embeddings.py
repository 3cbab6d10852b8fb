from __future__ import annotations

import copy
import json
import threading
from pathlib import Path

import numpy as np
import pytest

from ragembed.errors import ConfigError, ModelError, NotFittedError
from ragembed.langchain import RagEmbeddings

from .conftest import CORPUS


def test_vectors_are_unit_lists_of_python_floats(fitted: RagEmbeddings) -> None:
    documents, query = fitted.embed_documents(CORPUS[:2]), fitted.embed_query("a question")
    for vector in [*documents, query]:
        assert type(vector) is list
        assert {type(value) for value in vector} == {float}
        assert len(vector) == fitted.dimension == 384
        assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
    assert json.loads(json.dumps([documents, query])) == [documents, query]


def test_single_str_is_an_error(fitted: RagEmbeddings) -> None:
    with pytest.raises(ConfigError, match="put it in a list"):
        fitted.embed_documents("abc")
    with pytest.raises(ConfigError, match="put it in a list"):
        copy.copy(fitted).fit("abc")


def test_unfitted_use_is_an_error_with_advice(tmp_path: Path) -> None:
    embeddings = RagEmbeddings()
    uses = [
        lambda: embeddings.embed_documents(["a"]),
        lambda: embeddings.embed_query("a"),
        lambda: embeddings.save(tmp_path),
        lambda: embeddings.dimension,
        lambda: embeddings.fingerprint,
        lambda: embeddings.cache_namespace,
    ]
    for use in uses:
        with pytest.raises(NotFittedError, match=r"call embeddings\.fit\(texts\).*RagEmbeddings\.load\(folder\)"):
            use()
    assert embeddings.is_fitted is False
    assert list(tmp_path.iterdir()) == []


def test_save_and_load(fitted: RagEmbeddings, saved_embeddings: Path, tmp_path: Path) -> None:
    fitted.save(tmp_path / "again")
    for loaded in (RagEmbeddings.load(tmp_path / "again"), RagEmbeddings(path=str(saved_embeddings))):
        assert loaded.is_fitted
        assert loaded.fingerprint == fitted.fingerprint
        assert loaded.embed_query("a question") == fitted.embed_query("a question")
    with pytest.raises(ModelError, match="holds no saved embedder"):
        RagEmbeddings.load(tmp_path)
    assert RagEmbeddings(path=str(tmp_path)).path == str(tmp_path)  # loaded when first used


def test_refit_changes_the_fingerprint(fitted: RagEmbeddings) -> None:
    embeddings = copy.copy(fitted)
    former, before = embeddings.embedder, embeddings.cache_namespace
    assert embeddings.fit(["other texts", "than those of the corpus"]) is embeddings
    assert embeddings.cache_namespace != before
    assert embeddings.fingerprint in embeddings.cache_namespace
    assert embeddings.path is None
    assert former.fingerprint in before  # objects made with the earlier fit keep it


def test_fields(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown preset 'nope'"):
        RagEmbeddings(preset="nope")
    with pytest.raises(ValueError, match="Extra inputs"):
        RagEmbeddings(model_name="x")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="cannot be combined with preset, model or other"):
        RagEmbeddings(path=str(tmp_path), model="x")
    assert RagEmbeddings(model="some/model").embedder.config.model == "some/model"


def test_settings_of_the_model(tiny_model: Path) -> None:
    made = RagEmbeddings(
        model=str(tiny_model), query_prompt="query: ", truncate_dim=8, pooling="cls+mean", normalize=True
    ).fit(CORPUS)
    config = made.embedder.config
    assert (config.template, config.query_template) == ("[X]", "query: [X]")
    assert (config.truncate_dim, config.pooling, config.normalize, made.dimension) == (8, "cls+mean", True, 8)


def test_threads_share_a_new_object(saved_embeddings: Path, fitted: RagEmbeddings) -> None:
    embeddings = RagEmbeddings(path=str(saved_embeddings))
    expected = fitted.embed_query("a question")
    start, embedders, answers = threading.Barrier(8), [], []

    def work() -> None:
        start.wait()
        embedders.append(embeddings.embedder)
        answers.append(embeddings.embed_query("a question"))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(embedder) for embedder in embedders}) == 1
    np.testing.assert_allclose(answers, [expected] * 8, atol=1e-6)  # the last digits depend on the number of threads
