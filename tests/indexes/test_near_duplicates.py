"""Near-duplicates by words: which texts are near-duplicates, compared with a reference implementation."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes.search.ranking import LEAST_BODY, NearDuplicates, words_of

PROSE = (
    "The writer takes the lock of the store before it adds a segment, and gives it back when the transaction is "
    "committed. A reader never waits: it sees the generation that was current when it began, whatever the writer does "
    "meanwhile. Where a process is killed between the two, the next writer finds files that no row of the database "
    "names, and sweeps them. Nothing else is needed, since the database is the only place where anything is committed; "
    "all other files are written under temporary names, flushed to the disk, and renamed before a row names them. So a "
    "copy of the folder that is made while nobody writes is a whole store, and may be moved to wherever it is needed."
)
ROW = (
    "code: {}, severity: error, message: the service could not be started because the network name was not found, "
    "remedy: check that the server is running and that the name is right, then start the service again by hand"
)


def is_duplicate(later, earlier):
    near = NearDuplicates()
    assert near.place(earlier) is None
    return near.place(later) is not None


def without(text, *places):
    return " ".join(word for i, word in enumerate(text.split()) if i not in places)


def with_words(text, words, *places):
    return " ".join(words if i in places else word for i, word in enumerate(text.split()))


@pytest.mark.parametrize(
    "later",
    [
        "> **" + PROSE.replace(",", " –") + "**",
        with_words(PROSE, "never", 5, 40, 80, 100),
        without(PROSE, 20, 21, 22),
        " ".join(PROSE.split()[30:100]),
        "Copied from elsewhere. " + PROSE,
    ],
)
def test_texts_without_new_words_are_duplicates(later):
    assert is_duplicate(later, PROSE)


@pytest.mark.parametrize(
    "later",
    [
        "",
        "something else entirely",
        PROSE + " But in a network file system another lock is taken, too, and its owner is asked every second.",
        with_words(PROSE, "never", *range(0, 120, 7)),
        with_words(PROSE, "2.1", 30, 60, 90),
        " ".join(PROSE.split()[::-1]),
    ],
)
def test_texts_with_new_words_are_not_duplicates(later):
    assert not is_duplicate(later, PROSE)


def test_a_part_duplicates_the_whole_but_not_vice_versa():
    part = PROSE[: len(PROSE) // 2]
    assert is_duplicate(part, PROSE)
    assert not is_duplicate(PROSE, part)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0x80070005", "0x80070006"),
        ("5", "-5"),
        ("2024-05-01", "2024-05-02"),
    ],
)
@pytest.mark.parametrize("row", ["Error {}: access denied", f"{ROW}; {{}}, see the manual of the server"])
def test_rows_with_different_numbers_are_not_duplicates(row, one, other):
    texts = [row.format(*[number] * row.count("{}")) for number in (one, other)]
    assert not is_duplicate(*texts)
    assert not is_duplicate(*reversed(texts))
    assert is_duplicate(texts[0], texts[0].title())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the writer holds the lock", "the reader holds the lock"),
        ("if count == most: return", "if count != most: return"),
        ("", "***"),
    ],
)
def test_short_duplicates_have_exactly_the_same_words(one, other):
    assert not is_duplicate(one, other)
    assert not is_duplicate(other, one)
    assert is_duplicate(one, one)


def test_allowed_new_words_depend_on_the_length():
    """Up to 39 words, no word may be new; from 40 words on, one may be; from 100 words on, it may be a number."""
    words = [
        f"{a}{b}" for a in "bcdfghjk" for b in ("a", "e", "i", "o", "u", "au", "eu", "ou", "ai", "oi", "ei", "ui", "oo")
    ]
    for length, word, duplicate in [(39, "new", False), (40, "new", True), (99, "7", False), (100, "7", True)]:
        text = words[:length]
        for place in (0, length // 2, length - 1):
            changed = [*text[:place], word, *text[place + 1 :]]
            assert is_duplicate(" ".join(changed), " ".join(text)) is duplicate, (length, place)


def test_words_of_other_scripts_are_compared():
    assert words_of("Ein »Straßen«-Café, no. 3.1 (−5 °C)") == ("ein", "strassen", "café", "no", "3.1", "−5", "c")
    assert words_of("使用faiss索引。") == ("使", "用", "faiss", "索", "引")
    assert words_of("ﬁle x >= y") == ("file", "x", ">=", "y")
    assert words_of("**bold** — `code` | cell") == ("bold", "code", "cell")


def loop_over_pairs(texts):
    """Compare each text with every kept text."""
    kept, placed = [], []
    for text in texts:
        found = next((i for i, other in enumerate(kept) if text == other or is_duplicate(text, other)), None)
        placed.append(found)
        if found is None:
            kept.append(text)
    return placed


@given(st.integers(0, 10**6), st.integers(2, 30))
def test_no_duplicate_is_missed_among_many_texts(seed, vocabulary):
    draw = random.Random(seed)
    base = [[f"w{chr(97 + draw.randrange(vocabulary))}" for _ in range(draw.randrange(60))] for _ in range(3)]
    texts = []
    for _ in range(12):
        words = list(draw.choice(base))
        for _ in range(draw.randrange(4)):
            words.insert(draw.randrange(len(words) + 1), draw.choice(["x", "y", "7", "wa"]))
        texts.append(" ".join(words[draw.randrange(3) :]))
    near = NearDuplicates()
    assert [near.place(text) for text in texts] == loop_over_pairs(texts)


def test_repetitive_texts_do_not_slow_down_the_word_pattern():
    for text in ("1" + "." * 100_000, "-" * 100_000, "=" * 99_999, "x" * 100_000, "错" * 100_000, "1," * 50_000):
        assert is_duplicate(text, text)


@pytest.mark.parametrize(("length", "expected"), [(LEAST_BODY, 0), (LEAST_BODY - 1, None)])
def test_an_equal_text_below_other_headings_is_a_duplicate_if_it_is_long(length, expected):
    near, body = NearDuplicates(), "the option is off ".ljust(length, "x")
    assert near.place(f"Configuration of the install command\n{body}", body) is None
    assert near.place(f"Settings of the program, in the order of their names\n{body}", body) == expected
