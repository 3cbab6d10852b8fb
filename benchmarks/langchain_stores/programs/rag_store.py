"""ragembed's side: ``RagVectorStore``, which keeps every change on the disk when the call returns."""

from __future__ import annotations

from langchain_core.embeddings import Embeddings
from program import main
from side import Batch, Side

from ragembed.langchain import RagVectorStore


def make(batch: Batch, embeddings: Embeddings, folder: str) -> RagVectorStore:
    """Return a new store in ``folder``."""
    return RagVectorStore.from_embeddings(
        batch.pairs(), embeddings, metadatas=batch.metadatas, ids=batch.ids, path=folder
    )


def load(embeddings: Embeddings, folder: str) -> RagVectorStore:
    """Return the store in ``folder``."""
    return RagVectorStore(embeddings, folder)


if __name__ == "__main__":
    main(Side(make, load, save=None, fetches=lambda _: {"": {}}))
