"""Read dictionary files: TSV, JSON lines, WordNet, Oxford, dictd, StarDict, and glossaries in Markdown.

Formats: the Oxford dictionary as published by Ishiwatari et al. 2019, WordNet's wndb(5WN), dictd, and StarDict's
``StarDictFileFormat``. Debian's package ``wordnet-base`` installs the files of WordNet in ``/usr/share/wordnet``.
"""

from __future__ import annotations

import gzip
import html
import re
import string
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragembed.documents.readers.markdown import fence_end, opens_fence, table_end, table_starts
from ragembed.errors import DictionaryError
from ragembed.evaluation.inputs import json_object, lines


@dataclass(frozen=True, slots=True)
class Sense:
    """An entry with one definition, as in a file. ``origin`` is the file and the position in it.

    The definition is empty if the file has none for the entry.
    """

    entry: str
    definition: str
    origin: str


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
        texts = isinstance(definitions, list) and all(isinstance(definition, str) for definition in definitions)
        if not isinstance(row.get("entry"), str) or not texts:
            raise DictionaryError(
                f"{origin}: a value is not a string: expected an object such as "
                "{'entry': 'giraffe', 'definition': 'a long-necked African animal'}"
            )
        yield from (Sense(row["entry"], each, origin) for each in definitions or [""])


OXFORD_FILES = ("train.txt", "valid.txt", "test.txt")
_OXFORD_DEFINITION = 3


def read_oxford(folder: Path) -> Iterator[Sense]:
    """Yield the senses of lines of the form entry%number, part of speech, source, definition, ..., with tabs."""
    for file in (folder / name for name in OXFORD_FILES):
        for number, line in lines(file):
            fields, origin = line.split("\t"), f"{file}, line {number}"
            if len(fields) <= _OXFORD_DEFINITION or "%" not in fields[0]:
                raise DictionaryError(
                    f"{origin}: got {line[:80]!r}: expected entry%number, part of speech, source and definition, "
                    "separated by tabs"
                )
            yield Sense(fields[0].rpartition("%")[0], fields[_OXFORD_DEFINITION], origin)


WORDNET_FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
_WORDS_AT = 4  # the field of the first word
_MARKER = re.compile(r"\((?:a|p|ip)\)$")  # the allowed syntactic position of an adjective
_EXAMPLES = re.compile(r'[;:]\s*"')


def read_wordnet(folder: Path) -> Iterator[Sense]:
    """Yield one sense per word of each synset, with the gloss up to the first example."""
    for name in WORDNET_FILES:
        file = folder / name
        if not file.is_file():
            raise DictionaryError(f"{folder} has no {name}: expected WordNet's {', '.join(WORDNET_FILES)}")
        with file.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if not line.startswith(" "):
                    yield from _synset(line, f"{file}, line {number}")


def _synset(line: str, origin: str) -> Iterator[Sense]:
    data, bar, gloss = line.partition(" | ")
    fields = data.split(" ")
    try:
        count = int(fields[3], 16)
        words = [fields[_WORDS_AT + 2 * i] for i in range(count)]
    except (IndexError, ValueError) as error:
        raise DictionaryError(f"{origin}: expected a synset in WordNet's format, found {line[:80]!r}") from error
    if not bar:
        raise DictionaryError(f"{origin}: the synset of {words[:1]} has no gloss: expected one after ' | '")
    definition = _EXAMPLES.split(gloss, maxsplit=1)[0].strip().rstrip(";").rstrip()
    for word in words:
        yield Sense(_MARKER.sub("", word).replace("_", " "), definition, origin)


_DIGITS = {
    digit: value for value, digit in enumerate(f"{string.ascii_uppercase}{string.ascii_lowercase}{string.digits}+/")
}
_ABOUT = ("00-database", "00database")


def read_dictd(index: Path) -> Iterator[Sense]:
    """Yield one sense per headword of ``NAME.index``: the article, without a first line that repeats the headword."""
    articles = read_packed(index.with_suffix(".dict"))
    for number, line in lines(index):
        fields = line.split("\t")
        origin = f"{index}, line {number}"
        if len(fields) not in (3, 4):
            raise DictionaryError(
                f"{origin}: {len(fields)} fields: expected headword, offset and length, separated by tabs"
            )
        if fields[0].startswith(_ABOUT):
            continue
        offset, length = (_base64_number(field, origin) for field in fields[1:3])
        if offset + length > len(articles):
            raise DictionaryError(
                f"{origin}: the article of {fields[0]!r} ends at byte {offset + length:,}, but the file has only "
                f"{len(articles):,} bytes"
            )
        entry = fields[3] if len(fields) == 4 else fields[0]
        article = articles[offset : offset + length].decode("utf-8", "replace")
        first, _, rest = article.strip().partition("\n")
        repeats = rest.strip() and first.strip().lower().startswith(entry.strip().lower())
        yield Sense(entry, rest if repeats else article, origin)


def read_packed(plain: Path, suffix: str = ".dz") -> bytes:
    """Return the content of ``plain``, or of the same file with a further suffix (gzip, or dictzip, a form of it)."""
    packed = plain.with_name(f"{plain.name}{suffix}")
    try:
        if plain.is_file():
            return plain.read_bytes()
        return gzip.decompress(packed.read_bytes())
    except FileNotFoundError:
        raise DictionaryError(f"{plain.parent} has neither {plain.name} nor {packed.name}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DictionaryError(f"{packed} cannot be unpacked: {error}") from error


def _base64_number(text: str, origin: str) -> int:
    value = 0
    for digit in text:
        if digit not in _DIGITS:
            raise DictionaryError(f"{origin}: {text!r} is not a number in the base 64 of dictd")
        value = 64 * value + _DIGITS[digit]
    return value


_PLAIN, _MARKED_UP = "mlw", "ghx"
_MARKUP = re.compile(r"<[^>]*>")


def read_stardict(ifo: Path) -> Iterator[Sense]:
    """Yield one sense per word of the index, with the text of its article, without markup and pictures."""
    fields = dict(line.split("=", 1) for _, line in lines(ifo) if "=" in line)
    bits = fields.get("idxoffsetbits", "32").strip()
    if bits not in ("32", "64"):
        raise DictionaryError(f"{ifo}: idxoffsetbits is {bits!r}: expected 32 or 64")
    types = fields.get("sametypesequence", "").strip()
    articles = read_packed(ifo.with_suffix(".dict"))
    for word, offset, size in _index_entries(read_packed(ifo.with_suffix(".idx"), ".gz"), int(bits) // 8, ifo):
        if offset + size > len(articles):
            raise DictionaryError(
                f"{ifo}: the article of {word!r} ends at byte {offset + size:,}, but the file has only "
                f"{len(articles):,} bytes"
            )
        yield Sense(
            word, " ".join(_article_texts(articles[offset : offset + size], types, f"{ifo}, {word!r}")), str(ifo)
        )


def _index_entries(data: bytes, width: int, ifo: Path) -> Iterator[tuple[str, int, int]]:
    at = 0
    while at < len(data):
        end = data.find(b"\0", at)
        stop = end + 1 + width + 4
        if end < 0 or stop > len(data):
            raise DictionaryError(f"{ifo.with_suffix('.idx')} is truncated at byte {at:,} of {len(data):,}")
        numbers = data[end + 1 : stop]
        word = data[at:end].decode("utf-8", "replace")
        yield word, int.from_bytes(numbers[:width], "big"), int.from_bytes(numbers[width:], "big")
        at = stop


def _article_texts(article: bytes, types: str, origin: str) -> Iterator[str]:
    """Yield the texts of an article. ``types`` are the types of its fields, or empty if each field has its own."""
    at, number = 0, 0
    while at < len(article) or number < len(types):
        if types:
            if number == len(types):
                return
            kind, number = types[number], number + 1
        else:
            kind, at = chr(article[at]), at + 1
        last = bool(types) and number == len(types)
        value, at = _field(article, at, kind, last, origin)
        if kind in _PLAIN:
            yield value.decode("utf-8", "replace")
        elif kind in _MARKED_UP:
            yield html.unescape(_MARKUP.sub(" ", value.decode("utf-8", "replace")))


def _field(article: bytes, at: int, kind: str, last: bool, origin: str) -> tuple[bytes, int]:
    """Return the value of a field, and the offset of the next field."""
    if last:
        return article[at:], len(article)
    if kind.isupper():
        start = at + 4
        size = int.from_bytes(article[at:start], "big")
        if start + size > len(article):
            raise DictionaryError(f"{origin}: a field of type {kind!r} has {size:,} bytes: it exceeds the article")
        return article[start : start + size], start + size
    if not kind.islower():
        raise DictionaryError(f"{origin}: unknown field type {kind!r}: expected a letter")
    end = article.find(b"\0", at)
    stop = len(article) if end < 0 else end
    return article[at:stop], stop + 1


TERMS = ("term", "entry", "word", "concept", "name", "abbreviation", "acronym", "expression")
DEFINITIONS = ("definition", "meaning", "description", "explanation")

_DEFINITION = re.compile(r" {0,3}:[ \t]+(\S.*)$")
_CELL_END = re.compile(r"(?<!\\)\|")
_LINK = re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_CODE = re.compile(r"(`+)(.+?)\1")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|_{1,3})(?=\S)(.+?)(?<=\S)\1(?![\w*])")
_TAG = re.compile(r"</?[A-Za-z][^>]*>")


def read_markdown(path: Path) -> Iterator[Sense]:
    """Yield the senses of the definition lists and tables of a file, in file order."""
    numbered = [line for _, line in lines(path)]
    number = 0
    while number < len(numbered):
        stop = number + 1
        if opens_fence(numbered[number]):
            stop = fence_end(numbered, number)
        elif table_starts(numbered, number):
            stop = table_end(numbered, number)
            yield from _table_senses(numbered[number:stop], number, path)
        elif number and (first := _term_above(numbered, number)) is not None:
            stop, definitions = _definitions(numbered, number)
            for term_at in range(first, number):
                if numbered[term_at].strip():
                    term = plain_text(numbered[term_at])
                    yield from (Sense(term, text, f"{path}, line {term_at + 1}") for text in definitions)
        number = stop


def plain_text(markdown: str) -> str:
    """Return the visible text of one line: without tags and without the markup of links, emphasis and code."""
    text = _LINK.sub(r"\1", markdown)
    text = _CODE.sub(r"\2", text)
    text = _EMPHASIS.sub(r"\2", text)
    return " ".join(_TAG.sub(" ", text).replace("\\|", "|").split())


def _term_above(numbered: Sequence[str], number: int) -> int | None:
    """Return the first line of the terms above the definition at ``number``, or None if there is none.

    The terms are consecutive lines directly above, or one line followed by a blank line.
    """
    if not _DEFINITION.match(numbered[number]):
        return None
    above = number - 1
    if not numbered[above].strip():
        above -= 1
        return above if above >= 0 and _is_term(numbered[above]) else None
    first = number
    while first > 0 and _is_term(numbered[first - 1]):
        first -= 1
    return first if first < number else None


def _is_term(line: str) -> bool:
    return bool(line.strip()) and line[0] not in " \t:#>|"


def _definitions(numbered: Sequence[str], first: int) -> tuple[int, list[str]]:
    """Return the end of the definitions that start at ``first``, and their texts."""
    texts: list[list[str]] = []
    number = first
    while number < len(numbered):
        line = numbered[number]
        if begun := _DEFINITION.match(line):
            texts.append([begun[1]])
        elif line.strip() and (line[0] in " \t" or numbered[number - 1].strip()):
            texts[-1].append(line)
        elif line.strip() or not _continues(numbered, number):
            break
        number += 1
    return number, [plain_text(" ".join(part.strip() for part in parts)) for parts in texts]


def _continues(numbered: Sequence[str], blank: int) -> bool:
    """Return whether another definition, or another paragraph of one, follows the blank line."""
    following = numbered[blank + 1] if blank + 1 < len(numbered) else ""
    return bool(_DEFINITION.match(following)) or (bool(following.strip()) and following[0] in " \t")


def _table_senses(rows: Sequence[str], first: int, path: Path) -> Iterator[Sense]:
    header = [cell.lower() for cell in _cells(rows[0])]
    term = next((i for i, cell in enumerate(header) if cell in TERMS), None)
    definition = next((i for i, cell in enumerate(header) if cell in DEFINITIONS), None)
    if term is None or definition is None:
        return
    for number, row in enumerate(rows[2:], first + 3):
        cells = _cells(row)
        if len(cells) > max(term, definition) and any(cells):
            yield Sense(cells[term], cells[definition], f"{path}, line {number}")


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    parts = _CELL_END.split(inner)
    return [plain_text(cell) for cell in (parts[:-1] if not parts[-1].strip() else parts)]
