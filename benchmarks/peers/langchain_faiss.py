"""LangChain's side of ../langchain.py: ``FAISS`` with its defaults, kept in memory and saved as a whole.

What it shares with the other side is found by ``PYTHONPATH``.
"""

from __future__ import annotations

from langchain_community.vectorstores import FAISS
from langchain_core.embeddings import Embeddings
from program import main
from side import Batch, Side


def make(batch: Batch, embeddings: Embeddings, folder: str) -> FAISS:
    """Return a new store, in memory."""
    del folder
    return FAISS.from_embeddings(batch.pairs(), embeddings, metadatas=batch.metadatas, ids=batch.ids)


def load(embeddings: Embeddings, folder: str) -> FAISS:
    """Return the store that was saved in ``folder``."""
    return FAISS.load_local(folder, embeddings, allow_dangerous_deserialization=True)


def save(store: FAISS, folder: str) -> None:
    """Write the whole of the store into ``folder``."""
    store.save_local(folder)


def fetches(count: int) -> dict[str, dict[str, int]]:
    """Return the default of ``fetch_k``, and all documents."""
    return {"fetch_k 20": {}, "fetch_k all": {"fetch_k": count}}


if __name__ == "__main__":
    main(Side(make, load, save, fetches))
