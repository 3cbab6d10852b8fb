"""A log of questions whose answers are known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.errors import ConfigError
from ragembed.tuning.passages import Pool
from ragembed.tuning.queries import PseudoQuery

_QUESTION_KEYS, _ANSWER_KEYS = ("query", "question", "text"), ("path", "file", "id", "answer")


@dataclass(frozen=True, slots=True)
class Logged:
    """A question and what answers it: a file of the corpus by its name, or a chunk by its id."""

    question: str
    answer: str


def read_log(path: Path) -> tuple[list[Logged], int]:
    """Read a file of questions with their answers, and return them with how many lines have no answer.

    A line is a question, a tab, and the name of a file as the store has it or the id of a chunk; or a JSON object with
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
        question, answer = _object(line, f"{path}:{number}") if line.lstrip().startswith("{") else _columns(line)
        if not question:
            raise ConfigError(f"{path}:{number} has no question: expected QUESTION<tab>FILE, or a JSON object")
        if answer:
            logged[Logged(question, answer)] = None
        else:
            without += 1
    return list(logged), without


def log_source(logged: Sequence[Logged], pool: Pool) -> Iterator[PseudoQuery]:
    """Yield the questions whose answers are in ``pool``; nothing is taken out of these.

    A question with several lines has all of their answers.
    """
    by_id = {passage.id: position for position, passage in enumerate(pool.passages)}
    answers: dict[str, dict[int, None]] = {}
    for one in logged:
        found = [by_id[one.answer]] if one.answer in by_id else pool.files.get(one.answer, ())
        answers.setdefault(one.question, {}).update(dict.fromkeys(found))
    for question, positions in answers.items():
        if positions:
            yield PseudoQuery(question, tuple(positions), {})


def _columns(line: str) -> tuple[str, str]:
    question, _, answer = line.partition("\t")
    return question.strip(), answer.partition("\t")[0].strip()


def _object(line: str, place: str) -> tuple[str, str]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place} is no JSON object: {error}") from None
    values = [
        next((fields[key] for key in keys if isinstance(fields.get(key), str)), "")
        for keys in (_QUESTION_KEYS, _ANSWER_KEYS)
    ]
    return values[0].strip(), values[1].strip()
