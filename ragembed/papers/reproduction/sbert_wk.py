"""Wang & Kuo 2020, *SBERT-WK: A Sentence Embedding Method by Dissecting BERT-based Word Models*."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from ragembed.config.settings import EmbedderConfig
from ragembed.embedder import Embedder
from ragembed.errors import ConfigError
from ragembed.extractors.forward import Batch
from ragembed.extractors.kept_states import kept_states
from ragembed.extractors.transformer import TransformerExtractor
from ragembed.models.files import find_model
from ragembed.models.packaging import read_json
from ragembed.models.tokenizer import TextTokenizer, TokenKind
from ragembed.papers.reproduction.data import Printed, in_group, printed
from ragembed.papers.reproduction.reproduction_run import Cell, Item, Reproduction, Value, path_sha256
from ragembed.papers.sentences.sentence_collections import SPLITS, read_scored_pairs
from ragembed.papers.sentences.sentence_tasks import read_sts
from ragembed.progress import phase
from ragembed.types import Floats

PAPER = "sbert-wk"
_STS = ("sts12", "sts13", "sts14", "sts15", "sts16")
_COLUMNS = {**{name: name.upper() for name in _STS}, "stsb-trained": "STS-B", "sickr-trained": "SICK-R"}
_DOWNSTREAM = {name: name.upper() for name in ("mr", "cr", "subj", "mpqa", "sst2", "trec", "mrpc")}
_DOWNSTREAM["sicke"] = "SICK-E"
_PROBING = {name: name for name in in_group("probing")}
_RELEASED = ", released code"
_FASTTEXT = re.compile(r"fasttext|^(crawl|wiki|cc)[-.].*\.vec")
_AVERAGED = {**{name: name for name in _STS}, "stsb": "stsb-trained"}
"""The collections of the means of table VII and figure 3; STS-B is supervised, as in table III (section V-A)."""
_SENTENCES, _TRIALS = 100, 5
_DECOMPOSITIONS = ("qr", "svd")
_OCCURRENCES = 50
_WINDOWS, _STARTS = (1, 2, 3, 4), tuple(range(7))


def _kind(run: Reproduction) -> str:
    """Return the paper's name of the kind of the model: SBERT for packages of sentence-transformers, BERT or XLNet."""
    if (find_model(run.inputs.model).root / "modules.json").is_file():
        return "SBERT"
    name = str(read_json(run.model_folder / "config.json").get("model_type"))
    return {"bert": "BERT", "xlnet": "XLNet"}.get(name, name)


def _methods(run: Reproduction) -> dict[str, tuple[EmbedderConfig, ...]]:
    """Return the configurations of the rows of tables III, V and VI; vectors of several are joined."""
    kind, weighed = _kind(run), run.config.replace(extractor="sbert-wk", layers="last")
    found: dict[str, tuple[EmbedderConfig, ...]] = {
        "Sentence-BERT" if kind == "SBERT" else f"Avg. {kind} embeddings": (run.config,),
        f"SBERT-WK ({kind})": (weighed,),
        f"SBERT-WK ({kind}){_RELEASED}": (weighed.replace(extractor="sbert-wk:variant=released-code"),),
    }
    if kind == "BERT":
        found["BERT [CLS]"] = (run.config.replace(pooling="cls"),)
    if not run.inputs.word_vectors:
        run.note("word vectors, SIF and p-mean need --word-vectors FILE")
        return found
    plain = run.config.replace(extractor="words", layers="last")
    of_files = {_vectors_name(file): plain.replace(model=str(file)) for file in run.inputs.word_vectors}
    if len(of_files) < len(run.inputs.word_vectors):
        raise ConfigError(f"files of word vectors have the names {', '.join(of_files)}: expected a name for each")
    for name, config in of_files.items():
        found[f"Avg. {name} embeddings"] = (config,)
        sif = "SIF" if name == "GloVe" else f"SIF, {name}"
        found[sif] = (config.replace(weighting="sif", postprocess=("common",)),)
    found["p-mean"] = tuple(config.replace(pooling="min+mean+max") for config in of_files.values())
    run.note(f"p-mean joins the vectors of {', '.join(of_files)}; in the paper, those of four files (3,600 dimensions)")
    return found


def _vectors_name(file: Path) -> str:
    """Return the paper's name of the vectors in a file, if its name is one under which they are published."""
    name = file.name.lower()
    return "GloVe" if "glove" in name else "FastText" if _FASTTEXT.search(name) else file.name


def _compared(columns: Mapping[str, str], score: str, task: str, run: Reproduction) -> Iterator[Value]:
    """Measure a table with a row per method and a column per collection, and the means over the columns."""
    cells = [
        Cell(row, column, name, configs[0], score, task, configs[1:])
        for name, column in columns.items()
        if name in run.chosen(tuple(columns)) and run.wants(column)
        for row, configs in _methods(run).items()
    ]
    for value in run.evaluate(cells):
        yield value
        yield Value(value.row, "average", value.collection, value.value, value.note)


def _published(table: str, columns: Mapping[str, str]) -> Printed:
    """Return the lookup of a table, whose numbers of SBERT-WK are those of the authors' program."""
    number = printed(PAPER, table, columns)
    return lambda row, column, names: number(row.removesuffix(_RELEASED), column, names)


_ABLATION = {
    "SBERT": None,
    "SBERT + alignment": "novelty=false,importance=false",
    "SBERT + novelty": "alignment=false,importance=false",
    "SBERT + token importance, last layer": "start_layer={last},alignment=false,novelty=false",
    "SBERT + token importance, all layers": "start_layer=0,alignment=false,novelty=false",
    "SBERT-WK": "",
}


def _ablation(run: Reproduction) -> Iterator[Value]:
    """Measure table VII: Pearson's correlation with one part of the method at a time."""
    column = "STS12-STS16 and STS-B"
    names = [_AVERAGED[name] for name in run.chosen(tuple(_AVERAGED))]
    cells: list[Cell] = []
    for row, settings in _ABLATION.items():
        config = run.config
        if settings is not None:
            spec = ":".join(part for part in ("sbert-wk", settings.format(last=run.layers)) if part)
            config = config.replace(extractor=spec)
        cells += [Cell(row, column, name, config, "pearson") for name in names]
    yield from run.evaluate(cells)


def _sensitivity(run: Reproduction) -> Iterator[Value]:
    """Measure figure 3: the window and the start layer, on STS with STS-B, SICK-E and SST2."""
    settings = {"start_layer": _STARTS, "window": _WINDOWS}
    cells: list[Cell] = []
    for name, values in settings.items():
        for value in values:
            config = run.config.replace(extractor=f"sbert-wk:{name}={value}")
            try:
                config.extraction.check(run.layers)  # type: ignore[union-attr]
            except ConfigError as error:
                run.note(f"{name} {value}: {error}")
                continue
            curves = [("STS", _AVERAGED[one], "pearson", "") for one in run.chosen(tuple(_AVERAGED))]
            curves += [(one.upper(), one, "", "perceptron") for one in run.chosen(("sicke", "sst2"))]
            cells += [
                Cell(f"{name}: {curve}", str(value), one, config, score, task) for curve, one, score, task in curves
            ]
    yield from run.evaluate(cells)


# Layers


class LayerCosines:
    """Add up the cosines between the vectors of each token at two layers; a consumer of a forward pass.

    For WordPiece models, it also keeps the variance of the cosine between consecutive layers for each token that is a
    whole word.
    """

    def __init__(self, layers: int, tokenizer: TextTokenizer) -> None:
        self.layers = tuple(range(layers + 1))
        self.total = np.zeros((layers + 1, layers + 1))
        self.tokens = 0
        self.variances: dict[str, list[float]] = {}
        self._tokenizer = tokenizer

    def take(self, batch: Batch, states: Mapping[int, Floats]) -> None:
        """Read a batch of hidden states."""
        text = batch.kinds == TokenKind.TEXT
        stacked = np.stack([states[layer][text] for layer in self.layers], axis=1).astype(np.float64)
        stacked /= np.maximum(np.linalg.norm(stacked, axis=2, keepdims=True), 1e-12)
        cosines = stacked @ stacked.transpose(0, 2, 1)  # (tokens, layers, layers)
        self.total += cosines.sum(axis=0)
        self.tokens += len(cosines)
        names = self._tokenizer.names(batch.ids[text].tolist())
        variance = np.diagonal(cosines, 1, axis1=1, axis2=2).var(axis=1)
        ends = np.flatnonzero(np.append(np.diff(np.nonzero(text)[0]) != 0, True))
        last = set(ends.tolist())
        for i, (name, found) in enumerate(zip(names, variance.tolist(), strict=True)):
            continued = i not in last and names[i + 1].startswith("##")
            if name.isalpha() and not continued:
                self.variances.setdefault(name, []).append(found)


def _layer_cosines(run: Reproduction, name: str) -> Mapping[str, Any]:
    """Return the mean cosines between layers over the tokens of a collection, and the variances of frequent words."""
    path = run.find(name)
    if path is None:
        return {}

    splits = SPLITS if name == "stsb" else ()
    _, pairs = read_scored_pairs(path, splits)

    def measure() -> Mapping[str, Any]:
        texts = list(dict.fromkeys((*pairs.sentences1, *pairs.sentences2)))
        extractor = Embedder(run.config, device=run.inputs.device).fit_extractor(texts[:1]).extractor
        if not isinstance(extractor, TransformerExtractor):
            raise TypeError(f"expected a transformer, got {type(extractor).__name__}")
        consumer = LayerCosines(run.layers, TextTokenizer(run.model_folder))
        with phase(run.progress, f"{name}: layers", "texts", len(texts)):
            extractor.model.forward("documents").run(texts, [consumer], run.progress.advance)
        words = {word: fmean(v) for word, v in sorted(consumer.variances.items()) if len(v) > _OCCURRENCES}
        return {"cosines": (consumer.total / consumer.tokens).round(6).tolist(), "variances": words}

    settings = {"data": path_sha256(path), "splits": splits, "model": find_model(run.inputs.model).sha256}
    return run.kept("layer cosines", settings, measure)


def _similarity_map(run: Reproduction) -> Iterator[Value]:
    for name in run.pairs("stsb"):
        cosines = _layer_cosines(run, name).get("cosines", [])
        for row, line in enumerate(cosines):
            yield from (Value(str(row), str(column), name, value) for column, value in enumerate(line))


def _words(run: Reproduction) -> Iterator[Value]:
    """Yield the frequent words by the variance of their cosines: a low, a middle and a high group of equal sizes."""
    for name in run.pairs("stsb"):
        variances = _layer_cosines(run, name).get("variances", {})
        if not variances:
            run.note(f"no word of {name} occurs more than {_OCCURRENCES} times")
        ordered = sorted(variances, key=lambda word: variances[word])
        for place, word in enumerate(ordered):
            group = ("low", "middle", "high")[3 * place // len(ordered)]
            yield Value(f"{group}: {word}", "variance × 1,000", name, 1000 * variances[word])


def _overhead(run: Reproduction) -> Iterator[Value]:
    """Measure table VIII: milliseconds per sentence, one sentence at a time, median of five trials."""
    for name in run.pairs("stsb"):
        path = run.find(name)
        if path is None:
            continue
        settings = {"data": path_sha256(path), "model": find_model(run.inputs.model).sha256, "texts": _SENTENCES}
        with kept_states(None):
            measured = run.kept("overheads", settings, partial(_times, run, name, path))
        if measured:
            run.note(
                f"{measured['texts']} sentences, median of {_TRIALS} trials; the published times are of another machine"
            )
            yield Value(_kind(run), "CPU, ms", name, measured["plain"])
            for each in _DECOMPOSITIONS:
                yield Value(f"overhead of SBERT-WK, {each.upper()}", "CPU, ms", name, measured[each])


def _times(run: Reproduction, name: str, path: Path) -> Mapping[str, Any]:
    """Return the time of the forward pass and those of SBERT-WK after it, in milliseconds per sentence."""
    texts = read_sts(path).documents[:_SENTENCES]
    specs = ("transformer", *(f"sbert-wk:decomposition={each}" for each in _DECOMPOSITIONS))
    configs = [run.config.replace(extractor=spec) for spec in specs]
    extractors = [Embedder(each, device=run.inputs.device).fit_extractor(texts).extractor for each in configs]
    trials: list[list[float]] = []
    with phase(run.progress, f"{name}: trials", "texts", (_TRIALS + 1) * len(extractors) * len(texts)):
        for _ in range(_TRIALS + 1):
            # The methods take turns, so that a change of the machine's load meets both.
            trials.append([])
            for extractor in extractors:
                started = time.perf_counter()
                for text in texts:
                    extractor.encode([text], "documents")
                    run.progress.advance(1)
                trials[-1].append(1000 * (time.perf_counter() - started) / len(texts))
    plain, *others = zip(*trials[1:], strict=True)  # the first trial warms up
    overheads = (median(np.subtract(times, plain).tolist()) for times in others)
    return {"texts": len(texts), "plain": median(plain), **dict(zip(_DECOMPOSITIONS, overheads, strict=True))}


def items() -> Iterator[Item]:
    """Yield the tables and figures of the paper."""
    item: Callable[..., Item] = partial(Item, PAPER)
    stsb = ("stsb",)
    every = {"stsb": "train, dev and test"}
    yield item("figure 1", "cosines between layers", stsb, _similarity_map, draw="similarity_map", splits=every)
    yield item("table I", "words by the variance of their cosines", stsb, _words, splits=every)
    tables = (
        ("table III", "semantic textual similarity, Pearson", _COLUMNS, "pearson", ""),
        ("table V", "supervised tasks, perceptron with 50 units", _DOWNSTREAM, "", "perceptron"),
        ("table VI", "probing tasks, perceptron with 50 units", _PROBING, "", "perceptron"),
    )
    for name, title, columns, score, task in tables:
        measured = partial(_compared, columns, score, task), _published(name, columns)
        yield item(name, title, tuple(columns), *measured)
    averaged = tuple(_AVERAGED.values())
    yield item("table VII", "ablation", averaged, _ablation, printed(PAPER, "table VII"))
    yield item("figure 3", "window and start layer", (*averaged, "sicke", "sst2"), _sensitivity, draw="curves")
    yield item("table VIII", "time of the forward pass and of SBERT-WK", stsb, _overhead, printed(PAPER, "table VIII"))
