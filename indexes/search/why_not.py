"""Explanations of why a file is not among the results: its ranks, and the words that the results do better in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ragembed.contributions import Contributions
from ragembed.errors import ConfigError
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search.explain import ExplainedQuery, phrase_scores
from ragembed.indexes.search.fusion import Fusion
from ragembed.indexes.search.hybrid import Candidates, ChunkVectors, shared_words
from ragembed.indexes.search.pipeline import MODES, Mode, query_expression, run_query
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.types import ChunkRecord, Hit, Keys


@dataclass(frozen=True, slots=True)
class FileRank:
    """The rank of a file's best ``chunk`` in one mode of search: 1 plus the number of chunks with a higher score.

    It is None if no chunk of the file is among the ``of`` ranked ones: all chunks in dense search, those with a word of
    the query in lexical search, and the candidates in hybrid search. ``score`` is then None, or in hybrid search that
    on the scale of the candidates. ``needed`` is the score of the last result, None if there are no results.
    """

    mode: Mode
    rank: int | None
    of: int
    score: float | None
    needed: float | None
    chunk: ChunkRecord | None


@dataclass(frozen=True, slots=True)
class LostWord:
    """A word of the query that contributes less to the cosine of the file's best chunk than to those of the results."""

    word: str
    here: float
    results: float


@dataclass(frozen=True, slots=True)
class LostPhrase:
    """A phrase of the query with a lower BM25 in the file's best chunk than in the mean of the results.

    ``in_file`` says whether any chunk of the file has it, and ``found_in`` how many results do.
    """

    phrase: str
    here: float
    results: float
    in_file: bool
    found_in: int


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The ranks of a file for a query, and the words and phrases by which the results are better, greatest loss first.

    ``mode`` is the one that was searched: the requested one, or ``"dense"`` if the query has no words. ``chunks`` are
    those of the file, ``results`` those of other files, and ``chunk`` is the file's best chunk.
    """

    source: str
    mode: Mode
    chunks: int
    results: int
    ranks: tuple[FileRank, ...]
    chunk: ChunkRecord
    words: tuple[LostWord, ...]
    phrases: tuple[LostPhrase, ...]
    note: str | None

    @property
    def rank_in_mode(self) -> FileRank:
        """The rank in the mode that was searched."""
        return next(rank for rank in self.ranks if rank.mode == self.mode)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values; chunks are given by their ids."""
        return {
            "mode": self.mode,
            "chunks": self.chunks,
            "results": self.results,
            "standings": [
                {**asdict(rank), "chunk": None if rank.chunk is None else rank.chunk.id} for rank in self.ranks
            ],
            "chunk": self.chunk.id,
            "words": [asdict(word) for word in self.words],
            "phrases": [asdict(phrase) for phrase in self.phrases],
            "note": self.note,
        }


def why_not(
    snapshot: Snapshot, query: str, source: str, k: int, mode: Mode, fusion: Fusion, store: str | None = None
) -> WhyNot:
    """Return the ranks of the file ``source`` for a query, and how the best ``k`` chunks differ from its best chunk.

    If the snapshot is of several stores, ``store`` is the name of the one that has the file. Ranks of dense and lexical
    search are exact, whatever the index. Raises :class:`ConfigError` if the file is not in the store or holds only
    boilerplate, or the mode is unknown.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")
    every = snapshot.keys_of_source(source, store)
    unsearched = snapshot.boilerplate_keys()
    own = [key for key in every if key not in unsearched]
    if not own:
        raise ConfigError(
            f"{source} is not searched: it holds only boilerplate, lines that many files repeat; to search it, run "
            "'ragembed index --boilerplate keep'"
        )
    trace: list[Candidates] = []
    [hits] = run_query(snapshot, [query], k, mode, None, fusion, trace=trace)
    expression = query_expression(snapshot, query)
    candidates = trace[0] if trace else None
    fusion = fusion if candidates is None else candidates.fusion
    encoded = None if mode == "lexical" else ExplainedQuery.of(snapshot, query, candidates)
    ranks: dict[Mode, FileRank] = {}
    if encoded is not None and candidates is not None:
        ranks["hybrid"] = _in_hybrid(snapshot, own, k, expression or "", fusion, candidates)
    if encoded is not None:
        ranks["dense"] = _in_dense(snapshot, own, k, encoded, unsearched)
    if mode != "dense":
        ranks["lexical"] = _in_lexical(snapshot, own, k, expression, unsearched)
    # A query without words is searched by its vector only.
    searched = mode if mode in ranks else "dense"
    chunk = ranks[searched].chunk or _records(snapshot, own)[0]
    others = [hit for hit in hits if (hit.source, hit.store) != (source, store)]
    return WhyNot(
        source,
        searched,
        len(every),
        len(others),
        tuple(ranks.values()),
        chunk,
        () if encoded is None else _lost_words(snapshot, encoded, chunk, others),
        () if mode == "dense" else _lost_phrases(snapshot, expression, chunk, every, others),
        None if encoded is None else encoded.note,
    )


def _records(snapshot: Snapshot, keys: Sequence[int]) -> list[ChunkRecord]:
    found = snapshot.chunks_by_key(keys)
    return [found[key] for key in keys]


def _in_dense(snapshot: Snapshot, own: Sequence[int], k: int, query: ExplainedQuery, unsearched: Keys) -> FileRank:
    keys, cosines = snapshot.all_cosines(query.vector.astype(np.float32))
    mine = np.flatnonzero(np.isin(keys, own))
    at = int(mine[np.argmax(cosines[mine])])
    ranked = np.sort(cosines[~np.isin(keys, unsearched)])[::-1]
    rank = 1 + int((ranked > cosines[at]).sum())
    [record] = _records(snapshot, [int(keys[at])])
    return FileRank("dense", rank, len(ranked), float(cosines[at]), float(ranked[: max(k, 1)][-1]), record)


def _in_lexical(snapshot: Snapshot, own: Sequence[int], k: int, expression: str | None, unsearched: Keys) -> FileRank:
    if expression is None:
        return FileRank("lexical", None, 0, None, None, None)
    _, best = snapshot.matches(expression, k, snapshot.select(None))
    left_out = snapshot.scores_of(expression, unsearched.tolist()).values()
    matching = snapshot.lexical_rank(expression, -1.0) - 1 - len(left_out)
    needed = float(best[: max(k, 1)][-1]) if len(best) else None
    mine = snapshot.scores_of(expression, own)
    if not mine:
        return FileRank("lexical", None, matching, None, needed, None)
    key = max(mine, key=lambda each: (mine[each], -each))
    [record] = _records(snapshot, [key])
    above = sum(score > mine[key] for score in left_out)
    rank = snapshot.lexical_rank(expression, mine[key]) - above
    return FileRank("lexical", rank, matching, mine[key], needed, record)


def _in_hybrid(
    snapshot: Snapshot,
    own: Sequence[int],
    k: int,
    expression: str,
    fusion: Fusion,
    candidates: Candidates,
) -> FileRank:
    scores = dict(zip(candidates.keys.tolist(), candidates.scores.tolist(), strict=True))
    ordered = sorted(scores.values(), reverse=True)
    needed = ordered[: max(k, 1)][-1] if ordered else None
    mine = {key: scores[key] for key in own if key in scores}
    if mine:
        key = max(mine, key=lambda each: (mine[each], -each))
        rank: int | None = 1 + sum(score > mine[key] for score in ordered)
        score: float | None = mine[key]
    else:
        would = _scores_on_scale(snapshot, own, expression, fusion, candidates)
        key = max(own, key=lambda each: (would.get(each, 0.0), -each))
        rank, score = None, would.get(key)
    [record] = _records(snapshot, [key])
    return FileRank("hybrid", rank, len(ordered), score, needed, record)


def _scores_on_scale(
    snapshot: Snapshot, own: Sequence[int], expression: str, fusion: Fusion, candidates: Candidates
) -> dict[int, float]:
    """Return the fused scores that chunks would have on the scale of the candidates; empty if ranks are fused."""
    if fusion.method == "rrf":
        return {}
    keys = np.array(own, dtype=np.int64)
    vectors = snapshot.vectors(snapshot.rows_of_keys(keys)).astype(np.float64)
    cosines = vectors @ candidates.vector.astype(np.float64)
    cosines -= ChunkVectors(snapshot).correction(keys, fusion.hubness)
    words = snapshot.scores_of(expression, own)
    scores = [cosines, np.array([words.get(key, 0.0) for key in own])]
    lines = [fusion.linear_scale(candidates.dense), fusion.linear_scale(candidates.lexical)]
    if candidates.shared is not None:
        others = candidates.keys[~np.isin(candidates.keys, candidates.like)]
        together = np.concatenate([np.array(candidates.like, dtype=np.int64), others, keys])
        scores.append(shared_words(snapshot, together, len(candidates.like))[-len(own) :])
        lines.append(fusion.linear_scale(candidates.shared))
    weights = fusion.weights(candidates.lexical, candidates.shared)[: len(scores)]
    would = sum(
        weight * (score - line.origin) / line.unit
        for weight, score, line in zip(weights, scores, lines, strict=True)
        if line is not None
    )
    return dict(zip(own, np.broadcast_to(would, len(own)).tolist(), strict=True))


def _lost_words(
    snapshot: Snapshot, query: ExplainedQuery, chunk: ChunkRecord, others: Sequence[Hit]
) -> tuple[LostWord, ...]:
    """Return the words of the query that contribute less in a chunk than in others, greatest loss first."""
    keys = np.array(snapshot.known_keys([chunk, *others]), dtype=np.int64)
    row, *rows = snapshot.rows_of_keys(keys).tolist()
    here = _by_word(query.against(snapshot, chunk.chunk.embedded_text, row))
    there = [
        _by_word(query.against(snapshot, hit.chunk.embedded_text, of_hit))
        for hit, of_hit in zip(others, rows, strict=True)
    ]
    if not there:
        return ()
    lost = [LostWord(word, value, float(np.mean([each[word] for each in there]))) for word, value in here.items()]
    return tuple(sorted((word for word in lost if word.here < word.results), key=lambda word: word.here - word.results))


def _by_word(found: Contributions | None) -> Mapping[str, float]:
    return {} if found is None else {s.word: s.value for s in found.query_words() if s.origin == "text"}


def _lost_phrases(
    snapshot: Snapshot, expression: str | None, chunk: ChunkRecord, own: Sequence[int], others: Sequence[Hit]
) -> tuple[LostPhrase, ...]:
    """Return the phrases of the query with a lower BM25 in a chunk than in others, greatest loss first."""
    key, *keys = snapshot.known_keys([chunk, *others])
    scores = phrase_scores(snapshot, expression, [*own, key, *keys])
    there = [scores[each] for each in keys]
    lost = [
        LostPhrase(
            phrase,
            scores[key].get(phrase, 0.0),
            float(np.mean([each.get(phrase, 0.0) for each in there])) if there else 0.0,
            any(phrase in scores[each] for each in own),
            sum(phrase in each for each in there),
        )
        for phrase in map(fulltext.shown, fulltext.phrases(expression or ""))
    ]
    return tuple(sorted((each for each in lost if each.here < each.results), key=lambda each: each.here - each.results))
