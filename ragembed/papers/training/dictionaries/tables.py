"""Read dictionaries from tables: TSV with one entry and definition per line, and JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ragembed.errors import DictionaryError
from ragembed.evaluation.lines import json_object, lines
from ragembed.papers.training.dictionaries.senses import Sense

_HEADER = ("entry", "definition")
_FIELDS = ("definition", "definitions")


def read_tsv(path: Path) -> Iterator[Sense]:
    """Yield the senses of lines of the form ``entry<TAB>definition``. A first line with these two words is a header."""
    for number, line in lines(path):
        if not line.strip():
            continue
        fields = line.split("\t")
        if len(fields) != 2:
            raise DictionaryError(
                f"{path}, line {number}: {len(fields)} fields: expected an entry and a definition, separated by a tab"
            )
        if number > 1 or tuple(field.strip().lower() for field in fields) != _HEADER:
            yield Sense(fields[0], fields[1], f"{path}, line {number}")


def read_jsonl(path: Path) -> Iterator[Sense]:
    """Yield the senses of JSON objects with ``entry``, and ``definition`` (a string) or ``definitions`` (a list)."""
    for number, line in lines(path):
        if not line.strip():
            continue
        origin = f"{path}, line {number}"
        row = json_object(path, number, line)
        given = [name for name in _FIELDS if name in row]
        if len(given) != 1:
            raise DictionaryError(f"{origin}: expected exactly one of the fields {' and '.join(map(repr, _FIELDS))}")
        value = row[given[0]]
        definitions = value if given[0] == "definitions" else [value]
        texts = isinstance(definitions, list) and all(isinstance(each, str) for each in definitions)
        if not isinstance(row.get("entry"), str) or not texts:
            raise DictionaryError(
                f"{origin}: a value is not a string: expected an object such as "
                "{'entry': 'giraffe', 'definition': 'a long-necked African animal'}"
            )
        yield from (Sense(row["entry"], each, origin) for each in definitions or [""])
