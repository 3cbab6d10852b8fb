import pytest

from ragembed.errors import ConfigError
from ragembed.papers import read_labelled_texts, read_sentence_pairs


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
