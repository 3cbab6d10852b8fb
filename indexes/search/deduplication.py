"""Detection of near-duplicate texts by their words.

A word of a text is covered by an earlier text if it belongs to a run of three words (a shingle: Broder 1997, "On the
resemblance and containment of documents") that the earlier text contains too. This is containment, which is not
symmetric: a part of an earlier text is its near-duplicate, but a longer text that begins like an earlier one is not.
"""

from __future__ import annotations

import re
import unicodedata

SHINGLE_WORDS = 3
LEAST_WORDS = 10
"""Texts with fewer words are near-duplicates only of texts with the same words; many texts would contain them."""
EXACT_WORDS = 30
"""Beyond this number of words, one word in :data:`WORDS_PER_NEW_ONE` may be new. Up to it, none may be."""
WORDS_PER_NEW_ONE = 10
WORDS_PER_NEW_NUMBER = 100
"""Words per new number that a near-duplicate may contain. Table rows that differ by a number are not duplicates."""

_BITS = 32
"""Bits for the number of a word. No memory can hold so many different words."""

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Kana and Han, which are written without spaces. Each character counts as a word."""
_WORD = re.compile(
    r"[-+−]?\b\d(?:[0-9A-Za-z_.,:/+−-]*[0-9A-Za-z_])?"  # a number with its sign, a date, a version
    rf"|[{_ALONE}]|[^\W{_ALONE}]+"
    r"|[-+*/%&|^!<>=]?=|[<>]"  # operators, in which lines of code may differ
)


class NearDuplicates:
    """Texts in order, each either kept or a near-duplicate of a text that was kept before."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._same_words: dict[tuple[str, ...], int] = {}
        self._numbers: dict[str, int] = {}
        self._kept: list[set[int]] = []
        self._holders: dict[int, list[int]] = {}

    def place(self, text: str) -> int | None:
        """Return the number of the first kept text that ``text`` nearly duplicates, or keep ``text`` and return None.

        Kept texts are numbered from 0.
        """
        if text in self._seen:
            return self._seen[text]
        words = words_of(text)
        shingles = self._shingles(words)
        found = self._same_words.get(words) if words else None
        if found is None and len(words) >= LEAST_WORDS:
            found = next((kept for kept in self._likely(words, shingles) if self._covers(kept, words, shingles)), None)
        self._seen[text] = len(self._kept) if found is None else found
        if found is None:
            self._keep(words, shingles)
        return found

    def _shingles(self, words: tuple[str, ...]) -> list[int]:
        """Return a number for each run of three words; only equal runs have equal numbers."""
        known = self._numbers
        numbers = [known.setdefault(word, len(known)) for word in words]
        return [
            first << 2 * _BITS | second << _BITS | third
            for first, second, third in zip(numbers, numbers[1:], numbers[2:], strict=False)
        ]

    def _keep(self, words: tuple[str, ...], shingles: list[int]) -> None:
        number = len(self._kept)
        self._same_words.setdefault(words, number)
        self._kept.append(set(shingles))
        for shingle in self._kept[-1]:
            self._holders.setdefault(shingle, []).append(number)

    def _likely(self, words: tuple[str, ...], shingles: list[int]) -> list[int]:
        """Return the numbers of the kept texts that may cover ``words``, in ascending order.

        A text that leaves at most n words uncovered covers at least one of any n + 1 words. This takes the n + 1 words
        that the fewest texts cover.
        """
        most_new = _most_new(len(words))
        holders = [self._holders.get(shingle, ()) for shingle in shingles]
        if len(words) - SHINGLE_WORDS * sum(map(bool, holders)) > most_new:
            return []
        covering = [holders[max(i - SHINGLE_WORDS + 1, 0) : i + 1] for i in range(len(words))]
        rarest = sorted(range(len(words)), key=lambda i: sum(map(len, covering[i])))[: most_new + 1]
        return sorted({kept for i in rarest for some in covering[i] for kept in some})

    def _covers(self, kept: int, words: tuple[str, ...], shingles: list[int]) -> bool:
        """Return whether the text with the number ``kept`` covers ``words``, except for as many as may be new."""
        covered = [False] * len(words)
        for i, shingle in enumerate(shingles):
            if shingle in self._kept[kept]:
                covered[i : i + SHINGLE_WORDS] = [True] * SHINGLE_WORDS
        new = [word for word, is_covered in zip(words, covered, strict=True) if not is_covered]
        new_numbers = sum(any(character.isnumeric() for character in word) for word in new)
        return len(new) <= _most_new(len(words)) and new_numbers <= len(words) // WORDS_PER_NEW_NUMBER


def words_of(text: str) -> tuple[str, ...]:
    """Return the words that texts are compared by: no case, punctuation or markup; numbers keep their signs."""
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def _most_new(words: int) -> int:
    return max(words - EXACT_WORDS, 0) // WORDS_PER_NEW_ONE
