"""The part of a chunk that is shown: its lines with most words of the query, and where those words are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise

from ragembed.errors import MissingExtraError
from ragembed.indexes.lexical.indexed_terms import IndexedTerms
from ragembed.indexes.text.analyzer import Analyzer, letters_of, of_language, words_or_runs
from ragembed.indexes.text.stemming import ENGLISH, NO_STEMMER

Terms = frozenset[str]

_SHORT = 2
"""Letters of words that are left out of a query with longer words: most of them are articles and prepositions."""

MAX_LINES, MAX_CHARACTERS = 4, 320


class QueryWords:
    """The words of a query, found in ``texts`` by the terms that a store in ``language`` searches for.

    Without the language's stemmer, which dense search does not need, words are compared without their stems.
    """

    def __init__(self, query: str, texts: Iterable[str], language: str = ENGLISH) -> None:
        try:
            analyzer = of_language(language)
        except MissingExtraError:
            language, analyzer = NO_STEMMER, of_language(NO_STEMMER)
        asked = _words_of_query(query)
        words = list({*asked, *(word for text in texts for _, _, word in _words(text))})
        self._terms = dict(zip(words, _terms_of_each(words, language, analyzer), strict=True))
        self._wanted: Terms = frozenset().union(*(self._terms[word] for word in asked))

    def places(self, text: str) -> list[tuple[int, int]]:
        """Return ``(start, end)`` of the words of the query in ``text``, in order; none overlaps another."""
        places: list[tuple[int, int]] = []
        for start, end, word in _words(text):
            if not self._found(word):
                continue
            if places and start < places[-1][1]:
                start = places.pop()[0]
            places.append((start, end))
        return places

    def snippet(self, text: str) -> str:
        """Return the best run of whole lines of ``text``: verbatim, at most ``MAX_LINES`` lines.

        Best is the one with most different words of the query, the first of equals. A single line that is longer than
        ``MAX_CHARACTERS`` is cut, at words, around the words of the query.
        """
        lines = text.split("\n")
        found = [Terms().union(*(self._found(word) for _, _, word in _words(line))) for line in lines]
        starts = range(max(len(lines) - MAX_LINES, 0) + 1)
        start = max(starts, key=lambda i: (len(Terms().union(*found[i : i + MAX_LINES])), -i))
        stop = min(start + MAX_LINES, len(lines))
        while stop - start > 1 and sum(map(len, lines[start:stop])) > MAX_CHARACTERS:
            if len(found[start]) < len(found[stop - 1]):
                start += 1
            else:
                stop -= 1
        block = "\n".join(lines[start:stop]).strip("\n")
        return block if len(block) <= MAX_CHARACTERS else self._cut(block)

    def _found(self, word: str) -> Terms:
        return self._terms.get(word, Terms()) & self._wanted

    def _cut(self, line: str) -> str:
        places = [start for start, _ in self.places(line)]
        window = MAX_CHARACTERS
        best = max([0, *places], key=lambda at: (sum(at <= place < at + window for place in places), -at))
        start = max(best - window // 8, 0)
        end = min(start + window, len(line))
        if start > 0:
            start = line.find(" ", start, best) + 1 or start
        if end < len(line):
            end = line.rfind(" ", start, end) if " " in line[start:end] else end
        return line[start:end].strip()


def _terms_of_each(words: list[str], language: str, analyzer: Analyzer) -> list[Terms]:
    return IndexedTerms(language).of_each([analyzer.of_phrase(word).terms for word in words])


def _words_of_query(query: str) -> set[str]:
    """Return the words of a query, and of scripts without spaces pairs of letters, or a letter that stands alone."""
    words, short, pairs = set(), set(), set()
    for match in words_or_runs(query):
        if match["run"] is not None:
            letters = letters_of(match[0])
            pairs |= {"".join(pair) for pair in pairwise(letters)} or set(letters)
        elif len(match[0]) > _SHORT or not match[0].isalnum():
            words.add(match[0])
        else:
            short.add(match[0])
    return (words | pairs) or short


def _words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and text of each word, and of scripts without spaces each letter and each pair of letters."""
    for match in words_or_runs(text):
        if match["run"] is None:
            yield match.start(), match.end(), match[0]
            continue
        letters = letters_of(match[0])
        ends = list(accumulate(map(len, letters), initial=match.start()))
        for i, letter in enumerate(letters):
            yield ends[i], ends[i + 1], letter
            if i + 1 < len(letters):
                yield ends[i], ends[i + 2], letter + letters[i + 1]
