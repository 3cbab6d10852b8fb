"""Normalise the texts that are searched and embedded, and queries. Of ASCII text, only divided words change."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

from ragembed.documents.model import Chunk

_KEPT = (
    # Free-standing accents: NFKC makes each a space and a mark, which would divide "don´t".
    "\u00a8\u00af\u00b4\u00b8\u02d8-\u02dd\u037a\u0384\u0385\u1fbd\u1fbf-\u1fc1\u1fcd-\u1fcf\u1fdd-\u1fdf\u1fed\u1fee"
    "\u1ffd\u1ffe\u2017\u203e\u309b\u309c\ufc5e-\ufc63\ufe49-\ufe4c\ufe70\ufe72\ufe74\ufe76\ufe78\ufe7a\ufe7c\ufe7e"
    "\uffe3"
    # Fractions and trademark signs: NFKC makes "2½" "21⁄2" and "Java™" "JavaTM".
    "\u00bc-\u00be\u2150-\u215f\u2189\u2120\u2122"
    # Punctuation, which no search needs and models know as it is.
    "\u037e\u0387\u0f0c\u2011\u2024-\u2026\u2033\u2034\u2036\u2037\u203c\u2047-\u2049\u2057\u207d\u207e\u208d\u208e"
    "\u2329\u232a\ufe10-\ufe19\ufe30-\ufe44\ufe47\ufe48\ufe4d-\ufe52\ufe54-\ufe61\ufe63\ufe68\ufe6a\ufe6b"
    "\uff01-\uff03\uff05-\uff0a\uff0c-\uff0f\uff1a\uff1b\uff1f\uff20\uff3b-\uff3d\uff3f\uff5b\uff5d\uff5f-\uff65"
)
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]+")
_RAISED, _LOWERED = (
    re.compile(r"(?<=\d)(?=[\xb2\xb3\xb9\u2070\u2074-\u207b])"),
    re.compile(r"(?<=\d)(?=[\u2080-\u208b])"),
)
"""The end of a number with an exponent or an index, which NFKC would make more digits of it."""
_RUN = re.compile(f"[\x00-\x7f]?[^\x00-\x7f{_KEPT}]+")
"""Characters that may change, with the ASCII letter before them, which a combining mark would change."""

_MOST_MARKS = 100
"""Number of successive combining marks that Python sorts together, in quadratic time. No word has as many."""
_MANY_MARKS = re.compile(b"[^\\0]{%d,}" % (_MOST_MARKS + 1))
_NEW_MARKS = dict.fromkeys((0xF73, 0xF75, 0xF81, 0xFF9E, 0xFF9F), "\u0301")
"""The characters that NFKC makes combining marks, as one of them."""
_DIVIDER = "\u034f"  # COMBINING GRAPHEME JOINER, over which marks are not sorted (UAX #15, Stream-Safe Text Format)
_BLOCK = 1 << 16

_SOFT_HYPHEN = "\u00ad"
_HYPHENS = f"\\-\u2010\u2011{_SOFT_HYPHEN}"
_LINE_END = re.compile(rf"(?<![\w{_HYPHENS}])([^\W\d_]+)([{_HYPHENS}])[ \t]*\n[ \t]*([^\W\d_]+)")
_WORD = re.compile(r"[^\W\d_]+")

Words = frozenset[str]
LineForms = Mapping[str, list[tuple[int, int]]]
"""The forms of a line in a searched text, with start and end in the original text of each of their characters."""


def normalise(text: str) -> str:
    r"""Return ``text`` in Unicode's form NFKC, without soft hyphens and other invisible characters.

    Ligatures become letters, and an exponent stays apart from its number. Punctuation, free-standing accents, fractions
    and trademark signs do not change. The number of lines stays the same.

    >>> from ragembed.documents.normalisation import normalise
    >>> normalise("Uni\ufb01ed Daten\u00adschutz, 10\u2076 m\u00b2")
    'Unified Datenschutz, 10^6 m2'
    """
    return text if text.isascii() else _RUN.sub(lambda run: _normal(run[0]), text)


def normalised_length(text: str) -> int:
    """Return about the number of characters of the normalised text, which is not made as a whole."""
    if text.isascii():
        return len(text)
    return sum(len(normalise(text[start : start + _BLOCK])) for start in range(0, len(text), _BLOCK))


def _normal(run: str) -> str:
    text = _LOWERED.sub("_", _RAISED.sub("^", _INVISIBLE.sub("", run)))
    if len(text) <= _MOST_MARKS:
        return unicodedata.normalize("NFKC", text)
    classes = bytes(map(unicodedata.combining, text.translate(_NEW_MARKS)))
    cuts = [
        cut
        for marks in _MANY_MARKS.finditer(classes)
        for cut in range(marks.start() + _MOST_MARKS, marks.end(), _MOST_MARKS)
    ]
    parts = (text[start:end] for start, end in pairwise([0, *cuts, len(text)]))
    return _DIVIDER.join(unicodedata.normalize("NFKC", part) for part in parts)


def aligned(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the normalised text, and for each of its characters start and end of its origin in ``text``."""
    parts: list[str] = []
    origins: list[tuple[int, int]] = []
    end = 0
    for run in () if text.isascii() else _RUN.finditer(text):
        origins += [(i, i + 1) for i in range(end, run.start())]
        parts.append(text[end : run.start()])
        for start, stop in _clusters(text, *run.span()):
            normal = _normal(text[start:stop])
            parts.append(normal)
            origins += [(start, stop)] * len(normal)
        end = run.end()
    origins += [(i, i + 1) for i in range(end, len(text))]
    return "".join([*parts, text[end:]]), origins


def _clusters(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the smallest parts of a run that can be normalised one by one."""
    starts = [start, *(i for i in range(start + 1, end) if not _continues(text[i])), end]
    clusters = list(pairwise(starts))
    # Some letters compose although they are no marks, such as those of Korean.
    separable = "".join(_normal(text[a:b]) for a, b in clusters) == _normal(text[start:end])
    return clusters if separable else [(start, end)]


def _continues(character: str) -> bool:
    return unicodedata.combining(character) > 0 or _INVISIBLE.match(character) is not None


def line_end_words(texts: Iterable[str]) -> Words | None:
    """Return the lower-case words of a file without halves of words, or None if no line end divides a word."""
    texts = list(texts)
    if not any(map(_is_divided, texts)):
        return None
    return frozenset(word for text in texts for word in _WORD.findall(normalise(_LINE_END.sub(" ", text)).lower()))


def join_line_ends(text: str, words: Words | None) -> str:
    """Join words that are hyphenated at line ends, if ``words`` has the whole one, or neither half."""
    if words is None or not _is_divided(text):
        return text

    def joined(found: re.Match[str]) -> str:
        first, hyphen, second = found.groups()
        return f"{first}{second}\n" if _belong_together(first, hyphen, second, words) else found[0]

    return _LINE_END.sub(joined, text)


def _belong_together(first: str, hyphen: str, second: str, words: Words) -> bool:
    if hyphen == _SOFT_HYPHEN:
        return True
    if not second.islower():
        return False
    return (
        normalise(first + second).lower() in words or not {normalise(half).lower() for half in (first, second)} & words
    )


def divided_words(text: str) -> list[tuple[int, int, str]]:
    """Return start, end and normalised whole form of each word that the end of a line may divide."""
    if not _is_divided(text):
        return []
    return [(*found.span(), normalise(found[1] + found[3])) for found in _LINE_END.finditer(text)]


def line_forms(text: str) -> list[LineForms]:
    """Return the forms of each line in a searched text: one, unless a word at its start or end may have been joined."""
    divided = {text.count("\n", 0, found.start()): found for found in _LINE_END.finditer(text)}
    forms: list[LineForms] = []
    start = 0
    for number, line in enumerate(text.split("\n")):
        end = start + len(line)
        above, below = divided.get(number - 1), divided.get(number)
        starts = [start] if above is None else [start, above.end()]
        ends = [range(end, end)] if below is None else [range(end, end), range(*below.span(3))]
        of_line: dict[str, list[tuple[int, int]]] = {}
        for first, rest in product(starts, ends):
            stop = below.end(1) if below is not None and rest else end
            places = [*range(first, stop), *rest]
            original = "".join(text[place] for place in places)
            of_line[original] = [(place, place + 1) for place in places]
            form, origins = aligned(original)
            of_line[form] = [(places[begin], places[last - 1] + 1) for begin, last in origins]
        forms.append(of_line)
        start = end + 1
    return forms


def _is_divided(text: str) -> bool:
    return ("-\n" in text or not text.isascii()) and _LINE_END.search(text) is not None


def normalised(chunk: Chunk, words: Words | None = None) -> Chunk:
    """Return the chunk with its searched text normalised, and with the words of :func:`line_end_words` joined."""
    text = chunk.text if chunk.searched is None else chunk.searched
    searched = normalise(join_line_ends(text, words))
    return chunk if searched == text else replace(chunk, searched=searched)


def normalised_file(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks of a whole file with their searched texts normalised, and with joined words."""
    words = line_end_words(chunk.text for chunk in chunks)
    return [normalised(chunk, words) for chunk in chunks]
