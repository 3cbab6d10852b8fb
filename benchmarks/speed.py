"""Measure the speed of ragembed, compared with a peer and with a lower bound of the machine (the floor)."""

from __future__ import annotations

import json
import random
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from data import (
    Setting,
    cut_to_window,
    queries_by_turn,
    read_texts,
    write_files,
    write_generated_texts,
    write_python_docs,
    write_tables,
)
from processes import (
    EMPTY,
    LANGCHAIN,
    ONNX,
    OWN,
    PEERS,
    RAGEMBED,
    SPEED,
    Command,
    Cost,
    Side,
    Turns,
    Watched,
    check_memory,
    in_new_process,
    in_turns,
    say,
    versions,
    warm_turns,
)
from report import of_medians, per_cent, significant, spread, table, times

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.evaluation import read_beir
from ragembed.extras import is_installed
from ragembed.indexes.storage.schema import FORMAT_VERSION
from ragembed.models.choice import fast_dtype
from ragembed.models.files import find_model
from ragembed.models.tokenizer import TextTokenizer
from ragembed.resources import processors

FIGURE = Path(__file__).resolve().parent / "figures" / "speed_growth.png"
_LANGCHAIN, _ONNX, _SPEED = PEERS / "langchain_faiss.py", PEERS / "onnx_peers.py", PEERS / "speed_peers.py"
_STARTING = "starting Python and NumPy"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Paragraphs and tables in Markdown, and ratios by name to record, each with whether higher is better.

    Results that have a section of their own on some machines have a ``variant`` in its name.
    """

    paragraphs: Sequence[str]
    ratios: Mapping[str, tuple[float, bool]] = field(default_factory=dict)
    variant: str = ""


def _model() -> Path:
    return find_model(DEFAULT_MODEL).folder


def _collection(setting: Setting, name: str, limit: int | None) -> Path:
    return write_files(read_beir(setting.data / "retrieval" / name), setting.folder / f"files-{name}", limit)


def texts_folder(setting: Setting, name: str, count: int, words: int, sources: int | None = None) -> Path:
    """Return the cache folder for ``count`` generated texts and for stores of them in this store format."""
    folder = setting.cache / f"{name}-{count}-{setting.seed}-format{FORMAT_VERSION}"
    in_new_process(write_generated_texts, setting, folder, count, words, sources)
    return folder


def _operations(model: Path, lengths: Sequence[int]) -> float:
    """Return the number of multiplications and additions of a BERT model for texts with these token counts."""
    shape: dict[str, Any] = json.loads((model / "config.json").read_text(encoding="utf-8"))
    dim, inner, layers = (shape[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    products = 2 * (4 * dim**2 + 2 * dim * inner) * sum(lengths)
    return float(layers * (products + 4 * dim * sum(length**2 for length in lengths)))


def _precision() -> str:
    return fast_dtype(("cpu",))


def _variant() -> str:
    """Return the addition to the name of results that depend on the precision of the processor."""
    return "" if _precision() == "bfloat16" else " without bfloat16"


def _multiplier(setting: Setting) -> Side:
    """Return the side that multiplies matrices in the precision that ragembed uses for documents."""
    return Side(LANGCHAIN.python, _SPEED, "multiply", {"size": setting.choose(4096, 1024), "dtype": _precision()})


def _rate(found: Turns) -> float:
    """Return the operations per second."""
    return float(found.ready["operations"]) / statistics.median(found.seconds)


# Encoding


def encode(setting: Setting) -> Outcome:
    """Encode documents with MiniLM; compare with sentence-transformers and with the rate of matrix products."""
    rows, sentences, ratios, model = [], [], {}, _model()
    dtypes = ("auto", "int8") if is_installed("openvino") else ("auto",)
    for name, whole in {"cran": 600, "npl": 2500}.items():
        say(f"encoding {name}")
        texts = list(read_beir(setting.data / "retrieval" / name).documents.values())
        random.Random(setting.seed).shuffle(texts)
        kept, lengths = cut_to_window(texts[: setting.choose(whole, 60)], model)
        file = setting.folder / f"texts-{name}.json"
        file.write_text(json.dumps(kept), encoding="utf-8")
        request = {"texts": str(file), "model": str(model), "preset": "minilm"}
        sides = {
            **{dtype: Side(sys.executable, OWN, "encode", {**request, "dtype": dtype}) for dtype in dtypes},
            "peer": Side(LANGCHAIN.python, _SPEED, "encode", request),
            "limit": _multiplier(setting),
        }
        found = warm_turns(sides, setting.turns, setting.runner)
        theirs, tokens = found["peer"].seconds, sum(lengths)
        floor = _operations(model, lengths) / _rate(found["limit"])
        for dtype in dtypes:
            ours = found[dtype].seconds
            speeds = [spread([tokens / seconds for seconds in side]) for side in (ours, theirs)]
            ratio, cosine = of_medians(theirs, ours), f"{found[dtype].ready['lowest_cosine']:.5f}"
            rows.append([name, dtype, *speeds, times(ratio), cosine])
            suffix = "" if dtype == "auto" else f", {dtype}"
            ratios[f"encode {name}{_variant()}: tokens/s beside sentence-transformers{suffix}"] = ratio, True
        share = per_cent(floor / statistics.median(found["auto"].seconds))
        sentences.append(
            f"{name}: {len(kept):,} texts, {tokens:,} tokens; the operations take {significant(floor, 3)} s in "
            f"{fast_dtype(('cpu',))}, {share} of ragembed's time with `auto`"
        )
    about = (
        "Documents are encoded with the preset `minilm`, fitted before, including tokenization. They are cut to one "
        "window of the model. sentence-transformers runs with its defaults and the same model files. Floor: the "
        "operations of the model for these tokens without padding, at the rate of products of large square matrices in "
        f"PyTorch. {'; '.join(sentences)}."
    )
    header = ["", "dtype", "ragembed, tokens/s", "sentence-transformers, tokens/s", "ratio", "lowest cosine to float32"]
    return Outcome([about, table(header, rows)], ratios, _variant())


def methods(setting: Setting) -> Outcome:
    """Encode with other methods, and compare with the plain mean of the last layer."""
    path, count = setting.data / "sts" / "sts14.tsv", setting.choose(1000, 60)
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    sentences = list(dict.fromkeys(cell for line in lines for cell in line.split("\t")[1:3]))[:count]
    file = setting.folder / "sentences.json"
    file.write_text(json.dumps(sentences), encoding="utf-8")
    request = {"texts": str(file), "turns": 2 * setting.turns + 1}
    report = setting.runner.run_task(sys.executable, OWN, "methods", request)
    rows = [
        [name, spread(one["plain"]), spread(one["this"]), times(of_medians(one["this"], one["plain"]))]
        for name, one in report.items()
        if isinstance(one, dict)
    ]
    about = (
        f"{len(sentences):,} sentences of STS 2014 are encoded with MiniLM, fitted before, including tokenization, "
        "without post-processors. Each method takes turns with the plain mean of the last layer. T4 reads its template "
        "with each sentence, which triples the number of tokens."
    )
    return Outcome([about, table(["", "plain mean, s", "this method, s", "ratio"], rows)])


def static(setting: Setting) -> Outcome:
    """Encode with static vectors; compare with model2vec with the same table and tokenizer."""
    count, dim = setting.choose(12_000, 300), 384
    every, wanted = read_texts(setting.data), setting.choose(12_000, 300) * (setting.turns + 1)
    drawn = np.random.default_rng(setting.seed).permutation(len(every))[:wanted].reshape(-1, count)
    file = setting.folder / "static.json"
    file.write_text(json.dumps([[every[i] for i in part] for part in drawn]), encoding="utf-8")
    rows, ratios = [], {}
    for name, preset in {"RE": "re", "Avg.": "avg"}.items():
        say(f"static vectors: {name}")
        paths = {part: str(setting.folder / f"{preset}-{part}.npy") for part in ("table", "vectors")}
        tokenizer = str(_model() / "tokenizer.json")
        request = {"texts": str(file), "preset": preset, "dim": dim, "tokenizer": tokenizer, **paths}
        sides = {
            "ragembed": Side(sys.executable, OWN, "static", request),
            "peer": Side(SPEED.python, _SPEED, "static", request),
        }
        found = warm_turns(sides, setting.turns, setting.runner)
        ours, theirs = found["ragembed"].seconds, found["peer"].seconds
        ratios[f"static: {name} beside model2vec"] = of_medians(theirs, ours), True
        speeds = [spread([count / seconds for seconds in side]) for side in (ours, theirs)]
        same = f"{100 * found['peer'].ready['same']:.1f} %"
        rows.append([name, *speeds, times(of_medians(theirs, ours)), same])
    about = (
        f"Plain means of static vectors of dimension {dim}, with the same table and tokenizer on both sides, each in "
        f"one warm process: {count:,} texts of the test data per turn, different ones in each turn. "
        f"{versions(SPEED.python, 'model2vec')} runs without its token limit and without subprocesses. Vectors count "
        "as equal if their cosine is over 0.9999."
    )
    return Outcome([about, table(["", "ragembed, texts/s", "model2vec, texts/s", "ratio", "equal"], rows)], ratios)


def quantile(setting: Setting) -> Outcome:
    """Apply the quantile post-processors; compare with scikit-learn's."""
    rows, dim = setting.choose(100_000, 2_000), 384
    request = {"rows": rows, "dim": dim, "turns": setting.turns, "seed": setting.seed}
    report, lines, ratios = setting.runner.run_task(sys.executable, OWN, "quantile", request), [], {}
    for spec in ("quantile-u", "quantile-n"):
        ours, theirs = report[spec]["ours"], report[spec]["theirs"]
        ratios[f"quantile: {spec} beside scikit-learn"] = of_medians(theirs, ours), True
        shown = [spread(ours), spread(theirs), times(of_medians(theirs, ours)), f"{report[spec]['difference']:.1g}"]
        lines.append([spec, *shown])
    about = (
        f"Transformation of {rows:,} × {dim} float32 values; scikit-learn {report['scikit-learn']}, both with 1,000 "
        "quantiles."
    )
    header = ["", "ragembed, s", "scikit-learn, s", "ratio", "largest difference"]
    return Outcome([about, table(header, lines)], ratios)


# Indexing


def _index(files: Path, store: Path, *options: str) -> Command:
    return [*RAGEMBED, "index", files, "--store", store, *options]


def index(setting: Setting) -> Outcome:
    """Index folders as whole processes; compare with programs that use LangChain, FastEmbed, Chroma and txtai."""
    limit, model = 20 if setting.trial else None, _model()
    folders = {name: _collection(setting, name, limit) for name in (("cran",) if setting.check else ("cran", "npl"))}
    if setting.python_docs is not None and not setting.check:
        folders["python3-doc"] = write_python_docs(setting, setting.python_docs)
    rate = _rate(warm_turns({"limit": _multiplier(setting)}, 2, setting.runner)["limit"])
    setting.runner.run_task(SPEED.python, _SPEED, "onnx", {"model": str(model), "onnx": str(_onnx(setting))})
    say("warming up")
    in_turns(_indexing(setting, "few", _few(setting, folders["cran"])), 1, setting.runner)
    rows, sentences, ratios = [], [], {}
    for name, files in folders.items():
        say(f"indexing {name}")
        texts = [path.read_text(encoding="utf-8") for path in files.iterdir()]
        turns = 2 if name == "cran" and not setting.trial else 1
        costs = in_turns(_indexing(setting, name, files), turns, setting.runner)
        check_memory([cost.memory for several in costs.values() for cost in several])
        own = costs["ragembed"]
        for side, several in costs.items():
            cells = [f"{name}: {side}", *_wall_and_memory(several), "", ""]
            if side != "ragembed":
                faster, less = _faster(several, own), _memory(own, several)
                cells[3:] = [times(faster), times(less)]
                ratios[f"index {name}{_variant()}: time beside {side}"] = faster, True
                ratios[f"index {name}{_variant()}: memory beside {side}"] = less, False
            rows.append(cells)
        floor = _operations(model, _windows(model, texts)) / rate / statistics.median(cost.wall for cost in own)
        sentences.append(
            f"{name}: {len(texts):,} files, {sum(map(len, texts)):,} characters; the floor is {per_cent(floor)} of "
            "ragembed's time"
        )
    about = (
        "`ragembed index` with all defaults indexes a folder of text files. Its peers are programs that use LangChain "
        "(FAISS, with HuggingFaceEmbeddings and with FastEmbed), Chroma (with its default embeddings) and txtai (which "
        "stores the texts). FastEmbed and Chroma run the model with ONNX Runtime. All are whole processes from start "
        "to exit, with the same weights. Python's documentation is drawn at random up to 1.2 million characters; the "
        "peers split it into parts of at most 1,000 characters. They read only the first 256 tokens of other "
        f"documents. {versions(LANGCHAIN.python, 'langchain-community', 'sentence-transformers')}, "
        f"{versions(ONNX.python, 'fastembed', 'chromadb', 'onnxruntime')}, {versions(SPEED.python, 'txtai')}. "
        "Floor: the operations of the model for all tokens of the files, at the rate of products of large square "
        f"matrices in PyTorch. {'; '.join(sentences)}."
    )
    header = ["", "s", "peak memory, MiB", "ragembed is faster by", "ragembed's memory ÷ peer's"]
    return Outcome([about, table(header, rows)], ratios, _variant())


def _few(setting: Setting, files: Path) -> Path:
    few = setting.folder / "files-few"
    few.mkdir()
    for path in sorted(files.iterdir())[:20]:
        shutil.copy(path, few)
    return few


def _indexing(setting: Setting, name: str, files: Path) -> dict[str, Callable[[int], Command]]:
    """Return the commands that index ``files`` into a new store in each turn, by side."""
    stores = setting.folder / "stores" / name
    stores.mkdir(parents=True)
    split = 1000 if name == "python3-doc" else None
    shared = {"files": str(files), "model": str(_model()), "onnx": str(_onnx(setting)), "split": split}

    def peer(python: Path, program: Path, task: str) -> Callable[[int], Command]:
        def command(turn: int) -> Command:
            return [python, program, task, json.dumps({**shared, "store": str(stores / f"{task}-{turn}")})]

        return command

    return {
        "ragembed": lambda turn: _index(files, stores / f"ragembed-{turn}"),
        "LangChain": peer(LANGCHAIN.python, _LANGCHAIN, "index"),
        "LangChain with FastEmbed": peer(ONNX.python, _ONNX, "fastembed"),
        "Chroma": peer(ONNX.python, _ONNX, "chroma"),
        "txtai": peer(SPEED.python, _SPEED, "txtai_index"),
    }


def _onnx(setting: Setting) -> Path:
    return setting.folder / "model" / "onnx"


def _windows(model: Path, texts: Sequence[str]) -> list[int]:
    """Return the token count, including special tokens, of each window of the model that the texts need."""
    tokenizer = TextTokenizer(model)
    room, special = tokenizer.max_tokens - tokenizer.special_tokens, tokenizer.special_tokens
    lengths = tokenizer.ids(texts).lengths.tolist()
    return [min(room, length - start) + special for length in lengths for start in range(0, max(length, 1), room)]


def _wall_and_memory(costs: Sequence[Cost]) -> list[str]:
    return [spread([cost.wall for cost in costs]), spread([cost.memory for cost in costs])]


def _faster(theirs: Sequence[Cost], ours: Sequence[Cost]) -> float:
    return of_medians([cost.wall for cost in theirs], [cost.wall for cost in ours])


def _memory(ours: Sequence[Cost], theirs: Sequence[Cost]) -> float:
    return of_medians([cost.memory for cost in ours], [cost.memory for cost in theirs])


def reindex(setting: Setting) -> Outcome:
    """Index again after an edit; compare with indexing into a new store."""
    files, store = _collection(setting, "cran", setting.choose(1000, 40)), setting.folder / "store"
    documents = sorted(files.iterdir())
    setting.runner.run(_index(files, store))

    def edited(turn: int) -> Command:
        with documents[turn * 7].open("a", encoding="utf-8") as file:
            print(f"\nEdited in turn {turn}.", file=file)
        return _index(files, store)

    commands: dict[str, Callable[[int], Command]] = {
        "new store": lambda turn: _index(files, setting.folder / f"store-{turn}"),
        "1 file edited": edited,
        _STARTING: lambda _: EMPTY,
    }
    turns = min(setting.turns, 3)
    costs = in_turns(commands, turns, setting.runner)
    setting.runner.run(_index(files, store))
    costs |= in_turns({"no file edited": lambda _: _index(files, store)}, turns, setting.runner)
    walls = {name: [cost.wall for cost in own] for name, own in costs.items()}
    names = ("new store", "1 file edited", "no file edited", _STARTING)
    rows = [[name, spread(walls[name]), per_cent(of_medians(walls[name], walls[names[0]]))] for name in names]
    about = (
        f"`ragembed index` with all defaults indexes {len(documents):,} files, the first documents of Cranfield: into "
        "a new store, after a sentence was added to one file, and without changes."
    )
    ratio = of_medians(walls["1 file edited"], walls["new store"])
    return Outcome(
        [about, table(["", "s", "relative to new store"], rows)], {"re-index: 1 file edited": (ratio, False)}
    )


# Queries


def cold(setting: Setting) -> Outcome:
    """Run one query as a whole process, with MiniLM and with static vectors; compare with LangChain."""
    limit, model, presets = 40 if setting.trial else None, _model(), ("minilm", "avg")
    files = _collection(setting, "cran", limit)
    stores = {name: setting.folder / f"store-{name}" for name in (*presets, "LangChain")}
    for preset in presets:
        say(f"indexing Cranfield with the preset {preset}")
        setting.runner.run(_index(files, stores[preset], "--preset", preset))
    say("indexing Cranfield with LangChain")
    shared = {"files": str(files), "model": str(model), "store": str(stores["LangChain"])}
    setting.runner.run_task(LANGCHAIN.python, _LANGCHAIN, "index", shared)
    every = list(dict.fromkeys(read_beir(setting.data / "retrieval" / "cran").queries.values()))
    queries = every[:: len(every) // (setting.turns + 1)]

    def own(preset: str, query: str) -> Command:
        return [*RAGEMBED, "query", "--json", "--store", stores[preset], "--", query]

    def peer(query: str) -> Command:
        return [LANGCHAIN.python, _LANGCHAIN, "query", json.dumps({**shared, "query": query})]

    commands: dict[str, Callable[[int], Command]] = {
        **{f"ragembed, {preset}": lambda turn, preset=preset: own(preset, queries[turn]) for preset in presets},
        "LangChain": lambda turn: peer(queries[turn]),
        _STARTING: lambda _: EMPTY,
    }
    # One unmeasured turn fills the cache of the file system.
    in_turns({name: lambda _, of=of: of(setting.turns) for name, of in commands.items()}, 1, setting.runner)
    costs = in_turns(commands, setting.turns, setting.runner)
    check_memory([cost.memory for name, several in costs.items() if name != _STARTING for cost in several])
    rows, ratios = [], {}
    for name, several in costs.items():
        cells = [name, *_wall_and_memory(several), "", ""]
        if name.startswith("ragembed"):
            faster, less = _faster(costs["LangChain"], several), _memory(several, costs["LangChain"])
            cells[3:] = [times(faster), times(less)]
            path = f"cold query, {name.removeprefix('ragembed, ')}"
            ratios |= {f"{path}: time beside LangChain": (faster, True)}
            ratios |= {f"{path}: memory beside LangChain": (less, False)}
        rows.append(cells)
    about = (
        f"{setting.turns} distinct queries to a store of {'all' if limit is None else limit} Cranfield documents, each "
        "as a new process from start to exit: `ragembed query` with hybrid search, its default, with MiniLM and with "
        "static vectors (`--preset avg`), and a program that uses LangChain. Each program ran once before."
    )
    header = ["", "s", "peak memory, MiB", "faster than LangChain by", "memory ÷ LangChain's"]
    return Outcome([about, table(header, rows)], ratios)


def warm(setting: Setting) -> Outcome:
    """Search open stores of 100,000 chunks; compare with LangChain's FAISS store."""
    count, model = setting.choose(100_000, 2_000), str(_model())
    folder = texts_folder(setting, "warm", count, 60, setting.choose(10_000, 200))
    if not (folder / "ragembed").is_dir():
        say("creating ragembed's store")
        setting.runner.run_task(sys.executable, OWN, "warm_store", {"folder": str(folder), "seed": setting.seed})
    if not (folder / "langchain").is_dir():
        say("creating LangChain's store")
        setting.runner.run_task(LANGCHAIN.python, _LANGCHAIN, "warm_store", {"folder": str(folder), "model": model})
    queries = queries_by_turn(setting)
    sides = {
        "ragembed": Side(sys.executable, OWN, "warm", {"queries": queries, "store": str(folder / "ragembed")}),
        "LangChain": Side(
            LANGCHAIN.python,
            _LANGCHAIN,
            "warm",
            {"queries": queries, "model": model, "store": str(folder / "langchain")},
        ),
    }
    found = warm_turns(sides, setting.turns, setting.runner)
    rows, ratios = [], {}
    for way in ("hybrid", "dense", "hybrid, vector given", "dense, vector given"):
        beside = way.replace("hybrid", "dense")
        ours, theirs = _percentiles(found["ragembed"], way), _percentiles(found["LangChain"], beside)
        shown = [significant(value, 3) for value in (*ours, *theirs)]
        rows.append([way, *shown, times(theirs[0] / ours[0]), times(theirs[1] / ours[1])])
        ratios[f"warm query, {way}: median beside LangChain's {beside}"] = theirs[0] / ours[0], True
    throughput = [report["throughput"] for report in found["ragembed"].reports]
    per_second, busy = (
        {name: float(np.median([turn[name][i] for turn in throughput])) for name in throughput[0]} for i in (0, 1)
    )
    rates = [
        [label, significant(per_second[name], 3), times(per_second[name] / per_second["one"]), significant(busy[name])]
        for name, label in (("one", "one after the other"), ("threads", "16 threads"), ("batch", "`search_many`"))
    ]
    about = (
        f"{len(queries[0]) * setting.turns} distinct human queries, one after the other, to stores of {count:,} chunks "
        "of up to 60 words in warm processes. The chunks are generated from pieces of the test data and have vectors "
        f"near those of the pieces. The index of ragembed is {', '.join(found['ragembed'].ready['kinds'])}, that of "
        "LangChain is flat; k is 10. With a given vector, ragembed's hybrid search uses the query text for BM25 only. "
        f"Peak memory: {_peaks(found)}; without mapped files: {_peaks(found, 'unshared')}."
    )
    header = ["", "median, ms", "p95, ms", "LangChain's median, ms", "LangChain's p95, ms", "ratio of medians"]
    header += ["ratio of p95"]
    many = (
        "Hybrid queries one after the other, from 16 threads that share a store, and with `search_many`. Processor "
        f"time is that of all {processors()} processors:"
    )
    columns = ["", "queries per second", "relative to one after the other", "processor ms per query"]
    return Outcome([about, table(header, rows), many, table(columns, rates)], ratios)


def _percentiles(turns: Turns, way: str) -> tuple[float, float]:
    """Return the median and the 95th percentile of the milliseconds of all turns."""
    taken = [value for report in turns.reports for value in report[way]]
    return float(np.median(taken)), float(np.percentile(taken, 95))


def _peaks(found: Mapping[str, Turns], kind: str = "memory") -> str:
    return ", ".join(f"{side} {max(one[kind] for one in own.reports):.0f} MiB" for side, own in found.items())


def lexical(setting: Setting) -> Outcome:
    """Search 500,000 chunks with lexical search; compare with bm25s."""
    count = setting.choose(500_000, 3_000)
    folder = texts_folder(setting, "lexical", count, 60)
    sides = {"ragembed": (sys.executable, OWN), "bm25s": (SPEED.python, _SPEED)}
    for name, (python, program) in sides.items():
        if not (folder / name).is_dir():
            say(f"creating the index of {name}")
            setting.runner.run_task(python, program, "lexical_store", {"folder": str(folder), "seed": setting.seed})
    queries = queries_by_turn(setting)
    contestants = {
        name: Side(python, program, "lexical", {"queries": queries, "store": str(folder / name)})
        for name, (python, program) in sides.items()
    }
    found = warm_turns(contestants, setting.turns, setting.runner)
    measured = {side: _percentiles(found[side], "taken") for side in found}
    rows = [[side, *(significant(value, 3) for value in measured[side])] for side in measured]
    medians, tails = (measured["bm25s"][i] / measured["ragembed"][i] for i in range(2))
    about = (
        f"{len(queries[0]) * setting.turns} distinct human queries, one after the other, to {count:,} chunks of up to "
        "60 words, generated from pieces of the test data, in warm processes: "
        f'`store.search(query, mode="lexical")` and {versions(SPEED.python, "bm25s")} with its tokenizer, its English '
        f"stop words and PyStemmer, and its index in memory; k is 10. ragembed is {times(medians)} as fast by the "
        f"median, {times(tails)} by p95. Peak memory: {_peaks(found)}."
    )
    ratios = {"lexical query: p95 beside bm25s": (tails, True), "lexical query: median beside bm25s": (medians, True)}
    return Outcome([about, table(["", "median, ms", "p95, ms"], rows)], ratios)


# Growth


@dataclass(frozen=True, slots=True)
class _Grown:
    """Measurements at one size: seconds by path, memory in MiB of indexing, indexing again and search; index kind."""

    chunks: int
    seconds: Mapping[str, float]
    memory: tuple[float, float, float]
    index: str


def growth(setting: Setting) -> Outcome:
    """Index a thousand to a million chunks, index again, and search."""
    sizes = (200, 1_000) if setting.trial else (1_000, 10_000, 100_000, 300_000, 1_000_000)
    texts = texts_folder(setting, "rows", max(sizes), 24) / "texts.txt"
    drawn = queries_by_turn(setting)
    queries = [drawn[0][:10], list(chain(*drawn[1:]))[:80]]
    grown = [_grow(setting, size, texts, queries) for size in sizes]
    if not setting.trial:
        _draw(grown)
    paths = list(grown[0].seconds)
    header = ["chunks", *(f"{path}, {'ms' if 'query' in path else 's'}" for path in paths)]
    header += ["index, µs per chunk", "index: memory, MiB", "re-index: memory, MiB", "queries: memory, MiB"]
    rows = [
        [
            f"{one.chunks:,}",
            *(significant(one.seconds[path] * (1000 if "query" in path else 1), 3) for path in paths),
            significant(1e6 * one.seconds["index"] / one.chunks, 3),
            *(f"{memory:.0f}" for memory in one.memory),
        ]
        for one in grown
    ]
    about = (
        "`ragembed index` with random embeddings of dimension 384 (`--extractor re:dim=384`), which need no model, "
        "indexes tables of 100 rows of up to 24 words, generated from pieces of the test data, one chunk per row. It "
        "runs again without changes, and with one changed file. Then a new process runs "
        f"{len(queries[1])} human queries, after a few others. Memory is the unshared memory of the process "
        "(`RssAnon`), sampled. "
        + "; ".join(f"{one.chunks:,} chunks: {one.index}" for one in grown)
        + ". ![time by chunks](figures/speed_growth.png)"
    )
    return Outcome([about, table(header, rows)])


def _grow(setting: Setting, size: int, texts: Path, queries: Sequence[Sequence[str]]) -> _Grown:
    say(f"{size:,} chunks")
    files, store = write_tables(setting, size, texts), setting.folder / f"store-{size}"
    command = _index(files, store, "--extractor", "re:dim=384")
    runs: list[Watched] = [setting.runner.watch(command), setting.runner.watch(command)]
    with (files / "00000.csv").open("a", encoding="utf-8") as file:
        print("a row that was added later", file=file)
    runs.append(setting.runner.watch(command))
    seconds = dict(zip(("index", "re-index", "re-index, 1 file"), (run.seconds for run in runs), strict=True))
    report = setting.runner.run_task(sys.executable, OWN, "search_modes", {"store": str(store), "queries": queries})
    for mode in ("lexical", "dense", "hybrid"):
        seconds[f"{mode} query, p95"] = float(np.percentile(report[mode], 95)) / 1000
    shutil.rmtree(store)
    shutil.rmtree(files)
    return _Grown(size, seconds, (runs[0].driver, runs[2].driver, report["unshared"]), ", ".join(report["kinds"]))


def _draw(grown: Sequence[_Grown]) -> None:
    """Plot the seconds of each path over the number of chunks, on logarithmic scales."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 6.0), layout="constrained")
    axes = figure.subplots()
    for path in grown[0].seconds:
        axes.plot([one.chunks for one in grown], [one.seconds[path] for one in grown], marker=".", label=path)
    axes.set(xscale="log", yscale="log", xlabel="chunks", ylabel="seconds")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE, format="png", dpi=110)
