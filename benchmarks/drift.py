"""What ``ragembed status --drift`` measures after additions of the same kind and of others, and what it says.

What is measured, and how to run it, is described in README.md.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
from collection import TEST_DATA
from numpy.typing import NDArray
from report import machine, table, write_section

from ragembed import Embedder
from ragembed.indexes.drift import PARTS, Vocabulary, chance_size, judge, mean_shift, nearest, overlap, weight_shift
from ragembed.moments import Moments
from ragembed.postprocess import TwoSidedChain, unit_rows
from ragembed.presets import preset
from ragembed.pseudo_queries import draw_pseudo_queries
from ragembed.token_ids import TokenIds
from ragembed.weighting import TokenCounter, TokenStatistics

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

_QUERIES, _K = 256, 10
_CHAINS = (("center", "normalize"), ("zscore",), ("quantile-u",), ("abtt:2", "normalize"), ("whiten:100",))
_PAIRS = (("cran", "npl"), ("npl", "agnews"), ("agnews", "cran"), ("searchsnippets", "stackoverflow"))


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to a store: shares of its size that stay, that are added of the same kind, and of another."""

    name: str
    kept: float
    same: float
    other: float


CHANGES = (
    Change("10 % more of the same", 1.0, 0.1, 0.0),
    Change("twice as much of the same", 1.0, 1.0, 0.0),
    Change("10 % of another kind added", 1.0, 0.0, 0.1),
    Change("as much of another kind added", 1.0, 0.0, 1.0),
    Change("half replaced by another kind", 0.5, 0.0, 0.5),
    Change("nine tenths replaced by another kind", 0.1, 0.0, 0.9),
)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts with their token ids, their raw vectors, and those of the span that each gives as a pseudo-query."""

    texts: Sequence[str]
    ids: Sequence[Numbers]
    raw: Floats
    spans: Floats


def main() -> None:
    """Measure, print the tables, and put them into the page of results."""
    arguments = _arguments()
    rows: list[list[str]] = []
    draws: list[list[str]] = []
    for extractor in arguments.extractors:
        for one, other in _PAIRS[: arguments.pairs]:
            found = list(_pair(extractor, one, other, arguments))
            rows += [line for lines, _ in found for line in lines]
            draws += [line for _, lines in found for line in lines]
    header = ["extractor, texts, change", "unseen", "expected", "mean shift", "weights", *map(",".join, _CHAINS)]
    about = (
        f"{date.today().isoformat()}; {machine()}. {arguments.size} texts, medians of {arguments.draws} draws; seed "
        f"{arguments.seed}. Under each chain the overlap@{_K} with what a refit would find, and what is said how often."
    )
    rebuilt = f"Overlap@{_K} of what a refitted store finds with what one built anew does:"
    anew = table(["extractor, texts, change", "weights", "overlap"], draws)
    body = "\n\n".join(["## Drift", about, table(header, rows), rebuilt, anew])
    print(body)
    if not arguments.trial:
        write_section("drift", body)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=500, help="texts of a store at first")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=len(_PAIRS))
    parser.add_argument("--extractors", nargs="+", default=["transformer", "re:dim=384"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", action="store_true", help="print, write nothing")
    return parser.parse_args()


def _pair(
    extractor: str, one: str, other: str, arguments: argparse.Namespace
) -> Iterator[tuple[list[list[str]], list[list[str]]]]:
    size = arguments.size
    config = preset("minilm").replace(extractor=extractor)
    rng = random.Random(arguments.seed)
    same, another = (_read(name, 2 * size, rng) for name in (one, other))
    base = Embedder(config).fit_extractor(same[:size])
    known = [_prepared(base, texts) for texts in (same, another[:size])]
    for change in CHANGES:
        results = [_draw(base, known, change, size, random.Random(draw)) for draw in range(arguments.draws)]
        name = f"{extractor}, {one} + {other}, {change.name}"
        middle = [statistics.median(values) for values in zip(*(result[0] for result in results), strict=True)]
        cells = [f"{value:.3f}" for value in middle]
        for number in range(len(_CHAINS)):
            found, chance = zip(*(result[1][number] for result in results), strict=True)
            said = [
                judge(*each, result[0][3], None)[0]
                for each, result in zip(zip(found, chance, strict=True), results, strict=True)
            ]
            ratios = [one / other for one, other in zip(found, chance, strict=True)]
            spread = f"{statistics.median(found):.2f} of {statistics.median(chance):.2f}"
            cells.append(f"{spread} ({min(ratios):.2f}–{max(ratios):.2f}): {_counts(said)}")
        print(name, cells, flush=True)
        yield [[name, *cells]], [[name, f"{middle[3]:.3f}", f"{_rebuilt(base, known, change, size, rng):.3f}"]]


def _counts(said: Sequence[str]) -> str:
    return ", ".join(f"{verdict} {said.count(verdict)}" for verdict in ("keep", "refit", "rebuild") if verdict in said)


def _read(name: str, count: int, rng: random.Random) -> list[str]:
    folder = TEST_DATA / "retrieval" / name
    if folder.is_dir():
        lines = (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [f"{row.get('title', '')}\n{row['text']}".strip() for row in map(json.loads, lines)]
    else:
        with (TEST_DATA / "clustering" / f"{name}.tsv").open(encoding="utf-8", newline="") as rows:
            texts = [row["text"] for row in csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE)]
    texts = sorted({text for text in texts if len(text.split()) > 3})
    rng.shuffle(texts)
    return texts[:count]


def _prepared(embedder: Embedder, texts: Sequence[str]) -> Texts:
    spans = [draw_pseudo_queries([text], 1, embedder.config.seed)[0] for text in texts]
    ids = list(embedder.tokenizer.ids(texts))
    return Texts(texts, ids, _rounded(embedder.raw_documents(texts)), embedder.raw_pseudo_queries(spans))


def _rounded(raw: Floats) -> Floats:
    return raw.astype(np.float16).astype(np.float32)


def _states(
    known: Sequence[Texts], change: Change, size: int, rng: random.Random
) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the texts of a store before and after, and those added: number of the collection and of the text."""
    same = [(0, i) for i in rng.sample(range(len(known[0].texts)), len(known[0].texts))]
    before = same[:size]
    added = same[size : size + round(change.same * size)]
    added += [(1, i) for i in rng.sample(range(len(known[1].texts)), round(change.other * size))]
    return before, before[: round(change.kept * size)] + added, added


def _draw(
    embedder: Embedder, known: Sequence[Texts], change: Change, size: int, rng: random.Random
) -> tuple[list[float], list[tuple[float, float]]]:
    before, after, added = _states(known, change, size, rng)
    raws = [np.stack([known[of].raw[i] for of, i in state]) for state in (before, after)]
    spans = [np.stack([known[of].spans[i] for of, i in state]) for state in (before, after)]
    fitted, now, new = (_counted(embedder, [known[of].ids[i] for of, i in state]) for state in (before, after, added))
    weights, tokenizer = embedder.extractor.weights, embedder.tokenizer
    tables = [weights.table_for(state) for state in (fitted, now)]
    found = Vocabulary.of(fitted, new, tokenizer.vocabulary(), [*tokenizer.prefix, *tokenizer.suffix])
    shift = 0.0
    if tables[0] is not None and tables[1] is not None:
        shift = weight_shift([known[of].ids[i] for of, i in after], tables[0], tables[1], weights.share)
    queries = spans[1][rng.sample(range(len(after)), min(_QUERIES, len(after)))]
    part = chance_size(len(before), len(after), len(after) - len(added))
    parts = [rng.sample(range(len(after)), part) for _ in range(PARTS)]
    sides = [*zip(raws, spans, strict=True), *((raws[1][chosen], spans[1][chosen]) for chosen in parts)]
    overlaps = []
    for chain in _CHAINS:
        before_it, now_it, *by_chance = (
            _found(TwoSidedChain.fit(chain, raw, side), queries, raws[1]) for raw, side in sides
        )
        overlaps.append((overlap(before_it, now_it), min(overlap(each, now_it) for each in by_chance)))
    moments = [Moments.of(raw) for raw in raws]
    return [found.unseen, found.expected, mean_shift(*moments), shift], overlaps


def _found(chain: TwoSidedChain, queries: Floats, documents: Floats) -> Numbers:
    return nearest(unit_rows(chain.queries.transform(queries)), unit_rows(chain.documents.transform(documents)), _K)


def _counted(embedder: Embedder, ids: Sequence[Numbers]) -> TokenStatistics:
    tokenizer = embedder.tokenizer
    counter = TokenCounter(tokenizer.vocabulary_size, [*tokenizer.prefix, *tokenizer.suffix])
    counter.add(TokenIds.of(ids))
    return counter.statistics()


def _rebuilt(embedder: Embedder, known: Sequence[Texts], change: Change, size: int, rng: random.Random) -> float:
    """Return the overlap of what a refitted store finds with what one built anew on the same texts does."""
    _, after, _ = _states(known, change, size, rng)
    texts = [known[of].texts[i] for of, i in after]
    anew = Embedder(embedder.config).fit_extractor(texts)
    results = []
    for made in (embedder, anew):
        prepared = _prepared(made, texts)
        chain = TwoSidedChain.fit(_CHAINS[0], prepared.raw, prepared.spans)
        results.append(_found(chain, prepared.spans[:_QUERIES], prepared.raw))
    return overlap(*results)


if __name__ == "__main__":
    main()
