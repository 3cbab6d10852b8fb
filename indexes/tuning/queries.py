"""Pseudo-queries with known answers: each query is a text that was removed from its answer."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.documents.model import Chunk
from ragembed.errors import ConfigError
from ragembed.indexes.tuning.pool import Pool
from ragembed.indexes.tuning.prose import normal, word_count

LEAST_LEFT = 5
"""Minimum number of words that must be left in a chunk after a query was removed from it."""


@dataclass(frozen=True, slots=True)
class PseudoQuery:
    """A query and the chunks that answer it.

    Parameters
    ----------
    text
        The query.
    answers
        The positions of the answers in the pool.
    changed
        Replacements by position, used while this query is searched for: the answers without the query text, and
        other chunks without text that would reveal the answer.
    """

    text: str
    answers: tuple[int, ...]
    changed: Mapping[int, Chunk]


Source = Callable[[Pool, int], Iterator[PseudoQuery]]
"""Yields all pseudo-queries of one kind in a pool; the second argument is the seed for choices."""


@dataclass(frozen=True, slots=True)
class QuerySet:
    """The queries of all sources, with the ``source``, ``half`` and ``run`` of each in the same order."""

    queries: Sequence[PseudoQuery]
    source: Sequence[str]
    half: Sequence[int]
    run: Sequence[int]

    @property
    def sources(self) -> list[str]:
        """The names of the sources that have queries, in order of first use."""
        return list(dict.fromkeys(self.source))

    def of_half(self, half: int) -> QuerySet:
        """Return the queries of one half."""
        rows = [row for row, each in enumerate(self.half) if each == half]
        return QuerySet(
            [self.queries[row] for row in rows],
            [self.source[row] for row in rows],
            [half] * len(rows),
            [self.run[row] for row in rows],
        )


def collect(
    pool: Pool, sources: Mapping[str, Source], seed: int, *, limit: int, changed_limit: int, least: int
) -> tuple[QuerySet, dict[str, tuple[int, int]]]:
    """Draw up to ``limit`` queries from each source, and return them with the counts of each source in each half.

    Queries with the same text but different answers are left out, and so are queries that leave less than
    ``LEAST_LEFT`` words in a chunk. The queries of one source change at most ``changed_limit`` chunks in total. If a
    source has less than ``least`` queries in a half, it is counted but not used. The draw depends on the texts and the
    seed.
    """
    found: list[tuple[PseudoQuery, str]] = []
    counts: dict[str, tuple[int, int]] = {}
    for name, source in sources.items():
        drawn = _drawn(_unambiguous(source(pool, seed)), name, seed, limit, changed_limit)
        halves = [pool.half(query.answers[0]) for query in drawn]
        counts[name] = (halves.count(0), halves.count(1))
        if min(counts[name]) >= least:
            found += [(query, name) for query in drawn]
    firsts = [query.answers[0] for query, _ in found]
    return QuerySet(
        [query for query, _ in found],
        [name for _, name in found],
        [pool.half(first) for first in firsts],
        [pool.places[first].run for first in firsts],
    ), counts


def choice(texts: Sequence[str], seed: int) -> int:
    """Return the position of the text that the seed chooses, independent of the order of ``texts``."""
    return min(range(len(texts)), key=lambda i: (key_of(texts[i], seed), i))


def key_of(text: str, seed: int, name: str = "") -> bytes:
    """Return a seeded hash of a text. Sorting by it is a pseudo-random order."""
    digest = hashlib.blake2b(digest_size=16, salt=seed.to_bytes(16, "little"), person=name.encode()[:16])
    digest.update(text.encode("utf-8", "replace"))
    return digest.digest()


def _unambiguous(queries: Iterable[PseudoQuery]) -> list[PseudoQuery]:
    by_text: dict[str, list[PseudoQuery]] = defaultdict(list)
    for query in queries:
        by_text[normal(query.text)].append(query)
    alone = (same[0] for same in by_text.values() if all(query.answers == same[0].answers for query in same))
    return [query for query in alone if _keeps_enough(query)]


def _keeps_enough(query: PseudoQuery) -> bool:
    return all(word_count(query.changed[i].text) >= LEAST_LEFT for i in query.answers if i in query.changed)


def _drawn(queries: Sequence[PseudoQuery], name: str, seed: int, limit: int, changed_limit: int) -> list[PseudoQuery]:
    drawn: list[PseudoQuery] = []
    changed = 0
    for query in sorted(queries, key=lambda query: (key_of(query.text, seed, name), query.text)):
        if len(drawn) == limit:
            break
        if changed + len(query.changed) <= changed_limit:
            drawn.append(query)
            changed += len(query.changed)
    return drawn


_QUERY_KEYS, _ANSWER_KEYS = ("query", "question", "text"), ("path", "file", "id", "answer")


@dataclass(frozen=True, slots=True)
class Logged:
    """A query of a query log and its answer: the name of a file in the corpus, or the id of a chunk."""

    query: str
    answer: str


def read_log(path: Path) -> tuple[list[Logged], int]:
    """Read a query log, and return its queries with answers and the number of lines without an answer.

    A line contains a query, a tab, and the name of a file in the store or the id of a chunk. A line may also be a JSON
    object with the keys ``query`` and ``path`` or ``id``. Blank and repeated lines are skipped. Raises
    :class:`ConfigError` with the file and the line number if a line is invalid or the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the query log {path}: {error}; expected a UTF-8 text file") from error
    logged: dict[Logged, None] = {}
    without = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        query, answer = _object(line, f"{path}:{number}") if line.lstrip().startswith("{") else _columns(line)
        if not query:
            raise ConfigError(f"{path}:{number} has no query: expected QUERY<tab>FILE, or a JSON object")
        if answer:
            logged[Logged(query, answer)] = None
        else:
            without += 1
    return list(logged), without


def log_source(logged: Sequence[Logged], pool: Pool) -> Iterator[PseudoQuery]:
    """Yield the logged queries whose answers are in ``pool``. The answers are not changed.

    A query on several lines has the answers of all its lines.
    """
    by_id = {passage.id: position for position, passage in enumerate(pool.passages)}
    answers: dict[str, dict[int, None]] = {}
    for one in logged:
        found = [by_id[one.answer]] if one.answer in by_id else pool.files.get(one.answer, ())
        answers.setdefault(one.query, {}).update(dict.fromkeys(found))
    for query, positions in answers.items():
        if positions:
            yield PseudoQuery(query, tuple(positions), {})


def _columns(line: str) -> tuple[str, str]:
    query, _, answer = line.partition("\t")
    return query.strip(), answer.partition("\t")[0].strip()


def _object(line: str, place: str) -> tuple[str, str]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place} is not a valid JSON object: {error}") from None
    values = [
        next((fields[key] for key in keys if isinstance(fields.get(key), str)), "")
        for keys in (_QUERY_KEYS, _ANSWER_KEYS)
    ]
    return values[0].strip(), values[1].strip()
