"""The evidence for the defaults of search: each option on many collections."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
from corpora import CORPORA, build
from data import Setting
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, ndcg, paired_bootstrap, read_beir
from ragembed.indexes import ChunkRecord, Fusion, SourceRecord, Store
from ragembed.indexes.search.pipeline import Mode
from ragembed.types import Doubles

_NOW = Embedder().config
_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Way:
    """A way to search: the embedder, the mode, the fusion, and whether words are stemmed for the language."""

    config: EmbedderConfig = _NOW
    mode: Mode = "hybrid"
    fusion: Fusion = field(default_factory=Fusion)
    stemmed: bool = False


DEFAULT = "hybrid (default)"
_CHANGES: Mapping[str, EmbedderConfig] = {
    "uniform weights": _NOW.replace(weighting="uniform"),
    "idf:0.5": _NOW.replace(weighting="idf:0.5"),
    "center": _NOW.replace(postprocess=("center", "normalize"), query_fit="shared"),
    "center, two sides": _NOW.replace(postprocess=("center", "normalize"), query_fit="separate"),
    "abtt:2": _NOW.replace(postprocess=("abtt:2", "normalize"), query_fit="shared"),
    "zscore, two sides": _NOW.replace(postprocess=("zscore", "normalize"), query_fit="separate"),
    "quantile-u, two sides": _NOW.replace(postprocess=("quantile-u", "normalize"), query_fit="separate"),
    "quantile-n, two sides": _NOW.replace(postprocess=("quantile-n", "normalize"), query_fit="separate"),
}
"""Changes of the default embedder."""
FUSIONS: Mapping[str, Fusion] = {
    f"alpha {alpha:g}, feedback {feedback:g}": Fusion(alpha=alpha, feedback=feedback)
    for alpha in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    for feedback in (0.0, 0.25, 0.5, 0.75)
}
"""The grid of fusions from which a default is chosen."""
NO_FEEDBACK = "hybrid without feedback"
WAYS: Mapping[str, Way] = {
    DEFAULT: Way(),
    "BM25": Way(mode="lexical"),
    "dense": Way(mode="dense"),
    NO_FEEDBACK: Way(fusion=Fusion(feedback=0.0)),
    "hybrid, minmax": Way(fusion=Fusion("minmax")),
    "hybrid, rrf": Way(fusion=Fusion("rrf")),
    "BM25, --language": Way(mode="lexical", stemmed=True),
    "hybrid, --language": Way(stemmed=True),
    **{
        f"hybrid, {name}": Way(fusion=fusion)
        for name, fusion in FUSIONS.items()
        if fusion not in (Fusion(), Fusion(feedback=0.0))
    },
    **{f"hybrid, {name}": Way(config) for name, config in _CHANGES.items()},
}
"""All ways to search, by name."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores of a collection: nDCG@10 of each query, by way to search."""

    name: str
    queries: int
    documents: int
    values: Mapping[str, Doubles]


def judged_collections(setting: Setting) -> Iterator[tuple[RetrievalCollection, str]]:
    """Yield the judged collections of the test data and those of :mod:`corpora`, with the language of each store."""
    for collection in setting.collections():
        yield collection, "english"
    folder = _kept_in(setting, "collections")
    names = list(CORPORA)[: 1 if setting.trial else None]
    if missing := [name for name in names if not (folder / name / "qrels").is_dir()]:
        build(folder, missing, setting.cache / "packages")
    for name in names:
        yield read_beir(folder / name, 100 if setting.trial else None), CORPORA[name].stemmer


def _kept_in(setting: Setting, name: str) -> Path:
    """Return a folder of the cache; a trial has its own, because its collections are smaller."""
    folder = setting.cache / ("trial" if setting.trial else "") / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def measured(setting: Setting) -> list[Measured]:
    """Measure every way to search on every collection; the scores are kept in the cache."""
    found = []
    for collection, language in judged_collections(setting):
        path = _kept_in(setting, "scores") / f"{collection.name}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"values": {}}
        missing = [name for name in WAYS if name not in kept["values"]]
        if missing:
            say(f"{collection.name}: {len(collection.documents):,} documents, {len(missing)} ways to search")
            kept["values"] |= _measure(collection, language, setting, missing)
            path.write_text(json.dumps(kept), encoding="utf-8")
        values = {way: np.array(scores) for way, scores in kept["values"].items()}
        found.append(Measured(collection.name, len(collection.relevance), len(collection.documents), values))
    return found


def _measure(
    collection: RetrievalCollection, language: str, setting: Setting, ways: Sequence[str]
) -> dict[str, list[float]]:
    """Return the scores of the ``ways`` to search, with one store for each embedder and language."""
    by_store: dict[tuple[EmbedderConfig, bool], list[str]] = {}
    for name in ways:
        by_store.setdefault((WAYS[name].config, WAYS[name].stemmed), []).append(name)
    asked = [collection.queries[name] for name in collection.relevance]
    values = {}
    for (config, stemmed), names in by_store.items():
        with (
            tempfile.TemporaryDirectory(dir=setting.folder) as folder,
            _store(Path(folder, "store"), collection, config, language if stemmed else "english") as store,
        ):
            for name in names:
                fusion = replace(WAYS[name].fusion, hubness=0.0)
                answers = store.search_many(asked, _DEPTH, WAYS[name].mode, fusion=fusion)
                values[name] = [
                    ndcg([hit.id for hit in hits], gains)
                    for hits, gains in zip(answers, collection.relevance.values(), strict=True)
                ]
    return values


def _store(path: Path, collection: RetrievalCollection, config: EmbedderConfig, language: str) -> Store:
    """Return a store with one chunk for each document; the file of a document of source code is known by its name."""
    is_code = collection.name in CORPORA and CORPORA[collection.name].domain == "source code"
    parts = ((name, *collection.parts(name)) for name in collection.documents)
    records = [
        ChunkRecord(name, Chunk(text, title=title), f"{at}.py" if is_code else None)
        for at, (name, title, text) in enumerate(parts)
    ]
    texts = [record.chunk.embedded_text for record in records]
    store = Store.create(path, Embedder(config).fit(texts), language=language)
    with store.writer() as writer:
        writer.stage(texts)
        sources = [SourceRecord(record.source, 1, 0, "0" * 64, "r") for record in records if record.source]
        writer.commit(chunks=records, sources=sources)
        writer.refresh_index()
    return store


# --- tables -----------------------------------------------------------------------------------------------------------

_RESAMPLES = 10_000
_BY_COLLECTION = {
    "BM25": "BM25",
    "dense": "dense",
    NO_FEEDBACK: "hybrid without feedback",
    "hybrid, alpha 0.4, feedback 0.75": "alpha 0.4",
    "hybrid, alpha 0.7, feedback 0.75": "alpha 0.7",
    "hybrid, --language": "--language",
}
"""The ways to search that are compared with the default on each collection, with the heads of their columns."""
_FUSIONS_SHOWN = (
    "alpha 0.4, feedback 0.25",
    "alpha 0.4, feedback 0.5",
    "alpha 0.4, feedback 0.75",
    "alpha 0.5, feedback 0.5",
    "alpha 0.5, feedback 0.75",
    "alpha 0.6, feedback 0.5",
    "alpha 0.7, feedback 0.75",
)
"""The fusions of the grid that have a row: those near the default, and the best."""


@dataclass(frozen=True, slots=True)
class Gain:
    """The mean gain over collections, with a 95 % interval; in per cent."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, differences: Sequence[Doubles], seed: int = 0) -> Gain:
        """Estimate the gain in a new collection: collections are resampled, and the queries of each."""
        draw = np.random.default_rng(seed)
        sums = np.empty((_RESAMPLES, len(differences)))
        for column, values in enumerate(differences):
            sums[:, column] = values[draw.integers(len(values), size=(_RESAMPLES, len(values)))].mean(axis=1)
        chosen = draw.integers(len(differences), size=sums.shape)
        means = np.take_along_axis(sums, chosen, axis=1).mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        return cls(100 * float(np.mean([each.mean() for each in differences])), 100 * float(low), 100 * float(high))

    def __str__(self) -> str:
        """Return the gain and its interval."""
        return f"{self.mean:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


def collections(setting: Setting) -> Outcome:
    """Measure every way to search on all collections, and choose a default without each."""
    found = measured(setting)
    about = (
        f"{len(found)} collections: Cranfield and NPL, which people judged, and {len(found) - 2} that "
        "`benchmarks/corpora.py` builds from packages of documentation. Their queries are parts that were taken out of "
        "the documents (questions of an FAQ, titles, one-line descriptions, docstrings), or entries of an index with "
        "the pages that they point to. Each document is one chunk. Values are in per cent. Differences compare with "
        f"the default ({Fusion()}, MiniLM), without the correction for hubs, on the same queries, "
        f"with 95 % intervals in brackets: for one collection, a "
        "paired bootstrap over its queries (* means that the interval excludes 0); for a mean, a bootstrap over "
        f"collections and queries. ragembed {version('ragembed')}."
    )
    return Outcome([about, *_by_collection(found), *_by_way(found), *_left_out(found)])


def _difference(one: Measured, way: str) -> Doubles:
    return one.values[way] - one.values[DEFAULT]


def _compared(one: Measured, way: str) -> str:
    found = paired_bootstrap(100 * _difference(one, way), np.zeros(one.queries))
    star = " *" if found.low > 0 or found.high < 0 else ""
    return f"{found.difference:+.1f} ({found.low:+.1f} to {found.high:+.1f}){star}"


def _sign(values: Doubles) -> int:
    """Return 1 or -1 if the mean is significantly above or below 0, else 0."""
    if not values.any():
        return 0
    found = paired_bootstrap(values, np.zeros(len(values)))
    return int(found.low > 0) - int(found.high < 0)


def _by_collection(found: Sequence[Measured]) -> list[str]:
    rows = []
    for one in found:
        corpus = CORPORA.get(one.name)
        kind = (corpus.language, corpus.queries) if corpus else ("English", "judged by people")
        default = f"{100 * float(one.values[DEFAULT].mean()):.1f}"
        compared = [_compared(one, way) for way in _BY_COLLECTION]
        rows.append([one.name, *kind, f"{one.documents:,}", str(one.queries), default, *compared])
    head = ["", "language", "queries", "documents", "number of queries", DEFAULT, *_BY_COLLECTION.values()]
    return ["nDCG@10 by collection, and the difference of other ways from the default.", table(head, rows)]


def _by_way(found: Sequence[Measured]) -> list[str]:
    rows = []
    for way in WAYS:
        name = way.removeprefix("hybrid, ")
        if name in FUSIONS and name not in _FUSIONS_SHOWN:
            continue
        having = [one for one in found if way in one.values]
        signs = {one.name: _sign(_difference(one, way)) for one in having}
        mean = statistics.fmean(100 * float(one.values[way].mean()) for one in having)
        gain = "–" if way == DEFAULT else str(Gain.of([_difference(one, way) for one in having]))
        rows.append(
            [
                way if len(having) == len(found) else f"{way} ({len(having)} collections)",
                f"{mean:.1f}",
                gain,
                str(sum(sign > 0 for sign in signs.values())),
                str(sum(sign < 0 for sign in signs.values())),
                ", ".join(name for name, sign in signs.items() if sign < 0) or "–",
            ]
        )
    return [
        "Mean nDCG@10 over the collections, and the numbers of collections with a significant difference.",
        table(["", "mean", "difference", "better", "worse", "worse on"], rows),
    ]


def _choose(found: Sequence[Measured], ways: Sequence[str]) -> str:
    """Return the way with the highest mean over ``found``."""
    return max(ways, key=lambda way: statistics.fmean(float(_difference(one, way).mean()) for one in found))


def _left_out(found: Sequence[Measured]) -> list[str]:
    fusions = [name for name, way in WAYS.items() if way == Way(fusion=way.fusion)]
    embedders = [DEFAULT, *(f"hybrid, {name}" for name in _CHANGES)]
    complete = [way for way in WAYS if all(way in one.values for one in found)]
    rows = []
    for label, ways in (("fusion", fusions), ("post-processors", embedders)):
        usable = [way for way in ways if way in complete]
        picks = {one.name: _choose([other for other in found if other is not one], usable) for one in found}
        differences = [_difference(one, picks[one.name]) for one in found]
        counts = Counter(picks.values())
        signs = [_sign(each) for each in differences]
        rows.append(
            [
                label,
                str(len(usable)),
                ", ".join(f"{way} ({count} ×)" for way, count in counts.most_common()),
                str(Gain.of(differences)),
                str(signs.count(1)),
                str(signs.count(-1)),
            ]
        )
    return [
        "Leave one collection out: the way with the highest mean on the other collections, measured on this one.",
        table(["", "ways", "choices", "gain over the default", "better", "worse"], rows),
    ]
