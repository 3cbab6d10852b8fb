"""Text is normalised for search: ligatures, invisible characters, words that line ends divide."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ragembed.documents.model import Chunk
from ragembed.documents.normalisation import (
    aligned,
    divided_words,
    join_line_ends,
    line_end_words,
    line_forms,
    normalise,
    normalised,
)

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from("a\u0301\u00ad\ufb01-\n x\uac00\u11a8\u200b\u00bd")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Uni\ufb01ed e\ufb00ect \ufb06", "Unified effect st"),
        ("Daten\u00adschutz", "Datenschutz"),
        ("no\u00a0break\u202fspace", "no break space"),
        ("zero\u200bwidth\ufeff \u200fmark", "zerowidth mark"),
        ("cafe\u0301 \u212b", "café Å"),
        ("\uff21\uff22\uff23 \uff11\uff12 \uff76\uff9e \u3392", "ABC 12 ガ MHz"),
        ("H\u2082O m\u00b2 \u2460", "H2O m2 1"),
        ("10\u2076 5\u00b710\u207b\u00b3 10\u2082 E=mc\u00b2", "10^6 5·10^\u22123 10_2 E=mc2"),
        (
            "2\u00bd don\u00b4t Java\u2122 \u2026 \uff0c \u201cquoted\u201d",
            "2\u00bd don\u00b4t Java\u2122 … ， “quoted”",
        ),
    ],
)
def test_normalised_text(text, expected):
    assert normalise(text) == expected


def test_ascii_text_is_returned_unchanged():
    text = "plain text, with 1/2 of everything\n"
    assert normalise(text) is text


def test_normalising_divides_no_word():
    signs = [sign for sign in map(chr, range(0x80, 0x110000)) if unicodedata.decomposition(sign)]
    divided = [sign for sign in signs if len(form := normalise(sign)) > 1 and form[0] == " " and form[1] != " "]
    assert [sign for sign in divided if unicodedata.combining(normalise(sign)[1])] == []


@given(TEXTS)
@example("\u00ad\u0301")
def test_normalising_again_changes_nothing_and_keeps_the_lines(text):
    once = normalise(text)
    assert normalise(once) == once
    assert once.count("\n") == text.count("\n")


@given(TEXTS)
def test_aligned_origins_cover_the_text_in_order(text):
    form, origins = aligned(text)
    assert form == normalise(text)
    assert len(origins) == len(form)
    assert origins == sorted(origins)
    assert all(normalise(text[start:end]) for start, end in origins)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The whole word is in the file, or neither half is.
        ("inter-\nnational law. A national, international inter net.", "international\n law. A national, {}"),
        ("inter-\n  national law", "international\n law"),
        ("Normali-\nsation", "Normalisation\n"),
        ("Daten\u00ad\nschutz, Daten und Schutz", "Datenschutz\n, Daten und Schutz"),
        # A half is a word of its own.
        ("a well-\nknown author is known", None),
        ("Anglo-\nSaxon", None),
        ("state-of-\nthe-art", None),
        ("from 1914-\n1918", None),
        ("ends here -\nnot joined", None),
    ],
)
def test_words_divided_by_line_ends(text, expected):
    joined = join_line_ends(text, line_end_words([text]))
    expected = text if expected is None else expected.format("international inter net.")
    assert joined == expected
    assert joined.count("\n") == text.count("\n")


def test_words_of_a_file_are_those_of_all_its_chunks():
    texts = ["The inter-\nnational law and inter alia.", "An international treaty."]
    words = line_end_words(texts)
    assert normalised(Chunk(texts[0]), words).searched == "The international\n law and inter alia."
    assert normalised(Chunk(texts[0]), line_end_words(texts[:1])).searched is None
    assert line_end_words(["no divided word", "Uni\ufb01ed"]) is None


@given(TEXTS)
@example("x inter-\nna\u00ad\ntional-\n\u00adlaw")
def test_searched_lines_are_among_the_forms_of_their_lines(text):
    forms = line_forms(text)
    searched = normalised(Chunk(text), line_end_words([text])).searched
    lines = (text if searched is None else searched).encode("utf-8", "replace").decode().split("\n")
    for line, of_line in zip(lines, forms, strict=True):
        assert line in of_line or "?" in line
    assert all(len(form) == len(origins) for of_line in forms for form, origins in of_line.items())


def test_divided_words_have_their_place():
    text = "an inter-\n  national Uni\ufb01-\ncation"
    assert [(text[start:end], word) for start, end, word in divided_words(text)] == [
        ("inter-\n  national", "international"),
        ("Uni\ufb01-\ncation", "Unification"),
    ]


@pytest.mark.parametrize("marks", ["\u0323\u0301", "\u0f73\u0f71", "\uff9e\u0301"])
def test_endless_marks_are_sorted_in_pieces(marks):
    text = "a" + marks * 400_000  # Python would need hours to sort them.
    whole = normalise(text)
    assert unicodedata.normalize("NFKC", whole) == whole
    assert len(whole.replace("\u034f", "")) >= 2 * 400_000 - 100
    short = "a" + marks * 40
    assert normalise(short) == unicodedata.normalize("NFKC", short)
