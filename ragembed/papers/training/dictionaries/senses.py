"""Entries with their definitions, the training data.

Source: Liu 2024 (DefSent+), section 3.3. Entries of several dictionaries are combined, and duplicate definitions of an
entry are removed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ragembed.errors import DictionaryError


@dataclass(frozen=True, slots=True)
class Sense:
    """An entry with one definition, as in a file. ``origin`` is the file and the position in it.

    The definition is empty if the file has none for the entry.
    """

    entry: str
    definition: str
    origin: str


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Distinct entries, each with at least one definition; the definitions of an entry are different and not empty."""

    entries: tuple[str, ...]
    definitions: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise DictionaryError("the dictionary has no entry: expected at least one with a definition")

    def pairs(self) -> Iterator[tuple[int, str]]:
        """Yield the number of the entry and the text of each definition, in the order of the entries."""
        for number, definitions in enumerate(self.definitions):
            for definition in definitions:
                yield number, definition

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 hash of all entries and definitions in order, as a hexadecimal string."""
        return hashlib.sha256(json.dumps([self.entries, self.definitions]).encode()).hexdigest()


def merge(senses: Iterable[Sense]) -> Dictionary:
    """Merge equal entries, in the order of their first occurrence, and drop duplicate definitions of an entry.

    Texts that differ only in white space are equal. Upper and lower case differ. Raises :class:`DictionaryError` if an
    entry is empty, or has no definition in any file. The message names the entry.
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
            f"{origins[without]}: the entry {without!r} has no definition: add one, or remove the entry"
        )
    return Dictionary(tuple(found), tuple(tuple(definitions) for definitions in found.values()))
