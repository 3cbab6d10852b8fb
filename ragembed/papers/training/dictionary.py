"""Entries with their definitions, the training data: read, merged, measured, and held out.

Source: Liu 2024 (DefSent+), section 3.3. Entries of several dictionaries are combined, and duplicate definitions of an
entry are removed.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragembed.errors import ConfigError, DictionaryError
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers.training.dictionary_files import (
    DEFINITIONS,
    OXFORD_FILES,
    TERMS,
    WORDNET_FILES,
    Sense,
    read_dictd,
    read_jsonl,
    read_markdown,
    read_oxford,
    read_stardict,
    read_tsv,
    read_wordnet,
)

_SHARE, _MOST = 20, 1000
_UNKNOWN = ("[UNK]", "<unk>")


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
    """Merge equal entries in the order of their first occurrence, and drop their duplicate definitions."""
    by_entry: dict[str, dict[str, None]] = {}
    origins: dict[str, str] = {}
    for sense in senses:
        entry, definition = " ".join(sense.entry.split()), " ".join(sense.definition.split())
        if not entry:
            raise DictionaryError(f"{sense.origin}: the entry is empty: expected a word or phrase")
        origins.setdefault(entry, sense.origin)
        definitions = by_entry.setdefault(entry, {})
        if definition:
            definitions[definition] = None
    without = next((entry for entry, definitions in by_entry.items() if not definitions), None)
    if without is not None:
        raise DictionaryError(
            f"{origins[without]}: the entry {without!r} has no definition: add one, or remove the entry"
        )
    return Dictionary(tuple(by_entry), tuple(tuple(definitions) for definitions in by_entry.values()))


def statistics(dictionary: Dictionary, lengths: ArrayLike) -> dict[str, int | float]:
    """Return the size of ``dictionary``, as in table 1; ``lengths`` has the tokens of each definition."""
    tokens = np.asarray(lengths)
    longest, median = int(tokens.max()), float(np.median(tokens))
    return {"definitions": len(tokens), "entries": len(dictionary), "max_length": longest, "median_length": median}


READERS: Mapping[str, Callable[[Path], Iterator[Sense]]] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
    ".index": read_dictd,
    ".ifo": read_stardict,
    ".md": read_markdown,
    ".markdown": read_markdown,
}
"""Readers by file suffix."""


def read_dictionaries(paths: Sequence[Path]) -> Dictionary:
    """Read dictionaries of any format and merge them, in the order of their first entries.

    They are files with a suffix in :data:`READERS`, or folders with the WordNet database, the Oxford dictionary or
    Markdown files.
    """
    if not paths:
        raise DictionaryError("no dictionary: expected at least one file or folder")
    senses = {path: list(_senses(path)) for path in paths}
    if empty := next((path for path, found in senses.items() if not found), None):
        hint = f": expected definition lists, or tables with the columns {'|'.join(TERMS)} and {'|'.join(DEFINITIONS)}"
        raise DictionaryError(f"{empty} has no entry{hint if empty.suffix.lower() in ('.md', '.markdown') else ''}")
    return merge(sense for found in senses.values() for sense in found)


def _senses(path: Path) -> Iterator[Sense]:
    if path.is_dir():
        yield from _folder_senses(path)
        return
    if not path.is_file():
        raise DictionaryError(f"the dictionary {path} does not exist: give a file or folder")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DictionaryError(f"{path} has an unknown suffix: expected {', '.join(READERS)}, or the folder of WordNet")
    yield from reader(path)


def _folder_senses(folder: Path) -> Iterator[Sense]:
    for place in (folder, folder / "dict"):
        if (place / WORDNET_FILES[0]).is_file():
            yield from read_wordnet(place)
            return
    if (folder / OXFORD_FILES[0]).is_file():
        yield from read_oxford(folder)
        return
    files = sorted(file for ending in (".md", ".markdown") for file in folder.rglob(f"*{ending}"))
    if not files:
        raise DictionaryError(
            f"the folder {folder} contains no dictionary: expected WordNet's {WORDNET_FILES[0]}, Oxford's "
            f"{OXFORD_FILES[0]}, or Markdown files"
        )
    for file in files:
        yield from read_markdown(file)


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A definition that is excluded from the training, and the numbers of its entries."""

    definition: str
    entries: tuple[int, ...]


def hold_out(dictionary: Dictionary, count: int | None, seed: int) -> tuple[Dictionary, tuple[HeldOut, ...]]:
    """Draw ``count`` definitions at random. Return the dictionary without them, and the drawn definitions.

    A shared definition is removed from all its entries, which must keep another one. By default, a twentieth is drawn,
    at most 1,000.
    """
    owners: dict[str, list[int]] = {}
    for entry, definition in dictionary.pairs():
        owners.setdefault(definition, []).append(entry)
    left = Counter({entry: len(definitions) for entry, definitions in enumerate(dictionary.definitions)})
    wanted = min(_MOST, len(owners) // _SHARE) if count is None else count
    texts = list(owners)
    drawn: dict[str, tuple[int, ...]] = {}
    for number in np.random.default_rng(seed).permutation(len(texts)):
        if len(drawn) == wanted:
            break
        definition = texts[number]
        if all(left[entry] > 1 for entry in owners[definition]):
            drawn[definition] = tuple(owners[definition])
            left.subtract(owners[definition])
    if count is not None and len(drawn) < count:
        raise ConfigError(
            f"cannot hold out {count} definitions: only {len(drawn)} belong to entries with another definition; "
            f"choose at most {len(drawn)}"
        )
    left_over = tuple(tuple(text for text in texts if text not in drawn) for texts in dictionary.definitions)
    return Dictionary(dictionary.entries, left_over), tuple(HeldOut(*item) for item in drawn.items())


def single_tokens(dictionary: Dictionary, tokenizer: TextTokenizer) -> tuple[Dictionary, NDArray[np.int64]]:
    """Return the entries that are single tokens, and the token id of each, for DefSent; equal tokens are merged."""
    by_token: dict[int, tuple[str, dict[str, None]]] = {}
    # With a leading space, as inside a sentence. In a byte-level tokenizer, the token without the space is different.
    for entry, definitions, ids in zip(
        dictionary.entries,
        dictionary.definitions,
        tokenizer.ids([f" {entry}" for entry in dictionary.entries]),
        strict=True,
    ):
        if len(ids) == 1 and tokenizer.names([int(ids[0])])[0] not in _UNKNOWN:
            _, texts_of_token = by_token.setdefault(int(ids[0]), (entry, {}))
            texts_of_token.update(dict.fromkeys(definitions))
    if not by_token:
        raise DictionaryError(
            f"none of {len(dictionary):,} entries is a single token of the model, as DefSent requires: train with "
            "DefSent+ instead"
        )
    entries = tuple(entry for entry, _ in by_token.values())
    texts = tuple(tuple(definitions) for _, definitions in by_token.values())
    return Dictionary(entries, texts), np.array(list(by_token), dtype=np.int64)
