"""The evidence for the defaults of search: each option on many collections, and what tuning without labels can know."""

from __future__ import annotations

import json
import random
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from corpora import CORPORA, build
from data import Setting
from processes import say
from report import table
from speed import Outcome

from ragembed import Embedder, EmbedderConfig
from ragembed.documents.model import Chunk
from ragembed.evaluation import RetrievalCollection, average_precision, ndcg, paired_bootstrap, read_beir, recall
from ragembed.evaluation.correlation import spearman_correlation
from ragembed.evaluation.encoding import RawVectors, raw_part
from ragembed.indexes import ChunkRecord, Fusion
from ragembed.indexes.search.search import Mode
from ragembed.indexes.text.analyzer import of_language
from ragembed.indexes.tuning.choosing import LEAST_GAIN, SLACK
from ragembed.indexes.tuning.pool import Pool, PoolPlace
from ragembed.indexes.tuning.pool_search import PoolSearch, PoolVectors
from ragembed.indexes.tuning.queries import PseudoQuery, collect
from ragembed.indexes.tuning.sources import SOURCES
from ragembed.postprocess import unit_rows
from ragembed.types import Doubles, Floats

_NOW = Embedder().config
_DEPTH = 100
_PSEUDO_QUERIES = 60


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
    **{f"dense, {name}": Way(config, "dense") for name, config in _CHANGES.items()},
}
"""All ways to search, by name."""
MEASURES = ("ndcg@10", "recall@100", "map")
_TUNABLE = [
    name
    for name, way in WAYS.items()
    if way.mode == "hybrid" and not way.stemmed and (way.fusion.feedback in {0.0, 0.75} or way.fusion.alpha == 0.6)
]
"""Settings that the label-free scores are compared for."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores of a collection: ``values[way][measure]`` by query, and ``pseudo[signal][way]`` of pseudo-queries."""

    name: str
    queries: int
    documents: int
    values: Mapping[str, Mapping[str, Doubles]]
    pseudo: Mapping[str, Mapping[str, Doubles]]


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
    """Measure every way to search on every collection; scores and vectors are kept in the cache."""
    found = []
    for collection, language in judged_collections(setting):
        path = _kept_in(setting, "scores") / f"{collection.name}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"values": {}, "pseudo": {}}
        if missing := [name for name in WAYS if name not in kept["values"]]:
            say(f"{collection.name}: {len(collection.documents):,} documents, {len(missing)} ways to search")
            _measure(collection, language, setting, kept)
            path.write_text(json.dumps(kept), encoding="utf-8")
        values = {
            way: {name: np.array(each) for name, each in scores.items()} for way, scores in kept["values"].items()
        }
        pseudo = {
            signal: {way: np.array(each) for way, each in scores.items()} for signal, scores in kept["pseudo"].items()
        }
        found.append(Measured(collection.name, len(collection.relevance), len(collection.documents), values, pseudo))
    return found


def _measure(collection: RetrievalCollection, language: str, setting: Setting, kept: dict[str, Any]) -> None:
    """Add to ``kept`` the scores of the ways to search that are not there yet."""
    names = list(collection.documents)
    position = {name: at for at, name in enumerate(names)}
    parts = [collection.parts(name) for name in names]
    is_code = collection.name in CORPORA and CORPORA[collection.name].domain == "source code"
    records = [
        ChunkRecord(str(at), Chunk(text, title=title), f"{at}.py" if is_code else None)
        for at, (title, text) in enumerate(parts)
    ]
    pool = Pool(records, [PoolPlace(record.id, 0, at) for at, record in enumerate(records)], len(records))
    judged = [
        PseudoQuery(collection.queries[key], tuple(position[name] for name in gains), {})
        for key, gains in collection.relevance.items()
    ]
    signals = _signals(pool, setting)
    asked = [*judged, *(query for queries in signals.values() for query in queries)]
    vectors = _Vectors(collection.name, pool, judged, asked, setting)
    judged_rows = list(range(len(judged)))
    values, pseudo = kept["values"], kept["pseudo"]
    firsts = np.cumsum([len(judged), *(len(queries) for queries in signals.values())])
    for stemmed in (False, True):
        with tempfile.TemporaryDirectory(dir=setting.folder) as folder:
            search = PoolSearch(Path(folder, "store"), pool, asked, language if stemmed else "english")
            for name, way in sorted(WAYS.items(), key=lambda item: str(item[1].config)):
                if way.stemmed != stemmed:
                    continue
                if name not in values:
                    rankings = search.find(vectors.of(way.config), judged_rows, way.mode, way.fusion, _DEPTH)
                    values[name] = _scores(collection, names, rankings)
                for (signal, queries), first in zip(signals.items(), firsts[:-1], strict=True):
                    if name in _TUNABLE and name not in pseudo.setdefault(signal, {}):
                        rows = range(int(first), int(first) + len(queries))
                        embedded = vectors.of(way.config)
                        pseudo[signal][name] = [
                            ndcg([str(at) for at in best], {str(at): 1 for at in query.answers})
                            for best, query in zip(
                                search.find(embedded, rows, way.mode, way.fusion), queries, strict=True
                            )
                        ]
            search.close()


def _scores(collection: RetrievalCollection, names: list[str], rankings: list[list[int]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {measure: [] for measure in MEASURES}
    for best, gains in zip(rankings, collection.relevance.values(), strict=True):
        ranking = [names[at] for at in best]
        found["ndcg@10"].append(ndcg(ranking, gains))
        found["recall@100"].append(recall(ranking, gains, _DEPTH))
        found["map"].append(average_precision(ranking, gains, _DEPTH))
    return found


class _Vectors:
    """The vectors of a collection; raw vectors are read from the cache, or encoded and kept there."""

    def __init__(
        self,
        name: str,
        pool: Pool,
        judged: Sequence[PseudoQuery],
        asked: Sequence[PseudoQuery],
        setting: Setting,
    ) -> None:
        self._texts = [passage.chunk.embedded_text for passage in pool.passages]
        self._raw = RawVectors([_NOW, *_CHANGES.values()], self._texts, None)
        changed = [query.changed[at].embedded_text for query in asked for at in sorted(query.changed)]
        self._last: tuple[EmbedderConfig, PoolVectors] | None = None
        folder = _kept_in(setting, "vectors")
        pseudo = [query.text for query in asked[len(judged) :]]
        whole = self._kept(folder / f"{name}.npz", self._texts, [query.text for query in judged])
        drawn = self._kept(folder / f"{name}-pseudo.npz", changed, pseudo)
        self._made = {
            key: (whole[key][0], np.concatenate([whole[key][1], drawn[key][1]]), drawn[key][0]) for key in whole
        }

    def _kept(
        self, path: Path, documents: Sequence[str], queries: Sequence[str]
    ) -> dict[EmbedderConfig, tuple[Floats, Floats]]:
        keys = dict.fromkeys(raw_part(config) for config in (_NOW, *_CHANGES.values()))
        if not path.is_file():
            arrays: dict[str, Floats] = {}
            for side, texts in (("documents", documents), ("queries", queries)):
                distinct = list(dict.fromkeys(texts))
                rows = {text: row for row, text in enumerate(distinct)}
                made = self._raw.of(distinct, "documents" if side == "documents" else "pseudo-queries")
                for key in keys:
                    arrays[f"{side} {key.weighting}"] = made[key][[rows[text] for text in texts]]
            np.savez(path, **arrays)  # type: ignore[arg-type]
        with np.load(path) as read:
            return {key: (read[f"documents {key.weighting}"], read[f"queries {key.weighting}"]) for key in keys}

    def of(self, config: EmbedderConfig) -> PoolVectors:
        """Return the embeddings of ``config``, with post-processors fitted on all documents."""
        if self._last is None or self._last[0] != config:
            self._last = config, self._embedded(config)
        return self._last[1]

    def _embedded(self, config: EmbedderConfig) -> PoolVectors:
        documents, queries, changed = self._made[raw_part(config)]
        chain = self._raw.chain(config, self._texts, documents)
        return PoolVectors(
            unit_rows(chain.documents.transform(documents)),
            unit_rows(chain.queries.transform(queries)),
            unit_rows(chain.documents.transform(changed)),
        )


def _signals(pool: Pool, setting: Setting) -> dict[str, list[PseudoQuery]]:
    """Return pseudo-queries of several kinds. Some are sentences and spans that are made harder."""
    names = ("sentence", "first sentence", "span", "title")
    limit = setting.choose(_PSEUDO_QUERIES, 10)
    drawn, _ = collect(
        pool, {name: SOURCES[name] for name in names}, setting.seed, limit=limit, changed_limit=limit, least=5
    )
    found: dict[str, list[PseudoQuery]] = {}
    for query, source in zip(drawn.queries, drawn.source, strict=True):
        found.setdefault(source, []).append(query)
    harder = [query for name in ("sentence", "span") for query in found.get(name, [])][:limit]
    counts = Counter(term for passage in pool.passages for term in set(_terms(passage.chunk.embedded_text)))
    draw = random.Random(setting.seed)
    if harder:
        found["keywords"] = [replace(query, text=_keywords(query.text, counts)) for query in harder]
        found["half"] = [replace(query, text=_half(query.text, draw)) for query in harder]
        found["other words"] = [replace(query, text=_other_words(query, pool, counts)) for query in harder]
    return found


def _terms(text: str) -> list[str]:
    return of_language("english").of_text(text).split()


def _words(text: str) -> list[str]:
    return re.findall(r"[぀-ヿ㐀-鿿가-힯]{1,2}|[^\W぀-ヿ㐀-鿿가-힯]+", text)


def _keywords(text: str, counts: Mapping[str, int]) -> str:
    """Return the three rarest words of a text that other documents have too, in their order."""
    words = list(dict.fromkeys(_words(text)))
    frequency = [min((counts.get(term, 0) for term in _terms(word)), default=0) for word in words]
    known = [at for at in range(len(words)) if frequency[at] > 1] or list(range(len(words)))
    kept = sorted(sorted(known, key=lambda at: frequency[at])[:3])
    return " ".join(words[at] for at in kept)


def _half(text: str, draw: random.Random) -> str:
    """Return half of the words of a text, in their order."""
    words = _words(text)
    kept = sorted(draw.sample(range(len(words)), max(2, len(words) // 2)))
    return " ".join(words[at] for at in kept)


def _other_words(query: PseudoQuery, pool: Pool, counts: Mapping[str, int]) -> str:
    """Return the words of a query that the rest of its document lacks, and the most frequent of the others.

    A person who does not know the document uses other words than its author: this removes the literal matches that
    make pseudo-queries easy for BM25. Half of the words stay at most.
    """
    [at] = query.answers[:1]
    rest = set(_terms((query.changed.get(at) or pool.passages[at].chunk).embedded_text))
    words = _words(query.text)
    shared = [word for word in words if any(term in rest for term in _terms(word))]
    dropped = set(
        sorted(shared, key=lambda word: min((counts[term] for term in _terms(word)), default=0))[: len(shared) // 2]
    )
    kept = [word for word in words if word not in dropped]
    return " ".join(kept) if len(kept) > 1 else query.text


# --- tables -----------------------------------------------------------------------------------------------------------

_RESAMPLES = 10_000
_SHOWN = (DEFAULT, "BM25", "dense", NO_FEEDBACK)


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
    """Measure every way to search on all collections, choose a default without each, and test label-free scores."""
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
    return Outcome(
        [
            about,
            *_by_collection(found),
            *_by_way(found),
            *_left_out(found),
            *_agreement(found),
        ]
    )


def _difference(one: Measured, way: str, measure: str = "ndcg@10") -> Doubles:
    return one.values[way][measure] - one.values[DEFAULT][measure]


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
    rows, more = [], []
    for one in found:
        corpus = CORPORA.get(one.name)
        kind = (corpus.language, corpus.queries) if corpus else ("English", "judged by people")
        means = {way: {name: 100 * float(each.mean()) for name, each in one.values[way].items()} for way in _SHOWN}
        compared = [f"{means[way]['ndcg@10']:.1f}: {_compared(one, way)}" for way in _SHOWN[1:]]
        rows.append(
            [one.name, *kind, f"{one.documents:,}", str(one.queries), f"{means[DEFAULT]['ndcg@10']:.1f}", *compared]
        )
        more.append([one.name, *(f"{means[way][name]:.1f}" for name in MEASURES[1:] for way in _SHOWN)])
    head = ["", "language", "queries", "documents", "number of queries", *_SHOWN]
    return [
        "nDCG@10 by collection, and the difference from the default.",
        table(head, rows),
        f"Recall@100 and MAP of the first {_DEPTH}.",
        table(["", *(f"{name}, {way}" for name in MEASURES[1:] for way in _SHOWN)], more),
    ]


_SINGLE = [
    name
    for name, way in WAYS.items()
    if way.mode == "hybrid" and name != DEFAULT and (way.fusion.alpha == 0.6 or way.fusion.feedback == 0.75)
]
"""Changes of one setting of the default."""


def _by_way(found: Sequence[Measured]) -> list[str]:
    rows = []
    for way in WAYS:
        having = [one for one in found if way in one.values]
        signs = {one.name: _sign(_difference(one, way)) for one in having}
        mean = statistics.fmean(100 * float(one.values[way]["ndcg@10"].mean()) for one in having)
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
        (
            "Every way to search: mean nDCG@10 over the collections, and the numbers of collections with a significant "
            "difference."
        ),
        table(["", "mean", "difference", "better", "worse", "worse on"], rows),
        "The difference of each change on each collection.",
        table(["", *(one.name for one in found)], [[way, *_on_each(found, way)] for way in _SINGLE]),
    ]


def _on_each(found: Sequence[Measured], way: str) -> list[str]:
    return [_compared(one, way) if way in one.values else "–" for one in found]


def _choose(found: Sequence[Measured], ways: Sequence[str]) -> str:
    """Return the way with the highest mean over ``found``."""
    return max(ways, key=lambda way: statistics.fmean(float(_difference(one, way).mean()) for one in found))


def _left_out(found: Sequence[Measured]) -> list[str]:
    fusions = [name for name, way in WAYS.items() if way == Way(fusion=way.fusion)]
    embedders = [DEFAULT, *(f"hybrid, {name}" for name in _CHANGES)]
    complete = [way for way in WAYS if all(way in one.values for one in found)]
    rows = []
    for label, ways in (
        ("fusion", fusions),
        ("post-processors", embedders),
        ("all ways", list(WAYS)),
    ):
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


def _agreement(found: Sequence[Measured]) -> list[str]:
    signals = list(dict.fromkeys(signal for one in found for signal in one.pseudo))
    groups = {
        "fusion": (
            [way for way in _TUNABLE if WAYS[way] == Way(fusion=replace(WAYS[way].fusion, feedback=0.75))],
            SLACK,
        ),
        "fusion and feedback": ([way for way in _TUNABLE if WAYS[way].config == _NOW], SLACK),
        "embedder": ([way for way in _TUNABLE if WAYS[way].fusion == Fusion()], LEAST_GAIN / 100),
    }
    rows = [
        [f"{group}: {signal}", *_agreement_row(found, signal, ways, least)]
        for group, (ways, least) in groups.items()
        for signal in [*signals, _ALL_SIGNALS]
    ]
    return [
        _ABOUT_SIGNALS,
        table(
            ["", "collections", "Spearman", "gain", "better", "worse", "gain of tune", "changed", "better", "worse"],
            rows,
        ),
    ]


_ALL_SIGNALS = "mean of all"
_ABOUT_SIGNALS = (
    "Label-free scores: for each collection, settings are compared by pseudo-queries of one kind and by judgements. "
    "Spearman's correlation is the mean over collections. The gain is that, by judgements, of the settings with the "
    f"best label-free score. {_ALL_SIGNALS!r} is the mean over the kinds that `ragembed tune` uses. `keywords` are "
    "three rare words of a sentence, `half` half of its words, and `other words` a sentence without half of the words "
    "that it shares with the rest of its document. The columns from `gain of tune` follow its rule: the default stays "
    f"unless the settings gain {100 * SLACK:g} points by the label-free score, or {LEAST_GAIN:g} for another embedder. "
    f"There are up to {_PSEUDO_QUERIES} pseudo-queries of each kind; `ragembed tune` uses up to 400."
)


def _pseudo(one: Measured, signal: str, way: str) -> Doubles | None:
    """Return nDCG@10 of pseudo-queries minus that of the default."""
    if signal != _ALL_SIGNALS:
        return one.pseudo[signal][way] - one.pseudo[signal][DEFAULT] if signal in one.pseudo else None
    parts = [_pseudo(one, each, way) for each in ("sentence", "first sentence", "span", "title")]
    known = [part for part in parts if part is not None]
    # Weights make every kind count equally in the mean.
    total = sum(len(part) for part in known)
    return np.concatenate([part * (total / (len(known) * len(part))) for part in known]) if known else None


def _agreement_row(found: Sequence[Measured], signal: str, ways: Sequence[str], least: float) -> list[str]:
    correlations, gains, tuned = [], [], []
    for one in found:
        usable = [way for way in ways if way in one.values]
        by_pseudo = {way: _pseudo(one, signal, way) for way in usable}
        scores = np.array([0.0 if each is None else float(each.mean()) for each in by_pseudo.values()])
        if any(each is None for each in by_pseudo.values()):
            continue
        human = np.array([float(_difference(one, way).mean()) for way in usable])
        correlations.append(spearman_correlation(scores, human))
        best = usable[int(scores.argmax())]
        gains.append(_difference(one, best))
        tuned.append(_difference(one, best if scores.max() >= least else DEFAULT))
    signs, tuned_signs = [_sign(each) for each in gains], [_sign(each) for each in tuned]
    changed = sum(bool(each.any()) for each in tuned)
    return [
        str(len(gains)),
        f"{np.mean(correlations):.2f}",
        str(Gain.of(gains)),
        str(signs.count(1)),
        str(signs.count(-1)),
        str(Gain.of(tuned)),
        str(changed),
        str(tuned_signs.count(1)),
        str(tuned_signs.count(-1)),
    ]
