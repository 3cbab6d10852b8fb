"""How the languages of a store's texts suit its model and lexical search; doctor, index and reports say the same."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Literal, NamedTuple

import numpy as np

from ragembed.embedder import Embedder
from ragembed.indexes.indexing.commands import NEW_STORE, Commands
from ragembed.indexes.lexical.analyzer import ENGLISH
from ragembed.indexes.storage import catalog
from ragembed.indexes.store import Store
from ragembed.languages import main_language, reads_language
from ragembed.models.multilingual import MULTILINGUAL_MODEL, install_multilingual, packed_weights
from ragembed.printable import counted

PASSAGES, PASSAGE_CHUNKS = 200, 3
"""Number of passages whose language is recognised, and of consecutive chunks in each."""
FOREIGN_ABOVE = 0.05
"""Share of passages in a language that the model was not made for from which it is reported."""

STEMMED = frozenset(
    {
        *("arabic", "czech", "dutch", "french", "german", "greek", "hindi", "italian", "polish", "portuguese"),
        *("russian", "spanish", "swedish", "turkish"),
    }
)
"""Languages that can be recognised and that Snowball stems."""


class LanguageProblem(NamedTuple):
    """A language that does not suit a store. The fields are those of a finding, and the ``settings`` that suit it."""

    id: Literal["language", "word-endings"]
    severity: Literal["problem", "hint"]
    title: str
    detail: str
    command: str
    affected: int
    share: float
    examples: tuple[str, ...]
    settings: str


def languages_of(connection: sqlite3.Connection, together: str | None) -> Counter[str]:
    """Return the number of passages in each language, without those whose language is not recognised.

    Passages are spread evenly over the store. If all are too short, it is ``together``, the language of many texts.
    """
    languages: Counter[str] = Counter()
    keys, _ = catalog.chunk_rows(connection)
    for start in keys[np.linspace(0, len(keys) - 1, min(PASSAGES, len(keys))).astype(np.int64)].tolist():
        records = catalog.chunks_by_key(connection, range(start, start + PASSAGE_CHUNKS))
        first = records[start].source
        language = main_language(record.chunk.text for record in records.values() if record.source == first)
        languages.update([] if language is None else [language])
    return languages or Counter([] if together is None else [together])


def unread_languages(embedder: Embedder, languages: Counter[str]) -> list[str]:
    """Return the languages that the model was not made for, the most frequent first; none if they are rare."""
    others = [] if embedder.is_remote else [name for name in languages if name != ENGLISH]
    unread = [name for name in others if not reads_language(embedder.tokenizer, name)]
    unread.sort(key=lambda name: (-languages[name], name))
    return unread if sum(languages[name] for name in unread) > FOREIGN_ABOVE * languages.total() else []


def language_problems(
    embedder: Embedder, languages: Counter[str], stemmed: str, commands: Commands
) -> list[LanguageProblem]:
    """Compare the languages of the texts with those of the model and of the stemmer; one command is for all problems.

    ``stemmed`` is the language of lexical search.
    """
    if not languages:
        return []
    total = languages.total()
    main, count = languages.most_common(1)[0]
    other_endings = main != stemmed and main in STEMMED and count / total > 0.5
    unread = unread_languages(embedder, languages)
    if not unread and not other_endings:
        return []
    changes = {
        **({"model": MULTILINGUAL_MODEL} if unread else {}),
        **({"language": main} if other_endings else {}),
    }
    settings = " and the ".join(f"{name} {value}" for name, value in changes.items())
    command = commands.again(**changes)
    if unread and packed_weights() is None:
        command = f"{install_multilingual()} && {command}"
    share = sum(languages[name] for name in unread) / total
    problems = [
        LanguageProblem(
            "language",
            "problem",
            f"the model was not made for {', '.join(name.capitalize() for name in unread)}",
            f"Search finds the words of {share:.0%} of the texts, but often not their meaning. A multilingual model "
            f"reads them. {NEW_STORE}",
            command,
            len(unread),
            share,
            tuple(f"{name.capitalize()}: {languages[name]:,} of {counted(total, 'passage')}" for name in unread),
            settings,
        ),
        LanguageProblem(
            "word-endings",
            "problem" if stemmed == ENGLISH else "hint",  # Otherwise somebody has chosen it.
            f"most texts are in {main.capitalize()}, and lexical search is set to {stemmed}",
            f"Lexical and hybrid search miss other forms of the words of a query. {NEW_STORE}",
            command,
            count,
            count / total,
            (),
            settings,
        ),
    ]
    return [problem for problem, found in zip(problems, (unread, other_endings), strict=True) if found]


def language_warnings(store: Store, embedder: Embedder, languages: Counter[str]) -> list[str]:
    """Return a note for whoever indexes texts that do not suit the settings of their store, with the remedy."""
    commands = Commands.of(store)
    problems = [
        problem
        for problem in language_problems(embedder, languages, store.language, commands)
        if problem.severity == "problem"
    ]
    if not problems:
        return []
    if commands.options is None or store.part_record is not None:  # No command made this store alone.
        remedy = f"make a new one with the {problems[0].settings}"
    else:
        remedy = f"run: {problems[0].command}"
    titles = "; ".join(problem.title for problem in problems)
    return [f"{titles}; for a store that suits the texts, {remedy}"]
