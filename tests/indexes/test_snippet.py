import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragembed.indexes.search.snippet import MAX_CHARACTERS, MAX_LINES, QueryWords
from ragembed.printable import printable, readable_bytes


def snippet(text, query, language="english"):
    return QueryWords(query, [text], language).snippet(text)[0]


def marked_words(text, query, language="english"):
    return [text[start:end] for start, end in QueryWords(query, [text], language).places(text)]


def test_snippet_has_lines_with_most_query_words():
    text = "\n".join(["filler line"] * 10 + ["the writer locks", "a store"] + ["more filler"] * 10)
    assert "the writer locks\na store" in snippet(text, "how is a store locked by a writer?")
    assert snippet(text, "nothing in common").split("\n") == ["filler line"] * MAX_LINES


@pytest.mark.parametrize(
    "unsaid",
    [
        "- [Lock a store](#lock-a-store)",
        "[lock]: https://example.org/lock/store",
        '<a name="lock-store"></a>',
        ".. _lock store: https://a.b",
        "How is it to be done by a",
    ],
)
def test_snippet_is_not_made_of_links_anchors_and_stop_words(unsaid):
    text = "\n".join([unsaid] * 3 + ["filler"] * 4 + ["A writer locks", "the store.", "Others wait."])
    assert "A writer locks\nthe store." in snippet(text, "how is a store to be locked")


def test_snippet_of_a_row_has_its_first_column_and_the_one_that_answers():
    row = "company: Cafe D3\nstreet: Mill Lane\ncity: Truro\ncontact: Luca\nphone: 4003\nremark: pays in cash"
    assert snippet(row, "who pays cash") == row


def test_fields_of_a_note_are_no_text():
    assert snippet("tags: [garden]\ncreated: 2026\n\nTomatoes go south.", "compost") == "Tomatoes go south."


def test_headings_without_marks_are_not_counted():
    text = "Lease of the office\n\n1. Parties\n\nThe landlord.\n\n2. Rent\n\nPay monthly.\n\n3. Notice\n\nSix months."
    words = QueryWords("notice of the lease", [text])
    assert words.snippet(text, ["Lease of the office"])[0].endswith("3. Notice\n\nSix months.")


def test_snippet_begins_with_the_words_of_the_query():
    text = "\n".join(["filler"] * 6 + ["## Locks", "", "One writes,", "others wait.", "More."])
    assert snippet(text, "locks") == "One writes,\nothers wait.\nMore."


@pytest.mark.parametrize("last", ["How fast is the zebra wing?", "The zebra wing:"])
def test_snippet_shows_what_follows_a_leading_line(last):
    text = "\n\n".join(["the wing flows"] + ["filler"] * 2 + [last, "9 km/h", "filler"])
    assert f"{last}\n\n9 km/h" in snippet(text, "zebra wing")
    long = f"{last}\n\n{'so it is said, ' * 40}"
    assert snippet(long, "zebra wing").startswith(f"{last}\n\nso it is said,")


def test_snippet_shows_a_comment_of_source_code():
    code = "\n".join(["x = 1"] * 5 + ["# the zebra sleeps", "sleep()"])
    assert "# the zebra sleeps" in snippet(code, "zebra")


def test_snippet_prefers_the_text_of_a_note_to_its_fields():
    fields = "tags: [zebra]\naliases: [wing]\nborn: 1988\nplace: here\n\n"
    assert snippet(f"{fields}# Animals\n\nThe zebra\nhas no wing.\nIt runs.", "zebra wing").startswith(
        "The zebra\nhas no wing."
    )
    assert snippet("(locks)=\n---\nText of locks\nmore", "locks") == "Text of locks\nmore"


def test_snippet_has_words_divided_by_line_ends():
    text = "\n".join(["filler line"] * 10 + ["law is inter-", "national"] + ["more filler"] * 10)
    assert "law is inter-\nnational" in snippet(text, "international law")


def test_long_line_is_cut_around_query_words():
    line = "word " * 300 + "the needle here" + " tail" * 300
    cut = snippet(line, "needle")
    assert "needle" in cut
    assert len(cut) <= MAX_CHARACTERS
    assert cut in line


def test_a_long_line_is_cut_where_most_different_words_are():
    repeated, answer = "A needle is a needle. " * 20, "The needle of a pine is thin. "
    line = repeated + answer + repeated
    assert answer in snippet(line, "thin needle of a pine")


def test_the_line_that_answers_stays_when_the_last_lines_go():
    text = f"The zebra has a wing, {'so it is said, ' * 18}\n\nThe zebra:\n\nx = 10\ny = 4"
    assert snippet(text, "zebra wing").startswith("The zebra has a wing,")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("see `one long command`", "follows", ", needle follows"),  # cut behind code
        ("`one", "option`", "`one, needle option` tail"),  # the word is in the code
        ("see", f"{'text ' * 40}``{'code ' * 90}``", "word see, needle text"),  # cut before code
    ],
)
def test_a_long_line_is_not_cut_in_code(before, after, shown):
    line = f"{'word ' * 300}{before}, needle {after}{' tail' * 300}"
    cut = snippet(line, "needle")
    assert cut in line
    assert len(cut) <= MAX_CHARACTERS
    assert cut.count("`") % 2 == 0
    assert shown in cut


@given(
    st.text(st.sampled_from("ab \nneedle.`é猫本ยิ"), max_size=1500),
    st.sampled_from(["needle", "a b", "", "é", "猫本", "ยิน"]),
)
def test_snippet_is_verbatim_and_short(text, query):
    cut = snippet(text, query)
    assert cut in text
    assert len(cut) <= MAX_CHARACTERS
    assert sum(bool(line.strip()) for line in cut.split("\n")) <= MAX_LINES


@pytest.mark.parametrize(("word", "found"), [("locks", True), ("locking", True), ("Locked", True), ("clock", False)])
def test_words_match_with_other_endings(word, found):
    assert bool(marked_words(word, "lock")) is found


@pytest.mark.parametrize(
    ("text", "query", "language", "marked"),
    [
        (
            "University of the universe",
            "universal",
            "english",
            ["University", "universe"],
        ),  # the same stem as in search
        ("Häuser und Haus", "Hauses", "german", ["Häuser", "Haus"]),
        ("a writer_lock", "locks", "english", ["lock"]),
        ("Café", "cafe", "english", ["Café"]),
        ("C++ is not C", "C++", "english", ["C++"]),
        ("a store of it", "a store", "english", ["store"]),
        # Stop words are not marked, also in other languages than that of the store; short names are.
        ("What is the AI of Go and how does it run?", "how does the Go AI run", "english", ["AI", "Go", "run"]),
        ("Wie kann ich die Datei auf der Platte öffnen?", "wie öffne ich die Datei", "english", ["Datei"]),
        ("the die is cast", "die hard", "english", ["die"]),
        # Normalised words are marked as the text has them, also after letters that became longer or shorter.
        (
            "the \ufb01rst Uni\ufb01ed o\u00ad\ufb03ces lock",
            "unified offices lock",
            "english",
            ["Uni\ufb01ed", "o\u00ad\ufb03ces", "lock"],
        ),
        ("of Daten\u00adschutz and lock", "Datenschutz lock", "german", ["Daten\u00adschutz", "lock"]),
        ("the inter-\n  national law", "international", "english", ["inter-\n  national"]),
    ],
)
def test_marked_words_follow_lexical_search(text, query, language, marked):
    assert marked_words(text, query, language) == marked


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("学習 写真", ["学習", "写真"]),
        ("猫", ["猫", "猫"]),
        ("械機", []),
    ],
)
def test_scripts_without_spaces_are_marked_by_pairs_of_letters(query, marked):
    text = "黒猫が機械学習の本を読む。tower の写真と猫。"
    assert marked_words(text, query) == marked
    assert query in snippet("行\n" * 20 + text, query) or not marked or " " in query


def test_printable_removes_control_characters():
    assert printable("a\tb\nc é 🎉\x1b[31m\x07\x9b") == "a\tb\nc é 🎉[31m"


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (1536, "1.5 KB"), (3 * 1024**3, "3.0 GB")])
def test_readable_bytes(size, shown):
    assert readable_bytes(size) == shown
