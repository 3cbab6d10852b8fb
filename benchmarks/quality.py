"""Retrieval quality of every kind of search on judged collections, and of all presets with all post-processors."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version

import numpy as np
from data import Setting, document_id, write_files
from processes import LANGCHAIN, PEERS, say
from report import table
from speed import Outcome

from ragembed import Embedder
from ragembed.config.settings import DEFAULT_MODEL, PRESETS, EmbedderConfig
from ragembed.evaluation import RetrievalCollection, paired_bootstrap, score_rankings
from ragembed.evaluation.retrieval import RetrievalScore
from ragembed.evaluation.tasks import Task, evaluate, read_retrieval
from ragembed.indexes import Fusion
from ragembed.indexes.store_evaluation import SearchSettings, rank
from ragembed.models.files import find_model
from ragembed.papers.sentences.sentence_tasks import read_clustering, read_sts
from ragembed.postprocess import unit_rows

_DEFAULT, _PEER = "default: hybrid with feedback", "LangChain FAISS, MiniLM"
_SEARCHES: Mapping[str, SearchSettings] = {
    "BM25": SearchSettings("lexical"),
    "dense": SearchSettings("dense"),
    "hybrid without feedback": SearchSettings(fusion=Fusion(feedback=0.0)),
    _DEFAULT: SearchSettings(),
}
"""The searches of a store with the default preset."""
_STEPS = ("none", "normalize", "center", "zscore", "quantile-u", "quantile-n", "robust", "whiten", "abtt:2")
_ARITHMETIC = ("float32", "bfloat16", "int8")
"""The values of the setting ``dtype`` that encode all documents alike."""


def quality(setting: Setting) -> Outcome:
    """Score every kind of search; each document is one chunk."""
    measured = {each.name: _scores(each, setting) for each in setting.collections()}
    ways = list(next(iter(measured.values())))
    rows = []
    for way in ways:
        cells, means = [], []
        for scores in measured.values():
            values = 100.0 * scores[way].values["ndcg@10"]
            means.append(float(values.mean()))
            cells.append(_interval(values, np.zeros(len(values)), ""))
            own = 100.0 * scores[_DEFAULT].values["ndcg@10"]
            cells.append("–" if way == _DEFAULT else _interval(values, own, "+"))
        rows.append([way, *cells, f"{statistics.fmean(means):.1f}"])
    header = ["", *(f"{name}: {what}" for name in measured for what in ("nDCG@10", "minus the default"))]
    queries = ", ".join(f"{name} {len(scores[_DEFAULT].queries)}" for name, scores in measured.items())
    about = (
        f"Judged queries: {queries}. Each document, with title and text, is one chunk. All embedders except the peer's "
        "are fitted on the documents. Values are in per cent; brackets show the 95 % interval of a bootstrap over the "
        f"queries, paired for differences. The default is {Fusion()} and the model MiniLM with "
        f"{Embedder().config.weighting} and {', '.join(Embedder().config.postprocess)}. ragembed {version('ragembed')}."
    )
    return Outcome([about, table([*header, "mean nDCG@10"], rows)])


def _interval(values: np.ndarray, others: np.ndarray, sign: str, digits: int = 1) -> str:
    """Return the mean difference with its 95 % interval."""
    found, form = paired_bootstrap(values, others), f"{sign}.{digits}f"
    return f"{found.difference:{form}} ({found.low:{form}} to {found.high:{form}})"


def _scores(collection: RetrievalCollection, setting: Setting) -> dict[str, RetrievalScore]:
    """Return the scores of a collection, by kind of search."""
    say(f"{collection.name}: {len(collection.documents):,} documents")
    found = dict(zip(_SEARCHES, rank(collection, Embedder(), list(_SEARCHES.values()), 10), strict=True))
    uniform = Embedder.from_preset("minilm", weighting="uniform")
    [found["dense, uniform weights"]] = rank(collection, uniform, [SearchSettings("dense")], 10)
    names = {way: {query: [key for key, _ in best] for query, best in each.items()} for way, each in found.items()}
    names[_PEER] = _peer(collection, setting)
    return {way: score_rankings(each, collection.relevance) for way, each in names.items()}


def precision(setting: Setting) -> Outcome:
    """Compare the arithmetics for documents: quality of search, cosines to float32, and similarity of sentences."""
    ways = {"dense": SearchSettings("dense"), "hybrid": SearchSettings()}
    cells: dict[str, list[str]] = {dtype: [] for dtype in _ARITHMETIC}
    header, exact = [""], _ARITHMETIC[0]
    for collection in setting.collections():
        texts, scores, vectors = list(collection.documents.values()), {}, {}
        for dtype in _ARITHMETIC:
            say(f"{collection.name}: {dtype}")
            embedder = Embedder.from_preset("minilm", dtype=dtype)
            found = rank(collection, embedder, list(ways.values()), 10)
            names = [{query: [key for key, _ in best] for query, best in each.items()} for each in found]
            scores[dtype] = [100.0 * score_rankings(each, collection.relevance).values["ndcg@10"] for each in names]
            vectors[dtype] = unit_rows(Embedder.from_preset("minilm", dtype=dtype).fit(texts).encode_documents(texts))
        for dtype in _ARITHMETIC:
            for values, base in zip(scores[dtype], scores[exact], strict=True):
                difference = "" if dtype == exact else f"; {_interval(values, base, '+', 2)}"
                cells[dtype].append(f"{values.mean():.2f}{difference}")
            cosines = np.einsum("ij,ij->i", vectors[dtype], vectors[exact])
            cells[dtype].append("1" if dtype == exact else f"{cosines.mean():.4f}, {cosines.min():.4f}")
        header += [f"{collection.name}: {what}" for what in (*ways, "cosine, mean and lowest")]
    for path in sorted((setting.data / "sts").glob("*.tsv"))[: 1 if setting.trial else None]:
        say(path.stem)
        configs = [EmbedderConfig.from_preset("minilm", dtype=dtype, query_fit="shared") for dtype in _ARITHMETIC]
        for dtype, (_, measured) in zip(_ARITHMETIC, evaluate(read_sts(path), configs), strict=True):
            cells[dtype].append(f"{float(measured.scores[measured.headline]):.2f}")
        header.append(path.stem)
    notes = (
        "The setting `dtype` for documents; queries are encoded in float32. Search: nDCG@10 × 100, and the difference "
        "to float32 with the 95 % interval of a paired bootstrap over the queries. Cosine: between the embeddings of a "
        "document in this arithmetic and in float32, each with a fit of its own. Sentence pairs: Spearman's "
        "correlation × 100. The preset is `minilm`."
    )
    return Outcome([notes, table(header, [[dtype, *row] for dtype, row in cells.items()])])


def _peer(collection: RetrievalCollection, setting: Setting) -> dict[str, list[str]]:
    say(f"{collection.name}: {_PEER}")
    store, files = setting.folder / f"peer-{collection.name}", setting.folder / f"files-{collection.name}"
    model = str(find_model(DEFAULT_MODEL).folder)
    program, request = PEERS / "langchain_faiss.py", {"store": str(store), "model": model, "k": 10}
    files = write_files(collection, files)
    setting.runner.run_task(LANGCHAIN.python, program, "index", {**request, "files": str(files)})
    ranking_request = {**request, "queries": collection.queries}
    rankings = setting.runner.run_task(LANGCHAIN.python, program, "rankings", ranking_request)
    return {key: [document_id(file) for file in rankings[key]] for key in collection.queries}


def presets(setting: Setting) -> Outcome:
    """Score every preset with every post-processor; report means over the collections of each kind of task."""
    kinds = {
        "sts": ("*.tsv", read_sts, "sentence pairs, Spearman's correlation × 100"),
        "retrieval": ("*/", read_retrieval, "dense search only, nDCG@10 × 100, one vector per document"),
        "clustering": ("*.tsv", partial(read_clustering, runs=1), "short texts, accuracy of one run of k-means × 100"),
    }
    names = [name for name in PRESETS if name != "b2s-100"]  # b2s-100 needs a word-vector file
    if setting.trial:
        names = ["re"]
    parts = []
    for kind, (pattern, read, what) in kinds.items():
        paths = sorted((setting.data / kind).glob(pattern))[: 1 if setting.trial else None]
        query_fit = ("shared", "separate") if kind == "retrieval" else ("shared",)
        keys = [(steps, side) for steps in _STEPS for side in query_fit]
        tasks = [read(path) for path in paths]
        values = {name: [_values(task, name, keys) for task in tasks] for name in names}
        rows = [
            [f"{steps}, {side} fit" if len(query_fit) > 1 else steps]
            + [f"{statistics.fmean(each[i] for each in values[name]):.1f}" for name in names]
            for i, (steps, side) in enumerate(keys)
        ]
        collections = ", ".join(path.stem for path in paths)
        parts += [f"{kind}: {what}; mean of {collections}.", table(["", *names], rows)]
    about = f"The model is {DEFAULT_MODEL}. Each preset keeps its token weights; the rows vary the post-processor."
    return Outcome([about, *parts])


def _values(task: Task, name: str, keys: list[tuple[str, str]]) -> list[float]:
    configs = [
        EmbedderConfig.from_preset(name, postprocess=() if steps == "none" else (steps,), query_fit=side)
        for steps, side in keys
    ]
    say(f"{task.name}: {name}")
    return [float(measured.scores[measured.headline]) for _, measured in evaluate(task, configs)]
