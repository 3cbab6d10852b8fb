"""Statistics of collections: by hand, and the printed ones of Stankevičius & Lukoševičius 2024, tables 2 and 3."""

import json

import pytest

from ragembed.config.settings import DEFAULT_MODEL
from ragembed.models.files import find_tokenizer
from ragembed.models.tokenizer import TextTokenizer
from ragembed.papers import TextStatistics, describe


@pytest.fixture(scope="module")
def tokenizer():
    return TextTokenizer(find_tokenizer(DEFAULT_MODEL)[0])


def test_statistics_by_hand(tmp_path, tokenizer):
    """The tokenizer splits "Zorbing" into zo, ##rb and ##ing, and "tea," into two tokens."""
    file = tmp_path / "topics.tsv"
    file.write_text("label\ttext\ntea\tTea tea tea,\nball\tZorbing 2\ntea\ttea\n")
    [found] = describe(file, tokenizer)
    assert (found.collection, found.split, found.texts, found.classes, found.imbalance) == ("topics", None, 3, 2, 2.0)
    assert found.words == TextStatistics(5, 2.0, pytest.approx(100 * 4 / 6))
    assert found.tokens == TextStatistics(6, 3.0, pytest.approx(100 * 5 / 9))
    assert found.overlap is None


def test_pairs_and_splits(tmp_path, tokenizer):
    file = tmp_path / "pairs.tsv"
    rows = ["train\t5\ta cat\tA cat sleeps", "train\t4\ta\tb", "train\t1\ta\ta", "test\t3\tone\ttwo words"]
    file.write_text("split\tscore\tsentence1\tsentence2\n" + "\n".join(rows))
    train, test = describe(file, tokenizer)
    assert (train.split, train.texts, train.classes, train.imbalance) == ("train", 3, None, 2.0)
    assert train.words == TextStatistics(5, 3.0, 100.0)
    assert train.overlap == pytest.approx(100 * (2 / 3 + 0 + 1) / 3)
    assert (test.split, test.words.length, test.overlap) == ("test", 3.0, 0.0)


@pytest.mark.parametrize(
    ("file", "classes", "imbalance", "words", "tokens"),
    [
        ("clustering/agnews", 4, 1, (21062, 23, 100), (16140, 26, 86)),
        ("clustering/searchsnippets", 8, 7, (30642, 18, 99), (16334, 24, 77)),
        ("clustering/stackoverflow", 20, 1, (22919, 8, 87), (7332, 12, 71)),
        ("sts/sts13", None, 0.7, (6719, 18, 87), (5143, 21, 82)),
        ("sts/sts14", None, 1.6, (13896, 18, 85), (8614, 23, 80)),
    ],
)
def test_printed_statistics(collections, tokenizer, file, classes, imbalance, words, tokens):
    """Words of STS differ from the paper's because SentEval splits its texts with MOSES first."""
    [found] = describe(collections / f"{file}.tsv", tokenizer)
    assert found.classes == classes
    assert round(found.imbalance, 0 if classes else 1) == imbalance
    for statistics, printed in ((found.words, words), (found.tokens, tokens)):
        assert (statistics.vocabulary, round(statistics.length), round(statistics.alphabetic)) == printed


def test_command(in_folder, cli, tiny_model):
    file = in_folder / "pairs.tsv"
    file.write_text("score\tsentence1\tsentence2\n5\ta cat\ta cat\n0\ta dog\tair\n")
    table = cli("papers", "eval", "describe", file, "--model", tiny_model).stdout.splitlines()
    assert table[0].split() == ["split", "N", "C", "L/S", "V", "W", "B", "Len", "W", "B", "Alpha", "W", "B", "overlap"]
    assert table[1].split()[:4] == ["pairs", "2", "1.0", "4"]
    found = json.loads(cli("papers", "eval", "describe", file, "--model", tiny_model, "--json").stdout)
    assert (found["task"], found["words"]["length"], found["overlap"]) == ("describe", 3.5, 50.0)
    lines = cli("papers", "eval", "describe", file, file, "--model", tiny_model, "--format", "csv").stdout.splitlines()
    assert lines[0].startswith("task,collection,split,texts,classes,imbalance,words.vocabulary,words.length")
    assert len(lines) == 3
