import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.models.word_tokenizer import MAX_TOKENS, WordTokenizer, _patterns

KNOWN = """
    the dog 's don't don t ' - well-known well known state-of-the-art of state u.s. u . ... 3.14 3 14 , café paris
    Berlin new_york 東京 都 東 京 👍 ❤ กา and/or and or résumé c +
"""
WORDS = KNOWN.split()


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer({word: row for row, word in enumerate(WORDS)})


def words(tokenizer, text):
    (ids,) = tokenizer.ids([text])
    return [WORDS[i] for i in ids]


def pieces(tokenizer, text):
    (spans,) = tokenizer.offsets([text])
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The DOG", ["the", "dog"]),
        ("a dog unheard of", ["dog", "of"]),
        ("don't", ["don't"]),
        ("don’t", ["don't"]),
        ("dog's", ["dog", "'s"]),
        ("dog't", ["dog", "'", "t"]),
        ("well-known", ["well-known"]),
        ("well‑known", ["well-known"]),
        ("well-dog", ["well", "-", "dog"]),
        ("State-of-the-art's", ["state-of-the-art", "'s"]),
        ("unheard-of", ["-", "of"]),
        ("in the U.S., the U.", ["the", "u.s.", ",", "the", "u", "."]),
        ("dog.The", ["dog", ".", "the"]),
        ("3.14", ["3.14"]),
        ("3,14", ["3", ",", "14"]),
        ("and/or and/the", ["and/or", "and", "the"]),
        ("the dog...", ["the", "dog", "..."]),
        ("..", [".", "."]),
        ("c++", ["c", "+", "+"]),
        ("New_York the_dog", ["new_york", "the", "dog"]),
        ("'dog'", ["'", "dog", "'"]),
        ("\t\r\n ", []),
        ("", []),
    ],
)
def test_words_are_joined_if_the_vocabulary_has_the_joined_form(tokenizer, text, expected):
    assert words(tokenizer, text) == expected


def test_lower_case_has_precedence():
    vocabulary = {"Paris": 0, "paris": 1, "Berlin": 2}
    assert WordTokenizer(vocabulary).ids(["Paris PARIS Berlin berlin BERLIN"]).tolist() == [[1, 1, 2]]


def test_accents_are_kept_and_composed(tokenizer):
    assert words(tokenizer, "CAFE\u0301 café cafe résumé resume") == ["café", "café", "résumé"]
    assert pieces(tokenizer, "CAFE\u0301 r\u0065\u0301sume\u0301!") == ["CAFE\u0301", "r\u0065\u0301sume\u0301", "!"]


def test_soft_hyphens_do_not_split_words(tokenizer):
    assert words(tokenizer, "do\u00adg \u00ad") == ["dog"]
    assert pieces(tokenizer, "do\u00adg \u00ad") == ["do\u00adg"]


def test_scripts_without_spaces_match_the_longest_words(tokenizer):
    assert words(tokenizer, "東京都と京東กา") == ["東京", "都", "京", "東", "กา"]
    assert pieces(tokenizer, "東京都") == ["東", "京", "都"]


def test_combining_marks_and_emoji_modifiers_stay_attached(tokenizer):
    assert words(tokenizer, "👍🏽 ❤️ 👍👍") == ["👍", "❤", "👍", "👍"]
    assert pieces(tokenizer, "हिन्दी ❤️") == ["हिन्दी", "❤️"]


def test_offsets_cover_known_and_unknown_words(tokenizer):
    assert pieces(tokenizer, "Zebras, don't (x)!") == ["Zebras", ",", "don", "'", "t", "(", "x", ")", "!"]
    assert tokenizer.offsets(["a  b", ""]) == [[(0, 1), (3, 4)], []]


def test_tokenizer_properties(tokenizer):
    assert tokenizer.vocabulary_size == len(WORDS)
    assert tokenizer.vocabulary() == WORDS
    assert tokenizer.max_tokens == MAX_TOKENS
    assert (tokenizer.prefix, tokenizer.suffix, tokenizer.special_tokens) == ([], [], 0)


def test_control_characters_and_surrogates_are_ignored(tokenizer):
    assert pieces(tokenizer, "\x00\ud800dog\udfff\u200b\ufeff\x1f\u2028\ufe0f") == ["dog"]
    assert words(tokenizer, "\x00\ud800dog\udfff") == ["dog"]


@given(st.lists(st.text(st.characters(codec=None) | st.sampled_from("dogs'-._,\u0301\u00ad东กา=")), max_size=4))
def test_offsets_are_ordered_and_contain_no_space(texts):
    tokenizer = WordTokenizer({word: row for row, word in enumerate(WORDS)})
    for text, spans, ids in zip(texts, tokenizer.offsets(texts), tokenizer.ids(texts), strict=True):
        assert all(start < end <= len(text) for start, end in spans)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
        assert len(ids) <= len(spans)
        assert sum(char.isalnum() for char in text) == sum(c.isalnum() for a, b in spans for c in text[a:b])


@given(st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1), min_size=1))
def test_every_word_of_letters_and_digits_is_found(written):
    vocabulary = list(dict.fromkeys(unicodedata.normalize("NFC", word).lower() for word in written))
    findable = [
        (row, word)
        for row, word in enumerate(vocabulary)
        if unicodedata.normalize("NFC", word).lower() == word and len(WordTokenizer({}).offsets([word])[0]) == 1
    ]
    tokenizer = WordTokenizer({word: row for row, word in enumerate(vocabulary)})
    assert tokenizer.ids([word for _, word in findable]).tolist() == [[row] for row, _ in findable]


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_patterns_equal_the_general_ones(text):
    for name in ("atom", "compound"):
        found = [
            [match.span() for match in getattr(_patterns(is_ascii), name).finditer(text)] for is_ascii in (True, False)
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "text", ["x-" * 10000, "=" * 10000, "a" + "\u0301" * 100_000 + "b", "\u00ad" * 100_000, "東" * 10000]
)
def test_long_runs_take_linear_time(tokenizer, text):
    assert len(words(tokenizer, text)) <= len(pieces(tokenizer, text))
