"""The report on a store: its sections, and the data of its map."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import numpy as np

from ragembed.config.fields import from_json
from ragembed.extras import require
from ragembed.html_elements import Child, element
from ragembed.indexes.doctor.drift import DriftReport
from ragembed.indexes.faiss_index.records import IndexConfig, IndexEvaluation, IndexSelection
from ragembed.indexes.indexing.commands import NEW_STORE
from ragembed.indexes.search.relevance import WEAK
from ragembed.indexes.storage.layout import STORE_FOLDER, root_of
from ragembed.indexes.store import Store
from ragembed.printable import counted, readable_bytes
from ragembed.progress import Progress, SilentProgress
from ragembed.reports.collect import Colouring, ReportData, ShownChunk, WeightedWord
from ragembed.reports.page import bar, data_table, encoded, page, scrolled, section, shortened, static_file

_TEXT_BYTES = 1_150_000
"""Bytes for all texts on the map: a report of 10,000 chunks has less than 2 MB."""
_LONGEST, _SHORTEST = 400, 60
_KINDS_SHOWN, _REASONS_SHOWN = 12, 20
_EXCERPT = 160
_MARKS = re.compile(r"^\s*(?:#{1,6}|[-*+>])\s+|`", re.MULTILINE)


def report(
    store: Store, queries: Sequence[str] = (), *, more: Sequence[Element] = (), progress: Progress | None = None
) -> tuple[bytes, ReportData]:
    """Return the page about a store, and the data that it shows.

    ``queries`` are drawn on the map with their hits.
    """
    require("openTSNE", "a report", "scipy", "sklearn")

    def collect() -> ReportData:
        with store.snapshot() as snapshot:
            return ReportData(store, snapshot, progress or SilentProgress(), queries)

    data = store.read(collect)
    return page_of(data, store.path, more), data


def page_of(data: ReportData, path: Path, more: Sequence[Element] = ()) -> bytes:
    """Return the page that shows ``data`` about the store in the folder ``path``."""
    status = data.status
    name = path.name if path.name != STORE_FOLDER else root_of(path).name
    about = (
        f"{status['files']:,} files, {status['chunks']:,} chunks; generation {status['generation']}; ragembed "
        f"{status['ragembed']}"
    )
    sections = [
        _overview(data),
        *_map(data),
        *_clusters(data),
        *_queries(data),
        _duplicates(data),
        *_weights(data),
        *_drift(data.drift),
        _index(status),
        *more,
    ]
    return page(f"{name}: a report on the store", about, sections, _map_data(data))


# The store


def _overview(data: ReportData) -> Element:
    status = data.status
    language = status["detected_language"]
    named = "" if not language or not language["language"] else language["language"].capitalize()
    facts: list[tuple[str, str]] = [
        ("Files", f"{status['files']:,}; {len(status['skipped']):,} skipped"),
        ("Chunks", f"{status['chunks']:,}, with {status['vectors'] - status['unused_vectors']:,} different vectors"),
        ("Size of the store", readable_bytes(data.size)),
        ("Model", str(status["embedder"]["model"])),
        ("Dimension", str(status["dim"] or "–")),
        ("Language of the words", str(status["language"])),
        ("Language of most texts", named or "not recognised"),
    ]
    most = max((kind.chunks for kind in data.kinds), default=0)
    kinds = [
        (kind.name, f"{kind.files:,}", readable_bytes(kind.bytes), f"{kind.chunks:,}", bar(kind.chunks, most))
        for kind in data.kinds[:_KINDS_SHOWN]
    ]
    left_out = len(data.kinds) - len(kinds)
    languages = [(name.capitalize(), f"{files:,}", bar(files, data.languages[0][1])) for name, files in data.languages]
    read = sum(files for _, files in data.languages)
    # What the store holds and what to do, in sentences; those about work to do have its command.
    held = [element("li", text) for text in _contents(data)]
    work = [element("li", text, " ", element("code", command)) for text, command in _work(data)]
    done = element("li", "No command is due: the fit is up to date, and the last run is complete.")
    sampled = f"Languages of {read:,} files" + ("" if read == status["files"] else ", evenly spread")
    return section(
        "overview",
        "Overview",
        element("ul", *held, *(work or [done]), id="findings-of-store"),
        element(
            "div",
            data_table("The store", ("", ""), facts, "The store"),
            data_table("Types of files", ("Type", "Files", "Size", "Chunks", ""), kinds, "Types of files")
            if kinds
            else None,
            data_table("Languages", ("Language", "Files", ""), languages, sampled) if languages else None,
            class_="parts",
        ),
        element("p", f"{left_out:,} more types are not listed.", class_="note") if left_out > 0 else None,
        *_skipped(data),
    )


def _contents(data: ReportData) -> Iterator[str]:
    """Yield sentences about what the store holds."""
    status, count = data.status, len(data.points)
    if data.kinds:
        main = data.kinds[0]
        share = f", {main.chunks / count:.0%} of them in {main.name} files" if count and len(data.kinds) > 1 else ""
        yield f"The store holds {counted(count, 'chunk')} of {counted(status['files'], 'file')}{share}."
    sizes = [
        sum(cluster.size for cluster in data.clusters if cluster.group == number) for number in range(len(data.groups))
    ]
    about = [f"{words[0]} ({size / count:.0%})" for words, size in zip(data.groups, sizes, strict=True) if words]
    if len(about) > 2:
        yield f"The largest topics are {', '.join(about[:3])}."
    if data.duplicate_chunks:
        yield f"{data.duplicate_chunks / count:.1%} of the chunks nearly repeat others."
    if skipped := sum(files for _, files, _ in data.skipped):
        yield f"{counted(skipped, 'file')} could not be read or were left out: see “Skipped files” below."
    if data.weak:
        yield f"{data.weak:,} of {counted(data.asked, 'query')} found only weak matches: see “Queries”."
    elif data.asked and any(query.relevance is not None for query in data.queries):
        yield f"Each of {counted(data.asked, 'query')} found a likely match."


def _work(data: ReportData) -> Iterator[tuple[str, str]]:
    """Yield what to do, with the command."""
    status, drift = data.status, data.drift
    if status["unfinished"]:
        yield "The last indexing run was interrupted.", data.commands.run("index")
    for problem in data.language_problems:
        yield f"{problem.title[0].upper()}{problem.title[1:]}. {problem.detail}", problem.command
    if drift is not None and drift.verdict == "refit":
        yield f"The fit is out of date: {'; '.join(drift.reasons)}.", data.commands.run("refit")
    if drift is not None and drift.verdict == "rebuild":
        yield f"The fit is out of date: {'; '.join(drift.reasons)}. {NEW_STORE}", data.commands.again()


def _skipped(data: ReportData) -> Iterator[Child]:
    if not data.skipped:
        return
    rows = [(shortened(reason, 200), f"{files:,}", first) for reason, files, first in data.skipped[:_REASONS_SHOWN]]
    total = sum(files for _, files, _ in data.skipped)
    yield element("h3", "Skipped files")
    caption = f"Files that are not in the store: {total:,}"
    yield data_table("Skipped files", ("Reason", "Files", "First file"), rows, caption)
    if len(data.skipped) > len(rows):
        yield element("p", "Run ", element("code", "ragembed status --skipped"), " to list all of them.", class_="note")


# The map


def _map(data: ReportData) -> Iterator[Element]:
    if data.vector_map is None:
        yield section("map", "Map", element("p", "The store has no chunks, so there is nothing to draw."))
        return
    made, count = data.vector_map, len(data.points)
    about = ["Each point is a chunk. Chunks with similar meaning are near each other; large distances say little."]
    if made.kept is not None:
        about.append(f"{made.kept:.0%} of the 10 nearest neighbours of a chunk are among its 10 nearest here.")
    if len(made.places) > len(made.laid_out):
        about.append(f"t-SNE laid out {len(made.laid_out):,} vectors; the others are beside their nearest.")
    if len(data.chunks) < count:
        about.append(f"The texts of {len(data.chunks):,} of {count:,} chunks are in this file.")
    yield section(
        "map",
        "Map",
        element("p", " ".join(about)),
        fromstring(static_file("map.html")),  # noqa: S314  a file of this package
        element("noscript", element("p", "The map needs JavaScript. The table of clusters below has its contents.")),
    )


def _map_data(data: ReportData) -> dict[str, Any] | None:
    """Return the data that the script draws, or None without a map."""
    if data.vector_map is None:
        return None
    groups = np.array([cluster.group for cluster in data.clusters], dtype=np.uint8)
    names = tuple(_named(words, number) for number, words in enumerate(data.groups))
    by_cluster = Colouring("Cluster", names, groups[data.cluster])
    others = [
        colouring._replace(values=tuple(shortened(value, 60) for value in colouring.values))
        for colouring in data.colourings
    ]
    needed = {number for query in data.queries for number in query.hits}
    chunks = _fitting(data.chunks, needed)
    files = {name: number for number, name in enumerate(dict.fromkeys(chunk.file for chunk, _ in chunks))}
    return {
        "places": encoded(np.ascontiguousarray(data.points, dtype="<u2").tobytes()),
        "cluster": encoded(data.cluster.tobytes()),
        "clusters": [[list(cluster.words), cluster.group, cluster.example.number] for cluster in data.clusters],
        "colourings": [
            {**colouring._asdict(), "codes": encoded(colouring.codes.tobytes())} for colouring in (by_cluster, *others)
        ],
        "files": [shortened(name, 200) for name in files],
        "chunks": [[chunk.number, files[chunk.file], shortened(chunk.place, 80), text] for chunk, text in chunks],
        "queries": [
            {
                "text": shortened(query.query, 300),
                "place": None if query.place is None else list(query.place),
                "hits": list(query.hits),
                "weak": query.is_weak,
            }
            for query in data.queries
        ],
    }


def _fitting(chunks: Sequence[ShownChunk], needed: set[int]) -> list[tuple[ShownChunk, str]]:
    """Return chunks with the beginnings of their texts; if they do not fit, evenly spread ones and all ``needed``."""
    longest, step = _LONGEST, 1
    while True:
        some = [chunk for i, chunk in enumerate(chunks) if i % step == 0 or chunk.number in needed]
        texts = [(chunk, shortened(chunk.text, longest)) for chunk in some]
        size = sum(len(text.encode()) + 5 * text.count("<") + text.count("\n") + text.count('"') for _, text in texts)
        paths = sum(len(name.encode()) for name in {chunk.file for chunk in some})
        if size + paths <= _TEXT_BYTES or len(some) <= max(1, len(needed)):
            return texts
        if longest > _SHORTEST:
            longest = max(_SHORTEST, min(longest - 20, longest * _TEXT_BYTES // (size + paths)))
        else:
            step += 1


def _clusters(data: ReportData) -> Iterator[Element]:
    if data.vector_map is None:
        return
    body: list[Element] = []
    for number, words in enumerate(data.groups):
        inside = [cluster for cluster in data.clusters if cluster.group == number]
        total = sum(cluster.size for cluster in inside)
        body.append(_row(_named(words, number), total, [], "top"))
        body += [
            _row(", ".join(cluster.words) or "(no words)", cluster.size, _excerpt(cluster.example), "inner")
            for cluster in inside
        ]
    head = element("tr", *(element("th", name, scope="col") for name in ("About", "Chunks", "Most central chunk")))
    made = element("table", element("thead", head), element("tbody", *body))
    intro = (
        f"{len(data.clusters):,} clusters in {len(data.groups):,} groups, named by the phrases that distinguish them."
    )
    yield section("clusters", "Clusters", element("p", intro), scrolled(made, "Clusters"))


def _row(name: str, size: int, text: Sequence[Child], kind: str) -> Element:
    last = element("td", *text, class_="text", dir="auto")
    return element("tr", element("th", name, scope="row"), element("td", f"{size:,}"), last, class_=kind)


def _excerpt(chunk: ShownChunk) -> list[Child]:
    """Return the place of a chunk and the beginning of its text."""
    return [element("b", chunk.file + chunk.place), " ", shortened(_line(chunk.text), _EXCERPT)]


def _named(words: Sequence[str], number: int) -> str:
    return ", ".join(words) or f"group {number + 1}"


# Queries


def _queries(data: ReportData) -> Iterator[Element]:
    if not data.queries:
        return
    rows: list[tuple[Child, ...]] = []
    for number, query in enumerate(data.queries):
        best = query.best
        relevance = "–" if query.relevance is None else f"{query.relevance:.2f}"
        button = element(
            "button",
            "Show",
            type="button",
            data_query=str(number),
            hidden=True,
            aria_label=f"Show “{shortened(query.query, 60)}” on the map",
        )
        rows.append(
            (
                shortened(query.query, 300),
                element(
                    "span",
                    f"{relevance}, weak" if query.is_weak else relevance,
                    class_="weak" if query.is_weak else None,
                ),
                "no hits" if best is None else element("span", *_excerpt(best), dir="auto"),
                button if query.place is not None else None,
            )
        )
    has_relevance = any(query.relevance is not None for query in data.queries)
    intro = (
        f"{data.weak:,} of {data.asked:,} queries have weak matches: the best hit has a relevance below {WEAK:g}, so "
        "the documents may not answer them. On the map, a query is beside its best hit; an empty diamond is a query "
        "with weak matches."
        if has_relevance
        else "The store has no fit of relevance, so weak matches are not known: ragembed refit makes one."
    )
    if data.asked > len(data.queries):
        intro += f" The {len(data.queries):,} with the weakest matches are shown."
    head = ("Query", "Relevance", "Best hit", "")
    yield section("queries", "Queries", element("p", intro), data_table("Queries", head, rows))


# Duplicates


def _duplicates(data: ReportData) -> Element:
    parts: list[Child] = []
    if data.duplicates:
        compared = (
            ""
            if data.vector_map is None or len(data.vector_map.laid_out) == len(data.vector_map.places)
            else (f" Of chunks with different vectors, only {len(data.vector_map.laid_out):,} were compared.")
        )
        parts.append(
            element(
                "p",
                f"{data.duplicate_chunks:,} chunks nearly repeat another one, in {data.duplicate_groups:,} groups. "
                f"Search shows one result for each group.{compared}",
            )
        )
        for chunks, size in data.duplicates:
            first, left = chunks[0], size - len(chunks)
            places = [f"{chunk.file}{chunk.place}" for chunk in chunks] + ([f"and {left:,} more"] if left else [])
            parts.append(
                element(
                    "details",
                    element("summary", f"{size:,} × {shortened(_line(first.text), 100)}"),
                    element("ul", *(element("li", place) for place in places)),
                    element("pre", shortened(first.text, 600), dir="auto"),
                )
            )
    else:
        parts.append(element("p", "No near-duplicates were found."))
    return section("duplicates", "Duplicates", *parts)


# The fit


def _weights(data: ReportData) -> Iterator[Element]:
    if not data.heaviest:
        return
    yield section(
        "weights",
        "Weights of words",
        element(
            "p",
            "A word's weight says how much it counts in the vector of a text. The weights were fitted on the texts: "
            "words in many texts count little. 1 is the median of the frequent words.",
        ),
        element(
            "div",
            _words("Words that carry most of all weight", data.heaviest, by_share=True),
            _words("Frequent words with the lowest weights", data.lightest, by_share=False),
            class_="parts",
        ),
    )


def _words(caption: str, words: Sequence[WeightedWord], *, by_share: bool) -> Element:
    most = max((word.share if by_share else word.weight for word in words), default=0.0)
    rows = [
        (
            word.word,
            f"{word.weight:.2f}",
            f"{word.texts:.1%}",
            f"{word.share:.2%}",
            bar(word.share if by_share else word.weight, most if by_share else 1.0),
        )
        for word in words
    ]
    return data_table(caption, ("Word", "Weight", "In texts", "Of all weight", ""), rows, caption)


def _drift(drift: DriftReport | None) -> Iterator[Element]:
    if drift is None:
        return
    verdict = {
        "keep": "The fit is up to date.",
        "refit": "Run ragembed refit.",
        "rebuild": "Delete the store and index again.",
    }[drift.verdict]
    rows: list[tuple[str, str]] = [("Vectors", f"{drift.vectors:,}")]
    if drift.added is not None:
        rows.append(("Since the fit", f"{drift.added:,} added, {drift.removed or 0:,} removed"))
    if drift.unseen is not None:
        rows.append(("Tokens that the fit has not seen", f"{drift.unseen:.1%}"))
    if drift.weight_shift is not None:
        rows.append(("Weight that a new fit would move", f"{drift.weight_shift:.1%}"))
    if drift.overlap is not None:
        rows.append(
            ("Results that a refit would keep", f"{drift.overlap:.1%} of 10 ({drift.chance:.1%} by chance alone)")
        )
    yield section(
        "drift",
        "Drift",
        element("p", verdict, " ", "; ".join(drift.reasons)),
        data_table("Drift", ("", ""), rows, "Corpus of the fit, compared with the corpus now"),
        *(element("p", note, class_="note") for note in drift.notes),
    )


def _index(status: Mapping[str, Any]) -> Element:
    index = status["index"]
    kinds = sorted({segment["kind"] for segment in status["segments"]})
    rows = [("Index", ", ".join(kinds) or "none"), ("Segments", f"{len(status['segments']):,}")]
    wanted = IndexConfig.from_dict(index["wanted"])
    if wanted != IndexConfig():
        rows.append(("Requested", wanted.describe()))
    if index["check"] is not None:
        rows.append(("Measured", from_json(IndexEvaluation, index["check"]).describe()))
    elif kinds == ["flat"]:
        rows.append(("Recall", "1: a flat index compares every vector"))
    if index["choice"] is not None:
        choice = from_json(IndexSelection, index["choice"])
        rows += [] if choice.effort is None else [("Effort", f"{choice.effort:,}")]
        rows += [(name.capitalize(), text) for name, text in choice.describe()]
    fusion = status["fusion"]
    rows.append(("Fusion", f"{fusion['method']}, alpha {fusion['alpha']:g}, feedback {fusion['feedback']:g}"))
    relevance = status["relevance"]
    rows.append(
        (
            "Relevance",
            "not fitted" if relevance is None else f"fitted on {relevance['pseudo_queries']:,} pseudo-queries",
        )
    )
    return section("index", "Index and search", data_table("Index and search", ("", ""), rows))


def _line(text: str) -> str:
    """Return a text as one line, without the marks of headings, lists and inline code."""
    return " ".join(_MARKS.sub("", text).split())
