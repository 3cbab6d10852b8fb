import pytest

from ragembed.errors import ConfigError
from ragembed.papers import LabelledTexts, read_labelled_texts, read_sentence_pairs
from ragembed.papers.sentences.sentence_collections import SPLITS, read_examples, read_scored_pairs


@pytest.fixture
def table(tmp_path):
    def write(content):
        path = tmp_path / "table.tsv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_sentence_pairs(table):
    pairs = read_sentence_pairs(table('score\tsentence1\tsentence2\n4.5\tHe said "yes".\t"No\n0\té\t\n'))
    assert pairs.scores == (4.5, 0.0)
    assert pairs.sentences1 == ('He said "yes".', "é")
    assert pairs.sentences2 == ('"No', "")


def test_labelled_texts(table):
    read = read_labelled_texts(table("label\ttext\n1\ta, b\nsport\tc"))
    assert (read.labels, read.texts) == (("1", "sport"), ("a, b", "c"))


def test_texts_for_clustering_as_published(tmp_path):
    """Numbers and texts without a header; a text can have tabs. The same file is read for statistics."""
    file = tmp_path / "stackoverflow_true_text"
    file.write_text("18\tHow do you page?\n3\ta\tb\n")
    expected = LabelledTexts(("How do you page?", "a\tb"), ("18", "3"))
    assert read_labelled_texts(file) == expected == read_examples(file)[1]
    file.write_text("18\tOne\ntwo\tTwo\n")
    with pytest.raises(
        ConfigError, match=r"stackoverflow_true_text, line 2: got 'two\\tTwo': expected a number, a tab"
    ):
        read_labelled_texts(file)


@pytest.mark.parametrize(("splits", "kept"), [((), "c"), (("train",), "a"), (("train", "dev", "test"), "abc")])
def test_splits_of_pairs(table, splits, kept):
    """By default, the test split; without splits in the file, all pairs, but no split can be named."""
    rows = "".join(
        f"{split}\t{number}\t{text}\tx\n" for number, (split, text) in enumerate(zip(SPLITS, "abc", strict=True))
    )
    name, pairs = read_scored_pairs(table(f"split\tscore\tsentence1\tsentence2\n{rows}"), splits)
    assert (name, "".join(pairs.sentences1), pairs.splits) == ("table", kept, ())
    plain = table("score\tsentence1\tsentence2\n1\ta\tx\n")
    if not splits:
        assert read_scored_pairs(plain)[1].sentences1 == ("a",)
        return
    with pytest.raises(
        ConfigError, match=r"table.tsv has no pair in the split 'train': expected train.*first column is"
    ):
        read_scored_pairs(plain, splits)


def test_windows_line_endings_and_byte_order_mark(table):
    read = read_labelled_texts(table(b"\xef\xbb\xbflabel\ttext\r\n1\ta\r\n2\tb\x0bc\r\n"))
    assert (read.labels, read.texts) == (("1", "2"), ("a", "b\x0bc"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: the header is ''"),
        ("label\ttext\n1\ta\n", "line 1: the header is 'label.ttext': expected score sentence1 sentence2"),
        ("score\tsentence1\tsentence2\n", "only a header"),
        ("score\tsentence1\tsentence2\n1\ta\tb\n1\ta\n", "line 3: 2 fields: expected 3 "),
        ("score\tsentence1\tsentence2\n1\ta\tb\tc\n", "line 2: 4 fields"),
        ("score\tsentence1\tsentence2\n\n", "line 2: 1 fields"),
        ("score\tsentence1\tsentence2\nhigh\ta\tb\n", "line 2: the score is 'high': expected a number"),
        ("score\tsentence1\tsentence2\nnan\ta\tb\n", "line 2: the score is 'nan'"),
        (b"score\tsentence1\tsentence2\n1\ta\tb\n1\t\xff\tb\n", "line 3: not UTF-8"),
    ],
)
def test_table_error_names_line(table, content, message):
    path = table(content)
    with pytest.raises(ConfigError, match=message) as raised:
        read_sentence_pairs(path)
    assert str(path) in str(raised.value)
