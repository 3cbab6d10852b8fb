"""Pseudo-queries whose answers are known, since they were taken out of them."""

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
"""Words of its text that a chunk must keep when a query was taken out of it."""


@dataclass(frozen=True, slots=True)
class PseudoQuery:
    """A text that is searched for, and the passages that answer it.

    Parameters
    ----------
    text
        The query.
    answers
        Positions in the pool.
    changed
        By position, what stands in place of passages while this query is searched for: the answers without the
        query, and other passages that would give it away.
    """

    text: str
    answers: tuple[int, ...]
    changed: Mapping[int, Chunk]


Source = Callable[[Pool, int], Iterator[PseudoQuery]]
"""Yields all pseudo-queries of one kind that a pool has; the second argument is the seed of choices."""


@dataclass(frozen=True, slots=True)
class QuerySet:
    """The queries of all sources: ``source``, ``half`` and ``run`` of each are in the same order."""

    queries: Sequence[PseudoQuery]
    source: Sequence[str]
    half: Sequence[int]
    run: Sequence[int]

    @property
    def sources(self) -> list[str]:
        """Names of the sources that have queries, in their order."""
        return list(dict.fromkeys(self.source))

    def of_half(self, half: int) -> QuerySet:
        """Return those of one half."""
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
    """Draw up to ``limit`` queries of each source, and return them with how many each source has in each half.

    A query whose text is found with other answers is left out, as is one that leaves less than ``LEAST_LEFT`` words of
    a chunk. The queries of one source change at most ``changed_limit`` passages in all. A source with less than
    ``least`` queries in one of the halves is counted and left out. Which are drawn depends on the texts and the seed.
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
    """Return the position of the text that the seed chooses, whatever their order."""
    return min(range(len(texts)), key=lambda i: (key_of(texts[i], seed), i))


def key_of(text: str, seed: int, name: str = "") -> bytes:
    """Return a hash of a text by which some are chosen, as good as drawn by lot."""
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
    """A query and what answers it: a file of the corpus by its name, or a chunk by its id."""

    query: str
    answer: str


def read_log(path: Path) -> tuple[list[Logged], int]:
    """Read a file of queries with their answers, and return them with how many lines have no answer.

    A line is a query, a tab, and the name of a file as the store has it or the id of a chunk; or a JSON object with
    the keys ``query`` and ``path`` or ``id``. Blank lines are skipped, and repeated ones. Raises :class:`ConfigError`
    naming the file, and the line where there is one, if it cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the query log {path} cannot be read: {error}; expected a text file in UTF-8") from error
    logged: dict[Logged, None] = {}
    without = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        query, answer = _object(line, f"{path}:{number}") if line.lstrip().startswith("{") else _columns(line)
        if not query:
            raise ConfigError(f"{path}:{number} has no question: expected QUESTION<tab>FILE, or a JSON object")
        if answer:
            logged[Logged(query, answer)] = None
        else:
            without += 1
    return list(logged), without


def log_source(logged: Sequence[Logged], pool: Pool) -> Iterator[PseudoQuery]:
    """Yield the queries whose answers are in ``pool``; nothing is taken out of these.

    A query with several lines has all of their answers.
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
        raise ConfigError(f"{place} is no JSON object: {error}") from None
    values = [
        next((fields[key] for key in keys if isinstance(fields.get(key), str)), "")
        for keys in (_QUERY_KEYS, _ANSWER_KEYS)
    ]
    return values[0].strip(), values[1].strip()
