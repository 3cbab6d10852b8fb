"""Why a chunk is a hit with its score, and why a file is none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from ragembed.contributions import Contributions, TextParts, contributions
from ragembed.documents.normalisation import line_forms, normalise
from ragembed.errors import ConfigError
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search import feedback
from ragembed.indexes.search.fusion import Fusion, LinearScale, read_weight
from ragembed.indexes.search.hybrid import Candidates, ChunkVectors
from ragembed.indexes.search.pipeline import MODES, Mode, query_expression, run_query
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.relevance import RelevanceParts
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.postprocess import unit_rows
from ragembed.types import Doubles

TermKind = Literal["query", "feedback", "hubness", "dense", "phrase", "lexical", "shared", "rounding"]

_SAME_SCORE = 1e-6
_OWN = "the query's own vector"


@dataclass(frozen=True, slots=True)
class Term:
    """One term of the sum that is a score.

    Its kind is ``"query"`` for the cosine of the query's own vector (the sum of ``Explanation.contributions``),
    ``"feedback"`` for a chunk that the query vector was moved towards (``name`` is its id), ``"hubness"`` for minus a
    part of the chunk's hubness, ``"phrase"`` for BM25 of a phrase of the query, and ``"shared"`` for words that the
    chunk shares with the best chunks. ``"dense"`` and ``"lexical"`` do not depend on the chunk's own score, such as
    minus the mean of the candidates, or the value of a rank. ``"rounding"`` is for rounding errors.
    """

    kind: TermKind
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class ScorePart:
    """The contribution ``value`` of a chunk's dense, lexical or shared ``score`` to its fused score.

    ``weight`` is the factor of the scaled score. ``line`` scales the scores of the candidates; it is None if they count
    nothing, or by ``rank`` among the candidates.
    """

    score: float
    weight: float
    value: float
    line: LinearScale | None
    rank: int | None

    @property
    def factor(self) -> float:
        """Increase of the fused score when ``score`` grows by 1 and the other candidates stay the same."""
        return 0.0 if self.line is None else self.weight / self.line.unit


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The reasons for the score of a hit, which is the sum of ``terms`` unless a later step changed it.

    ``contributions`` of pairs of tokens add up to the term ``"query"``, or to the cosine of query and chunk if ``unit``
    is ``"cosine"``; they are None if they are not available, as ``note`` says. ``phrases`` has BM25 by phrase of the
    query, ``candidates`` is the number of chunks that were fused, ``towards`` are the chunks that the query vector was
    moved towards, and ``like`` those whose words the chunk was compared with.
    """

    hit: Hit
    mode: Mode
    score: float
    terms: tuple[Term, ...]
    unit: Literal["score", "cosine"] = "score"
    contributions: Contributions | None = None
    phrases: Mapping[str, float] = field(default_factory=dict)
    dense: ScorePart | None = None
    lexical: ScorePart | None = None
    shared: ScorePart | None = None
    candidates: int | None = None
    towards: tuple[ChunkRecord, ...] = ()
    like: tuple[ChunkRecord, ...] = ()
    note: str | None = None
    relevance: RelevanceParts | None = None

    @property
    def text_start(self) -> int | None:
        """Offset of the chunk's own text in the embedded text, after title and headings.

        None if the embedded text differs, because it was normalised.
        """
        return None if self.hit.chunk.searched else len(self.hit.chunk.embedded_text) - len(self.hit.chunk.text)

    @property
    def origins(self) -> list[tuple[int, int] | None]:
        """Start and end in the chunk's text of the origin of each character of the embedded text.

        It is None for title and headings, and for text that a program gave to be searched instead.
        """
        chunk = self.hit.chunk
        part = chunk.searched or chunk.text
        context: list[tuple[int, int] | None] = [None] * (len(chunk.embedded_text) - len(part))
        return context + _origins_in(part, chunk.text)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values; ``pairs`` has one row for each token of the query."""
        return {
            "score": self.score,
            "terms": [asdict(term) for term in self.terms],
            "phrases": dict(self.phrases),
            "candidates": self.candidates,
            "dense": None if self.dense is None else asdict(self.dense),
            "lexical": None if self.lexical is None else asdict(self.lexical),
            "shared": None if self.shared is None else asdict(self.shared),
            "towards": [record.id for record in self.towards],
            "like": [record.id for record in self.like],
            "note": self.note,
            "relevance": None if self.relevance is None else asdict(self.relevance),
            "tokens": None if self.contributions is None else self._tokens(self.contributions),
        }

    def _tokens(self, contributed: Contributions) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "sum": contributed.score,
            "residual": contributed.residual,
            "rounding": contributed.rounding,
            "words": [asdict(word) for word in contributed.document_words()],
            "query_words": [asdict(word) for word in contributed.query_words()],
            "query": [asdict(token) for token in contributed.query],
            "document": [asdict(token) for token in contributed.document],
            "text_start": self.text_start,
            "pairs": contributed.pairs.tolist(),
        }


def explain(
    snapshot: Snapshot,
    query: str,
    k: int,
    mode: Mode,
    where: Filter | None = None,
    fusion: Fusion | None = None,
    ranking: RankingOptions | None = None,
    min_relevance: float | None = None,
    ids: Collection[str] | None = None,
) -> list[Explanation]:
    """Search as :func:`run_query` does, and explain each of the best ``k`` hits, or those with one of ``ids``.

    If the scores of the stores cannot be compared, the explained score is that among the stores with the same embedder.
    """
    groups, trace = snapshot.groups(mode), list[Candidates]()
    [hits] = run_query(snapshot, [query], k, mode, where, fusion, ranking, trace, min_relevance)
    explained: dict[int, Explanation] = {}
    for group in groups:
        names = {store.name for store in group.stores}
        at = [i for i, hit in enumerate(hits) if hit.store in names and (ids is None or hit.id in ids)]
        if len(groups) > 1:
            trace = []
            run_query(group, [query], k, mode, where, fusion, ranking, trace)
        explanations = explain_hits(group, query, [hits[i] for i in at], mode, fusion or group.fusion(), trace)
        explained.update(zip(at, explanations, strict=True))
    return [explained[i] for i in sorted(explained)]


def explain_hits(
    snapshot: Snapshot, query: str, hits: Sequence[Hit], mode: Mode, fusion: Fusion, tiers: Sequence[Candidates]
) -> list[Explanation]:
    """Explain hits. ``tiers`` are those of hybrid search; there are none if another mode found the hits."""
    if not hits:
        return []
    fusion = tiers[0].fusion if tiers else fusion
    expression = None if mode == "dense" else query_expression(snapshot, query)
    keys = snapshot.known_keys(hits)
    phrases = phrase_scores(snapshot, expression, keys)
    encoded = None if mode == "lexical" else ExplainedQuery.of(snapshot, query, tiers[0] if tiers else None)
    weight = fusion.hubness if tiers else 0.0
    corrections = ChunkVectors(snapshot).correction(np.array(keys, dtype=np.int64), weight)
    explained = []
    for hit, key, correction in zip(hits, keys, corrections.tolist(), strict=True):
        candidates = next((tier for tier in tiers if key in tier.keys), None)
        if encoded is not None and candidates is not None:
            parts = fused_parts(key, fusion, candidates)
            explained.append(_hybrid(snapshot, hit, key, encoded, phrases[key], parts, candidates, correction))
        elif encoded is not None:
            explained.append(_dense(snapshot, hit, key, encoded))
        else:
            explained.append(_lexical(hit, phrases[key]))
    return _with_relevance(snapshot, query, expression, explained)


def _with_relevance(
    snapshot: Snapshot, query: str, expression: str | None, explained: Sequence[Explanation]
) -> list[Explanation]:
    model = snapshot.relevance()
    if model is None:
        return list(explained)
    highest = None if expression is None else snapshot.highest_score(expression)
    read = 1.0 if explained[0].mode == "lexical" else read_weight(snapshot.unread_share(normalise(query)))
    return [
        replace(explanation, relevance=RelevanceParts.of(model, explanation.hit, highest, read))
        for explanation in explained
    ]


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedQuery:
    """The unit vector of a query, shape ``(d,)``, and its token parts, or None if they are not available; see ``note``.

    The search used ``share`` times that vector plus the vectors ``added``, shape ``(n, d)``, of the chunks ``towards``.
    """

    vector: Doubles
    parts: TextParts | None
    share: float
    towards: tuple[ChunkRecord, ...]
    added: Doubles
    note: str | None

    @classmethod
    def of(cls, snapshot: Snapshot, query: str, candidates: Candidates | None) -> ExplainedQuery:
        """Encode a query, as a whole and by token."""
        embedder, query = snapshot.embedder(), normalise(query)
        vector = unit_rows(embedder.encode_queries([query]))[0].astype(np.float64)
        parts, note = None, None
        if (own := embedder.refittable) is not None and not own.is_remote:
            parts = own.token_parts(query, "queries")
        else:
            note = f"the vectors were made by {embedder.describe()['model']}: ragembed does not know their tokens"
        weights = {} if candidates is None else candidates.towards
        keys = list(weights)
        rows, records = snapshot.rows_of_keys(np.array(keys, dtype=np.int64)), snapshot.chunks_by_key(keys)
        best = snapshot.vectors(rows).astype(np.float64)
        added = best * np.array(list(weights.values()))[:, None]
        length = float(np.linalg.norm(vector + added.sum(axis=0))) if keys else 1.0
        return cls(vector, parts, 1.0 / length, tuple(records[key] for key in keys), added / length, note)

    def against(self, snapshot: Snapshot, text: str, row: int, cosine: float | None = None) -> Contributions | None:
        """Return the contributions of token pairs to the ``cosine`` of the query with a text in vector row ``row``."""
        embedder = snapshot.embedder().refittable
        if self.parts is None or embedder is None:
            return None
        contributed = contributions(self.parts, embedder.token_parts(text, "documents", snapshot.raw_vector(row)))
        return contributed if cosine is None else replace(contributed, residual=cosine - float(contributed.pairs.sum()))


def phrase_scores(snapshot: Snapshot, expression: str | None, keys: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return the BM25 score of each phrase of ``expression`` in each chunk, by key; they sum to the chunk's BM25."""
    scores: dict[int, dict[str, float]] = {key: {} for key in keys}
    for phrase in fulltext.phrases(expression or ""):
        for key, score in snapshot.word_scores_of(phrase, keys).items():
            scores[key][fulltext.shown(phrase)] = score
    return scores


class ScoreParts(NamedTuple):
    """How the scores of a chunk were fused; ``shared`` is None if words were not compared."""

    dense: ScorePart
    lexical: ScorePart
    shared: ScorePart | None


def fused_parts(key: int, fusion: Fusion, candidates: Candidates) -> ScoreParts:
    """Return how the scores of a candidate were fused."""
    at = int(np.flatnonzero(candidates.keys == key)[0])
    values = fusion.parts(candidates.dense, candidates.lexical, candidates.shared)
    weights = fusion.weights(candidates.lexical, candidates.shared)

    def part(i: int, scores: Doubles) -> ScorePart:
        rank = 1 + int((scores > scores[at]).sum()) if fusion.method == "rrf" else None
        return ScorePart(float(scores[at]), weights[i], float(values[i][at]), fusion.linear_scale(scores), rank)

    shared = None if candidates.shared is None else part(2, candidates.shared)
    return ScoreParts(part(0, candidates.dense), part(1, candidates.lexical), shared)


def _hybrid(
    snapshot: Snapshot,
    hit: Hit,
    key: int,
    query: ExplainedQuery,
    phrases: Mapping[str, float],
    parts: ScoreParts,
    candidates: Candidates,
    subtracted: float,
) -> Explanation:
    """Explain a hit of hybrid search; ``subtracted`` is the part of its hubness that its cosine lost."""
    rows = snapshot.rows_of_keys(np.array([key]))
    vector = snapshot.vectors(rows)[0].astype(np.float64)
    own = float(query.vector @ vector)
    by_vector, by_words = parts.dense, parts.lexical
    factor = by_vector.factor * query.share
    terms = []
    if factor:
        terms = [Term("query", _OWN, factor * own)]
        terms += [
            Term("feedback", record.id, by_vector.factor * float(added @ vector))
            for record, added in zip(query.towards, query.added, strict=True)
        ]
        if subtracted:
            terms.append(Term("hubness", "near many queries", -by_vector.factor * subtracted))
    terms.append(_constant("dense", by_vector))
    terms += [Term("phrase", phrase, by_words.factor * score) for phrase, score in phrases.items()]
    deeper = by_words.score - sum(phrases.values())
    if abs(deeper) > _SAME_SCORE:
        terms.append(Term("lexical", "the lowest BM25 listed, instead of its own", by_words.factor * deeper))
    terms.append(_constant("lexical", by_words))
    if parts.shared is not None:
        if parts.shared.factor:
            terms.append(Term("shared", "words shared with the best chunks", parts.shared.factor * parts.shared.score))
        terms.append(_constant("shared", parts.shared))
    contributed = query.against(snapshot, hit.chunk.embedded_text, int(rows[0]), own)
    score = sum(part.value for part in parts if part is not None)
    like = snapshot.chunks_by_key(candidates.like)
    return Explanation(
        hit,
        "hybrid",
        score,
        _complete(terms, score),
        unit="score" if factor else "cosine",
        contributions=None if contributed is None else contributed.scaled(factor or 1.0),
        phrases=phrases,
        dense=by_vector,
        lexical=by_words,
        shared=parts.shared,
        candidates=len(candidates.keys),
        towards=query.towards,
        like=tuple(like[key] for key in candidates.like),
        note=_note(hit, score, query.note),
    )


def _constant(kind: Literal["dense", "lexical", "shared"], part: ScorePart) -> Term:
    """Return the part of a value that does not depend on the chunk's own score."""
    if part.rank is not None:
        return Term(kind, f"rank {part.rank}", part.value)
    if part.line is None:
        return Term(kind, "same score for all candidates", part.value)
    return Term(kind, "origin of the candidates' scale", -part.factor * part.line.origin)


def _dense(snapshot: Snapshot, hit: Hit, key: int, query: ExplainedQuery) -> Explanation:
    cosine = hit.score if hit.dense is None else hit.dense
    [row] = snapshot.rows_of_keys(np.array([key])).tolist()
    contributed = query.against(snapshot, hit.chunk.embedded_text, row, cosine)
    terms = [Term("query", _OWN, cosine)]
    note = _note(hit, cosine, query.note)
    return Explanation(hit, "dense", cosine, _complete(terms, cosine), contributions=contributed, note=note)


def _lexical(hit: Hit, phrases: Mapping[str, float]) -> Explanation:
    score = hit.score if hit.lexical is None else hit.lexical
    terms = [Term("phrase", phrase, value) for phrase, value in phrases.items()]
    return Explanation(hit, "lexical", score, _complete(terms, score), phrases=phrases, note=_note(hit, score))


def _complete(terms: Sequence[Term], score: float) -> tuple[Term, ...]:
    """Return ``terms`` and a last term with the rounding error, which makes the sum ``score``."""
    return (*terms, Term("rounding", "", score - sum(term.value for term in terms)))


def _note(hit: Hit, score: float, note: str | None = None) -> str | None:
    notes = [] if note is None else [note]
    if abs(hit.score - score) > _SAME_SCORE:
        notes.append(
            f"a later step set the score to {hit.score:.3f}: this explains {score:.3f}, the score of the search"
        )
    return "; ".join(notes) or None


def _origins_in(part: str, text: str) -> list[tuple[int, int] | None]:
    """Return start and end in ``text`` of each character of ``part``, its normalised form; None in other lines."""
    lines, forms = part.split("\n"), line_forms(text)
    if len(lines) != len(forms):
        return [None] * len(part)
    origins: list[tuple[int, int] | None] = []
    for line, of_line in zip(lines, forms, strict=True):
        origins += [*of_line.get(line, [None] * len(line)), None]
    return origins[:-1]


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

    If the snapshot is of several stores, ``store`` is the name of the one that has the file.
    """
    if mode not in MODES:
        raise ConfigError(f"unknown search mode {mode!r}: expected one of {', '.join(MODES)}")
    own = snapshot.keys_of_source(source, store)
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
        ranks["dense"] = _in_dense(snapshot, own, k, encoded)
    if mode != "dense":
        ranks["lexical"] = _in_lexical(snapshot, own, k, expression)
    # A query without words is searched by its vector only.
    searched = mode if mode in ranks else "dense"
    chunk = ranks[searched].chunk or _records(snapshot, own)[0]
    others = [hit for hit in hits if (hit.source, hit.store) != (source, store)]
    return WhyNot(
        source,
        searched,
        len(own),
        len(others),
        tuple(ranks.values()),
        chunk,
        () if encoded is None else _lost_words(snapshot, encoded, chunk, others),
        () if mode == "dense" else _lost_phrases(snapshot, expression, chunk, own, others),
        None if encoded is None else encoded.note,
    )


def _records(snapshot: Snapshot, keys: Sequence[int]) -> list[ChunkRecord]:
    records = snapshot.chunks_by_key(keys)
    return [records[key] for key in keys]


def _best_key(scores: Mapping[int, float]) -> int:
    """Return the key of the best chunk, the smallest of equal ones."""
    return max(scores, key=lambda key: (scores[key], -key))


def _in_dense(snapshot: Snapshot, own: Sequence[int], k: int, query: ExplainedQuery) -> FileRank:
    keys, cosines = snapshot.all_cosines(query.vector.astype(np.float32))
    mine = np.flatnonzero(np.isin(keys, own))
    at = int(mine[np.argmax(cosines[mine])])
    ranked = np.sort(cosines)[::-1]
    rank = 1 + int((ranked > cosines[at]).sum())
    [record] = _records(snapshot, [int(keys[at])])
    return FileRank("dense", rank, len(ranked), float(cosines[at]), float(ranked[: max(k, 1)][-1]), record)


def _in_lexical(snapshot: Snapshot, own: Sequence[int], k: int, expression: str | None) -> FileRank:
    if expression is None:
        return FileRank("lexical", None, 0, None, None, None)
    _, best = snapshot.matches(expression, k, snapshot.select(None))
    _, scores = snapshot.word_scores(expression)
    needed = float(best[: max(k, 1)][-1]) if len(best) else None
    mine = snapshot.word_scores_of(expression, own)
    if not mine:
        return FileRank("lexical", None, len(scores), None, needed, None)
    key = _best_key(mine)
    [record] = _records(snapshot, [key])
    rank = 1 + int((scores > mine[key]).sum())
    return FileRank("lexical", rank, len(scores), mine[key], needed, record)


def _in_hybrid(
    snapshot: Snapshot, own: Sequence[int], k: int, expression: str, fusion: Fusion, candidates: Candidates
) -> FileRank:
    scores = dict(zip(candidates.keys.tolist(), candidates.scores.tolist(), strict=True))
    ordered = sorted(scores.values(), reverse=True)
    needed = ordered[: max(k, 1)][-1] if ordered else None
    mine = {key: scores[key] for key in own if key in scores}
    known = mine or _scores_on_scale(snapshot, own, expression, fusion, candidates)
    key = _best_key(known or dict.fromkeys(own, 0.0))
    rank = 1 + sum(score > mine[key] for score in ordered) if mine else None
    [record] = _records(snapshot, [key])
    return FileRank("hybrid", rank, len(ordered), known.get(key), needed, record)


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
    words = snapshot.word_scores_of(expression, own)
    scores = [cosines, np.array([words.get(key, 0.0) for key in own])]
    lines = [fusion.linear_scale(candidates.dense), fusion.linear_scale(candidates.lexical)]
    if candidates.shared is not None:
        others = candidates.keys[~np.isin(candidates.keys, candidates.like)]
        together = np.concatenate([np.array(candidates.like, dtype=np.int64), others, keys])
        shared = feedback.likeness(snapshot.words(together.tolist()), len(candidates.like))
        scores.append(shared[-len(own) :])
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
    lost = [LostWord(word, value, float(np.mean([of_hit[word] for of_hit in there]))) for word, value in here.items()]
    return tuple(sorted((word for word in lost if word.here < word.results), key=lambda word: word.here - word.results))


def _by_word(contributed: Contributions | None) -> Mapping[str, float]:
    return {} if contributed is None else {s.word: s.value for s in contributed.query_words() if s.origin == "text"}


def _lost_phrases(
    snapshot: Snapshot, expression: str | None, chunk: ChunkRecord, own: Sequence[int], others: Sequence[Hit]
) -> tuple[LostPhrase, ...]:
    """Return the phrases of the query with a lower BM25 in a chunk than in others, greatest loss first."""
    key, *keys = snapshot.known_keys([chunk, *others])
    scores = phrase_scores(snapshot, expression, [*own, key, *keys])
    there = [scores[hit_key] for hit_key in keys]
    lost = [
        LostPhrase(
            phrase,
            scores[key].get(phrase, 0.0),
            float(np.mean([of_hit.get(phrase, 0.0) for of_hit in there])) if there else 0.0,
            any(phrase in scores[own_key] for own_key in own),
            sum(phrase in of_hit for of_hit in there),
        )
        for phrase in map(fulltext.shown, fulltext.phrases(expression or ""))
    ]
    return tuple(sorted((loss for loss in lost if loss.here < loss.results), key=lambda loss: loss.here - loss.results))
