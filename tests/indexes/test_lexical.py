"""Lexical search for phrases, code, names, and scripts without spaces."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes import Store
from ragembed.indexes.lexical.analyzer import ENGLISH, of_language
from ragembed.indexes.lexical.fulltext import MOST_TERMS, match_expression
from tests.conftest import KnownEncoder, record

FILLER = {f"filler{i}": f"nothing of what anybody asks stands in text number {i}" for i in range(12)}


def filled(folder, texts, language="english"):
    """Return an open store of ``texts`` by id, and of some other texts."""
    store = Store.create(folder / "store", KnownEncoder(), language=language)
    store.add(record(name, text) for name, text in {**texts, **FILLER}.items())
    return store


def found(store, query):
    return [hit.id for hit in store.search(query, 99, "lexical") if hit.id not in FILLER]


CODE = {
    "exact": "Call faiss.IndexFlat to compare with every vector of the store.",
    "part": "The class IndexFlat compares with every vector of the store too.",
    "other": "The library faiss has graphs and lists for many vectors of a store.",
    "error": "Windows says error 0x80070005 where access is denied to a file.",
    "number": "Windows says error 0x80070006 where a handle was closed before.",
    "snake": "Give snake_case_name to functions, not CamelCaseName as in Java.",
    "case": "The name of a snake is written in either case by this author.",
    "option": "With --no-cache every page is read again from the disk below.",
    "cache": "The cache keeps pages of the disk; there is no other way to it.",
    "call": "Where foo(bar) is called, nothing is returned to the caller at all.",
    "apart": "The bar is far from every foo that was there before today's call.",
    "path": "Look into a/b/c.py for the place where it happened last Monday.",
    "mail": "Write to jane.doe@example.org about it, or wait for the next release.",
    "emoji": "Tea is hot🍵 but good 👍🏽.",
    "plus": "C++ is compiled before it is run, as every one of you has known.",
    "sharp": "It was written again in C#, which is compiled to what a machine of its own runs.",
    "it": "Nobody knows what it's worth to wait for a minute or another one.",
    "logic": "AND and OR and NOT join conditions NEAR one another in a question.",
}


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    with filled(tmp_path_factory.mktemp("code"), CODE) as store:
        yield store


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ('"faiss.IndexFlat"', ["exact"]),
        ("error 0x80070005", ["error", "number"]),
        ('"error 0x80070005"', ["error"]),
        ("CamelCaseName", ["snake"]),
        ("C++", ["plus"]),
        ("🍵", ["emoji"]),
        ("C", ["path"]),
        ("C#", ["sharp"]),
        ("--no-cache", ["option", "cache"]),
        ("foo(bar)", ["call", "apart"]),
        ("jane.doe@example.org", ["mail"]),
        ("AND", ["logic", "other"]),
        ("NEAR(conditions, 1)", ["logic"]),
        ("handle*", ["number"]),
        ("-handle +closed", ["number"]),
        ("🦓", []),
        ("* ( ) : ^ - + \" ' \\", []),
        ("", []),
    ],
)
def test_query_finds_exact_spellings(code, query, ids):
    assert found(code, query) == ids


@pytest.mark.parametrize(
    ("query", "exact", "partial"),
    [
        ("faiss.IndexFlat", "exact", {"part", "other"}),
        ("snake_case_name", "snake", {"case"}),
        ("it's", "it", set()),
    ],
)
def test_joined_words_rank_before_their_parts(code, query, exact, partial):
    first, *others = found(code, query)
    assert first == exact
    assert partial <= set(others)


def test_query_without_words_uses_dense_search(code):
    assert len(code.search("🦓", 3)) == 3  # no text has this emoji
    assert {hit.lexical for hit in code.search("?!", 3)} == {None}


def test_query_of_ten_thousand_words_works(code):
    words = [f"word{i}" for i in range(10_000)]
    assert found(code, " ".join(["handle", *words])) == ["number"]
    assert match_expression(" ".join(words), of_language(ENGLISH)).count(" OR ") == MOST_TERMS - 1
    assert found(code, " ".join(["handle"] * 10_000)) == ["number"]


@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_is_a_valid_query(code, query):
    hits = code.search(query, 5, "lexical")
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert not hits or any(letter.isalnum() or unicodedata.category(letter)[0] == "S" for letter in query)


# Letters without spaces

LETTERS = {
    "japanese": "機械学習の入門書です。黒い猫と白い犬がいます。",
    "chinese": "如何学习机器学习？东京都的地图和北京的天气。",
    "korean": "한국어를 배우는 학생들이 도서관에서 공부합니다.",
    "thai": "ภาษาไทยเป็นภาษาที่ไม่มีช่องว่างระหว่างคำ",
    "khmer": "ភាសាខ្មែរមិនមានចន្លោះរវាងពាក្យទេ",
    "lao": "ພາສາລາວບໍ່ມີຊ່ອງຫວ່າງລະຫວ່າງຄຳ",
    "burmese": "မြန်မာဘာသာစကားတွင် စကားလုံးများကြား နေရာလွတ်မရှိပါ။",
    "mixed": "Pythonで機械を動かす。東京 tower の写真は100枚。",
    "narrow": "ｶﾞｲﾄﾞﾌﾞｯｸ ＡＢＣ１２３",
    "end": "これは猫",
}


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    with filled(tmp_path_factory.mktemp("letters"), LETTERS) as store:
        yield store


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("機械学習", "japanese"),
        ("学习", "chinese"),
        ("도서관", "korean"),
        ("ภาษา", "thai"),
        ("စကား", "burmese"),
        ("Pythonで機械", "mixed"),
        ('"東京 tower"', "mixed"),
        ('"京 tower の写"', "mixed"),
        ("ガイドブック", "narrow"),
        ("ガイ\u30c8\u3099", "narrow"),
    ],
)
def test_letters_without_spaces_are_found(letters, query, first):
    assert found(letters, query)[0] == first


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("猫", {"japanese", "end"}),
        ('"機械"', {"japanese", "mixed"}),
        ('"械機"', set()),
        ('"東京tower"', {"mixed"}),
        ("คำ", {"thai"}),
    ],
)
def test_letters_of_a_query_are_found_as_a_phrase(letters, query, ids):
    assert set(found(letters, query)) == ids


def test_all_letters_in_a_row_rank_before_some(tmp_path):
    texts = {"some": "機械は学習をする道具である", "all": "道具は機械学習をする物である"}
    with filled(tmp_path, texts) as store:
        assert found(store, "機械学習") == ["all", "some"]


def test_titles_and_headings_without_spaces_are_found(tmp_path):
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        store.add([record("a", "text", title="取扱説明書", headings=("第一章", "安全について")), record("b", "text")])
        for query in ("説明書", "安全", "第一"):
            assert found(store, query) == ["a"]


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("हिन्दी की किताबें", "किताबें"),
        ("الكِتَابُ الجديد", "الكتاب"),
        ("cliche\u0301", "cliché"),
        ("1\ufe0f\u20e3 ❤️ first", "1"),
        ("葛\U000e0100城", "葛城"),
    ],
)
def test_marks_belong_to_their_letters(tmp_path, written, asked):
    with filled(tmp_path, {"a": written}) as store:
        assert found(store, asked) == ["a"]


def test_vowel_sign_makes_a_different_word(tmp_path):
    with filled(tmp_path, {"few": "कम", "work": "काम"}) as store:
        assert found(store, "काम") == ["work"]


# Searchable text


def test_search_uses_the_searchable_text_of_a_chunk(tmp_path):
    whole = "Copyright 2020 by nobody. Zebras sleep."
    encoder = KnownEncoder()
    with Store.create(tmp_path / "s", encoder) as store:
        store.add([record("a", whole, title="T", searched="Zebras sleep."), record("b", "all of it")])
        [hit] = store.search("zebra", 9, "lexical")
        assert (hit.id, hit.chunk.text, hit.chunk.searched) == ("a", whole, "Zebras sleep.")
        assert hit.chunk.embedded_text == "T\nZebras sleep."
        assert store.search("copyright", 9, "lexical") == []
        assert store.search("T\nZebras sleep.", 1, "dense")[0].score == pytest.approx(1)
        store.add([record("a", whole, title="T")])
        assert [hit.id for hit in store.search("copyright", 9, "lexical")] == ["a"]
        store.delete(["a"])
        assert store.search("zebra copyright", 9, "lexical") == []
        assert store.verify().problems == []


def test_chunk_without_searchable_text(tmp_path):
    with Store.create(tmp_path / "s", KnownEncoder()) as store:
        store.add([record("a", "zebra", searched=""), record("b", "zebra", searched="half \ud83d pair")])
        assert store.search("zebra", 9, "lexical") == []
        assert [each.chunk.searched for each in store.chunks()] == ["", "half ? pair"]
        assert store.verify().problems == []
