"""The function in the guide "Migrate from FAISS" copies documents and vectors of a loaded store."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document

from ragembed.langchain import RagVectorStore

from .fakes import Angles

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "migrate-from-faiss.md"
DOCUMENTS = {
    "a": Document("0", metadata={"n": 1, "tags": ["x", "y"]}),
    7: Document("30", metadata={"day": dt.date(1999, 12, 31)}),
    "c": Document("90"),
}


@pytest.fixture
def copy_faiss() -> Any:
    found = re.search(r"^```python\n(.*?def copy_faiss.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.M)
    assert found
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names["copy_faiss"]


def loaded(documents: dict[Any, Document], places: dict[int, Any], vectors: list[list[float]]) -> Any:
    """A store as langchain-community loads it, as far as the guide uses it."""
    index = SimpleNamespace(
        ntotal=len(vectors), reconstruct_n=lambda start, count: np.array(vectors, np.float32)[start : start + count]
    )
    return SimpleNamespace(docstore=SimpleNamespace(_dict=documents), index_to_docstore_id=places, index=index)


def test_documents_and_vectors_are_copied_without_embedding(copy_faiss: Any, tmp_path: Path) -> None:
    """The order of the vectors, not that of the documents, tells which vector belongs to which document."""
    embedding = Angles()
    faiss = loaded(DOCUMENTS, {0: "c", 1: "a", 2: 7}, [[0.0, 2.0], [3.0, 0.0], [0.866, 0.5]])
    with copy_faiss(faiss, embedding, tmp_path / "store") as store:
        assert embedding.batches == []
        found = store.similarity_search_with_score("0")
        assert [(document.id, round(score, 2)) for document, score in found] == [("a", 1.0), ("7", 0.87), ("c", 0.0)]
    with RagVectorStore(Angles(), tmp_path / "store") as again:
        metadata = {document.id: document.metadata for document in again}
        assert metadata == {"a": {"n": 1, "tags": ["x", "y"]}, "7": {"day": "1999-12-31"}, "c": {}}


@pytest.mark.parametrize(
    ("documents", "places"),
    [(DOCUMENTS, {0: "c", 1: "a"}), ({"a": DOCUMENTS["a"]}, {0: "a", 1: "gone"}), (DOCUMENTS, {0: "a", 1: "c", 2: 7})],
)
def test_vectors_that_may_be_mixed_up_are_not_copied(
    copy_faiss: Any, tmp_path: Path, documents: dict[Any, Document], places: dict[int, Any]
) -> None:
    with pytest.raises(ValueError, match="vectors and documents do not match"):
        copy_faiss(loaded(documents, places, [[1.0, 0.0], [0.0, 1.0]]), Angles(), tmp_path / "store")
    assert not (tmp_path / "store").exists()
