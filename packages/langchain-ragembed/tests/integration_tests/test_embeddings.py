"""LangChain's integration tests of embeddings. They need no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_tests.integration_tests import EmbeddingsIntegrationTests

from langchain_ragembed import RagembedEmbeddings


class TestRagembedEmbeddings(EmbeddingsIntegrationTests):
    """Embeddings that need no fit."""

    @pytest.fixture(autouse=True)
    def _model(self, tokenizer: Path) -> None:
        self.tokenizer = tokenizer

    @property
    def embeddings_class(self) -> type[RagembedEmbeddings]:
        return RagembedEmbeddings

    @property
    def embedding_model_params(self) -> dict[str, Any]:
        return {"model": str(self.tokenizer), "extractor": "re:dim=16", "weighting": "uniform"}
