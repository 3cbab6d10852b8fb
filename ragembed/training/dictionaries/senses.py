"""Entries with their definitions: what is trained on.

Source: Liu 2024 (DefSent+), section 3.3: entries of several dictionaries are combined, duplicate definitions of an
entry removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ragembed.errors import DictionaryError


@dataclass(frozen=True, slots=True)
class Sense:
    """An entry and one definition of it, as a file has them; ``origin`` names the file, and the place in it.

    The definition is empty where the file has the entry without one.
    """

    entry: str
    definition: str
    origin: str


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Entries that differ, and the definitions of each that differ: at least one, none of them empty."""

    entries: tuple[str, ...]
    definitions: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise DictionaryError("the dictionary has no entry: expected at least one with a definition")

    def pairs(self) -> Iterator[tuple[int, str]]:
        """Yield the number of an entry and one of its definitions, entry after entry."""
        for number, definitions in enumerate(self.definitions):
            for definition in definitions:
                yield number, definition

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def fingerprint(self) -> str:
        """A hash over entries and definitions, in their order."""
        return hashlib.sha256(json.dumps([self.entries, self.definitions]).encode()).hexdigest()


def merge(senses: Iterable[Sense]) -> Dictionary:
    """Combine equal entries, in the order of their first mention, and drop definitions that an entry has already.

    Texts are equal that differ in white space alone; upper and lower case differ. Raises :class:`DictionaryError` where
    an entry is empty, or has no definition in any file, naming it.
    """
    found: dict[str, dict[str, None]] = {}
    origins: dict[str, str] = {}
    for sense in senses:
        entry, definition = " ".join(sense.entry.split()), " ".join(sense.definition.split())
        if not entry:
            raise DictionaryError(f"{sense.origin}: the entry is empty: expected a word or phrase")
        origins.setdefault(entry, sense.origin)
        definitions = found.setdefault(entry, {})
        if definition:
            definitions[definition] = None
    without = next((entry for entry, definitions in found.items() if not definitions), None)
    if without is not None:
        raise DictionaryError(
            f"{origins[without]}: the entry {without!r} has no definition: give it one, or take it out"
        )
    return Dictionary(tuple(found), tuple(tuple(definitions) for definitions in found.values()))
