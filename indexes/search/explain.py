"""Why a chunk has its score: every term of it, down to the pairs of tokens and the phrases that were matched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np

from ragembed.contributions import Contributions, TextParts, contributions
from ragembed.embedder import Embedder
from ragembed.indexes.filters import Filter
from ragembed.indexes.lexical import fulltext
from ragembed.indexes.search.fusion import Fusion, LinearScale
from ragembed.indexes.search.hybrid import Candidates
from ragembed.indexes.search.ranking import RankingOptions
from ragembed.indexes.search.search import Mode, query_expression, search
from ragembed.indexes.search.snapshot import Snapshot
from ragembed.indexes.storage import catalog
from ragembed.indexes.types import ChunkRecord, Hit
from ragembed.postprocess import unit_rows
from ragembed.types import Doubles, Floats

TermKind = Literal["query", "feedback", "dense", "phrase", "lexical", "shared", "rounding"]

_SAME_SCORE = 1e-6
_OWN = "the query's own vector"


@dataclass(frozen=True, slots=True)
class Term:
    """A summand of a score.

    The kinds are ``query`` (the cosine of the query's own vector: the sum of ``Explanation.contributions``),
    ``feedback`` (a chunk that the query was moved towards; ``name`` is its id), ``phrase`` (BM25 of a phrase of the
    query, called as it is), ``shared`` (words that the chunk has with the best), ``dense`` and ``lexical`` (what the
    chunk's own score does not decide: minus the mean of the candidates, say, or what a rank gives) and ``rounding``.
    """

    kind: TermKind
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class ScorePart:
    """How the dense, the lexical or the shared score of a chunk entered its fused score, as ``value``.

    ``score`` is the cosine of the query as it was moved, BM25, or how much the chunk shares the words of the best;
    ``weight`` is what its scaled value was multiplied by; ``line`` how the scores of the candidates are scaled, None
    where they count nothing, or by ``rank`` alone.
    """

    score: float
    weight: float
    value: float
    line: LinearScale | None
    rank: int | None

    @property
    def factor(self) -> float:
        """What the fused score gains when ``score`` grows by 1 and the other candidates stay as they are."""
        return 0.0 if self.line is None else self.weight / self.line.unit


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Why a hit has its score.

    ``terms`` sum to ``score``, which is the hit's own unless something has ordered the hits again since.
    ``contributions`` are those of pairs of tokens; None where there are none to be known, as ``note`` then says. They
    sum to the term ``query``, or where ``unit`` is ``"cosine"``, because cosines entered the score by rank or not at
    all, to the cosine of query and chunk. ``phrases`` is BM25 by phrase. ``dense``, ``lexical`` and ``shared`` tell
    how the three were fused over how many ``candidates``; they are None where nothing was. ``towards`` are the chunks
    that the query was moved towards, ``like`` those whose words the chunk was compared with.
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

    @property
    def text_start(self) -> int | None:
        """Where the chunk's own text begins in the text that was embedded, which titles and headings precede.

        None where only a part of the text was embedded, as boilerplate is left out.
        """
        return None if self.hit.chunk.searched else len(self.hit.chunk.embedded_text) - len(self.hit.chunk.text)

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """Which parts of the text that was embedded are where in the chunk's text: start, end, and start in the latter.

        A line that could be one or another of the text's lines is left out.
        """
        chunk = self.hit.chunk
        if not chunk.searched:
            start = len(chunk.embedded_text) - len(chunk.text)
            return [(start, start + len(chunk.text), 0)]
        start = len(chunk.embedded_text) - len(chunk.searched)
        return [(start + at, start + at + length, own) for at, length, own in _lines_in(chunk.searched, chunk.text)]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values; ``pairs`` has a row for each token of the query."""
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
            "tokens": None if self.contributions is None else self._tokens(self.contributions),
        }

    def _tokens(self, found: Contributions) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "sum": found.score,
            "residual": found.residual,
            "rounding": found.rounding,
            "words": [asdict(word) for word in found.document_words()],
            "query_words": [asdict(word) for word in found.query_words()],
            "query": [asdict(token) for token in found.query],
            "document": [asdict(token) for token in found.document],
            "text_start": self.text_start,
            "pairs": found.pairs.tolist(),
        }


def explain(
    snapshot: Snapshot,
    query: str,
    k: int,
    mode: Mode,
    where: Filter | None = None,
    fusion: Fusion | None = None,
    ranking: RankingOptions | None = None,
) -> list[Explanation]:
    """Search as :func:`search` does, and explain each of the best ``k`` hits, best first."""
    fusion, trace = fusion or Fusion(), list[Candidates]()
    [hits] = search(snapshot, [query], k, mode, where, fusion, ranking, trace)
    return explain_hits(snapshot, query, hits, mode, fusion, trace[-1] if trace else None)


def explain_hits(
    snapshot: Snapshot, query: str, hits: Sequence[Hit], mode: Mode, fusion: Fusion, candidates: Candidates | None
) -> list[Explanation]:
    """Explain hits; ``candidates`` are those of hybrid search, None where another search found the hits."""
    if not hits:
        return []
    expression = None if mode == "dense" else query_expression(snapshot, query)
    keys = catalog.keys_of_ids(snapshot.connection, [hit.id for hit in hits])
    phrases = phrase_scores(snapshot, expression, list(keys.values()))
    encoded = None if mode == "lexical" else ExplainedQuery.of(snapshot, query, fusion, candidates)
    explained = []
    for hit in hits:
        key = keys[hit.id]
        parts = None if candidates is None else fused_parts(key, fusion, candidates)
        if encoded is not None and candidates is not None and parts is not None:
            explained.append(_hybrid(snapshot, hit, key, encoded, phrases[key], parts, candidates))
        elif encoded is not None:
            explained.append(_dense(snapshot, hit, key, encoded))
        else:
            explained.append(_lexical(hit, phrases[key]))
    return explained


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedQuery:
    """A query's unit vector, shape ``(d,)``, and its parts, None where they are not to be known, as ``note`` says.

    It was searched with ``share`` times that vector and ``added``, shape ``(n, d)``, those of the chunks ``towards``.
    """

    vector: Doubles
    parts: TextParts | None
    share: float
    towards: tuple[ChunkRecord, ...]
    added: Doubles
    note: str | None

    @classmethod
    def of(cls, snapshot: Snapshot, query: str, fusion: Fusion, candidates: Candidates | None) -> ExplainedQuery:
        """Encode a query, as a whole and token by token."""
        embedder = snapshot.embedder()
        vector = unit_rows(embedder.encode_queries([query]))[0].astype(np.float64)
        parts, note = None, None
        if isinstance(embedder, Embedder):
            parts = embedder.token_parts(query, "queries")
        else:
            note = f"the vectors are those of {embedder.describe()['model']}: ragembed sees no tokens of them"
        keys = [] if candidates is None else candidates.towards
        rows, records = (
            catalog.rows_of_keys(snapshot.connection, keys),
            catalog.chunks_by_key(snapshot.connection, keys),
        )
        best = snapshot.vectors([rows[key] for key in keys]).astype(np.float64)
        added = best * fusion.feedback / max(len(keys), 1)
        length = float(np.linalg.norm(vector + added.sum(axis=0))) if keys else 1.0
        return cls(vector, parts, 1.0 / length, tuple(records[key] for key in keys), added / length, note)

    def against(self, snapshot: Snapshot, text: str, row: int, cosine: float | None = None) -> Contributions | None:
        """Return what pairs of tokens contribute to the ``cosine`` of the query and a text, whose row is given."""
        embedder = snapshot.embedder()
        if self.parts is None or not isinstance(embedder, Embedder):
            return None
        segment, position = catalog.places_of_rows(snapshot.connection, [row])[row]
        raw: Floats = snapshot.segments()[segment].raw()[position].astype(np.float32)
        found = contributions(self.parts, embedder.token_parts(text, "documents", raw))
        return found if cosine is None else replace(found, residual=cosine - float(found.pairs.sum()))


def phrase_scores(snapshot: Snapshot, expression: str | None, keys: Sequence[int]) -> dict[int, dict[str, float]]:
    """Return by chunk key the BM25 score of each phrase of ``expression`` that the chunk has; they sum to its own."""
    scores: dict[int, dict[str, float]] = {key: {} for key in keys}
    for phrase in fulltext.phrases(expression or ""):
        for key, score in fulltext.scores_of(snapshot.connection, phrase, keys).items():
            scores[key][fulltext.shown(phrase)] = score
    return scores


class ScoreParts(NamedTuple):
    """How the scores of a chunk were fused; ``shared`` is None where words of the best were not compared."""

    dense: ScorePart
    lexical: ScorePart
    shared: ScorePart | None


def fused_parts(key: int, fusion: Fusion, candidates: Candidates) -> ScoreParts | None:
    """Return how the scores of a chunk were fused; None for one that is no candidate."""
    if key not in candidates.keys:
        return None
    at = candidates.keys.index(key)
    of_all = candidates.dense, candidates.lexical, candidates.shared
    values, weights = fusion.parts(*of_all), fusion.weights(candidates.lexical, candidates.shared)

    def part(i: int, scores: Doubles) -> ScorePart:
        rank = 1 + int((scores > scores[at]).sum()) if fusion.method == "rrf" else None
        return ScorePart(float(scores[at]), weights[i], float(values[i][at]), fusion._linear_scale(scores), rank)

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
) -> Explanation:
    row = catalog.rows_of_keys(snapshot.connection, [key])[key]
    vector = snapshot.vectors([row])[0].astype(np.float64)
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
    terms.append(_constant("dense", by_vector))
    terms += [Term("phrase", phrase, by_words.factor * score) for phrase, score in phrases.items()]
    deeper = by_words.score - sum(phrases.values())
    if abs(deeper) > _SAME_SCORE:
        terms.append(Term("lexical", "the least of the best listed, in place of its own", by_words.factor * deeper))
    terms.append(_constant("lexical", by_words))
    if parts.shared is not None:
        if parts.shared.factor:
            terms.append(Term("shared", "words of the best", parts.shared.factor * parts.shared.score))
        terms.append(_constant("shared", parts.shared))
    found = query.against(snapshot, hit.chunk.embedded_text, row, own)
    score = sum(part.value for part in parts if part is not None)
    like = catalog.chunks_by_key(snapshot.connection, candidates.like)
    return Explanation(
        hit,
        "hybrid",
        score,
        _complete(terms, score),
        unit="score" if factor else "cosine",
        contributions=None if found is None else found.scaled(factor or 1.0),
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
    """Return what the value of a part has beside what the chunk's own score gives."""
    if part.rank is not None:
        return Term(kind, f"rank {part.rank}", part.value)
    if part.line is None:
        return Term(kind, "all candidates alike", part.value)
    return Term(kind, "the candidates' own", -part.factor * part.line.origin)


def _dense(snapshot: Snapshot, hit: Hit, key: int, query: ExplainedQuery) -> Explanation:
    cosine = hit.score if hit.dense is None else hit.dense
    row = catalog.rows_of_keys(snapshot.connection, [key])[key]
    found = query.against(snapshot, hit.chunk.embedded_text, row, cosine)
    terms = [Term("query", _OWN, cosine)]
    note = _note(hit, cosine, query.note)
    return Explanation(hit, "dense", cosine, _complete(terms, cosine), contributions=found, note=note)


def _lexical(hit: Hit, phrases: Mapping[str, float]) -> Explanation:
    score = hit.score if hit.lexical is None else hit.lexical
    terms = [Term("phrase", phrase, value) for phrase, value in phrases.items()]
    return Explanation(hit, "lexical", score, _complete(terms, score), phrases=phrases, note=_note(hit, score))


def _complete(terms: Sequence[Term], score: float) -> tuple[Term, ...]:
    """Return ``terms`` and what they lack of ``score``, which is the rounding of the arithmetic."""
    return (*terms, Term("rounding", "", score - sum(term.value for term in terms)))


def _note(hit: Hit, score: float, note: str | None = None) -> str | None:
    notes = [] if note is None else [note]
    if abs(hit.score - score) > _SAME_SCORE:
        notes.append(
            f"the score {hit.score:.3f} was given afterwards: this explains {score:.3f}, with which it was found"
        )
    return "; ".join(notes) or None


def _lines_in(part: str, text: str) -> list[tuple[int, int, int]]:
    """Return start in ``part``, length and start in ``text`` of the lines that can be but one of the latter's.

    ``part`` is the text without some lines; none are known where it is not.
    """
    lines, whole = part.split("\n"), text.split("\n")
    first = _in_turn(lines, whole)
    if -1 in first:
        return []
    last = [len(whole) - 1 - at for at in _in_turn(lines[::-1], whole[::-1])[::-1]]
    starts, own = ([0, *accumulate(len(line) + 1 for line in each)] for each in (lines, whole))
    placed = enumerate(zip(first, last, strict=True))
    return [(starts[i], len(lines[i]), own[at]) for i, (at, latest) in placed if at == latest]


def _in_turn(lines: Sequence[str], among: Sequence[str]) -> list[int]:
    """Return for each line the first place after that of the line before where ``among`` has it, -1 for none."""
    rest = iter(enumerate(among))
    return [next((at for at, other in rest if other == line), -1) for line in lines]
