"""The peers of single steps: sentence-transformers, txtai, model2vec and bm25s, with their defaults; two tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from worker import Report, Request, Turn, main, milliseconds


def encode(request: Request) -> tuple[Turn, Report]:
    """Encode documents with sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    model = SentenceTransformer(request["model"], device="cpu")

    def turn(_number: int) -> None:
        model.encode(texts)

    return turn, {}


def txtai_index(request: Request) -> None:
    """Index a folder of text files with txtai and store the texts; ``split`` is the largest part in characters."""
    from txtai import Embeddings

    texts = [path.read_text(encoding="utf-8") for path in sorted(Path(request["files"]).glob("*.txt"))]
    if request.get("split"):
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        splitter = RecursiveCharacterTextSplitter(chunk_size=request["split"], chunk_overlap=0)
        texts = [part for text in texts for part in splitter.split_text(text)]
    embeddings = Embeddings(path=request["model"], content=True)
    embeddings.index(texts)
    embeddings.save(request["store"])


def onnx(request: Request) -> None:
    """Write the folder ``onnx``: the files of the model, and ``model.onnx`` in float32, as both its peers expect."""
    import shutil

    import torch
    from transformers import AutoModel

    folder, model = Path(request["onnx"]), AutoModel.from_pretrained(request["model"], attn_implementation="eager")
    shutil.copytree(request["model"], folder, ignore=shutil.ignore_patterns("*.safetensors"))
    names = ["input_ids", "attention_mask", "token_type_ids"]
    outputs = ["last_hidden_state"]

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model.eval()

        def forward(self, *values: torch.Tensor) -> torch.Tensor:
            return self.model(**dict(zip(names, values, strict=True))).last_hidden_state

    ids = torch.ones(2, 8, dtype=torch.long)
    axes = {name: {0: "texts", 1: "tokens"} for name in [*names, *outputs]}
    torch.onnx.export(
        Named(),
        (ids, ids, 0 * ids),
        str(folder / "model.onnx"),
        dynamo=False,
        opset_version=17,
        input_names=names,
        output_names=outputs,
        dynamic_axes=axes,
    )


def multiply(request: Request) -> tuple[Turn, Report]:
    """Multiply large square matrices in PyTorch."""
    import torch

    size = request["size"]
    left, right = (torch.randn(size, size).to(getattr(torch, request["dtype"])) for _ in range(2))

    def turn(_number: int) -> None:
        with torch.inference_mode():
            for _ in range(3):
                torch.mm(left, right)

    return turn, {"operations": 3 * 2 * size**3}


def static(request: Request) -> tuple[Turn, Report]:
    """Encode with model2vec, with the table and tokenizer of ragembed. The report has the share of equal vectors."""
    import numpy as np
    from model2vec import StaticModel
    from tokenizers import Tokenizer

    turns = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
    tokenizer = Tokenizer.from_file(request["tokenizer"])
    model = StaticModel(vectors=np.load(request["table"]), tokenizer=tokenizer, max_length=None)
    others, own = np.load(request["vectors"]), model.encode(turns[0][:200], use_multiprocessing=False)
    lengths = np.linalg.norm(others, axis=1) * np.linalg.norm(own, axis=1)
    cosines = np.einsum("ij,ij->i", others, own) / np.maximum(lengths, 1e-30)

    def turn(number: int) -> None:
        model.encode(turns[number], use_multiprocessing=False)

    return turn, {"same": float((cosines > 0.9999).mean())}


def lexical_store(request: Request) -> None:
    """Index texts with bm25s and PyStemmer, as in its documentation."""
    import bm25s
    import Stemmer

    folder = Path(request["folder"])
    texts = (folder / "texts.txt").read_text(encoding="utf-8").splitlines()
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    retriever = bm25s.BM25()
    retriever.index(tokens, show_progress=False)
    retriever.save(str(folder / "bm25s.partial"), corpus=texts)
    (folder / "bm25s.partial").rename(folder / "bm25s")


def lexical(request: Request) -> tuple[Turn, Report]:
    """Search with bm25s for the queries of a turn, with the index in memory."""
    import bm25s
    import Stemmer

    retriever, stemmer = bm25s.BM25.load(request["store"], load_corpus=True), Stemmer.Stemmer("english")

    def ask(query: str) -> list[Any]:
        tokens = bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False)
        return list(retriever.retrieve(tokens, k=10, show_progress=False)[0][0])

    return lambda number: {"taken": milliseconds(request["queries"][number], ask)}, {}


def rankings(request: Request) -> Report:
    """Return the text files that bm25s and hybrid search of txtai find for each of many queries, best first.

    ``vectors`` has the vectors of the texts, made with the same model.
    """
    import bm25s
    import numpy as np
    import Stemmer
    from txtai import Embeddings

    paths, queries = sorted(Path(request["files"]).glob("*.txt")), list(request["queries"].values())
    names, texts = [path.name for path in paths], [path.read_text(encoding="utf-8") for path in paths]
    stemmer, retriever = Stemmer.Stemmer("english"), bm25s.BM25()
    retriever.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)
    encoded = Embeddings(path=request["model"]).batchtransform(queries)
    vectors = dict(zip([*texts, *queries], [*np.load(request["vectors"]), *encoded], strict=True))
    embeddings = Embeddings(
        method="external", transform=lambda batch: np.stack([vectors[text] for text in batch]), hybrid=True
    )
    embeddings.index(zip(names, texts, strict=True))
    found: dict[str, dict[str, list[str]]] = {"bm25s": {}, "txtai": {}}
    for key, query in request["queries"].items():
        tokens = bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False)
        found["bm25s"][key] = list(retriever.retrieve(tokens, names, k=request["k"], show_progress=False)[0][0])
        found["txtai"][key] = [name for name, _ in embeddings.search(query, request["k"])]
    return found


if __name__ == "__main__":
    tasks = {"txtai_index": txtai_index, "onnx": onnx, "lexical_store": lexical_store, "rankings": rankings}
    main(tasks, {"encode": encode, "multiply": multiply, "static": static, "lexical": lexical})
