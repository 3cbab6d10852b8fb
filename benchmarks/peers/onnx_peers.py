"""Programs that index with ONNX Runtime: LangChain's FAISS store with FastEmbed, and Chroma's default embeddings.

Both download their model otherwise. Here they get the folder ``onnx`` with the same model files and ``model.onnx``.
"""

from __future__ import annotations

from pathlib import Path

from worker import Request, main


def texts(request: Request) -> list[str]:
    """Return the text files of a folder; with ``split``, parts of at most so many characters."""
    read = [path.read_text(encoding="utf-8") for path in sorted(Path(request["files"]).glob("*.txt"))]
    if not request.get("split"):
        return read
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    splitter = RecursiveCharacterTextSplitter(chunk_size=request["split"], chunk_overlap=0)
    return [part for text in read for part in splitter.split_text(text)]


def fastembed(request: Request) -> None:
    """Index a folder of text files with LangChain's FAISS store and FastEmbed."""
    from fastembed import TextEmbedding
    from langchain_community.embeddings import FastEmbedEmbeddings
    from langchain_community.vectorstores import FAISS

    name = "sentence-transformers/all-MiniLM-L6-v2"
    model = TextEmbedding(name, specific_model_path=request["onnx"])
    model.model.tokenizer.enable_truncation(256)  # as in the other programs
    embeddings = FastEmbedEmbeddings.model_construct(
        model=model, model_name=name, batch_size=256, parallel=None, doc_embed_type="default"
    )
    FAISS.from_texts(texts(request), embeddings).save_local(request["store"])


def chroma(request: Request) -> None:
    """Index a folder of text files with Chroma and its default embedding function."""
    import chromadb
    from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2

    ONNXMiniLM_L6_V2.DOWNLOAD_PATH = Path(request["onnx"]).parent
    client = chromadb.PersistentClient(request["store"], chromadb.Settings(anonymized_telemetry=False))
    collection, documents = client.create_collection("files"), texts(request)
    step = client.get_max_batch_size()
    for start in range(0, len(documents), step):
        part = documents[start : start + step]
        collection.add(ids=[str(start + number) for number in range(len(part))], documents=part)


if __name__ == "__main__":
    main({"fastembed": fastembed, "chroma": chroma}, {})
