"""LangChain's FAISS store with HuggingFaceEmbeddings: indexing, one query, many queries, warm queries."""

from __future__ import annotations

from pathlib import Path

from langchain_community.vectorstores import FAISS
from langchain_core.documents import Document
from langchain_huggingface import HuggingFaceEmbeddings
from worker import Report, Request, Turn, main, milliseconds


def load(request: Request) -> FAISS:
    """Load the store of a request."""
    embeddings = HuggingFaceEmbeddings(model_name=request["model"])
    return FAISS.load_local(request["store"], embeddings, allow_dangerous_deserialization=True)


def index(request: Request) -> None:
    """Index a folder of text files; with ``split``, documents are split into parts of at most so many characters."""
    documents = [
        Document(page_content=path.read_text(encoding="utf-8"), metadata={"source": path.name})
        for path in sorted(Path(request["files"]).glob("*.txt"))
    ]
    if request.get("split"):
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        splitter = RecursiveCharacterTextSplitter(chunk_size=request["split"], chunk_overlap=0)
        documents = splitter.split_documents(documents)
    FAISS.from_documents(documents, HuggingFaceEmbeddings(model_name=request["model"])).save_local(request["store"])


def query(request: Request) -> Report:
    """Search for one query."""
    found = load(request).similarity_search_with_score(request["query"], k=10)
    return {"results": [{"source": hit.metadata["source"], "score": float(score)} for hit, score in found]}


def index_vectors(request: Request) -> None:
    """Index a folder of text files, whose vectors are given."""
    import numpy as np

    paths = sorted(Path(request["files"]).glob("*.txt"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    FAISS.from_embeddings(
        zip(texts, np.load(request["vectors"]), strict=True),
        HuggingFaceEmbeddings(model_name=request["model"]),
        metadatas=[{"source": path.name} for path in paths],
    ).save_local(request["store"])


def rankings(request: Request) -> Report:
    """Return the files found for each of many queries, best first."""
    store = load(request)
    return {
        key: [hit.metadata["source"] for hit in store.similarity_search(text, k=request["k"])]
        for key, text in request["queries"].items()
    }


def warm_store(request: Request) -> None:
    """Create a store of texts and vectors in a folder."""
    import numpy as np

    folder = Path(request["folder"])
    texts = (folder / "texts.txt").read_text(encoding="utf-8").splitlines()
    embeddings = HuggingFaceEmbeddings(model_name=request["model"])
    store = FAISS.from_embeddings(zip(texts, np.load(folder / "vectors.npy"), strict=True), embeddings)
    store.save_local(str(folder / "langchain.partial"))
    (folder / "langchain.partial").rename(folder / "langchain")


def warm(request: Request) -> tuple[Turn, Report]:
    """Search for the queries of a turn, by text and by vector."""
    store, turns = load(request), request["queries"]
    vectors = {query: store.embeddings.embed_query(query) for queries in turns for query in queries}
    ways = {
        "dense": lambda query: store.similarity_search(query, k=10),
        "dense, vector given": lambda query: store.similarity_search_by_vector(vectors[query], k=10),
    }
    return lambda number: {way: milliseconds(turns[number], ask) for way, ask in ways.items()}, {}


if __name__ == "__main__":
    tasks = {"index": index, "index_vectors": index_vectors, "query": query, "rankings": rankings}
    main({**tasks, "warm_store": warm_store}, {"warm": warm})
